"""The verdict on arms that were run on fresh seeds: which to recommend, and what is a tie.

The champion is the best of the search; its rivals are compared with it seed by seed, on the same arrivals.
The best of a search is partly luck under the search's own seeds; under fresh ones it has none. Two arms tie
when the 95 % interval of their mean difference holds 0, or when they differ by less than 1 % (comparison.py).
A capacity lies between a value that passed and one that failed: the interval reaches as far as that of
capacity.py, from passed less the champion's failed to failed less the champion's passed.
If a rival surely beats the champion, the best such rival takes its place.

Of the arms that tie with the champion, and surely lose to it under no single load, the simplest is
recommended: no speculation before a static draft length, and that before schedules, the fewer ranges the
better.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cluster_sim.comparison import SMALLEST_EFFECT
from cluster_sim.statistics import Interval, difference_interval
from cluster_sim.study.arms import Arm
from cluster_sim.study.objective import Score, Task, rank

Bracket = tuple[Sequence[float], Sequence[float]]  # by seed: values and their ends, the same where exact
BETTER, WORSE, TIE = "better", "worse", "tie"


@dataclass(frozen=True)
class Contender:
    """An arm under the fresh seeds."""

    arm: Arm
    score: Score
    is_baseline: bool  # known before the search


@dataclass(frozen=True)
class Comparison:
    """An arm against the champion."""

    difference: Interval  # of its value from the champion's, in the objective's unit
    verdict: str  # better, worse or tie
    by_load: tuple[str, ...]  # the same under each load alone


@dataclass(frozen=True)
class Verdict:
    """What to do; `recommended` and `champion` are None where no arm meets the constraints."""

    champion: Contender | None
    recommended: Contender | None
    contenders: tuple[Contender, ...]  # the best first
    comparisons: Mapping[str, Comparison]  # name of an arm -> against the champion; none without one
    was_overtaken: bool  # the best of the search was not the best here
    nearest: Contender  # to meeting the constraints


def judge(task: Task, contenders: Sequence[Contender], best_of_search: Arm) -> Verdict:
    """Weigh `contenders`, all run under the same two or more seeds and the same loads."""
    ordered = tuple(sorted(contenders, key=lambda one: rank(task, one.score)))
    feasible = [one for one in ordered if one.score.is_feasible]
    if not feasible:
        return Verdict(None, None, ordered, {}, was_overtaken=False, nearest=ordered[0])
    found = next((one for one in feasible if one.arm == best_of_search), None)
    champion = found or feasible[0]
    beating = [one for one in feasible if compare(task, one.score, champion.score).verdict == BETTER]
    if beating:
        champion = beating[0]
    comparisons = {one.arm.name: compare(task, one.score, champion.score) for one in ordered}
    as_good = [one for one in feasible if _is_as_good(comparisons[one.arm.name])]
    recommended = min(
        as_good, key=lambda one: (one.arm.complexity, one is not champion, rank(task, one.score))
    )
    overtaken = found is None or champion is not found
    return Verdict(champion, recommended, ordered, comparisons, overtaken, nearest=ordered[0])


def compare(task: Task, score: Score, champion: Score) -> Comparison:
    """An arm against the champion, seed by seed."""
    more = task.more_is_better
    ends, its_ends = score.ends or score, champion.ends or champion
    difference, word = compare_seeds(
        (score.by_seed, ends.by_seed), (champion.by_seed, its_ends.by_seed), more_is_better=more
    )
    ours = zip(score.by_load, ends.by_load, strict=True)
    theirs = zip(champion.by_load, its_ends.by_load, strict=True)
    loads = zip(ours, theirs, strict=True)
    by_load = (compare_seeds(own, other, more_is_better=more)[1] for own, other in loads)
    return Comparison(difference, word, tuple(by_load))


def compare_seeds(own: Bracket, other: Bracket, *, more_is_better: bool) -> tuple[Interval, str]:
    """The mean difference of paired values, and whether the first are better, worse or a tie."""
    (values, ends), (champion, its_ends) = own, other
    if not all(map(math.isfinite, (*values, *champion))):
        ours, theirs = (float(np.mean(each)) for each in (values, champion))
        if ours == theirs:
            return Interval(0.0, 0.0, 0.0), TIE
        return Interval(ours - theirs, -math.inf, math.inf), BETTER if ours < theirs else WORSE
    interval = Interval(
        difference_interval(values, champion).value,
        difference_interval(values, its_ends).low,
        difference_interval(ends, champion).high,
    )
    size = abs(float(np.mean(champion)))
    if interval.low <= 0.0 <= interval.high or abs(interval.value) < SMALLEST_EFFECT * size:
        return interval, TIE
    return interval, BETTER if (interval.value > 0.0) == more_is_better else WORSE


def _is_as_good(comparison: Comparison) -> bool:
    return comparison.verdict != WORSE and WORSE not in comparison.by_load
