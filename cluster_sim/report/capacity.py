"""Capacities on the terminal: what every arm serves within the SLO, against the baseline, and its limit."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from cluster_sim.bisection import AT_LEAST, BELOW
from cluster_sim.comparison import RATE_AXIS
from cluster_sim.report.crossover import MARKS, STYLES, Cell
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
    "+ more, - less, = tie (the 95% interval holds 1, or the ratio is within 1% of it), ? no interval: "
    "one seed, or a baseline too uncertain; limited by: what the next higher value fails by, most seeds first"
)


def capacity_view(comparison: Mapping[str, Any], baseline: str, width: int) -> RenderableType:
    """The table of capacity.compare_capacities, with intervals of ratios as `width` has room for."""
    tables = [_table(comparison, baseline, cell) for cell in (_with_bounds, _with_half_width, _bare)]
    console = Console(width=10_000)
    fitting = (table for table in tables if console.measure(table).maximum <= width)
    title = f"capacity: the highest {axis_words(comparison['capacity']['key'])} that meets the SLO"
    return Group(Text(title, style="bold"), next(fitting, tables[-1]), Text(LEGEND, style="dim"))


def _table(comparison: Mapping[str, Any], baseline: str, cell: Cell) -> Table:
    key, arms = comparison["capacity"]["key"], comparison["capacity"]["arms"]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("arm", no_wrap=True)
    for axis in arms[baseline][0]["axes"]:
        table.add_column(axis, justify="right", no_wrap=True)
    for name in ("requests/s" if key == RATE_AXIS else key, "95% interval", f"ratio to {baseline}"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("limited by")
    for arm, entries in arms.items():
        ratios = comparison["vs_baseline"].get(arm, [{"capacity": None}] * len(entries))
        for entry, ratio in zip(entries, ratios, strict=True):
            limits = ", ".join(LIMITED_BY[reason] for reason in entry["limited_by"]) or NOTHING
            axes = (str(value) for value in entry["axes"].values())
            table.add_row(
                arm,
                *axes,
                capacity_words(entry),
                bounds_words(entry),
                _ratio(ratio["capacity"], cell),
                limits,
            )
    return table


def axis_words(key: str) -> str:
    """The key of a search in words."""
    return "request rate" if key == RATE_AXIS else key


def capacity_words(entry: Mapping[str, Any]) -> str:
    """The capacity; where seeds are censored, what is known of them, and of how many."""
    if entry["value"] is not None:
        return figures(entry["value"])
    seeds: Sequence[Mapping[str, Any]] = entry["seeds"]
    lines = []
    for censored, words, end in ((BELOW, "below", "failed"), (AT_LEAST, "at least", "passed")):
        found = [seed[end] for seed in seeds if seed["censored"] == censored]
        if found:
            count = "" if len(found) == len(seeds) else f" ({len(found)} of {len(seeds)} seeds)"
            lines.append(f"{words} {figures(found[0])}{count}")
    return "\n".join(lines)


def bounds_words(entry: Mapping[str, Any]) -> str:
    """Its interval."""
    if entry["low"] is None or entry["high"] is None:
        return NOTHING
    return f"{figures(entry['low'])} to {figures(entry['high'])}"


def _ratio(ratio: Mapping[str, Any] | None, cell: Cell) -> Text:
    if ratio is None:
        return Text(NOTHING)
    words = _bare(ratio) if ratio["low"] is None or ratio["high"] is None else cell(ratio)
    return Text(f"{words} {MARKS[ratio['verdict']]}", style=STYLES[ratio["verdict"]])


def _with_bounds(ratio: Mapping[str, Any]) -> str:
    return f"{ratio['ratio']:.3f} [{ratio['low']:.3f}, {ratio['high']:.3f}]"


def _with_half_width(ratio: Mapping[str, Any]) -> str:
    return f"{ratio['ratio']:.2f} ±{(ratio['high'] - ratio['low']) / 2:.2f}"


def _bare(ratio: Mapping[str, Any]) -> str:
    return f"{ratio['ratio']:.2f}"
