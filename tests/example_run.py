"""A simulation's result by hand, for tests of what is made of it."""

from typing import Any

import numpy as np

from cluster_sim.compose import compose
from cluster_sim.engine.kinds import Outcome
from cluster_sim.engine.metrics import NUM_GAP_BINS
from cluster_sim.engine.rules import Request
from cluster_sim.engine.state import LogRow, Tally, Totals
from cluster_sim.results import Run
from cluster_sim.traffic import Traffic
from cluster_sim.world import empty_table

GIB = 2**30


def example_tally(**changes: Any) -> Tally:
    """A tally of one instance on which nothing happened, except for the `changes`."""
    empty = Tally(
        totals=empty_table(Totals, 1),
        batch_size_steps=np.zeros((1, 9), np.int64),
        draft_length_steps=np.zeros((1, 1), np.int64),
        verified=np.zeros((1, 1, 1, 1), np.int64),
        chunk_tokens=np.zeros((1, 2), np.int64),
        gap_bins=np.zeros((1, 2, NUM_GAP_BINS), np.int64),
    )
    return empty._replace(**changes)


def example_run(
    overrides: tuple[str, ...] = (),
    requests: dict[str, Any] | None = None,
    log: dict[str, Any] | None = None,
    tally: Tally | None = None,
    **changes: Any,
) -> Run:
    """Three completed requests; `requests` and `log` set columns.

    request   arrival   admitted   first token   last token   tokens   chunks
    0         1.0 s     1.0 s      1.25 s        2.25 s       11       5
    1         2.0 s     2.5 s      3.0 s         3.0 s         1       1
    2         3.0 s     3.0 s      3.5 s         5.0 s         4       4
    """
    asked = {"arrival_s": [1.0, 2.0, 3.0], "prompt_tokens": [100, 200, 300], "max_tokens": [11, 1, 4]}
    happened = {
        "scheduled_s": [1.0, 2.5, 3.0],
        "first_token_s": [1.25, 3.0, 3.5],
        "last_token_s": [2.25, 3.0, 5.0],
        "emitted_tokens": [11, 1, 4],
        "chunks": [5, 1, 4],
        "outcome": [int(Outcome.completed)] * 3,
    }
    values: dict[str, Any] = {
        "usable_blocks": np.array([100]),
        "class_names": ("default",),
        "traffic": Traffic(np.ones(1), 200.0, 200.0, 16 / 3, np.full(1, 13 / 3), np.zeros(1)),
        "memory_bytes": {
            **{"device_bytes": 80 * GIB, "target_weights_bytes": 16 * GIB, "drafter_weights_bytes": 0},
            **{"target_kv_bytes": 54 * GIB, "headroom_bytes": 2 * GIB, "reserve_bytes": 8 * GIB},
        },
        "bundle_name": "example",
        "bundle_digest": "b" * 64,
        "workload_source": "by hand",
        "workload_digest": "d" * 64,
        "acceptance_source": "by hand",
        "draft_cost": "bundle",
        "warnings": (),
        "engine_wall_s": 0.5,
        "wall_s": 1.0,
    }
    columns = asked | {"abort_s": np.inf} | (requests or {})
    return Run(
        config=compose(list(overrides)),
        requests=empty_table(Request, len(columns["arrival_s"]), **columns),
        log=empty_table(LogRow, len(columns["arrival_s"]), **(happened | (log or {}))),
        tally=example_tally() if tally is None else tally,
        **(values | changes),
    )
