"""The window: the same study with any number of workers, none idle beside a slow trial, nothing run twice."""

import heapq
import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import pytest
from studying import SMALL, told_of

from cluster_sim.compose import Composer
from cluster_sim.executors import Executor
from cluster_sim.executors.serial import Serial
from cluster_sim.study.plan import Plan
from cluster_sim.study.search import Problem, Search
from cluster_sim.study.window import Ledger, Window
from cluster_sim.trial import Trial
from cluster_sim.trials import open_trials

T = TypeVar("T")
R = TypeVar("R")
Told = list[tuple[str, dict[str, int], object]]


class Workers:
    """So many workers in a time of their own: a piece of work takes as long as `takes` says."""

    def __init__(self, workers: int, takes: Callable[[Trial], float]) -> None:
        self.workers, self.takes = workers, takes
        self.now_s = self.work_s = 0.0
        self.ran: list[int] = []

    def run(self, work: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
        queue = items if isinstance(items, deque) else deque(items)
        busy: list[tuple[float, int, T]] = []  # until when, tie
        ties = itertools.count()
        while queue or busy:
            while queue and len(busy) < self.workers:
                item = queue.popleft()
                assert isinstance(item, Trial)
                self.ran.append(item.number)
                self.work_s += self.takes(item)
                heapq.heappush(busy, (self.now_s + self.takes(item), next(ties), item))
            self.now_s, _, item = heapq.heappop(busy)
            yield work(item)


def search_on(executor: Executor, directory: Path, *changes: str) -> Told:
    """What the search of the small study was told, in its order."""
    composer = Composer([*SMALL, *changes])
    study = composer.config.study
    assert study is not None
    plan = Plan(composer.config, study, composer)
    directory.mkdir(exist_ok=True)
    problem = Problem(plan.task, plan.space, plan.name, plan.starts, 0)
    with open_trials(directory) as writer:
        search = Search(problem, directory / "study.journal")
        Window(search, plan.arms, plan.task, Ledger(writer), lambda *_: None).run(executor)
        numbers = sorted(writer.finished)
    assert len(search.told) + search.num_stopped == study.trials
    return [*told_of(directory), ("simulations", {}, numbers)]


def unevenly(trial: Trial) -> float:
    """Every fifth arm takes eight times as long as the others."""
    arm = trial.number // (2 * 5)  # 2 loads, 5 seeds
    return 8.0 if arm % 5 == 1 else 1.0


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Told:
    return search_on(Serial(), tmp_path_factory.mktemp("alone"))


@pytest.mark.parametrize("workers", [2, 3, 16])
def test_any_number_of_workers_walks_the_same_path(workers: int, alone: Told, tmp_path: Path) -> None:
    """Results come in another order: slow trials are overtaken."""
    assert search_on(Workers(workers, unevenly), tmp_path) == alone


def test_another_window_is_another_study(alone: Told, tmp_path: Path) -> None:
    assert search_on(Serial(), tmp_path, "study.window=2") != alone


def test_workers_stay_busy_beside_slow_trials(tmp_path: Path) -> None:
    """Within 15 % of the work over the workers, in the executor's own time."""
    executor = Workers(2, unevenly)
    search_on(executor, tmp_path, "study.trials=32", "study.window=8", "study.bucket_lasts=[4,16,64]")
    assert executor.now_s <= 1.15 * executor.work_s / executor.workers


def test_no_simulation_runs_twice(tmp_path: Path) -> None:
    executor = Workers(3, unevenly)
    search_on(executor, tmp_path)
    assert max(Counter(executor.ran).values()) == 1


class Dying:
    """Stops after some pieces of work, as a kill does: nothing that comes later happens."""

    def __init__(self, after: int) -> None:
        self.after, self.ran = after, list[int]()

    def run(self, work: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
        assert isinstance(items, deque)
        while items:
            if len(self.ran) == self.after:
                raise KeyboardInterrupt
            item = items.popleft()
            self.ran.append(item.number)
            yield work(item)


def test_killed_twice_it_simulates_what_is_missing_and_ends_as_if_nothing_had_happened(
    alone: Told, tmp_path: Path
) -> None:
    ran: list[int] = []
    for after in (13, 21):
        dying = Dying(after)
        with pytest.raises(KeyboardInterrupt):
            search_on(dying, tmp_path)
        ran += dying.ran
        with (
            (tmp_path / "trials.jsonl").open("ab") as rows,
            (tmp_path / "study.journal").open("ab") as journal,
        ):
            rows.write(b'{"trial": 3, "arm": "K')
            journal.write(b'{"op_code":4,"wor')
    last = Workers(1, unevenly)
    assert search_on(last, tmp_path) == alone
    assert max(Counter([*ran, *last.ran]).values()) == 1


def test_hopeless_trials_end_at_their_first_seed_and_the_winner_is_the_same(tmp_path: Path) -> None:
    """With and without early stopping: the best is the same, for fewer simulations."""
    changes = ("study.trials=20", "study.max_draft_length=7", "study.axes.workload.request_rate=[64]")
    told, count = {}, {}
    for name, stop in (("stopping", "0.95"), ("patient", "null")):
        *trials, (_, _, numbers) = search_on(
            Serial(), tmp_path / name, *changes, f"study.stop_below={stop}", "workload.requests=400"
        )
        complete = [
            (value, tuple(sorted(each.items()))) for state, each, value in trials if state == "COMPLETE"
        ]
        told[name], count[name] = max(complete), len(numbers)
    assert told["stopping"] == told["patient"]
    assert count["stopping"] < count["patient"]


def test_a_study_whose_time_is_over_asks_for_no_more(tmp_path: Path) -> None:
    composer = Composer([*SMALL, "study.time_limit_s=1e-9"])
    study = composer.config.study
    assert study is not None
    plan = Plan(composer.config, study, composer)
    with open_trials(tmp_path) as writer:
        search = Search(Problem(plan.task, plan.space, plan.name, plan.starts, 0), tmp_path / "study.journal")
        Window(search, plan.arms, plan.task, Ledger(writer), lambda *_: None).run(Serial())
    assert search.told == []
