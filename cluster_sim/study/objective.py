"""From the rows of simulations to the value of an arm, and whether it meets the constraints.

A seed is a replicate: an arm has a value under each seed, summed up over the loads, and the mean over seeds
is its value. Constraints: constraints.py.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cluster_sim.config import Objective, OverLoads, StudyConfig
from cluster_sim.study.cells import CAPACITY, CAPACITY_END
from cluster_sim.study.constraints import Rows, misses_of, parts_of
from cluster_sim.trials import Row

GOODPUTS = (Objective.slo_goodput, Objective.token_goodput)
UNITS = {
    Objective.slo_goodput: "good requests/s",
    Objective.token_goodput: "good tokens/s",
    Objective.tpot: "s per token",
    Objective.tpot_p99: "s per token",
    Objective.ttft_p99: "s",
    Objective.capacity: "requests/s within the SLO",
    Objective.gpus: "GPUs",
}
SHARES = {
    Objective.slo_goodput: "share of requests that were good",
    Objective.token_goodput: "share of tokens that were good",
}
SHARE_PATHS = {
    Objective.slo_goodput: "slo_attainment",
    Objective.token_goodput: "token_attainment",
}
PATHS = {
    Objective.slo_goodput: "slo_goodput_rps",
    Objective.token_goodput: "token_goodput_tok_s",
    Objective.tpot: "tpot_s.mean",
    Objective.tpot_p99: "tpot_s.p99",
    Objective.ttft_p99: "ttft_s.p99",
    Objective.capacity: CAPACITY,
}


@dataclass(frozen=True)
class Task:
    """What a study asks of an arm, without the cluster it runs on."""

    objective: Objective
    over_loads: OverLoads
    num_loads: int
    limits: Mapping[str, float]  # attainment (at least), ttft_p99_s, tpot_p99_s (at most)
    against: Objective | None = None  # a second one, of the front
    over_classes: OverLoads | None = None  # None: all requests together

    @property
    def more_is_better(self) -> bool:
        """Of the objective; else less."""
        return more_is_better(self.objective)

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """One, or the two of the front."""
        return (self.objective,) if self.against is None else (self.objective, self.against)

    def unit(self, objective: Objective) -> str:
        """Of its values."""
        if self.counts_shares and objective in SHARES:
            return SHARES[objective]
        return UNITS[objective]

    @property
    def counts_shares(self) -> bool:
        """Whether goodputs are shares of what came, so that a small load or class counts as a large one."""
        return self.over_loads is OverLoads.worst or self.over_classes is not None


@dataclass(frozen=True)
class Score:
    """How well an arm does."""

    by_seed: tuple[float, ...]
    by_load: tuple[tuple[float, ...], ...]  # [load][seed]; none for GPUs
    misses: Mapping[str, float]  # constraint -> relative excess over its limit at the worst load; <= 0: met
    against: tuple[float, ...] = ()  # by seed, of the second objective
    ends: "Ends | None" = None  # of capacities, which lie below them; None: the values are exact

    @property
    def value(self) -> float:
        """Of the objective."""
        return float(np.mean(self.by_seed))

    @property
    def values(self) -> tuple[float, ...]:
        """Of every objective."""
        return (self.value, float(np.mean(self.against))) if self.against else (self.value,)

    @property
    def worst_miss(self) -> tuple[str, float]:
        """The constraint that is missed most, and by which share; <= 0: all are met."""
        return max(self.misses.items(), key=lambda item: item[1], default=("", 0.0))

    @property
    def is_feasible(self) -> bool:
        """Whether every constraint is met."""
        return self.worst_miss[1] <= 0.0


@dataclass(frozen=True)
class Ends:
    """What a score would be if every capacity were the lowest value that failed."""

    by_seed: tuple[float, ...]
    by_load: tuple[tuple[float, ...], ...]
    against: tuple[float, ...]


def more_is_better(objective: Objective) -> bool:
    """Else less."""
    return objective in (*GOODPUTS, Objective.capacity)


def task_of(study: StudyConfig, slo_attainment: float) -> Task:
    """The objective and the constraints of `study`."""
    wants_slo = study.objective in (Objective.gpus, Objective.capacity)
    limits = {
        "attainment": slo_attainment if wants_slo and study.attainment is None else study.attainment,
        "ttft_p99_s": study.ttft_p99_s,
        "tpot_p99_s": study.tpot_p99_s,
    }
    return Task(
        study.objective,
        study.over_loads or OverLoads.mean,
        math.prod(len(values) for values in study.axes.values()),
        {name: limit for name, limit in limits.items() if limit is not None},
        study.against,
        study.over_classes,
    )


def score_of(task: Task, rows: Rows, seeds: Sequence[int], gpus: int) -> Score:
    """How an arm does that has `rows` for all loads and `seeds`, on so many GPUs.

    Raises:
        UserError: classes are asked for, and there is only one.
    """
    by_seed, by_load, against = _values_of(task, rows, seeds, gpus)
    misses = misses_of(task.limits, rows, seeds, task.num_loads, by_class=task.over_classes is not None)
    ends = None
    if Objective.capacity in task.objectives:
        at_ends = {key: {**row, CAPACITY: row[CAPACITY_END]} for key, row in rows.items()}
        ends = Ends(*_values_of(task, at_ends, seeds, gpus))
    return Score(by_seed, by_load, misses, against, ends)


def is_better(task: Task, score: Score, other: Score) -> bool:
    """Whether `score` goes before `other`: feasible first, then by value; else by what is missed."""
    return rank(task, score) < rank(task, other)


def rank(task: Task, score: Score) -> tuple[float, float, float]:
    """Smaller is better: the miss of the constraint missed most, those of all, the value."""
    value = -score.value if task.more_is_better else score.value
    if score.is_feasible:
        return (0.0, 0.0, value)
    return (score.worst_miss[1], sum(miss for miss in score.misses.values() if miss > 0.0), value)


def gains(task: Task, values: Sequence[float]) -> tuple[float, ...]:
    """`values` of the objectives, turned so that more is better."""
    pairs = zip(task.objectives, values, strict=True)
    return tuple(value if more_is_better(objective) else -value for objective, value in pairs)


def dominates(task: Task, score: Score, other: Score) -> bool:
    """Whether `score` is at least as good in every objective, and better in one, by its means."""
    ours, theirs = gains(task, score.values), gains(task, other.values)
    return ours != theirs and all(own >= each for own, each in zip(ours, theirs, strict=True))


def _values_of(
    task: Task, rows: Rows, seeds: Sequence[int], gpus: int
) -> tuple[tuple[float, ...], tuple[tuple[float, ...], ...], tuple[float, ...]]:
    """By seed, by load and seed, and by seed of the second objective."""
    by_seed, by_load = _over_loads(task, task.objective, rows, seeds, gpus)
    against = () if task.against is None else _over_loads(task, task.against, rows, seeds, gpus)[0]
    return by_seed, by_load, against


def _over_loads(
    task: Task, objective: Objective, rows: Rows, seeds: Sequence[int], gpus: int
) -> tuple[tuple[float, ...], tuple[tuple[float, ...], ...]]:
    """Values by seed, and by load and seed; of GPUs there is one for all loads."""
    if objective is Objective.gpus:
        return (float(gpus),) * len(seeds), ()
    loads = range(task.num_loads)
    by_load = np.array([[_value(task, objective, rows[load, seed]) for seed in seeds] for load in loads])
    by_seed = by_load.mean(axis=0) if task.over_loads is OverLoads.mean else _worst(objective, by_load)
    return tuple(by_seed.tolist()), tuple(map(tuple, by_load.tolist()))


def _value(task: Task, objective: Objective, row: Row) -> float:
    """At one load and one seed; over classes, of those of which a request was measured."""
    if objective is Objective.capacity or task.over_classes is None:
        return _of_part(task, objective, row, "")
    values = np.array([_of_part(task, objective, row, part) for part in parts_of(row)])
    return float(values.mean() if task.over_classes is OverLoads.mean else _worst(objective, values))


def _of_part(task: Task, objective: Objective, row: Row, part: str) -> float:
    """Of all requests, or of those of one class."""
    counts_shares = task.counts_shares and objective in SHARES
    value = row[f"{part}{(SHARE_PATHS if counts_shares else PATHS)[objective]}"]
    if value is None:
        return 0.0 if more_is_better(objective) else math.inf
    return float(value)


def _worst(objective: Objective, values: np.ndarray) -> np.ndarray:
    """Along the first axis."""
    worst: np.ndarray = values.min(axis=0) if more_is_better(objective) else values.max(axis=0)
    return worst
