"""The verdict: ties, simpler arms, and what is surely worse.

Differences are made of fixed numbers: nothing here is drawn.
"""

import math

import pytest

from cluster_sim.config import Objective, OverLoads
from cluster_sim.study.arms import Arm
from cluster_sim.study.objective import Ends, Score, Task
from cluster_sim.study.verdict import BETTER, TIE, WORSE, Contender, Verdict, compare, judge

GOODPUT = Task(Objective.slo_goodput, OverLoads.mean, 1, {})
TPOT = Task(Objective.tpot, OverLoads.mean, 1, {})
CAPACITY = Task(Objective.capacity, OverLoads.mean, 1, {})
OFF, K2 = Arm(()), Arm(((1, 64, 2),))
TWO = Arm(((1, 8, 3), (9, 64, 1)))
THREE = Arm(((1, 8, 3), (9, 16, 2), (17, 64, 1)))
NOISE = (-1.0, 0.0, 1.0, 0.0)  # Student's half width of its mean: 3.18 * 0.816 / 2 = 1.30


def score(*loads: float, noise: float = 0.0, **misses: float) -> Score:
    """A value at each load, with some noise between its four seeds."""
    by_load = tuple(tuple(value + noise * step for step in NOISE) for value in loads)
    by_seed = tuple(sum(values) / len(loads) for values in zip(*by_load, strict=True))
    return Score(by_seed, by_load, misses)


def capacity(passed: float) -> Score:
    """The same under four seeds; the next value of the grid failed."""
    failed = 1.02 * passed
    return Score((passed,) * 4, ((passed,) * 4,), {}, (), Ends((failed,) * 4, ((failed,) * 4,), ()))


def judged(best: Arm, scores: dict[Arm, Score], task: Task = GOODPUT) -> Verdict:
    return judge(task, [Contender(arm, each, arm in (OFF, K2)) for arm, each in scores.items()], best)


def names(verdict: Verdict) -> tuple[str | None, str | None]:
    champion, recommended = verdict.champion, verdict.recommended
    return champion and champion.arm.name, recommended and recommended.arm.name


def test_a_winner_by_more_than_chance_is_recommended() -> None:
    verdict = judged(THREE, {THREE: score(50.0), TWO: score(40.0), K2: score(41.0), OFF: score(30.0)})
    assert names(verdict) == (THREE.name, THREE.name)
    assert not verdict.was_overtaken


def test_a_winner_whose_interval_against_a_simpler_arm_holds_zero_is_a_tie_and_that_arm_goes_first() -> None:
    verdict = judged(THREE, {THREE: score(50.0), TWO: score(49.0, noise=1.0), OFF: score(30.0)})
    assert verdict.comparisons[TWO.name].verdict == TIE
    assert names(verdict) == (THREE.name, TWO.name)


def test_among_ties_off_goes_before_static_and_static_before_schedules() -> None:
    all_alike = {arm: score(50.0) for arm in (THREE, TWO, K2, OFF)}
    assert names(judged(THREE, all_alike)) == (THREE.name, "off")
    del all_alike[OFF]
    assert names(judged(THREE, all_alike)) == (THREE.name, "K=2")
    del all_alike[K2]
    assert names(judged(THREE, all_alike)) == (THREE.name, TWO.name)


def test_a_rival_as_simple_as_the_champion_does_not_take_its_place_by_chance() -> None:
    verdict = judged(K2, {K2: score(50.0), Arm(((1, 64, 3),)): score(50.9, noise=1.0)})
    assert names(verdict) == ("K=2", "K=2")


def test_a_sure_difference_below_one_percent_is_a_tie() -> None:
    verdict = judged(THREE, {THREE: score(50.0), K2: score(49.6), OFF: score(49.4)})
    assert [verdict.comparisons[arm.name].verdict for arm in (K2, OFF)] == [TIE, WORSE]
    assert names(verdict) == (THREE.name, "K=2")


def test_a_simpler_arm_that_ties_over_all_loads_but_loses_under_one_is_not_recommended() -> None:
    verdict = judged(THREE, {THREE: score(10.0, 100.0), K2: score(9.5, 100.5), OFF: score(1.0, 50.0)})
    assert verdict.comparisons["K=2"].verdict == TIE
    assert verdict.comparisons["K=2"].by_load == (WORSE, TIE)
    assert names(verdict) == (THREE.name, THREE.name)


def test_luck_of_the_search_is_not_proof() -> None:
    """The best of the search is surely beaten on fresh seeds: the arm that beats it is the champion."""
    verdict = judged(TWO, {TWO: score(45.0), THREE: score(50.0), K2: score(40.0)})
    assert names(verdict) == (THREE.name, THREE.name)
    assert verdict.was_overtaken


def test_the_best_of_the_search_stays_champion_where_a_rival_is_better_by_chance() -> None:
    verdict = judged(TWO, {TWO: score(50.0), THREE: score(50.9, noise=1.0)})
    assert names(verdict) == (TWO.name, TWO.name)
    assert not verdict.was_overtaken


def test_less_time_per_token_is_better() -> None:
    fast, slow = score(0.010), score(0.012)
    assert compare(TPOT, fast, slow).verdict == BETTER
    assert compare(TPOT, slow, fast).verdict == WORSE


def test_capacities_one_step_of_the_search_apart_are_a_tie() -> None:
    """Each lies between what passed and what failed, 2 % above: two steps apart they surely differ."""
    low, one_above, two_above = (capacity(50.0 * 1.02**step) for step in range(3))
    assert compare(CAPACITY, low, one_above).verdict == TIE
    assert compare(CAPACITY, low, one_above).by_load == (TIE,)
    sure = compare(CAPACITY, low, two_above)
    assert sure.verdict == WORSE
    assert sure.difference.value == pytest.approx(50.0 - 52.02)
    assert sure.difference.low == pytest.approx(50.0 - 52.02 * 1.02)
    assert sure.difference.high == pytest.approx(51.0 - 52.02)


def test_more_goodput_goes_before_more_acceptance() -> None:
    """vllm#52992: fixed drafts, acceptance length 4.35, 1588.8 tokens/s; adaptive, 3.76, 4508.9 tokens/s."""
    fixed, adaptive = Arm(((1, 64, 16),)), TWO
    tokens = Task(Objective.token_goodput, OverLoads.mean, 1, {})
    verdict = judged(fixed, {fixed: score(1588.8), adaptive: score(4508.9)}, tokens)
    assert names(verdict) == (adaptive.name, adaptive.name)


def test_an_infeasible_arm_is_no_champion_however_good() -> None:
    verdict = judged(THREE, {THREE: score(90.0, ttft_p99_s=0.2), K2: score(40.0, ttft_p99_s=-0.1)})
    assert names(verdict) == ("K=2", "K=2")
    assert verdict.was_overtaken


def test_where_nothing_is_feasible_the_nearest_miss_is_named() -> None:
    verdict = judged(
        THREE,
        {
            THREE: score(90.0, ttft_p99_s=0.2),
            K2: score(40.0, ttft_p99_s=0.05),
            OFF: score(1.0, ttft_p99_s=9.0),
        },
    )
    assert names(verdict) == (None, None)
    assert verdict.nearest.arm == K2
    assert verdict.nearest.score.worst_miss == ("ttft_p99_s", 0.05)


def test_an_arm_under_which_nothing_completes_is_worse_than_any() -> None:
    endless = Score((math.inf,) * 4, ((math.inf,) * 4,), {})
    assert compare(TPOT, endless, score(0.01)).verdict == WORSE
    assert compare(TPOT, endless, endless).verdict == TIE
