"""How sure one simulation is, in words: intervals by batch means, and what of the run is measured."""

from collections.abc import Iterator, Mapping
from typing import Any

from cluster_sim.batch_means import ALL_ALIKE
from cluster_sim.report.words import figures, percent, seconds

FEW_EFFECTIVE = 100  # below, intervals cover less than 93 of 100 (batch_means.py)
TIMES = {"queue_s": "queue", "ttft_s": "TTFT", "tpot_s": "TPOT", "e2el_s": "E2E"}
OTHERS = {"slo_attainment": "SLO"}


def measured_lines(summary: Mapping[str, Any]) -> Iterator[str]:
    """What latencies, attainment and goodput are of, where it is not the whole run."""
    measured = summary["measured"]
    if measured["warmup_s"] or measured["cooldown_s"]:
        yield (
            f"latencies, SLO and goodput are of {measured['requests']:,} requests, without those that arrive "
            f"in the first {seconds(measured['warmup_s'])} and in the last {seconds(measured['cooldown_s'])}"
        )


def wilson_words(summary: Mapping[str, Any]) -> str:
    """Wilson's interval of the attainment, unless batch means give a better one."""
    means = (summary.get("batch_means") or {"means": {}})["means"]
    if means.get("slo_attainment") and means["slo_attainment"]["value"] is not None:
        return ""
    low, high = summary["slo_attainment_interval"]
    return f"95% interval {percent(low)} to {percent(high)}; "


def steady_words(batch_means: Mapping[str, Any]) -> str:
    """Means with half of their intervals, and what they are of; or why there are none."""
    if batch_means["reason"] is not None:
        return f"no interval from this run alone: {batch_means['reason']}"
    means = {name: mean for name, mean in batch_means["means"].items() if mean}
    size = batch_means["requests"] // batch_means["batches"]
    return "; ".join(
        [
            ", ".join(_with_half_widths(means)),
            f"± is half of the 95% interval, by {batch_means['batches']} batches of {size:,} requests, from "
            f"{seconds(batch_means['start_s'])} to {seconds(batch_means['end_s'])}",
            *_doubts(means),
        ]
    )


def _with_half_widths(means: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for name, mean in means.items():
        if mean["value"] is None:
            continue
        half = (mean["high"] - mean["low"]) / 2
        if name in TIMES:
            yield f"{TIMES[name]} {seconds(mean['value'])} ±{seconds(half)}"
        elif name == "slo_attainment":
            yield f"SLO {percent(mean['value'])} ±{percent(half)}"
        else:
            yield f"{figures(mean['value'])} ±{figures(half)} output tokens/s"


def _doubts(means: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Which means need a longer run."""
    words = TIMES | OTHERS
    few = {
        words[name]: f"{mean['effective_requests']:.0f}"
        for name, mean in means.items()
        if mean["effective_requests"] is not None and mean["effective_requests"] < FEW_EFFECTIVE
    }
    none = [
        words[name]
        for name, mean in means.items()
        if mean["reason"] is not None and mean["reason"] != ALL_ALIKE
    ]
    if few:
        yield (
            f"too narrow for {', '.join(few)}: neighbouring requests are alike, and all of them tell as much "
            f"as {', '.join(few.values())} independent ones"
        )
    if none:
        yield f"the run is too short for {', '.join(none)}"
