"""Kinds of instances in a run: what each was, and where its inputs came from."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from cluster_sim.build import bundle_directory
from cluster_sim.built_kinds import Built
from cluster_sim.bundle import format as bundle_format
from cluster_sim.bundle.extent import Extent, extent_of
from cluster_sim.config import Config
from cluster_sim.drafting import as_vllm_runs_it, cost_words
from cluster_sim.instances import InstanceKind, said_by
from cluster_sim.luck import Profiles, acceptance_source
from cluster_sim.traffic import Traffic, traffic


@dataclass(frozen=True)
class RunKind:
    """Instances of a run that were alike."""

    kind: InstanceKind
    traffic: Traffic
    memory_bytes: dict[str, int]  # part of the memory of one of its GPUs -> size
    num_gpu_blocks: int  # of each rank
    bundle_name: str
    bundle_digest: str
    extent: Extent
    acceptance_source: str
    acceptance_texts: tuple[str, ...]  # that published profiles were measured on, each once
    draft_cost: str  # words of drafting.cost_words


def run_kinds(built: Built) -> tuple[RunKind, ...]:
    """Those that were built, by their first instance."""
    classes, luck, found = len(built.workload.class_names), built.rules.luck, []
    for number, one in enumerate(built.kinds):
        own = luck._replace(conditional=luck.conditional[number * classes : (number + 1) * classes])
        sizes = one.memory.as_dict().items()
        found.append(
            RunKind(
                kind=one.kind,
                traffic=traffic(built.rules._replace(luck=own), one.draft_length),
                memory_bytes={part: size for part, size in sizes if part.endswith("_bytes")},
                num_gpu_blocks=one.memory.num_gpu_blocks,
                bundle_name=one.bundle.name,
                bundle_digest=bundle_format.digest(bundle_directory(one.kind.config)),
                acceptance_source=acceptance_source(one.kind.config),
                acceptance_texts=_texts(one.profiles),
                extent=extent_of(one.bundle),
                draft_cost=cost_words(one.kind.config, one.bundle),
            )
        )
    return tuple(found)


def _texts(profiles: Profiles) -> tuple[str, ...]:
    """What the profiles were measured on, each once."""
    return tuple(dict.fromkeys(one.measured_on for one in profiles.all() if one.measured_on is not None))


def with_vllm_limits(config: Config) -> Config:
    """`config` with every limit of its engine filled in."""
    return replace(config, engine=as_vllm_runs_it(config).engine)


def of_all(lines: Iterable[tuple[str, str]]) -> str:
    """One line for all kinds from (the kind's words, its line): said once where it is the same for all."""
    return "; ".join(said_by([(words, [line]) for words, line in lines]))
