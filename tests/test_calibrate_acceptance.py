"""Profiles from counts: drafts of several lengths, intervals that hold the truth, held-out errors."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_sim.calibrate.acceptance import MIN_PARTS, row_of
from cluster_sim.calibrate.counts import Counts, check
from cluster_sim.calibrate.mixed import offered
from cluster_sim.errors import UserError
from cluster_sim.speculation.acceptance import to_conditionals
from cluster_sim.statistics import wilson_interval

MARGINALS = np.array([0.72, 0.5, 0.33])


def counts_of(accepted: list[int], drafts: int, tokens: int | None = None, place: str = "run") -> Counts:
    return Counts(place, drafts, drafts * len(accepted) if tokens is None else tokens, tuple(accepted))


def drawn(mix: dict[int, int], seed: int, place: str = "run") -> Counts:
    """Counters of `mix` {draft length: drafts}, accepted by MARGINALS, as vLLM exports them."""
    generator, longest = np.random.default_rng(seed), max(mix)
    accepted_at = np.zeros(longest, np.int64)
    for length, drafts in mix.items():
        coins = generator.random((drafts, length)) < to_conditionals(MARGINALS)[:length]
        accepted_at[:length] += np.cumprod(coins, axis=1).sum(axis=0)
    tokens = sum(length * drafts for length, drafts in mix.items())
    return Counts(place, sum(mix.values()), tokens, tuple(accepted_at.tolist()))


# ---- which drafts had a position ----


def test_with_one_length_all_drafts_had_every_position() -> None:
    found = offered(counts_of([80, 60, 40], 100), [3])
    assert found.is_exact
    assert found.low == (100.0, 100.0, 100.0)


def test_two_lengths_are_told_apart_by_the_mean() -> None:
    """70 drafts of 3 and 30 of 1: 240 tokens."""
    found = offered(counts_of([80, 40, 20], 100, 240), [1, 3])
    assert found.is_exact
    assert found.low == pytest.approx((100.0, 70.0, 70.0))


def test_drafts_cut_short_bound_the_positions_that_they_had() -> None:
    """3 of 300 tokens are missing: one draft lost two and one lost one, or three lost one, or ..."""
    found = offered(counts_of([80, 60, 40], 100, 297), [3])
    assert found.low == pytest.approx((100.0, 98.5, 97.0))
    assert found.high == pytest.approx((100.0, 100.0, 98.5))


@given(st.lists(st.integers(0, 50), min_size=2, max_size=5), st.integers(0, 2**32 - 1))
def test_the_bounds_hold_whatever_mix_of_lengths_there_was(mix: list[int], seed: int) -> None:
    """Acceptances below what was offered, drawn; the mix itself is one of those that the counters allow."""
    lengths = [length for length, drafts in enumerate(mix, 1) if drafts]
    if not lengths:
        return
    had = [sum(mix[position:]) for position in range(lengths[-1])]
    generator = np.random.default_rng(seed)
    accepted = np.minimum.accumulate(generator.integers(0, had, endpoint=True)).tolist()
    counts = counts_of(accepted, had[0], sum(had))
    check(counts)
    found = offered(counts, lengths)
    for low, true, high in zip(found.low, had, found.high, strict=True):
        assert low - 1e-6 <= true <= high + 1e-6


def test_a_schedule_that_cannot_have_made_the_counters_is_refused() -> None:
    with pytest.raises(UserError) as raised:
        offered(counts_of([80, 60, 50], 100, 120), [1, 3])
    assert str(raised.value) == (
        "position 1 can have been offered to at most 10 of the drafts, but got 60 acceptances (run). "
        "Correct speculation.num_speculative_tokens or its schedule."
    )


# ---- the profile ----


def test_the_profile_of_drafts_of_one_length_is_wilsons_of_its_counts() -> None:
    row = row_of([counts_of([80, 60, 40], 100)], [3])
    assert row.marginals == tuple(wilson_interval(accepted, 100) for accepted in (80, 60, 40))
    assert row.conditionals == (wilson_interval(80, 100), wilson_interval(60, 80), wilson_interval(40, 60))
    assert row.acceptance_length.value == pytest.approx(2.8)
    assert not row.is_mixed


def test_a_schedule_of_two_lengths_gives_each_position_its_own_denominator() -> None:
    """The division by all drafts, as vLLM has it, says 0.29 and 0.19 of what are 0.5 and 0.33."""
    counts = drawn({3: 20_000, 1: 15_000}, seed=3)
    row = row_of([counts], [1, 3])
    assert row.is_mixed
    for found, true, drafts in zip(row.marginals, MARGINALS, (35_000, 20_000, 20_000), strict=True):
        assert abs(found.value - true) < 4 * math.sqrt(true * (1 - true) / drafts)  # false alarm: 6e-5
        assert found.low < true < found.high
    assert counts.accepted_at[2] / counts.drafts < 0.2


def test_counters_of_many_lengths_that_leave_a_position_open_are_refused() -> None:
    counts = drawn({3: 1000, 2: 1000, 1: 1000}, seed=4)
    with pytest.raises(UserError) as raised:
        row_of([counts], [1, 2, 3])
    assert str(raised.value).startswith(
        "counters of drafts of several lengths must tell the share accepted at position 1, but got anything"
    )
    assert str(raised.value).endswith("(run). Measure each draft length by itself.")


def test_lengths_that_the_server_counts_itself_are_not_refused() -> None:
    counts = drawn({3: 1000, 2: 1000, 1: 1000}, seed=4)
    counted = Counts(counts.place, counts.drafts, counts.draft_tokens, counts.accepted_at, (3000, 2000, 1000))
    row = row_of([counted], [3])
    assert all(one.low < true < one.high for one, true in zip(row.marginals, MARGINALS, strict=True))


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """300 runs of 400 drafts: at 95 %, fewer than 0.91 or more than 0.985 have a chance of 0.3 %."""
    held = [
        [one.low <= true <= one.high for one, true in zip(row.marginals, MARGINALS, strict=True)]
        for row in (row_of([drawn({3: 400}, seed)], [3]) for seed in range(300))
    ]
    assert all(0.91 <= share <= 0.985 for share in np.mean(held, axis=0))


def test_runs_that_differ_more_than_chance_widen_the_interval() -> None:
    """Of MIN_PARTS runs half accept 60 % and half 80 %: the binomial interval is far too narrow."""
    parts = [counts_of([600 + 200 * (run % 2)], 1000) for run in range(MIN_PARTS + 1)]
    (found,) = row_of(parts, [1]).marginals
    assert found.high - found.low > 0.2
    assert found.high - found.low > 8 * (wilson_interval(4200, 6000).high - 0.7)


def test_each_run_is_held_against_the_others() -> None:
    parts = [
        counts_of([60], 100, place="a"),
        counts_of([80], 100, place="b"),
        counts_of([80], 100, place="c"),
    ]
    first, second, _ = row_of(parts, [1]).held_out
    assert (first.place, first.measured, first.predicted) == ("a", 1.6, 1.8)
    assert first.error_percent == pytest.approx(12.5)
    assert second.predicted == pytest.approx(1.7)


def test_rates_of_a_profile_do_not_increase_where_lengths_were_corrected() -> None:
    """Few long drafts, by chance better than the short ones."""
    row = row_of([counts_of([50, 9], 100, 110)], [1, 2])
    assert row.marginals[1].value > row.marginals[0].value
    assert row.rates[0] == pytest.approx(row.rates[1])
