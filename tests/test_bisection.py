"""Bisection: ends on the edge between passing and failing, in a number of trials that is known before."""

import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from searching import CONFIG, RATE, SEARCH, first_round, row_of, searched

from cluster_sim.bisection import AT_LEAST, BELOW, bisections_of, grid, limited_by, most_trials
from cluster_sim.config import SearchConfig, SloConfig
from cluster_sim.errors import UserError
from cluster_sim.trials import Row

VALUES = grid(SEARCH)


@given(st.floats(0.01, 10.0), st.floats(1.0001, 1000.0), st.floats(1e-3, 1.0))
def test_the_grid_goes_from_low_to_high_in_equal_ratios_within_the_tolerance(
    low: float, ratio: float, tolerance: float
) -> None:
    values = grid(SearchConfig(RATE, low, low * ratio, tolerance))
    assert (values[0], values[-1]) == (low, low * ratio)
    ratios = [later / earlier for earlier, later in itertools.pairwise(values)]
    assert max(ratios) == pytest.approx(min(ratios), rel=1e-9)
    assert 1.0 < max(ratios) <= (1 + tolerance) * (1 + 1e-8)


@given(st.floats(4.0, 63.9))
def test_a_bisection_ends_between_neighbours_of_which_one_passed_and_one_failed(capacity: float) -> None:
    (one,), _ = searched({("off", 0): capacity})
    assert one.failed == one.passed + 1
    assert VALUES[one.passed] <= capacity < VALUES[one.failed]
    assert one.censored is None


def test_all_bisections_of_a_round_run_together_and_each_ends_for_itself() -> None:
    capacities = {("off", 0): 10.0, ("off", 1): 63.0, ("on", 0): 4.5, ("on", 1): 30.0}
    bisections, tried = searched(capacities)
    assert [len(trials) for trials in tried[:3]] == [8, 4, 4]
    assert all(VALUES[one.passed] <= capacities[one.first.arm, one.first.seed] for one in bisections)
    assert sum(map(len, tried)) <= most_trials(bisections, SEARCH) == 4 * (2 + 8)  # 141 steps: 8 halvings


def test_trials_are_numbered_in_the_order_of_the_rounds_and_carry_their_value() -> None:
    _, tried = searched({("off", 0): 10.0, ("on", 0): 20.0})
    trials = [trial for each in tried for trial in each]
    assert [trial.number for trial in trials] == list(range(len(trials)))
    for trial in trials[4:]:
        assert trial.config.workload.request_rate == trial.point[RATE]
        assert replace(trial.config, workload=CONFIG.workload) == CONFIG


@pytest.mark.parametrize(("capacity", "censored", "rounds"), [(3.0, BELOW, 1), (64.0, AT_LEAST, 1)])
def test_a_capacity_outside_the_ends_is_censored_without_another_trial(
    capacity: float, censored: str, rounds: int
) -> None:
    (one,), tried = searched({("off", 0): capacity})
    assert one.censored == censored
    assert len(tried) == rounds


def test_where_the_low_end_fails_a_passing_high_end_does_not_count() -> None:
    first = first_round(["off"], [0])
    (one,) = bisections_of(first, SEARCH)
    one.told(0, row_of(first[0], passes=False))
    one.told(len(VALUES) - 1, row_of(first[1], passes=True))
    assert (one.censored, one.passed, one.failed, one.is_open) == (BELOW, -1, 0, False)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"slo_attainment": 0.9}, None),
        ({"saturated": True}, "saturation"),
        ({"saturated": None}, "arrivals"),
        ({"slo_attainment": None, "slo_attainment_by_limit.ttft_s": None}, "arrivals"),
        ({"slo_attainment": 0.8, "slo_attainment_by_limit.ttft_s": 0.8}, "ttft_s"),
        (
            {
                "slo_attainment": 0.7,
                "slo_attainment_by_limit.ttft_s": 0.8,
                "slo_attainment_by_limit.tpot_s": 0.75,
            },
            "tpot_s",
        ),
        (
            {
                "slo_attainment": 0.85,
                "slo_attainment_by_limit.ttft_s": 0.93,
                "slo_attainment_by_limit.tpot_s": 0.92,
            },
            "attainment",
        ),
        ({"slo_attainment": 0.2, "slo_attainment_by_limit.e2el_s": 0.2}, "e2el_s"),
    ],
)
def test_what_a_trial_fails_by(changes: dict[str, Any], reason: str | None) -> None:
    row: Row = row_of(first_round(["off"], [0])[0], passes=True) | changes
    assert limited_by(row, 0.9) == reason


def test_a_search_without_an_slo_is_refused_with_its_arm() -> None:
    (trial, *_) = first_round(["off"], [0])
    free = replace(trial, config=replace(CONFIG, slo=SloConfig(attainment=0.9)))
    with pytest.raises(UserError) as caught:
        bisections_of([free], SEARCH)
    assert str(caught.value) == (
        "a search needs an SLO to meet, but got no limit (slo; arm off, workload.request_rate=4.0). "
        "Set slo.ttft_s, slo.tpot_s or slo.e2el_s."
    )
