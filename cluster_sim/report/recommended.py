"""Which arm of a sweep to run, from its verdicts against the baseline; and how sure that choice is.

An arm is good when it is nowhere surely worse than the baseline in throughput and goodput, nor, where neither
is saturated, in time per token; and surely faster per token at one such point or more. Of several good arms
the one with the least time per token, over all points without saturation, is the best. Arms within 1 % of it
(comparison.SMALLEST_EFFECT) are as good: the first of the sweep's own order, from the simple to the involved,
is recommended.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cluster_sim.comparison import SMALLEST_EFFECT, verdict
from cluster_sim.report.stored import Kind, Stored, Tree
from cluster_sim.saturation import MOST_SEEDS
from cluster_sim.statistics import ratio_interval

NEVER_WORSE = ("output_throughput_tok_s", "slo_goodput_rps")


def recommended(stored: Stored) -> str | None:
    """The arm of a sweep that its results recommend over the baseline; None: the baseline itself."""
    if stored.kind is not Kind.sweep:
        return None
    compared: Mapping[str, Sequence[Tree]] = stored.summary["vs_baseline"]
    good = (arm for arm in compared if _is_good(stored, arm))
    speeds = {arm: speed for arm in good if (speed := _mean_tpot(stored, arm)) is not None}
    if not speeds:
        return None
    best = min(speeds.values())
    return next(arm for arm, speed in speeds.items() if speed <= best * (1.0 + SMALLEST_EFFECT))


def is_unjudged(stored: Stored) -> bool:
    """Whether nothing has an interval, since there is one seed."""
    entries = [entry for entries in stored.summary["vs_baseline"].values() for entry in entries]
    return all(verdict_of(entry, name) in (None, "unknown") for entry in entries for name in NEVER_WORSE)


def steady_ratios(stored: Stored, arm: str) -> list[Tree]:
    """The entries of `vs_baseline` of an arm at the points where neither it nor the baseline is saturated."""
    steady = {repr(own["axes"]) for own, _ in _steady_pairs(stored, arm)}
    return [entry for entry in stored.summary["vs_baseline"][arm] if repr(entry["axes"]) in steady]


def as_fast(stored: Stored, arm: str) -> list[str]:
    """The other arms that, over the points without saturation, take the same time per token as `arm`."""
    points = {repr(own["axes"]) for own, _ in _steady_pairs(stored, arm)}
    others = [name for name in stored.summary["vs_baseline"] if name != arm]
    return [other for other in others if _is_tie(stored, arm, other, points)]


def verdict_of(entry: Tree, name: str) -> str | None:
    """The verdict of one ratio; None: there is no ratio."""
    ratio = entry[name]
    return None if ratio is None else str(ratio["verdict"])


def is_saturated(entry: Tree) -> bool:
    """Whether most seeds of a point, or the one run, are saturated."""
    return (entry["saturated"] or 0.0) >= MOST_SEEDS


def _is_good(stored: Stored, arm: str) -> bool:
    everywhere, steady = stored.summary["vs_baseline"][arm], steady_ratios(stored, arm)
    loses = any(verdict_of(entry, name) == "loss" for entry in everywhere for name in NEVER_WORSE)
    speeds = [verdict_of(entry, "tpot_s") for entry in steady]
    return not loses and "loss" not in speeds and "win" in speeds


def _mean_tpot(stored: Stored, arm: str) -> float | None:
    """Sum of an arm's mean TPOT over the steady points / that of the baseline: a ratio of aggregates."""
    pairs = [
        (own["tpot_s"]["mean"]["value"], base["tpot_s"]["mean"]["value"])
        for own, base in _steady_pairs(stored, arm)
        if own["tpot_s"]["mean"] and base["tpot_s"]["mean"]
    ]
    total = sum(base for _, base in pairs)
    return sum(own for own, _ in pairs) / total if total else None


def _steady_pairs(stored: Stored, arm: str) -> Iterator[tuple[Tree, Tree]]:
    """(arm's entry, baseline's entry) at each point where neither is saturated."""
    base = {repr(entry["axes"]): entry for entry in stored.summary["arms"].get(stored.baseline, [])}
    for entry in stored.summary["arms"][arm]:
        against = base.get(repr(entry["axes"]))
        if against is not None and not is_saturated(entry) and not is_saturated(against):
            yield entry, against


def _is_tie(stored: Stored, arm: str, other: str, points: set[str]) -> bool:
    own, theirs = (_tpot_by_seed(stored, name, points) for name in (arm, other))
    shared = sorted(own.keys() & theirs.keys())
    values = [[each[seed] for seed in shared] for each in (theirs, own)]
    if not shared or sum(values[1]) <= 0.0:
        return False
    return verdict(ratio_interval(*values), more_is_better=False) == "tie"


def _tpot_by_seed(stored: Stored, arm: str, points: set[str]) -> Mapping[int, float]:
    """Seed -> sum of an arm's mean TPOT over `points`; without the seeds that lack one."""
    axes: Sequence[str] = list(stored.sweep["axes"])
    sums: dict[int, list[Any]] = {}
    for row in stored.rows:
        if row["arm"] == arm and repr({axis: row[axis] for axis in axes}) in points:
            sums.setdefault(row["seed"], []).append(row["tpot_s.mean"])
    return {
        seed: sum(values)
        for seed, values in sums.items()
        if len(values) == len(points) and None not in values
    }
