"""Two results side by side: the same arm at the same point in both, and their ratio.

Where both served the same arrivals (the digests of their workloads are equal) the seeds are paired and the
ratio has Fieller's interval; else there is none, since nothing says which seed belongs to which.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from cluster_sim.comparison import verdict
from cluster_sim.errors import UserError
from cluster_sim.report.answer import place_words
from cluster_sim.report.console import width
from cluster_sim.report.crossover import MARKS
from cluster_sim.report.stored import Kind, Stored, read_results
from cluster_sim.report.terminal import to_text
from cluster_sim.report.words import NOTHING, figures, seconds
from cluster_sim.statistics import ratio_interval
from cluster_sim.trials import Row

COMPARED = {  # key of a trial's row -> heading, is a time, more of it is better
    "ttft_s.p99": ("TTFT p99", True, False),
    "tpot_s.mean": ("TPOT mean", True, False),
    "e2el_s.mean": ("E2E mean", True, False),
    "output_throughput_tok_s": ("output tokens/s", False, True),
    "slo_goodput_rps": ("good requests/s", False, True),
}
Place = tuple[str, str]  # arm, point
PAIRED = "Same arrivals in both: ratios are paired by seed; + better, - worse, = tie, ? no bounded interval."
UNPAIRED = "Other arrivals in each: ratios have no interval, and differences may be chance."


@dataclass(frozen=True)
class Line:
    """A number of both at a place."""

    place: Place
    heading: str
    first: str
    second: str
    ratio: str  # of the second to the first, with its interval and its verdict


@dataclass(frozen=True)
class Pair:
    """Two results and what they have in common."""

    first: Stored
    second: Stored
    is_paired: bool
    lines: Sequence[Line]

    @property
    def words(self) -> str:
        """What the ratios are."""
        return PAIRED if self.is_paired else UNPAIRED


def read_pair(first: Path, second: Path) -> Pair:
    """Both results, compared.

    Raises:
        UserError: one has no results, or they have nothing in common.
    """
    one, other = read_results(first), read_results(second)
    mine, theirs = _rows_by_place(one), _rows_by_place(other)
    is_paired = _workloads(one) == _workloads(other)
    shared = [place for place in mine if place in theirs]
    if not shared:
        remedy = "Compare runs, or sweeps with an arm and a point in common."
        raise UserError(
            "two results are compared where they share an arm at a point", "none", str(second), remedy
        )
    lines = [line for place in shared for line in _lines(place, mine[place], theirs[place], is_paired)]
    return Pair(one, other, is_paired, lines)


def side_by_side(first: Path, second: Path) -> str:
    """The table, as wide as the terminal.

    Raises:
        UserError: one has no results, or they have nothing in common.
    """
    pair = read_pair(first, second)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("", overflow="fold")
    for name in ("A", "B", "B / A"):
        table.add_column(name, justify="right", no_wrap=True)
    for place, lines in itertools.groupby(pair.lines, lambda line: line.place):
        if any(place):
            table.add_row(" at ".join(filter(None, place)))
        for line in lines:
            table.add_row(f"  {line.heading}", line.first, line.second, line.ratio)
    heads = [Text(f"{name}: {directory}") for name, directory in (("A", first), ("B", second))]
    return to_text(Group(*heads, table, Text(pair.words, style="dim")), width(), colours=False).rstrip("\n")


def _rows_by_place(stored: Stored) -> dict[Place, dict[int, Row]]:
    """(arm, point) -> seed -> row; a single simulation's arm has no name."""
    axes = list((stored.study or stored.sweep).get("axes", {}))
    found: dict[Place, dict[int, Row]] = {}
    for row in stored.rows:
        point = place_words({axis: row[axis] for axis in axes})
        arm = "" if stored.kind is Kind.run else str(row["arm"])
        found.setdefault((arm, point), {})[row["seed"]] = row
    return found


def _workloads(stored: Stored) -> Any:
    """The digest of what arrives, by whichever name the manifest has it."""
    digests: Mapping[str, str] = stored.manifest["digests"]
    return digests.get("workload", digests.get("workloads"))


def _lines(
    place: Place, first: Mapping[int, Row], second: Mapping[int, Row], is_paired: bool
) -> Iterator[Line]:
    seeds = [sorted(first.keys() & second.keys())] * 2 if is_paired else [sorted(first), sorted(second)]
    for key, (heading, is_time, more_is_better) in COMPARED.items():
        values = [_values(rows, of, key) for rows, of in zip((first, second), seeds, strict=True)]
        if not all(values):
            continue
        means = [sum(each) / len(each) for each in values]
        one, other = (seconds(mean) if is_time else figures(mean) for mean in means)
        yield Line(place, heading, one, other, _ratio(values, means, is_paired, more_is_better))


def _values(rows: Mapping[int, Row], seeds: Sequence[int], key: str) -> list[float]:
    """Of each seed; none at all where one has none."""
    values = [rows[seed].get(key) for seed in seeds]
    return [] if None in values else [float(value) for value in values if value is not None]


def _ratio(
    values: Sequence[Sequence[float]], means: Sequence[float], is_paired: bool, more_is_better: bool
) -> str:
    if means[0] <= 0.0:
        return NOTHING
    ratio = f"{means[1] / means[0]:.3f}"
    if not is_paired:
        return ratio
    interval = ratio_interval(values[1], values[0])
    mark = MARKS[verdict(interval, more_is_better)]
    return f"{ratio} {mark}" if mark == "?" else f"{ratio} [{interval.low:.3f}, {interval.high:.3f}] {mark}"
