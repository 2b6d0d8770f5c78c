"""The front of a study: the arms that trade one objective for another, under the fresh seeds.

An arm is on the front when it meets the constraints and no other one that does is at least as good in both
objectives and better in one, by the means over seeds. Means have noise: a point of the front is `shadowed`
where another one is no worse in either objective by more than chance or 1 % (verdict.py), and surely better
in one, or goes before it: a simpler arm, or among those as simple the better one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from cluster_sim.study.objective import Score, Task, dominates, more_is_better, rank
from cluster_sim.study.verdict import BETTER, WORSE, Bracket, Contender, compare_seeds


@dataclass(frozen=True)
class FrontPoint:
    """An arm on the front."""

    contender: Contender
    shadow: Contender | None  # a point of the front that is as good within the noise; None: it stands alone
    better_in: tuple[str, ...] = ()  # objectives in which the shadow is surely better; none: a tie in both


def front_of(task: Task, contenders: Sequence[Contender]) -> list[FrontPoint]:
    """The front of `contenders`, all run under the same seeds; the best in the first objective first."""
    feasible = [one for one in contenders if one.score.is_feasible]
    front = [
        one for one in feasible if not any(dominates(task, other.score, one.score) for other in feasible)
    ]
    front.sort(key=lambda one: rank(task, one.score))
    return [_point(task, one, front) for one in front]


def _point(task: Task, one: Contender, front: Sequence[Contender]) -> FrontPoint:
    for other in sorted(front, key=lambda each: each.arm.complexity):
        words = _words(task, other, one)
        if other is one or WORSE in words:
            continue
        better_in = tuple(
            objective.name for objective, word in zip(task.objectives, words, strict=True) if word == BETTER
        )
        if better_in or _precedence(task, other) < _precedence(task, one):
            return FrontPoint(one, other, better_in)
    return FrontPoint(one, None)


def _words(task: Task, one: Contender, other: Contender) -> list[str]:
    """Better, worse or tie, in each objective."""
    ours, theirs = (_brackets(each.score) for each in (one, other))
    return [
        compare_seeds(own, its, more_is_better=more_is_better(objective))[1]
        for objective, own, its in zip(task.objectives, ours, theirs, strict=True)
    ]


def _brackets(score: Score) -> list[Bracket]:
    """Of each objective."""
    ends = score.ends or score
    return [(score.by_seed, ends.by_seed), (score.against, ends.against)]


def _precedence(task: Task, one: Contender) -> tuple[object, ...]:
    return (one.arm.complexity, *rank(task, one.score), one.arm.name)
