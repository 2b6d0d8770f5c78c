"""A calibration on the terminal: what was found, how sure, from what, and what it misses."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cluster_sim.calibrate.acceptance import Row
from cluster_sim.calibrate.calibration import Calibration
from cluster_sim.calibrate.parts import HOST
from cluster_sim.calibrate.timing import Fit
from cluster_sim.report.words import NOTHING, seconds
from cluster_sim.statistics import Interval

MOST_SHOWN = 12  # parts with a line of their own


def calibration_view(found: Calibration) -> RenderableType:
    """Values with their intervals, and residuals."""
    return Group(
        Text(found.words, style="bold"),
        _values(found),
        *[_held_out(row) for row in found.rows if row.held_out],
        *([_residuals(found.fit)] if found.fit is not None else []),
        *[Text(f"note: {line}", style="yellow") for line in found.notes],
    )


def _values(found: Calibration) -> Table:
    table = _table("", "value", "95 % interval", "from")
    for row in found.rows:
        about = f"{row.counts.drafts:,} drafts"
        table.add_row(f"acceptance length, K={row.draft_length}", *_lengths(row.acceptance_length), about)
        for position, (marginal, conditional) in enumerate(zip(row.marginals, row.conditionals, strict=True)):
            table.add_row(f"  position {position} accepted", *_shares(marginal), about)
            if position:
                accepted = f"{row.counts.accepted_at[position - 1]:,} drafts"
                table.add_row("    if those before were", *_shares(conditional), accepted)
    if found.fit is not None:
        about = f"mean {' and '.join(found.fit.metrics)}"
        for name, value in found.fit.values.items():
            table.add_row(name, *_of_unit(name, value), about)
    return table


def _held_out(row: Row) -> RenderableType:
    """How well the other parts say each part's acceptance length."""
    errors = [one.error_percent for one in row.held_out]
    mean = sum(map(abs, errors)) / len(errors)
    title = f"K={row.draft_length}: acceptance length by the other {len(errors) - 1}, mean error {mean:.2f}%"
    if len(errors) > MOST_SHOWN:
        return Text(title)
    table = _table("run", "measured", "by the others", "error")
    names = _short({one.place for one in row.held_out})
    for one in row.held_out:
        name, error = names[one.place], f"{one.error_percent:+.2f}%"
        table.add_row(name, f"{one.measured:.3f}", f"{one.predicted:.3f}", error)
    return Group(Text(title), table)


def _residuals(fit: Fit) -> RenderableType:
    table = _table("run", "mean", "measured", "before", "fitted", "held out")
    place, names = "", _short({one.place for one in fit.residuals})
    for one in fit.residuals:
        held_out = NOTHING if one.held_out_percent is None else f"{one.held_out_percent:+.2f}%"
        errors = f"{one.before_percent:+.1f}%", f"{one.error_percent:+.2f}%", held_out
        name = "" if one.place == place else names[one.place]
        table.add_row(name, one.metric.upper(), seconds(one.measured_s), *errors)
        place = one.place
    unseen = [abs(one.held_out_percent) for one in fit.residuals if one.held_out_percent is not None]
    mean = f", {sum(unseen) / len(unseen):.2f}% on runs it has not seen" if unseen else ""
    return Group(Text(f"errors of the simulated means{mean}"), table)


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left")
    return table


def _lengths(value: Interval) -> tuple[str, str]:
    return f"{value.value:.3f}", f"{value.low:.3f} to {value.high:.3f}"


def _shares(value: Interval) -> tuple[str, str]:
    return f"{value.value:.4f}", f"{value.low:.4f} to {value.high:.4f}"


def _of_unit(name: str, value: Interval) -> tuple[str, str]:
    if name == HOST:
        return seconds(value.value), f"{seconds(value.low)} to {seconds(value.high)}"
    return f"x {value.value:.4f}", f"{value.low:.4f} to {value.high:.4f}"


def _short(places: Collection[str]) -> Mapping[str, str]:
    """Of each place the fewest last parts of its path that no other one ends in."""
    ends = {place: _ends(place.split("/")) for place in places}
    number = Counter(end for of_one in ends.values() for end in of_one)
    return {place: next((end for end in of_one if number[end] == 1), place) for place, of_one in ends.items()}


def _ends(parts: Sequence[str]) -> list[str]:
    """The last part, the last two, and so on."""
    return ["/".join(parts[-count:]) for count in range(1, len(parts) + 1)]
