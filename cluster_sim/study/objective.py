"""From the rows of simulations to the value of an arm, and by how much it misses each constraint.

A seed is a replicate: an arm has a value under each seed, summed up over the loads, and the mean over seeds
is its value. Constraints hold at every load, for means over seeds. Where a constraint is asked for, a load
under which the cluster is saturated in half of the seeds or more is missed too: its latencies grow with the
run.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cluster_sim.check_study import OVER_ALL_LOADS
from cluster_sim.config import Objective, OverLoads, StudyConfig
from cluster_sim.saturation import MOST_SEEDS
from cluster_sim.trials import Row

MORE_IS_BETTER = (Objective.slo_goodput, Objective.token_goodput, Objective.capacity)
UNITS = {
    Objective.slo_goodput: "good requests/s",
    Objective.token_goodput: "good tokens/s",
    Objective.tpot: "s per token",
    Objective.capacity: "requests/s within the SLO",
    Objective.gpus: "GPUs",
}
Rows = Mapping[tuple[int, int], Row]  # number of the load, seed -> row
PATHS = {
    Objective.slo_goodput: "slo_goodput_rps",
    Objective.token_goodput: "token_goodput_tok_s",
    Objective.tpot: "tpot_s.mean",
}


@dataclass(frozen=True)
class Task:
    """What a study asks of an arm, without the cluster it runs on."""

    objective: Objective
    over_loads: OverLoads
    rates: tuple[float, ...]  # requests/s of each load; none: not an axis
    num_loads: int
    limits: Mapping[str, float]  # attainment (at least), ttft_p99_s, tpot_p99_s (at most)
    wanted: float  # attainment that capacity means

    @property
    def more_is_better(self) -> bool:
        """Else less."""
        return self.objective in MORE_IS_BETTER


@dataclass(frozen=True)
class Score:
    """How well an arm does."""

    by_seed: tuple[float, ...]
    by_load: tuple[tuple[float, ...], ...]  # [load][seed]; none for objectives over all loads
    misses: Mapping[str, float]  # constraint -> relative excess over its limit at the worst load; <= 0: met

    @property
    def value(self) -> float:
        """Of the objective."""
        return float(np.mean(self.by_seed))

    @property
    def worst_miss(self) -> tuple[str, float]:
        """The constraint that is missed most, and by which share; <= 0: all are met."""
        return max(self.misses.items(), key=lambda item: item[1], default=("", 0.0))

    @property
    def is_feasible(self) -> bool:
        """Whether every constraint is met."""
        return self.worst_miss[1] <= 0.0


def task_of(study: StudyConfig, slo_attainment: float) -> Task:
    """The objective and the constraints of `study`."""
    needs = study.objective in OVER_ALL_LOADS
    wanted = slo_attainment if study.attainment is None else study.attainment
    limits = {
        "attainment": wanted if study.objective is Objective.gpus else study.attainment,
        "ttft_p99_s": study.ttft_p99_s,
        "tpot_p99_s": study.tpot_p99_s,
    }
    if study.objective is Objective.capacity:
        limits["attainment"] = None
    num_loads = math.prod(len(values) for values in study.axes.values())
    rates = tuple(float(rate) for rate in study.axes.get("workload.request_rate", ())) if needs else ()
    return Task(
        study.objective,
        study.over_loads or OverLoads.mean,
        rates,
        num_loads,
        {name: limit for name, limit in limits.items() if limit is not None},
        wanted,
    )


def score_of(task: Task, rows: Rows, seeds: Sequence[int], gpus: int) -> Score:
    """How an arm does that has `rows` for all loads and `seeds`, on so many GPUs."""
    misses = _misses(task, rows, seeds)
    if task.objective is Objective.gpus:
        return Score((float(gpus),) * len(seeds), (), misses)
    if task.objective is Objective.capacity:
        return Score(tuple(_capacity(task, rows, seed) for seed in seeds), (), misses)
    loads = range(task.num_loads)
    by_load = np.array([[_value(task, rows[load, seed]) for seed in seeds] for load in loads])
    if task.over_loads is OverLoads.mean:
        by_seed = by_load.mean(axis=0)
    else:
        by_seed = by_load.min(axis=0) if task.more_is_better else by_load.max(axis=0)
    return Score(tuple(by_seed.tolist()), tuple(map(tuple, by_load.tolist())), misses)


def is_better(task: Task, score: Score, other: Score) -> bool:
    """Whether `score` goes before `other`: feasible first, then by value; else by what is missed."""
    return rank(task, score) < rank(task, other)


def rank(task: Task, score: Score) -> tuple[float, float]:
    """Smaller is better."""
    value = -score.value if task.more_is_better else score.value
    return (0.0, value) if score.is_feasible else (score.worst_miss[1], value)


def _value(task: Task, row: Row) -> float:
    """At one load; of the worst load, goodputs are shares of what came."""
    if task.over_loads is OverLoads.worst and task.objective is Objective.slo_goodput:
        return float(row["slo_attainment"])
    value = row[PATHS[task.objective]]
    if task.over_loads is OverLoads.worst and task.objective is Objective.token_goodput:
        emitted = row["output_throughput_tok_s"]
        return float(value / emitted) if emitted else 0.0
    return math.inf if value is None else float(value)


def _misses(task: Task, rows: Rows, seeds: Sequence[int]) -> dict[str, float]:
    """The worst load decides."""
    if not task.limits:
        return {}
    misses = dict.fromkeys([*task.limits, "saturated"], -math.inf)
    for load in range(task.num_loads):
        of_load = [rows[load, seed] for seed in seeds]
        found = {name: _miss(name, limit, of_load) for name, limit in task.limits.items()}
        saturated = sum(bool(row["saturated"]) for row in of_load) / len(seeds)
        found["saturated"] = saturated if saturated >= MOST_SEEDS else 0.0
        misses = {name: max(misses[name], miss) for name, miss in found.items()}
    return misses


def _miss(name: str, limit: float, rows: Sequence[Row]) -> float:
    if name == "attainment":
        return (limit - _mean(rows, "slo_attainment", 0.0)) / limit
    path = {"ttft_p99_s": "ttft_s.p99", "tpot_p99_s": "tpot_s.p99"}[name]
    return _mean(rows, path, math.inf) / limit - 1.0


def _mean(rows: Sequence[Row], path: str, missing: float) -> float:
    return float(np.mean([missing if row[path] is None else row[path] for row in rows]))


def _capacity(task: Task, rows: Rows, seed: int) -> float:
    """The request rate at which attainment first falls below what is wanted, between loads on a line.

    With no traffic at all it is 1; when no load falls short, the capacity is at least the highest rate.
    """
    points = sorted((rate, float(rows[load, seed]["slo_attainment"])) for load, rate in enumerate(task.rates))
    before, above = 0.0, 1.0
    for rate, share in points:
        if share < task.wanted:
            return before + (rate - before) * (above - task.wanted) / (above - share)
        before, above = rate, share
    return before
