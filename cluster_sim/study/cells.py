"""The simulations of an arm under one load and one seed: one, or those of a bisection for its capacity.

The capacity is that of bisection.py: the highest value of the grid that passes, 0 where its low end fails. It
lies below the next value, which fails: the capacity's end.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from cluster_sim.bisection import Bisection, grid, trial_at, with_value
from cluster_sim.config import SearchConfig
from cluster_sim.trial import Trial
from cluster_sim.trials import Row

CAPACITY = "capacity"  # of the row of a bisection, beside what a simulation has
CAPACITY_END = "capacity_end"  # the same; the capacity itself where not even the grid's high end fails
Find = Callable[[Trial], Row | None]  # its row; None: it has not ended


class Cell(Protocol):
    """What is simulated of an arm under a load and a seed."""

    load: int  # its number

    @property
    def seed(self) -> int:
        """Of all its simulations."""

    def missing(self, find: Find) -> list[Trial]:
        """Simulations that have not ended and that are needed next; none: the cell has ended."""

    def row(self) -> Row:
        """What an arm is judged by, once the cell has ended."""

    def trial(self) -> Trial:
        """The simulation that it is of; before the cell has ended, the first one."""


@dataclass
class One:
    """A single simulation."""

    load: int
    only: Trial
    _row: Row | None = None

    @property
    def seed(self) -> int:
        """Of the simulation."""
        return self.only.seed

    def missing(self, find: Find) -> list[Trial]:
        """The simulation, until it has ended."""
        self._row = find(self.only)
        return [self.only] if self._row is None else []

    def row(self) -> Row:
        """Of the simulation."""
        if self._row is None:
            raise ValueError("the simulation has not ended")
        return self._row

    def trial(self) -> Trial:
        """The simulation."""
        return self.only


@dataclass
class Bisected:
    """A bisection; numbers of its simulations are that of the first plus their step on the grid."""

    load: int
    bisection: Bisection
    search: SearchConfig

    @property
    def seed(self) -> int:
        """Of all its simulations."""
        return self.bisection.first.seed

    def missing(self, find: Find) -> list[Trial]:
        """Both ends of the grid, then the next halving of what is left."""
        one, last = self.bisection, len(grid(self.search)) - 1
        if not one.tried:
            rows = {step: find(self._at(step)) for step in (0, last)}
            absent = [self._at(step) for step, row in rows.items() if row is None]
            if absent:
                return absent
            for step, row in rows.items():
                one.told(step, _known(row))
        while one.is_open:
            step = one.next_step
            row = find(self._at(step))
            if row is None:
                return [self._at(step)]
            one.told(step, row)
        return []

    def row(self) -> Row:
        """That of the highest value that passed, or of the lowest, with the capacity and its end."""
        values, passed, failed = grid(self.search), self.bisection.passed, self.bisection.failed
        value = values[passed] if passed >= 0 else 0.0
        end = values[failed] if failed >= 0 else value
        return {**self.bisection.tried[max(passed, 0)], CAPACITY: value, CAPACITY_END: end}

    def trial(self) -> Trial:
        """The simulation of the row."""
        return self._at(max(self.bisection.passed, 0))

    def _at(self, step: int) -> Trial:
        one, value = self.bisection, grid(self.search)[step]
        return trial_at(one, one.first.number + step, self.search.key, value)


def cell_of(load: int, trial: Trial, search: SearchConfig | None) -> Cell:
    """The cell of a load and a seed whose simulation, without a search, is `trial`."""
    if search is None:
        return One(load, trial)
    first = replace(
        trial,
        point={**trial.point, search.key: search.low},
        config=with_value(trial.config, search.key, search.low),
    )
    return Bisected(load, Bisection(first, trial.point), search)


def size_of(search: SearchConfig | None) -> int:
    """How many simulations a cell may have, whichever it needs."""
    return 1 if search is None else len(grid(search))


def _known(row: Row | None) -> Row:
    if row is None:
        raise ValueError("the simulation has not ended")
    return row
