"""What exports read: the rows of trials, the settings behind one, the requests of a simulation.

A file that is missing, damaged or of an older version is an error of one line.
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cluster_sim.errors import UserError
from cluster_sim.files import REQUESTS, TRIALS
from cluster_sim.manifest import is_as_written
from cluster_sim.report.stored import Stored, read_results
from cluster_sim.trials import Row

RULE = "an export is made from a directory of results"
NAME_ONE = "Name the output.dir of a simulation or a sweep."
AGAIN = "Run it again with this version."
UNKNOWN = object()  # a setting that a group option of a sweep replaced: the results do not say it


def read_source(directory: Path) -> Stored:
    """The results in `directory`: a simulation, or a sweep of which trials have ended.

    Raises:
        UserError: there are none, or those of a study, or a file of them is damaged.
    """
    if not directory.is_dir():
        raise UserError(RULE, "no such directory", str(directory), NAME_ONE)
    try:
        stored = read_results(directory)
    except UserError as error:
        raise UserError(RULE, error.got, error.where, NAME_ONE) from error
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(RULE, "a damaged one", str(directory), NAME_ONE) from error
    if not is_as_written(stored.manifest):
        raise UserError("an export needs the manifest of this version", "another", str(directory), AGAIN)
    if stored.study:
        remedy = f"Simulate its best arm: python -m cluster_sim --config {directory / 'best.yaml'}."
        raise UserError("an export is made from a simulation or a sweep", "a study", str(directory), remedy)
    if not stored.rows or not all({"trial", "arm", "seed"} <= row.keys() for row in stored.rows):
        raise UserError(RULE, f"no trials in {TRIALS}", str(directory), NAME_ONE)
    return stored


def is_sweep(stored: Stored) -> bool:
    """Whether there can be several trials."""
    return bool(stored.sweep)


def axes_of(stored: Stored) -> list[str]:
    """The keys that differ between trials, beside the arm and the seed."""
    searched = (stored.sweep.get("search") or {}).get("key")
    return [*(stored.sweep.get("axes") or {}), *([searched] if searched else [])]


def value_of(stored: Stored, row: Row, path: str) -> Any:
    """An entry of a trial's summary, by its path in summary.json; None where the run has no such value.

    Raises:
        UserError: the result has no such entry: another version made it.
    """
    if path not in row:
        raise UserError(
            f"an export needs {path} of {TRIALS}", "a result without", str(stored.directory), AGAIN
        )
    return row[path]


def number_of(stored: Stored, row: Row, path: str) -> float | int | None:
    """The same, and that it is a number or None.

    Raises:
        UserError: it is something else, or missing.
    """
    value = value_of(stored, row, path)
    if value is None:
        return None
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise UserError(f"{path} of {TRIALS} must be a number", repr(value), str(stored.directory), AGAIN)
    return value


def setting_of(stored: Stored, row: Row, path: str) -> Any:
    """The value of a configuration key in a trial: of its axis, of its arm, or of the manifest.

    UNKNOWN where the arm or an axis chooses an option of its group, whose values are not stored. Of
    `model.name` the option's name is taken then.
    """
    changes = {**((stored.sweep.get("arms") or {}).get(row["arm"]) or {})}
    changes |= {axis: row.get(axis) for axis in axes_of(stored)}
    group = path.partition(".")[0]
    if path in changes:
        return changes[path]
    if group in changes:
        return changes[group] if path == "model.name" else UNKNOWN
    value: Any = stored.config
    for name in path.split("."):
        if not isinstance(value, Mapping) or name not in value:
            rule = f"an export needs {path} of manifest.yaml"
            raise UserError(rule, "none", str(stored.directory), AGAIN)
        value = value[name]
    return value


def requests_of(stored: Stored, needed: Sequence[str] = ()) -> pa.Table:
    """The requests of a simulation, a row each in order of arrival, with at least the columns `needed`.

    Raises:
        UserError: they are not there, or not readable, or lack a column.
    """
    path, rule = (
        stored.directory / REQUESTS / "trial-00000.parquet",
        "this export needs the requests of a run",
    )
    if not path.is_file():
        raise UserError(rule, f"no {REQUESTS}/{path.name}", str(stored.directory), "Run it again.")
    try:
        table = pq.read_table(path)
        table.validate(full=True)
    except (OSError, pa.ArrowException) as error:
        raise UserError(rule, "an unreadable file", str(path), "Run it again.") from error
    for name in needed:
        if name not in table.column_names:
            raise UserError(rule, f"no column {name}", str(path), AGAIN)
    for field in table.schema:
        if not _is_sound(table[field.name], field.type):
            raise UserError(rule, f"a damaged column {field.name}", str(path), "Run it again.")
    return table


def _is_sound(column: pa.ChunkedArray, kind: pa.DataType) -> bool:
    """Whether values are words, truths, or numbers, and these finite."""
    if pa.types.is_floating(kind):
        return bool(pc.all(pc.is_finite(column), min_count=0).as_py())
    return bool(pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_dictionary(kind))


def as_text(value: object) -> str:
    """A value of an axis in words."""
    return value if isinstance(value, str) else json.dumps(value)
