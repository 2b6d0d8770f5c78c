"""What requests share: the prefix-cache keys of the engine's blocks, from the content that is known.

Equal ids are equal keys for certain: a lookup never finds too much.
"""

import numpy as np
from numpy.typing import NDArray

from cluster_sim import draws
from cluster_sim.config import SharedPrefixConfig
from cluster_sim.engine.kinds import Purpose
from cluster_sim.traces import TraceRows

Longs = NDArray[np.int64]


def num_keys(known_tokens: Longs, block_size: int, hash_lookahead_tokens: int) -> Longs:
    """[request]: leading blocks of the engine whose keys `known_tokens` tell.

    A key covers its block and `hash_lookahead_tokens` after it.
    """
    return np.asarray(np.maximum(known_tokens - hash_lookahead_tokens, 0) // block_size, np.int64)


def starts_of(counts: Longs) -> Longs:
    """[request + 1]: where the entries of each request start; the last is their number."""
    return np.concatenate(([0], np.cumsum(counts)))


def numbered(ids: Longs) -> Longs:
    """The same ids as numbers from 0 on: equal where they were equal."""
    return np.asarray(np.unique(ids, return_inverse=True)[1], np.int64)


def trace_keys(
    rows: TraceRows, requests: int, block_size: int, hash_lookahead_tokens: int
) -> tuple[Longs, Longs]:
    """Where each request's ids start, and the ids: of the blocks whose prefix-cache keys the trace tells.

    An id of the trace stands for all content up to the end of its block of rows.block_tokens. The key of the
    engine's block i covers the first (i + 1) * block_size + lookahead tokens; it is named after the trace
    block in which they end, and i. For blocks of 16 tokens:

        trace  |   id 7   |   id 8   |   id 9   |      block_size 16, lookahead 1:
        keys   |----------|x         |          |      block 0 is (8, 0), block 1 is (9, 1); block 2 needs a
               |----------|----------|x         |      token behind id 9, which nothing tells: it is private

    So equal ids are equal keys for certain. Where two requests part inside a trace block, every key that
    reaches into it counts as different, although its tokens may agree: a lookup never finds too much, and too
    little by at most one trace block.
    """
    stop = rows.block_start[: requests + 1]
    full = num_keys(rows.known_tokens[:requests], block_size, hash_lookahead_tokens)
    start = starts_of(full)
    block = np.arange(start[-1]) - np.repeat(start[:-1], full)
    covered_tokens = (block + 1) * block_size + hash_lookahead_tokens
    last = np.repeat(stop[:-1], full) + (covered_tokens - 1) // rows.block_tokens
    _, number = np.unique(rows.block_ids[last], return_inverse=True)
    keys_per_id = -(-rows.block_tokens // block_size)  # as many blocks can end in one trace block
    return start, number * keys_per_id + block % keys_per_id


def draw_groups(prefix: SharedPrefixConfig, seed: int, requests: Longs) -> Longs:
    """The number of each request's system prompt; -1: it has none. `requests` say whose draws they take."""
    if prefix.tokens is None:
        return np.full(len(requests), -1)
    has_one, which = (draws.uniforms_of(seed, Purpose.prefix_group, requests, n) for n in range(2))
    return np.where(has_one < prefix.share, np.floor(which * prefix.groups), -1).astype(np.int64)


def drawn_keys(
    prefix_tokens: Longs, group: Longs, known_tokens: Longs, session: Longs, key_tokens: tuple[int, int]
) -> tuple[Longs, Longs]:
    """Where each drawn request's ids start, and the ids.

    Of its first `known_tokens` the first `prefix_tokens` are those of its system prompt `group`, and the rest
    those of its conversation `session`. `key_tokens`: the engine's block size, and the tokens after a block
    that its key covers too; a key that reaches out of the system prompt is the conversation's.
    """
    block_size, hash_lookahead_tokens = key_tokens
    counts = num_keys(known_tokens, block_size, hash_lookahead_tokens)
    start = starts_of(counts)
    owner = np.repeat(np.arange(len(counts)), counts)
    block = np.arange(start[-1]) - start[owner]
    is_shared = (block + 1) * block_size + hash_lookahead_tokens <= prefix_tokens[owner]
    line = np.where(is_shared, group[owner], group.max(initial=-1) + 1 + session[owner])
    return start, line * int(counts.max(initial=0)) + block
