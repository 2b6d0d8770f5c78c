"""Instances that differ: which of them are alike, and the configuration of each kind as if it were alone.

The configuration of a kind has no overrides: whatever reads the configuration of a cluster of like instances
reads that of a kind.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from cluster_sim.config import Config, InstanceConfig, OverrideConfig


@dataclass(frozen=True)
class InstanceKind:
    """Instances that are alike."""

    instances: tuple[int, ...]  # rising
    config: Config  # of a cluster with instances of this kind alone

    @property
    def name(self) -> str:
        """Its instances as ranges, such as `0,2-4`."""
        return ranges_of(self.instances)

    @property
    def words(self) -> str:
        """The same for a message."""
        return words_of(self.instances)


def kinds_of(config: Config) -> list[InstanceKind]:
    """The kinds of instances in a cluster whose overrides are resolved, by their first instance."""
    entries = config.cluster.overrides
    if entries is None:
        return [InstanceKind(tuple(range(config.cluster.instances)), config)]
    own = {instance: config_of(config, entry) for entry in entries for instance in entry.instances}
    shared = without_overrides(config)
    members: dict[str, list[int]] = {}
    configs: dict[str, Config] = {}
    for instance in range(config.cluster.instances):
        one = own.get(instance, shared)
        members.setdefault(repr(one), []).append(instance)
        configs[repr(one)] = one
    return [InstanceKind(tuple(alike), configs[key]) for key, alike in members.items()]


def config_of(config: Config, entry: OverrideConfig) -> Config:
    """`config` as if all of its instances were those of `entry`, which is resolved."""
    own = entry.resolved
    if own is None:
        raise ValueError("an override is resolved when the configuration is composed")
    cluster = replace(
        config.cluster, tensor_parallel_size=own.tensor_parallel_size, bundle=own.bundle, overrides=None
    )
    return replace(
        config, cluster=cluster, hardware=own.hardware, engine=own.engine, speculation=own.speculation
    )


def own_of(config: Config) -> InstanceConfig:
    """What an instance of `config` has that another may have otherwise."""
    cluster = config.cluster
    return InstanceConfig(
        cluster.tensor_parallel_size, cluster.bundle, config.hardware, config.engine, config.speculation
    )


def without_overrides(config: Config) -> Config:
    """`config` as if all of its instances were those without overrides."""
    return replace(config, cluster=replace(config.cluster, overrides=None))


def with_each(config: Config, change: Callable[[Config], Config]) -> Config:
    """`config` with `change` made to what its instances have, each kind by itself.

    What no instance has, since all have overrides, stays as it is.
    """
    entries = config.cluster.overrides
    if entries is None:
        return change(config)
    named = {instance for entry in entries for instance in entry.instances}
    shared = without_overrides(config)
    if len(named) < config.cluster.instances:
        shared = change(shared)
    changed = [
        OverrideConfig(entry.instances, None, own_of(change(config_of(config, entry)))) for entry in entries
    ]
    return replace(shared, cluster=replace(shared.cluster, overrides=changed))


def ranges_of(instances: Sequence[int]) -> str:
    """Rising numbers as ranges: `0,2-4`."""
    runs: list[list[int]] = []
    for _, run in itertools.groupby(enumerate(instances), lambda pair: pair[1] - pair[0]):
        members = [instance for _, instance in run]
        runs.append(members)
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def words_of(instances: Sequence[int]) -> str:
    """`instance 0`, `instances 0,2-4`."""
    return f"instance{'s' * (len(instances) != 1)} {ranges_of(instances)}"


def said_by(lines_of: Iterable[tuple[str, Sequence[str]]]) -> tuple[str, ...]:
    """Each line once: as it is where all say it, and otherwise after the words of those who do.

    `lines_of` has the words of each kind and its lines; lines of the first kind come first.
    """
    said = list(lines_of)
    speakers: dict[str, list[str]] = {}
    for words, lines in said:
        for line in dict.fromkeys(lines):
            speakers.setdefault(line, []).append(words)
    return tuple(
        line if len(words) == len(said) else f"{' and '.join(words)}: {line}"
        for line, words in speakers.items()
    )
