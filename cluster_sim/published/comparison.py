"""`validate --published`: speed-ups that others measured, beside what this tool's tables say of them.

A row is one setup with one drafter; its values are by load (batch size, or requests/s) and draft length K.
What was measured (tokens/s, TPOT) is turned into a speed-up over the row's reference: no drafter, or another
draft length where the source has no run without. Predicted is

    S(B, K) = AL(K) / t(B, K) * t(B, off)

from the step times of the engine's own rules (decode_time.py) where the load is a batch size, and the ratio
of mean TPOTs of two simulations on the same arrivals where it is a rate. AL is not fitted to a row's
speed-ups, except where its `acceptance` says that it was read off.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cluster_sim.files import write_json
from cluster_sim.optimum import NEAR
from cluster_sim.published.prediction import predicted
from cluster_sim.published.rows import OFF, Ends, Row, measured_speedups, rows

Tell = Callable[[int, int], None]  # (rows done, all rows)


@dataclass(frozen=True)
class Point:
    """One value. A measured range has two ends; its error counts from the nearer one."""

    row: Row
    load: int
    drafts: int
    measured: Ends
    predicted: float

    @property
    def error_percent(self) -> float:
        """0 inside a range."""
        low, high = self.measured
        nearest = min(max(self.predicted, low), high)
        return 100.0 * (self.predicted / nearest - 1.0)


@dataclass(frozen=True)
class Choice:
    """Draft lengths that pay most at one load, and what the predicted one would have cost."""

    load: int
    measured: int
    predicted: int
    regret_percent: float  # of the measured speed-up


@dataclass(frozen=True)
class Comparison:
    """One row, compared."""

    row: Row
    points: tuple[Point, ...]
    choices: tuple[Choice, ...]

    @property
    def worst_percent(self) -> float:
        """The largest error in size."""
        return max(abs(point.error_percent) for point in self.points)

    @property
    def most_regret_percent(self) -> float | None:
        """The largest regret over loads; None where there is nothing to choose."""
        return max((choice.regret_percent for choice in self.choices), default=None)

    @property
    def holds(self) -> bool:
        """Whether the row says that it holds; the tests hold it to that."""
        return self.row.tolerance_percent is not None


def compare(tell: Tell | None = None) -> list[Comparison]:
    """All rows; `tell` hears how many are done.

    Raises:
        UserError: a setup that this tool cannot configure or time.
    """
    found: list[Comparison] = []
    for row in rows():
        found.append(compared(row))
        if tell is not None:
            tell(len(found), len(rows()))
    return found


def compared(row: Row) -> Comparison:
    """One row, predicted and compared.

    Raises:
        UserError: as `compare`.
    """
    here, measured = predicted(row), measured_speedups(row)
    points = tuple(
        Point(row, load, drafts, ends, here[load][drafts])
        for load, by_length in measured.items()
        for drafts, ends in by_length.items()
    )
    return Comparison(row, points, _choices(row, measured, here))


def median_error_percent(comparisons: Sequence[Comparison]) -> float:
    """Median of the absolute error over all values."""
    return float(np.median([abs(point.error_percent) for each in comparisons for point in each.points]))


def independent(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Rows that test something: measurements that did not go into their own prediction."""
    return [each for each in comparisons if each.row.is_independent]


def as_dict(comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """What --json writes."""
    return {
        "median_absolute_error_percent": median_error_percent(comparisons),
        "median_absolute_error_percent_of_independent_rows": median_error_percent(independent(comparisons)),
        "rows": [_as_dict(each) for each in comparisons],
    }


def write(comparisons: Sequence[Comparison], file: Path) -> None:
    """Write the comparisons as JSON.

    Raises:
        UserError: the file cannot be written.
    """
    write_json(file, as_dict(comparisons))


def _choices(
    row: Row, measured: Mapping[int, Mapping[int, Ends]], speedups: Mapping[int, Mapping[int, float]]
) -> tuple[Choice, ...]:
    """Where there are several draft lengths: of those within NEAR of the best predicted, the shortest."""
    if row.quantity == "last_batch_size":
        return ()
    found = []
    for load, by_length in measured.items():
        if len({*by_length, row.reference} - {OFF}) == 1:
            continue
        here, there = dict(speedups[load]), {k: high for k, (_, high) in by_length.items()}
        if row.reference != OFF:
            here[row.reference] = there[row.reference] = 1.0
        near = (1.0 - NEAR) * max(here[k] for k in there)
        chosen = min(k for k in there if here[k] >= near)
        best = max(there, key=there.__getitem__)
        found.append(Choice(load, best, chosen, 100.0 * (1.0 - there[chosen] / there[best])))
    return tuple(found)


def _as_dict(comparison: Comparison) -> dict[str, Any]:
    row = comparison.row
    facts = (
        "id",
        "what",
        "source",
        "engine",
        "acceptance",
        "load",
        "quantity",
        "reference",
        "is_independent",
        "explanation",
    )
    return {
        **{name: getattr(row, name) for name in facts},
        "overrides": list(row.overrides),
        "holds": comparison.holds,
        "tolerance_percent": row.tolerance_percent,
        "values": [
            {
                row.load: point.load,
                "draft_length": point.drafts,
                "measured": point.measured[0] if len(set(point.measured)) == 1 else list(point.measured),
                "predicted": point.predicted,
                "error_percent": point.error_percent,
            }
            for point in comparison.points
        ],
        "best_draft_lengths": [vars(choice) for choice in comparison.choices],
    }
