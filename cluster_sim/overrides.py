"""The command line's overrides in Hydra's grammar: `group=option`, `+sweep=NAME`, `key=value`.

They are checked before anything is composed: Hydra accepts any key after a plus sign, and advises to add one;
here a key exists or is an error, with or without it.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType, Quote, QuotedString
from hydra.errors import HydraException

from cluster_sim.errors import UserError
from cluster_sim.paths import conf_dir, group_names, group_options
from cluster_sim.schema import closest, find_key, shown
from cluster_sim.speculation import trtllm, vllm_config

SEARCH_PATH = "hydra.searchpath"
ADDED_GROUPS = ("sweep", "study")  # absent from the defaults list: chosen with a plus sign
COMMAND_LINE = "command line"
JSON_KEYS = (vllm_config.KEY, trtllm.KEY)  # may hold JSON, which Hydra's grammar does not read
_JSON = re.compile(r'\+*([\w.]+)=\s*\{\s*["}]')


@dataclass(frozen=True)
class Overrides:
    """What was asked for: the option of each group, the value of each key, and where else options lie.

    `implied` are the keys that only vllm_config sets.
    """

    groups: dict[str, str]
    values: dict[str, object]
    search_path: tuple[Path, ...] = ()
    implied: frozenset[str] = frozenset()


def parse_overrides(arguments: Sequence[str]) -> Overrides:
    """Read `arguments`; of several values for one key the last holds, as in Hydra.

    Raises:
        UserError: not Hydra's grammar, an unknown key, group or option, or a plus sign out of place.
    """
    parsed = [(argument, _parse(argument)) for argument in arguments]
    search_path = tuple(
        path for _, one in parsed if one.key_or_group == SEARCH_PATH for path in _directories(one.value())
    )
    groups: dict[str, str] = {}
    values: dict[str, object] = {}
    for argument, override in parsed:
        name, value = override.key_or_group, override.value()
        if name == SEARCH_PATH:
            continue
        _check_plus(argument, override)
        if name in group_names():
            if name in groups:
                raise UserError("a group is chosen once", argument, COMMAND_LINE, f"Keep one {name}=OPTION.")
            groups[name] = _option(name, value, search_path)
        else:
            values.update(flatten(name, value))
    return _read_vllm_config(groups, values, search_path)


def quoted(text: str) -> str:
    """`text` as a value of an override, whatever it holds."""
    return QuotedString(text, Quote.single).with_quotes()


def split_changes(changes: Mapping[str, object], search_path: Sequence[Path]) -> Overrides:
    """The same for a mapping of keys to values, as a sweep's arms and axes have it.

    Raises:
        UserError: an unknown key, group or option.
    """
    groups = {key: _option(key, value, search_path) for key, value in changes.items() if key in group_names()}
    values: dict[str, object] = {}
    for key, value in changes.items():
        if key not in groups:
            values.update(flatten(key, value))
    return _read_vllm_config(groups, values, tuple(search_path))


def flatten(key: str, value: object) -> Iterator[tuple[str, object]]:
    """`key` and `value`, or a pair for each key inside `value` where the configuration has keys."""
    if key in JSON_KEYS and isinstance(value, str):
        value = _from_json(key, value)
    if is_dataclass(find_key(key).type) and isinstance(value, Mapping):
        for name, inner in value.items():
            yield from flatten(f"{key}.{name}", inner)
    else:
        yield key, value


def _read_vllm_config(
    groups: Mapping[str, str], values: Mapping[str, object], search_path: tuple[Path, ...]
) -> Overrides:
    """The overrides, with what speculation.vllm_config says in place of it."""
    merged_groups, merged = vllm_config.with_vllm_config(groups, values)
    if merged_groups.keys() != groups.keys():
        _option("speculation", merged_groups["speculation"], search_path)
    implied = frozenset((*merged_groups, *merged)) - frozenset((*groups, *values))
    return Overrides(merged_groups, merged, search_path, implied)


def _from_json(key: str, text: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        remedy = "Correct it: names and text in double quotes, no comma before a closing bracket."
        raise UserError(f"{key} must be JSON", f"{text!r}: {error}", key, remedy) from error


def _parse(argument: str) -> Override:
    found = _JSON.match(argument)
    if found and found[1] in JSON_KEYS:
        name, _, text = argument.partition("=")
        argument = f"{name}={quoted(text)}"
    try:
        override = OverridesParser.create().parse_override(argument)
    except HydraException as error:
        reason = str(error).splitlines()[0]
        remedy = "Quote a value that holds brackets, commas, spaces or '=', for example 'key=\"a=b\"'."
        if "[(" in argument:
            remedy = "Write a tuple (1, 16, 3) as a list [1, 16, 3]."
        rule = "an override must read key=value"
        raise UserError(rule, f"{argument!r}: {reason}", COMMAND_LINE, remedy) from error
    name = override.key_or_group
    if override.type is OverrideType.DEL:
        raise UserError(
            "a key cannot be removed", argument, COMMAND_LINE, f"Write {name}=null where null is allowed."
        )
    if override.package is not None:
        raise UserError(
            "a group has one place in the configuration", argument, COMMAND_LINE, f"Write {name}=OPTION."
        )
    if not name:
        raise UserError(
            "an override must read key=value", repr(argument), COMMAND_LINE, "Name a key before '='."
        )
    if override.is_sweep_override():
        remedy = f"Put several values into a sweep: +sweep=NAME 'sweep.axes.{name}=[...]'."
        raise UserError("one run takes one value per key", argument, COMMAND_LINE, remedy)
    return override


def _check_plus(argument: str, override: Override) -> None:
    name, plus = override.key_or_group, override.type is not OverrideType.CHANGE
    if name in ADDED_GROUPS and not plus:
        remedy = f"Write +{argument}."
        raise UserError(
            f"a {name} is added to the defaults with a plus sign", repr(argument), COMMAND_LINE, remedy
        )
    if plus and name not in ADDED_GROUPS:
        if name not in group_names():
            find_key(name)
        remedy = f"Write {argument.lstrip('+')}."
        raise UserError(
            "only a sweep or a study is added with a plus sign", repr(argument), COMMAND_LINE, remedy
        )


def _option(group: str, value: object, search_path: Sequence[Path]) -> str:
    options = group_options(group, (*search_path, conf_dir()))
    if not isinstance(value, str) or value not in options:
        rule = f"{group} must be one of the options in conf/{group}"
        raise UserError(rule, shown(value), group, closest(str(value), options, "Options"))
    return value


def _directories(value: object) -> Iterator[Path]:
    for entry in value if isinstance(value, list) else [value]:
        path = Path(str(entry).removeprefix("file://"))
        if not path.is_dir():
            raise UserError(
                "a search path must be a directory", repr(str(entry)), SEARCH_PATH, "Create it or correct it."
            )
        yield path.resolve()
