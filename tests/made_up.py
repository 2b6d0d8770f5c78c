"""Studies without simulation: an executor that makes up the rows."""

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np
from optuna import load_study
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial

from cluster_sim.compose import Composer
from cluster_sim.executors import Executor
from cluster_sim.study.plan import Plan
from cluster_sim.study.search import Problem, Search
from cluster_sim.study.window import Ledger, Window
from cluster_sim.trial import Ended, Trial
from cluster_sim.trials import Row, open_trials

T = TypeVar("T")
R = TypeVar("R")


@dataclass
class MadeUp:
    """Rows as `row_of` makes them, in the order of the trials; what it was asked for."""

    row_of: Callable[[Trial], Row]
    trials: dict[int, Trial] = field(default_factory=dict)

    def run(self, work: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:  # noqa: ARG002  nothing runs
        queue = items if isinstance(items, deque) else deque(items)
        while queue:
            item = queue.popleft()
            assert isinstance(item, Trial)
            self.trials[item.number] = item
            place = {"trial": item.number, "arm": item.arm, **item.point, "seed": item.seed}
            yield Ended({**place, **self.row_of(item)}, {})  # type: ignore[misc]


def planned(*overrides: str) -> Plan:
    """What a study will do."""
    composer = Composer(overrides)
    assert composer.config.study is not None
    return Plan(composer.config, composer.config.study, composer)


def search_on(plan: Plan, executor: Executor, directory: Path) -> Search:
    """The search of `plan`, at its end."""
    problem = Problem(plan.task, plan.space, plan.name, plan.starts, plan.config.seed)
    with open_trials(directory) as writer:
        search = Search(problem, directory / "study.journal")
        Window(search, plan.arms, plan.task, Ledger(writer), lambda *_: None).run(executor)
    return search


def journal_of(directory: Path) -> list[FrozenTrial]:
    """Every trial of the journal, as Optuna reads it."""
    storage = JournalStorage(JournalFileBackend(str(directory / "study.journal")))
    return load_study(study_name="study", storage=storage).trials


def lengths_of(trial: Trial, sizes: Sequence[int]) -> list[int]:
    """The draft lengths of a trial at these batch sizes."""
    speculation = trial.config.speculation
    ranges = speculation.num_speculative_tokens_per_batch_size
    if not isinstance(ranges, list):
        return [int(speculation.num_speculative_tokens or 0)] * len(sizes)
    return [next(length for first, last, length in ranges if first <= size <= last) for size in sizes]


def noise(*key: object) -> float:
    """A normal number that depends on `key` alone."""
    return float(np.random.default_rng([abs(hash_of(part)) for part in key]).normal())


def hash_of(part: object) -> int:
    """Of its words, the same in every process."""
    return sum(ord(letter) * 31**place for place, letter in enumerate(repr(part))) % (2**31)


def goodput_row(value: float) -> Row:
    """A row of which nothing but the SLO goodput is looked at."""
    assert math.isfinite(value)
    return {"slo_goodput_rps": value, "saturated": False}
