"""Figures as SVG: one palette, drawn once for a wide page and once for a narrow one, by matplotlib.

Text stays text, and neutral colours are CSS variables with the light colour as their fallback: in a page a
figure follows its light or dark scheme, and alone, as a file, it is light. The same data give the same bytes.
"""

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any, cast

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure as Canvas

from cluster_sim.report.margins import LABEL_POINTS, POINTS_PER_IN, TEXT_POINTS, place_panels

WIDE_IN, NARROW_IN = 7.2, 3.5  # inches of 100 CSS pixels: a laptop's column, and a phone's
PANEL_IN = 2.7  # height
LINE_POINTS = 9.5  # from one label beside a line's end to the next
ROW_LETTERS = 22  # of a line of a row's name

# Neutral colours in their light form. No data has them, so that they can be replaced by CSS variables.
INK, MUTED, RULE, PAPER = "#1b1c1d", "#5f6368", "#d5d7da", "#fffffe"
BLUE = "#0072b2"  # too dark for a dark page
VARIABLES = {INK: "--ink", MUTED: "--muted", RULE: "--rule", PAPER: "--paper", BLUE: "--blue"}

# Draft lengths: Okabe and Ito's colours (2008), told apart with any kind of colour vision; off is grey.
OFF = "#8c8c8c"
DRAFTS = ("#b3b3b3", "#56b4e9", "#cc79a7", BLUE, "#e69f00", "#d55e00", "#009e73", "#a6761d", "#7570b3")
SCHEDULE = INK
OTHERS = (BLUE, "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7570b3", "#a6761d")
# Parts of a whole, which are no draft lengths: steps of Crameri's batlow (2018), of rising lightness.
PARTS = ("#1c5460", "#3c6d56", "#687b3e", "#9d892b", "#d29343", "#f8a17b", "#fdb7bc", "#faccfa")

STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "cluster_sim",
    "font.family": "sans-serif",
    "font.size": TEXT_POINTS,
    "axes.titlesize": TEXT_POINTS,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "text.color": INK,
    "lines.linewidth": 1.8,
    "lines.markersize": 4.0,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
}
Draw = Callable[[Sequence[Axes]], None]  # fills the panels


@dataclass(frozen=True)
class End:
    """The right end of a line, and what stands beside it."""

    x: float
    y: float
    label: str
    colour: str


@dataclass(frozen=True)
class Figure:
    """What a page shows: the same figure for two widths, and what it shows, in words."""

    name: str  # of its file
    title: str
    alt: str
    wide: str  # SVG
    narrow: str


def figure(  # noqa: PLR0913, PLR0917  what a figure is made of
    name: str,
    title: str,
    alt: str,
    panels: int,
    draw: Draw,
    height_in: float = PANEL_IN,
    columns: int | None = None,
) -> Figure:
    """Draw `panels` of a height in `columns`, by default side by side, and one column where it is narrow."""
    columns = columns or panels
    rows = -(-panels // columns)
    wide = _drawn(draw, (rows, columns), (WIDE_IN, height_in * rows + 0.3), alt, panels)
    narrow = _drawn(draw, (panels, 1), (NARROW_IN, height_in * panels + 0.3), alt, panels)
    return Figure(name, title, alt, wide, narrow)


def colour_of_drafts(draft_length: int) -> str:
    """The colour of a draft length, the same in every figure; 0 is the light grey beside `off`."""
    return DRAFTS[min(draft_length, len(DRAFTS) - 1)]


def label_ends(panels: Sequence[tuple[Axes, Sequence[End]]]) -> None:
    """Write the labels of lines beside their right ends, moved apart where they would touch.

    Call it last, for all panels at once, with limits and scales set and room to the right (room_for_labels).
    """
    canvas = cast(Canvas, panels[0][0].figure)
    place_panels(canvas)
    for axes, ends in panels:
        axes.get_ylim()  # settles it
        _label(axes, ends)


def _label(axes: Axes, ends: Sequence[End]) -> None:
    heights = [float(axes.transData.transform((end.x, end.y))[1]) for end in ends]
    for end, height, apart in zip(ends, heights, _apart(heights, LINE_POINTS), strict=True):
        axes.annotate(
            end.label,
            (end.x, end.y),
            (5.0, apart - height),
            textcoords="offset points",
            va="center",
            fontsize=LABEL_POINTS,
            color=end.colour,
            annotation_clip=False,
        )


def name_rows(axes: Axes, names: Sequence[str]) -> None:
    """Name the rows of a panel, from 0 on; long names have several lines (height_of_rows)."""
    axes.set_yticks(range(len(names)), ["\n".join(lines_of(name)) for name in names])


def height_of_rows(names: Sequence[str], row_in: float) -> float:
    """Height of rows with these names, in inches, where a line takes `row_in`."""
    return row_in * sum(len(lines_of(name)) for name in names)


def lines_of(name: str) -> list[str]:
    """The lines of a row's name; a setting that is longer than a line is cut behind its `=`."""
    words = (word if len(word) <= ROW_LETTERS else word.replace("=", "= ") for word in name.split())
    return wrap(" ".join(words), ROW_LETTERS)


def room_for_labels(axes: Axes, values: Sequence[float], share: float) -> None:
    """Let the x axis hold `values` and, right of them, labels over `share` of its length."""
    low, high = min(values), max(values)
    if low == high:  # a point alone
        axes.set_xlim(low - 1.0, low + 1.0)
    elif axes.get_xscale() == "log":
        axes.set_xlim(low / 1.08, high * (high / low) ** (share / (1.0 - share)))
    else:
        axes.set_xlim(low - 0.02 * (high - low), high + (high - low) * share / (1.0 - share))


def _apart(heights: Sequence[float], least: float) -> list[float]:
    """`heights` moved as little as it takes to lie `least` apart, in their order.

    Neighbours that touch become a group that spreads around its mean (pool adjacent violators).
    """
    order = sorted(range(len(heights)), key=lambda place: heights[place])
    groups: list[tuple[list[int], float]] = []  # members from below, centre
    for place in order:
        members, centre = [place], heights[place]
        while groups and groups[-1][1] + least * (len(groups[-1][0]) + len(members)) / 2 > centre:
            below, _ = groups.pop()
            members = below + members
            centre = sum(heights[member] for member in members) / len(members)
        groups.append((members, centre))
    moved = [0.0] * len(heights)
    for members, centre in groups:
        for number, member in enumerate(members):
            moved[member] = centre + least * (number - (len(members) - 1) / 2)
    return moved


def _drawn(draw: Draw, shape: tuple[int, int], size_in: tuple[float, float], alt: str, number: int) -> str:
    with mpl.rc_context(cast(Any, STYLE)):
        canvas = Canvas(figsize=size_in, dpi=POINTS_PER_IN)  # a pixel is a point
        panels = canvas.subplots(*shape, squeeze=False).flat
        for unused in panels[number:]:
            unused.remove()
        draw(list(panels[:number]))
        place_panels(canvas)
        text = io.StringIO()
        writer = cast(Any, FigureCanvasSVG(canvas))
        writer.print_svg(text, metadata={"Date": None, "Creator": None})  # savefig draws twice
    return _for_a_page(text.getvalue(), alt)


def _for_a_page(svg: str, alt: str) -> str:
    """The <svg> element alone, with its words for those who do not see it, and its colours as variables."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*">', "<g>", svg)
    for colour, variable in VARIABLES.items():
        svg = svg.replace(colour, f"var({variable}, {colour})")
    svg = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font: \1px system-ui, sans-serif", svg)
    return re.sub(r"<svg ", f'<svg role="img" aria-label="{_quoted(alt)}" ', svg, count=1)


def _quoted(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
