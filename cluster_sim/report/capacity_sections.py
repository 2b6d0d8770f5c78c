"""Sections of a search for capacities: what every arm serves within the SLO, and what it is limited by."""

from collections.abc import Sequence

from matplotlib.axes import Axes

from cluster_sim.comparison import RATE_AXIS
from cluster_sim.report.answer import interval, place_words
from cluster_sim.report.arms import looks_of
from cluster_sim.report.capacity import LIMITED_BY, axis_words, bounds_words, capacity_words
from cluster_sim.report.figures import INK, Figure, figure, height_of_rows, name_rows
from cluster_sim.report.section import Section, Table
from cluster_sim.report.stored import Kind, Stored, Tree
from cluster_sim.report.words import NOTHING

DOT_IN, AROUND_IN = 0.26, 0.7  # height of a row of the figure, and of what stands around the rows


def capacities(stored: Stored) -> Sequence[Section]:
    """The capacity of every arm, its interval and its ratio to the baseline."""
    if stored.kind is not Kind.capacity:
        return []
    capacity = stored.summary["capacity"]
    name = axis_words(capacity["key"])
    unit = "requests/s" if capacity["key"] == RATE_AXIS else name
    rows = [
        [
            arm,
            *([place_words(entry["axes"])] if entry["axes"] else []),
            capacity_words(entry).replace("\n", ", "),
            bounds_words(entry),
            _ratio(stored, arm, place),
            ", ".join(LIMITED_BY[reason] for reason in entry["limited_by"]) or NOTHING,
        ]
        for arm, entries in capacity["arms"].items()
        for place, entry in enumerate(entries)
    ]
    has_axes = any(entry["axes"] for entries in capacity["arms"].values() for entry in entries)
    heads = ("Arm", *(["Point"] if has_axes else []), f"Capacity ({unit})", "95% interval")
    table = Table((*heads, f"Ratio to {stored.baseline}", "Limited by"), rows)
    words = [
        f"The highest {name} at which the run meets its SLO; limited by: what the next value of the grid, "
        f"{100 * (capacity['grid_ratio'] - 1):.1f}% above, fails by."
    ]
    drawn = _chart(stored, unit)
    return [Section("capacity", "Capacity", words, [drawn] if drawn else [], [table])]


def _chart(stored: Stored, label: str) -> Figure | None:
    """A dot and its interval for every arm; None where none is known."""
    looks = looks_of(stored)
    known = [
        (f"{arm} {place_words(entry['axes'])}".strip(), entry, looks[arm])
        for arm, entries in stored.summary["capacity"]["arms"].items()
        for entry in entries
        if entry["value"] is not None
    ]
    if not known:
        return None

    names = [name for name, _, _ in known]

    def draw(panels: Sequence[Axes]) -> None:
        (axes,) = panels
        for place, (_, entry, look) in enumerate(known):
            if entry["low"] is not None and entry["high"] is not None:
                axes.plot([entry["low"], entry["high"]], [place, place], color=look.colour, linewidth=3.0)
            axes.plot([entry["value"]], [place], marker="o", color=INK, linestyle="")
        name_rows(axes, names)
        axes.set_ylim(len(known) - 0.5, -0.5)
        axes.grid(visible=False, axis="y")
        axes.grid(visible=True, axis="x")
        axes.set_xlabel(label)

    alt = f"Highest load within the SLO ({label}) of every arm, with 95 % intervals."
    height_in = height_of_rows(names, DOT_IN) + AROUND_IN
    return figure("capacity", "Capacity of every arm, with 95 % intervals", alt, 1, draw, height_in)


def _ratio(stored: Stored, arm: str, place: int) -> str:
    entries: Sequence[Tree] = stored.summary["vs_baseline"].get(arm, [])
    ratio = entries[place]["capacity"] if place < len(entries) else None
    return NOTHING if ratio is None else f"{interval(ratio)}, {ratio['verdict']}"
