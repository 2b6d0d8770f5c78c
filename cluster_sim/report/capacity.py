"""Capacities on the terminal: what every arm serves within the SLO, against the baseline, and its limit."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cluster_sim.bisection import AT_LEAST, BELOW
from cluster_sim.comparison import RATE_AXIS
from cluster_sim.report.crossover import MARKS, STYLES
from cluster_sim.report.words import NOTHING, figures

LIMITED_BY = {
    "ttft_s": "TTFT",
    "tpot_s": "TPOT",
    "e2el_s": "E2E",
    "attainment": "all limits together",
    "saturation": "saturation",
    "arrivals": "too few arrivals to tell",
}
LEGEND = (
    "+ more, - less, = tie (the 95% interval holds 1, or the ratio is within 1% of it), ? one seed, no "
    "interval; limited by: what the next higher value fails by, most seeds first"
)


def capacity_view(comparison: Mapping[str, Any], baseline: str, width: int) -> RenderableType:
    """The table of capacity.compare_capacities; narrower than `width` it loses the interval of the ratio."""
    del width  # the table wraps its last column
    capacity = comparison["capacity"]
    unit = "requests/s" if capacity["key"] == RATE_AXIS else capacity["key"]
    arms = capacity["arms"]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("arm", no_wrap=True)
    for axis in arms[baseline][0]["axes"]:
        table.add_column(axis, justify="right", no_wrap=True)
    for name in (unit, "95% interval", f"ratio to {baseline}"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("limited by")
    for arm, entries in arms.items():
        ratios = comparison["vs_baseline"].get(arm, [None] * len(entries))
        for entry, ratio in zip(entries, ratios, strict=True):
            table.add_row(arm, *(str(value) for value in entry["axes"].values()), *_cells(entry, ratio))
    title = f"capacity: the highest {_words(capacity['key'])} that meets the SLO"
    return Group(Text(title, style="bold"), table, Text(LEGEND, style="dim"))


def _words(key: str) -> str:
    return "request rate" if key == RATE_AXIS else key


def _cells(entry: Mapping[str, Any], ratio: Mapping[str, Any] | None) -> tuple[str | Text, ...]:
    limits = ", ".join(LIMITED_BY[reason] for reason in entry["limited_by"]) or NOTHING
    return _value(entry), _bounds(entry), _ratio(ratio and ratio["capacity"]), limits


def _value(entry: Mapping[str, Any]) -> str:
    """The capacity; of censored seeds what is known of it."""
    if entry["value"] is not None:
        return figures(entry["value"])
    seeds: Sequence[Mapping[str, Any]] = entry["seeds"]
    below = [seed for seed in seeds if seed["censored"] == BELOW]
    above = [seed for seed in seeds if seed["censored"] == AT_LEAST]
    words = [f"below {figures(below[0]['failed'])}"] if below else []
    words += [f"at least {figures(above[0]['passed'])}"] if above else []
    counted = [
        f"{text} ({len(each)}/{len(seeds)})" if len(each) < len(seeds) else text
        for text, each in zip(words, [each for each in (below, above) if each], strict=True)
    ]
    return ", ".join(counted)


def _bounds(entry: Mapping[str, Any]) -> str:
    if entry["low"] is None or entry["high"] is None:
        return NOTHING
    return f"{figures(entry['low'])} to {figures(entry['high'])}"


def _ratio(ratio: Mapping[str, Any] | None) -> Text:
    if ratio is None:
        return Text(NOTHING)
    bounds = "" if ratio["low"] is None else f" [{ratio['low']:.3f}, {ratio['high']:.3f}]"
    mark = MARKS[ratio["verdict"]]
    return Text(f"{ratio['ratio']:.3f}{bounds} {mark}", style=STYLES[ratio["verdict"]])
