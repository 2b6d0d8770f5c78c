"""Figures of one simulation: who waited how long, the batches that were run, what was accepted, what it took."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from cluster_sim.report.figures import DRAFTS, INK, MUTED, OTHERS, Figure, colour_of_drafts, figure
from cluster_sim.report.stored import Tree
from cluster_sim.report.words import GIB

LATENCIES = {"ttft_s": ("TTFT (s)", 1.0), "tpot_s": ("TPOT (ms)", 1e3), "e2el_s": ("E2E (s)", 1.0)}
MOST_POINTS = 400  # of a curve


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


def batches(histogram: Sequence[int], optimum: Tree | None) -> Figure:
    """Batch sizes of the steps, and above them the draft length in force and the tables' best one."""

    def draw(panels: Sequence[Axes]) -> None:
        (axes,) = panels
        steps = np.asarray(histogram, np.float64)
        sizes = np.arange(len(steps))
        share = 100 * steps / max(steps.sum(), 1.0)
        axes.fill_between(sizes, share, step="mid", color=MUTED, alpha=0.35, linewidth=0.0)
        axes.set(xlabel="Batch size (requests in a step)", ylabel="Share of the steps (%)", ylim=(0, None))
        axes.set_xlim(0.5, max(2.0, len(steps) - 0.5))
        if optimum is None:
            return
        twin = axes.twinx()
        twin.grid(visible=False)
        for ranges, style, label in (
            (optimum["schedule"], {"color": MUTED, "linestyle": "--"}, "best by the tables"),
            (optimum["draft_lengths"], {"color": INK, "linestyle": "-"}, "in force"),
        ):
            edges = [edge for first, last, _ in ranges for edge in (first, last + 1)]
            heights = [length for _, _, length in ranges for _ in range(2)]
            twin.plot(edges, heights, label=label, **style)
        most = max(length for key in ("schedule", "draft_lengths") for _, _, length in optimum[key])
        twin.set(ylim=(0, most + 1), ylabel="Draft length K (tokens)")
        twin.set_yticks(range(most + 1))
        twin.spines["right"].set_visible(True)
        twin.legend(frameon=False, loc="upper right", fontsize=8.0)

    return figure(
        "batches",
        "Batch sizes visited, and the draft length at each",
        "Histogram of batch sizes with the draft length in force and the tables' best one as steps.",
        1,
        draw,
    )


def acceptance(positions: Mapping[str, Sequence[float]], colours: Mapping[str, str]) -> Figure:
    """Share of drafts accepted at each position, of those that had the position."""

    def draw(panels: Sequence[Axes]) -> None:
        (axes,) = panels
        for label, shares in positions.items():
            places = range(1, len(shares) + 1)
            axes.plot(
                places, [100 * share for share in shares], marker="o", color=colours[label], label=label
            )
        most = max(len(shares) for shares in positions.values())
        axes.set(ylim=(0, 100), xlabel="Position in the draft", ylabel="Accepted (%)", xlim=(0.7, most + 0.3))
        axes.set_xticks(range(1, most + 1))
        if len(positions) > 1:
            axes.legend(frameon=False, fontsize=8.0)

    alt = "Share of drafts accepted by position, of the drafts that had the position."
    return figure("acceptance", "Accepted by position", alt, 1, draw)


def chunks(histograms: Mapping[str, Sequence[int]], colours: Mapping[str, str]) -> Figure:
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
            axes.legend(frameon=False, fontsize=8.0)

    return figure("chunks", "Tokens per chunk", "Histogram of the tokens delivered together.", 1, draw)


def bars(name: str, title: str, unit: str, parts: Mapping[str, Mapping[str, float]]) -> Figure:
    """One stacked bar for each of `parts`: bar -> part -> size in `unit`."""

    def draw(panels: Sequence[Axes]) -> None:
        (axes,) = panels
        names = list(dict.fromkeys(part for sizes in parts.values() for part in sizes))
        left = np.zeros(len(parts))
        for place, part in enumerate(names):
            sizes = np.array([bar.get(part, 0.0) for bar in parts.values()])
            axes.barh(list(parts), sizes, left=left, color=(*OTHERS, *DRAFTS)[place], label=part, height=0.6)
            left += sizes
        axes.set_xlabel(unit)
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.legend(frameon=False, fontsize=8.0, ncols=3, loc="upper left", bbox_to_anchor=(0.0, -0.2))

    return figure(name, title, f"{title}: stacked bars in {unit}.", 1, draw)


def memory_parts(memory_bytes: Mapping[str, float]) -> dict[str, float]:
    """Part of a GPU's memory -> GiB, without those that show as nothing."""
    return {
        part.removesuffix("_bytes").replace("_", " "): size / GIB
        for part, size in memory_bytes.items()
        if part != "device_bytes" and size / GIB >= 0.05  # noqa: PLR2004  a tenth, rounded
    }


def colours_of(lengths: Sequence[int]) -> dict[str, str]:
    """Colours of draft lengths, by their label."""
    return {f"K={length}": colour_of_drafts(length) for length in lengths}
