"""Studies for tests: in this process, small, and what they leave; and scores that are made up."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from optuna import load_study
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from cluster_sim.compose import Composer
from cluster_sim.config import Objective, OverLoads
from cluster_sim.study.command import run_study
from cluster_sim.study.objective import Score, Task
from cluster_sim.study.search import Asked, Problem, Search
from cluster_sim.study.space import Candidate, Space
from cluster_sim.trials import MACHINE_KEYS

SMALL = (
    "+study=draft_schedule",
    "study.trials=16",
    "study.bucket_lasts=[8,64]",
    "study.max_draft_length=3",
    "study.axes.workload.request_rate=[20,58]",
    "study.seeds=[0,1]",
    "study.fresh_seeds=[10,11,12]",
    "study.window=4",
    "workload.requests=150",
    "output.page=false",
)
TASK = Task(Objective.slo_goodput, OverLoads.mean, 1, {})


def studied(directory: Path, *overrides: str) -> int:
    """Run a study, by default the small one, in this process; the exit code."""
    given = [*(overrides or SMALL), "executor=serial", f"output.dir={directory}"]
    return run_study(Composer(given).config, given)


def summary_of(directory: Path) -> dict[str, Any]:
    """Its summary.json, without what depends on the machine."""
    summary: dict[str, Any] = json.loads((directory / "summary.json").read_text())
    for key in (*MACHINE_KEYS, "optimiser_wall_s"):
        summary.pop(key)
    return summary


def told_of(directory: Path) -> list[tuple[str, dict[str, int], object]]:
    """State, parameters and value of every trial in the journal, as optuna-dashboard reads it."""
    storage = JournalStorage(JournalFileBackend(str(directory / "study.journal")))
    trials = load_study(study_name="study", storage=storage).trials
    return [(trial.state.name, dict(trial.params), trial.value) for trial in trials]


def scored(value: float, **misses: float) -> Score:
    """A score under one seed at one load."""
    return Score((value,), ((value,),), misses)


def search_over(
    space: Space, journal: Path, starts: Sequence[Candidate] = (), seed: int = 0, task: Task = TASK
) -> Search:
    """A search whose arms are its candidates."""
    return Search(Problem(task, space, repr, starts, seed), journal)


def run_alone(search: Search, value: Callable[[Candidate], float], trials: int) -> list[Asked]:
    """Ask and tell, one trial at a time; all that was asked."""
    asked = []
    for _ in range(trials):
        one = search.ask()
        score = scored(value(one.candidate))
        search.tell(one, score, score, is_stopped=False)
        asked.append(one)
    return asked


def best_of(search: Search) -> Candidate:
    """The candidate of the highest value."""
    return max(search.told, key=lambda told: told.score.value).candidate
