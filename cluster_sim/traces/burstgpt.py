"""BurstGPT (github.com/HPMLL/BurstGPT): Timestamp in s, Request tokens, Response tokens (0: it failed).

Its Log Type, conversation or API, is the request's class. Session ID and Elapsed time came with the second
release; a request without a Session ID belongs to none. Other columns are not read.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cluster_sim.traces.csv_columns import (
    FIRST_LINE,
    check_pattern,
    header_of,
    numbered,
    read_columns,
    tokens_of,
)
from cluster_sim.traces.rows import DEFAULT_CLASS, Longs, TraceRows, plain_rows
from cluster_sim.traces.text import TraceText

COLUMNS = ("Timestamp", "Request tokens", "Response tokens")
SESSION, LOG_TYPE = "Session ID", "Log Type"
LATEST_S = 1e11  # as Unix time the year 5138: beyond it a time is in ms or ns
TIME_RULE = f"Timestamp must be a number of seconds from 0 to {LATEST_S:g}"
TIME_PATTERN = r"^\d{1,18}(\.\d{0,18})?$"


def parse(text: TraceText) -> TraceRows:
    """The requests in the order of the file.

    Raises:
        UserError: no request, or a line that breaks a rule.
    """
    more = [name for name in (SESSION, LOG_TYPE) if name in header_of(text)]
    columns = read_columns(text, (*COLUMNS, *more))
    check_pattern(text, columns["Timestamp"], TIME_PATTERN, TIME_RULE)
    arrival_s = np.asarray(columns["Timestamp"].cast(pa.float64()), np.float64)
    late = np.flatnonzero(arrival_s > LATEST_S)
    if late.size:
        text.refuse(TIME_RULE, f"{arrival_s[late[0]]:g}", int(late[0]) + FIRST_LINE)
    rows = plain_rows(
        f"BurstGPT CSV {'with' if SESSION in more else 'without'} sessions",
        arrival_s,
        tokens_of(text, columns["Request tokens"], "Request tokens"),
        tokens_of(text, columns["Response tokens"], "Response tokens"),
        numbered(columns[SESSION]) if SESSION in more else None,
    )
    if LOG_TYPE not in more:
        return rows
    workload_class, names = _classes(text, pc.utf8_trim_whitespace(columns[LOG_TYPE]))
    return replace(rows, workload_class=workload_class, class_names=names)


def _classes(text: TraceText, column: Any) -> tuple[Longs, tuple[str, ...]]:
    """The number of each request's class, and the classes' names in the order of the file."""
    kinds = pc.if_else(pc.equal(column, ""), DEFAULT_CLASS, column).dictionary_encode()
    names = tuple(kinds.dictionary.to_pylist())
    for name in names:
        if not name.isprintable():
            row = pc.index(column, name).as_py()
            text.refuse(f"{LOG_TYPE} must be a name", repr(name), row + FIRST_LINE)
    return np.asarray(kinds.indices.cast(pa.int64())), names
