"""What each engine of the cluster counts for vLLM's /metrics and no request of requests/ tells.

An engine is a scheduler: rank r of instance i has the number i * ranks + r. Conserved: the counts of all
engines add up to those of the run. Gaps between deliveries (ITL) are known to the width of a bin, 0.5 %: a
gap is counted below an edge of a bucket if the middle of its bin is.
"""

from typing import Any

import numpy as np

from cluster_sim.counters import vllm_counters
from cluster_sim.engine.metrics import gap_edges_s
from cluster_sim.engine.tables import Longs
from cluster_sim.results import Run

ITL_BUCKETS_S = (  # vllm/v1/metrics/buckets.py: INTER_TOKEN_LATENCY_BUCKETS
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)


def server_counts(run: Run) -> list[dict[str, Any]]:
    """The entry `engines` of summary.json: a flat mapping per engine."""
    tally = run.tally
    return [
        {
            "engine": engine,
            **vllm_counters(tally.verified[engine].sum(axis=0)),
            "itl_count": int(tally.gap_bins[engine].sum()),
            "itl_sum_s": float(tally.totals["gap_sum_s"][engine]),
            "itl_at_most": at_most(tally.gap_bins[engine].sum(axis=0)),
        }
        for engine in range(len(tally.gap_bins))
    ]


def at_most(bins: Longs) -> list[int]:
    """Gaps of Tally.gap_bins that last at most each of ITL_BUCKETS_S."""
    edges = gap_edges_s()
    middles = (edges[:-1] + edges[1:]) / 2
    below = np.concatenate(([0], np.cumsum(bins)))
    counts: list[int] = below[np.searchsorted(middles, ITL_BUCKETS_S, side="right")].tolist()
    return counts
