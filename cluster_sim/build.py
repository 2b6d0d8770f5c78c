"""The door between the two halves: configuration, bundle and workload to the engine's Rules.

Only here, in world.py (empty tables) and recording.py (recorded runs) are engine tables made.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cluster_sim.bundle import format as bundle_format
from cluster_sim.bundle.memory import MemoryBreakdown, breakdown
from cluster_sim.config import Config, EngineConfig, Method
from cluster_sim.config import SchedulingPolicy as PolicyName
from cluster_sim.engine import streams
from cluster_sim.engine.kinds import LuckKind, Purpose, RouterPolicy, SchedulingPolicy
from cluster_sim.engine.rules import Batching, Drafting, Fate, Luck, Request, Routing, Rules, StepTime
from cluster_sim.engine.rules import Workload as Asked
from cluster_sim.engine.tables import Floats, Longs, Table
from cluster_sim.engine_defaults import resolve_engine
from cluster_sim.errors import UserError
from cluster_sim.speculation.acceptance import conditional_table
from cluster_sim.speculation.schedule import dense_lookup
from cluster_sim.step_tables import StepArrays, step_arrays
from cluster_sim.workload import Workload, build_workload
from cluster_sim.world import empty_table

Flags = NDArray[np.bool_]
TOO_LONG = "Shorten workload.prompt_tokens (max: of a lognormal) or raise engine.max_model_len."
TOO_BIG = "Shorten it, or give more memory: engine.num_gpu_blocks, engine.gpu_memory_utilization."


@dataclass(frozen=True)
class Built:
    """Everything a run needs, and where it came from."""

    rules: Rules
    workload: Workload
    engine: EngineConfig  # no None left, except host_overhead_s
    memory: MemoryBreakdown
    bundle: bundle_format.Bundle
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Proposer:
    """What vLLM's scheduler knows of a drafter (../shared/vllm-scheduler.md sections 2, 3, 5)."""

    lookahead_tokens: int
    slots_per_request: int
    hash_lookahead_tokens: int
    drops_last_hit_block: bool
    may_skip: bool


def build(config: Config) -> Built:
    """Rules of one simulation.

    Raises:
        UserError: something in the configuration, the bundle or the trace is wrong, or does not fit.
    """
    engine = resolve_engine(config.engine, config.model, config.hardware)
    bundle = find_bundle(config)
    memory = breakdown(
        config.model, config.hardware, engine, config.cluster.tensor_parallel_size, config.speculation
    )
    blocks = memory.num_gpu_blocks
    arrays = step_arrays(bundle, engine, config.speculation)
    proposer = _proposer(config, engine)
    workload = build_workload(config.workload, config.seed, engine.block_size, proposer.hash_lookahead_tokens)
    rejected, warnings = _rejected(config, engine, workload, proposer, blocks)
    rules = Rules(
        _asked(config, engine, workload, rejected),
        _luck(config, workload),
        _batching(config, engine, proposer, blocks),
        _drafting(config, proposer),
        _draft_length_at(config, engine),
        _step_time(arrays, config.cluster.instances),
        Routing(int(RouterPolicy[config.router.policy.name]), float(config.router.signal_interval_s or 0.0)),
    )
    return Built(rules, workload, engine, memory, bundle, (*workload.warnings, *arrays.warnings, *warnings))


def check_before_sweep(config: Config) -> None:
    """What a trial would refuse, found without reading its trace."""
    engine = resolve_engine(config.engine, config.model, config.hardware)
    bundle = find_bundle(config)
    breakdown(config.model, config.hardware, engine, config.cluster.tensor_parallel_size, config.speculation)
    step_arrays(bundle, engine, config.speculation)
    _draft_length_at(config, engine)
    _conditional(config)


def draft_length(config: Config) -> int:
    """num_speculative_tokens; 0 without speculation."""
    return 0 if config.speculation.method is Method.none else config.speculation.num_speculative_tokens or 0


def find_bundle(config: Config) -> bundle_format.Bundle:
    """The bundle that the configuration names, or the shipped one of its model, hardware and TP size."""
    bundle = _read_bundle(bundle_format.directory_of(bundle_name(config)))
    bundle_format.check_matches(bundle, config.model, config.cluster.tensor_parallel_size)
    return bundle


def bundle_name(config: Config) -> str:
    """Name or path of the step-time bundle."""
    shipped = f"{config.model.name}-{config.hardware.name}-tp{config.cluster.tensor_parallel_size}"
    return config.cluster.bundle or shipped


@cache
def _read_bundle(directory: Path) -> bundle_format.Bundle:
    """Trials of a sweep share it: a bundle does not change while a process runs."""
    return bundle_format.read(directory)


def _proposer(config: Config, engine: EngineConfig) -> Proposer:
    """EAGLE and EAGLE-3: K slots ahead, and the token after a block in its key, or the last hit given up."""
    drafts = draft_length(config)
    if drafts == 0:
        return Proposer(0, 0, 0, drops_last_hit_block=False, may_skip=False)
    plain_keys = engine.disable_lookahead_block_hashes or engine.disable_eagle_block_drop
    covers_next_token = engine.enable_prefix_caching and not plain_keys
    return Proposer(
        lookahead_tokens=drafts,
        slots_per_request=0,
        hash_lookahead_tokens=1 if covers_next_token else 0,
        drops_last_hit_block=not covers_next_token and not engine.disable_eagle_block_drop,
        may_skip=True,
    )


def _rejected(
    config: Config, engine: EngineConfig, workload: Workload, proposer: Proposer, blocks: int
) -> tuple[Flags, list[str]]:
    """Which requests vLLM could never serve, and what to say of them.

    vLLM's API server refuses a prompt that leaves no room for an output token; its scheduler hangs for ever
    with a request that outgrows the whole KV cache at the head of the queue. Both are counted as rejected
    when they come from a trace.
    """
    longest = int(engine.max_model_len or 0)
    ahead = (2 if engine.async_scheduling else 1) * (1 + draft_length(config)) + proposer.lookahead_tokens
    tokens = np.minimum(workload.prompt_tokens + workload.output_tokens + ahead, longest)
    too_long = workload.prompt_tokens >= longest
    too_big = ~too_long & (-(-tokens // engine.block_size) > blocks - 1)
    if not workload.recorded:
        _refuse(workload, too_long, f"a prompt must be shorter than engine.max_model_len={longest}", TOO_LONG)
        cache = f"the KV cache of {blocks - 1} blocks of {engine.block_size} tokens"
        rule = f"a request must fit into {cache} alone (vLLM hangs with it at the head of the queue)"
        _refuse(workload, too_big, rule, TOO_BIG)
    warnings = []
    if engine.scheduling_policy is PolicyName.fcfs and np.any(workload.priority):
        warnings.append("priorities of the trace do nothing under engine.scheduling_policy=fcfs")
    if np.any(too_long):
        warnings.append(
            f"{too_long.sum()} requests rejected: prompt of max_model_len={longest} tokens or more"
        )
    if np.any(too_big):
        warnings.append(
            f"{too_big.sum()} requests rejected: larger than the whole KV cache of {blocks - 1} blocks"
        )
    needed = -(-longest // engine.block_size)
    if needed > blocks - 1:
        warnings.append(
            f"vLLM would refuse to start: one request of max_model_len={longest} needs {needed} KV blocks, "
            f"there are {blocks - 1}; lower engine.max_model_len to {(blocks - 1) * engine.block_size}"
        )
    return too_long | too_big, warnings


def _refuse(workload: Workload, refused: Flags, rule: str, remedy: str) -> None:
    """Raise for the first refused request, if there is one: the user made it, so it can be made otherwise."""
    if np.any(refused):
        first = int(np.argmax(refused))
        got = f"{workload.prompt_tokens[first]} prompt and {workload.output_tokens[first]} output tokens"
        raise UserError(rule, got, f"request {first}", remedy)


def _asked(config: Config, engine: EngineConfig, workload: Workload, rejected: Flags) -> Asked:
    unforeseen = int(engine.max_model_len or 0) - workload.prompt_tokens
    requests: Table[Request] = empty_table(
        Request,
        len(workload.arrival_s),
        arrival_s=workload.arrival_s,
        abort_s=np.inf,
        content_start=workload.content_start[:-1],
        content_blocks=np.diff(workload.content_start),
        prompt_tokens=workload.prompt_tokens,
        max_tokens=workload.output_tokens if config.workload.ignore_eos else unforeseen,
        priority=workload.priority,
        workload_class=workload.workload_class,
        is_rejected=rejected,
    )
    return Asked(requests, np.ascontiguousarray(workload.content_ids, np.int64), False)


def _luck(config: Config, workload: Workload) -> Luck:
    """Fates of all offered requests: luck does not depend on what an arm rejects."""
    stop_at = 0 if config.workload.ignore_eos else workload.output_tokens
    with np.errstate(over="ignore"):
        key = streams.of_purpose(np.uint64(config.seed), int(Purpose.acceptance))
    table = _conditional(config)
    return Luck(
        empty_table(Fate, len(workload.arrival_s), stop_at=stop_at),
        int(LuckKind.profile),
        np.uint64(key),
        np.tile(table, (len(workload.class_names), 1, 1)),
        np.zeros(0, np.int32),
        np.zeros(0, np.int32),
    )


def _conditional(config: Config) -> Floats:
    """[draft length, position]; one of each without speculation, never looked at."""
    acceptance = config.speculation.acceptance
    if acceptance is None or draft_length(config) == 0:
        return np.zeros((1, 1))
    return conditional_table(acceptance, draft_length(config))


def _batching(config: Config, engine: EngineConfig, proposer: Proposer, blocks: int) -> Table[Batching]:
    policy = {PolicyName.fcfs: SchedulingPolicy.fcfs, PolicyName.priority: SchedulingPolicy.priority}
    table: Table[Batching] = empty_table(
        Batching,
        config.cluster.instances,
        max_num_seqs=engine.max_num_seqs,
        max_num_active_seqs=engine.max_num_active_seqs,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        max_num_scheduled_tokens=engine.max_num_scheduled_tokens,
        max_model_len=engine.max_model_len,
        block_size=engine.block_size,
        num_gpu_blocks=blocks,
        watermark_blocks=int(engine.watermark * blocks),
        lookahead_tokens=proposer.lookahead_tokens,
        hash_lookahead_tokens=proposer.hash_lookahead_tokens,
        long_prefill_token_threshold=engine.long_prefill_token_threshold,
        prefill_schedule_interval=engine.prefill_schedule_interval,
        queue_depth=2 if engine.async_scheduling else 1,
        scheduling_policy=int(policy[engine.scheduling_policy]),
        long_prefill_token_threshold_adaptive=engine.long_prefill_token_threshold_adaptive,
        enable_chunked_prefill=engine.enable_chunked_prefill,
        enable_prefix_caching=engine.enable_prefix_caching,
        drops_last_hit_block=proposer.drops_last_hit_block,
        scheduler_reserve_full_isl=engine.scheduler_reserve_full_isl,
    )
    return table


def _drafting(config: Config, proposer: Proposer) -> Table[Drafting]:
    table: Table[Drafting] = empty_table(
        Drafting,
        config.cluster.instances,
        num_speculative_tokens=draft_length(config),
        slots_per_request=proposer.slots_per_request,
        is_dynamic=config.speculation.num_speculative_tokens_per_batch_size is not None,
        may_skip=proposer.may_skip,
    )
    return table


def _draft_length_at(config: Config, engine: EngineConfig) -> Longs:
    seats, drafts = int(engine.max_num_seqs or 0), draft_length(config)
    ranges = config.speculation.num_speculative_tokens_per_batch_size
    lookup = np.full(seats + 1, drafts, np.int64) if ranges is None else dense_lookup(ranges, seats, drafts)
    return np.tile(lookup, (config.cluster.instances, 1))


def _step_time(arrays: StepArrays, instances: int) -> StepTime:
    """One bundle for all instances: the leading axis of every table has length 1."""
    tables = {
        name: np.ascontiguousarray(getattr(arrays, name), np.float64)[np.newaxis]
        for name in StepTime._fields
        if name not in ("bundle_of", "host_s", "draft_attention_s_per_kv_token")
    }
    return StepTime(
        bundle_of=np.zeros(instances, np.int64),
        host_s=np.full(instances, arrays.host_s, np.float64),
        draft_attention_s_per_kv_token=np.array([arrays.draft_attention_s_per_kv_token], np.float64),
        **tables,
    )
