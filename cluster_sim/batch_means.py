"""Intervals of means from one run: it is cut into batches, whose means are nearly independent.

Steady part. Requests in order of arrival, rejected ones left out, from the first that finds as many requests
in the system as there are on average over the second half of the arrivals (a crossing of the mean, Fishman
1973; at most half is cut), to the last that arrives at least a mean stay before the arrivals end: later ones
are served while traffic fades. MSER-5 (White 1997) would cut where the run is quietest from there on, which
makes means too low: of an M/M/1 queue at utilisation 0.7 its intervals cover in 86 of 100 runs of 2,000
requests, those of this rule in 92.

Batches. NUM_BATCHES of equally many requests that have the value; for output tokens per second, of equally
long time, the tokens of an answer being spread evenly from its first to its last delivery. Schmeiser 1982
(Operations Research 30, 556-568): 10 to 30 batches lose next to nothing. Neighbours that are still correlated
widen the interval (statistics.batch_means_interval). No test of correlation decides whether there is one: the
runs that pass it are those whose spread is underestimated.

How far to trust. `effective_requests` is how many independent requests would tell the mean as well. Counted
over 400 runs each of M/D/1 and M/M/1 queues at utilisation 0.5 to 0.95, of 1,000 to 32,000 requests, the
intervals cover in 92 to 96 of 100 where it is 200 or more, 90 to 93 from 60 to 130, and 86 to 92 from 25 to
50. Below FEWEST_EFFECTIVE none is given; a higher bar would let pass those that underestimate their spread.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cluster_sim.choices import Arrivals
from cluster_sim.engine.kinds import Outcome
from cluster_sim.engine.tables import Floats
from cluster_sim.results import Flags, Run, latencies, meets_slo
from cluster_sim.saturation import growth_of_queue, leaves_s
from cluster_sim.slo import is_bounded
from cluster_sim.statistics import batch_means_interval, effective_number
from cluster_sim.waiting import is_closed_loop
from cluster_sim.warmup import measured_of

NUM_BATCHES = 20
DRIFTING = (Arrivals.ramp, Arrivals.diurnal)  # one run has no steady part
FEWEST_REQUESTS = 200  # ten a batch
FEWEST_EFFECTIVE = 10
ALL_ALIKE = "all batches are alike"
NAMES = ("ttft_s", "tpot_s", "e2el_s", "queue_s", "output_throughput_tok_s", "slo_attainment")


@dataclass(frozen=True)
class Steady:
    """The part of a run between its warm-up and its cool-down."""

    chosen: Flags  # [request]
    start_s: float
    end_s: float


def batch_means(run: Run) -> dict[str, Any]:
    """The entry `batch_means` of summary.json: what was cut, and for each of NAMES its mean and interval.

    `reason` says why there is none: of all (then `means` holds null for each), or of the one that has it.
    """
    steady = steady_part(run)
    if isinstance(steady, str):
        return {"reason": steady, "batches": NUM_BATCHES, "means": dict.fromkeys(NAMES)}
    values = _values(run, steady)
    means = {name: _mean(values[name]) if name in values else None for name in NAMES}
    means["output_throughput_tok_s"] = _interval(_throughputs(run, steady), None)
    first_s = float(run.requests["arrival_s"][0])
    return {
        "reason": None,
        "batches": NUM_BATCHES,
        "requests": int(steady.chosen.sum()),
        "start_s": steady.start_s - first_s,
        "end_s": steady.end_s - first_s,
        "means": {name: means[name] for name in NAMES},
    }


def steady_part(run: Run) -> Steady | str:
    """The part that batches are made of, or why there is none."""
    workload = run.config.workload
    if run.faults:
        return "faults change the cluster during the run"
    if workload.trace is None and workload.arrivals in DRIFTING:
        return f"the request rate changes during the run (arrivals: {workload.arrivals.name})"
    growth = growth_of_queue(run)
    if growth.is_saturated is None and not is_closed_loop(workload):
        return "too few arrivals to tell whether the cluster keeps up with them"
    if growth.is_saturated:
        return "the run is saturated: its latencies grow with its length"
    served = measured_of(run).chosen & (run.log["outcome"] != int(Outcome.rejected))
    if served.sum() < FEWEST_REQUESTS:
        return _too_few(served)
    arrival_s, left_s = run.requests["arrival_s"], leaves_s(run)
    start_s = _settles_s(arrival_s[served], left_s[served])
    end_s = float(arrival_s[served][-1] - (left_s - arrival_s)[served].mean())
    chosen = served & (arrival_s >= start_s) & (arrival_s <= end_s)
    return Steady(chosen, start_s, end_s) if chosen.sum() >= FEWEST_REQUESTS else _too_few(chosen)


def _settles_s(arrival_s: Floats, left_s: Floats) -> float:
    """When the number of requests in the system first reaches its mean over the second half of arrivals."""
    found = np.arange(len(arrival_s)) - np.searchsorted(np.sort(left_s), arrival_s, side="right")
    half = len(found) // 2
    return float(arrival_s[min(int(np.argmax(found >= found[half:].mean())), half)])


def _too_few(chosen: Flags) -> str:
    return f"{chosen.sum()} requests between warm-up and cool-down: it takes {FEWEST_REQUESTS}"


def _values(run: Run, steady: Steady) -> Mapping[str, Floats]:
    """Of each name the values of the requests that have one, in order of arrival."""
    times = latencies(run)
    completed = steady.chosen & (run.log["outcome"] == int(Outcome.completed))
    values = {
        name: column[completed & np.isfinite(column)]
        for name, column in (
            ("ttft_s", times.ttft_s),
            ("tpot_s", times.tpot_s),
            ("e2el_s", times.e2el_s),
            ("queue_s", times.queue_s),
        )
    }
    if is_bounded(run.config):
        values["slo_attainment"] = meets_slo(run, times)[steady.chosen].astype(np.float64)
    return values


def _throughputs(run: Run, steady: Steady) -> Floats:
    """Output tokens per second of each batch of time."""
    some = run.log["chunks"] > 0
    tokens = run.log["emitted_tokens"][some] - 1.0
    first_s, last_s = run.log["first_token_s"][some], run.log["last_token_s"][some]
    length_s = np.where(last_s > first_s, last_s - first_s, 1.0)
    edges_s = np.linspace(steady.start_s, steady.end_s, NUM_BATCHES + 1)
    delivered = [
        float((at_s >= first_s).sum() + (tokens * np.clip((at_s - first_s) / length_s, 0.0, 1.0)).sum())
        for at_s in edges_s
    ]
    throughputs: Floats = np.diff(delivered) / np.diff(edges_s)
    return throughputs


def _mean(values: Floats) -> dict[str, Any]:
    """The mean of `values` in order of arrival; what is left over of whole batches is cut at their start."""
    if len(values) < FEWEST_REQUESTS:
        return _nothing(f"{len(values)} requests have it: it takes {FEWEST_REQUESTS}")
    size = len(values) // NUM_BATCHES
    kept = values[len(values) - size * NUM_BATCHES :]
    batches = kept.reshape(NUM_BATCHES, size).mean(axis=1)
    if np.ptp(batches) == 0.0:
        return _nothing(ALL_ALIKE)
    effective = effective_number(kept, batches)
    if effective < FEWEST_EFFECTIVE:
        rule = f"it takes {FEWEST_EFFECTIVE}: run longer"
        return _nothing(f"the requests tell as much as {effective:.0f} independent ones, and {rule}")
    return _interval(batches, effective)


def _interval(batches: Floats, effective: float | None) -> dict[str, Any]:
    found = batch_means_interval(batches)
    bounds = {"value": found.value, "low": found.low, "high": found.high}
    return {**bounds, "effective_requests": effective, "reason": None}


def _nothing(reason: str) -> dict[str, Any]:
    nothing = dict.fromkeys(("value", "low", "high", "effective_requests"))
    return {**nothing, "reason": reason}
