"""The front of a study on the page: a dot with both intervals for every arm of the verdict."""

from collections.abc import Sequence

from matplotlib.axes import Axes

from cluster_sim.report.figures import INK, MUTED, OTHERS, Figure, figure
from cluster_sim.report.front import NO_FRONT, cells, names, sentences
from cluster_sim.report.objectives import objective_words
from cluster_sim.report.section import Section, Table
from cluster_sim.report.stored import Kind, Stored, Tree


def front(stored: Stored) -> Sequence[Section]:
    """The arms that trade one objective for another, where it was asked for."""
    found = stored.summary.get("front") if stored.kind is Kind.study else None
    if not found:
        return []
    if not found["points"]:
        return [Section("front", "The front", [NO_FRONT])]
    heads = ("Arm", *map(objective_words, names(stored.summary)), "Within the noise of")
    rows = [[*cells(stored.summary, point), point["shadow"] or "none"] for point in found["points"]]
    words = list(sentences(stored.summary))
    return [Section("front", "The front", words, [_chart(stored.summary)], [Table(heads, rows)])]


def _chart(summary: Tree) -> Figure:
    points = summary["front"]["points"]
    first, second = map(objective_words, names(summary))

    def draw(panels: Sequence[Axes]) -> None:
        (axes,) = panels
        for shadowed, colour, label in ((False, OTHERS[0], "clear of the noise"), (True, MUTED, "within it")):
            chosen = [point for point in points if (point["shadow"] is not None) is shadowed]
            for point in chosen:
                across, along = point["against"], point["value"]
                axes.plot([across["low"], across["high"]], [along["value"]] * 2, color=colour, linewidth=1.2)
                axes.plot([across["value"]] * 2, [along["low"], along["high"]], color=colour, linewidth=1.2)
            if chosen:
                ends = [(point["against"]["value"], point["value"]["value"]) for point in chosen]
                axes.plot(*zip(*ends, strict=True), marker="o", linestyle="", color=colour, label=label)
        ordered = sorted((point["against"]["value"], point["value"]["value"]) for point in points)
        axes.plot(*zip(*ordered, strict=True), color=INK, linewidth=0.6, zorder=0)
        axes.set(xlabel=f"{second} ({summary['front']['unit']})", ylabel=f"{first} ({summary['unit']})")
        axes.grid(visible=True, axis="x")
        axes.legend(frameon=False, fontsize=8.0)

    title = f"{first} against {second} under fresh seeds, with 95 % intervals"
    return figure("front", title, f"{title}.", 1, draw)
