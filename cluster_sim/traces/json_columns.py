"""Columns of a trace in JSON lines, each checked; an error names the first line that breaks a rule.

pyarrow reads files in which every line has one object and every value the type of its field. All others are
read line by line with Python's json, which is slower and words what is wrong; what is not wrong, such as
sessions that are text here and numbers there, gives the same columns.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from cluster_sim.bounds import LARGEST_COUNT
from cluster_sim.traces.rows import DEFAULT_CLASS, Floats, Longs
from cluster_sim.traces.text import TraceText

LARGEST_ID = 2**63 - 1
BLOCK_BYTES = 2**24  # of a piece; a file with a longer line is read line by line
MISSING = object()


class Kind(Enum):
    """What a value may be."""

    number = "number"
    whole = "whole"  # written without a fraction
    count = "count"  # a whole number, 7.0 too
    name = "name"  # printable text
    label = "label"  # text or a whole number: nobody reads it
    ids = "ids"  # a list of whole numbers


ARROW = {
    Kind.number: pa.float64(),
    Kind.whole: pa.int64(),
    Kind.count: pa.float64(),
    Kind.name: pa.string(),
    Kind.label: pa.string(),
    Kind.ids: pa.list_(pa.int64()),
}


@dataclass(frozen=True)
class Field:
    """One value of a request: where it stands, what it must be."""

    path: str  # with dots for objects inside objects
    kind: Kind
    words: str  # "PATH must be WORDS"
    low: float = 0
    high: float = LARGEST_COUNT
    optional: bool = False  # may be null or not there


Columns = dict[str, Any]  # path -> pyarrow array, nulls where an optional value is not there


def read_columns(text: TraceText, fields: Sequence[Field], closed: bool = False) -> Columns:
    """The fields of every line; `closed`: there must be no others.

    Raises:
        UserError: a line that is no JSON object, lacks a field, or has one that breaks its rule.
    """
    regular = _read_regular(text, fields, closed)
    return _read_lines(text, fields, closed) if regular is None else regular


def floats_of(column: Any) -> Floats:
    """Numbers; nan where there is none."""
    return np.asarray(column.cast(pa.float64()).fill_null(np.nan), np.float64)


def longs_of(column: Any) -> Longs:
    """Whole numbers; 0 where there is none."""
    return np.asarray(column.fill_null(0)).astype(np.int64)


def lists_of(column: Any) -> tuple[Longs, Longs]:
    """[request + 1] where the list of each request starts, and all entries."""
    lengths = np.asarray(pc.list_value_length(column).fill_null(0), np.int64)
    return np.concatenate(([0], np.cumsum(lengths))), np.asarray(pc.list_flatten(column), np.int64)


def classes_of(column: Any) -> tuple[Longs, tuple[str, ...]]:
    """The number of each request's class, and the classes' names in the order of the file."""
    encoded = column.fill_null(DEFAULT_CLASS).dictionary_encode()
    return np.asarray(encoded.indices, np.int64), tuple(encoded.dictionary.to_pylist())


def numbers_of(column: Any) -> Longs:
    """A number for each label in the order of the file; -1 where there is none."""
    return np.asarray(column.dictionary_encode().indices.fill_null(-1), np.int64)


def first_object(text: TraceText) -> Mapping[str, Any] | None:
    """The object in the first line; None where there is none."""
    try:
        value = _DECODER.decode(text.first_line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _read_regular(text: TraceText, fields: Sequence[Field], closed: bool) -> Columns | None:
    """All columns by pyarrow; None where it cannot or where a rule is broken."""
    if text.data.count(b"}\n{") + text.data.count(b"}\r\n{") != text.num_lines - 1:
        return None
    for label in (pa.string(), pa.int64()):
        try:
            table = arrow_json.read_json(
                pa.BufferReader(text.data),
                arrow_json.ReadOptions(block_size=BLOCK_BYTES),
                arrow_json.ParseOptions(
                    explicit_schema=_schema(fields, label),
                    unexpected_field_behavior="error" if closed else "ignore",
                ),
            )
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            continue
        if table.num_rows != text.num_lines:
            return None
        columns = {field.path: _column(table, field.path) for field in fields}
        return columns if all(_are_sound(field, columns[field.path]) for field in fields) else None
    return None


def _schema(fields: Sequence[Field], label: Any) -> Any:
    tree: dict[str, Any] = {}
    for field in fields:
        *parents, leaf = field.path.split(".")
        branch = tree
        for parent in parents:
            branch = branch.setdefault(parent, {})
        branch[leaf] = label if field.kind is Kind.label else ARROW[field.kind]
    return pa.schema([(name, _typed(branch)) for name, branch in tree.items()])


def _typed(branch: Any) -> Any:
    if isinstance(branch, dict):
        return pa.struct([(name, _typed(inner)) for name, inner in branch.items()])
    return branch


def _column(table: Any, path: str) -> Any:
    first, *rest = path.split(".")
    column = table[first].combine_chunks()
    for name in rest:
        column = pc.struct_field(column, name)
    return column


def _are_sound(field: Field, column: Any) -> bool:
    """Whether every entry of a column keeps its rule."""
    if not field.optional and column.null_count:
        return False
    if field.kind is Kind.name:
        return all(_is_sound(field, name) for name in pc.unique(column).drop_null().to_pylist())
    if field.kind is Kind.label:
        return True
    values = pc.list_flatten(column) if field.kind is Kind.ids else column.drop_null()
    if values.null_count:
        return False
    numbers = np.asarray(values)
    if field.kind is Kind.count and np.any(numbers != np.floor(numbers)):
        return False
    return not len(numbers) or bool(numbers.min() >= field.low and numbers.max() <= field.high)


def _read_lines(text: TraceText, fields: Sequence[Field], closed: bool) -> Columns:
    """All columns line by line."""
    values: dict[str, list[Any]] = {field.path: [] for field in fields}
    for line, content in enumerate(text.data.decode().split("\n"), 1):
        request = _parse_line(text, line, content)
        if closed and not request.keys() <= values.keys():
            unknown = min(request.keys() - values.keys())
            remedy = f"Leave it out; the keys are {', '.join(values)}."
            text.refuse("a request must have no unknown keys", repr(unknown), line, remedy)
        for field in fields:
            values[field.path].append(_value(text, line, content, request, field))
    return {field.path: pa.array(values[field.path], ARROW[field.kind]) for field in fields}


def _value(text: TraceText, line: int, content: str, request: Mapping[str, Any], field: Field) -> Any:
    value: Any = request
    for name in field.path.split("."):
        value = value.get(name, MISSING) if isinstance(value, dict) else MISSING
    if field.optional and (value is None or value is MISSING):
        return None
    if value is MISSING:
        rule, remedy = f"a request must have {field.path}", f"Add {field.path}."
        text.refuse(rule, repr(content.strip()), line, remedy)
    if not _is_sound(field, value):
        text.refuse(f"{field.path} must be {field.words}", json.dumps(value), line)
    return json.dumps(value) if field.kind is Kind.label else value


def _is_sound(field: Field, value: Any) -> bool:
    if field.kind is Kind.ids:
        return isinstance(value, list) and all(
            type(entry) is int and field.low <= entry <= field.high for entry in value
        )
    if field.kind is Kind.name:
        return isinstance(value, str) and value.isprintable() and value.strip() != ""
    if field.kind is Kind.label:
        return type(value) in (str, int)
    if type(value) is float and field.kind is not Kind.number:
        return field.kind is Kind.count and value.is_integer() and field.low <= value <= field.high
    return type(value) in (float, int) and bool(field.low <= value <= field.high)


def _parse_line(text: TraceText, line: int, content: str) -> dict[str, Any]:
    try:
        request = _DECODER.decode(content)
    except (ValueError, RecursionError) as error:
        rule = "a line must be one JSON object"
        text.refuse(rule, repr(content.strip()), line, f"Correct or remove the line: {reason(error)}.")
    if not isinstance(request, dict):
        text.refuse("a line must be one JSON object", repr(content.strip()), line)
    return request


def reason(error: Exception) -> str:
    """What json says, in a line."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at column {error.colno}"
    return str(error).partition("\n")[0]


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a JSON number")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object, each of whose keys stands once."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the key {name!r} stands twice")
        found[name] = value
    return found


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_once)
