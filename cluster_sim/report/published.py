"""Published speed-ups beside predicted ones on the terminal: a line a row, and why those fail that do."""

from collections.abc import Sequence

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from cluster_sim.published.comparison import Comparison, independent, median_error_percent
from cluster_sim.published.rows import Row
from cluster_sim.report.words import NOTHING, figures

WIDE = 120  # columns from which there is room for the setup of a row


def published_view(comparisons: Sequence[Comparison]) -> RenderableType:
    """All rows, the median error, and the explanations of rows that do not hold."""
    return Group(_Rows(comparisons), *_summary(comparisons))


class _Rows:
    """The table, as wide as there is room."""

    def __init__(self, comparisons: Sequence[Comparison]) -> None:
        self._comparisons = comparisons

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        is_wide = options.max_width >= WIDE
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title="speed-up, published and predicted")
        table.add_column("row", no_wrap=True)
        if is_wide:
            table.add_column("setup", ratio=1)
        for column in ("n", "published", "predicted", "error"):
            table.add_column(column, justify="right", no_wrap=True)
        table.add_column("best K", justify="right", no_wrap=True)
        table.add_column("holds", no_wrap=True)
        for each in self._comparisons:
            setup = [each.row.what] if is_wide else []
            table.add_row(each.row.id, *setup, *_cells(each), style="" if each.holds else "yellow")
        yield table


def _cells(comparison: Comparison) -> list[str]:
    points, row = comparison.points, comparison.row
    worst = max(points, key=lambda point: abs(point.error_percent)).error_percent
    regret = comparison.most_regret_percent
    return [
        str(len(points)),
        _range([end for point in points for end in point.measured]),
        _range([point.predicted for point in points]),
        f"{worst:+.1f}%",
        NOTHING if regret is None else f"-{regret:.1f}%",
        _held(row),
    ]


def _held(row: Row) -> str:
    if row.tolerance_percent is None:
        return "no"
    return f"{row.tolerance_percent:g}%" if row.is_independent else f"({row.tolerance_percent:g}%)"


def _range(values: Sequence[float]) -> str:
    low, high = figures(min(values)), figures(max(values))
    return low if low == high else f"{low}-{high}"


def _summary(comparisons: Sequence[Comparison]) -> list[Text]:
    tests = independent(comparisons)
    of_all, of_tests = median_error_percent(comparisons), median_error_percent(tests)
    number, in_tests = (sum(len(each.points) for each in some) for some in (comparisons, tests))
    holding = sum(each.holds for each in tests)
    lines = [
        Text(
            f"median absolute error {of_all:.1f}% over {number} values; {of_tests:.1f}% over the {in_tests} "
            f"of independent rows, of which {holding} of {len(tests)} hold",
            style="bold",
        ),
        Text(
            "error: the largest of the row. best K: what the draft length predicted best loses of the "
            "measured best. holds: within; (in brackets: not independent). A1.6 and A1.11 are batch sizes. "
            "Sources: conf/published_speedups.yaml",
            style="dim",
        ),
    ]
    failing = [each.row for each in comparisons if not each.holds]
    return lines + [Text(f"{row.id}: {row.explanation}", style="yellow") for row in failing]
