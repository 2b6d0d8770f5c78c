"""Figures of one simulation and of arms: latencies, what was accepted, what came together, what it took."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from cluster_sim.report.arms import Look
from cluster_sim.report.figures import (
    INK,
    MUTED,
    OTHERS,
    PAPER,
    PARTS,
    Figure,
    figure,
    height_of_rows,
    name_rows,
)
from cluster_sim.report.margins import legend_above
from cluster_sim.report.stored import Tree
from cluster_sim.report.words import GIB

LATENCIES = {"ttft_s": ("TTFT (s)", 1.0), "tpot_s": ("TPOT (ms)", 1e3), "e2el_s": ("E2E (s)", 1.0)}
MOST_POINTS = 400  # of a curve
BAR_IN, LEGEND_IN = 0.32, 0.9  # height of a bar and its gap, and of what stands around the bars


def latency_curves(requests: Mapping[str, NDArray[np.float64]], slo: Tree) -> Figure:
    """The share of requests within each latency; the SLO is a line."""

    def draw(panels: Sequence[Axes]) -> None:
        for axes, (name, (title, unit)) in zip(panels, LATENCIES.items(), strict=True):
            values = np.sort(requests[name][~np.isnan(requests[name])]) * unit
            if len(values):
                shares = np.linspace(0.0, 1.0, min(len(values), MOST_POINTS))
                axes.plot(np.quantile(values, shares), 100 * shares, color=OTHERS[0])
            if slo[name] is not None:
                axes.axvline(unit * slo[name], color=INK, linewidth=1.0, linestyle=(0, (1, 2)))
                axes.text(unit * slo[name], 2.0, " SLO", rotation=90, ha="right", va="bottom", fontsize=8.0)
            axes.set(ylim=(0, 100), xlabel=title, ylabel="Requests within it (%)" if name == "ttft_s" else "")
            axes.set_title(title.partition(" ")[0])
            axes.tick_params(color=MUTED)

    return figure(
        "latencies",
        "Share of the requests within a latency",
        "Cumulative shares of requests by TTFT, TPOT and E2E.",
        3,
        draw,
    )


def acceptance(positions: Mapping[str, Sequence[float]], looks: Mapping[str, Look]) -> Figure:
    """Share of drafts accepted at each position, of those that had the position."""

    def draw(panels: Sequence[Axes]) -> None:
        (axes,) = panels
        for label, shares in positions.items():
            look, places = looks[label], range(1, len(shares) + 1)
            heights = [100 * share for share in shares]
            axes.plot(
                places, heights, color=look.colour, linestyle=look.dash, marker=look.marker, label=label
            )
        most = max(len(shares) for shares in positions.values())
        axes.set(ylim=(0, 100), xlabel="Position in the draft", ylabel="Accepted (%)", xlim=(0.7, most + 0.3))
        axes.set_xticks(range(1, most + 1))
        if len(positions) > 1:
            legend_above(panels)

    alt = "Share of drafts accepted by position, of the drafts that had the position."
    return figure("acceptance", "Drafts accepted, of those that had the position", alt, 1, draw)


def chunks(histograms: Mapping[str, Sequence[float]], colours: Mapping[str, str]) -> Figure:
    """How many tokens come together: the stutter that a reader of the stream sees."""

    def draw(panels: Sequence[Axes]) -> None:
        (axes,) = panels
        width = 0.8 / len(histograms)
        for place, (label, counts) in enumerate(histograms.items()):
            shares = 100 * np.asarray(counts) / max(sum(counts), 1)
            at = np.arange(1, len(counts) + 1) + (place - (len(histograms) - 1) / 2) * width
            axes.bar(at, shares, width, color=colours[label], label=label)
        axes.set(xlabel="Tokens that come together", ylabel="Share of the chunks (%)")
        axes.set_xticks(range(1, 1 + max(len(counts) for counts in histograms.values())))
        if len(histograms) > 1:
            legend_above(panels)

    return figure("chunks", "Tokens per chunk", "Histogram of the tokens delivered together.", 1, draw)


def bars(name: str, title: str, unit: str, parts: Mapping[str, Mapping[str, float]]) -> Figure:
    """One stacked bar for each of `parts`: bar -> part -> size in `unit`."""

    def draw(panels: Sequence[Axes]) -> None:
        (axes,) = panels
        names = list(dict.fromkeys(part for sizes in parts.values() for part in sizes))
        rows, left = range(len(parts)), np.zeros(len(parts))
        for place, part in enumerate(names):
            sizes = np.array([bar.get(part, 0.0) for bar in parts.values()])
            colour = PARTS[round(place * (len(PARTS) - 1) / max(len(names) - 1, 1))]
            axes.barh(rows, sizes, 0.6, left, color=colour, label=part, edgecolor=PAPER, linewidth=0.6)
            left += sizes
        name_rows(axes, list(parts))
        axes.set_xlabel(unit)
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        legend_above(panels)

    height_in = height_of_rows(list(parts), BAR_IN) + BAR_IN + LEGEND_IN
    return figure(name, title, f"{title}: stacked bars, {unit}.", 1, draw, height_in)


def memory_parts(memory_bytes: Mapping[str, float]) -> dict[str, float]:
    """Part of a GPU's memory -> GiB, without those that show as nothing."""
    return {
        part.removesuffix("_bytes").replace("_", " "): size / GIB
        for part, size in memory_bytes.items()
        if part != "device_bytes" and size / GIB >= 0.05  # noqa: PLR2004  a tenth, rounded
    }
