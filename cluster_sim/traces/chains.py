"""Blocks of known content, numbered so that equal numbers mean equal content from the request's start.

Other tools' ids may stand for a block's own content alone (vLLM's timed_trace) or for all up to its end
(Mooncake); numbering whole chains is right for both. Ids that stand for whole chains already are kept.
"""

from dataclasses import replace

import numpy as np

from cluster_sim.traces.rows import Longs, TraceRows

DENSE = 4  # ids up to so many times their number are looked up in a table
MOST_PAIRS = 2**63 - 1  # of a chain and an id: each must have a number of its own


def with_content(rows: TraceRows, start: Longs, ids: Longs, block_tokens: int) -> TraceRows:
    """`rows` whose prompts begin with the blocks `ids`, of `block_tokens` each but where a prompt ends."""
    return replace(
        rows,
        block_start=start,
        block_ids=chained(start, ids),
        known_tokens=np.minimum(rows.prompt_tokens, np.diff(start) * block_tokens),
        block_tokens=block_tokens,
    )


def chained(start: Longs, ids: Longs) -> Longs:
    """A number for every entry of `ids`: the same where this and all ids before it in its request agree.

    `start` [request + 1] says where the ids of each request begin.
    """
    ranks, distinct, made = ids, int(ids.max(initial=-1)) + 1, 0
    if distinct <= DENSE * len(ids) and _are_chains(start, ids, distinct):
        return ids
    if distinct * len(ids) > MOST_PAIRS:
        values, ranks = np.unique(ids, return_inverse=True)
        distinct = len(values)
    lengths = np.diff(start)
    alive = np.flatnonzero(lengths > 0)
    chain = np.zeros(len(lengths), np.int64)  # [request] the number of its last block so far
    numbers = np.empty(len(ids), np.int64)
    for depth in range(int(lengths.max(initial=0))):
        alive = alive[lengths[alive] > depth]
        entries = start[alive] + depth
        pairs, place = np.unique(chain[alive] * distinct + ranks[entries], return_inverse=True)
        chain[alive] = numbers[entries] = made + place
        made += len(pairs)
    return numbers


def _are_chains(start: Longs, ids: Longs, distinct: int) -> bool:
    """Whether each of the ids, all below `distinct`, follows the same one wherever it stands, or none."""
    before = np.empty_like(ids)
    before[1:] = ids[:-1]
    before[start[:-1][np.diff(start) > 0]] = -1
    follows = np.empty(distinct, np.int64)
    follows[ids] = before
    return bool(np.array_equal(follows[ids], before))
