"""Traffic: which requests arrive when, how long they are, and what content they share.

Two sources: Poisson arrivals with fixed or lognormal lengths, drawn, or a trace file, replayed. Draws are
functions of (seed, purpose, request): request r has the same lengths whatever the number of requests, the
rate, or the arm of a sweep, and its arrival is the same sum of unit gaps, divided by the rate, so that arms
and rates are compared on paired traffic.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from cluster_sim import draws
from cluster_sim.bounds import LARGEST_COUNT
from cluster_sim.config import WorkloadConfig
from cluster_sim.engine.kinds import Purpose
from cluster_sim.errors import UserError
from cluster_sim.lengths import draw_lengths, parse_lengths
from cluster_sim.traces import BLOCK_TOKENS, TraceRows, read_trace

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]
T = TypeVar("T")


@dataclass(frozen=True)
class Workload:
    """Requests in order of arrival; every column has one entry per request."""

    arrival_s: Floats  # [request] non-decreasing
    prompt_tokens: Longs  # [request] 1 or more
    output_tokens: Longs  # [request] 1 or more
    workload_class: Longs  # [request] index into class_names
    priority: Longs  # [request] lower first, as vLLM has it
    session: Longs  # [request] number of its conversation; -1: none
    content_start: Longs  # [request + 1] where a request's content_ids start; the last entry is their number
    content_ids: Longs  # one per leading block of known content; equal ids: equal prefix-cache keys
    class_names: tuple[str, ...]
    source: str  # one line: what made it
    recorded: bool  # from a trace
    warnings: tuple[str, ...]


def build_workload(
    config: WorkloadConfig, seed: int, block_size: int, hash_lookahead_tokens: int
) -> Workload:
    """The traffic of one simulation.

    `block_size` is the engine's, in tokens; `hash_lookahead_tokens` is how many tokens after a block its
    prefix-cache key covers too (1 for EAGLE in vLLM 0.33; ../shared/vllm-scheduler.md section 5). Both shape
    content_ids only.

    Raises:
        UserError: the settings contradict each other or hold no request, or the trace is not sound.
    """
    if config.trace is None:
        return _draw(config, seed)
    path = Path(config.trace).expanduser()
    return _replay(config, path, read_trace(path), block_size, hash_lookahead_tokens)


def _draw(config: WorkloadConfig, seed: int) -> Workload:
    rate = _needed(config.request_rate, "workload.request_rate")
    prompt = parse_lengths(_needed(config.prompt_tokens, "workload.prompt_tokens"), "workload.prompt_tokens")
    output = parse_lengths(_needed(config.output_tokens, "workload.output_tokens"), "workload.output_tokens")
    arrival_s = _poisson_arrivals(rate, config.requests, config.duration_s, seed)
    requests = len(arrival_s)
    return Workload(
        arrival_s=arrival_s,
        prompt_tokens=draw_lengths(prompt, seed, Purpose.prompt_tokens, requests),
        output_tokens=draw_lengths(output, seed, Purpose.output_tokens, requests),
        workload_class=np.zeros(requests, np.int64),
        priority=np.zeros(requests, np.int64),
        session=np.full(requests, -1),
        content_start=np.zeros(requests + 1, np.int64),
        content_ids=np.zeros(0, np.int64),
        class_names=("default",),
        source=f"poisson {rate:g} requests/s, seed {seed}",
        recorded=False,
        warnings=(),
    )


def _needed(value: T | None, key: str) -> T:
    if value is None:
        raise UserError(
            "traffic without a trace needs this value", "null", key, "Set it, or give workload.trace."
        )
    return value


def _poisson_arrivals(rate: float, requests: int | None, duration_s: float | None, seed: int) -> Floats:
    """Arrivals in s of the first `requests`, or of those before `duration_s`; whichever are fewer."""
    if duration_s is None:
        if requests is None:
            rule = "the number of requests must be bounded by workload.requests or workload.duration_s"
            raise UserError(rule, "null for both", "workload.requests", "Set one of them.")
        return _first_arrivals(rate, requests, seed)
    limit = LARGEST_COUNT if requests is None else requests
    expected = rate * duration_s
    if requests is None and expected > LARGEST_COUNT:
        rule = f"a simulation must have at most {LARGEST_COUNT} requests"
        got = f"about {expected:.3g}"
        raise UserError(
            rule, got, "workload.duration_s", "Lower the rate or the duration, or set workload.requests."
        )
    count = int(min(limit, expected + 6 * expected**0.5 + 16))  # enough but for 1 seed in 10^9
    arrival_s = _first_arrivals(rate, count, seed)
    while count < limit and arrival_s[-1] < duration_s:
        count = min(limit, 2 * count)
        arrival_s = _first_arrivals(rate, count, seed)
    arrival_s = arrival_s[arrival_s < duration_s]
    if arrival_s.size == 0:
        rule = "at least one request must arrive before workload.duration_s"
        raise UserError(rule, f"{duration_s:g} s at {rate:g} requests/s", "workload.duration_s", "Raise it.")
    return arrival_s


def _first_arrivals(rate: float, requests: int, seed: int) -> Floats:
    """A Poisson process: sums of exponential gaps. A longer one begins with the same arrivals."""
    return np.cumsum(draws.exponentials(seed, Purpose.arrivals, requests)) / rate


def _replay(
    config: WorkloadConfig, path: Path, rows: TraceRows, block_size: int, hash_lookahead_tokens: int
) -> Workload:
    """The trace's first workload.requests, rescaled to workload.request_rate, before workload.duration_s."""
    count = len(rows.arrival_s)
    if config.requests is not None:
        if config.requests > count:
            rule = f"a trace of {count} requests cannot give more"
            raise UserError(
                rule, config.requests, "workload.requests", f"Set it to {count} or less, or to null."
            )
        count = config.requests
    arrival_s = rows.arrival_s[:count] - rows.arrival_s[0]
    source = str(path)
    if config.request_rate is not None:
        arrival_s = _rescale(arrival_s, config.request_rate, path)
        source += f", rescaled to {config.request_rate:g} requests/s"
    if config.duration_s is not None:
        count = int(np.searchsorted(arrival_s, config.duration_s, side="left"))
    content_start, content_ids = _content_keys(rows, count, block_size, hash_lookahead_tokens)
    return Workload(
        arrival_s=arrival_s[:count],
        prompt_tokens=rows.prompt_tokens[:count],
        output_tokens=rows.output_tokens[:count],
        workload_class=rows.workload_class[:count],
        priority=rows.priority[:count],
        session=rows.session[:count],
        content_start=content_start,
        content_ids=content_ids,
        class_names=rows.class_names,
        source=source,
        recorded=True,
        warnings=rows.warnings,
    )


def _rescale(arrival_s: Floats, request_rate: float, path: Path) -> Floats:
    """The same pattern of arrivals at a mean rate, (requests - 1) / span, of `request_rate`."""
    span_s = float(arrival_s[-1])
    if span_s == 0:
        rule = "a trace must span some time to be rescaled to a rate"
        got = f"{len(arrival_s)} requests at one moment ({path})"
        raise UserError(rule, got, "workload.request_rate", "Set it to null, or use more of the trace.")
    return arrival_s * ((len(arrival_s) - 1) / span_s / request_rate)


def _content_keys(
    rows: TraceRows, requests: int, block_size: int, hash_lookahead_tokens: int
) -> tuple[Longs, Longs]:
    """Where each request's ids start, and the ids: of the blocks whose prefix-cache keys the trace tells.

    An id of the trace stands for all content up to the end of its block of 16 tokens. The key of the engine's
    block i covers the first (i + 1) * block_size + lookahead tokens; it is named after the trace block in
    which they end, and i:

        trace  |   id 7   |   id 8   |   id 9   |      block_size 16, lookahead 1:
        keys   |----------|x         |          |      block 0 is (8, 0), block 1 is (9, 1); block 2 needs a
               |----------|----------|x         |      token behind id 9, which nothing tells: it is private

    So equal ids are equal keys for certain. Where two requests part inside a trace block, every key that
    reaches into it counts as different, although its tokens may agree: a lookup never finds too much, and too
    little by at most one block (16 tokens where blocks are smaller).
    """
    stop = rows.block_start[: requests + 1]
    full = np.maximum(np.diff(stop) * BLOCK_TOKENS - hash_lookahead_tokens, 0) // block_size
    start = np.concatenate(([0], np.cumsum(full)))
    block = np.arange(start[-1]) - np.repeat(start[:-1], full)
    covered_tokens = (block + 1) * block_size + hash_lookahead_tokens
    last = np.repeat(stop[:-1], full) + (covered_tokens - 1) // BLOCK_TOKENS
    _, number = np.unique(rows.block_ids[last], return_inverse=True)
    keys_per_id = -(-BLOCK_TOKENS // block_size)  # as many blocks can end in one trace block
    return start, number * keys_per_id + block % keys_per_id
