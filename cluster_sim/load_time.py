"""How much busy time an output token takes under a steady load, by the engine's own rules of time.

A request takes part in E steps: those of its prefill, those that verify its drafts, and the one that async
scheduling gives it after an end that was not foreseen (traffic.py). As many join as leave: of the B requests
of a step B / E start their prefill on average. Those of a step are each at any of their E places, so that

    j ~ Binomial(B, 1 / E)

of them bring a prompt of p tokens. What a step has no room for waits, and fills later ones: with room for c
prompts, a step has min(j, c) of them or, in as large a share of the steps as conserves the mean, c. A batch
whose prompts need more than the room of all steps cannot last. With T(B) for the mean step, a request of n
output tokens takes E T(B), which B of them share: seconds of steps per output token are

    E T(B) / (B n).

Requests are conserved over any run, whatever its queue does: its mean B, its E and its prompts per step obey
the same equation. Where the time of a step is an affine function of what is in it, the T of the mean B is
therefore the mean T of a run, however wide the spread of its batch sizes: the two may be compared (flips.py).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from cluster_sim.decode_time import Timing, clock, decode_batch, decode_steps_s
from cluster_sim.engine.after_schedule import Batch
from cluster_sim.engine.tables import Floats, Longs
from cluster_sim.traffic import Flags, Traffic

SPACING = 0.03  # relative, of the batch sizes whose mixed steps are timed; those between are interpolated
RAREST = 1e-5  # share of the steps; what is rarer is left out


class Load(NamedTuple):
    """What a step of `size` requests has to do, on average."""

    size: int
    drafts: int  # of each decode
    joining: float  # prompts
    room: float  # prompts that fit beside the decodes


def loaded_token_s(timing: Timing, lengths: Longs, traffic: Traffic) -> Floats:
    """Seconds of steps for one output token where a step has B requests, with lengths[B] drafts each.

    For B = 1 .. ; nan where such a batch cannot last, and for entry 0.
    """
    sizes, drafts, prompt_tokens = np.arange(1, len(lengths)), lengths[1:], traffic.prompt_tokens
    room_tokens = timing.most_tokens - sizes * (1 + drafts)
    prefill_steps = np.maximum(1.0, prompt_tokens / np.maximum(room_tokens, 1))
    steps = prefill_steps + traffic.verifications[drafts] + timing.is_async * traffic.unforeseen_ends[drafts]
    joining = sizes / steps
    room = (room_tokens + joining * prefill_steps * (1 + drafts)) / prompt_tokens
    lasts = (room_tokens > 0) & (joining < room)
    load = zip(sizes.tolist(), drafts.tolist(), joining.tolist(), room.tolist(), strict=True)
    step_s = _mean_steps_s(timing, lengths, traffic, [Load(*each) for each in load], lasts)
    return np.append(np.nan, np.where(lasts, steps * step_s / sizes / traffic.output_tokens, np.nan))


def prompts_beside(load: Load) -> tuple[Floats, Floats]:
    """Numbers of prompts that a step may have, and the share of the steps that have so many."""
    joining, room = load.joining, load.room
    chance = min(joining / load.size, 1.0 - 1e-12)
    counts = np.arange(load.size + 1.0)
    logs = np.concatenate(([0.0], np.cumsum(np.log(counts[1:]))))
    logs = logs[-1] - logs - logs[::-1] + counts * np.log(chance) + counts[::-1] * np.log1p(-chance)
    shares, served = np.exp(logs), np.minimum(counts, room)
    full = max(0.0, (joining - shares @ served) / (room - shares @ served))
    fits = counts < room
    shares = (1.0 - full) * np.append(shares[fits], shares[~fits].sum())
    shares[-1] += full
    return np.append(counts[fits], room), shares


def with_prompts(batch: Batch, requests: int, prefill_tokens: float, prompt_tokens: float) -> Batch:
    """`batch` with `prefill_tokens` of `requests` fresh prompts beside its decodes."""
    chunk = max(1, round(prefill_tokens))
    return batch._replace(
        tokens=batch.tokens + chunk,
        requests=batch.requests + requests,
        rows=batch.rows + requests,
        prefill_tokens=chunk,
        prefill_work=0.5 * prefill_tokens * prompt_tokens,
        longest_chunk_tokens=min(chunk, round(prompt_tokens)),
    )


def _mean_steps_s(
    timing: Timing, lengths: Longs, traffic: Traffic, loads: Sequence[Load], lasts: Flags
) -> Floats:
    """[B - 1]: mean seconds of a step."""
    alone_s = decode_steps_s(timing, lengths, traffic.kv_tokens)[1:]
    timed = np.flatnonzero(_are_timed(lengths[1:], lasts))
    if len(timed) == 0:
        return np.full(len(alone_s), np.nan)
    step_s = clock(timing)
    parts = np.array([_parts(step_s, timing.most_tokens, traffic, loads[place]) for place in timed.tolist()])
    without, mixed_s = (np.interp(np.arange(len(alone_s)), timed, part) for part in parts.T)
    return np.asarray(without * alone_s + mixed_s)


def _are_timed(drafts: Longs, lasts: Flags) -> Flags:
    """Of batch sizes from 1 on: every small one, others SPACING apart, and both ends of every range of K."""
    places = np.floor(np.log(np.arange(1, len(drafts) + 1)) / SPACING)
    kinds = np.where(lasts, drafts, -1)
    is_first, is_last = np.diff(kinds, prepend=-1) != 0, np.diff(kinds, append=-1) != 0
    return np.asarray(lasts & (is_first | is_last | (np.diff(places, prepend=-1.0) > 0)))


def _parts(
    step_s: Callable[[Batch, int], float], most_tokens: int, traffic: Traffic, load: Load
) -> tuple[float, float]:
    """The share of the steps without prefill, and what the others add to the mean seconds of a step."""
    without, mixed_s = 0.0, 0.0
    for prompts, share in zip(*(each.tolist() for each in prompts_beside(load)), strict=True):
        if prompts == 0.0:
            without = share
        elif share > RAREST:
            new = min(load.size, max(1, round(prompts)))
            batch = decode_batch(load.size - new, load.drafts, traffic.kv_tokens)
            tokens = min(prompts * traffic.prompt_tokens, float(most_tokens - batch.tokens))
            mixed = with_prompts(batch, new, tokens, traffic.prompt_tokens)
            mixed_s += share * step_s(mixed, load.drafts)
    return without, mixed_s
