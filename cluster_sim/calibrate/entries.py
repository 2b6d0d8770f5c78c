"""The JSON objects of a file: one, a list of them, or one a line; and strict reading of their numbers."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from cluster_sim.errors import UserError
from cluster_sim.traces.text import TraceText, load, shortened

REMEDY = "Correct the file, or measure again."
SCRAPE_REMEDY = "Scrapes of /metrics go in pairs: --metrics-before FILE --metrics-after FILE."
LARGEST = 1e15  # of a count or a time: beyond it a number is damage
WHAT, HOLDS, KEY = "a measurement", "run", "calibrate FILE"


@dataclass(frozen=True)
class Entry:
    """A JSON object, and where it stands."""

    path: Path
    place: str  # the file, and the line or the number of the entry where it holds several
    values: Mapping[str, Any]

    def __contains__(self, name: str) -> bool:
        return self.values.get(name) is not None

    def number(self, name: str, low: float = 0.0, high: float = LARGEST) -> float:
        """The number `name`, from `low` to `high`.

        Raises:
            UserError: it is missing or no such number.
        """
        return _number(self.values.get(name), low, high, name, self)

    def whole(self, name: str, low: int = 0) -> int:
        """The whole number `name`, `low` or more.

        Raises:
            UserError: it is missing or no such number.
        """
        return _whole(self.values.get(name), low, name, self)

    def numbers(self, name: str, low: float, high: float) -> tuple[float, ...]:
        """The list `name` of numbers from `low` to `high`.

        Raises:
            UserError: it is missing or no such list.
        """
        given = self._list(name)
        return tuple(_number(value, low, high, f"{name}[{place}]", self) for place, value in enumerate(given))

    def wholes(self, name: str) -> tuple[int, ...]:
        """The list `name` of whole numbers, 0 or more.

        Raises:
            UserError: it is missing or no such list.
        """
        return tuple(
            _whole(value, 0, f"{name}[{place}]", self) for place, value in enumerate(self._list(name))
        )

    def refuse(self, rule: str, got: object, remedy: str = REMEDY) -> NoReturn:
        """Raise what is wrong with the entry."""
        raise UserError(
            rule, got if isinstance(got, int | float) else shortened(str(got)), self.place, remedy
        )

    def _list(self, name: str) -> Sequence[Any]:
        given = self.values.get(name)
        if not isinstance(given, list) or not given:
            self.refuse(f"{name} must be a list of numbers, one or more", said(given))
        return given


def read_entries(path: Path) -> list[Entry]:
    """The objects of a JSON file, in their order.

    Raises:
        UserError: the file cannot be read, is no JSON, or holds something else than objects.
    """
    text = load(path, WHAT, HOLDS, KEY)
    found = _parsed(text.data, str(path), may_be_lines=True)
    if found is None:
        return [
            _entry_of_line(text, number, line)
            for number, line in enumerate(text.data.split(b"\n"), 1)
            if line.strip()
        ]
    if isinstance(found, list):
        places = [f"{path}, entry {number}" for number in range(1, len(found) + 1)]
        return [_entry(path, place, value) for place, value in zip(places, found, strict=True)]
    return [_entry(path, str(path), found)]


def names_of(places: Iterable[str]) -> dict[str, str]:
    """Each place by its file's name, and by as many directories as tell all of them apart."""
    parts = {place: place.split("/") for place in places}
    depth = 1
    while len({tuple(part[-depth:]) for part in parts.values()}) < len(parts):
        depth += 1
    return {place: "/".join(part[-depth:]) for place, part in parts.items()}


def _entry_of_line(text: TraceText, number: int, line: bytes) -> Entry:
    place = f"{text.path}, line {number}"
    return _entry(text.path, place, _parsed(line, place, may_be_lines=False))


def _entry(path: Path, place: str, value: Any) -> Entry:
    if not isinstance(value, dict) or not value:
        rule = "measurements must be JSON objects: one, a list of them, or one a line"
        raise UserError(rule, shortened(said(value)), place, REMEDY)
    return Entry(path, place, value)


def _parsed(data: bytes, place: str, may_be_lines: bool) -> Any:
    """What `data` holds; None where it is not one JSON value but may be one a line."""
    try:
        return json.loads(data, object_pairs_hook=_once, parse_constant=_no_constant)
    except RecursionError:
        got = "brackets in brackets without end"
    except json.JSONDecodeError as error:
        if may_be_lines and error.msg == "Extra data":
            return None
        got = str(error)
    except ValueError as error:
        got = str(error).partition("\n")[0].partition(";")[0]
    remedy = SCRAPE_REMEDY if data.lstrip().startswith((b"# HELP", b"# TYPE", b"vllm:")) else REMEDY
    raise UserError("a measurement must be JSON", got, place, remedy)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object, none of whose names comes twice."""
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {said(shortened(twice))} twice in one object")
    return values


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word}, which is no number")


def _number(value: Any, low: float, high: float, name: str, entry: Entry) -> float:
    if type(value) not in (int, float) or not low <= value <= high or not math.isfinite(value):
        entry.refuse(f"{name} must be a number from {low:g} to {high:g}", said(value))
    return float(value)


def _whole(value: Any, low: int, name: str, entry: Entry) -> int:
    if type(value) not in (int, float) or not low <= value <= LARGEST or value != int(value):
        entry.refuse(f"{name} must be a whole number from {low} to {LARGEST:g}", said(value))
    return int(value)


def said(value: object) -> str:
    """`value` as the file says it, in one line; an integer may have more digits than Python writes."""
    if value is None:
        return "nothing"
    try:
        return json.dumps(value)
    except (ValueError, RecursionError):
        return "a number or a nest too large to show"
