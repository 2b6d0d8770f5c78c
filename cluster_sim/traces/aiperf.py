"""aiperf's profile_export.jsonl: one record per request, metadata and metrics with their units.

The start of a request is its arrival. Its session is metadata.x_correlation_id, one run of a conversation:
conversation_id names an entry of the data set, which many may share. Records of the warm-up phase are left
out and counted; those that failed have no output tokens, or were cancelled after some, which then count. The
first releases (2025) have timestamp_ns and credit_phase for request_start_ns and benchmark_phase.
"""

from dataclasses import replace

import numpy as np
import pyarrow.compute as pc

from cluster_sim.bounds import LARGEST_COUNT
from cluster_sim.errors import UserError
from cluster_sim.traces.json_columns import (
    Field,
    Kind,
    first_object,
    longs_of,
    numbers_of,
    read_columns,
)
from cluster_sim.traces.rows import TraceRows, plain_rows, take, with_warning
from cluster_sim.traces.text import TraceText

LARGEST_NS = 2**63 - 1
_COUNT = f"a whole number of tokens from 0 to {LARGEST_COUNT}"
START, PHASE = "request_start_ns", "benchmark_phase"
FIRST_START, FIRST_PHASE = "timestamp_ns", "credit_phase"
PROMPT, OUTPUT = "metrics.input_sequence_length.value", "metrics.output_sequence_length.value"
RUN, ENTRY = "metadata.x_correlation_id", "metadata.conversation_id"
KEYS = ("metadata", "metrics")


def parse(text: TraceText) -> TraceRows:
    """The requests in the order of the file.

    Raises:
        UserError: a line that breaks a rule, or nothing but warm-up.
    """
    start, phase = _names(text)
    columns = read_columns(text, _fields(start, phase))
    start_ns = longs_of(columns[start])
    rows = plain_rows(
        "aiperf records",
        (start_ns - start_ns.min()) / 1e9,
        longs_of(columns[PROMPT]),
        longs_of(columns[OUTPUT]),
        numbers_of(pc.coalesce(columns[RUN], columns[ENTRY])),
    )
    warm_up = np.asarray(pc.equal(columns[phase], "warmup").fill_null(False))
    if not warm_up.any():
        return rows
    if warm_up.all():
        rule, got = "a trace must hold at least one request", "only records of the warm-up phase"
        raise UserError(rule, got, str(text.path), "Choose another.")
    kept = take(rows, np.flatnonzero(~warm_up))
    kept = replace(kept, arrival_s=kept.arrival_s - kept.arrival_s.min())
    left_out = f"{text.path}: left out {warm_up.sum()} of {len(warm_up)} records, of aiperf's warm-up phase"
    return with_warning(kept, left_out)


def _names(text: TraceText) -> tuple[str, str]:
    """Where the records have their start and their phase."""
    metadata = (first_object(text) or {}).get("metadata")
    is_first = isinstance(metadata, dict) and FIRST_START in metadata and START not in metadata
    start, phase = (FIRST_START, FIRST_PHASE) if is_first else (START, PHASE)
    return f"metadata.{start}", f"metadata.{phase}"


def _fields(start: str, phase: str) -> tuple[Field, ...]:
    label = "text or a whole number"
    return (
        Field(start, Kind.whole, f"a whole number of ns from 0 to {LARGEST_NS}", high=LARGEST_NS),
        Field(PROMPT, Kind.count, _COUNT, optional=True),
        Field(OUTPUT, Kind.count, _COUNT, optional=True),
        Field(RUN, Kind.label, label, optional=True),
        Field(ENTRY, Kind.label, label, optional=True),
        Field(phase, Kind.name, "a name", optional=True),
    )
