"""From rows to a value and what is missed: by hand."""

import math
from typing import Any

import pytest

from cluster_sim.config import Objective, OverLoads
from cluster_sim.errors import UserError
from cluster_sim.study.constraints import Rows
from cluster_sim.study.objective import Ends, Task, is_better, rank, score_of

SEEDS = (0, 1)


def row(**changes: Any) -> dict[str, Any]:
    return {
        "slo_goodput_rps": 10.0,
        "slo_attainment": 1.0,
        "token_goodput_tok_s": 1000.0,
        "token_attainment": 1.0,
        "tpot_s.mean": 0.01,
        "tpot_s.p99": 0.02,
        "ttft_s.p99": 0.1,
        "saturated": False,
        **changes,
    }


def rows(*loads: tuple[dict[str, Any], dict[str, Any]]) -> Rows:
    return {(load, seed): each for load, pair in enumerate(loads) for seed, each in enumerate(pair)}


def task(objective: Objective, **changes: Any) -> Task:
    given = {
        "over_loads": OverLoads.mean,
        "num_loads": 2,
        "limits": {},
        **changes,
    }
    return Task(objective=objective, **given)


def test_the_mean_over_loads_is_taken_seed_by_seed_in_the_objectives_unit() -> None:
    given = rows(
        (row(slo_goodput_rps=10.0), row(slo_goodput_rps=12.0)),
        (row(slo_goodput_rps=30.0), row(slo_goodput_rps=50.0)),
    )
    score = score_of(task(Objective.slo_goodput), given, SEEDS, 1)
    assert score.by_seed == (20.0, 31.0)
    assert score.by_load == ((10.0, 12.0), (30.0, 50.0))
    assert score.value == 25.5


@pytest.mark.parametrize(
    ("objective", "good", "bad", "value"),
    [
        (Objective.slo_goodput, {"slo_attainment": 0.9}, {"slo_attainment": 0.5}, 0.5),
        (Objective.token_goodput, {"token_attainment": 0.9}, {"token_attainment": 0.4}, 0.4),
        (Objective.tpot, {"tpot_s.mean": 0.01}, {"tpot_s.mean": 0.04}, 0.04),
    ],
)
def test_the_worst_load_counts_by_shares_of_what_came(
    objective: Objective, good: dict[str, Any], bad: dict[str, Any], value: float
) -> None:
    """A load of few requests is not the worst for being small."""
    given = rows((row(**good),) * 2, (row(slo_goodput_rps=99.0, **bad),) * 2)
    score = score_of(task(objective, over_loads=OverLoads.worst), given, SEEDS, 1)
    assert score.by_seed == (value, value)


def test_the_capacity_is_that_of_the_bisection_in_the_row() -> None:
    given = rows((row(capacity=24.0, capacity_end=25.0), row(capacity=40.0, capacity_end=42.0)))
    score = score_of(task(Objective.capacity, num_loads=1), given, SEEDS, 1)
    assert score.by_seed == (24.0, 40.0)
    assert score.ends == Ends((25.0, 42.0), ((25.0, 42.0),), ())


CLASSES = {
    "classes.chat.slo_goodput_rps": 9.0,
    "classes.chat.slo_attainment": 0.9,
    "classes.chat.tpot_s.mean": 0.01,
    "classes.chat.tpot_s.p99": 0.02,
    "classes.code.slo_goodput_rps": 0.5,
    "classes.code.slo_attainment": 0.5,
    "classes.code.tpot_s.mean": 0.03,
    "classes.code.tpot_s.p99": 0.08,
}


@pytest.mark.parametrize(
    ("objective", "over", "value"),
    [
        (Objective.slo_goodput, OverLoads.mean, 0.7),
        (Objective.slo_goodput, OverLoads.worst, 0.5),
        (Objective.tpot, OverLoads.mean, 0.02),
        (Objective.tpot, OverLoads.worst, 0.03),
    ],
)
def test_classes_count_alike_by_shares_of_what_came(
    objective: Objective, over: OverLoads, value: float
) -> None:
    """A class of few requests is not the worst for being small."""
    asked = task(objective, num_loads=1, over_classes=over)
    assert score_of(asked, rows((row(**CLASSES),) * 2), SEEDS, 1).value == pytest.approx(value)
    assert asked.unit(Objective.slo_goodput) == "share of requests that were good"


def test_with_classes_every_class_meets_the_constraints() -> None:
    limits = {"attainment": 0.8, "tpot_p99_s": 0.04}
    given = rows((row(**CLASSES),) * 2)
    together = task(Objective.tpot, num_loads=1, limits=limits)
    assert score_of(together, given, SEEDS, 1).is_feasible
    apart = score_of(
        task(Objective.tpot, num_loads=1, limits=limits, over_classes=OverLoads.worst), given, SEEDS, 1
    )
    assert apart.misses == pytest.approx({"attainment": 0.375, "tpot_p99_s": 1.0, "saturated": 0.0})


def test_a_class_of_which_nothing_completed_is_as_bad_as_can_be() -> None:
    nothing = {**CLASSES, "classes.code.slo_attainment": None, "classes.code.tpot_s.mean": None}
    for objective, value in ((Objective.slo_goodput, 0.0), (Objective.tpot, math.inf)):
        asked = task(objective, num_loads=1, over_classes=OverLoads.worst)
        assert score_of(asked, rows((row(**nothing),) * 2), SEEDS, 1).value == value


def test_classes_of_requests_that_are_all_alike_are_refused() -> None:
    """A trace, whose classes nobody knew."""
    asked = task(Objective.tpot, num_loads=1, over_classes=OverLoads.mean)
    with pytest.raises(UserError) as caught:
        score_of(asked, rows((row(), row())), SEEDS, 1)
    assert str(caught.value) == (
        "classes are summed up where there are several, but got one (study.over_classes). "
        "Leave study.over_classes out."
    )


@pytest.mark.parametrize(("objective", "value"), [(Objective.tpot_p99, 0.02), (Objective.ttft_p99, 0.1)])
def test_a_second_objective_has_values_of_its_own(objective: Objective, value: float) -> None:
    score = score_of(
        task(Objective.slo_goodput, num_loads=1, against=objective), rows((row(), row())), SEEDS, 1
    )
    assert (score.by_seed, score.against) == ((10.0, 10.0), (value, value))
    assert score.values == (10.0, value)


def test_gpus_are_those_of_the_cluster_and_fewer_are_better() -> None:
    gpus = task(Objective.gpus, limits={"attainment": 0.9})
    four, two = (score_of(gpus, rows((row(),) * 2, (row(),) * 2), SEEDS, count) for count in (4, 2))
    assert (four.value, two.value) == (4.0, 2.0)
    assert is_better(gpus, two, four)


def test_a_constraint_is_missed_by_its_excess_at_the_worst_load_over_the_mean_of_seeds() -> None:
    limits = {"ttft_p99_s": 0.1, "tpot_p99_s": 0.02, "attainment": 0.8}
    bad = (row(**{"ttft_s.p99": 0.2, "slo_attainment": 0.2}), row(**{"ttft_s.p99": 0.1}))
    score = score_of(task(Objective.slo_goodput, limits=limits), rows((row(), row()), bad), SEEDS, 1)
    assert score.misses == pytest.approx(
        {"ttft_p99_s": 0.5, "tpot_p99_s": 0.0, "attainment": 0.25, "saturated": 0.0}
    )
    assert not score.is_feasible
    assert score.worst_miss == ("ttft_p99_s", pytest.approx(0.5))


@pytest.mark.parametrize(("saturated", "feasible"), [((False, False), True), ((True, False), False)])
def test_a_load_saturated_in_half_of_the_seeds_is_never_feasible(
    saturated: tuple[bool, bool], feasible: bool
) -> None:
    pair = tuple(row(saturated=one) for one in saturated)
    limited = task(Objective.slo_goodput, num_loads=1, limits={"tpot_p99_s": 1.0})
    assert score_of(limited, rows(pair), SEEDS, 1).is_feasible is feasible


def test_without_constraints_a_saturated_load_is_a_load_like_others() -> None:
    free = task(Objective.slo_goodput, num_loads=1)
    assert score_of(free, rows((row(saturated=True),) * 2), SEEDS, 1).is_feasible


def test_a_run_in_which_nothing_completed_is_worse_than_any() -> None:
    slow = score_of(task(Objective.tpot, num_loads=1), rows((row(**{"tpot_s.mean": None}), row())), SEEDS, 1)
    assert slow.value == math.inf


def test_feasible_goes_before_infeasible_and_a_small_miss_before_a_large_one() -> None:
    limited = task(Objective.slo_goodput, num_loads=1, limits={"ttft_p99_s": 0.1})
    poor, near, far = (
        score_of(limited, rows((row(slo_goodput_rps=value, **{"ttft_s.p99": ttft}),) * 2), SEEDS, 1)
        for value, ttft in ((1.0, 0.1), (50.0, 0.11), (99.0, 0.5))
    )
    assert sorted([far, near, poor], key=lambda score: rank(limited, score)) == [poor, near, far]
