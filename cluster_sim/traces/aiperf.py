"""aiperf's profile_export.jsonl: one record per request, metadata and metrics with their units.

The start of a request is its arrival, metadata.conversation_id its session. Records of the warm-up phase are
left out and counted; those that failed have no output tokens, or were cancelled after some, which then count.
"""

from dataclasses import replace

import numpy as np
import pyarrow.compute as pc

from cluster_sim.bounds import LARGEST_COUNT
from cluster_sim.errors import UserError
from cluster_sim.traces.json_columns import Field, Kind, longs_of, numbers_of, read_columns
from cluster_sim.traces.rows import TraceRows, plain_rows, take, with_warning
from cluster_sim.traces.text import TraceText

LARGEST_NS = 2**63 - 1
_COUNT = f"a whole number of tokens from 0 to {LARGEST_COUNT}"
START, PHASE = "metadata.request_start_ns", "metadata.benchmark_phase"
PROMPT, OUTPUT = "metrics.input_sequence_length.value", "metrics.output_sequence_length.value"
SESSION = "metadata.conversation_id"
FIELDS = (
    Field(START, Kind.whole, f"a whole number of ns from 0 to {LARGEST_NS}", high=LARGEST_NS),
    Field(PROMPT, Kind.count, _COUNT, optional=True),
    Field(OUTPUT, Kind.count, _COUNT, optional=True),
    Field(SESSION, Kind.label, "text or a whole number", optional=True),
    Field(PHASE, Kind.name, "a name", optional=True),
)
KEYS = ("metadata", "metrics")


def parse(text: TraceText) -> TraceRows:
    """The requests in the order of the file.

    Raises:
        UserError: a line that breaks a rule, or nothing but warm-up.
    """
    columns = read_columns(text, FIELDS)
    start_ns = longs_of(columns[START])
    rows = plain_rows(
        "aiperf records",
        (start_ns - start_ns.min()) / 1e9,
        longs_of(columns[PROMPT]),
        longs_of(columns[OUTPUT]),
        numbers_of(columns[SESSION]),
    )
    warm_up = np.asarray(pc.equal(columns[PHASE], "warmup").fill_null(False))
    if not warm_up.any():
        return rows
    if warm_up.all():
        rule, got = "a trace must hold at least one request", "only records of the warm-up phase"
        raise UserError(rule, got, str(text.path), "Choose another.")
    kept = take(rows, np.flatnonzero(~warm_up))
    kept = replace(kept, arrival_s=kept.arrival_s - kept.arrival_s.min())
    return with_warning(kept, f"{text.path}: left out {warm_up.sum()} records of aiperf's warm-up phase")
