"""The batch size at which drafting stops paying: as a sweep measured it, and by the tables' own optimum.

The output tokens of a second of steps, R, are a function of the mean batch size; both are measured in each
run. Two arms are compared at one batch size, not at one point: below saturation both deliver what is asked
for, the faster with a smaller batch. Where

    R(K) = n B / (E T(B)) of drafts = R(off)

the speed-up of the tables under load is 1. Both are functions of the mean over steps, whatever the spread of
batch sizes, and saturation changes neither (load_time.py). The mean of TPOT is another function: it leaves
out the step of the prefill and the one after an unforeseen end, which take up a place of the batch.

Between the points, the time of a token at its place of the batch, B / R, is interpolated in the batch size,
both on logarithmic scales. Every seed has its own flip; they give the interval.
"""

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cluster_sim.config import Config, Method
from cluster_sim.instances import kinds_of
from cluster_sim.optimum import Optimum, optimum_of, paying, summary_of
from cluster_sim.statistics import mean_interval
from cluster_sim.trial import Trial
from cluster_sim.trials import Row

MOST_KINDS = 32  # each takes a third of a second
Group = dict[str, Any]
Optima = Mapping[str, Mapping[tuple[object, ...], Optimum]]  # arm -> values of the other axes -> its tables
Entries = Sequence[Mapping[str, Any]]
Curve = Sequence[tuple[float, float]]  # rising in the first: a batch size


def flips_of(
    comparison: Mapping[str, Any], rows: Sequence[Row], baseline: str, optima: Optima, arms: Collection[str]
) -> dict[str, list[Group]]:
    """Each of `arms` -> an entry per combination of the axes that are not the traffic.

    None without an axis that is. An arm that drafts no more than the baseline, which is nothing, has none.

    `optima` holds, for each arm and combination, what the tables say of it; `comparison` is of the `rows`.
    """
    axis = comparison["crossover"]["axis"]
    if axis is None:
        return {}
    found: dict[str, list[Group]] = {}
    for arm, groups in comparison["crossover"]["arms"].items():
        for group in groups if arm in arms else ():
            axes = group["axes"]
            own, base = (
                [row for row in rows if row["arm"] == name and row.items() >= axes.items()]
                for name in (arm, baseline)
            )
            if not any(row["tokens.drafted"] for row in (*own, *base)):
                continue
            measured = _measured(*_compared(own, base, axis))
            optimum = optima.get(arm, {}).get(tuple(axes.values()))
            of_tables = _tables(measured["measured_batch_size"], optimum)
            found.setdefault(arm, []).append({"axes": axes, **measured, **of_tables})
    return found


def differing_in_drafts(trials: Sequence[Trial], baseline: str) -> frozenset[str]:
    """The arms with another speculation than the baseline, and the same model, hardware and cluster."""
    machines: dict[str, set[str]] = {}
    drafts: dict[str, set[str]] = {}
    for trial in trials:
        config, point = trial.config, sorted(trial.point.items())
        machine = repr((point, config.model, config.hardware, config.cluster))
        machines.setdefault(trial.arm, set()).add(machine)
        drafts.setdefault(trial.arm, set()).add(repr((point, config.speculation)))
    return frozenset(
        arm for arm in machines if machines[arm] == machines[baseline] and drafts[arm] != drafts[baseline]
    )


def optima_of(trials: Sequence[Trial], rows: Sequence[Row], baseline: str, axis: str | None) -> Optima:
    """What the tables say of each arm where only `axis` and the seed vary; `rows` are those of the `trials`.

    None where the baseline drafts, for an arm whose instances differ, or for more than MOST_KINDS different
    configurations.
    """
    if axis is None or any(trial.arm == baseline and _drafts(trial.config) for trial in trials):
        return {}
    arms: dict[str, dict[tuple[object, ...], Config]] = {}
    for trial, row in zip(trials, rows, strict=True):
        alike = kinds_of(trial.config)
        if _drafts(trial.config) and len(alike) == 1:
            place = tuple(row[name] for name in trial.point if name != axis)
            arms.setdefault(trial.arm, {}).setdefault(place, kind_of(alike[0].config))
    kinds = {repr(config): config for places in arms.values() for config in places.values()}
    if len(kinds) > MOST_KINDS:
        return {}
    found = {key: optimum_of(config) for key, config in kinds.items()}
    return {
        arm: {place: optimum for place, config in places.items() if (optimum := found[repr(config)])}
        for arm, places in arms.items()
    }


def optima_tree(optima: Optima, crossover: Mapping[str, Any]) -> dict[str, list[Group]]:
    """Arm -> an entry per combination of the axes that are not the traffic: what summary.json holds of it."""
    return {
        arm: [
            {"axes": group["axes"], **summary_of(optimum)}
            for group in crossover["arms"].get(arm, [])
            if (optimum := places.get(tuple(group["axes"].values()))) is not None
        ]
        for arm, places in optima.items()
    }


def kind_of(config: Config) -> Config:
    """`config` without what neither its tables nor its inputs' kind depend on: seed, rate and clients."""
    asked = config.workload
    rate = None if asked.trace or asked.request_rate is None else 1.0
    clients = None if asked.max_concurrency is None else 1
    return replace(config, seed=0, workload=replace(asked, request_rate=rate, max_concurrency=clients))


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


def _compared(own: Sequence[Row], base: Sequence[Row], axis: str) -> tuple[Curve, list[float | None]]:
    """Own time / base time by batch size, over all seeds, and the crossing that each seed has by itself."""

    def ratios(seeds: Sequence[int]) -> Curve:
        return ratios_at_one_batch(
            *(_curve([row for row in rows if row["seed"] in seeds], axis) for rows in (own, base))
        )

    seeds = sorted({row["seed"] for row in own})
    return ratios(seeds), [crossing(ratios([seed])) for seed in seeds]


def _curve(rows: Sequence[Row], axis: str) -> Curve:
    """(mean batch size, seconds of a token at its place of the batch) at each point, in rising order."""
    points: dict[object, list[tuple[float, float]]] = {}
    for row in rows:
        size, tokens_per_s = row.get("batch_size.mean"), row.get("output_tokens_per_busy_s")
        if size and tokens_per_s:
            points.setdefault(row[axis], []).append((size, size / tokens_per_s))
    means = [np.mean(seeds, axis=0).tolist() for seeds in points.values()]
    return sorted((size, time_s) for size, time_s in means)


def _drafts(config: Config) -> bool:
    """Whether some instance does."""
    return any(kind.config.speculation.method is not Method.none for kind in kinds_of(config))


def _measured(points: Curve, crossings: Sequence[float | None]) -> Group:
    """The geometric mean of the seeds' crossings, with Student's interval, where every seed has one."""
    size, interval = crossing(points), None
    if size is not None and None not in crossings and len(crossings) > 1:
        logs = mean_interval([math.log(one) for one in crossings if one])
        size, interval = math.exp(logs.value), [math.exp(logs.low), math.exp(logs.high)]
    return {
        "measured_batch_size": size,
        "measured_interval": interval,
        "seeds_that_flip": [len(crossings) - crossings.count(None), len(crossings)],
        "measured_range": [points[0][0], points[-1][0]] if points else None,
        "pays_at_largest": points[-1][1] < 1.0 if points else None,
    }


def _tables(measured: float | None, optimum: Optimum | None) -> Group:
    if optimum is None or optimum.largest_loaded == 0:
        names = ("tables_pay_at", "tables_largest", "tables_gain_there", "difference_percent")
        return dict.fromkeys(names)
    runs, largest = paying(optimum.loaded), optimum.largest_loaded
    found: Group = {"tables_pay_at": [list(run) for run in runs], "tables_largest": largest}
    if measured is None:
        return {**found, "tables_gain_there": None, "difference_percent": None}
    last = runs[-1][1] if runs else 0
    return {
        **found,
        "tables_gain_there": float(optimum.loaded[min(max(round(measured), 1), largest)]),
        "difference_percent": 100 * (measured / last - 1) if 0 < last < largest else None,
    }
