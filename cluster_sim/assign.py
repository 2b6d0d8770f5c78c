"""Values set on a composed configuration, key by key, with the types of config.py enforced."""

import typing
from collections.abc import Mapping
from copy import copy
from dataclasses import is_dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from cluster_sim.errors import UserError
from cluster_sim.schema import Key, closest, find_key, shown, words_of, wrong_type

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
    "sweep.search": "Choose a sweep that searches, as +sweep=capacity does.",
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
    """`value` with the entries of a mapping or list of dataclasses made such: OmegaConf makes none there."""
    if typing.get_origin(place.type) is list and isinstance(value, list):
        return [_entry(place, number, entry) for number, entry in enumerate(value)]
    inner = typing.get_args(place.type)[1] if place.is_mapping else Any
    if not is_dataclass(inner) or not isinstance(value, Mapping):
        return value
    return {name: _made(inner, entry) for name, entry in value.items()}


def _made(kind: Any, entry: object) -> object:
    """`entry` as `kind` where that is a dataclass and `entry` a mapping."""
    if not is_dataclass(kind) or not isinstance(entry, Mapping):
        return entry
    return OmegaConf.merge(OmegaConf.structured(kind), entry)


def _entry(place: Key, number: int, entry: object) -> object:
    """An entry of a list, made an instance of its dataclass if that is what the list holds."""
    inner = typing.get_args(place.type)[0]
    if not is_dataclass(inner) or not isinstance(entry, Mapping):
        return entry
    where, names = f"{'.'.join(place.path)}[{number}]", typing.get_type_hints(inner)
    for name in entry:
        if name not in names:
            rule = "a key must exist in an entry of the list"
            raise UserError(rule, repr(name), where, closest(str(name), list(names), "Keys"))
    made = OmegaConf.structured(inner)
    for name, value in entry.items():
        try:
            made = OmegaConf.merge(made, {name: value})
        except OmegaConfBaseException as error:
            words = words_of(names[name])
            raise UserError(
                f"the value must be {words}", shown(value), f"{where}.{name}", f"Give {words}."
            ) from error
    missing = [name for name in names if OmegaConf.is_missing(made, name)]
    if missing:
        rule = f"an entry of the list must have {', '.join(missing)}"
        raise UserError(rule, shown(entry), where, "Add it.")
    return made


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
