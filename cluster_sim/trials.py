"""Trials of a sweep: a row each, kept as they end, in trials.parquet at last.

While a sweep runs, each row is a line of trials.jsonl, in the order in which trials end. A sweep that was
killed, at any moment, is continued from there: a torn last line is cut off, and its trial runs again. At the
end the rows go to trials.parquet in the order of the trials, so its bytes depend on neither.
"""

import errno
import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cluster_sim.errors import UserError
from cluster_sim.files import TRIALS, worded, write_parquet

JOURNAL = "trials.jsonl"
MACHINE_KEYS = ("engine_wall_s", "wall_s", "peak_rss_bytes")  # of summary.json: never the same twice
Row = dict[str, Any]  # scalars, and lists of scalars or of flat mappings; "trial" is its number


def trial_row(
    trial: int, arm: str, point: Mapping[str, object], seed: int, summary: Mapping[str, Any]
) -> Row:
    """One trial as a flat row: its place in the sweep, and its summary under the paths of summary.json.

    `point` has the value of every axis, under its key. What depends on the machine is left out, so that the
    row is the same wherever it is made.
    """
    axes = {key: _scalar(value) for key, value in point.items()}
    place = {"trial": trial, "arm": arm, **axes, "seed": seed}
    return {**place, **_flat({key: value for key, value in summary.items() if key not in MACHINE_KEYS})}


def write_trials(directory: Path, rows: Sequence[Row]) -> None:
    """Write trials.parquet: `rows` in the order of the trials; a column for every key that any row has."""
    ordered = sorted(rows, key=lambda row: int(row["trial"]))
    keys = dict.fromkeys(key for row in ordered for key in row)
    columns = {key: _column([row.get(key) for row in ordered]) for key in keys}
    write_parquet(directory / TRIALS, pa.table(columns))


def read_trials(directory: Path) -> list[Row]:
    """The rows of trials.parquet, in the order of the trials.

    Raises:
        UserError: there is no such table.
    """
    path = directory / TRIALS
    try:
        rows: list[Row] = pq.read_table(path).to_pylist()
    except (OSError, pa.ArrowInvalid) as error:
        got = str(error).partition("\n")[0]
        remedy = "Name the directory of a finished run or sweep."
        raise UserError("the trials of a result must be a readable table", got, str(path), remedy) from error
    return rows


def read_kept(directory: Path) -> list[Row]:
    """The rows of all trials that have ended, in their order, whether the sweep has ended or not.

    Reads what open_trials would go on with, changes nothing, and waits for nobody.

    Raises:
        UserError: trials.parquet cannot be read.
    """
    rows = read_trials(directory) if (directory / TRIALS).exists() else []
    if (directory / JOURNAL).exists():
        content = (directory / JOURNAL).read_bytes()
        rows += [json.loads(line) for line in content[: content.rfind(b"\n") + 1].splitlines()]
    return sorted({row["trial"]: row for row in rows}.values(), key=lambda row: int(row["trial"]))


class TrialWriter:
    """Rows of the trials that have ended; the only writer of the sweep's directory. Made by open_trials."""

    def __init__(self, directory: Path, journal: FileIO, finished: dict[int, Row]) -> None:
        self._directory, self._journal = directory, journal
        self.finished = finished  # trial -> row

    def append(self, row: Row) -> None:
        """Keep the row of a trial that has just ended; it outlives this process from here on."""
        line = (json.dumps(row, allow_nan=False) + "\n").encode()
        with worded(self._directory / JOURNAL):
            if self._journal.write(line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.finished[row["trial"]] = row

    def finish(self) -> list[Row]:
        """Write trials.parquet and drop the journal; all rows in the order of the trials."""
        rows = [self.finished[trial] for trial in sorted(self.finished)]
        write_trials(self._directory, rows)
        with worded(self._directory / JOURNAL):
            (self._directory / JOURNAL).unlink()
        return rows


@contextmanager
def open_trials(directory: Path) -> Iterator[TrialWriter]:
    """The trials of a sweep, those of earlier runs too; files.open_directory has made its directory.

    Raises:
        UserError: another process writes there, or the directory cannot be written.
    """
    with worded(directory):
        handle = os.open(directory, os.O_RDONLY)
    try:
        _lock(handle, directory)
        rows = read_trials(directory) if (directory / TRIALS).exists() else []
        with worded(directory / JOURNAL):
            journal = (directory / JOURNAL).open("a+b", buffering=0)
        with journal:
            rows += _whole_lines(journal)
            yield TrialWriter(directory, journal, {row["trial"]: row for row in rows})
    finally:
        os.close(handle)


def _lock(handle: int, directory: Path) -> None:
    """Hold the directory until `handle` is closed, which the end of the process, even by a kill, does too."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        rule = "one process at a time writes a directory of results"
        remedy = "Wait for the other one, or choose another directory with output.dir=PATH."
        raise UserError(rule, "another that is running", str(directory), remedy) from error


def _whole_lines(journal: FileIO) -> list[Row]:
    """Rows of the journal; what a kill left of a last line is cut off."""
    journal.seek(0)
    content = journal.read()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        journal.truncate(whole)
    return [json.loads(line) for line in content[:whole].splitlines()]


def _flat(tree: Mapping[str, Any], path: str = "") -> Row:
    row: Row = {}
    for key, value in tree.items():
        name = f"{path}{key.replace('.', '_')}"  # of a class, which may have dots
        row |= _flat(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
    return row


def _scalar(value: object) -> object:
    """An axis may have lists and mappings as values: they are written as JSON."""
    return value if isinstance(value, str | int | float | None) else json.dumps(value)


def _column(values: Sequence[object]) -> pa.Array:
    """Values of one type, or as JSON where they are of several; a column of nothing is one of numbers."""
    try:
        column = pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([None if value is None else json.dumps(value) for value in values])
    if pa.types.is_null(column.type):
        return column.cast(pa.float64())
    if pa.types.is_list(column.type) and pa.types.is_null(column.type.value_type):
        return column.cast(pa.list_(pa.string()))
    return column
