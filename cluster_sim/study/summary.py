"""The summary.json of a study: the verdict, what it rests on, and a sweep's `arms` and `vs_baseline`."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cluster_sim.comparison import compare_arms
from cluster_sim.config import StudyConfig
from cluster_sim.statistics import mean_interval
from cluster_sim.study.arms import OFF
from cluster_sim.study.objective import UNITS, Task, rank
from cluster_sim.study.sensitivity import Variation
from cluster_sim.study.verdict import BETTER, Contender, Verdict, compare
from cluster_sim.trials import Row


def summary_of(
    study: StudyConfig,
    task: Task,
    verdict: Verdict,
    rows: Sequence[Row],
) -> dict[str, Any]:
    """What the verdict rests on; `rows` are those under the fresh seeds."""
    means = compare_arms(rows, _off(verdict), list(study.axes))
    return {
        "study": study.name,
        "question": study.question,
        "objective": task.objective.name,
        "over_loads": task.over_loads.name,
        "unit": UNITS[task.objective],
        "constraints": dict(task.limits),
        "loads": [one["axes"] for one in next(iter(means["arms"].values()))],
        "seeds": list(study.seeds),
        "fresh_seeds": list(study.fresh_seeds),
        "verdict": _verdict(verdict),
        "contenders": [_contender(one, verdict) for one in verdict.contenders],
        "arms": means["arms"],
        "vs_baseline": means["vs_baseline"],
    }


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
    """The baseline of ratios: no speculation, with the first choices."""
    return next((one.arm.name for one in verdict.contenders if one.arm.name.startswith(OFF)), OFF)


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
    value = mean_interval(one.score.by_seed) if all(map(math.isfinite, one.score.by_seed)) else None
    found: dict[str, Any] = {
        "arm": one.arm.name,
        "ranges": [list(entry) for entry in one.arm.ranges],
        "choices": dict(one.arm.choices),
        "is_baseline": one.is_baseline,
        "is_feasible": one.score.is_feasible,
        "misses": {name: _finite(miss) for name, miss in one.score.misses.items()},
        "value": value and {"value": value.value, "low": value.low, "high": value.high},
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


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
