"""What must hold of cluster.overrides: they name instances, each once, and set what an instance can have.

All instances serve the same requests: of one model, for one cluster's router, whose prefixes are told in
blocks of one size.
"""

from collections.abc import Mapping, Sequence

from cluster_sim.config import Config, OverrideConfig
from cluster_sim.errors import UserError
from cluster_sim.paths import group_names
from cluster_sim.schema import find_key, shown

KEY = "cluster.overrides"
EXAMPLE = "{instances: [0], set: {speculation: none}}"
OWN_GROUPS = ("hardware", "engine", "speculation")
OWN_KEYS = ("cluster.tensor_parallel_size", "cluster.bundle")


def check_overrides(overrides: Sequence[OverrideConfig], instances: int) -> None:
    """Raise for the first entry that names no instance, one that is not there, or one twice; or sets nothing.

    Raises:
        UserError: worded with the rule, the value, its key and what to do.
    """
    if not overrides:
        raise UserError("overrides must name instances", "none", KEY, f"Add {EXAMPLE}, or leave it out.")
    named = set[int]()
    for number, entry in enumerate(overrides):
        where = f"{KEY}[{number}]"
        if not entry.instances:
            raise UserError("an override must name instances", "none", where, f"Write {EXAMPLE}.")
        for instance in entry.instances:
            if not 0 <= instance < instances:
                rule = f"an instance must be a number from 0 to {instances - 1}"
                raise UserError(rule, instance, f"{where}.instances", "Count instances from 0.")
            if instance in named:
                rule, got = "an instance has overrides once", f"instance {instance} twice"
                raise UserError(rule, got, f"{where}.instances", "Leave one out.")
            named.add(instance)
        if bool(entry.set) == (entry.resolved is not None):
            got = "both" if entry.set else "nothing"
            rule = "an override has keys to set (or, as --cfg job prints it, what they mean: resolved)"
            raise UserError(rule, got, where, f"Write {EXAMPLE}.")


def check_keys(changes: Mapping[str, object]) -> None:
    """Raise for the first key or group of `changes` that no instance can have alone.

    Raises:
        UserError: worded with the rule, the value, its key and what to do.
    """
    for key, value in changes.items():
        if key not in group_names():
            find_key(key)
        group = key.split(".", maxsplit=1)[0]
        if group in OWN_GROUPS or key in OWN_KEYS:
            continue
        if group == "model":
            rule, remedy = "all instances of a cluster serve one model", "Simulate another cluster for it."
            raise UserError(rule, shown(value), key, remedy)
        owned = ", ".join((*(f"{name}.*" for name in OWN_GROUPS), *OWN_KEYS))
        remedy = f"Set it beside the overrides. An instance can have its own {owned}."
        raise UserError(f"{key} belongs to the whole cluster", shown(value), key, remedy)


def check_alike(config: Config, entry: OverrideConfig) -> None:
    """Raise where `entry`, which is resolved, differs in what all instances share.

    Raises:
        UserError: it has blocks of another size.
    """
    if entry.resolved is not None and entry.resolved.engine.block_size != config.engine.block_size:
        key = "engine.block_size"
        rule = (
            f"all instances have KV blocks of one size ({config.engine.block_size}), by which requests share"
        )
        raise UserError(rule, entry.resolved.engine.block_size, key, f"Set {key} beside the overrides.")
