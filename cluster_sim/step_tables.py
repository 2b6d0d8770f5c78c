"""From a bundle's grids to the engine's dense tables: CUDA-graph padding, launch gaps, and one drafter.

A step without a full graph is launched from the CPU layer by layer. The GPU loses a gap a layer, and waits
where it is faster than the CPU: such a step takes max(kernels + gaps, layers * CPU time per layer). A
drafter's pass likewise takes max(kernels, pass_launch_s).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cluster_sim.bundle.format import Bundle
from cluster_sim.config import CudagraphMode, DraftCost, EngineConfig, Method, SpeculationConfig
from cluster_sim.cudagraphs import capture_sizes, padded, uniform_sizes
from cluster_sim.errors import UserError
from cluster_sim.speculation.schedule import dense_lookup

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]


@dataclass(frozen=True)
class StepArrays:
    """Columns of engine.state.StepTime for one bundle, without leading axis; and what to tell the user."""

    dense_s: Floats  # [graph, tokens] graph 0: mixed batch; q: every request has q tokens
    head_s: Floats  # [rows]
    prefill_chunk_tokens: Floats
    prefill_history_tokens: Floats
    prefill_attention_s: Floats  # [chunk, history] the drafter's layers included
    decode_chunk_tokens: Floats
    decode_requests: Floats
    decode_kv_tokens: Floats
    decode_attention_s: Floats  # [query tokens, chunk, requests, kv]
    draft_first_s: Floats  # [tokens]
    draft_next_s: Floats  # [requests]
    draft_attention_s_per_kv_token: float
    host_s: float
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Limits:
    """What the tables must cover; `drafts` is 0 without speculation."""

    tokens: int
    requests: int
    drafts: int


def step_arrays(bundle: Bundle, engine: EngineConfig, speculation: SpeculationConfig) -> StepArrays:
    """Tables for a resolved engine (no None in its limits).

    Raises:
        UserError: the bundle has no cost for the drafter, and draft_cost is not zero.
    """
    limits = _limits(engine, speculation)
    sizes = _captured(bundle, engine, limits)
    prefill, decode = bundle.tables["prefill_attention"], bundle.tables["decode_attention"]
    decode_s, warnings = _decode_attention(bundle, limits)
    first_s, next_s, attention_s = _draft(bundle, speculation, limits, sizes)
    return StepArrays(
        dense_s=_dense(bundle, engine, speculation, limits, sizes),
        head_s=_on_grid(bundle, "head", np.arange(limits.requests * (1 + limits.drafts) + 1)),
        prefill_chunk_tokens=prefill.axes["chunk_tokens"].astype(np.float64),
        prefill_history_tokens=prefill.axes["history_tokens"].astype(np.float64),
        prefill_attention_s=prefill.time_s * _layers_with_drafter(bundle, speculation),
        decode_chunk_tokens=decode.axes["chunk_tokens"].astype(np.float64),
        decode_requests=decode.axes["requests"].astype(np.float64),
        decode_kv_tokens=decode.axes["kv_tokens"].astype(np.float64),
        decode_attention_s=decode_s,
        draft_first_s=first_s,
        draft_next_s=next_s,
        draft_attention_s_per_kv_token=attention_s,
        host_s=_parameter(bundle, "host_s") if engine.host_overhead_s is None else engine.host_overhead_s,
        warnings=warnings,
    )


def _limits(engine: EngineConfig, speculation: SpeculationConfig) -> Limits:
    drafts = 0 if speculation.method is Method.none else int(speculation.num_speculative_tokens or 0)
    return Limits(int(engine.max_num_scheduled_tokens or 0), int(engine.max_num_seqs or 0), drafts)


def _captured(bundle: Bundle, engine: EngineConfig, limits: Limits) -> Longs:
    """Captured graph sizes; none with enforce_eager."""
    if engine.cudagraph_mode is CudagraphMode.NONE:
        return np.zeros(0, np.int64)
    largest = int(_parameter(bundle, "max_cudagraph_capture_tokens"))
    return capture_sizes(limits.requests, limits.drafts, int(engine.max_num_batched_tokens or 0), largest)


def _dense(
    bundle: Bundle, engine: EngineConfig, speculation: SpeculationConfig, limits: Limits, sizes: Longs
) -> Floats:
    """[graph, tokens]: FULL graphs for captured query lengths, else as a mixed batch."""
    tokens = np.arange(limits.tokens + 1)
    mixed_s = _mixed(bundle, engine, sizes, tokens)
    table = np.tile(mixed_s, (2 + limits.drafts, 1))
    if engine.cudagraph_mode is CudagraphMode.FULL_AND_PIECEWISE:
        for query in _full_query_lengths(speculation, limits):
            size = padded(uniform_sizes(sizes, query), tokens)
            table[query] = np.where(size < 0, mixed_s, _on_grid(bundle, "dense", size))
    return table


def _mixed(bundle: Bundle, engine: EngineConfig, sizes: Longs, tokens: Longs) -> Floats:
    """PIECEWISE up to the largest captured size, padded; above it kernels launched one by one, unpadded."""
    layers = bundle.model["num_hidden_layers"]
    if engine.cudagraph_mode is CudagraphMode.NONE:
        launch_s, size = _parameter(bundle, "eager_layer_launch_s"), tokens
        overhead_s = np.zeros(len(tokens))
    else:
        launch_s = _parameter(bundle, "piecewise_layer_launch_s")
        fitting = padded(sizes, tokens)
        size = np.where(fitting < 0, tokens, fitting)
        overhead_s = np.where(fitting < 0, _parameter(bundle, "eager_overhead_s"), 0.0)
    kernels_s = _on_grid(bundle, "dense", size) + layers * _parameter(bundle, "piecewise_layer_gap_s")
    return np.asarray(np.maximum(kernels_s, layers * launch_s) + overhead_s)


def _full_query_lengths(speculation: SpeculationConfig, limits: Limits) -> list[int]:
    """1 + K for every K that the engine may schedule: the static one, or those of the schedule."""
    ranges = speculation.num_speculative_tokens_per_batch_size
    if limits.drafts == 0 or ranges is None:
        return [1 + limits.drafts]
    return [1 + int(drafts) for drafts in np.unique(dense_lookup(ranges, limits.requests, limits.drafts)[1:])]


def _decode_attention(bundle: Bundle, limits: Limits) -> tuple[Floats, tuple[str, ...]]:
    """[query tokens, ..]: a query length that the bundle lacks takes the nearest one that it has."""
    table = bundle.tables["decode_attention"]
    wanted, known = np.arange(2 + limits.drafts), table.axes["query_tokens"]
    nearest = np.abs(known[:, np.newaxis] - np.maximum(wanted, known[0])).argmin(axis=0)
    missing = sorted(set(range(1, 2 + limits.drafts)) - set(known.tolist()))
    if not missing:
        return table.time_s[nearest], ()
    lengths = ", ".join(map(str, missing))
    warning = f"bundle {bundle.name} has no attention with {lengths} query tokens: it uses the nearest length"
    return table.time_s[nearest], (warning,)


def _draft(
    bundle: Bundle, speculation: SpeculationConfig, limits: Limits, sizes: Longs
) -> tuple[Floats, Floats, float]:
    """First pass by tokens, further pass by requests, and attention per KV token."""
    tokens, requests = np.arange(limits.tokens + 1), np.arange(limits.requests + 1)
    if limits.drafts == 0 or speculation.draft_cost is DraftCost.zero:
        return np.zeros(len(tokens)), np.zeros(len(requests)), 0.0
    costs = _drafter(bundle, speculation)
    rows = np.minimum(-(-tokens // (1 + limits.drafts)), limits.requests)
    first = _pad(sizes, tokens)
    kernels_s = _of_drafter(bundle, "draft_first", speculation, first) + _of_drafter(
        bundle, "draft_head", speculation, rows
    )
    next_s = _of_drafter(bundle, "draft_next", speculation, _pad(sizes, requests))
    next_s += _of_drafter(bundle, "draft_head", speculation, requests)
    launch_s = costs["pass_launch_s"]
    return (
        costs["prepare_s"] + np.maximum(kernels_s, launch_s),
        np.maximum(next_s, launch_s),
        costs["attention_s_per_kv_token"],
    )


def _pad(sizes: Longs, counts: Longs) -> Longs:
    """Padded to the drafter's captured sizes, which are the target's; as they are where none fits."""
    size = padded(sizes, counts)
    return np.where(size < 0, counts, size)


def _drafter(bundle: Bundle, speculation: SpeculationConfig) -> dict[str, float]:
    name = speculation.method.name
    if name not in bundle.drafters:
        raise UserError(
            f"bundle {bundle.name} must hold the cost of the drafter",
            f"{name}; it has {', '.join(bundle.drafters) or 'none'}",
            "speculation.method",
            "Choose one of those, or take an upper bound with speculation.draft_cost=zero.",
        )
    return {key: parameter.value for key, parameter in bundle.drafters[name].items()}


def _layers_with_drafter(bundle: Bundle, speculation: SpeculationConfig) -> float:
    """How much more prefill attention there is with the drafter's layers, which see the same chunks."""
    if speculation.method is Method.none or speculation.draft_cost is DraftCost.zero:
        return 1.0
    layers = float(bundle.model["num_hidden_layers"])
    return 1.0 + _drafter(bundle, speculation)["num_hidden_layers"] / layers


def _parameter(bundle: Bundle, name: str) -> float:
    return float(bundle.parameters[name].value)


def _of_drafter(bundle: Bundle, name: str, speculation: SpeculationConfig, at: Longs) -> Floats:
    table = bundle.tables[name]
    drafters, axis = table.axes.values()
    return _interpolate(axis, table.time_s[drafters.tolist().index(speculation.method.name)], at)


def _on_grid(bundle: Bundle, name: str, at: Longs) -> Floats:
    table = bundle.tables[name]
    (axis,) = table.axes.values()
    return _interpolate(axis, table.time_s, at)


def _interpolate(axis: Longs, time_s: Floats, at: Longs) -> Floats:
    """Linear between points, as the first below it, along the last two above them."""
    inside = np.interp(at, axis, time_s)
    slope = (time_s[-1] - time_s[-2]) / (axis[-1] - axis[-2])
    return np.asarray(inside + np.maximum(at - axis[-1], 0) * slope)
