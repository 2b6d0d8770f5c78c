"""Fronts of two objectives: what is on them, what is within the noise, and that the search finds them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from made_up import journal_of
from studying import SMALL, TASK, scored, search_over, studied, summary_of

from cluster_sim.config import Objective
from cluster_sim.report.front_sections import front as section_of
from cluster_sim.report.stored import read_results
from cluster_sim.report.study import study_view
from cluster_sim.report.terminal import to_text
from cluster_sim.study.arms import Arm
from cluster_sim.study.front import FrontPoint, front_of
from cluster_sim.study.objective import Score, dominates
from cluster_sim.study.space import Candidate, Space
from cluster_sim.study.verdict import Contender

FRONT = replace(TASK, against=Objective.tpot_p99)
OFF, K2 = Arm(()), Arm(((1, 64, 2),))
TWO = Arm(((1, 8, 3), (9, 64, 1)))
NOISE = (-1.0, 0.0, 1.0, 0.0)  # Student's half width of its mean: 1.30


def contender(
    arm: Arm, goodput: float, tpot_p99_s: float, noise: float = 0.0, misses: dict[str, float] | None = None
) -> Contender:
    """An arm under four seeds, its goodput with some noise."""
    by_seed = tuple(goodput + noise * step for step in NOISE)
    return Contender(arm, Score(by_seed, (by_seed,), misses or {}, (tpot_p99_s,) * 4), is_baseline=True)


def words(points: Sequence[FrontPoint]) -> list[tuple[str, str | None, tuple[str, ...]]]:
    return [
        (point.contender.arm.name, point.shadow and point.shadow.arm.name, point.better_in)
        for point in points
    ]


def test_what_is_worse_in_both_is_not_on_the_front_and_what_trades_one_for_the_other_is() -> None:
    given = [contender(OFF, 30.0, 0.03), contender(K2, 50.0, 0.02), contender(TWO, 40.0, 0.01)]
    assert words(front_of(FRONT, given)) == [("K=2", None, ()), (TWO.name, None, ())]


def test_an_arm_that_misses_a_constraint_is_not_on_the_front() -> None:
    given = [contender(K2, 50.0, 0.01, misses={"ttft_p99_s": 0.1}), contender(OFF, 30.0, 0.03)]
    assert words(front_of(FRONT, given)) == [("off", None, ())]


def test_of_two_points_that_tie_in_both_the_simpler_one_stands_and_shadows_the_other() -> None:
    given = [contender(TWO, 50.5, 0.01, noise=1.0), contender(K2, 50.0, 0.00999)]
    assert words(front_of(FRONT, given)) == [(TWO.name, "K=2", ()), ("K=2", None, ())]


def test_a_point_that_is_ahead_in_one_by_chance_and_surely_behind_in_the_other_is_shadowed() -> None:
    given = [contender(K2, 50.5, 0.02, noise=1.0), contender(TWO, 50.0, 0.01)]
    assert words(front_of(FRONT, given)) == [("K=2", TWO.name, ("tpot_p99",)), (TWO.name, None, ())]


def test_some_point_of_a_front_is_always_clear_of_the_noise() -> None:
    """All tie with all: the simplest one stands."""
    given = [
        contender(TWO, 50.0, 0.01, 1.0),
        contender(K2, 50.1, 0.010001, 1.0),
        contender(OFF, 50.2, 0.010002),
    ]
    assert [shadow for _, shadow, _ in words(front_of(FRONT, given))].count(None) == 1


SPACE = Space((4, 16, 64), longest=4, most=256, is_monotone=False, searches_edges=False)


def test_the_front_of_a_small_space_is_found_in_a_fifth_of_all_evaluations(tmp_path: Path) -> None:
    """Drafts at small batches buy goodput for time per token: the front has a schedule for every sum of them.

    17 pairs of values are on the front of the 625 schedules.
    """

    def score(candidate: Candidate) -> Score:
        first, second, third, fourth = candidate.lengths
        goodput = 4.0 * first + 3.0 * second + 2.0 * third - 5.0 * fourth
        time_ms = 10.0 + 2.0 * first + second + third + 10.0 * fourth
        return replace(scored(goodput), against=(time_ms,))

    starts = [SPACE.static(length, ()) for length in range(5)]
    search = search_over(SPACE, tmp_path / "study.journal", starts, task=FRONT)
    for _ in range(125):
        one = search.ask()
        search.tell(one, score(one.candidate), score(one.candidate), is_stopped=False)
    found = {told.score.values for told in search.front}
    every = [
        score(Candidate((a, b, c, 0), SPACE.lasts)) for a in range(5) for b in range(5) for c in range(5)
    ]
    front = {one.values for one in every if not any(dominates(FRONT, other, one) for other in every)}
    assert len(front) == 17
    assert found == front
    assert {len(trial.values) for trial in journal_of(tmp_path)} == {2}


def test_a_trial_is_measured_against_all_of_the_front_and_may_be_stopped(tmp_path: Path) -> None:
    search = search_over(SPACE, tmp_path / "study.journal", task=FRONT)
    for goodput, time_s in ((10.0, 0.01), (20.0, 0.02), (9.0, 0.03)):
        score = replace(scored(goodput), against=(time_s,))
        search.tell(search.ask(), score, score, is_stopped=False)
    last = search.ask()
    assert last.bars == ((10.0, 0.01), (20.0, 0.02))
    search.tell(last, score, score, is_stopped=True)
    assert [trial.state.name for trial in journal_of(tmp_path)] == ["COMPLETE"] * 3 + ["PRUNED"]


TRADED = (
    "study.against=tpot_p99",
    "study.trials=12",
    "study.axes.workload.request_rate=[50]",
    "study.seeds=[0]",
    "study.fresh_seeds=[10,11]",
)


@pytest.fixture(scope="module")
def traded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("traded")
    assert studied(directory, *SMALL, *TRADED) == 0
    return directory


def test_a_study_shows_its_front_under_the_fresh_seeds(traded: Path) -> None:
    summary = summary_of(traded)
    points = summary["front"]["points"]
    means = [(point["value"]["value"], -point["against"]["value"]) for point in points]
    assert means == sorted(means, reverse=True)
    assert [second for _, second in means] == sorted(second for _, second in means)
    assert all(point["against"]["low"] < point["against"]["value"] for point in points)
    assert {point["arm"] for point in points} <= {one["arm"] for one in summary["contenders"]}


def test_the_front_is_printed_and_drawn(traded: Path) -> None:
    summary = summary_of(traded)
    text = to_text(study_view(summary, 80), 80, colours=False)
    assert max(map(len, text.splitlines())) <= 80
    assert "against TPOT p99 in s per token;" in " ".join(text.split())
    (section,) = section_of(read_results(traded))
    assert [row[0] for row in section.tables[0].rows] == [
        point["arm"] for point in summary["front"]["points"]
    ]
    assert "points of the front stand clear of the noise." in section.words[0]
    assert "<svg" in section.figures[0].wide
