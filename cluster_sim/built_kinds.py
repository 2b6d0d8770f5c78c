"""Kinds of instances that serve one workload: what each takes, and what all of them must share.

The router knows no limits: it may send a request to any instance that its policy allows for the request's
class. So a request is rejected, before the router, where any of those could never serve it. (In a real
cluster that instance would answer 400, or hang, and another one might not.)
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cluster_sim.bundle.format import Bundle
from cluster_sim.bundle.memory import MemoryBreakdown
from cluster_sim.config import Config, EngineConfig
from cluster_sim.drafting import Setting, draft_length
from cluster_sim.engine.rules import Rules
from cluster_sim.engine.tables import Longs
from cluster_sim.errors import UserError, naming
from cluster_sim.instances import InstanceKind
from cluster_sim.luck import Profiles, check_profile, profile_warnings
from cluster_sim.rejections import rejections, tokens_ahead
from cluster_sim.slo import milliseconds_meant
from cluster_sim.speculation.requirements import Requirements
from cluster_sim.speculation.vllm_config import warnings_of
from cluster_sim.step_tables import StepArrays
from cluster_sim.workload import Workload

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class BuiltKind:
    """Instances that are alike, and what they take."""

    kind: InstanceKind
    setting: Setting  # as vLLM runs it
    bundle: Bundle
    memory: MemoryBreakdown
    arrays: StepArrays
    needs: Requirements
    profiles: Profiles

    @property
    def draft_length(self) -> int:
        """num_speculative_tokens; 0 without speculation."""
        return draft_length(self.setting.config)


@dataclass(frozen=True)
class Built:
    """Everything a run needs, and where it came from."""

    rules: Rules
    workload: Workload
    kinds: tuple[BuiltKind, ...]  # of instances, by their first one
    warnings: tuple[str, ...]

    @property
    def engine(self) -> EngineConfig:
        """Of the first instance; no None left, except host_overhead_s."""
        return self.kinds[0].setting.engine

    @property
    def memory(self) -> MemoryBreakdown:
        """Of the first instance."""
        return self.kinds[0].memory

    @property
    def bundle(self) -> Bundle:
        """Of the first instance."""
        return self.kinds[0].bundle


def named(config: Config, kind: InstanceKind) -> AbstractContextManager[None]:
    """Name the instances in an error of the user, where they differ."""
    return nullcontext() if config.cluster.overrides is None else naming(kind.words)


def kind_of_engine_cores(kinds: Sequence[BuiltKind], ranks: int) -> Longs:
    """Which of `kinds` each engine core is of, shape [instance * ranks + rank]."""
    kind_of = {instance: number for number, one in enumerate(kinds) for instance in one.kind.instances}
    return np.repeat([kind_of[instance] for instance in sorted(kind_of)], ranks).astype(np.int64)


def hash_lookahead_tokens(kinds: Sequence[BuiltKind]) -> int:
    """Tokens after a block that its prefix-cache key covers too; of several, that which leaves most keys."""
    return min(_hash_lookaheads(kinds), default=0)


def check_go_together(config: Config, kinds: Sequence[BuiltKind], workload: Workload) -> None:
    """Raise where the same request would be another one for another instance.

    Raises:
        UserError: its blocks would have other keys in the prefix cache, or it would end at another length; or
            an acceptance profile is wrong.
    """
    for one in kinds:
        with named(config, one.kind):
            _check_profiles(config, one, workload)
    lookaheads = _hash_lookaheads(kinds)
    if len(lookaheads) > 1 and len(workload.content_ids):
        rule = (
            "where a trace tells which blocks are the same, a block's key must cover as much on all instances"
        )
        got = f"{' and '.join(map(str, sorted(lookaheads)))} tokens after it"
        key = "engine.disable_lookahead_block_hashes"
        raise UserError(rule, got, "cluster.overrides", f"Set {key}=true where EAGLE or MTP drafts.")
    lengths = sorted({int(one.setting.engine.max_model_len or 0) for one in kinds})
    if len(lengths) > 1 and not config.workload.ignore_eos:
        rule = "max_model_len must be the same on all instances where it bounds the output (ignore_eos=false)"
        got = " and ".join(map(str, lengths))
        raise UserError(rule, got, "engine.max_model_len", "Set it once, or workload.ignore_eos=true.")


def rejected_by(
    config: Config, kinds: Sequence[BuiltKind], workload: Workload, members_of: Callable[[str], Sequence[int]]
) -> tuple[Flags, list[tuple[str, ...]]]:
    """Which requests an instance that may get them could never serve; what to say of them, for each kind.

    `members_of` has the instances that serve a class.

    Raises:
        UserError: such a request was made by the user's own lengths.
    """
    rejected, lost = np.zeros(len(workload.arrival_s), np.bool_), []
    for one in kinds:
        serves = [bool(set(members_of(name)) & set(one.kind.instances)) for name in workload.class_names]
        may_come = np.array(serves, np.bool_)[workload.workload_class]
        engine, blocks = one.setting.engine, one.memory.num_gpu_blocks
        ahead = tokens_ahead(engine, one.draft_length, one.needs.lookahead_tokens)
        with named(config, one.kind):
            flags, lines = rejections(engine, workload, ahead, blocks, may_come)
        rejected |= flags
        lost.append(lines)
    return rejected, lost


def warnings_about(one: BuiltKind, lookup: Longs, workload: Workload) -> tuple[str, ...]:
    """What to say of instances of one kind, which draft lookup[B] tokens after a step of B requests."""
    idle = warnings_of(one.setting.config.speculation.vllm_config)
    stand_ins = profile_warnings(one.profiles, np.unique(lookup).tolist())
    units = milliseconds_meant(one.setting.config)
    return (*idle, *units, *one.setting.warnings, *workload.warnings, *one.arrays.warnings, *stand_ins)


def _check_profiles(config: Config, one: BuiltKind, workload: Workload) -> None:
    """Where instances differ: of like ones build_luck says the same."""
    if config.cluster.overrides is not None:
        for profile in one.profiles.by_class(workload.class_names):
            check_profile(profile, one.draft_length)


def _hash_lookaheads(kinds: Sequence[BuiltKind]) -> set[int]:
    """Of the instances with a prefix cache; each once."""
    return {one.needs.hash_lookahead_tokens for one in kinds if one.setting.engine.enable_prefix_caching}
