"""What `vllm bench serve` states of a run and summary.json does not say elsewhere.

Definitions: ../shared/vllm-scheduler.md section 13. Tokens and concurrency are those of completed requests;
standard deviations (ddof 0) are of the same values as the means of summary.json beside them.
"""

from typing import Any

import numpy as np

from cluster_sim.engine.kinds import Outcome
from cluster_sim.engine.metrics import gap_edges_s
from cluster_sim.engine.tables import Floats, Longs
from cluster_sim.results import Run, latencies
from cluster_sim.warmup import measured_of


def bench_serve(run: Run) -> dict[str, Any]:
    """The entry `bench_serve` of summary.json; None where there is no such value."""
    times, log = latencies(run), run.log
    completed = log["outcome"] == int(Outcome.completed)
    timed = completed & measured_of(run).chosen
    return {
        "input_tokens": int(run.requests["prompt_tokens"][completed].sum()),
        "output_tokens": int(log["emitted_tokens"][completed].sum()),
        "max_concurrent_requests": most_at_once(
            run.requests["arrival_s"][completed], log["last_token_s"][completed]
        ),
        "ttft_std_s": _deviation(times.ttft_s[timed]),
        "tpot_std_s": _deviation(times.tpot_s[timed & (log["emitted_tokens"] > 1)]),
        "itl_std_s": gap_deviation(run.tally.gap_bins.sum(axis=(0, 1))),
        "e2el_std_s": _deviation(times.e2el_s[timed]),
    }


def most_at_once(start_s: Floats, end_s: Floats) -> int:
    """The most requests that touch one second, seconds being counted from the first start; 0 of none.

    This is how vLLM counts: two requests of one second are at once, although one may end before the other
    starts.
    """
    if len(start_s) == 0:
        return 0
    first = np.sort((start_s - start_s.min()).astype(np.int64))
    last = np.sort((end_s - start_s.min()).astype(np.int64))
    started = np.searchsorted(first, first, side="right")
    ended = np.searchsorted(last, first, side="left")
    return int((started - ended).max())


def gap_deviation(bins: Longs) -> float | None:
    """Standard deviation, s, of gaps counted in Tally.gap_bins, each taken as the middle of its bin."""
    count = int(bins.sum())
    if count == 0:
        return None
    edges = gap_edges_s()
    middles = (edges[:-1] + edges[1:]) / 2
    mean = float(bins @ middles) / count
    return float(np.sqrt(bins @ (middles - mean) ** 2 / count))


def _deviation(values: Floats) -> float | None:
    return float(values.std()) if len(values) else None
