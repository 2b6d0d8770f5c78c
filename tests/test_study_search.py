"""The search: baselines first, small steps, TPE; the same path every time; a journal that survives kills."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from studying import TASK, best_of, run_alone, scored, search_over

from cluster_sim.config import Objective
from cluster_sim.study.space import Candidate, Space

LASTS = (4, 16, 64)
FREE = Space(LASTS, longest=4, most=256, is_monotone=False, searches_edges=False)
STARTS = [FREE.static(length, ()) for length in range(5)]
# sgl#22246: tokens/s of Qwen3-235B-A22B with EAGLE at batch sizes 1, 2, 4, .., 64, a row for 1 to 6 drafts.
QWEN3_235B = np.array(
    [
        [162, 289, 528, 823, 1268, 2143, 3353],
        [188, 332, 568, 903, 1451, 2297, 3693],
        [195, 332, 572, 896, 1531, 2352, 3555],
        [199, 333, 572, 911, 1537, 2348, 3400],
        [199, 331, 569, 905, 1464, 2316, 3222],
        [188, 311, 549, 883, 1413, 2239, 3054],
    ]
)


def falling(candidate: Candidate) -> float:
    """Best at (4, 3, 1, 0)."""
    return 100.0 - sum(abs(own - best) for own, best in zip(candidate.lengths, (4, 3, 1, 0), strict=True))


def coupled(candidate: Candidate) -> float:
    """Best at (0, 3, 4, 1), which does not fall with the batch; neighbours gain only together."""
    first, second, third, fourth = candidate.lengths
    return 100.0 - abs(first) - 2 * abs(second - 3) - abs(third - second - 1) - abs(fourth - third + 3)


@pytest.mark.parametrize("landscape", [falling, coupled])
def test_a_fifth_of_all_evaluations_finds_the_best_of_a_small_space(
    landscape: Callable[[Candidate], float], tmp_path: Path
) -> None:
    """Four buckets with 0 to 4 drafts: 625 schedules."""
    search = search_over(FREE, tmp_path / "journal", STARTS)
    run_alone(search, landscape, 125)
    every = (Candidate(lengths, LASTS) for lengths in itertools.product(range(5), repeat=4))
    assert landscape(best_of(search)) == max(map(landscape, every))


def test_a_schedule_that_rises_with_the_batch_is_found_where_one_is_best(tmp_path: Path) -> None:
    search = search_over(FREE, tmp_path / "journal", STARTS)
    run_alone(search, coupled, 125)
    assert best_of(search).lengths == (0, 3, 4, 1)


def test_the_best_steps_of_a_published_table_are_found_within_two_percent(tmp_path: Path) -> None:
    """spec-decode-facts.md section E, row 12: 279,936 schedules of 7 batch sizes, in 100 trials."""
    sizes = (1, 2, 4, 8, 16, 32)
    space = Space(sizes, longest=6, most=64, is_monotone=False, searches_edges=False)

    def regretted(candidate: Candidate) -> float:
        """Mean share of the best at each batch size; no drafts: nothing."""
        rates = [
            QWEN3_235B[length - 1, size] if length else 0 for size, length in enumerate(candidate.lengths)
        ]
        return float((np.array(rates) / QWEN3_235B.max(axis=0)).mean())

    search = search_over(space, tmp_path / "journal", [space.static(length, ()) for length in range(7)])
    run_alone(search, regretted, 100)
    for size, length in enumerate(best_of(search).lengths):
        assert QWEN3_235B[length - 1, size] >= 0.98 * QWEN3_235B[:, size].max()


def test_the_baselines_come_first_then_small_steps_from_the_best(tmp_path: Path) -> None:
    search = search_over(FREE, tmp_path / "journal", STARTS)
    asked = [one.candidate for one in run_alone(search, falling, 20)]
    assert asked[:5] == STARTS
    for number in range(5, 20):
        best = max(asked[:number], key=falling)
        untried = [step for step in FREE.neighbours(best) if step not in asked[:number]]
        assert asked[number] == untried[0]


def test_nothing_is_tried_twice_while_there_is_something_new(tmp_path: Path) -> None:
    search = search_over(FREE, tmp_path / "journal", STARTS)
    asked = run_alone(search, falling, 120)
    assert len({one.candidate for one in asked}) == 120


def test_the_same_seed_walks_the_same_path_and_another_one_another(tmp_path: Path) -> None:
    paths = [
        [one.candidate for one in run_alone(search_over(FREE, tmp_path / name, STARTS, seed), falling, 60)]
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    ]
    assert paths[0] == paths[1]
    assert paths[0] != paths[2]


def test_less_is_better_where_the_objective_says_so(tmp_path: Path) -> None:
    task = replace(TASK, objective=Objective.tpot)
    search = search_over(FREE, tmp_path / "journal", STARTS, task=task)
    run_alone(search, lambda candidate: -falling(candidate), 125)
    assert min(search.told, key=lambda told: told.score.value).candidate.lengths == (4, 3, 1, 0)


def test_infeasible_trials_are_no_start_for_small_steps(tmp_path: Path) -> None:
    search = search_over(FREE, tmp_path / "journal", STARTS)
    for _ in range(5):
        one = search.ask()
        length = one.candidate.lengths[0]
        score = scored(float(length), ttft_p99_s=float(length - 2))
        search.tell(one, score, score, is_stopped=False)
    assert search.ask().candidate == next(FREE.neighbours(FREE.static(2, ())))


def test_a_trial_is_measured_against_the_best_feasible_one_when_it_was_asked(tmp_path: Path) -> None:
    search = search_over(FREE, tmp_path / "journal", STARTS)
    first, second = search.ask(), search.ask()
    search.tell(first, scored(10.0), scored(9.0), is_stopped=False)
    third = search.ask()
    search.tell(second, scored(20.0, ttft_p99_s=1.0), scored(20.0), is_stopped=False)
    bars = (first.bars, second.bars, third.bars, search.ask().bars)
    assert bars == ((), (), ((9.0,),), ((9.0,),))


def test_choices_are_searched_beside_the_schedule(tmp_path: Path) -> None:
    space = replace(FREE, choices=(2, 3))
    search = search_over(space, tmp_path / "journal", [space.static(length, (0, 0)) for length in range(5)])
    run_alone(search, lambda one: falling(one) + 5 * (one.chosen == (1, 2)), 150)
    assert best_of(search) == Candidate((4, 3, 1, 0), LASTS, (1, 2))


def test_edges_are_searched_where_asked(tmp_path: Path) -> None:
    space = Space((8,), longest=2, most=256, is_monotone=True, searches_edges=True)

    def edge_at_60(candidate: Candidate) -> float:
        return 10.0 * (candidate.lengths == (2, 0)) - abs(np.log(candidate.lasts[0] / 60))

    search = search_over(space, tmp_path / "journal", [space.static(length, ()) for length in range(3)])
    run_alone(search, edge_at_60, 100)
    assert 54 <= best_of(search).lasts[0] <= 66


def test_a_search_goes_on_where_it_was_killed(tmp_path: Path) -> None:
    """Three were told of six asked; half a line of a fourth was written, and the lock was left."""
    whole = run_alone(search_over(FREE, tmp_path / "whole", STARTS), falling, 40)
    run_alone(search_over(FREE, tmp_path / "killed", STARTS), falling, 30)
    with (tmp_path / "killed").open("ab") as journal:
        journal.write(b'{"op_code":4,"worker_id":"5f')
    (tmp_path / "killed.lock").symlink_to(tmp_path / "moved away")
    again = run_alone(search_over(FREE, tmp_path / "killed", STARTS), falling, 40)
    assert [one.candidate for one in again] == [one.candidate for one in whole]


def test_a_stopped_trial_is_pruned_and_no_candidate_for_the_verdict(tmp_path: Path) -> None:
    search = search_over(FREE, tmp_path / "journal", STARTS)
    one = search.ask()
    search.tell(one, scored(1.0), scored(1.0), is_stopped=True)
    assert search.told == []
    assert search.num_stopped == 1


def test_what_matters_in_a_search_is_told_from_fifty_trials_on(tmp_path: Path) -> None:
    """A landscape of the second bucket alone: no other parameter has half of its share."""
    search = search_over(FREE, tmp_path / "journal", STARTS)
    run_alone(search, lambda candidate: float(candidate.lengths[1]), 49)
    assert search.importances() is None
    again = search_over(FREE, tmp_path / "again", STARTS)
    run_alone(again, lambda candidate: float(candidate.lengths[1]), 100)
    shares = again.importances()
    assert shares is not None
    assert shares.keys() == FREE.bounds.keys()
    assert sum(shares.values()) == pytest.approx(1.0)
    first, second = sorted(shares, key=lambda name: -shares[name])[:2]
    assert first == list(FREE.bounds)[1]
    assert shares[second] < shares[first] / 2
