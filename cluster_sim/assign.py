"""Values set on a composed configuration, key by key, with the types of config.py enforced."""

import typing
from collections.abc import Mapping
from copy import copy
from dataclasses import is_dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from cluster_sim.errors import UserError
from cluster_sim.schema import Key, find_key, shown, wrong_type

_PROFILE = (
    "rate",
    "measured_draft_length",
    "rates",
    "per_length",
    "file",
    "series",
    "function",
    "rates_are",
)

# A new value for the key on the left clears its neighbours on the right, unless they are set beside it:
# what conf/ says of them was said of the old value.
REPLACES = {
    "workload.duration_s": ("requests",),
    "workload.trace": ("requests", "request_rate", "prompt_tokens", "output_tokens"),
    "speculation.draft_len_schedule": ("num_speculative_tokens", "num_speculative_tokens_per_batch_size"),
    "speculation.acceptance.policy": ("published", *_PROFILE, "source"),
    "speculation.acceptance.published": ("policy", *_PROFILE, "source"),
    "speculation.acceptance.rates": ("rates_are", "source"),
    "speculation.acceptance.per_length": ("rates_are", "source"),
    "speculation.acceptance.rate": ("measured_draft_length", "source"),
    "speculation.acceptance.file": ("series", "source"),
    "speculation.acceptance.function": ("rates_are", "source"),
}
_REMEDIES = {
    "sweep": "Add +sweep=NAME.",
    "study": "Add +study=NAME.",
    "speculation.acceptance": "Choose a method, for example speculation=eagle3.",
}


def set_values(config: DictConfig, values: Mapping[str, object]) -> None:
    """Set each dotted key of `values` in `config`; a mapping's entries are added to those that are there.

    Raises:
        UserError: unknown key, wrong type, or no place for the key in this configuration.
    """
    for key, value in values.items():
        parent = _parent(config, key, value)
        place = find_key(key)
        name = place.path[-1]
        try:
            is_new = _set(parent, name, _structured(place, value), adds=place.is_mapping)
        except OmegaConfBaseException as error:
            raise wrong_type(key, value) from error
        if value is None or not is_new:
            continue
        if key == "speculation.method":
            rule = "a method is chosen together with its draft length and acceptance profile"
            raise UserError(rule, f"{key}={value}", key, f"Write speculation={value}.")
        for neighbour in REPLACES.get(key, ()):
            if f"{key.rpartition('.')[0]}.{neighbour}" not in values:
                parent[neighbour] = None


def _structured(place: Key, value: object) -> object:
    """`value` with the entries of a mapping of dataclasses made such: OmegaConf makes none there."""
    inner = typing.get_args(place.type)[1] if place.is_mapping else Any
    if not is_dataclass(inner) or not isinstance(value, Mapping):
        return value
    return {
        name: OmegaConf.merge(OmegaConf.structured(inner), entry) if isinstance(entry, Mapping) else entry
        for name, entry in value.items()
    }


def _parent(config: DictConfig, key: str, value: object) -> DictConfig:
    """The node that holds `key`."""
    path = find_key(key).path
    node = config
    for depth, name in enumerate(path[:-1], 1):
        inner = _current(node, name)
        if not isinstance(inner, DictConfig):
            place = ".".join(path[:depth])
            remedy = _REMEDIES.get(place, f"Write '{place}={{{path[-1]}: {value}, ...}}'.")
            raise UserError(f"{key} needs a mapping at {place}", shown(inner), key, remedy)
        node = inner
    return node


def _set(parent: DictConfig, name: str, value: object, adds: bool) -> bool:
    """Set parent[name], or with `adds` its entries; whether that made a difference."""
    before = copy(_current(parent, name))  # a list would be changed in place
    if adds and isinstance(value, Mapping) and isinstance(before, DictConfig):
        for entry, inner in value.items():
            parent[name][entry] = inner
    else:
        parent[name] = value
    return bool(_current(parent, name) != before)


def _current(parent: DictConfig, name: str) -> Any:
    return None if name not in parent or OmegaConf.is_missing(parent, name) else parent[name]
