"""Arms of a sweep, compared: means over seeds, ratios to the baseline, and where each arm crosses it.

The seeds of a point are replicates; two arms under one seed serve the same requests, and at the same times
unless clients wait for answers, so their values are paired. A ratio is that of the means over seeds, never
the mean of ratios. Its interval takes the values of the seeds as normal. The p99 of a seed is one such value,
made by the slowest 1 % of its requests: it varies far more between seeds than a mean does, and leans to the
long side. From three seeds its interval is wide and its 95 % are not to be taken to the letter; more seeds
help, and so do longer runs.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cluster_sim.compared import COMPARED
from cluster_sim.statistics import Interval, mean_interval, ratio_interval
from cluster_sim.trials import Row

RATE_AXIS = "workload.request_rate"
UNITS = {RATE_AXIS: "requests/s", "workload.max_concurrency": "clients"}  # of axes along which traffic grows
OF_ONE_TRIAL = "batch_size.histogram"  # as long as the largest batch: in trials.parquet, for every seed
SMALLEST_EFFECT = 0.01  # nobody acts on less: a ratio within 1 % of 1 is a tie, however sure it is
Point = tuple[object, ...]  # the value of every axis
Seeds = Mapping[int, Row]  # the trials of one arm at one point


def compare_arms(rows: Sequence[Row], baseline: str, axes: Sequence[str]) -> dict[str, Any]:
    """The summary.json of a sweep from the rows of its trials (trials.trial_row); `axes` are their keys.

    arms: arm -> an entry per point: its `axes`, its `seeds`, and the tree of one simulation's summary with
        {value, low, high} for every number: a mean over seeds and its 95 % interval (null from one seed). For
        a yes or no, the share of seeds with yes; other words are kept where all seeds agree.
    vs_baseline: arm -> an entry per point: its `axes`, and for every value of COMPARED {ratio, low, high,
        verdict}, the verdict being win, loss, tie, or unknown from one seed; null where there is no ratio.
    crossover: `axis`, along which traffic grows (null: no axis of numbers), and `arms`: arm -> an entry per
        combination of the other `axes`: for every value of COMPARED the lowest value of `axis` at which the
        arm loses, or null.
    """
    cells: dict[str, dict[Point, dict[int, Row]]] = {}
    for row in rows:
        point = tuple(row[axis] for axis in axes)
        cells.setdefault(row["arm"], {}).setdefault(point, {})[row["seed"]] = row
    means = {
        arm: [{"axes": _named(axes, point), **_means(seeds, axes)} for point, seeds in points.items()]
        for arm, points in cells.items()
    }
    base = cells.get(baseline, {})
    ratios = {
        arm: [
            {"axes": _named(axes, point), **_ratios(seeds, base[point])}
            for point, seeds in points.items()
            if point in base
        ]
        for arm, points in cells.items()
        if arm != baseline
    }
    return {"arms": means, "vs_baseline": ratios, "crossover": _crossovers(ratios, axes)}


def _named(axes: Sequence[str], point: Point) -> dict[str, object]:
    return dict(zip(axes, point, strict=True))


def _means(seeds: Seeds, axes: Sequence[str]) -> dict[str, Any]:
    place = {"trial", "arm", "seed", *axes, OF_ONE_TRIAL}
    tree: dict[str, Any] = {"seeds": sorted(seeds)}
    for path in dict.fromkeys(key for row in seeds.values() for key in row if key not in place):
        *parents, leaf = path.split(".")
        branch = tree
        for parent in parents:
            branch = branch.setdefault(parent, {})
        branch[leaf] = _over_seeds([seeds[seed].get(path) for seed in sorted(seeds)])
    return tree


def _over_seeds(values: Sequence[Any]) -> Any:
    """One value for those of the seeds; see compare_arms. None where they have nothing in common."""
    if all(isinstance(value, bool) for value in values):
        return sum(values) / len(values)
    if all(isinstance(value, int | float) for value in values):
        interval = mean_interval(values)
        return {"value": interval.value, "low": _finite(interval.low), "high": _finite(interval.high)}
    if all(isinstance(value, list) for value in values):
        return _lists_over_seeds(values)
    return values[0] if all(value == values[0] for value in values) else None


def _lists_over_seeds(lists: Sequence[list[Any]]) -> list[Any] | None:
    """Words: each once. Numbers: entry by entry."""
    if any(isinstance(item, str) for items in lists for item in items):
        return list(dict.fromkeys(item for items in lists for item in items))
    if len({len(items) for items in lists}) > 1:
        return None
    return [_over_seeds(entries) for entries in zip(*lists, strict=True)]


def _ratios(seeds: Seeds, base: Seeds) -> dict[str, Any]:
    shared = sorted(seeds.keys() & base.keys())

    def values(trials: Seeds, path: str) -> list[Any]:
        return [trials[seed].get(path) for seed in shared]

    return {
        name: _ratio(values(seeds, path), values(base, path), more_is_better)
        for name, (path, more_is_better) in COMPARED.items()
    }


def _ratio(values: Sequence[Any], baseline: Sequence[Any], more_is_better: bool) -> dict[str, Any] | None:
    if not values or any(value is None for value in (*values, *baseline)) or sum(baseline) <= 0:
        return None
    interval = ratio_interval(values, baseline)
    return {
        "ratio": interval.value,
        "low": _finite(interval.low),
        "high": _finite(interval.high),
        "verdict": verdict(interval, more_is_better),
    }


def verdict(ratio: Interval, more_is_better: bool) -> str:
    """What a ratio to the baseline says: win, loss, tie (1 is inside, or too near), or unknown."""
    if math.isinf(ratio.low) or math.isinf(ratio.high):
        return "unknown"
    if ratio.low <= 1.0 <= ratio.high or abs(ratio.value - 1.0) < SMALLEST_EFFECT:
        return "tie"
    return "win" if (ratio.value > 1.0) == more_is_better else "loss"


def _crossovers(ratios: Mapping[str, Sequence[Mapping[str, Any]]], axes: Sequence[str]) -> dict[str, Any]:
    axis = _traffic_axis(ratios, axes)
    if axis is None:
        return {"axis": None, "arms": {}}
    others = [name for name in axes if name != axis]
    arms: dict[str, list[dict[str, Any]]] = {}
    for arm, entries in ratios.items():
        groups: dict[Point, list[Mapping[str, Any]]] = {}
        for entry in entries:
            groups.setdefault(tuple(entry["axes"][name] for name in others), []).append(entry)
        arms[arm] = [
            {"axes": _named(others, point), **{name: _lowest_loss(group, axis, name) for name in COMPARED}}
            for point, group in groups.items()
        ]
    return {"axis": axis, "arms": arms}


def _lowest_loss(entries: Iterable[Mapping[str, Any]], axis: str, name: str) -> float | None:
    losses = (entry["axes"][axis] for entry in entries if entry[name] and entry[name]["verdict"] == "loss")
    return min(losses, default=None)


def _traffic_axis(ratios: Mapping[str, Sequence[Mapping[str, Any]]], axes: Sequence[str]) -> str | None:
    """The request rate if it is an axis, else the first axis whose values are all numbers."""
    for axis in sorted(axes, key=lambda name: name != RATE_AXIS):
        values = [entry["axes"][axis] for entries in ratios.values() for entry in entries]
        if values and all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
            return axis
    return None


def _finite(bound: float) -> float | None:
    return None if math.isinf(bound) else bound
