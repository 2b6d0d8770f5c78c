"""Trials side by side, in a window of fixed width: trial n + W is asked exactly when trial n has been told.

Trials are told in their order, so what a trial is asked on does not depend on how many work or how fast: one
worker and a hundred walk the same path. A slow trial holds nobody up until W - 1 others behind it are done.

A trial simulates its first seed at every load, and the other seeds if it is not hopeless by then: if its
value is not below `stop_below` of what the best trial had under the same seed, on the same arrivals, when
this one was asked. Where a front is searched, it is hopeless if one trial of the front is as far ahead in
both objectives. What has been simulated before, by another trial or an earlier run, is not again.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from cluster_sim.config import StudyConfig
from cluster_sim.executors import Executor
from cluster_sim.study.arms import Arm, Arms
from cluster_sim.study.cells import Cell
from cluster_sim.study.objective import Score, Task, gains, score_of
from cluster_sim.study.search import Asked, Search
from cluster_sim.trial import Ended, Trial, run_trial
from cluster_sim.trials import Row, TrialWriter

Report = Callable[[int, int], None]  # (told, all)


@dataclass
class Ledger:
    """The rows of all simulations, kept and under way."""

    writer: TrialWriter
    ended: list[Ended] = field(default_factory=list)  # in this process's life
    _under_way: set[int] = field(default_factory=set)

    def missing(self, trials: Sequence[Trial]) -> list[Trial]:
        """Those neither kept nor under way; from now on they are under way."""
        found = [trial for trial in trials if not self.knows(trial) and trial.number not in self._under_way]
        self._under_way.update(trial.number for trial in found)
        return found

    def knows(self, trial: Trial) -> bool:
        """Whether its row is kept."""
        return self.find(trial) is not None

    def find(self, trial: Trial) -> Row | None:
        """Its row, if it is kept."""
        row = self.writer.finished.get(trial.number)
        return row if row is not None and row["arm"] == trial.arm else None

    def needed(self, cells: Sequence[Cell]) -> list[Trial]:
        """The simulations that `cells` need next; none: they have ended."""
        return [trial for cell in cells for trial in cell.missing(self.find)]

    def keep(self, ended: Ended) -> None:
        """The row of a simulation that has ended."""
        self.writer.append(ended.row)
        self.ended.append(ended)


@dataclass
class _Open:
    """A trial under way."""

    asked: Asked
    arm: Arm
    first: list[Cell]  # under the first seed
    rest: list[Cell]
    gpus: int
    first_score: Score | None = None  # None: not all of `first` have ended
    score: Score | None = None  # None: not at its end
    is_stopped: bool = False


class Window:
    """Runs a search to its end."""

    def __init__(self, search: Search, arms: Arms, task: Task, ledger: Ledger, report: Report) -> None:
        """`report` is told how many trials have ended."""
        self._search, self._arms, self._task, self._ledger, self._report = search, arms, task, ledger, report
        self._study: StudyConfig = arms.study
        self._open: deque[_Open] = deque()
        self._queue: deque[Trial] = deque()
        self._num_asked = 0
        limit_s = self._study.time_limit_s
        self._until_s = None if limit_s is None else time.monotonic() + limit_s

    def run(self, executor: Executor) -> None:
        """Ask, simulate and tell until the study's trials, or its time, are over."""
        for _ in range(self._study.window):
            self._ask()
        self._settle()
        for ended in executor.run(run_trial, self._queue):
            self._ledger.keep(ended)
            self._settle()

    def _settle(self) -> None:
        """Tell, in order, the trials that have ended; each lets the next one in."""
        for one in self._open:
            self._advance(one)
        while self._open and self._open[0].score is not None:
            one = self._open.popleft()
            if one.first_score is None or one.score is None:
                raise RuntimeError("a trial is told that has not ended")
            self._search.tell(one.asked, one.score, one.first_score, is_stopped=one.is_stopped)
            self._report(one.asked.number + 1, self._study.trials)
            self._ask()

    def _ask(self) -> None:
        is_late = self._until_s is not None and time.monotonic() >= self._until_s
        if self._num_asked == self._study.trials or is_late:
            return
        self._num_asked += 1
        asked = self._search.ask()
        arm = self._arms.arm(asked.candidate)
        first, *others = self._study.seeds
        cells = self._arms.cells(arm, self._study.seeds)
        one = _Open(
            asked,
            arm,
            [cell for cell in cells if cell.seed == first],
            [cell for cell in cells if cell.seed in others],
            self._arms.gpus(arm),
        )
        self._open.append(one)
        self._advance(one)

    def _advance(self, one: _Open) -> None:
        """Score what has ended of a trial, and let the rest of it run unless it is hopeless."""
        if one.score is not None:
            return
        if one.first_score is None:
            if self._needs(one.first):
                return
            one.first_score = self._score(one, one.first, self._study.seeds[:1])
            if self._is_hopeless(one.asked, one.first_score):
                one.score, one.is_stopped = one.first_score, True
                return
        if not self._needs(one.rest):
            one.score = self._score(one, [*one.first, *one.rest], self._study.seeds)

    def _needs(self, cells: Sequence[Cell]) -> bool:
        """Whether `cells` have not ended; what they need next is under way then."""
        needed = self._ledger.needed(cells)
        self._queue.extend(self._ledger.missing(needed))
        return bool(needed)

    def _score(self, one: _Open, cells: Sequence[Cell], seeds: Sequence[int]) -> Score:
        rows = {(cell.load, cell.seed): cell.row() for cell in cells}
        return score_of(self._task, rows, seeds, one.gpus)

    def _is_hopeless(self, asked: Asked, first: Score) -> bool:
        share = self._study.stop_below
        if share is None:
            return False
        ours = gains(self._task, first.values)
        return any(
            all(map(partial(_is_far_below, share), ours, gains(self._task, bar))) for bar in asked.bars
        )


def _is_far_below(share: float, gain: float, bar: float) -> bool:
    """Whether a gain, positive or as what is to be small negative, is worth less than `share` of `bar`."""
    return gain < (share * bar if bar > 0.0 else bar / share)
