"""What every trace becomes: columns of requests, and the content of their blocks where that is known."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]

BLOCK_TOKENS = 16  # tokens that one block id stands for
DEFAULT_CLASS = "default"  # of requests that name none


@dataclass(frozen=True)
class TraceRows:
    """Requests of a trace; every column has one entry per request."""

    arrival_s: Floats  # [request] its zero is the trace's own
    prompt_tokens: Longs  # [request] 1 or more
    output_tokens: Longs  # [request] 1 or more
    workload_class: Longs  # [request] index into class_names
    priority: Longs  # [request] lower first
    session: Longs  # [request] number of its conversation; -1: none
    block_start: Longs  # [request + 1] where a request's block_ids start; the last entry is their number
    block_ids: Longs  # one per full block of known content; equal ids: equal content up to the block's end
    class_names: tuple[str, ...]
    warnings: tuple[str, ...]


def sort_by_arrival(rows: TraceRows, path: Path) -> TraceRows:
    """`rows` in order of arrival, ties as they are, with a warning where that changes them."""
    early = int((np.diff(rows.arrival_s) < 0).sum())
    if early == 0:
        return rows
    order = np.argsort(rows.arrival_s, kind="stable")
    lengths = np.diff(rows.block_start)[order]
    start = np.concatenate(([0], np.cumsum(lengths)))
    entries = np.repeat(rows.block_start[order] - start[:-1], lengths) + np.arange(start[-1])
    times = "once" if early == 1 else f"{early} times"
    return replace(
        rows,
        arrival_s=rows.arrival_s[order],
        prompt_tokens=rows.prompt_tokens[order],
        output_tokens=rows.output_tokens[order],
        workload_class=rows.workload_class[order],
        priority=rows.priority[order],
        session=rows.session[order],
        block_start=start,
        block_ids=rows.block_ids[entries],
        warnings=(*rows.warnings, f"{path}: a request precedes the one before it {times}; sorted by arrival"),
    )
