"""How long a step of decodes alone takes, and what drafting gains there: by the engine's own rules of time.

A uniform decode batch: B requests, each with K drafts to verify and kv tokens of context. Its step takes

    synchronous   host + target(B, K) + drafter(B, K)
    asynchronous  max(host, target(B, K) + drafter(B, K))

and yields B AL(K) tokens, AL(K) = 1 + sum of m_i. The speed-up over no drafter at all is

    S(B, K) = AL(K) / t(B, K) * t(B, off)                     (../shared/spec-decode-facts.md D3 and D6)

at one batch size and without prefills (load_time.py: with them). K = 0 is not `off`: the drafter still pays
its first pass.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np

from cluster_sim.engine import step_time
from cluster_sim.engine.after_schedule import Batch
from cluster_sim.engine.rules import Drafting, Rules, StepTime
from cluster_sim.engine.state import Step, World
from cluster_sim.engine.tables import Floats, Longs

Steps = dict[tuple[int, int], Step]  # rank, slot


@dataclass(frozen=True)
class Timing:
    """An instance's step times and limits under one setting of its drafter."""

    times: StepTime
    has_drafter: bool
    is_async: bool  # the host works ahead of the GPU
    ranks: int  # that step together; each has the whole batch
    most_tokens: int  # of a step


class StepParts(NamedTuple):
    """Of a step, s; `target_s` holds its attention and its head."""

    target_s: float
    attention_s: float
    head_s: float
    draft_s: float
    host_s: float  # that the GPU waits for


class _Steps(NamedTuple):
    """All that step_time.target_s reads of a World; rows as objects: Python reads them faster than tables."""

    steps: Steps


class _Times(NamedTuple):
    """All that it reads of Rules."""

    step_time: StepTime


def decode_steps_s(timing: Timing, lengths: Longs, kv_tokens: float) -> Floats:
    """Seconds in which B requests decode once with lengths[B] drafts each, for B = 1 .. ; entry 0 is nan.

    Each has `kv_tokens` of context. Where a step has no room for all of them, they take turns.
    """
    step_s = clock(timing)
    seconds = np.full(len(lengths), np.nan)
    for size in range(1, len(lengths)):
        drafts = int(lengths[size])
        room = min(size, max(1, timing.most_tokens // (1 + drafts)))
        seconds[size] = step_s(decode_batch(room, drafts, kv_tokens), drafts) * size / room
    return seconds


def decode_batch(requests: int, drafts: int, kv_tokens: float) -> Batch:
    """The step in which each of `requests` has `drafts` to verify, at `kv_tokens` of context."""
    tokens, past = requests * (1 + drafts), kv_tokens + drafts
    return Batch(
        tokens=tokens,
        requests=requests,
        rows=tokens,
        prefill_tokens=0,
        prefill_work=0.0,
        longest_chunk_tokens=0,
        decodes=requests,
        decode_kv_tokens=round(requests * past),
        longest_kv_tokens=round(past),
        query_tokens=1 + drafts,
    )


def clock(timing: Timing) -> Callable[[Batch, int], float]:
    """What tells the seconds of a step from the batch of each rank and the drafts proposed behind it."""
    steps, drafting = _empty_steps(timing)
    return lambda batch, drafts: _step_s(timing, drafting, steps, batch, drafts)


def clock_of_parts(timing: Timing) -> Callable[[Batch, int], StepParts]:
    """The same for what the step is made of."""
    steps, drafting = _empty_steps(timing)
    return lambda batch, drafts: _parts(timing, drafting, steps, batch, drafts)


def _empty_steps(timing: Timing) -> tuple[Steps, Drafting]:
    drafting = Drafting()
    drafting.num_speculative_tokens = int(timing.has_drafter)
    return {(rank, 0): Step() for rank in range(timing.ranks)}, drafting


def _step_s(timing: Timing, drafting: Drafting, steps: Steps, batch: Batch, drafts: int) -> float:
    gpu_s, host_s = _target_s(timing, drafting, steps, batch, drafts) + steps[0, 0].draft_s, _host_s(timing)
    return float(max(gpu_s, host_s) if timing.is_async else gpu_s + host_s)


def _parts(timing: Timing, drafting: Drafting, steps: Steps, batch: Batch, drafts: int) -> StepParts:
    target_s, host_s = _target_s(timing, drafting, steps, batch, drafts), _host_s(timing)
    step = steps[0, 0]
    waits_s = max(0.0, host_s - target_s - step.draft_s) if timing.is_async else host_s
    return StepParts(
        float(target_s), float(step.attention_s), float(step.head_s), float(step.draft_s), waits_s
    )


def _host_s(timing: Timing) -> float:
    return float(timing.times.host_s[0])


def _target_s(timing: Timing, drafting: Drafting, steps: Steps, batch: Batch, drafts: int) -> float:
    """GPU time of the target; the rows of `steps` hold what the ranks' own parts take."""
    for rank in range(timing.ranks):
        step = steps[rank, 0]
        step.num_tokens, step.uniform_tokens = batch.tokens, 0 if batch.prefill_tokens else batch.query_tokens
        step.draft_length, step.skips_drafts = drafts, False
        step_time.time_requests(timing.times, drafting, step, rank, batch)
    world, rules = cast(World, _Steps(steps)), cast(Rules, _Times(timing.times))
    return step_time.target_s(world, rules, 0, timing.ranks, 0)
