"""Traffic: which requests arrive when, how long they are, and what content they share.

Two sources: requests that are drawn, or a trace file, replayed. Draws are functions of (seed, purpose,
request): request r has the same lengths whatever the number of requests, the rate, or the arm of a sweep, and
its arrival is the same sum of unit gaps, divided by the rate, so that arms and rates are compared on paired
traffic. The parts: arrivals.py, conversations.py, classes.py, lengths.py, content.py; traces/.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cluster_sim.arrivals import described
from cluster_sim.bounds import LARGEST_COUNT
from cluster_sim.classes import draw_classes
from cluster_sim.config import WorkloadConfig
from cluster_sim.content import draw_groups, drawn_keys, trace_keys
from cluster_sim.conversations import draw_schedule, grown
from cluster_sim.errors import UserError
from cluster_sim.traces import TraceRows, read_trace
from cluster_sim.traces.rows import take
from cluster_sim.waiting import clients_wait, draw_waiting

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]


@dataclass(frozen=True)
class Workload:
    """Requests in order of arrival, as far as it is known; every column has one entry per request."""

    arrival_s: Floats  # [request] non-decreasing; inf: its client sends it after an answer
    prompt_tokens: Longs  # [request] 1 or more
    output_tokens: Longs  # [request] 1 or more
    workload_class: Longs  # [request] index into class_names
    priority: Longs  # [request] lower first, as vLLM has it
    session: Longs  # [request] number of its conversation; -1: none
    content_start: Longs  # [request + 1] where a request's content_ids start; the last entry is their number
    content_ids: Longs  # one per leading block of known content; equal ids: equal prefix-cache keys
    class_names: tuple[str, ...]
    source: str  # one line: what made it
    may_reject: bool  # of a trace, or of conversations that grow: what can never be served counts as rejected
    warnings: tuple[str, ...]
    think_s: Floats  # [request] from its end to the next request of its client, if that waits
    clients: int  # that wait for answers; 0: none


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
        return _draw(config, seed, block_size, hash_lookahead_tokens)
    path = Path(config.trace).expanduser()
    return _replay(config, path, read_trace(path), block_size, hash_lookahead_tokens)


def _draw(config: WorkloadConfig, seed: int, block_size: int, hash_lookahead_tokens: int) -> Workload:
    schedule = (draw_waiting if clients_wait(config) else draw_schedule)(config, seed)
    streams, session = schedule.streams, schedule.session
    asked = draw_classes(config, seed, streams)
    group = draw_groups(config.shared_prefix, seed, streams.request)
    prefix_tokens = np.where(group >= 0, config.shared_prefix.tokens or 0, 0)
    prompt_tokens, known_tokens, talks = asked.prompt_tokens, prefix_tokens, config.turns.mean is not None
    if talks:
        prompt_tokens = grown(session, streams.turn, prompt_tokens, asked.output_tokens)
        known_tokens = prefix_tokens + prompt_tokens + asked.output_tokens
    prompt_tokens = prompt_tokens + prefix_tokens
    _check_countable(prompt_tokens)
    start, ids = drawn_keys(prefix_tokens, group, known_tokens, session, (block_size, hash_lookahead_tokens))
    return Workload(
        arrival_s=schedule.arrival_s,
        prompt_tokens=prompt_tokens,
        output_tokens=asked.output_tokens,
        workload_class=asked.workload_class,
        priority=asked.priority,
        session=session,
        content_start=start,
        content_ids=ids,
        class_names=asked.names,
        source=_source_of(config, seed),
        may_reject=talks,
        warnings=(),
        think_s=schedule.think_s,
        clients=schedule.clients,
    )


def _source_of(config: WorkloadConfig, seed: int) -> str:
    """What was drawn, in words."""
    words, prefix = [described(config)], config.shared_prefix
    if config.classes:
        words.append(f"classes {', '.join(sorted(config.classes))}")
    if prefix.tokens is not None:
        words.append(f"{prefix.groups} system prompts of {prefix.tokens} tokens in {prefix.share:.0%}")
    if config.turns.mean is not None:
        waits = ", each after the answer to the one before" if config.turns.after_answer else ""
        words.append(f"conversations of {config.turns.mean:g} turns on average{waits}")
    return ", ".join([*words, f"seed {seed}"])


def _check_countable(prompt_tokens: Longs) -> None:
    longest = int(prompt_tokens.max(initial=0))
    if longest > LARGEST_COUNT:
        rule, remedy = f"a prompt must have at most {LARGEST_COUNT} tokens", "Shorten it, or talk less."
        raise UserError(rule, longest, "workload.prompt_tokens", remedy)


def _replay(
    config: WorkloadConfig, path: Path, rows: TraceRows, block_size: int, hash_lookahead_tokens: int
) -> Workload:
    """The trace's first workload.requests, rescaled to workload.request_rate, before workload.duration_s."""
    rows, window = _within(config, path, rows)
    count = len(rows.arrival_s)
    if config.requests is not None:
        if config.requests > count:
            rule = f"a trace of {count} requests{window} cannot give more"
            raise UserError(
                rule, config.requests, "workload.requests", f"Set it to {count} or less, or to null."
            )
        count = config.requests
    arrival_s = rows.arrival_s[:count] - rows.arrival_s[0]
    source = f"{path} ({rows.format}){window}"
    if config.request_rate is not None:
        arrival_s = _rescale(arrival_s, config.request_rate, path)
        source += f", rescaled to {config.request_rate:g} requests/s"
    if config.duration_s is not None:
        count = int(np.searchsorted(arrival_s, config.duration_s, side="left"))
    content_start, content_ids = trace_keys(rows, count, block_size, hash_lookahead_tokens)
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
        may_reject=True,
        warnings=rows.warnings,
        think_s=np.zeros(count),
        clients=0,
    )


def _within(config: WorkloadConfig, path: Path, rows: TraceRows) -> tuple[TraceRows, str]:
    """The requests of the window [trace_start_s, trace_end_s) of the file's time, and what to call it."""
    start_s, end_s = config.trace_start_s, config.trace_end_s
    if start_s is None and end_s is None:
        return rows, ""
    since_s = rows.arrival_s - rows.arrival_s[0]
    low, high = start_s or 0.0, np.inf if end_s is None else end_s
    inside = np.flatnonzero((since_s >= low) & (since_s < high))
    words = f"from {low:g} s" + ("" if end_s is None else f" to {end_s:g} s")
    if inside.size == 0:
        rule = f"a window must hold at least one request of the trace's {since_s[-1]:g} s"
        key = "workload.trace_start_s" if start_s is not None else "workload.trace_end_s"
        raise UserError(rule, f"none {words} ({path})", key, "Move the window.")
    return take(rows, inside), f", {words}"


def _rescale(arrival_s: Floats, request_rate: float, path: Path) -> Floats:
    """The same pattern of arrivals at a mean rate, (requests - 1) / span, of `request_rate`."""
    span_s = float(arrival_s[-1])
    if span_s == 0:
        rule = "a trace must span some time to be rescaled to a rate"
        got = f"{len(arrival_s)} requests at one moment ({path})"
        raise UserError(rule, got, "workload.request_rate", "Set it to null, or use more of the trace.")
    return arrival_s * ((len(arrival_s) - 1) / span_s / request_rate)
