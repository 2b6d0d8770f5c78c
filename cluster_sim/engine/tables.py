"""What a table is: an array of rows, whose row class lists the columns.

    row = world.progress[request]        a view of one row: row.known_tokens += 1 writes the table
    world.log["chunks"]                  a whole column (outside of compiled code)

[request] counts requests in order of arrival, [instance] the engine cores, [bundle] distinct step-time
tables, [slot] the steps in flight, [entry] the requests of one step in the scheduler's order. Times are
seconds on the simulated clock.
"""

from typing import Annotated, Any, Protocol, TypeVar, get_type_hints, overload

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]
Ints = NDArray[np.int32]

Int8 = Annotated[int, np.int8]
Int32 = Annotated[int, np.int32]
Int64 = Annotated[int, np.int64]
Float = Annotated[float, np.float64]
Flag = Annotated[bool, np.bool_]

Row_co = TypeVar("Row_co", covariant=True)


class Table(Protocol[Row_co]):
    """Rows in one dimension: a numpy record array."""

    shape: tuple[int, ...]

    @overload
    def __getitem__(self, index: str) -> NDArray[Any]: ...
    @overload
    def __getitem__(self, index: int) -> Row_co: ...


class Grid(Protocol[Row_co]):
    """Rows in two dimensions."""

    shape: tuple[int, ...]

    @overload
    def __getitem__(self, index: str) -> NDArray[Any]: ...
    @overload
    def __getitem__(self, index: int) -> Table[Row_co]: ...
    @overload
    def __getitem__(self, index: tuple[int, int]) -> Row_co: ...


class Cube(Protocol[Row_co]):
    """Rows in three dimensions, used a line at a time."""

    shape: tuple[int, ...]

    @overload
    def __getitem__(self, index: str) -> NDArray[Any]: ...
    @overload
    def __getitem__(self, index: tuple[int, int]) -> Table[Row_co]: ...


def row_dtype(row: type) -> np.dtype[np.void]:
    """The numpy dtype of a row class, columns in the order in which it lists them."""
    hints = get_type_hints(row, include_extras=True)
    return np.dtype([(name, hint.__metadata__[0]) for name, hint in hints.items()], align=True)
