"""Figures of a sweep along its traffic axis: ratios to the baseline, latencies, where the time goes."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, cast

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator

from cluster_sim.comparison import RATE_AXIS
from cluster_sim.report.answer import place_words
from cluster_sim.report.arms import Look, looks_of
from cluster_sim.report.figures import INK, MUTED, PAPER, End, Figure, figure, label_ends, room_for_labels
from cluster_sim.report.recommended import is_saturated
from cluster_sim.report.stored import Stored, Tree

RATIOS = {
    "output_throughput_tok_s": "Output throughput, ratio",
    "slo_goodput_rps": "SLO goodput, ratio",
    "tpot_s": "Mean TPOT, ratio",
}
LATENCIES = {  # path in the summary -> title, key of the SLO, unit
    ("ttft_s", "p99"): ("TTFT, p99 (s)", "ttft_s", 1.0),
    ("tpot_s", "mean"): ("TPOT, mean (ms)", "tpot_s", 1e3),
    ("e2el_s", "mean"): ("E2E, mean (s)", "e2el_s", 1.0),
}
TTFT = {"ttft_p99_s": "TTFT p99, ratio"}  # where a sweep asks for it
MOST_BESIDE = 3  # panels side by side
Curve = Sequence[tuple[Tree, tuple[float, float, float]]]  # entry, and value, low, high
CROWDED = 0.15  # half of an axis' values in so small a part of it: it is logarithmic


@dataclass(frozen=True)
class Slice:
    """The points of a sweep along its traffic axis, at one value of the others."""

    axis: str
    others: Tree
    arms: Mapping[str, Sequence[Tree]]  # arm -> entries of `arms`, in the order of the axis
    ratios: Mapping[str, Sequence[Tree]]  # arm -> entries of `vs_baseline`
    looks: Mapping[str, Look]
    baseline: str
    slo: Tree
    ratio_titles: Mapping[str, str]  # key of an entry of `ratios` -> title of its panel

    @property
    def label(self) -> str:
        """The axis in words."""
        return "Request rate (requests/s)" if self.axis == RATE_AXIS else self.axis

    @property
    def where(self) -> str:
        """The other axes, in words."""
        return f", {place_words(self.others)}" if self.others else ""

    @property
    def suffix(self) -> str:
        """The same, for a file's name."""
        return "".join(f"-{re.sub(r'[^0-9A-Za-z]+', '-', str(value))}" for value in self.others.values())


def slices_of(stored: Stored) -> Iterator[Slice]:
    """One for each combination of the other axes; none where no axis is of numbers."""
    summary = stored.summary
    axis = summary["crossover"]["axis"]
    if axis is None:
        return
    groups: dict[str, dict[str, Any]] = {}
    for entries in summary["arms"].values():
        for entry in entries:
            others = {name: value for name, value in entry["axes"].items() if name != axis}
            groups.setdefault(repr(others), others)
    for others in groups.values():
        yield Slice(
            axis,
            others,
            _along(summary["arms"], axis, others),
            _along(summary["vs_baseline"], axis, others),
            looks_of(stored),
            stored.baseline,
            stored.config["slo"],
            ratio_titles(stored),
        )


def ratio_titles(stored: Stored) -> dict[str, str]:
    """What is shown of the ratios to the baseline, with their titles."""
    return {**(TTFT if TTFT.keys() & set(stored.compared) else {}), **RATIOS}


def crossover(part: Slice) -> Figure:
    """Ratios to the baseline, with the bands of their intervals."""

    def draw(panels: Sequence[Axes]) -> None:
        ends: list[list[End]] = []
        for axes, (name, title) in zip(panels, part.ratio_titles.items(), strict=True):
            axes.axhline(1.0, color=INK, linewidth=1.0)
            curves = {
                arm: [(entry, _bounds(entry[name], "ratio")) for entry in entries if entry[name] is not None]
                for arm, entries in part.ratios.items()
            }
            ends.append(_lines(axes, part, curves))
            _finish(axes, part, title, ends[-1])
        label_ends(list(zip(panels, ends, strict=True)))

    times = "TTFT and TPOT" if TTFT.keys() <= part.ratio_titles.keys() else "TPOT"
    better = f"Above 1 is better for throughput and goodput, below 1 for {times}."
    alt = f"Ratio of every arm to {part.baseline} over {part.label}, with 95 % intervals. {better}"
    title = f"Ratio to {part.baseline} on the same arrivals, with 95 % intervals{part.where}. {better}"
    number = len(part.ratio_titles)
    columns = number if number <= MOST_BESIDE else 2
    return figure(f"crossover{part.suffix}", title, alt, number, draw, columns=columns)


def latency_curves(part: Slice) -> Figure:
    """Latencies of every arm; saturated points are hollow, the SLO is a line."""

    def draw(panels: Sequence[Axes]) -> None:
        ends: list[list[End]] = []
        for axes, ((kind, statistic), (title, limit, unit)) in zip(panels, LATENCIES.items(), strict=True):
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.yaxis.set_minor_locator(NullLocator())
            curves = {
                arm: [
                    (entry, _bounds(entry[kind][statistic], "value", unit))
                    for entry in entries
                    if entry[kind] and entry[kind][statistic]
                ]
                for arm, entries in part.arms.items()
            }
            ends.append(_lines(axes, part, curves))
            if part.slo[limit] is not None:
                _limit(axes, unit * part.slo[limit])
            _finish(axes, part, title, ends[-1])
        label_ends(list(zip(panels, ends, strict=True)))

    alt = f"TTFT p99, mean TPOT and mean end-to-end time of every arm over {part.label}."
    title = f"Latency of every arm, with 95 % intervals{part.where}"
    return figure(f"latency{part.suffix}", title, alt, len(LATENCIES), draw)


def _limit(axes: Axes, value: float) -> None:
    """A line at a limit of the SLO."""
    axes.axhline(value, color=INK, linewidth=1.0, linestyle=(0, (1, 2)))
    place = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
    axes.annotate("SLO", (0.01, value), (0, 3), fontsize=8.0, **cast(Any, place))


def _lines(axes: Axes, part: Slice, curves: Mapping[str, Curve]) -> list[End]:
    """A line with its band for each arm that has points; their ends."""
    return [_line(axes, part, arm, curve) for arm, curve in curves.items() if curve]


def _line(axes: Axes, part: Slice, arm: str, curve: Curve) -> End:
    """A line with its band; a point where most seeds are saturated is hollow. Its end."""
    look = part.looks[arm]
    x = [entry["axes"][part.axis] for entry, _ in curve]
    middle, low, high = zip(*(bounds for _, bounds in curve), strict=True)
    axes.plot(x, middle, color=look.colour, linestyle=look.dash, marker=look.marker)
    axes.fill_between(x, low, high, color=look.colour, alpha=0.18, linewidth=0.0)
    saturated = {entry["axes"][part.axis] for entry in part.arms[arm] if is_saturated(entry)}
    hollow = [(value, height) for value, height in zip(x, middle, strict=True) if value in saturated]
    if hollow:
        style: dict[str, Any] = {"marker": look.marker, "color": look.colour, "linestyle": ""}
        axes.plot(*zip(*hollow, strict=True), markerfacecolor=PAPER, **style)
    return End(x[-1], middle[-1], arm, look.colour)


def _finish(axes: Axes, part: Slice, title: str, ends: Sequence[End]) -> None:
    values = [entry["axes"][part.axis] for entries in part.arms.values() for entry in entries]
    if min(values) > 0 and median(values) - min(values) < CROWDED * (max(values) - min(values)):
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.minorticks_off()
    room_for_labels(
        axes, values, min(0.45, 0.08 + 0.022 * max(len(end.label) for end in ends)) if ends else 0.0
    )
    axes.set_title(title)
    axes.set_xlabel(part.label)
    axes.tick_params(color=MUTED)


def _along(tree: Mapping[str, Sequence[Tree]], axis: str, others: Tree) -> dict[str, list[Tree]]:
    return {
        arm: sorted(
            (entry for entry in entries if entry["axes"].items() >= others.items()),
            key=lambda entry: float(entry["axes"][axis]),
        )
        for arm, entries in tree.items()
    }


def _bounds(value: Mapping[str, Any], name: str, unit: float = 1.0) -> tuple[float, float, float]:
    """The value and its interval, in `unit`; from one seed there is none."""
    middle, low, high = value[name], value["low"], value["high"]
    return unit * middle, unit * (middle if low is None else low), unit * (middle if high is None else high)
