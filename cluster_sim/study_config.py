"""What a study searches for, and the search of a value by bisection, which sweeps have too.

`None` always has a meaning of its own, given in the comment. Bounds: check_study.py and bounds.py.
"""

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING

from cluster_sim.choices import Objective, OverLoads


@dataclass
class SearchConfig:
    """In place of an axis: the highest value of a key that meets the SLO, by bisection (capacity.py)."""

    key: str = MISSING  # more of it is more load
    low: float = MISSING  # meets the SLO
    high: float = MISSING  # does not
    tolerance: float = MISSING  # relative: how near the highest value that passed is to one that failed


@dataclass
class StudyConfig:
    """A search for the draft schedule, and values of other keys, that serve a list of loads best."""

    name: str = MISSING
    question: str = MISSING
    objective: Objective = MISSING
    against: Objective | None = None  # also the front of arms that trade the objective for this one
    over_loads: OverLoads | None = None  # None: the mean, or nothing to sum up (gpus)
    over_classes: OverLoads | None = None  # classes count alike; None: all requests together
    attainment: float | None = None  # at each load; None: no constraint, or slo.attainment (capacity, gpus)
    ttft_p99_s: float | None = None  # at each load; None: no constraint
    tpot_p99_s: float | None = None
    max_draft_length: int | None = MISSING  # None: the command line's own speculation, as it is
    bucket_lasts: list[int] = MISSING  # last batch size of each bucket; one more goes on to max_num_seqs
    search_edges: bool = False  # bucket_lasts are where the search of them starts
    monotone: bool | None = None  # K never rises with the batch size; None: with models without experts
    choices: dict[str, list[Any]] = field(default_factory=dict)  # config key or group -> values to try
    axes: dict[str, list[Any]] = MISSING  # config key -> values; each combination is a load
    search: SearchConfig | None = None  # of the capacity, in place of an axis
    seeds: list[int] = MISSING  # of the search
    fresh_seeds: list[int] = MISSING  # of the verdict
    trials: int = MISSING
    time_limit_s: float | None = None  # no trial starts later; None: no limit
    window: int = MISSING  # trials under way at a time
    stop_below: float | None = None  # share of the best: a trial below it ends at its first seed; None: never
