"""What is in a trace, in numbers: `python -m cluster_sim trace describe FILE`.

Rates count from the first arrival to the last; the busiest minute is the one of [0, 60), [60, 120), .. s with
most arrivals. The burstiness is the coefficient of variation (standard deviation / mean) of the gaps between
arrivals: 1 for a Poisson process. The best hit rate is what an infinite prefix cache that forgets nothing and
finishes every request before the next one would find, as a share of all prompt tokens, at the trace's own
blocks.
"""

from pathlib import Path
from typing import Any

import numpy as np

from cluster_sim.traces import TraceRows, read_trace
from cluster_sim.traces.rows import Floats, Longs

PERCENTS = (50, 90, 95, 99)
MINUTE_S = 60.0


def describe(path: Path) -> dict[str, Any]:
    """The facts of the trace at `path`: numbers, texts and lists, as JSON has them.

    Raises:
        UserError: it cannot be read, or is not sound.
    """
    rows = read_trace(path)
    return {
        "file": str(path),
        "format": rows.format,
        "requests": len(rows.arrival_s),
        **_times(rows.arrival_s),
        "prompt_tokens": _lengths(rows.prompt_tokens),
        "output_tokens": _lengths(rows.output_tokens),
        "classes": _classes(rows),
        "sessions": _sessions(rows.session),
        "content": _content(rows),
        "oddities": [*(text.removeprefix(f"{path}: ") for text in rows.warnings), *_oddities(rows)],
    }


def _times(arrival_s: Floats) -> dict[str, Any]:
    since_s = arrival_s - arrival_s[0]
    span_s, gaps_s = float(since_s[-1]), np.diff(since_s)
    if span_s == 0.0:
        return {"duration_s": 0.0, "rate_rps": None, "busiest_minute_rps": None, "gap_cv": None}
    in_minute = np.unique(np.floor(since_s / MINUTE_S), return_counts=True)[1]
    return {
        "duration_s": span_s,
        "rate_rps": len(gaps_s) / span_s,
        "busiest_minute_rps": int(in_minute.max()) / min(MINUTE_S, span_s),
        "gap_cv": float(gaps_s.std() / gaps_s.mean()),
    }


def _lengths(tokens: Longs) -> dict[str, Any]:
    quantiles = np.percentile(tokens, PERCENTS).tolist()
    return {
        "total": int(tokens.sum()),
        "mean": float(tokens.mean()),
        "min": int(tokens.min()),
        **{f"p{percent}": value for percent, value in zip(PERCENTS, quantiles, strict=True)},
        "max": int(tokens.max()),
    }


def _classes(rows: TraceRows) -> dict[str, int]:
    counts = np.bincount(rows.workload_class, minlength=len(rows.class_names))
    return {name: int(count) for name, count in zip(rows.class_names, counts, strict=True)}


def _sessions(session: Longs) -> dict[str, Any]:
    turns = np.unique(session[session >= 0], return_counts=True)[1]
    return {
        "number": len(turns),
        "requests": int(turns.sum()),
        "mean_turns": float(turns.mean()) if len(turns) else None,
        "max_turns": int(turns.max()) if len(turns) else None,
    }


def _content(rows: TraceRows) -> dict[str, Any]:
    """What the block ids say of shared prefixes; None where there are no ids."""
    if not len(rows.block_ids):
        return {"block_tokens": None, "best_hit_rate": None, "shared_start_share": None}
    counts = np.diff(rows.block_start)
    owner = np.repeat(np.arange(len(counts)), counts)
    block = np.arange(len(owner)) - rows.block_start[owner]
    in_prompt = np.minimum(rows.prompt_tokens, rows.known_tokens)[owner] - block * rows.block_tokens
    tokens = np.clip(in_prompt, 0, rows.block_tokens)
    is_new = np.zeros(len(owner), np.bool_)
    is_new[np.unique(rows.block_ids, return_index=True)[1]] = True
    begins_like_another = ~is_new & (block == 0) & (tokens > 0)
    return {
        "block_tokens": rows.block_tokens,
        "best_hit_rate": float(tokens[~is_new].sum() / rows.prompt_tokens.sum()),
        "shared_start_share": float(begins_like_another.sum() / len(counts)),
    }


def _oddities(rows: TraceRows) -> list[str]:
    together = int((np.diff(rows.arrival_s) == 0).sum())
    found = [f"{together:,} arrive at the very moment of the one before"] if together else []
    single = int((rows.output_tokens == 1).sum())
    if single:
        found.append(f"{single:,} have one output token")
    return found
