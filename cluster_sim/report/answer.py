"""The question and the answer, in two or three sentences with their intervals."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cluster_sim.comparison import RATE_AXIS, UNITS
from cluster_sim.report import study
from cluster_sim.report.capacity import axis_words, bounds_words, capacity_words
from cluster_sim.report.crossover import crossover_sentences
from cluster_sim.report.optimum import ranges_words
from cluster_sim.report.recommended import is_unjudged, recommended, steady_ratios, verdict_of
from cluster_sim.report.stored import Kind, Stored, Tree
from cluster_sim.report.words import figures, percent, seconds
from cluster_sim.saturation import may_be_a_burst

ONE_SEED = "From one seed nothing is judged: there is no interval. Give sweep.seeds two values or more."


@dataclass(frozen=True)
class Head:
    """The top of the page."""

    what: str  # model and cluster
    question: str
    answer: Sequence[str]


def head_of(stored: Stored) -> Head:
    """The top of the page of `stored`."""
    config = stored.config
    number = config["cluster"]["instances"]
    what = (
        f"{config['model']['name']}, {number} instance{'s' * (number != 1)} of {config['hardware']['name']}"
    )
    asked = stored.study or stored.sweep
    question = asked.get("question") or "Does this cluster meet its SLO under this load?"
    what = f"{asked['name']}: {what}" if asked else f"{what}, {config['speculation']['method']}"
    return Head(what, question, list(ANSWERS[stored.kind](stored)))


def interval(value: Mapping[str, Any], name: str = "ratio") -> str:
    """A number and its 95 % interval."""
    if value["low"] is None or value["high"] is None:
        return f"{value[name]:.2f} (one seed: no interval)"
    return f"{value[name]:.2f} [{value['low']:.2f}, {value['high']:.2f}]"


def place_words(axes: Mapping[str, object]) -> str:
    """A point of the axes."""
    return " and ".join(
        f"{value:g} {UNITS[axis]}" if axis in UNITS and isinstance(value, int | float) else f"{axis}={value}"
        for axis, value in axes.items()
    )


def _of_run(stored: Stored) -> Iterator[str]:
    summary, slo = stored.summary, stored.config["slo"]
    load = f"{figures(summary['output_throughput_tok_s'])} output tokens/s"
    if summary["saturated"]:
        trace, share = stored.config["workload"]["trace"], summary["queue_growth"]["share_of_arrivals"]
        unless = ", unless the trace's own load rose" if may_be_a_burst(trace, share) else ""
        came = "No: the cluster is saturated, more requests came than it served"
        yield f"{came}; {load} is its capacity in a run of this length{unless}."
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
    yield from _speed_of_run(summary)


def _speed_of_run(summary: Tree) -> Iterator[str]:
    optimum, tpot_s = summary.get("optimum"), seconds(summary["tpot_s"]["mean"])
    if optimum is None:
        yield f"A token after the first takes {tpot_s} on average."
        return
    size = summary["batch_size"]["mean"] or 0.0
    near = min(optimum["speedup"], key=lambda batch: abs(int(batch) - size))
    yield (
        f"A token after the first takes {tpot_s} on average; by the step-time tables that is "
        f"{optimum['speedup'][near]:.2f} times as fast as without a drafter at batch {near} (the mean here "
        f"is {figures(size)}). Compare arms on the same arrivals with +sweep=spec_grid."
    )


def _of_sweep(stored: Stored) -> Iterator[str]:
    summary, baseline = stored.summary, stored.baseline
    if not any(summary["vs_baseline"].values()):
        yield f"Only {baseline} was run: there is nothing to compare it with."
        return
    if is_unjudged(stored):
        yield ONE_SEED
        return
    arm = recommended(stored)
    if arm is None:
        yield (
            f"Keep {baseline}: no other arm is surely faster per token somewhere without losing throughput, "
            "goodput or time per token elsewhere."
        )
        yield from list(crossover_sentences(summary, baseline, stored.compared))[:1]
    else:
        yield f"Run {arm}{_schedule_words(stored, arm)}: {_gain(stored, arm)}"
    yield from _largest_loss(summary, baseline)


def _schedule_words(stored: Stored, arm: str) -> str:
    """The draft lengths of an arm, where the tables were asked about it and they depend on the batch size."""
    entries = stored.summary.get("optima", {}).get(arm, [])
    schedules = {repr(entry["draft_lengths"]): entry["draft_lengths"] for entry in entries}
    if len(schedules) != 1 or len(ranges := next(iter(schedules.values()))) == 1:
        return ""
    return f" (K by batch size: {ranges_words(ranges)})"


def _gain(stored: Stored, arm: str) -> str:
    """How much less time a token takes, at the points where nothing is saturated."""
    known = [entry for entry in steady_ratios(stored, arm) if entry["tpot_s"]]
    ordered = sorted(known, key=lambda entry: float(entry["tpot_s"]["ratio"]))
    words = [interval(entry["tpot_s"]) + _at(entry["axes"]) for entry in ordered]
    ends = words[0] if len(words) == 1 else f"between {words[0]} and {words[-1]}"
    return (
        f"a token after the first takes {ends} of its time with {stored.baseline}; throughput and goodput "
        "are nowhere surely less."
    )


def _largest_loss(summary: Tree, baseline: str) -> Iterator[str]:
    name = "output_throughput_tok_s"
    losers = [
        (arm, entry)
        for arm, entries in summary["vs_baseline"].items()
        for entry in entries
        if verdict_of(entry, name) == "loss"
    ]
    if losers:
        arm, entry = min(losers, key=lambda loser: float(loser[1][name]["ratio"]))
        served = f"{interval(entry[name])} of {baseline}'s output throughput{_at(entry['axes'])}"
        yield f"{arm} loses most: it serves {served}."


def _at(axes: Mapping[str, object]) -> str:
    return f" at {place_words(axes)}" if axes else ""


def _of_capacity(stored: Stored) -> Iterator[str]:
    """The arm that surely serves most, at each of the first points."""
    capacity, ratios = stored.summary["capacity"], stored.summary["vs_baseline"]
    base = capacity["arms"][stored.baseline]
    unit = "requests/s" if capacity["key"] == RATE_AXIS else axis_words(capacity["key"])
    for place, own in list(enumerate(base))[:MOST_POINTS]:
        found = {arm: entries[place]["capacity"] for arm, entries in ratios.items() if place < len(entries)}
        wins = {arm: ratio for arm, ratio in found.items() if ratio and ratio["verdict"] == "win"}
        where = f"With {place_words(own['axes'])}: " if own["axes"] else ""
        if not wins:
            served = f"{capacity_words(own).replace(chr(10), ', ')} {unit} ({bounds_words(own)})"
            yield f"{where}No arm surely serves more than {stored.baseline} within the SLO: {served}."
            continue
        best = max(wins, key=lambda arm: float(wins[arm]["ratio"]))
        entry = capacity["arms"][best][place]
        yield (
            f"{where}{best} serves most within the SLO: {capacity_words(entry)} {unit} "
            f"({bounds_words(entry)}), {interval(wins[best])} times as much as {stored.baseline}."
        )


def _of_study(stored: Stored) -> Iterator[str]:
    summary = stored.summary
    yield from study.answer(summary)
    name = summary["verdict"]["recommended"]
    values = {one["arm"]: one["value"] for one in summary["contenders"]}
    compared = [arm for arm in (name, stored.baseline) if values.get(arm)]
    if name in compared:
        words = [f"{arm}: {study.value_words(summary, values[arm])}" for arm in dict.fromkeys(compared)]
        yield f"Under seeds that the search had not seen, in {summary['unit']}: {'; '.join(words)}."


def _of_unfinished(stored: Stored) -> Iterator[str]:
    yield (
        f"There is no answer yet: {len(stored.rows)} simulations have ended, too few to compare. Run the "
        "same command again, with this output.dir: it goes on."
    )


MOST_POINTS = 3  # of capacities that the answer names
ANSWERS: Mapping[Kind, Callable[[Stored], Iterator[str]]] = {
    Kind.run: _of_run,
    Kind.sweep: _of_sweep,
    Kind.capacity: _of_capacity,
    Kind.study: _of_study,
    Kind.unfinished: _of_unfinished,
}
