"""The question and the answer, in two sentences with their intervals.

An arm is recommended when it is nowhere surely worse than the baseline, in throughput and in goodput, and
surely faster per token somewhere. Of several, that with the least time per token over all points without
saturation; arms within 1 % of it (comparison.SMALLEST_EFFECT) are as good, and the first of the sweep's own
order, from the simple to the involved, is taken.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cluster_sim.comparison import SMALLEST_EFFECT
from cluster_sim.report.stored import Stored, Tree
from cluster_sim.report.words import figures, percent, seconds
from cluster_sim.saturation import MOST_SEEDS

NEVER_WORSE = ("output_throughput_tok_s", "slo_goodput_rps")


@dataclass(frozen=True)
class Head:
    """The top of the page."""

    title: str
    what: str
    question: str
    answer: Sequence[str]


def head_of(stored: Stored) -> Head:
    """The top of the page of `stored`."""
    config, sweep = stored.config, stored.sweep
    cluster = config["cluster"]
    number = cluster["instances"]
    what = f"{config['model']['name']} on {number} {'instance' if number == 1 else 'instances'} of {config['hardware']['name']}"
    if sweep is None:
        title = f"{what}, {config['speculation']['method']}"
        question = "Does this cluster meet its SLO under this load, and what does speculation do there?"
        return Head(title, what, question, list(_answer_of_run(stored)))
    return Head(
        f"{sweep['name']}: {what}",
        f"{sweep['name']}: {what}",
        sweep["question"],
        list(_answer_of_sweep(stored)),
    )


def recommended(stored: Stored) -> str | None:
    """The arm of a sweep that its results recommend over the baseline; None: the baseline itself."""
    good = {
        arm: entries
        for arm, entries in stored.summary["vs_baseline"].items()
        if not any(_verdict(entry, name) == "loss" for entry in entries for name in NEVER_WORSE)
        and any(_verdict(entry, "tpot_s") == "win" for entry in entries)
    }
    speeds = {arm: speed for arm in good if (speed := _mean_tpot(stored, arm)) is not None}
    if not speeds:
        return None
    best = min(speeds.values())
    return next(arm for arm, speed in speeds.items() if speed <= best * (1.0 + SMALLEST_EFFECT))


def interval(value: Mapping[str, Any], name: str = "ratio") -> str:
    """A number and its 95 % interval."""
    if value["low"] is None or value["high"] is None:
        return f"{value[name]:.2f} (one seed: no interval)"
    return f"{value[name]:.2f} [{value['low']:.2f}, {value['high']:.2f}]"


def _answer_of_run(stored: Stored) -> Iterator[str]:
    summary, slo = stored.summary, stored.config["slo"]
    load = f"{figures(summary['output_throughput_tok_s'])} output tokens/s"
    if summary["saturated"]:
        yield f"No: the cluster is saturated, more requests came than it served; {load} is its capacity."
    elif summary["slo_attainment"] is None:
        yield f"No SLO was given; the cluster served {load}."
    else:
        low, high = summary["slo_attainment_interval"]
        met = summary["slo_attainment"] >= slo["attainment"]
        yield (
            f"{'Yes' if met else 'No'}: {percent(summary['slo_attainment'])} of the requests "
            f"[{percent(low)}, {percent(high)}] met the SLO, {percent(slo['attainment'])} were wanted; "
            f"the cluster served {load}."
        )
    tpot_s = seconds(summary["tpot_s"]["mean"])
    optimum = summary.get("optimum")
    if optimum is None:
        yield f"Without speculation a token after the first takes {tpot_s} on average."
        return
    size = summary["batch_size"]["mean"]
    known = {int(batch): gain for batch, gain in optimum["speedup"].items()}
    near = min(known, key=lambda batch: abs(batch - size))
    yield (
        f"A token after the first takes {tpot_s} on average; by the step-time tables that is "
        f"{known[near]:.2f} times as fast as without a drafter at batch {near} (the mean here is {figures(size)}). "
        "Compare arms on the same arrivals with +sweep=spec_grid."
    )


def _answer_of_sweep(stored: Stored) -> Iterator[str]:
    summary, baseline = stored.summary, stored.sweep["baseline"] if stored.sweep else ""
    if not summary["vs_baseline"]:
        yield f"Only {baseline} was run: there is nothing to compare it with."
        return
    if all(_verdict(entry, name) in (None, "unknown") for entry in _entries(summary) for name in NEVER_WORSE):
        yield "From one seed nothing is judged: there is no interval. Give sweep.seeds two values or more."
        return
    arm = recommended(stored)
    if arm is None:
        yield f"No arm is surely faster than {baseline} without losing throughput or goodput somewhere: keep {baseline}."
    else:
        yield f"{arm}: {_range_of(summary['vs_baseline'][arm], 'tpot_s', baseline)} and nowhere surely less throughput or goodput."
    losers = [
        (name, entry)
        for name, entries in summary["vs_baseline"].items()
        for entry in entries
        if _verdict(entry, "output_throughput_tok_s") == "loss"
    ]
    if losers:
        name, entry = min(losers, key=lambda loser: loser[1]["output_throughput_tok_s"]["ratio"])
        place = ", ".join(
            f"{axis.rpartition('.')[2]} {value:g}" if isinstance(value, int | float) else f"{axis} {value}"
            for axis, value in entry["axes"].items()
        )
        yield f"{name} loses most: {interval(entry['output_throughput_tok_s'])} of {baseline}'s output throughput at {place}."


def _range_of(entries: Sequence[Tree], name: str, baseline: str) -> str:
    ratios = sorted(
        (entry[name] for entry in entries if entry[name]), key=lambda ratio: float(ratio["ratio"])
    )
    best, worst = ratios[0], ratios[-1]
    return f"a token takes {interval(best)} of {baseline}'s time where it gains most and {interval(worst)} where it gains least,"


def _mean_tpot(stored: Stored, arm: str) -> float | None:
    """Sum of an arm's mean TPOT over the steady points / that of the baseline: a ratio of aggregates."""
    base = {repr(entry["axes"]): entry for entry in stored.summary["arms"][(stored.sweep or {})["baseline"]]}
    own = other = 0.0
    for entry in stored.summary["arms"][arm]:
        against = base.get(repr(entry["axes"]))
        if against is None or any((one["saturated"] or 0.0) >= MOST_SEEDS for one in (entry, against)):
            continue
        if entry["tpot_s"]["mean"] and against["tpot_s"]["mean"]:
            own += entry["tpot_s"]["mean"]["value"]
            other += against["tpot_s"]["mean"]["value"]
    return own / other if other else None


def _entries(summary: Tree) -> Iterator[Tree]:
    for entries in summary["vs_baseline"].values():
        yield from entries


def _verdict(entry: Tree, name: str) -> str | None:
    ratio = entry[name]
    return None if ratio is None else str(ratio["verdict"])
