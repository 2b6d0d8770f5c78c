"""Columns of a CSV trace, each checked as a whole; an error names the first line that breaks the rule.

There is no quoting: a double quote is a character like others, as no public trace quotes anything.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from cluster_sim.bounds import LARGEST_COUNT
from cluster_sim.traces.rows import Longs
from cluster_sim.traces.text import TraceText

FIRST_LINE = 2  # row 0 stands there, below the header
COUNT_PATTERN = r"^\d{1,18}$"  # what 64 bits surely hold


def header_of(text: TraceText) -> list[str]:
    """Names of the columns: those that the first line has if it is a header."""
    return [name.strip() for name in text.first_line.split(",")]


def read_columns(text: TraceText, wanted: Sequence[str]) -> dict[str, Any]:
    """The columns `wanted` as text, one entry per line below the header, blank lines included.

    Raises:
        UserError: no line below the header, a name that stands twice, or a line with more or fewer columns.
    """
    header = header_of(text)
    twice = [name for place, name in enumerate(header) if name in header[:place]]
    if twice:
        rule, remedy = "a header must name each column once", "Rename or remove one of them."
        text.refuse(rule, f"{twice[0]!r} twice", 1, remedy)
    if text.num_lines == 1:
        text.refuse("a trace must hold at least one request", "only a header", 1, "Add one line per request.")
    broken: list[Any] = []

    def note(row: Any) -> str:
        broken.append(row)
        return "skip"

    try:
        table = csv.read_csv(
            pa.BufferReader(text.data),
            csv.ReadOptions(
                use_threads=False, block_size=len(text.data) + 1, column_names=header, skip_rows=1
            ),
            csv.ParseOptions(quote_char=False, ignore_empty_lines=False, invalid_row_handler=note),
            csv.ConvertOptions(column_types=dict.fromkeys(header, pa.string()), include_columns=list(wanted)),
        )
    except pa.ArrowInvalid as error:
        text.refuse("a trace must be a CSV table", str(error).partition("\n")[0], FIRST_LINE)
    if broken:
        rule = f"a line must have {len(header)} columns, {','.join(header)}"
        text.refuse(rule, repr(broken[0].text), broken[0].number)
    return {name: table[name].combine_chunks() for name in wanted}


def tokens_of(text: TraceText, column: Any, name: str) -> Longs:
    """A column of token counts; 0 is one.

    Raises:
        UserError: an entry is not a whole number, or is too large to count.
    """
    rule = f"{name} must be a whole number from 0 to {LARGEST_COUNT}"
    check_pattern(text, column, COUNT_PATTERN, rule)
    tokens = np.asarray(column.cast(pa.int64()), np.int64)
    broken = np.flatnonzero(tokens > LARGEST_COUNT)
    if broken.size:
        text.refuse(rule, str(tokens[broken[0]]), int(broken[0]) + FIRST_LINE)
    return tokens


def check_pattern(text: TraceText, column: Any, pattern: str, rule: str) -> None:
    """Raise for the first entry that does not match.

    Raises:
        UserError: there is one.
    """
    row = pc.index(pc.match_substring_regex(column, pattern), value=False).as_py()
    if row >= 0:
        text.refuse(rule, repr(column[row].as_py()), row + FIRST_LINE)


def numbered(column: Any) -> Longs:
    """A number for each distinct entry in the order of the file; -1 for an empty one."""
    empty = pc.equal(column, "")
    encoded = pc.if_else(empty, pa.scalar(None, pa.string()), column).dictionary_encode()
    return np.asarray(encoded.indices.fill_null(-1).cast(pa.int64()), np.int64)
