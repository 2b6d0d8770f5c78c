"""The summary.json of a study: the verdict, what it rests on, and a sweep's `arms` and `vs_baseline`."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cluster_sim.capacity import compare_capacities
from cluster_sim.comparison import compare_arms
from cluster_sim.config import StudyConfig, SweepConfig
from cluster_sim.statistics import mean_interval
from cluster_sim.study.arms import OFF
from cluster_sim.study.cells import Bisected, Cell
from cluster_sim.study.front import front_of
from cluster_sim.study.objective import Ends, Score, Task, rank
from cluster_sim.study.sensitivity import Variation
from cluster_sim.study.verdict import BETTER, Contender, Verdict, compare


def summary_of(
    study: StudyConfig,
    task: Task,
    verdict: Verdict,
    cells: Sequence[Cell],
) -> dict[str, Any]:
    """What the verdict rests on; `cells` are those under the fresh seeds.

    With a search, arms, capacity and vs_baseline are those of a sweep that searches (capacity.py).
    """
    compared = _compared(study, _off(verdict), cells)
    entries = next(iter(compared.get("capacity", compared)["arms"].values()))
    return {
        "study": study.name,
        "question": study.question,
        "objective": task.objective.name,
        "over_loads": task.over_loads.name,
        "unit": task.unit(task.objective),
        "more_is_better": task.more_is_better,
        "over_classes": task.over_classes and task.over_classes.name,
        "constraints": dict(task.limits),
        "loads": [entry["axes"] for entry in entries],
        "seeds": list(study.seeds),
        "fresh_seeds": list(study.fresh_seeds),
        "verdict": _verdict(verdict),
        "contenders": [_contender(one, verdict) for one in verdict.contenders],
        "front": _front(task, verdict.contenders),
        **compared,
    }


def _compared(study: StudyConfig, baseline: str, cells: Sequence[Cell]) -> dict[str, Any]:
    """Means of the arms, and ratios to the baseline."""
    bisections = [cell.bisection for cell in cells if isinstance(cell, Bisected)]
    if study.search is None:
        means = compare_arms([cell.row() for cell in cells], baseline, list(study.axes))
        return {"arms": means["arms"], "vs_baseline": means["vs_baseline"]}
    asked = SweepConfig(study.name, study.question, {}, baseline, study.axes, study.fresh_seeds, study.search)
    return compare_capacities(bisections, asked)


def _front(task: Task, contenders: Sequence[Contender]) -> dict[str, Any] | None:
    """Arms that trade the objective for the second one, where it is asked for."""
    if task.against is None:
        return None
    points = [
        {
            "arm": point.contender.arm.name,
            "value": _interval(point.contender.score.by_seed, _ends(point.contender).by_seed),
            "against": _interval(point.contender.score.against, _ends(point.contender).against),
            "shadow": point.shadow and point.shadow.arm.name,
            "shadow_better_in": list(point.better_in),
        }
        for point in front_of(task, contenders)
    ]
    return {"against": task.against.name, "unit": task.unit(task.against), "points": points}


def sensitivity_of(
    task: Task, variation: Variation, recommended: str, varied: Mapping[str, Contender]
) -> dict[str, Any]:
    """What becomes of the recommended arm where one thing is changed; `varied` holds all that were run."""
    if not varied:
        return {"variation": variation.name, "why_not": variation.reason}
    ours = varied[recommended].score
    beating = [
        one
        for name, one in varied.items()
        if name != recommended
        and one.score.is_feasible
        and (not ours.is_feasible or compare(task, one.score, ours).verdict == BETTER)
    ]
    found: dict[str, Any] = {
        "variation": variation.name,
        "values": {name: _finite(one.score.value) for name, one in varied.items()},
        "recommended": recommended,
        "is_feasible": ours.is_feasible,
        "stands": not beating and ours.is_feasible,
        "better": None,
    }
    if beating:
        best = min(beating, key=lambda one: rank(task, one.score))
        found["better"] = best.arm.name
    return found


def _off(verdict: Verdict) -> str:
    """The baseline of ratios: no speculation, with the first choices; or what runs now, if nothing else."""
    known = [one.arm.name for one in verdict.contenders if one.is_baseline]
    return next((name for name in known if name.startswith(OFF)), known[0])


def _verdict(verdict: Verdict) -> dict[str, Any]:
    name, miss = verdict.nearest.score.worst_miss
    return {
        "is_feasible": verdict.recommended is not None,
        "recommended": verdict.recommended and verdict.recommended.arm.name,
        "champion": verdict.champion and verdict.champion.arm.name,
        "is_tie": verdict.recommended is not verdict.champion,
        "was_overtaken": verdict.was_overtaken,
        "nearest_miss": None
        if verdict.recommended is not None
        else {"arm": verdict.nearest.arm.name, "constraint": name, "excess": _finite(miss)},
    }


def _contender(one: Contender, verdict: Verdict) -> dict[str, Any]:
    found: dict[str, Any] = {
        "arm": one.arm.name,
        "ranges": [list(entry) for entry in one.arm.ranges],
        "choices": dict(one.arm.choices),
        "is_baseline": one.is_baseline,
        "is_feasible": one.score.is_feasible,
        "misses": {name: _finite(miss) for name, miss in one.score.misses.items()},
        "value": _interval(one.score.by_seed, _ends(one).by_seed),
        "by_load": [_finite(float(np.mean(load))) for load in one.score.by_load],
        "vs_champion": None,
    }
    comparison = verdict.comparisons.get(one.arm.name)
    if comparison is not None:
        difference = comparison.difference
        found["vs_champion"] = {
            "difference": _finite(difference.value),
            "low": _finite(difference.low),
            "high": _finite(difference.high),
            "verdict": comparison.verdict,
            "by_load": list(comparison.by_load),
        }
    return found


def _ends(one: Contender) -> Ends | Score:
    return one.score.ends or one.score


def _interval(by_seed: Sequence[float], ends: Sequence[float]) -> dict[str, float] | None:
    """A mean over seeds and its 95 % interval, up to that of the `ends`; None where a seed has no value."""
    if not all(map(math.isfinite, by_seed)):
        return None
    value = mean_interval(by_seed)
    return {"value": value.value, "low": value.low, "high": mean_interval(ends).high}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
