"""From a bundle's grids to the engine's dense tables: CUDA-graph padding, launch gaps, experts, one drafter.

A step without a full graph is launched from the CPU layer by layer. The GPU loses a gap a layer, and waits
where it is faster than the CPU: such a step takes max(kernels + gaps, layers * CPU time per layer). What a
drafter takes is in draft_cost.py.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cluster_sim.bundle.format import ALL_REDUCE, DECODE_SKEW, Bundle
from cluster_sim.config import CudagraphMode, DraftCost, EngineConfig, Method, SpeculationConfig
from cluster_sim.cudagraphs import capture_sizes, padded, uniform_sizes
from cluster_sim.draft_cost import DraftTables, draft_arrays, of_bundle
from cluster_sim.errors import UserError
from cluster_sim.expert_tables import Ranks, experts_s, has_experts
from cluster_sim.speculation.requirements import uses_v2_runner
from cluster_sim.speculation.schedule import dense_lookup

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]
ALONE = Ranks()


@dataclass(frozen=True)
class StepArrays:
    """Columns of engine.rules.StepTime for one bundle, without leading axis; and what to tell the user."""

    captured_tokens: int
    dense_s: Floats  # [graph, tokens] 0: mixed batch; q: every request has q tokens; last: no graph
    experts_s: Floats  # [tokens of all ranks]; a single zero without lockstep
    head_s: Floats  # [rows]
    prefill_chunk_tokens: Floats
    prefill_history_tokens: Floats
    prefill_attention_s: Floats  # [chunk, history] the drafter's layers included
    decode_chunk_tokens: Floats
    decode_requests: Floats
    decode_kv_tokens: Floats
    decode_attention_s: Floats  # [query tokens, chunk, requests, kv]
    decode_skew: Floats  # [decodes]
    draft_first_s: Floats  # [tokens]
    draft_more_s: Floats  # [draft length, requests]
    draft_kv_s: Floats  # [draft length]
    host_s: float
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Setting:
    """One bundle under one engine; what its tables must cover and how they are padded."""

    bundle: Bundle
    engine: EngineConfig
    speculation: SpeculationConfig
    ranks: Ranks

    @property
    def tokens(self) -> int:
        """Most tokens of a step."""
        return int(self.engine.max_num_scheduled_tokens or 0)

    @property
    def requests(self) -> int:
        """Most requests of a step."""
        return int(self.engine.max_num_seqs or 0)

    @property
    def drafts(self) -> int:
        """Longest draft; 0 without speculation."""
        speculation = self.speculation
        return 0 if speculation.method is Method.none else int(speculation.num_speculative_tokens or 0)

    @property
    def captured(self) -> Longs:
        """Captured graph sizes; none with enforce_eager."""
        if self.engine.cudagraph_mode is CudagraphMode.NONE:
            return np.zeros(0, np.int64)
        largest = int(self.parameter("max_cudagraph_capture_tokens"))
        budget = int(self.engine.max_num_batched_tokens or 0)
        return capture_sizes(self.requests, self.drafts, budget, largest)

    @property
    def has_full_graphs(self) -> bool:
        """The V1 runner lowers the mode to PIECEWISE under a schedule."""
        by_size = self.speculation.num_speculative_tokens_per_batch_size
        is_lowered = by_size is not None and not uses_v2_runner(self.engine, self.speculation.method)
        return self.engine.cudagraph_mode is CudagraphMode.FULL_AND_PIECEWISE and not is_lowered

    def parameter(self, name: str) -> float:
        """A parameter of the bundle."""
        return float(self.bundle.parameters[name].value)

    def table(self, name: str, at: Longs) -> Floats:
        """A table of one axis: linear between points, as the first below it, along the last two above."""
        table = self.bundle.tables[name]
        (axis,) = table.axes.values()
        inside = np.interp(at, axis, table.time_s)
        slope = (table.time_s[-1] - table.time_s[-2]) / (axis[-1] - axis[-2])
        return np.asarray(inside + np.maximum(at - axis[-1], 0) * slope)


def step_arrays(
    bundle: Bundle,
    engine: EngineConfig,
    speculation: SpeculationConfig,
    ranks: Ranks = ALONE,
    drafter: DraftTables | None = None,
) -> StepArrays:
    """Tables for a resolved engine (no None in its limits); `drafter` stands in where the bundle has none.

    Raises:
        UserError: the drafter has no cost, and it was neither given nor waived.
    """
    setting = Setting(bundle, engine, speculation, ranks)
    drafter = of_bundle(bundle, speculation.method) or drafter
    _check_drafter(setting, drafter)
    prefill, decode = bundle.tables["prefill_attention"], bundle.tables["decode_attention"]
    decode_s, warnings = _decode_attention(setting)
    counts = (setting.tokens, setting.requests, setting.drafts)
    draft = draft_arrays(drafter, speculation, counts, setting.captured)
    host_s = engine.host_overhead_s
    return StepArrays(
        captured_tokens=int(setting.captured.max(initial=0)),
        dense_s=_dense(setting),
        experts_s=_experts_in_lockstep(setting),
        head_s=setting.table("head", np.arange(setting.requests * (1 + setting.drafts) + 1)),
        prefill_chunk_tokens=prefill.axes["chunk_tokens"].astype(np.float64),
        prefill_history_tokens=prefill.axes["history_tokens"].astype(np.float64),
        prefill_attention_s=prefill.time_s * _with_drafter(setting, drafter),
        decode_chunk_tokens=decode.axes["chunk_tokens"].astype(np.float64),
        decode_requests=decode.axes["requests"].astype(np.float64),
        decode_kv_tokens=decode.axes["kv_tokens"].astype(np.float64),
        decode_attention_s=decode_s,
        decode_skew=_decode_skew(setting),
        draft_first_s=draft.first_s,
        draft_more_s=draft.more_s,
        draft_kv_s=draft.kv_s,
        host_s=setting.parameter("host_s") if host_s is None else host_s,
        warnings=warnings,
    )


def _check_drafter(setting: Setting, drafter: DraftTables | None) -> None:
    if setting.drafts and setting.speculation.draft_cost is DraftCost.bundle and drafter is None:
        raise UserError(
            f"bundle {setting.bundle.name} must hold the cost of the drafter",
            f"{setting.speculation.method.name}; it has {', '.join(setting.bundle.drafters) or 'none'}",
            "speculation.method",
            "Choose one of those, give speculation.draft_cost=given and draft_pass_s, or take an upper bound "
            "with speculation.draft_cost=zero.",
        )


def _dense(setting: Setting) -> Floats:
    """[graph, tokens]: FULL graphs for captured query lengths, else as a mixed batch; the last: no graph."""
    tokens = np.arange(setting.tokens + 1)
    eager_s = _eager(setting, tokens)
    piecewise = padded(setting.captured, tokens)
    launch_s = setting.parameter("piecewise_layer_launch_s")
    captured_s = _launched(setting, _kernels(setting, np.maximum(piecewise, 0)), launch_s)
    mixed_s = np.where(piecewise < 0, eager_s, captured_s)
    table = np.tile(mixed_s, (3 + setting.drafts, 1))
    table[-1] = eager_s
    if setting.has_full_graphs:
        for query in _full_query_lengths(setting):
            size = padded(uniform_sizes(setting.captured, query), tokens)
            table[query] = np.where(size < 0, mixed_s, _kernels(setting, np.maximum(size, 0)))
    return table


def _kernels(setting: Setting, tokens: Longs) -> Floats:
    """Everything that the number of tokens on a rank decides; in lockstep the other ranks have as many."""
    total_s, bundle, ranks = _without_experts(setting, tokens), setting.bundle, setting.ranks
    if has_experts(bundle):
        total_s = total_s + experts_s(bundle, tokens * ranks.data_parallel_size, ranks)
    return total_s


def _without_experts(setting: Setting, tokens: Longs) -> Floats:
    total_s = setting.table("dense", tokens)
    if ALL_REDUCE in setting.bundle.tables:
        total_s = total_s + setting.table(ALL_REDUCE, tokens)
    return total_s


def _eager(setting: Setting, tokens: Longs) -> Floats:
    """No graph: all of it with enforce_eager, otherwise steps larger than the largest captured size.

    Experts of ranks in lockstep, which differ in their tokens then, are apart.
    """
    is_alone = setting.ranks.data_parallel_size == 1
    kernels_s = _kernels(setting, tokens) if is_alone else _without_experts(setting, tokens)
    if setting.engine.cudagraph_mode is CudagraphMode.NONE:
        return _launched(setting, kernels_s, setting.parameter("eager_layer_launch_s"))
    launched_s = _launched(setting, kernels_s, setting.parameter("piecewise_layer_launch_s"))
    return launched_s + setting.parameter("eager_overhead_s")


def _launched(setting: Setting, kernels_s: Floats, layer_launch_s: float) -> Floats:
    """Kernels launched layer by layer: with gaps, and never faster than the CPU."""
    layers = setting.bundle.model["num_hidden_layers"]
    kernels_s = kernels_s + layers * setting.parameter("piecewise_layer_gap_s")
    return np.asarray(np.maximum(kernels_s, layers * layer_launch_s))


def _full_query_lengths(setting: Setting) -> list[int]:
    """1 + K for every K that the engine may schedule: the static one, or those of the schedule."""
    ranges = setting.speculation.num_speculative_tokens_per_batch_size
    if setting.drafts == 0 or ranges is None:
        return [1 + setting.drafts]
    lengths = np.unique(dense_lookup(ranges, setting.requests, setting.drafts)[1:])
    return [1 + int(length) for length in lengths]


def _experts_in_lockstep(setting: Setting) -> Floats:
    ranks = setting.ranks
    if not has_experts(setting.bundle) or ranks.data_parallel_size == 1:
        return np.zeros(1)
    most = ranks.data_parallel_size * max(setting.tokens, 1)
    return experts_s(setting.bundle, np.arange(most + 1), ranks)


def _decode_skew(setting: Setting) -> Floats:
    """[decodes]: the kernel is launched for the padded number."""
    requests = np.arange(setting.requests + 1)
    if DECODE_SKEW not in setting.bundle.tables:
        return np.zeros(len(requests))
    size = padded(setting.captured, requests)
    return setting.table(DECODE_SKEW, np.where(size < 0, requests, size))


def _decode_attention(setting: Setting) -> tuple[Floats, tuple[str, ...]]:
    """[query tokens, ..]: a query length that the bundle lacks takes the nearest one that it has."""
    table = setting.bundle.tables["decode_attention"]
    wanted, known = np.arange(2 + setting.drafts), table.axes["query_tokens"]
    nearest = np.abs(known[:, np.newaxis] - np.maximum(wanted, known[0])).argmin(axis=0)
    missing = sorted(set(range(1, 2 + setting.drafts)) - set(known.tolist()))
    if not missing:
        return table.time_s[nearest], ()
    lengths, name = ", ".join(map(str, missing)), setting.bundle.name
    warning = f"bundle {name} has no attention with {lengths} query tokens: it uses the nearest length"
    return table.time_s[nearest], (warning,)


def _with_drafter(setting: Setting, drafter: DraftTables | None) -> float:
    """How much more prefill attention there is with the drafter's layers, which see the same chunks."""
    if drafter is None or setting.drafts == 0 or setting.speculation.draft_cost is not DraftCost.bundle:
        return 1.0
    return 1.0 + drafter.parameters["prefill_attention_share"]
