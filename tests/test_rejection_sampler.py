"""The guarantee behind acceptance numbers: speculative sampling keeps the target's distribution.

False-alarm rates: each chi-square test passes by chance in 99.9 % of seeds, each frequency lies within 4.5
standard errors in all but one of 150,000; seeds are fixed.
"""

import numpy as np
import pytest
from rejection_sampler import acceptance, chi_square, chi_square_limit, verify

from cluster_sim.config import AcceptanceConfig, AcceptancePolicy
from cluster_sim.speculation.acceptance import acceptance_length, conditional_table

ROUNDS = 40_000
ALARM_999 = 3.09  # normal quantile of 0.999
STANDARD_ERRORS = 4.5
TARGET = np.array([0.4, 0.3, 0.15, 0.1, 0.05])
DRAFTS = {
    "near": np.array([0.35, 0.35, 0.2, 0.05, 0.05]),
    "far": np.array([0.05, 0.1, 0.15, 0.3, 0.4]),
    "equal": TARGET,
    "greedy": np.array(
        [1.0, 0.0, 0.0, 0.0, 0.0]
    ),  # one token with certainty, as vLLM's greedy drafts at T > 0
}


@pytest.mark.parametrize("name", DRAFTS)
@pytest.mark.parametrize("position", [0, 1, 2])
def test_what_comes_out_is_distributed_as_the_target(name: str, position: int) -> None:
    """The paper's appendix A.1, at every position that is reached."""
    tokens = verify(TARGET, DRAFTS[name], 2, ROUNDS, seed=7).tokens[:, position]
    tokens = tokens[tokens >= 0]
    counts = np.bincount(tokens, minlength=len(TARGET))
    assert chi_square(counts, len(tokens) * TARGET) < chi_square_limit(len(TARGET) - 1, ALARM_999)


def test_the_chi_square_test_can_fail() -> None:
    """Without the residual distribution, replaced tokens taken from p pull the output towards q."""
    draft, rng = DRAFTS["far"], np.random.default_rng(7)
    proposed = rng.choice(len(draft), size=ROUNDS, p=draft)
    kept = rng.random(ROUNDS) < np.minimum(1.0, TARGET / draft)[proposed]
    wrong = np.where(kept, proposed, rng.choice(len(TARGET), size=ROUNDS, p=TARGET))
    counts = np.bincount(wrong, minlength=len(TARGET))
    assert chi_square(counts, ROUNDS * TARGET) > chi_square_limit(len(TARGET) - 1, ALARM_999)


def test_the_limit_is_that_of_a_table() -> None:
    """Chi-square with 4 degrees of freedom: 9.488 at 0.95, 18.467 at 0.999 (NIST e-Handbook, 1.3.6.7.4)."""
    assert chi_square_limit(4, 1.6449) == pytest.approx(9.488, rel=0.01)
    assert chi_square_limit(4, ALARM_999) == pytest.approx(18.467, rel=0.02)


@pytest.mark.parametrize("name", DRAFTS)
def test_a_draft_is_kept_as_often_as_the_distributions_overlap(name: str) -> None:
    """Theorem 3.5: alpha = sum of min(p, q)."""
    alpha = acceptance(TARGET, DRAFTS[name])
    kept = (verify(TARGET, DRAFTS[name], 1, ROUNDS, seed=8).accepted == 1).mean()
    assert abs(kept - alpha) <= STANDARD_ERRORS * np.sqrt(alpha * (1 - alpha) / ROUNDS)


def test_a_greedy_draft_is_kept_as_often_as_the_target_says_that_token() -> None:
    """Why one-hot drafts lose so much at temperature 1 (../shared/spec-decode-facts.md B2)."""
    assert acceptance(TARGET, DRAFTS["greedy"]) == TARGET[0]


@pytest.mark.parametrize("name", DRAFTS)
@pytest.mark.parametrize("drafts", [1, 3, 6])
def test_the_simulators_acceptance_is_that_of_the_sampler(name: str, drafts: int) -> None:
    """Geometric with rate alpha: AL = (1 - alpha^(K+1)) / (1 - alpha) (equation 1), and m_i = alpha^i."""
    alpha = acceptance(TARGET, DRAFTS[name])
    table = conditional_table(AcceptanceConfig(policy=AcceptancePolicy.geometric, rate=alpha), drafts)
    accepted = verify(TARGET, DRAFTS[name], drafts, ROUNDS, seed=9).accepted
    error = accepted.std() / np.sqrt(ROUNDS)
    assert abs(1 + accepted.mean() - acceptance_length(table, drafts)) <= STANDARD_ERRORS * error + 1e-12
    for position in range(1, drafts + 1):
        marginal = np.cumprod(table[drafts, :position])[-1]
        allowed = STANDARD_ERRORS * np.sqrt(marginal * (1 - marginal) / ROUNDS) + 1e-12
        assert abs((accepted >= position).mean() - marginal) <= allowed
