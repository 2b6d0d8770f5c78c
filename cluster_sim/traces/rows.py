"""What every trace becomes: columns of requests, and the content of their blocks where that is known."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cluster_sim.errors import UserError

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]
Flags = NDArray[np.bool_]

BLOCK_TOKENS = 16  # tokens that one block id stands for in this tool's own traces
DEFAULT_CLASS = "default"  # of requests that name none


@dataclass(frozen=True)
class TraceRows:
    """Requests of a trace; every column has one entry per request."""

    format: str  # what it was read as, in words
    arrival_s: Floats  # [request] its zero is the trace's own
    prompt_tokens: Longs  # [request] 1 or more; 0 only before leave_out
    output_tokens: Longs  # [request] 1 or more; 0 only before leave_out
    workload_class: Longs  # [request] index into class_names
    priority: Longs  # [request] lower first
    session: Longs  # [request] number of its conversation; -1: none
    block_start: Longs  # [request + 1] where a request's block_ids start; the last entry is their number
    block_ids: Longs  # one per block of known content; equal ids: equal content up to the block's end
    known_tokens: Longs  # [request] tokens whose content the ids tell: the last block may be cut by them
    block_tokens: int  # tokens that one id stands for
    class_names: tuple[str, ...]
    warnings: tuple[str, ...]


def plain_rows(
    words: str, arrival_s: Floats, prompt_tokens: Longs, output_tokens: Longs, session: Longs | None = None
) -> TraceRows:
    """Requests of one class, of unknown content; `words` name the format."""
    requests = len(arrival_s)
    return TraceRows(
        format=words,
        arrival_s=arrival_s,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        workload_class=np.zeros(requests, np.int64),
        priority=np.zeros(requests, np.int64),
        session=np.full(requests, -1) if session is None else session,
        block_start=np.zeros(requests + 1, np.int64),
        block_ids=np.zeros(0, np.int64),
        known_tokens=np.zeros(requests, np.int64),
        block_tokens=BLOCK_TOKENS,
        class_names=(DEFAULT_CLASS,),
        warnings=(),
    )


def leave_out(rows: TraceRows, path: Path) -> TraceRows:
    """`rows` without those that nothing can serve, without prompt or output; a warning counts them.

    Raises:
        UserError: nothing is left.
    """
    no_prompt, no_output = rows.prompt_tokens == 0, rows.output_tokens == 0
    kept = ~(no_prompt | no_output)
    if kept.all():
        return rows
    both = "either" if np.any(no_prompt != no_output) else "prompt and output tokens"
    parts = [
        f"{count} without {what}"
        for count, what in (
            (int((no_prompt & ~no_output).sum()), "prompt tokens"),
            (int((no_output & ~no_prompt).sum()), "output tokens"),
            (int((no_prompt & no_output).sum()), both),
        )
        if count
    ]
    words = f"{', '.join(parts)}, of {len(kept)} requests"
    if not kept.any():
        rule = "a trace must hold at least one request with prompt and output tokens"
        raise UserError(rule, words, str(path), "Choose another.")
    return with_warning(take(rows, np.flatnonzero(kept)), f"{path}: left out {words}")


def sort_by_arrival(rows: TraceRows, path: Path) -> TraceRows:
    """`rows` in order of arrival, ties as they are, with a warning where that changes them."""
    early = int((np.diff(rows.arrival_s) < 0).sum())
    if early == 0:
        return rows
    times = "once" if early == 1 else f"{early} times"
    ordered = take(rows, np.argsort(rows.arrival_s, kind="stable"))
    return with_warning(ordered, f"{path}: a request precedes the one before it {times}; sorted by arrival")


def take(rows: TraceRows, chosen: Longs) -> TraceRows:
    """The requests numbered `chosen`, in that order."""
    lengths = np.diff(rows.block_start)[chosen]
    start = np.concatenate(([0], np.cumsum(lengths)))
    entries = np.repeat(rows.block_start[chosen] - start[:-1], lengths) + np.arange(start[-1])
    return replace(
        rows,
        arrival_s=rows.arrival_s[chosen],
        prompt_tokens=rows.prompt_tokens[chosen],
        output_tokens=rows.output_tokens[chosen],
        workload_class=rows.workload_class[chosen],
        priority=rows.priority[chosen],
        session=rows.session[chosen],
        block_start=start,
        block_ids=rows.block_ids[entries],
        known_tokens=rows.known_tokens[chosen],
    )


def with_warning(rows: TraceRows, warning: str) -> TraceRows:
    """The same requests, and one more thing to say of them."""
    return replace(rows, warnings=(*rows.warnings, warning))
