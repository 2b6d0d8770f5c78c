"""The requests of a simulation, a row each in order of arrival, as CSV or JSON lines.

Columns are those of requests/*.parquet (results.py), with their units in their names. What a request does not
have is an empty field, or null. Numbers are written so that reading them gives the same bits.
"""

import io
import json

import pyarrow as pa
from pyarrow import csv

from cluster_sim.export.source import requests_of
from cluster_sim.report.stored import Stored


def requests_csv(stored: Stored) -> str:
    """A header and a line per request; words are in quotes.

    Raises:
        UserError: the requests are not there.
    """
    table, buffer = requests_of(stored), io.BytesIO()
    buffer.write((",".join(table.column_names) + "\n").encode())
    options = csv.WriteOptions(include_header=False, quoting_style="needed")
    csv.write_csv(_plain(table), buffer, options)
    return buffer.getvalue().decode()


def requests_jsonl(stored: Stored) -> str:
    """An object per line.

    Raises:
        UserError: the requests are not there.
    """
    rows = _plain(requests_of(stored)).to_pylist()
    return "".join(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows)


def _plain(table: pa.Table) -> pa.Table:
    """Words as words, not as numbers of a dictionary."""
    for number, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            words = table.column(number).cast(pa.string())
            table = table.set_column(number, field.name, words)
    return table
