"""Azure LLM inference traces (Azure Public Dataset): TIMESTAMP,ContextTokens,GeneratedTokens.

2023: 2023-11-16 18:15:46.6805900. 2024: 2024-05-10 00:00:00.009930+00:00, in UTC. 2025, of multimodal models:
2024-10-15T12:00:00.269Z, and NumImages. Times have up to nine decimals and count from the earliest one.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cluster_sim.traces.csv_columns import FIRST_LINE, check_pattern, header_of, read_columns, tokens_of
from cluster_sim.traces.rows import Longs, TraceRows, plain_rows, with_warning
from cluster_sim.traces.text import TraceText

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
IMAGES = "NumImages"
TIME_RULE = "TIMESTAMP must be a date and time like 2023-11-16 18:15:46.6805900"
ZONE = r"(\+00:00|Z)$"
TIME_PATTERN = r"^\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d{1,9})?(\+00:00|Z)?$"


def parse(text: TraceText) -> TraceRows:
    """The requests in the order of the file.

    Raises:
        UserError: no request, or a line that breaks a rule.
    """
    has_images = IMAGES in header_of(text)
    columns = read_columns(text, (*COLUMNS, IMAGES) if has_images else COLUMNS)
    times, zoned = _times_ns(text, columns["TIMESTAMP"])
    rows = plain_rows(
        f"Azure CSV of {'2025' if has_images else '2024' if zoned else '2023'}",
        (times - times.min()) / 1e9,
        tokens_of(text, columns["ContextTokens"], "ContextTokens"),
        tokens_of(text, columns["GeneratedTokens"], "GeneratedTokens"),
    )
    some = np.count_nonzero(tokens_of(text, columns[IMAGES], IMAGES)) if has_images else 0
    if not some:
        return rows
    return with_warning(
        rows, f"{text.path}: images of {some} of {len(times)} requests, whose encoding takes no time here"
    )


def _times_ns(text: TraceText, column: Any) -> tuple[Longs, bool]:
    """Times in ns since 1970, and whether they name their zone."""
    check_pattern(text, column, TIME_PATTERN, TIME_RULE)
    zoned = bool(pc.any(pc.match_substring_regex(column, ZONE)).as_py())
    plain = pc.replace_substring_regex(column, ZONE, "") if zoned else column
    if not _are_times(plain):
        row = next(row for row in range(len(plain)) if not _are_times(plain.slice(row, 1)))
        text.refuse(TIME_RULE, repr(column[row].as_py()), row + FIRST_LINE)
    return np.asarray(plain.cast(pa.timestamp("ns")).cast(pa.int64()), np.int64), zoned


def _are_times(column: Any) -> bool:
    """Whether every entry names a moment that exists and that 64 bits of ns can hold: 1678 to 2261."""
    try:
        column.cast(pa.timestamp("ns"))
    except pa.ArrowInvalid:
        return False
    return True
