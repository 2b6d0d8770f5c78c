"""Which arms of a search go to the verdict, the best first.

Its best ones; where a front was searched, arms spread over it; where the fewest GPUs were, the arms on fewer
than the best that missed the constraints by least, so that the verdict shows what one GPU less costs.
"""

from collections.abc import Callable, Sequence

from cluster_sim.config import Objective
from cluster_sim.study.objective import Task, rank
from cluster_sim.study.search import Search, Told
from cluster_sim.study.space import Candidate

BEST = 5
FRONT = 10
ON_FEWER_GPUS = (2, 1)  # on the next lower number, and on that below it


def finalists(task: Task, search: Search, name_of: Callable[[Candidate], str]) -> list[Told]:
    """The trials whose arms, by `name_of`, go to the verdict."""
    unlike: dict[str, Told] = {}
    for told in sorted(search.told, key=lambda told: rank(task, told.score)):
        unlike.setdefault(name_of(told.candidate), told)
    ordered = list(unlike.values())
    return [*ordered[:BEST], *_of_front(task, search.front), *_on_fewer_gpus(task, ordered)]


def _of_front(task: Task, front: Sequence[Told]) -> list[Told]:
    """At most FRONT of it, evenly from its one end to the other."""
    if task.against is None:
        return []
    ordered = sorted(front, key=lambda told: rank(task, told.score))
    if len(ordered) <= FRONT:
        return ordered
    return [ordered[round(place * (len(ordered) - 1) / (FRONT - 1))] for place in range(FRONT)]


def _on_fewer_gpus(task: Task, ordered: Sequence[Told]) -> list[Told]:
    if task.objective is not Objective.gpus or not ordered or not ordered[0].score.is_feasible:
        return []
    numbers = sorted({told.score.value for told in ordered if told.score.value < ordered[0].score.value})
    return [
        told
        for number, most in zip(reversed(numbers), ON_FEWER_GPUS, strict=False)
        for told in [one for one in ordered if one.score.value == number][:most]
    ]
