"""Which CUDA graph a step runs in, and to how many tokens it is padded.

Source: vLLM 0.33.0, ../shared/vllm-scheduler.md section 8.
"""

import numpy as np
from numpy.typing import NDArray

Longs = NDArray[np.int64]


def capture_sizes(max_num_seqs: int, drafts: int, max_num_batched_tokens: int, largest: int) -> Longs:
    """Captured sizes in tokens, rising: 1, 2, 4, by 8 to 248, by 16 from 256, and max_num_batched_tokens.

    None exceeds min(max_num_seqs * (1 + drafts) * 2, largest, max_num_batched_tokens).
    """
    limit = min(max_num_seqs * (1 + drafts) * 2, largest, max_num_batched_tokens)
    sizes = _staircase(limit)
    if max_num_batched_tokens == limit:
        sizes = np.append(sizes, limit)
    return np.unique(sizes)


def uniform_sizes(sizes: Longs, query_tokens: int) -> Longs:
    """Sizes of FULL graphs in which every request has `query_tokens`, rising, at most the largest of `sizes`.

    They are `sizes` rounded up to whole requests, and 1, 2, 4, by 8, by 16 requests times the query length.
    """
    limit = int(sizes[-1])
    rounded = -(-sizes // query_tokens) * query_tokens
    by_requests = _staircase(limit // query_tokens) * query_tokens
    both = np.unique(np.concatenate([rounded, by_requests]))
    return both[both <= limit]


def padded(sizes: Longs, tokens: Longs) -> Longs:
    """The smallest of `sizes` that holds `tokens`; -1 where none does."""
    place = np.searchsorted(sizes, tokens)
    return np.where(place < len(sizes), np.append(sizes, -1)[place], -1)


def _staircase(limit: int) -> Longs:
    sizes = np.concatenate([[1, 2, 4], np.arange(8, 256, 8), np.arange(256, max(limit, 256) + 1, 16)])
    return sizes[sizes <= limit].astype(np.int64)
