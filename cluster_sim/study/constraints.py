"""By how much an arm misses each constraint.

Constraints hold at every load, and where an objective looks at classes for every class, for means over seeds.
Where a constraint is asked for, a load under which the cluster is saturated in half of the seeds or more is
missed too: its latencies grow with the run.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from cluster_sim.errors import UserError
from cluster_sim.saturation import MOST_SEEDS
from cluster_sim.trials import Row

Rows = Mapping[tuple[int, int], Row]  # number of the load, seed -> row
CLASSES = "classes."
PATHS = {"ttft_p99_s": "ttft_s.p99", "tpot_p99_s": "tpot_s.p99"}


def misses_of(
    limits: Mapping[str, float], rows: Rows, seeds: Sequence[int], num_loads: int, *, by_class: bool
) -> dict[str, float]:
    """Constraint -> its relative excess over its limit at the worst load; <= 0: met. None without limits.

    Raises:
        UserError: classes are asked for, and there is only one.
    """
    if not limits:
        return {}
    misses = dict.fromkeys([*limits, "saturated"], -math.inf)
    for load in range(num_loads):
        of_load = [rows[load, seed] for seed in seeds]
        parts = parts_of(of_load[0]) if by_class else [""]
        found = {
            name: max(_miss(name, limit, of_load, part) for part in parts) for name, limit in limits.items()
        }
        saturated = sum(bool(row["saturated"]) for row in of_load) / len(seeds)
        found["saturated"] = saturated if saturated >= MOST_SEEDS else 0.0
        misses = {name: max(misses[name], miss) for name, miss in found.items()}
    return misses


def parts_of(row: Row) -> list[str]:
    """What the keys of each class begin with, in the order of their names.

    Raises:
        UserError: the requests are all of one class.
    """
    parts = dict.fromkeys(f"{CLASSES}{key.split('.')[1]}." for key in row if key.startswith(CLASSES))
    if not parts:
        rule, remedy = "classes are summed up where there are several", "Leave study.over_classes out."
        raise UserError(rule, "one", "study.over_classes", remedy)
    return sorted(parts)


def _miss(name: str, limit: float, rows: Sequence[Row], part: str) -> float:
    if name == "attainment":
        return (limit - _mean(rows, f"{part}slo_attainment", 0.0)) / limit
    return _mean(rows, f"{part}{PATHS[name]}", math.inf) / limit - 1.0


def _mean(rows: Sequence[Row], path: str, missing: float) -> float:
    return float(np.mean([missing if row[path] is None else row[path] for row in rows]))
