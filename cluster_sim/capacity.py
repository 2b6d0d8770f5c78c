"""Capacities of a sweep that searches for them (bisection.py): their intervals and ratios to the baseline.

The capacities of the seeds are replicates, and paired with those of another arm. Each lies between the
highest value that passed and the next one of the grid, which failed. So an interval reaches from the low end
of Student's for those that passed to the high end of that for those that failed; that of a ratio, by
Fieller's, from passed over the baseline's failed to failed over the baseline's passed. It covers the truth of
runs as long as these; where one seed is censored there is none.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from cluster_sim.bisection import Bisection, grid, limited_by
from cluster_sim.comparison import compare_arms, verdict
from cluster_sim.config import SweepConfig
from cluster_sim.statistics import Interval, mean_interval, ratio_interval


def compare_capacities(bisections: Sequence[Bisection], sweep: SweepConfig) -> dict[str, Any]:
    """The summary.json of a search, from bisections that have ended.

    arms: arm -> an entry per point as in comparison.compare_arms, of the trials at the highest value that
        passed, whatever it is; of the seeds that have one.
    capacity: `key`, `grid_ratio` (of neighbouring values), and `arms`: arm -> an entry per point: its `axes`;
        value, low, high: the mean over seeds of the highest value that passed, and its interval, null where a
        seed is censored; `seeds`: an entry each, with the highest value that `passed`, the lowest above it
        that `failed`, `censored` (null, below_low, at_least_high) and what it fails by (`limited_by`).
    vs_baseline: arm -> an entry per point: its `axes` and `capacity`, {ratio, low, high, verdict}, null where
        a seed of either is censored.
    """
    if sweep.search is None:
        raise ValueError("this sweep does not search")
    values, cells = grid(sweep.search), _by_arm_and_point(bisections)
    at_capacity = [one.tried[one.passed] for one in bisections if one.passed >= 0]
    means = compare_arms(at_capacity, sweep.baseline, list(sweep.axes))["arms"]
    base = cells[sweep.baseline]
    return {
        "arms": {arm: means.get(arm, []) for arm in cells},
        "capacity": {
            "key": sweep.search.key,
            "grid_ratio": values[1] / values[0],
            "arms": {
                arm: [_capacity(seeds, values) for seeds in points.values()] for arm, points in cells.items()
            },
        },
        "vs_baseline": {
            arm: [
                {"axes": dict(seeds[0].point), "capacity": _ratio(seeds, base[point], values)}
                for point, seeds in points.items()
            ]
            for arm, points in cells.items()
            if arm != sweep.baseline
        },
    }


def _by_arm_and_point(bisections: Sequence[Bisection]) -> dict[str, dict[str, list[Bisection]]]:
    """Arm -> point -> the bisections of its seeds."""
    cells: dict[str, dict[str, list[Bisection]]] = {}
    for one in bisections:
        cells.setdefault(one.first.arm, {}).setdefault(repr(one.point), []).append(one)
    return cells


def _capacity(seeds: Sequence[Bisection], values: Sequence[float]) -> dict[str, Any]:
    found: dict[str, Any] = {"axes": dict(seeds[0].point), "value": None, "low": None, "high": None}
    if not any(one.censored for one in seeds):
        passed, failed = (mean_interval(each) for each in _brackets(seeds, values))
        found |= {"value": passed.value, "low": _finite(passed.low), "high": _finite(failed.high)}
    reasons = Counter(reason for one in seeds if (reason := _reason(one)) is not None)
    found["limited_by"] = [reason for reason, _ in reasons.most_common()]
    found["seeds"] = [
        {
            "seed": one.first.seed,
            "passed": values[one.passed] if one.passed >= 0 else None,
            "failed": values[one.failed] if one.failed >= 0 else None,
            "censored": one.censored,
            "limited_by": _reason(one),
        }
        for one in seeds
    ]
    return found


def _reason(one: Bisection) -> str | None:
    """What the lowest value that failed, failed by."""
    return limited_by(one.tried[one.failed], one.first.config.slo.attainment) if one.failed >= 0 else None


def _brackets(seeds: Sequence[Bisection], values: Sequence[float]) -> tuple[list[float], list[float]]:
    return [values[one.passed] for one in seeds], [values[one.failed] for one in seeds]


def _ratio(
    seeds: Sequence[Bisection], base: Sequence[Bisection], values: Sequence[float]
) -> dict[str, Any] | None:
    if any(one.censored for one in (*seeds, *base)):
        return None
    (passed, failed), (base_passed, base_failed) = _brackets(seeds, values), _brackets(base, values)
    ratio = Interval(
        ratio_interval(passed, base_passed).value,
        ratio_interval(passed, base_failed).low,
        ratio_interval(failed, base_passed).high,
    )
    bounds = {"ratio": ratio.value, "low": _finite(ratio.low), "high": _finite(ratio.high)}
    return {**bounds, "verdict": verdict(ratio, more_is_better=True)}


def _finite(bound: float) -> float | None:
    return None if math.isinf(bound) else bound
