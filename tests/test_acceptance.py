"""Acceptance profiles: closed forms, published pairs, and the text of every error."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_sim.config import AcceptanceConfig, AcceptancePolicy, RatesAre
from cluster_sim.errors import UserError
from cluster_sim.speculation.acceptance import acceptance_length, conditional_table, marginals

# Acceptance length of i.i.d. drafts, (1 - alpha^(K+1)) / (1 - alpha), at K = 0, 1, 2, 3, 4, 5, 7, 10
# (../shared/spec-decode-facts.md section D1).
DRAFT_LENGTHS = (0, 1, 2, 3, 4, 5, 7, 10)
GEOMETRIC = {
    0.6: (1, 1.6, 1.96, 2.176, 2.3056, 2.3834, 2.458, 2.4909),
    0.7: (1, 1.7, 2.19, 2.533, 2.7731, 2.9412, 3.1412, 3.2674),
    0.8: (1, 1.8, 2.44, 2.952, 3.3616, 3.6893, 4.1611, 4.5705),
    0.9: (1, 1.9, 2.71, 3.439, 4.0951, 4.6856, 5.6953, 6.8619),
}
RATES = st.lists(st.floats(0, 1), min_size=1, max_size=8)


def geometric(alpha: float | None) -> AcceptanceConfig:
    return AcceptanceConfig(policy=AcceptancePolicy.geometric, rate=alpha)


def fixed(rate: float | None) -> AcceptanceConfig:
    return AcceptanceConfig(policy=AcceptancePolicy.fixed, rate=rate)


def per_position(rates: list[float] | None, are: RatesAre | None = RatesAre.marginal) -> AcceptanceConfig:
    return AcceptanceConfig(policy=AcceptancePolicy.per_position, rates=rates, rates_are=are)


def length_of(config: AcceptanceConfig, draft_length: int) -> float:
    return acceptance_length(conditional_table(config, draft_length), draft_length)


@pytest.mark.parametrize("alpha", GEOMETRIC)
def test_geometric_acceptance_lengths_follow_leviathan(alpha: float) -> None:
    table = conditional_table(geometric(alpha), 10)
    lengths = [acceptance_length(table, draft_length) for draft_length in DRAFT_LENGTHS]
    assert lengths == pytest.approx(GEOMETRIC[alpha], abs=1e-4)
    assert lengths == pytest.approx([(1 - alpha ** (k + 1)) / (1 - alpha) for k in DRAFT_LENGTHS], rel=1e-12)


@pytest.mark.parametrize(
    ("rates", "length"),
    [
        ([0.85, 0.255], 2.105),
        ([0.76, 0.56, 0.43], 2.75),  # MiniMax-M3, published as about 2.8
        (
            [0.7617, 0.6158, 0.5125, 0.4243, 0.364, 0.3094, 0.2722, 0.2365],
            4.496,
        ),  # vllm#48892, published as 4.50
    ],
)
def test_acceptance_length_is_one_plus_the_sum_of_marginals(rates: list[float], length: float) -> None:
    assert length_of(per_position(rates), len(rates)) == pytest.approx(length, abs=5e-4)


def test_conditional_rates_are_multiplied_and_not_summed() -> None:
    assert length_of(per_position([0.85, 0.3], RatesAre.conditional), 2) == pytest.approx(
        1 + 0.85 + 0.85 * 0.3
    )


@pytest.mark.parametrize(
    ("accepted", "draft_length", "expected"),
    [(2.4, 5, [1, 1, 0.4, 0, 0]), (1.6, 3, [1, 0.6, 0]), (0, 3, [0, 0, 0]), (3, 3, [1, 1, 1])],
)
def test_fixed_has_the_least_variance_as_in_vllm(
    accepted: float, draft_length: int, expected: list[float]
) -> None:
    """AL 3.4 at K = 5 becomes 1, 1, 0.4, 0, 0 and AL 2.6 at K = 3 becomes 1, 0.6, 0 in vLLM 0.33."""
    assert marginals(fixed(accepted / draft_length), draft_length) == pytest.approx(expected)


@given(rate=st.floats(0, 1), draft_length=st.integers(1, 12))
def test_fixed_keeps_its_rate_at_every_draft_length(rate: float, draft_length: int) -> None:
    table = conditional_table(fixed(rate), 12)
    assert acceptance_length(table, draft_length) == pytest.approx(1 + rate * draft_length)


@given(rates=RATES)
def test_marginals_and_their_conditionals_are_one_profile(rates: list[float]) -> None:
    falling = sorted(rates, reverse=True)
    table = conditional_table(per_position(falling), len(falling))
    assert np.cumprod(table[-1]) == pytest.approx(falling)
    again = conditional_table(per_position(table[-1].tolist(), RatesAre.conditional), len(falling))
    assert again == pytest.approx(table)


@given(rates=RATES, are=st.sampled_from(RatesAre))
def test_a_table_holds_probabilities_and_nothing_past_the_draft(rates: list[float], are: RatesAre) -> None:
    table = conditional_table(per_position(sorted(rates, reverse=True), are), len(rates))
    assert table.shape == (len(rates) + 1, len(rates))
    assert np.all((table >= 0) & (table <= 1))
    assert not np.any(np.triu(table))


def test_a_position_that_is_never_reached_has_conditional_zero() -> None:
    assert conditional_table(per_position([0.5, 0.0, 0.0]), 3)[3].tolist() == [0.5, 0.0, 0.0]


def test_shorter_drafts_take_the_first_positions_of_a_profile() -> None:
    table = conditional_table(per_position([0.6, 0.35, 0.22, 0.15]), 3)
    assert [acceptance_length(table, k) for k in range(4)] == pytest.approx([1, 1.6, 1.95, 2.17])


def test_without_drafts_the_table_is_empty() -> None:
    assert conditional_table(geometric(0.5), 0).shape == (1, 0)


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (
            geometric(None),
            "policy geometric needs a rate, but got null (speculation.acceptance.rate). "
            "Give 0 to 1: for geometric the chance of each draft, for fixed accepted / drafted tokens.",
        ),
        (
            fixed(38.75),
            "an acceptance rate must lie between 0 and 1, but got 38.75 (speculation.acceptance.rate). "
            "Give a fraction, not percent.",
        ),
        (
            per_position([0.5, float("nan"), 0.1]),
            "an acceptance rate must lie between 0 and 1, but got nan (speculation.acceptance.rates[1]). "
            "Give a fraction, not percent.",
        ),
        (
            per_position([]),
            "policy per_position needs rates, but got [] (speculation.acceptance.rates). "
            "Give one per draft: 'speculation.acceptance.rates=[0.8, 0.6, 0.4]'.",
        ),
        (
            per_position([0.5, 0.4]),
            "a draft of 3 tokens needs 3 rates, one per position, but got 2 "
            "(speculation.acceptance.rates). Add 1 more, or draft at most 2 tokens.",
        ),
        (
            per_position([0.5, 0.6, 0.1]),
            "marginal rates must not increase, as the first i + 1 drafts include the first i, "
            "but got 0.5 then 0.6 (speculation.acceptance.rates[1]). "
            "Correct it, or set speculation.acceptance.rates_are=conditional.",
        ),
        (
            per_position([0.5, 0.4, 0.1], None),
            "rates must be said to be marginal or conditional, but got null "
            "(speculation.acceptance.rates_are). "
            "Write marginal for P(first i accepted), conditional for P(i-th accepted | those before).",
        ),
    ],
)
def test_an_unsound_profile_gets_its_one_line(config: Any, text: str) -> None:
    with pytest.raises(UserError) as caught:
        conditional_table(config, 3)
    assert str(caught.value) == text
