"""Tables of a bundle: values on a full grid, as parquet; seconds in a column time_s, unless said otherwise.

Rows are all combinations of the key columns in rising order, the last key fastest; the value is last.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from cluster_sim.bundle.sections import refuse

DRAFTER = "drafter"  # the one key that is text
QUERY_TOKENS = "query_tokens"  # looked up, not interpolated
TIME = "time_s"

Axis = NDArray[Any]  # int64, or text for the drafter


@dataclass(frozen=True)
class Table:
    """time_s[i, j, ..] at the i-th, j-th, .. point of `axes`, which are in the order of the key columns.

    Of decode_skew the values are shares, not seconds.
    """

    axes: dict[str, Axis]
    time_s: NDArray[np.float64]
    source: str
    licence: str


def write_grid(table: Table, file: Path, column: str = TIME) -> None:
    """Write a table; the same table gives the same bytes."""
    keys = np.meshgrid(*table.axes.values(), indexing="ij")
    columns = {key: pa.array(grid.ravel()) for key, grid in zip(table.axes, keys, strict=True)}
    columns[column] = pa.array(table.time_s.ravel())
    pq.write_table(pa.table(columns), file, compression="none", write_page_checksum=True, store_schema=False)


def read_grid(
    file: Path, keys: tuple[str, ...], column: str = TIME
) -> tuple[dict[str, Axis], NDArray[np.float64]]:
    """Axes by key, and the values of `column`[axis, axis, ..].

    Raises:
        UserError: the file is missing, damaged or no full grid; names the column.
    """
    columns = _read_columns(file, keys, column)
    axes = {key: np.unique(columns[key]) for key in keys}
    for key, axis in axes.items():
        if key != DRAFTER and axis[0] < 0:
            refuse(f"column {key} must hold no value below 0", axis[0], file)
        if key not in (DRAFTER, QUERY_TOKENS) and len(axis) == 1:
            refuse(f"column {key} must hold at least two different values", axis[0], file)
    shape = tuple(len(axis) for axis in axes.values())
    rule = f"rows must be all combinations of {', '.join(keys)} in rising order, the last one fastest"
    if np.prod([float(points) for points in shape]) != len(columns[column]):
        refuse(rule, f"{len(columns[column])} rows", file)
    for key, grid in zip(keys, np.meshgrid(*axes.values(), indexing="ij"), strict=True):
        if not np.array_equal(grid.ravel(), columns[key]):
            refuse(rule, f"others in column {key}", file)
    values = columns[column]
    bad = ~(np.isfinite(values) & (values >= 0))
    if bad.any():
        unit = "seconds" if column == TIME else "numbers"
        refuse(f"column {column} must hold {unit} >= 0", values[bad][0], file)
    return axes, values.reshape(shape)


def _read_columns(file: Path, keys: tuple[str, ...], value: str) -> dict[str, Axis]:
    """The columns of a parquet file, which must be exactly these, of their types and without nulls."""
    names = (*keys, value)
    try:
        table = pq.read_table(file, page_checksum_verification=True, partitioning=None)
        table.validate(full=True)
        found = table.column_names
    except FileNotFoundError:
        refuse("a table of the bundle must be there", "no such file", file)
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        refuse("a table must be a whole parquet file", (str(error) or "damage").splitlines()[0], file)
    if sorted(found) != sorted(names):
        refuse(f"columns must be {', '.join(names)}", ", ".join(found) or "none", file)
    if table.num_rows == 0:
        refuse("a table must have rows", "none", file)
    types = {value: pa.float64(), DRAFTER: pa.string()}
    for name in names:
        column, wanted = table.column(name), types.get(name, pa.int64())
        if column.type != wanted or column.null_count:
            refuse(f"column {name} must be {wanted} without gaps", column.type, file)
    return {name: table.column(name).to_numpy() for name in names}
