"""Room for the labels around the panels of a figure, from the lengths of their words.

matplotlib's own layout measures every text several times over, which took half of a page's time, and measures
it in another font than the browser's. These are estimates of a wide font: a label is never cut.
"""

from collections.abc import Mapping, Sequence
from typing import cast

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure as Canvas

POINTS_PER_IN = 72.0
TEXT_POINTS, LABEL_POINTS = 9.0, 8.0  # of ticks, axes and titles; of legends and what stands in panels
LETTER_EM, WIDE_EM, LINE_EM = 0.64, 0.9, 1.25  # a digit of a wide font, a wide letter, and a line
WIDE_LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZmw%=+~")
TICK_POINTS = 7.0  # a tick's mark and its gap
GAP_POINTS = 4.0  # between ticks and the label of an axis
TITLE_POINTS, PLAIN_POINTS = 19.0, 5.0  # above a panel with a title, and without
RIGHT_POINTS = 11.0  # half of the last number below
ENTRY_POINTS, ENTRY_LINE_POINTS = 38.0, 14.0  # of a legend: what stands around its words, and its height


def place_panels(canvas: Canvas) -> None:
    """Lay out the panels, which are alike in size, with their scales and words set."""
    panels: dict[tuple[int, int], list[Axes]] = {}
    for axes in canvas.axes:
        spec = axes.get_subplotspec()
        if spec is not None:
            panels.setdefault((spec.rowspan.start, spec.colspan.start), []).append(axes)
    width, height = (POINTS_PER_IN * inches for inches in canvas.get_size_inches())
    height -= legend_points(canvas)
    around = {cell: (0.0, 0.0, _below(some), _above(some)) for cell, some in panels.items()}
    _position(canvas, panels, around, (width, height))  # how many ticks an axis has depends on its length
    for (row, column), some in panels.items():
        sides = [_beside(one.yaxis) if one.yaxis.get_ticks_position() == "right" else 0.0 for one in some]
        lefts = [_beside(one.yaxis) if one.yaxis.get_ticks_position() == "left" else 0.0 for one in some]
        around[row, column] = (max(lefts), max(RIGHT_POINTS, *sides), *around[row, column][2:])
    _position(canvas, panels, around, (width, height))
    for some in panels.values():
        for axes in some:
            _place_words(axes)


def legend_above(panels: Sequence[Axes]) -> None:
    """Name what is drawn in `panels`, above all panels, in as many columns as there is room for."""
    canvas = cast(Canvas, panels[0].figure)
    found = [axes.get_legend_handles_labels() for axes in panels]
    handles, words = (
        [one for some, _ in found for one in some],
        [str(one) for _, some in found for one in some],
    )
    canvas.legend(
        handles,
        words,
        frameon=False,
        fontsize=LABEL_POINTS,
        ncols=_columns(canvas, words),
        loc="upper left",
        bbox_to_anchor=(0.0, 1.0),
        borderaxespad=0.0,
    )


def legend_points(canvas: Canvas) -> float:
    """The height of the legends above the panels; 0: there is none."""
    entries = [[text.get_text() for text in legend.get_texts()] for legend in canvas.legends]
    return sum(ENTRY_LINE_POINTS * -(-len(words) // _columns(canvas, words)) for words in entries)


def _columns(canvas: Canvas, words: Sequence[str]) -> int:
    """Entries of a legend that stand beside each other."""
    entry = ENTRY_POINTS + LABEL_POINTS * max(map(_em, words))
    return max(1, int(POINTS_PER_IN * canvas.get_figwidth() / entry))


def _position(
    canvas: Canvas,
    panels: Mapping[tuple[int, int], Sequence[Axes]],
    around: Mapping[tuple[int, int], tuple[float, float, float, float]],
    size: tuple[float, float],
) -> None:
    """Give the panels what is left of `size` beside left, right, below and above of each column and row."""
    height = POINTS_PER_IN * canvas.get_figheight()
    rows, columns = (1 + max(cell[axis] for cell in panels) for axis in (0, 1))

    def most(side: int, axis: int, number: int) -> float:
        return max(around[cell][side] for cell in panels if cell[axis] == number)

    wide = (size[0] - sum(most(0, 1, column) + most(1, 1, column) for column in range(columns))) / columns
    high = (size[1] - sum(most(2, 0, row) + most(3, 0, row) for row in range(rows))) / rows
    top = size[1]
    for row in range(rows):
        top -= most(3, 0, row)
        left = 0.0
        for column in range(columns):
            left += most(0, 1, column)
            for axes in panels.get((row, column), []):
                axes.set_position((left / size[0], (top - high) / height, wide / size[0], high / height))
            left += wide + most(1, 1, column)
        top -= high + most(2, 0, row)


def _below(some: Sequence[Axes]) -> float:
    ticks = TICK_POINTS + LINE_EM * TEXT_POINTS
    label = GAP_POINTS + LINE_EM * TEXT_POINTS if any(axes.get_xlabel() for axes in some) else 0.0
    return ticks + label


def _above(some: Sequence[Axes]) -> float:
    return TITLE_POINTS if any(axes.get_title(loc="left") for axes in some) else PLAIN_POINTS


def _beside(axis: Axis) -> float:
    """The width of an axis' numbers and its label."""
    label = GAP_POINTS + LINE_EM * TEXT_POINTS if axis.get_label_text() else 0.0
    return _ticks_points(axis) + label


def _ticks_points(axis: Axis) -> float:
    """The width of a vertical axis' numbers, with their marks."""
    low, high = sorted(axis.get_view_interval())
    shown = [at for at in axis.get_majorticklocs() if low <= at <= high]
    lines = [line for words in axis.get_major_formatter().format_ticks(shown) for line in words.split("\n")]
    return TICK_POINTS + TEXT_POINTS * max(map(_em, lines), default=0.0)


def _em(words: str) -> float:
    """The width of a line of words, in heights of its letters."""
    wide = sum(letter in WIDE_LETTERS for letter in words)
    return LETTER_EM * (len(words) - wide) + WIDE_EM * wide


def _place_words(axes: Axes) -> None:
    """Put the labels of the axes and the title where room is kept for them."""
    canvas = cast(Canvas, axes.figure)
    box, (width, height) = axes.get_position(), POINTS_PER_IN * canvas.get_size_inches()
    axes.xaxis.set_label_coords(0.5, -(TICK_POINTS + LINE_EM * TEXT_POINTS + 1.0) / (box.height * height))
    beside = (_ticks_points(axes.yaxis) + GAP_POINTS) / (box.width * width)
    is_right = axes.yaxis.get_ticks_position() == "right"
    axes.yaxis.set_label_coords(1.0 + beside if is_right else -beside, 0.5)
    axes.set_title(axes.get_title(loc="left"), y=1.0)
