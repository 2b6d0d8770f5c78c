"""Cores, and whether it pays to spread one simulation over them."""

import os

import numpy as np

from cluster_sim.engine import router
from cluster_sim.engine.rules import Rules

REQUEST_S = 8e-6  # of one process on the standard load, 256 instances (tests/bench.py, one core of a Xeon)
RAY_S = 4.0  # to start Ray and its workers, and to leave it
WINDOW_S = 2e-3  # to order two workers on and hear from both


def cores_here() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def pays_on_ray(rules: Rules, workers: int) -> bool:
    """Whether `workers` processes are likely to be faster than one, with the start of Ray and all windows.

    From about 1,400,000 requests on for two workers and 700,000 for many, more with short windows.
    """
    instances = rules.batching.shape[0] // rules.routing.ranks
    hosts = min(workers, instances)
    saved_s = rules.workload.requests.shape[0] * REQUEST_S * (1.0 - 1.0 / hosts)
    return saved_s > RAY_S and saved_s > RAY_S + _windows(rules) * WINDOW_S


def _windows(rules: Rules) -> int:
    """Signal windows with arrivals."""
    if not router.needs_signals(rules.routing):
        return 0
    arrival_s, interval_s = rules.workload.requests["arrival_s"], rules.routing.signal_interval_s
    return len(np.unique(np.floor(arrival_s / interval_s) if interval_s > 0.0 else arrival_s))
