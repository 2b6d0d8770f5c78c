"""Strict reading of YAML in bundles/: sections, and numbers with their sources."""

import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NoReturn

import yaml

from cluster_sim.errors import UserError

Section = dict[str, Any]
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's, where PyYAML was built with it


@dataclass(frozen=True)
class Parameter:
    """A number in the unit that its name ends in, what it means, and where it comes from."""

    value: float
    meaning: str
    source: str
    licence: str


def read_yaml(file: Path) -> Section:
    """The mapping in `file`.

    Raises:
        UserError: the file is missing, unreadable or no mapping.
    """
    try:
        content = yaml.load(file.read_bytes(), _Loader)
    except (OSError, ValueError, LookupError, AttributeError, RecursionError, yaml.YAMLError) as error:
        refuse("a bundle's YAML must be readable", _first_line(error), file)
    if not isinstance(content, dict):
        refuse("a bundle's YAML must hold named sections", type(content).__name__, file)
    return content


def section(content: Section, name: str, file: Path) -> Section:
    """The mapping `name` of `content`, its keys all text.

    Raises:
        UserError: it is missing or no such mapping.
    """
    inner = content.get(name)
    if not isinstance(inner, dict) or not all(isinstance(key, str) for key in inner):
        refuse(
            f"section {name} must be a mapping of names", "nothing" if inner is None else repr(inner), file
        )
    return inner


def text(content: Section, name: str, where: str, file: Path) -> str:
    """The text `name` of `content`.

    Raises:
        UserError: it is missing, empty or no text.
    """
    value = content.get(name)
    if not isinstance(value, str) or not value.strip():
        refuse(f"{where} needs a {name} in words", "nothing" if value is None else repr(value), file)
    return value


def number(content: Section, name: str, where: str, file: Path) -> float:
    """The number `name` of `content`: finite and not negative.

    Raises:
        UserError: it is missing or no such number.
    """
    value: Any = content.get(name)
    if type(value) not in (int, float) or not 0 <= value <= sys.float_info.max:
        rule = f"{where} needs a {name} that is a number >= 0 (YAML wants 3.5e+9, not 3.5e9)"
        refuse(rule, "nothing" if value is None else repr(value), file)
    return float(value)


def only(content: Section, names: set[str], where: str, file: Path) -> None:
    """Refuse keys of `content` beyond `names`.

    Raises:
        UserError: naming the first unknown key.
    """
    unknown = sorted(str(key) for key in content if key not in names)
    if unknown:
        refuse(f"{where} may hold only {', '.join(sorted(names))}", unknown[0], file)


def read_parameters(content: Section, where: str, file: Path) -> dict[str, Parameter]:
    """All parameters of a section.

    Raises:
        UserError: one has no value, meaning, source or licence, or more than these.
    """
    return {name: _read_parameter(section(content, name, file), f"{where}.{name}", file) for name in content}


def shown(parameters: dict[str, Parameter]) -> Section:
    """What `read_parameters` reads."""
    return {name: dict(vars(parameter)) for name, parameter in parameters.items()}


def refuse(rule: str, got: object, file: Path) -> NoReturn:
    """Raise what is wrong with a file of a bundle."""
    raise UserError(rule, got, str(file), "Correct the file, or build or import the bundle again.")


def _read_parameter(content: Section, where: str, file: Path) -> Parameter:
    only(content, {field.name for field in fields(Parameter)}, where, file)
    return Parameter(
        number(content, "value", where, file),
        text(content, "meaning", where, file),
        text(content, "source", where, file),
        text(content, "licence", where, file),
    )


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
