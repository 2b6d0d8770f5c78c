"""The configuration's keys, read off the dataclasses of config.py: which exist, and what each may hold."""

import difflib
import typing
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType
from typing import Any

from cluster_sim.config import Config
from cluster_sim.errors import UserError
from cluster_sim.speculation.vllm_options import DROPPED

FLAGS = {"model": "model", "speculative_config": "speculation.vllm_config"}  # named otherwise here
_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


@dataclass(frozen=True)
class Key:
    """One place in the configuration: the names on the way to it, and its type without `| None`."""

    path: tuple[str, ...]
    type: Any
    optional: bool

    @property
    def is_mapping(self) -> bool:
        """Whether names of the user's own choice may follow."""
        return typing.get_origin(self.type) is dict

    @property
    def words(self) -> str:
        """What the key may hold, for a message."""
        return _words(self.type) + (" or null" if self.optional else "")


def find_key(key: str, where: str = "command line") -> Key:
    """The place that a dotted key, met at `where`, names.

    What follows the name of a mapping is one name, dots and all: `sweep.axes.workload.request_rate`.

    Raises:
        UserError: there is no such key.
    """
    names = key.split(".")
    here: Any = Config
    optional = False
    for depth, name in enumerate(names):
        if is_dataclass(here):
            hints = _hints(here)
            if name not in hints:
                raise unknown_key(key, where)
            here, optional = _strip_optional(hints[name])
        elif typing.get_origin(here) is dict:
            return Key((*names[:depth], ".".join(names[depth:])), typing.get_args(here)[1], optional=False)
        elif here is not Any:
            parent = ".".join(names[:depth])
            raise UserError(
                f"{parent} holds {_words(here)} and has no keys", repr(key), where, f"Write {parent}=VALUE."
            )
    return Key(tuple(names), here, optional)


def unknown_key(key: str, where: str) -> UserError:
    """The error for a key, met at `where`, that does not exist; names the key meant, or all there."""
    last = key.rsplit(".", 1)[-1]
    if last in DROPPED and key in (last, f"speculation.{last}"):
        return UserError("an option must be one of vLLM 0.33", repr(key), where, DROPPED[last])
    parent = key.rpartition(".")[0]
    meant = _beside(parent, last) or keys_ending(last)
    meant = meant or difflib.get_close_matches(key, all_keys(), n=1, cutoff=0.75)
    if not any(other.startswith(f"{parent}.") for other in all_keys()):
        parent = ""
    start = len(parent) + 1 if parent else 0
    known = dict.fromkeys(other[start:].split(".")[0] for other in all_keys() if other.startswith(parent))
    listed = f"{f'Keys of {parent}' if parent else 'Keys at the top'}: {', '.join(known)}."
    remedy = f"Did you mean {' or '.join(meant)}?" if meant else listed
    return UserError("a key must exist in the configuration", repr(key), where, remedy)


def keys_ending(name: str) -> list[str]:
    """The dotted keys whose last part is `name`."""
    return [key for key in all_keys() if key.rsplit(".", 1)[-1] == name]


def refuse_flags_of_vllm(flags: Iterable[str]) -> None:
    """Refuse the first of `flags`, such as --max-num-seqs, that is an option of vLLM with a key here.

    Raises:
        UserError: naming the key.
    """
    for flag in sorted(flags):
        key = key_of_flag(flag)
        if key is not None:
            rule, remedy = "an option of vLLM is a key here", f"Write {key}=VALUE."
            raise UserError(rule, flag, "command line", remedy)


def key_of_flag(flag: str) -> str | None:
    """The key that does what `flag` of vLLM's command line does; None where not just one bears its name."""
    name = flag.removeprefix("--").removeprefix("no-").replace("-", "_")
    found = [FLAGS[name]] if name in FLAGS else keys_ending(name)
    return found[0] if len(found) == 1 else None


def _beside(parent: str, name: str) -> list[str]:
    """The keys of the group `parent` that have `name` as a word, such as request_rate for rate."""
    inside = [key for key in all_keys() if parent and key.rpartition(".")[0] == parent]
    return [key for key in inside if name in key.rsplit(".", 1)[-1].split("_")]


def wrong_type(key: str, value: object) -> UserError:
    """The error for a value that its key cannot hold."""
    place = find_key(key)
    remedy = f"Give {place.words}."
    if isinstance(place.type, type) and issubclass(place.type, Enum):
        meant = difflib.get_close_matches(str(value), [member.name for member in place.type], n=1)
        remedy = f"Did you mean {meant[0]}?" if meant else remedy
    return UserError(f"the value must be {place.words}", shown(value), key, remedy)


def shown(value: object) -> str:
    """`value` as the user writes it: null, true, an enum's word; text in quotes."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return value.name if isinstance(value, Enum) else repr(value)


def words_of(hint: Any) -> str:
    """What a value of type `hint` may be, for a message."""
    inner, optional = _strip_optional(hint)
    return _words(inner) + (" or null" if optional else "")


def closest(name: str, known: Collection[str], kind: str) -> str:
    """A remedy: the known name that was probably meant, and all of them."""
    meant = difflib.get_close_matches(name, known, n=1)
    listed = f"{kind}: {', '.join(known)}." if known else f"There are no {kind}."
    return f"Did you mean {meant[0]}? {listed}" if meant else listed


@cache
def all_keys() -> tuple[str, ...]:
    """Every dotted key that holds a value, in the order of the dataclasses."""
    return tuple(_leaves(Config, ""))


def _leaves(here: Any, prefix: str) -> Iterator[str]:
    for name, hint in _hints(here).items():
        inner, _ = _strip_optional(hint)
        if is_dataclass(inner):
            yield from _leaves(inner, f"{prefix}{name}.")
        else:
            yield prefix + name


def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _strip_optional(hint: Any) -> tuple[Any, bool]:
    """`X | None` as (X, True); Any holds null as well but says what it may be elsewhere."""
    members = typing.get_args(hint)
    if NoneType not in members:
        return hint, False
    (inner,) = (member for member in members if member is not NoneType)
    return inner, True


def _words(kind: Any) -> str:
    if is_dataclass(kind):
        return f"a mapping of {', '.join(_hints(kind))}"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "one of " + ", ".join(member.name for member in kind)
    if typing.get_origin(kind) is list:
        inner = typing.get_args(kind)[0]
        if is_dataclass(inner):
            return f"a list, each entry {_words(inner)}"
        return "a list" if inner is Any else f"a list of {_words(inner).split(' ', 1)[-1]}s"
    if typing.get_origin(kind) is dict and is_dataclass(typing.get_args(kind)[1]):
        return f"a mapping, each name to {_words(typing.get_args(kind)[1])}"
    return "a mapping" if typing.get_origin(kind) is dict else _WORDS.get(kind, "a whole number or a mapping")
