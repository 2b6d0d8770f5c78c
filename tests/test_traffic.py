"""Verifications of a request and its ends, where acceptance is certain."""

from dataclasses import replace

import numpy as np
import pytest
from engine_worlds import Asked, Scenario, Server

from cluster_sim.traffic import EXACT, Traffic, traffic


def certain(accepted: int, max_tokens: int) -> Traffic:
    """Of a request whose first `accepted` of 2 drafts are always accepted, and no more."""
    rules = Scenario((Asked(max_tokens=max_tokens),), (replace(Server(), num_speculative_tokens=2),)).rules()
    conditional = np.zeros((1, 1, 3, 2))
    conditional[0, 0, 1, : min(accepted, 1)] = conditional[0, 0, 2, :accepted] = 1.0
    return traffic(rules._replace(luck=rules.luck._replace(conditional=conditional)), 2)


@pytest.mark.parametrize("tokens", [0, 1, 2, 3, 5, EXACT, EXACT + 8])
def test_the_last_verification_gives_what_is_left(tokens: int) -> None:
    """Of m tokens after the first: at one a verification m of them, at two m / 2 upwards."""
    found = certain(1, 1 + tokens).verifications
    assert found == pytest.approx([tokens, (tokens + 1) // 2, (tokens + 1) // 2])


@pytest.mark.parametrize(("tokens", "unforeseen"), [(0, 0.0), (1, 0.0), (2, 1.0), (3, 0.0), (4, 1.0)])
def test_an_end_is_sure_when_one_token_is_left_before_the_last_verification(
    tokens: int, unforeseen: float
) -> None:
    """By twos: an odd number ends with one; without drafts all do."""
    found = certain(1, 1 + tokens).unforeseen_ends
    assert found == pytest.approx([0.0, unforeseen, unforeseen])
