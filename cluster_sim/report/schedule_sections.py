"""Sections about batch sizes: which were visited, which draft length was in force there, which is best.

The histograms are those of the steps that were run; the best draft lengths are those of the step-time tables.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike, NDArray

from cluster_sim.report.figures import INK, MUTED, OTHERS, Figure, figure
from cluster_sim.report.margins import legend_above
from cluster_sim.report.points import busiest, where
from cluster_sim.report.recommended import recommended
from cluster_sim.report.section import Section, Table
from cluster_sim.report.stored import Kind, Stored, Tree
from cluster_sim.report.words import figures, percent

Ranges = Sequence[Sequence[int]]  # [first, last, K]
MOST_ROWS = 24  # of the histogram as a table
TABLES_SAY = "By the step-time tables decodes alone are so many times as fast as without a drafter:"


def of_run(stored: Stored) -> Sequence[Section]:
    """The batch sizes of one simulation."""
    size = stored.summary.get("batch_size", {})
    if stored.kind is not Kind.run or not size.get("histogram"):
        return []
    words = [
        f"{figures(size['mean'])} requests a step on average (p50 {figures(size['p50'])}, p99 "
        f"{figures(size['p99'])})."
    ]
    return [_section(words, size["histogram"], stored.summary.get("optimum"))]


def of_sweep(stored: Stored) -> Sequence[Section]:
    """The batch sizes of the recommended arm; where none is, of the last one that drafts."""
    if stored.kind is not Kind.sweep:
        return []
    entries, optima = busiest(stored), stored.summary.get("optima", {})
    arm = recommended(stored) or next(reversed([name for name in entries if name in optima]), None)
    if arm is None or arm not in entries:
        return []
    axes = entries[arm]["axes"]
    known = [one for one in optima.get(arm, []) if axes.items() >= one["axes"].items()]
    histogram = _histogram(stored, arm, axes, None)
    words = [f"{arm}, all seeds. {where(stored)}"]
    return [_section(words, histogram, known[0] if known else None)] if len(histogram) else []


def of_study(stored: Stored) -> Sequence[Section]:
    """The batch sizes of the recommended arm under the fresh seeds, and its schedule."""
    if stored.kind is not Kind.study:
        return []
    arm = stored.summary["verdict"]["recommended"]
    entries = busiest(stored)
    if arm is None or arm not in entries:
        return []
    (one,) = (one for one in stored.summary["contenders"] if one["arm"] == arm)
    histogram = _histogram(stored, arm, entries[arm]["axes"], set(stored.study["fresh_seeds"]))
    words = [f"{arm}, under the fresh seeds. {where(stored)}"]
    return [_section(words, histogram, {"draft_lengths": one["ranges"]})] if len(histogram) else []


def _section(words: Sequence[str], histogram: ArrayLike, optimum: Tree | None) -> Section:
    steps = {
        label: optimum[key]
        for key, label in (("draft_lengths", "in force"), ("schedule", "best by the tables"))
        if optimum is not None and optimum.get(key)
    }
    shown = []
    if optimum is not None and "speedup" in optimum:
        gains = [
            [batch, figures(gain), figures(optimum["best_speedup"][batch])]
            for batch, gain in optimum["speedup"].items()
        ]
        shown = [Table(("Batch size", "As configured", "Best schedule"), gains, TABLES_SAY)]
    data = [Table(("Draft length", "Batch sizes"), _range_rows(steps)), _binned(histogram)]
    title = "Batch sizes visited, and draft lengths"
    return Section("batches", title, words, [_chart(histogram, steps)], shown, data)


def _chart(histogram: ArrayLike, steps: Mapping[str, Ranges]) -> Figure:
    """Batch sizes of the steps, and above them draft lengths as steps."""
    counts = np.asarray(histogram, np.float64)

    def draw(panels: Sequence[Axes]) -> None:
        (axes,) = panels
        sizes = np.arange(len(counts))
        axes.fill_between(
            sizes, 100 * counts / counts.sum(), step="mid", color=MUTED, alpha=0.35, linewidth=0
        )
        axes.set(xlabel="Batch size (requests in a step)", ylabel="Share of the steps (%)")
        axes.set(ylim=(0, None), xlim=(0.5, max(2.0, len(counts) - 0.5)))
        if steps:
            _draw_steps(axes, steps)

    title = "Share of the steps at each batch size" + (", and the draft length there" if steps else "")
    return figure("batches", title, f"{title}.", 1, draw)


def _draw_steps(axes: Axes, steps: Mapping[str, Ranges]) -> None:
    """The draft lengths, on an axis of their own to the right."""
    twin: Any = axes.twinx()
    twin.grid(visible=False)
    styles = {"in force": (INK, "-", 2.6), "best by the tables": (OTHERS[1], "--", 1.4)}
    for label, ranges in steps.items():
        edges = [edge for first, last, _ in ranges for edge in (first - 0.5, last + 0.5)]
        heights = [length for _, _, length in ranges for _ in range(2)]
        colour, dash, width = styles[label]
        twin.plot(edges, heights, color=colour, linestyle=dash, linewidth=width, label=label)
    most = max(length for ranges in steps.values() for _, _, length in ranges)
    twin.set(ylim=(0, most + 1), ylabel="Draft length K (tokens)")
    twin.set_yticks(range(most + 1))
    twin.spines["right"].set_visible(True)
    legend_above([twin])


def _histogram(stored: Stored, arm: str, axes: Tree, seeds: set[int] | None) -> NDArray[np.float64]:
    """Steps by batch size of an arm at a point, all of the `seeds` together; empty where it is not kept."""
    kept = [
        row["batch_size.histogram"]
        for row in stored.rows
        if row["arm"] == arm
        and row.items() >= axes.items()
        and (seeds is None or row["seed"] in seeds)
        and row.get("batch_size.histogram")
    ]
    total = np.zeros(max(map(len, kept), default=0))
    for counts in kept:
        total[: len(counts)] += counts
    return total


def _range_rows(steps: Mapping[str, Ranges]) -> list[list[str]]:
    return [
        [f"{length} ({label})", str(first) if first == last else f"{first:,} to {last:,}"]
        for label, ranges in steps.items()
        for first, last, length in ranges
    ]


def _binned(histogram: ArrayLike) -> Table:
    """The histogram in a few bins of equal width."""
    counts = np.asarray(histogram, np.float64)
    width = -(-max(len(counts) - 1, 1) // MOST_ROWS)
    rows = [
        [
            str(first) if width == 1 else f"{first} to {first + width - 1}",
            percent(float(counts[first : first + width].sum() / counts.sum())),
        ]
        for first in range(1, len(counts), width)
    ]
    return Table(("Batch size", "Share of the steps"), rows)
