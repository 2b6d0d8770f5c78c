"""The batch size at which drafting stops to pay: as a sweep measured it, and by the tables' own optimum.

The mean time per output token of an arm is a function of its mean batch size; both are measured at each point
of the traffic axis. Two arms are compared at one batch size, not at one point: in an open loop both deliver
what is asked for, the faster with a smaller batch. Points with saturation have no batch that lasts: they are
left out. Between the points, time is interpolated in the batch size, both on logarithmic scales. Where

    TPOT(K) = t(B, K) / AL(K) = t(B, off) = TPOT(off)

the speed-up of the tables is 1 (decode_time.py, under load). They know no step that yields nothing, such as
that of padded drafts and the one after an end that was not foreseen: some percent at short outputs.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cluster_sim.config import Config, Method
from cluster_sim.optimum import Optimum, optimum_of, paying
from cluster_sim.trial import Trial
from cluster_sim.trials import Row

MOST_SEEDS = 0.5  # at least so many of a point's seeds are saturated: the point is
MOST_KINDS = 32  # each takes a third of a second
Group = dict[str, Any]
Optima = Mapping[str, Mapping[tuple[object, ...], Optimum]]  # arm -> values of the other axes -> its tables
Entries = Sequence[Mapping[str, Any]]
Curve = Sequence[tuple[float, float]]  # rising in the first: a batch size


def flips_of(comparison: Mapping[str, Any], baseline: str, optima: Optima) -> dict[str, list[Group]]:
    """Arm -> an entry per combination of the axes that are not the traffic; none without such an axis.

    `optima` holds, for each arm and combination, what the tables say of it.
    """
    axis = comparison["crossover"]["axis"]
    if axis is None:
        return {}
    means = comparison["arms"]
    found: dict[str, list[Group]] = {}
    for arm, groups in comparison["crossover"]["arms"].items():
        for group in groups:
            axes = group["axes"]
            own, base = (
                _curve([entry for entry in means[name] if entry["axes"].items() >= axes.items()])
                for name in (arm, baseline)
            )
            points = ratios_at_one_batch(own, base)
            optimum = optima.get(arm, {}).get(tuple(axes.values()))
            found.setdefault(arm, []).append({"axes": axes, **_measured(points), **_tables(points, optimum)})
    return found


def optima_of(trials: Sequence[Trial], rows: Sequence[Row], baseline: str, axis: str | None) -> Optima:
    """What the tables say of each arm where only `axis` and the seed vary; `rows` are those of the `trials`.

    None where the baseline drafts, or for more than MOST_KINDS different configurations.
    """
    if axis is None or any(trial.arm == baseline and _drafts(trial.config) for trial in trials):
        return {}
    arms: dict[str, dict[tuple[object, ...], Config]] = {}
    for trial, row in zip(trials, rows, strict=True):
        if _drafts(trial.config):
            place = tuple(row[name] for name in trial.point if name != axis)
            arms.setdefault(trial.arm, {}).setdefault(place, kind_of(trial.config))
    kinds = {repr(config): config for places in arms.values() for config in places.values()}
    if len(kinds) > MOST_KINDS:
        return {}
    found = {key: optimum_of(config) for key, config in kinds.items()}
    return {
        arm: {place: optimum for place, config in places.items() if (optimum := found[repr(config)])}
        for arm, places in arms.items()
    }


def kind_of(config: Config) -> Config:
    """`config` without what neither its tables nor its inputs' kind depend on: seed and request rate."""
    rate = None if config.workload.trace or config.workload.request_rate is None else 1.0
    return replace(config, seed=0, workload=replace(config.workload, request_rate=rate))


def crossing(points: Curve) -> float | None:
    """Where a ratio last rises through 1, by batch size: `points` of (batch size, ratio) in rising order."""
    crossed = None
    for (size, ratio), (next_size, next_ratio) in itertools.pairwise(points):
        if ratio < 1.0 <= next_ratio:
            weight = math.log(ratio) / (math.log(ratio) - math.log(next_ratio))
            crossed = math.exp(math.log(size) + weight * (math.log(next_size) - math.log(size)))
        elif next_ratio < 1.0:
            crossed = None
    return crossed


def ratios_at_one_batch(own: Curve, base: Curve) -> Curve:
    """(batch size, own time / base time) at every batch size of either curve that both reach."""
    if not own or not base:
        return []
    low, high = max(own[0][0], base[0][0]), min(own[-1][0], base[-1][0])
    sizes = sorted({size for size, _ in (*own, *base) if low <= size <= high})
    return [(size, _at(own, size) / _at(base, size)) for size in sizes]


def _at(curve: Curve, size: float) -> float:
    known, times = np.log(np.array(curve)).T
    return float(np.exp(np.interp(np.log(size), known, times)))


def _curve(entries: Entries) -> Curve:
    """(mean batch size, mean TPOT) at each value of the traffic axis without saturation, in rising order."""
    steady = [entry for entry in entries if (entry["saturated"] or 0.0) < MOST_SEEDS]
    points = ((entry["batch_size"]["mean"], entry["tpot_s"]["mean"]) for entry in steady)
    return sorted((size["value"], time["value"]) for size, time in points if size and time)


def _drafts(config: Config) -> bool:
    return config.speculation.method is not Method.none


def _measured(points: Curve) -> Group:
    return {
        "measured_batch_size": crossing(points),
        "measured_range": [points[0][0], points[-1][0]] if points else None,
        "pays_at_largest": points[-1][1] < 1.0 if points else None,
    }


def _tables(points: Curve, optimum: Optimum | None) -> Group:
    if optimum is None:
        names = ("tables_pay_at", "tables_largest", "tables_gain_there", "difference_percent")
        return dict.fromkeys(names)
    runs, largest, measured = paying(optimum.loaded), len(optimum.loaded) - 1, crossing(points)
    found: Group = {"tables_pay_at": [list(run) for run in runs], "tables_largest": largest}
    if measured is None:
        return {**found, "tables_gain_there": None, "difference_percent": None}
    last = runs[-1][1] if runs else 0
    return {
        **found,
        "tables_gain_there": float(optimum.loaded[min(max(round(measured), 1), largest)]),
        "difference_percent": 100 * (measured / last - 1) if 0 < last < largest else None,
    }
