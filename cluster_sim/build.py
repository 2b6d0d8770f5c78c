"""The door between the two halves: configuration, bundle and workload to the engine's Rules.

Only here, in luck.py (acceptance), assembly.py (rows of all instances), world.py (empty tables) and
recording.py (recorded runs) are engine tables made.
"""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cluster_sim import assembly
from cluster_sim.built_kinds import (
    Built,
    BuiltKind,
    check_go_together,
    hash_lookahead_tokens,
    kind_of_engine_cores,
    named,
    rejected_by,
    warnings_about,
)
from cluster_sim.bundle import format as bundle_format
from cluster_sim.bundle import library
from cluster_sim.bundle.architecture import Parallel
from cluster_sim.bundle.memory import MemoryBreakdown, breakdown
from cluster_sim.config import Config, EngineConfig
from cluster_sim.config import RouterPolicy as RouterName
from cluster_sim.config import SchedulingPolicy as PolicyName
from cluster_sim.content import numbered
from cluster_sim.drafting import Setting, as_vllm_runs_it, draft_length, drafter_tables
from cluster_sim.engine import streams
from cluster_sim.engine.kinds import Part, Purpose, RouterPolicy, SchedulingPolicy
from cluster_sim.engine.rules import Batching, Drafting, Request, Routing, Rules, StepTime
from cluster_sim.engine.rules import Workload as Asked
from cluster_sim.engine.tables import Longs, Table
from cluster_sim.errors import UserError
from cluster_sim.expert_tables import Ranks
from cluster_sim.instances import InstanceKind, kinds_of, said_by
from cluster_sim.luck import build_luck, profiles_of
from cluster_sim.slo import check_class_names
from cluster_sim.speculation.requirements import requirements
from cluster_sim.speculation.schedule import dense_lookup
from cluster_sim.step_tables import StepArrays, step_arrays
from cluster_sim.waiting import is_limited
from cluster_sim.workload import Workload, build_workload
from cluster_sim.world import empty_table

Flags = NDArray[np.bool_]
BALANCER_INTERVAL_S = 0.1  # ../shared/vllm-scheduler.md section 10: snapshots about every 100 ms


def build(config: Config) -> Built:
    """Rules of one simulation.

    Raises:
        UserError: something in the configuration, the bundle or the trace is wrong, or does not fit.
    """
    kinds = [_build_kind(config, kind) for kind in kinds_of(config)]
    kind_of = kind_of_engine_cores(kinds, config.cluster.data_parallel_size)
    block_size = kinds[0].setting.engine.block_size
    workload = build_workload(config.workload, config.seed, block_size, hash_lookahead_tokens(kinds))
    check_class_names(config, workload.class_names)
    check_go_together(config, kinds, workload)
    rejected, lost = rejected_by(config, kinds, workload, lambda name: _members(config, name))
    lookups, classes = [_draft_length_at(one) for one in kinds], len(workload.class_names)
    rules = Rules(
        _asked(config, kinds[0].setting.engine, workload, rejected),
        build_luck(config, [one.profiles for one in kinds], workload),
        assembly.rows_of([_batching(one) for one in kinds], kind_of),
        assembly.rows_of([_drafting(one, number * classes) for number, one in enumerate(kinds)], kind_of),
        assembly.lengths_of(lookups, kind_of),
        _lockstep(config),
        assembly.step_time_of([one.arrays for one in kinds], kind_of),
        _routing(config, workload.class_names),
    )
    said = [
        (one.kind.words, (*warnings_about(one, lookup, workload), *lines))
        for one, lookup, lines in zip(kinds, lookups, lost, strict=True)
    ]
    return Built(rules, workload, tuple(kinds), said_by(said))


def _build_kind(config: Config, kind: InstanceKind) -> BuiltKind:
    with named(config, kind):
        setting = as_vllm_runs_it(kind.config)
        drafts, engine = draft_length(setting.config), setting.engine
        bundle = find_bundle(setting.config)
        memory, arrays = _gpu(setting, bundle)
        needs = requirements(setting.config.speculation, drafts, engine, setting.config.model)
        return BuiltKind(kind, setting, bundle, memory, arrays, needs, profiles_of(setting.config))


def _gpu(setting: Setting, bundle: bundle_format.Bundle) -> tuple[MemoryBreakdown, StepArrays]:
    """What a GPU holds, and how long it takes."""
    config, engine, parallel = setting.config, setting.engine, parallel_of(setting.config)
    speculation = config.speculation
    memory = breakdown(config.model, config.hardware, engine, parallel, speculation)
    drafter = drafter_tables(setting, bundle, parallel)
    return memory, step_arrays(bundle, engine, speculation, ranks_of(config), drafter)


def step_time_of(setting: Setting, bundle: bundle_format.Bundle | None = None) -> StepTime:
    """Step times of a configuration as vLLM runs it, without its requests; by its own bundle or `bundle`."""
    _, arrays = _gpu(setting, bundle or find_bundle(setting.config))
    return assembly.step_time_of([arrays], np.zeros(num_engine_cores(setting.config), np.int64))


def num_engine_cores(config: Config) -> int:
    """Schedulers of the cluster: one per instance, or one per data-parallel rank of it."""
    return config.cluster.instances * config.cluster.data_parallel_size


def ranks_of(config: Config) -> Ranks:
    """The GPUs of an instance."""
    cluster = config.cluster
    return Ranks(cluster.data_parallel_size, cluster.tensor_parallel_size, cluster.enable_expert_parallel)


def find_bundle(config: Config) -> bundle_format.Bundle:
    """The bundle that the configuration names, or the roofline of its model, hardware and GPUs.

    Raises:
        UserError: there is none, it is damaged, or of another model.
    """
    bundle = library.read(bundle_directory(config))
    parallel = config.cluster.tensor_parallel_size
    bundle_format.check_matches(bundle, config.model, config.hardware, parallel)
    return bundle


def bundle_directory(config: Config) -> Path:
    """Where that bundle lies."""
    if config.cluster.bundle is not None:
        return library.directory_of(config.cluster.bundle, config.cluster.tensor_parallel_size)
    return library.directory_for(config.model, config.hardware, parallel_of(config))


def parallel_of(config: Config) -> Parallel:
    """How the GPUs of one instance share the model."""
    return Parallel(config.cluster.tensor_parallel_size, ranks_of(config).expert_parallel_size)


def _asked(config: Config, engine: EngineConfig, workload: Workload, rejected: Flags) -> Asked:
    unforeseen = int(engine.max_model_len or 0) - workload.prompt_tokens
    timeout_s = config.workload.timeout_s
    requests: Table[Request] = empty_table(
        Request,
        len(workload.arrival_s),
        arrival_s=workload.arrival_s,
        abort_s=np.inf if timeout_s is None else workload.arrival_s + timeout_s,
        think_s=workload.think_s,
        content_start=workload.content_start[:-1],
        content_blocks=np.diff(workload.content_start),
        prompt_tokens=workload.prompt_tokens,
        max_tokens=workload.output_tokens if config.workload.ignore_eos else unforeseen,
        priority=workload.priority,
        workload_class=workload.workload_class,
        session=_sessions(config, workload),
        is_rejected=rejected,
    )
    ids = np.ascontiguousarray(workload.content_ids, np.int64)
    if config.router.policy is RouterName.prefix_aware:  # its index has a row for each
        ids = numbered(ids)
    return Asked(
        requests,
        ids,
        timeout_s is not None,
        workload.clients,
        math.inf if timeout_s is None else float(timeout_s),
        math.inf if is_limited(config.workload) else float(config.workload.duration_s or math.inf),
    )


def _batching(one: BuiltKind) -> Table[Batching]:
    engine, needs, blocks = one.setting.engine, one.needs, one.memory.num_gpu_blocks
    policy = {PolicyName.fcfs: SchedulingPolicy.fcfs, PolicyName.priority: SchedulingPolicy.priority}
    table: Table[Batching] = empty_table(
        Batching,
        1,
        max_num_seqs=engine.max_num_seqs,
        max_num_active_seqs=engine.max_num_active_seqs,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        max_num_scheduled_tokens=engine.max_num_scheduled_tokens,
        max_model_len=engine.max_model_len,
        block_size=engine.block_size,
        num_gpu_blocks=blocks,
        watermark_blocks=int(engine.watermark * blocks),
        lookahead_tokens=needs.lookahead_tokens,
        hash_lookahead_tokens=needs.hash_lookahead_tokens,
        prefill_lookahead_tokens=needs.prefill_lookahead_tokens,
        long_prefill_token_threshold=engine.long_prefill_token_threshold,
        prefill_schedule_interval=engine.prefill_schedule_interval,
        queue_depth=2 if engine.async_scheduling else 1,
        scheduling_policy=int(policy[engine.scheduling_policy]),
        long_prefill_token_threshold_adaptive=engine.long_prefill_token_threshold_adaptive,
        enable_chunked_prefill=engine.enable_chunked_prefill,
        enable_prefix_caching=engine.enable_prefix_caching,
        drops_last_hit_block=needs.drops_last_hit_block,
        scheduler_reserve_full_isl=engine.scheduler_reserve_full_isl,
    )
    return table


def _drafting(one: BuiltKind, first_profile: int) -> Table[Drafting]:
    by_size = one.setting.config.speculation.num_speculative_tokens_per_batch_size
    table: Table[Drafting] = empty_table(
        Drafting,
        1,
        num_speculative_tokens=one.draft_length,
        first_profile=first_profile,
        slots_per_request=one.needs.slots_per_request,
        is_dynamic=by_size is not None,
        may_skip=one.needs.may_skip,
    )
    return table


def _draft_length_at(one: BuiltKind) -> Longs:
    """Draft lengths by requests scheduled."""
    seats, drafts = int(one.setting.engine.max_num_seqs or 0), one.draft_length
    ranges = one.setting.config.speculation.num_speculative_tokens_per_batch_size
    return np.full(seats + 1, drafts, np.int64) if ranges is None else dense_lookup(ranges, seats, drafts)


def _lockstep(config: Config) -> Longs:
    """Ranks of an MoE model step together, since they share its experts; those of others are on their own."""
    ranks = config.cluster.data_parallel_size if config.model.num_experts else 1
    together = np.zeros(num_engine_cores(config), np.int64)
    together[::ranks] = ranks
    return together


def _sessions(config: Config, workload: Workload) -> Longs:
    """A number for every conversation, and one of its own for a request without."""
    if config.router.policy is RouterName.session_hash and np.all(workload.session < 0):
        raise UserError(
            "router session_hash needs requests that belong to sessions",
            f"none in {workload.source}",
            "router.policy",
            "Use a trace with a session in each line, or another router.",
        )
    others = workload.session.max(initial=-1) + 1 + np.arange(len(workload.session))
    return np.where(workload.session < 0, others, workload.session)


def _routing(config: Config, class_names: Sequence[str]) -> Routing:
    router, instances = config.router, config.cluster.instances
    interval_s = router.signal_interval_s
    if interval_s is None:
        interval_s = BALANCER_INTERVAL_S if config.cluster.data_parallel_size > 1 else 0.0
    with np.errstate(over="ignore"):
        key = streams.of_purpose(np.uint64(config.seed), int(Purpose.router))
    members = [_members(config, name) for name in class_names]
    return Routing(
        int(RouterPolicy[router.policy.name]),
        config.cluster.data_parallel_size,
        router.replicas,
        float(interval_s),
        np.uint64(key),
        float(router.overlap_weight or 0.0),
        np.array(router.weights or [1.0] * instances, np.float64),
        np.cumsum([0, *map(len, members)], dtype=np.int64),
        np.array([instance for some in members for instance in some], np.int64),
        int(Part.whole),
    )


def _members(config: Config, class_name: str) -> list[int]:
    """The instances that serve a class: all of them unless the router sorts by class."""
    classes = config.router.classes
    if classes is None:
        return list(range(config.cluster.instances))
    if class_name not in classes:
        raise UserError(
            "every class of the workload must be served by some instance",
            f"none for class {class_name}",
            "router.classes",
            f"Add it: {class_name}: [0].",
        )
    return sorted(classes[class_name])
