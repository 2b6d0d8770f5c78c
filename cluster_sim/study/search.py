"""What to try next: first what the tables know, then small steps from the best, then Optuna's TPE.

The next point is a function of the study's seed, its number, what has been told and what is under way: it
does not depend on who computes how fast, as long as trials are told in their order (window.py). Optuna's
study is kept in memory; each trial that has been told is added as a whole, one line, to a journal, which
optuna-dashboard opens. A study that goes on takes its first points from there.

The only import of Optuna; written for version 5.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, IntDistribution
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.samplers import TPESampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from cluster_sim.study.objective import Score, Task, is_better
from cluster_sim.study.space import Candidate, Space

ATTEMPTS = 2  # of TPE to find a point that has not been tried: each takes some 10 ms
ATTEMPTS_ANYWHERE = 50
FEWEST_FOR_IMPORTANCE = 50  # five in the best tenth


@dataclass(frozen=True)
class Asked:
    """A trial under way."""

    number: int
    candidate: Candidate
    bar: float | None  # value of the best trial under its first seed, when this one was asked


@dataclass(frozen=True)
class Told:
    """A trial that has ended with all its simulations."""

    candidate: Candidate
    score: Score


@dataclass(frozen=True)
class Problem:
    """What is searched, and from where."""

    task: Task
    space: Space
    name_of: Callable[[Candidate], str]  # of what vLLM runs of it
    starts: Sequence[Candidate]  # in the order in which they are tried
    seed: int  # of TPE


class Search:
    """Asks for trials and is told how they went, in their order."""

    def __init__(self, problem: Problem, journal: Path) -> None:
        """`journal` is the file that keeps what has been told."""
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._problem, self._space, self._name_of = problem, problem.space, problem.name_of
        self._asked: list[optuna.trial.Trial] = []
        self._names: set[str] = set()  # of what has been asked
        self._distributions: dict[str, BaseDistribution] = {
            name: IntDistribution(low, high) for name, (low, high) in problem.space.bounds.items()
        }
        direction = StudyDirection.MAXIMIZE if problem.task.more_is_better else StudyDirection.MINIMIZE
        self._study = optuna.create_study(direction=direction)
        self._journal = _open_journal(journal, direction)
        self._kept = self._journal.get_trials(deepcopy=False)
        self._best: Told | None = None
        self._bar: float | None = None
        self.told: list[Told] = []
        self.num_stopped = 0
        self.wall_s = 0.0  # spent in here

    def ask(self) -> Asked:
        """The next trial."""
        started_s = time.perf_counter()
        number = len(self._asked)
        parameters = self._chosen(number)
        if parameters is not None:
            self._study.enqueue_trial(parameters)
        self._study.sampler = _Sampler(
            self._problem.seed * 1_000_003 + number, self._distributions, self._is_new
        )
        trial = self._study.ask(self._distributions)
        candidate = self._space.candidate(trial.params)
        name = self._name_of(candidate)
        trial.set_user_attr("arm", name)
        self._asked.append(trial)
        self._names.add(name)
        self.wall_s += time.perf_counter() - started_s
        return Asked(number, candidate, self._bar)

    def tell(self, asked: Asked, score: Score, first: Score, *, is_stopped: bool) -> None:
        """How the oldest trial under way went; `first` is its score under its first seed alone."""
        started_s = time.perf_counter()
        trial = self._asked[asked.number]
        for name, miss in score.misses.items():
            trial.set_constraint(name, miss)
        if is_stopped:
            trial.report(first.value, step=1)
            self._study.tell(trial, state=TrialState.PRUNED)
            self.num_stopped += 1
        else:
            self._study.tell(trial, score.value)
            self._take(Told(asked.candidate, score), first)
        if asked.number >= len(self._kept):
            self._journal.add_trial(self._frozen(asked.number))
        self.wall_s += time.perf_counter() - started_s

    def importances(self) -> dict[str, float] | None:
        """Parameter -> its share in what makes a trial one of the best tenth, by PED-ANOVA; they add up to 1.

        Watanabe, Bansal and Hutter, IJCAI 2023, of the trials that ran to their end. None where those are
        fewer than FEWEST_FOR_IMPORTANCE.
        """
        if len(self.told) < FEWEST_FOR_IMPORTANCE:
            return None
        shares = get_param_importances(self._study, evaluator=PedAnovaImportanceEvaluator())
        return {name: float(share) for name, share in shares.items()}

    def _take(self, told: Told, first: Score) -> None:
        self.told.append(told)
        if self._best is None or is_better(self._problem.task, told.score, self._best.score):
            self._best = told
            self._bar = first.value if told.score.is_feasible else None

    def _chosen(self, number: int) -> dict[str, int] | None:
        """The parameters of the trial of this number; None: TPE's."""
        if number < len(self._kept):
            return dict(self._kept[number].params)
        if number < len(self._problem.starts):
            return self._space.parameters(self._problem.starts[number])
        if self._best is None:
            return None
        steps = self._space.neighbours(self._best.candidate)
        return next(
            (self._space.parameters(step) for step in steps if self._name_of(step) not in self._names), None
        )

    def _is_new(self, parameters: dict[str, Any]) -> bool:
        return self._name_of(self._space.candidate(parameters)) not in self._names

    def _frozen(self, number: int) -> FrozenTrial:
        return self._study.get_trials(deepcopy=False)[number]


class _Sampler(TPESampler):
    """TPE that draws again when it comes upon what has been tried, and then anywhere."""

    def __init__(
        self,
        seed: int,
        distributions: dict[str, BaseDistribution],
        is_new: Callable[[dict[str, Any]], bool],
    ) -> None:
        super().__init__(seed=seed % 2**32, n_startup_trials=1)
        self._all, self._is_new = distributions, is_new
        self._anywhere = np.random.default_rng(seed)

    def infer_relative_search_space(
        self,
        study: optuna.Study,  # noqa: ARG002  Optuna's signature
        trial: FrozenTrial,  # noqa: ARG002
    ) -> dict[str, BaseDistribution]:
        return {name: one for name, one in self._all.items() if not one.single()}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        parameters: dict[str, Any] = {}
        for _ in range(ATTEMPTS):
            parameters = super().sample_relative(study, trial, search_space)
            if not parameters or self._is_new({**self._lowest(), **parameters}):
                return parameters
        for _ in range(ATTEMPTS_ANYWHERE):
            drawn = {name: self._sample_anywhere(one) for name, one in search_space.items()}
            if self._is_new({**self._lowest(), **drawn}):
                return drawn
        return parameters

    def _sample_anywhere(self, distribution: BaseDistribution) -> int:
        """Any whole number that it holds, all alike."""
        if not isinstance(distribution, IntDistribution):
            raise TypeError("parameters of a study are whole numbers")
        return int(self._anywhere.integers(distribution.low, distribution.high + 1))

    def _lowest(self) -> dict[str, int]:
        """Of every parameter; those with a single value are not sampled."""
        return {name: one.low for name, one in self._all.items() if isinstance(one, IntDistribution)}


def _open_journal(file: Path, direction: StudyDirection) -> optuna.Study:
    """The study in `file`, without what a kill left: half a line at its end, and the lock of a dead process.

    The directory is ours alone (trials.open_trials holds it).
    """
    for left in file.parent.glob(f"{file.name}.lock*"):
        left.unlink()
    if file.exists():
        content = file.read_bytes()
        with file.open("r+b") as journal:
            journal.truncate(content.rfind(b"\n") + 1)
    storage = JournalStorage(JournalFileBackend(str(file)))
    return optuna.create_study(storage=storage, study_name="study", direction=direction, load_if_exists=True)
