"""The Azure LLM inference trace of 2023 (Azure Public Dataset): TIMESTAMP,ContextTokens,GeneratedTokens.

Times have up to nine decimals (the published files have seven) and count from the earliest one.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from cluster_sim.bounds import LARGEST_COUNT
from cluster_sim.traces.rows import DEFAULT_CLASS, Longs, TraceRows
from cluster_sim.traces.text import TraceText

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
HEADER = ",".join(COLUMNS)
FIRST_LINE = 2  # row 0 stands there, below the header

TIME_RULE = "TIMESTAMP must be a date and time like 2023-11-16 18:15:46.6805900"
TIME_PATTERN = r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{1,9})?$"
COUNT_PATTERN = r"^\d{1,18}$"  # what 64 bits surely hold


def parse(text: TraceText) -> TraceRows:
    """The requests in the order of the file.

    Raises:
        UserError: no request, or a line that breaks a rule.
    """
    if "\n" not in text.content:
        text.refuse("a trace must hold at least one request", "only a header", 1, "Add one line per request.")
    times, prompts, outputs = _columns(text)
    time_ns = _times_ns(text, times)
    requests = len(time_ns)
    return TraceRows(
        arrival_s=(time_ns - time_ns.min()) / 1e9,
        prompt_tokens=_tokens(text, prompts, "ContextTokens"),
        output_tokens=_tokens(text, outputs, "GeneratedTokens"),
        workload_class=np.zeros(requests, np.int64),
        priority=np.zeros(requests, np.int64),
        session=np.full(requests, -1),
        block_start=np.zeros(requests + 1, np.int64),
        block_ids=np.zeros(0, np.int64),
        class_names=(DEFAULT_CLASS,),
        warnings=(),
    )


def _columns(text: TraceText) -> list[Any]:
    """The three columns as text, one entry per line below the header, blank lines included."""
    broken: list[Any] = []

    def note(row: Any) -> str:
        broken.append(row)
        return "skip"

    data = text.content.encode()
    table = csv.read_csv(
        pa.BufferReader(data),
        csv.ReadOptions(use_threads=False, block_size=len(data), column_names=COLUMNS, skip_rows=1),
        csv.ParseOptions(quote_char=False, ignore_empty_lines=False, invalid_row_handler=note),
        csv.ConvertOptions(column_types=dict.fromkeys(COLUMNS, pa.string())),
    )
    if broken:
        rule = f"a line must have {len(COLUMNS)} columns, {HEADER}"
        text.refuse(rule, repr(broken[0].text), broken[0].number)
    return [column.combine_chunks() for column in table.columns]


def _times_ns(text: TraceText, column: Any) -> Longs:
    """Times in ns since 1970."""
    _check_pattern(text, column, TIME_PATTERN, TIME_RULE)
    if not _are_times(column):
        row = next(row for row in range(len(column)) if not _are_times(column.slice(row, 1)))
        text.refuse(TIME_RULE, repr(column[row].as_py()), row + FIRST_LINE)
    return np.asarray(column.cast(pa.timestamp("ns")).cast(pa.int64()), np.int64)


def _are_times(column: Any) -> bool:
    """Whether every entry names a moment that exists and that 64 bits of ns can hold: 1678 to 2261."""
    try:
        column.cast(pa.timestamp("ns"))
    except pa.ArrowInvalid:
        return False
    return True


def _tokens(text: TraceText, column: Any, name: str) -> Longs:
    rule = f"{name} must be a whole number from 1 to {LARGEST_COUNT}"
    _check_pattern(text, column, COUNT_PATTERN, rule)
    tokens = np.asarray(column.cast(pa.int64()), np.int64)
    broken = np.flatnonzero((tokens < 1) | (tokens > LARGEST_COUNT))
    if broken.size:
        text.refuse(rule, str(tokens[broken[0]]), int(broken[0]) + FIRST_LINE)
    return tokens


def _check_pattern(text: TraceText, column: Any, pattern: str, rule: str) -> None:
    row = pc.index(pc.match_substring_regex(column, pattern), value=False).as_py()
    if row >= 0:
        text.refuse(rule, repr(column[row].as_py()), row + FIRST_LINE)
