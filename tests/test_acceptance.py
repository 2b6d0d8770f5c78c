"""Acceptance policies: a contract that all of them keep, closed forms, and the text of every error."""

import json
from collections.abc import Callable
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from verifying import accepted, luck_of, requests, with_acceptance

from cluster_sim.config import AcceptanceConfig, AcceptancePolicy, RatesAre
from cluster_sim.errors import UserError
from cluster_sim.speculation import acceptance as policies
from cluster_sim.speculation.acceptance import (
    acceptance_length,
    conditional_table,
    marginals,
    measured_draft_lengths,
)

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
Z = 5.0  # standard errors
ROWS = [
    [2, 1, 0, 0, 3, 2, 1, 0, 5, 4, 3, 2, 1, 0, 1, 0, 0, 2, 1, 0],
    [0, 0, 6, 5, 4, 3, 2, 1, 0, 0, 1, 0, 0, 0, 1, 0, 3, 2, 1, 0],
]


def halves(draft_length: int) -> list[float]:
    """Conditionals of policy custom, [0.9, 0.45, 0.3, ..]."""
    return [0.9 / (1 + position) for position in range(draft_length)]


def geometric(alpha: float | None) -> AcceptanceConfig:
    return AcceptanceConfig(policy=AcceptancePolicy.geometric, rate=alpha)


def fixed(rate: float | None, measured: int | None = None) -> AcceptanceConfig:
    return AcceptanceConfig(policy=AcceptancePolicy.fixed, rate=rate, measured_draft_length=measured)


def decay(rate: float | None, measured: int | None = None) -> AcceptanceConfig:
    return AcceptanceConfig(policy=AcceptancePolicy.decay, rate=rate, measured_draft_length=measured)


def binomial(rate: float | None, measured: int | None = None) -> AcceptanceConfig:
    return AcceptanceConfig(policy=AcceptancePolicy.binomial, rate=rate, measured_draft_length=measured)


def per_position(rates: list[float] | None, are: RatesAre | None = RatesAre.marginal) -> AcceptanceConfig:
    return AcceptanceConfig(policy=AcceptancePolicy.per_position, rates=rates, rates_are=are)


def per_length(rows: Any, are: RatesAre | None = None) -> AcceptanceConfig:
    return AcceptanceConfig(policy=AcceptancePolicy.per_length, per_length=rows, rates_are=are)


def custom(function: str | None, are: RatesAre | None = RatesAre.conditional) -> AcceptanceConfig:
    return AcceptanceConfig(policy=AcceptancePolicy.custom, function=function, rates_are=are)


def trace(file: Path | str | None, series: str | None = None) -> AcceptanceConfig:
    path = None if file is None else str(file)
    return AcceptanceConfig(policy=AcceptancePolicy.trace, file=path, series=series)


def length_of(config: AcceptanceConfig, draft_length: int) -> float:
    return acceptance_length(conditional_table(config, draft_length), draft_length)


# ---- the contract ----


class Contract:
    """What holds of every policy; a subclass says the profile and its mean accepted drafts in closed form."""

    config: AcceptanceConfig
    mean: Callable[[int], float]  # of drafts accepted of k
    longest = 7

    def test_a_table_has_a_row_for_each_draft_length_and_nothing_past_it(self) -> None:
        table = conditional_table(self.config, self.longest)
        assert table.shape == (self.longest + 1, self.longest)
        assert np.all(np.isfinite(table) & (table >= 0) & (table <= 1))
        assert not np.any(np.triu(table))

    def test_no_draft_no_table(self) -> None:
        assert conditional_table(self.config, 0).shape == (1, 0)

    def test_what_is_accepted_is_a_prefix(self) -> None:
        """So P(the first i are all accepted) does not increase in i."""
        for draft_length in range(1, self.longest + 1):
            marginal = marginals(self.config, draft_length)
            assert marginal.shape == (draft_length,)
            assert np.all(np.diff(marginal) <= 1e-15)

    def test_the_mean_is_the_closed_form(self) -> None:
        for draft_length in range(1, self.longest + 1):
            mean = float(marginals(self.config, draft_length).sum())
            assert mean == pytest.approx(self.mean(draft_length), rel=1e-9, abs=1e-12)

    @pytest.mark.parametrize("drafts", [1, 3, 7])
    def test_the_engine_accepts_so_many_as_often(self, drafts: int) -> None:
        """P(accepted = i) = m_i - m_(i+1). With Z = 5, a right one fails in fewer than 1 in 10^5 seeds."""
        workload = requests(400)
        luck = luck_of(with_acceptance(self.config, drafts), workload)
        counts = accepted(luck, workload, drafts, 120).sum(axis=0)
        at_least = np.concatenate(([1.0], marginals(self.config, drafts), [0.0]))
        expected = -np.diff(at_least)
        number = counts.sum()
        off = np.abs(counts - number * expected)
        assert np.all(off <= Z * np.sqrt(number * expected * (1 - expected)) + 1e-9 * number)


class TestFixed(Contract):
    """The rate holds at every draft length."""

    config = fixed(0.55)
    mean = staticmethod(lambda k: 0.55 * k)


class TestFixedAsMeasured(Contract):
    """Shorter drafts are the beginning of the measured one, as in vLLM; longer ones add nothing."""

    config = fixed(0.6, measured=4)
    mean = staticmethod(lambda k: min(k, 2.4))


class TestDecay(Contract):
    """The rate holds at every draft length."""

    config = decay(0.55)
    mean = staticmethod(lambda k: 0.55 * k)


class TestDecayAsMeasured(Contract):
    """DeepSeek-V3.2-Exp: 0.3875 of 4 drafts. alpha + .. + alpha^4 = 1.55 has alpha = 0.65519."""

    config = decay(0.3875, measured=4)
    mean = staticmethod(lambda k: sum(0.6551908 ** (i + 1) for i in range(k)))

    def test_the_mean_is_the_closed_form(self) -> None:
        assert length_of(self.config, 4) == pytest.approx(2.55, rel=1e-12)
        for draft_length in range(1, 8):
            mean = float(marginals(self.config, draft_length).sum())
            assert mean == pytest.approx(self.mean(draft_length), rel=1e-6)


class TestBinomial(Contract):
    """Mean of a binomial distribution: K * rate."""

    config = binomial(0.55)
    mean = staticmethod(lambda k: 0.55 * k)


class TestGeometric(Contract):
    """Leviathan et al., ICML 2023, equation 1."""

    config = geometric(0.8)
    mean = staticmethod(lambda k: (1 - 0.8 ** (k + 1)) / 0.2 - 1)


class TestPerPosition(Contract):
    """Sum of the marginals."""

    config = per_position([0.78, 0.58, 0.43, 0.29, 0.24, 0.14, 0.08])
    mean = staticmethod(lambda k: sum([0.78, 0.58, 0.43, 0.29, 0.24, 0.14, 0.08][:k]))


class TestPerLength(Contract):
    """Rows of 1 and 7 hold as they are; between them the row of 7 begins."""

    config = per_length({7: [0.6, 0.35, 0.22, 0.15, 0.11, 0.08, 0.06], 1: 1.66}, RatesAre.marginal)
    mean = staticmethod(lambda k: 0.66 if k == 1 else sum([0.6, 0.35, 0.22, 0.15, 0.11, 0.08, 0.06][:k]))


class TestCustom(Contract):
    """Sum of the products of conditionals."""

    config = custom(f"{__name__}.halves")
    mean = staticmethod(lambda k: float(np.cumprod([0.9 / (1 + i) for i in range(k)]).sum()))


class TestTrace(Contract):
    """By hand, with one draft: of the 12 and 13 verifications of the two walks, 8 and 7 accept it."""

    mean = staticmethod(lambda k: walked_mean(ROWS, k))

    @pytest.fixture(autouse=True)
    def _a_file(self, tmp_path: Path) -> None:
        path = tmp_path / "lengths.jsonl"
        path.write_text("".join(json.dumps({"accepted": row}) + "\n" for row in ROWS))
        self.config = trace(path)

    def test_one_draft_by_hand(self) -> None:
        assert marginals(self.config, 1).tolist() == [15 / 25]

    @pytest.mark.parametrize("drafts", [1, 3, 7])
    def test_the_engine_accepts_so_many_as_often(self, drafts: int) -> None:
        """Exactly: requests take the rows in order, again from the first one after the last."""
        workload = requests(4)
        luck = luck_of(with_acceptance(self.config, drafts), workload)
        counts = accepted(luck, workload, drafts, len(ROWS[0]))
        assert counts[:2].tolist() == counts[2:].tolist()
        at_least = np.cumsum(counts.sum(axis=0)[::-1])[::-1]
        assert at_least[1:] / at_least[0] == pytest.approx(marginals(self.config, drafts))


def walked_mean(rows: list[list[int]], draft_length: int) -> float:
    """Mean accepted over verifications, by going along each row."""
    walked = []
    for row in rows:
        at = 0
        while at < len(row):
            walked.append(min(row[at], draft_length))
            at += walked[-1] + 1
    return sum(walked) / len(walked)


def test_every_policy_is_in_the_contract() -> None:
    tested = {case.config.policy for case in Contract.__subclasses__() if hasattr(case, "config")}
    assert tested | {AcceptancePolicy.trace} == set(AcceptancePolicy)
    assert set(policies._POLICIES) == set(AcceptancePolicy)


# ---- each policy ----


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


def test_a_position_that_is_never_reached_has_conditional_zero() -> None:
    assert conditional_table(per_position([0.5, 0.0, 0.0]), 3)[3].tolist() == [0.5, 0.0, 0.0]


def test_shorter_drafts_take_the_first_positions_of_a_profile() -> None:
    table = conditional_table(per_position([0.6, 0.35, 0.22, 0.15]), 3)
    assert [acceptance_length(table, k) for k in range(4)] == pytest.approx([1, 1.6, 1.95, 2.17])


def test_decay_falls_by_the_same_factor_at_every_position() -> None:
    marginal = marginals(decay(0.5), 3)
    assert marginal / np.concatenate(([1.0], marginal[:-1])) == pytest.approx([marginal[0]] * 3)


@given(rate=st.floats(0, 1), measured=st.integers(1, 12))
def test_decay_has_the_measured_mean(rate: float, measured: int) -> None:
    assert length_of(decay(rate, measured), measured) == pytest.approx(1 + rate * measured, rel=1e-12)


def test_binomial_counts_heads_of_independent_coins() -> None:
    """P(X >= i) = sum over n >= i of C(K, n) rate^n (1 - rate)^(K - n)."""
    expected = [sum(comb(4, n) * 0.6**n * 0.4 ** (4 - n) for n in range(i, 5)) for i in range(1, 5)]
    assert marginals(binomial(0.6), 4) == pytest.approx(expected)


def test_the_same_mean_comes_with_very_different_variance() -> None:
    """Var = sum of (2 i - 1) m_i - mean^2: SLO tails differ though AL is one (spec-decode-facts.md D2)."""
    weights = 2 * np.arange(1, 6) - 1
    spread = [
        float((weights * marginals(config, 5)).sum()) - 2.5**2
        for config in (fixed(0.5), binomial(0.5), decay(0.5))
    ]
    assert spread[0] == pytest.approx(0.25)
    assert spread[1] == pytest.approx(1.25)
    assert spread[2] > 3


def test_a_row_of_acceptance_length_decays() -> None:
    assert marginals(per_length({3: 2.5}), 3) == pytest.approx(marginals(decay(0.5), 3))


def test_a_draft_length_without_a_row_takes_the_beginning_of_the_next_longer_one() -> None:
    rows = per_length({2: [0.7, 0.5], 5: [0.6, 0.4, 0.3, 0.2, 0.1]}, RatesAre.marginal)
    assert marginals(rows, 1).tolist() == [0.7]
    assert marginals(rows, 3).tolist() == [0.6, 0.4, 0.3]


@pytest.mark.parametrize(
    ("config", "lengths"),
    [
        (geometric(0.5), ()),
        (decay(0.5), ()),
        (decay(0.5, 4), (4,)),
        (per_position([0.5, 0.2]), (2,)),
        (per_length({3: 2.0, 1: 1.5}), (1, 3)),
    ],
)
def test_a_profile_knows_at_which_draft_lengths_it_holds(
    config: AcceptanceConfig, lengths: tuple[int, ...]
) -> None:
    assert measured_draft_lengths(config) == lengths


def test_specdecode_bench_counts_the_bonus_token(tmp_path: Path) -> None:
    """github.com/SpecDecode-Bench/simulator: acc_len is tokens emitted; a walk emits min(acc_len, K + 1)."""
    path = tmp_path / "combined.jsonl"
    path.write_text(
        '{"id": "1", "acc_eagle": {"acc_len": [3, 2, 1, 1]}, "acc_ngram": {"acc_len": [1, 1, 1, 1]}}\n'
    )
    assert marginals(trace(path, "acc_eagle"), 2).tolist() == [0.5, 0.5]  # accepts 2, then 0
    assert marginals(trace(path, "acc_ngram"), 2).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("line", "series", "text"),
    [
        ("{", None, "a line must be JSON, but got"),
        (
            "[1]",
            None,
            'a line needs a list of lengths, {"accepted": [..]}, but got none ({path}, line 1). There are no',
        ),
        (
            '{"accepted": [1, -1]}',
            None,
            "a length must be a whole number of 0 or more, but got -1 ({path}, line 1: "
            "accepted[1]). Correct or remove the line.",
        ),
        (
            '{"accepted": [1, true]}',
            None,
            "a length must be a whole number of 0 or more, but got True ({path}, line 1: "
            "accepted[1]). Correct or remove the line.",
        ),
        (
            '{"acc": {"acc_len": [0]}}',
            None,
            "a length must be a whole number of 1 or more, but got 0 ({path}, line 1: acc[0]). "
            "Correct or remove the line.",
        ),
        (
            '{"accepted": []}',
            None,
            "a request has at least one length, but got [] ({path}, line 1: accepted). Remove the line.",
        ),
        (
            '{"acc_eagle": {"acc_len": [1]}, "acc_ngram": {"acc_len": [1]}}',
            None,
            "one list of lengths must be meant, but got acc_eagle, acc_ngram ({path}, line 1). "
            "Set speculation.acceptance.series to one of them.",
        ),
        (
            '{"acc_eagle": {"acc_len": [1]}}',
            "acc_eagel",
            'a line needs a list of lengths, {"acc_eagel": [..]}, but got none ({path}, line 1). '
            "Did you mean acc_eagle? Lists of this line: acc_eagle.",
        ),
        (
            "",
            None,
            "a file of accepted lengths has one request a line, but got none ({path}). Correct "
            "speculation.acceptance.file.",
        ),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, series: str | None, text: str) -> None:
    path = tmp_path / "lengths.jsonl"
    path.write_text(line)
    with pytest.raises(UserError) as caught:
        marginals(trace(path, series), 1)
    assert str(caught.value).startswith(text.replace("{path}", str(path)))


def not_numbers(_: int) -> str:
    return "abc"


def too_few(_: int) -> list[float]:
    return [0.5]


def rising(draft_length: int) -> list[float]:
    return [0.1 * (1 + position) for position in range(draft_length)]


def failing(draft_length: int) -> list[float]:
    raise KeyError(draft_length)


HERE = __name__


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (
            geometric(None),
            "policy geometric needs a rate, but got null (speculation.acceptance.rate). Give 0 "
            "to 1: for geometric the chance of each draft, else accepted / drafted tokens.",
        ),
        (
            decay(38.75),
            "an acceptance rate must lie between 0 and 1, but got 38.75 "
            "(speculation.acceptance.rate). Give a fraction, not percent.",
        ),
        (
            per_position([0.5, float("nan"), 0.1]),
            "an acceptance rate must lie between 0 and 1, but got nan "
            "(speculation.acceptance.rates[1]). Give a fraction, not percent.",
        ),
        (
            per_position([]),
            "policy per_position needs rates, but got [] (speculation.acceptance.rates). Give "
            "one per draft: 'speculation.acceptance.rates=[0.8, 0.6, 0.4]'.",
        ),
        (
            per_position([0.5, 0.4]),
            "a draft of 3 tokens needs 3 rates, one per position, but got 2 "
            "(speculation.acceptance.rates). Add 1 more, or draft at most 2 tokens.",
        ),
        (
            per_position([0.5, 0.6, 0.1]),
            "marginal rates must not increase, as the first i + 1 drafts include the first i, "
            "but got 0.5 then 0.6 (speculation.acceptance.rates[1]). Correct it, or set "
            "speculation.acceptance.rates_are=conditional.",
        ),
        (
            per_position([0.5, 0.4, 0.1], None),
            "rates must be said to be marginal or conditional, but got null "
            "(speculation.acceptance.rates_are). Write marginal for P(first i accepted), "
            "conditional for P(i-th accepted | those before).",
        ),
        (
            per_length({1: 1.5, 2: 1.8}),
            "a draft of 3 tokens needs a row of that length or a longer one, but got rows of 1, "
            "2 (speculation.acceptance.per_length). Add a row, or draft at most 2 tokens.",
        ),
        (
            per_length({3: 4.5}),
            "the acceptance length, bonus token included, must lie between 1 and 1 + K = 4, but "
            "got 4.5 (speculation.acceptance.per_length[3]). Correct it, or give rates by "
            "position.",
        ),
        (
            per_length({3: [0.5, 0.2]}, RatesAre.marginal),
            "a row of 3 drafts has 3 rates, one per position, but got 2 "
            "(speculation.acceptance.per_length[3]). Correct it.",
        ),
        (
            per_length({3: [0.5, 0.2, 2]}, RatesAre.marginal),
            "an acceptance rate must lie between 0 and 1, but got 2 "
            "(speculation.acceptance.per_length[3][2]). Give a fraction, not percent.",
        ),
        (
            per_length({"three": 2.0}),
            "a row belongs to a draft length of 1 or more, but got 'three' "
            "(speculation.acceptance.per_length). Write {K: acceptance length, or rates}.",
        ),
        (
            per_length([1.5, 2.0]),
            "policy per_length needs rows by draft length, but got [1.5, 2.0] "
            "(speculation.acceptance.per_length). Give a row per draft length: "
            "'speculation.acceptance.per_length={1: 1.8, 3: [0.8, 0.6, 0.4]}'.",
        ),
        (
            custom(None),
            "policy custom needs a function, but got None (speculation.acceptance.function). "
            "Name one that Python can import: "
            "speculation.acceptance.function=package.module.function.",
        ),
        (
            custom("nowhere.rates"),
            "a function must be importable, but got nowhere.rates: No module named 'nowhere' "
            "(speculation.acceptance.function). Name one that Python can import: "
            "speculation.acceptance.function=package.module.function.",
        ),
        (
            custom(f"{HERE}.HERE"),
            f"a function must be callable, but got {HERE}.HERE = '{HERE}' "
            "(speculation.acceptance.function). Name one that Python can import: "
            "speculation.acceptance.function=package.module.function.",
        ),
        (
            custom(f"{HERE}.too_few"),
            f"{HERE}.too_few must return 2 numbers for a draft of 2 tokens, but got [0.5] "
            "(speculation.acceptance.function). Correct the function.",
        ),
        (
            custom(f"{HERE}.not_numbers"),
            f"{HERE}.not_numbers must return 1 numbers for a draft of 1 tokens, but got 'abc' "
            "(speculation.acceptance.function). Correct the function.",
        ),
        (
            custom(f"{HERE}.failing"),
            f"{HERE}.failing must return rates for a draft of 1 tokens, but got KeyError: 1 "
            "(speculation.acceptance.function). Correct the function.",
        ),
        (
            custom(f"{HERE}.rising", RatesAre.marginal),
            "marginal rates must not increase, as the first i + 1 drafts include the first i, "
            "but got 0.1 then 0.2 (speculation.acceptance.function(2)[1]). Correct it, or set "
            "speculation.acceptance.rates_are=conditional.",
        ),
        (
            trace(None),
            "policy trace needs a file, but got null (speculation.acceptance.file). Set "
            "speculation.acceptance.file to a JSON-lines file of accepted lengths.",
        ),
        (
            AcceptanceConfig(),
            "a profile needs a policy, but got null (speculation.acceptance.policy). Set one, or published.",
        ),
    ],
)
def test_an_unsound_profile_gets_its_one_line(config: AcceptanceConfig, text: str) -> None:
    with pytest.raises(UserError) as caught:
        conditional_table(config, 3)
    assert str(caught.value) == text
