"""What to try next: first what the tables know, then small steps from the best, then Optuna's TPE.

Where the fewest GPUs are looked for, small steps first go from the arms on fewer GPUs than the best that miss
the constraints by least. Where a front is, every other trial is a small step from one of its trials, in turn,
and the others are TPE's, for both objectives.

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

from cluster_sim.config import Objective
from cluster_sim.study.objective import Score, Task, dominates, is_better, more_is_better, rank
from cluster_sim.study.space import Candidate, Space

ATTEMPTS = 2  # of TPE to find a point that has not been tried: each takes some 10 ms
ATTEMPTS_ANYWHERE = 50
FEWEST_FOR_IMPORTANCE = 50  # five in the best tenth
NEAR_MISSES = 3  # from which small steps go


@dataclass(frozen=True)
class Asked:
    """A trial under way."""

    number: int
    candidate: Candidate
    bars: tuple[tuple[float, ...], ...]  # values of the best, or the front, under the first seed by then


@dataclass(frozen=True)
class Told:
    """A trial that has ended with all its simulations."""

    candidate: Candidate
    score: Score
    first: Score  # under its first seed alone


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
        directions = [
            StudyDirection.MAXIMIZE if more_is_better(objective) else StudyDirection.MINIMIZE
            for objective in problem.task.objectives
        ]
        self._study = optuna.create_study(directions=directions)
        self._journal = _open_journal(journal, directions)
        self._kept = self._journal.get_trials(deepcopy=False)
        self._best: Told | None = None
        self.front: list[Told] = []  # feasible, and as good by their means as any; of one objective: the best
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
        return Asked(number, candidate, tuple(told.first.values for told in self.front))

    def tell(self, asked: Asked, score: Score, first: Score, *, is_stopped: bool) -> None:
        """How the oldest trial under way went; `first` is its score under its first seed alone."""
        started_s = time.perf_counter()
        trial = self._asked[asked.number]
        for name, miss in score.misses.items():
            trial.set_constraint(name, miss)
        if is_stopped:
            if len(first.values) == 1:  # of several, Optuna keeps none of a trial that was stopped
                trial.report(first.value, step=1)
            self._study.tell(trial, state=TrialState.PRUNED)
            self.num_stopped += 1
        else:
            self._study.tell(trial, score.values)
            self._take(Told(asked.candidate, score, first))
        if asked.number >= len(self._kept):
            self._journal.add_trial(self._frozen(asked.number))
        self.wall_s += time.perf_counter() - started_s

    def importances(self) -> dict[str, float] | None:
        """Parameter -> its share in what makes a trial one of the best tenth, by PED-ANOVA; they add up to 1.

        Watanabe, Bansal and Hutter, IJCAI 2023, of the trials that ran to their end. None where those are
        fewer than FEWEST_FOR_IMPORTANCE, or are good at two things.
        """
        if len(self.told) < FEWEST_FOR_IMPORTANCE or self._problem.task.against is not None:
            return None
        shares = get_param_importances(self._study, evaluator=PedAnovaImportanceEvaluator())
        return {name: float(share) for name, share in shares.items()}

    def _take(self, told: Told) -> None:
        task = self._problem.task
        self.told.append(told)
        if self._best is None or is_better(task, told.score, self._best.score):
            self._best = told
        if not told.score.is_feasible or any(_is_as_good(task, one, told) for one in self.front):
            return
        self.front = [one for one in self.front if not dominates(task, told.score, one.score)] + [told]

    def _chosen(self, number: int) -> dict[str, int] | None:
        """The parameters of the trial of this number; None: TPE's."""
        if number < len(self._kept):
            return dict(self._kept[number].params)
        if number < len(self._problem.starts):
            return self._space.parameters(self._problem.starts[number])
        steps = (step for base in self._bases(number) for step in self._space.neighbours(base.candidate))
        return next(
            (self._space.parameters(step) for step in steps if self._name_of(step) not in self._names), None
        )

    def _bases(self, number: int) -> list[Told]:
        """Where small steps go from."""
        if self._best is None:
            return []
        if self._problem.task.against is not None and self.front:
            turn = number // 2 % len(self.front)
            return [] if number % 2 else [*self.front[turn:], *self.front[:turn]]
        return [*self._near_misses(self._best), self._best]

    def _near_misses(self, best: Told) -> list[Told]:
        """On fewer GPUs than the best."""
        task = self._problem.task
        if task.objective is not Objective.gpus or not best.score.is_feasible:
            return []
        fewer = (one for one in self.told if one.score.value < best.score.value)
        return sorted(fewer, key=lambda one: rank(task, one.score))[:NEAR_MISSES]

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


def _is_as_good(task: Task, one: Told, other: Told) -> bool:
    return one.score.values == other.score.values or dominates(task, one.score, other.score)


def _open_journal(file: Path, directions: Sequence[StudyDirection]) -> optuna.Study:
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
    return optuna.create_study(
        storage=storage, study_name="study", directions=directions, load_if_exists=True
    )
