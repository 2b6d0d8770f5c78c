"""Which requests are measured: those that arrive after the warm-up and before the cool-down.

Rule. `workload.warmup` and `workload.cooldown` are shares of the time from the first arrival to the last.
Requests that arrive in them are simulated, and left out of: latencies (TTFT, TPOT, E2EL, queue), attainment,
and both goodputs, whose duration is shorter by both times. All else is of the whole run, since it counts what
the servers did: numbers of requests, throughputs, tokens, chunks and the gaps between them (ITL), acceptance,
steps, batch sizes, shares of time and memory, and whether the run is saturated. Both are 0 unless asked for.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from cluster_sim.results import Flags, Run


@dataclass(frozen=True)
class Measured:
    """The requests that are measured, and the times before and after them that are not."""

    chosen: Flags  # [request]
    warmup_s: float
    cooldown_s: float

    @property
    def cut_s(self) -> float:
        """What is missing of the run's duration, s."""
        return self.warmup_s + self.cooldown_s

    def as_dict(self) -> dict[str, Any]:
        """The entry `measured` of summary.json."""
        return {
            "warmup_s": self.warmup_s,
            "cooldown_s": self.cooldown_s,
            "requests": int(self.chosen.sum()),
        }


def measured_of(run: Run) -> Measured:
    """What is measured of `run`; every request where its workload cuts nothing."""
    arrival_s, workload = run.requests["arrival_s"], run.config.workload
    if len(arrival_s) == 0:
        return Measured(np.zeros(0, np.bool_), 0.0, 0.0)
    span_s = float(arrival_s[-1] - arrival_s[0])
    warmup_s, cooldown_s = workload.warmup * span_s, workload.cooldown * span_s
    inside = (arrival_s >= arrival_s[0] + warmup_s) & (arrival_s <= arrival_s[-1] - cooldown_s)
    return Measured(inside, warmup_s, cooldown_s)
