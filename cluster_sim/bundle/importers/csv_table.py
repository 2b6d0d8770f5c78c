"""Strict reading of a profiler's CSV tables: what is wrong is said with file, line and column."""

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from cluster_sim.errors import UserError

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]
REMEDY = "Correct the file, or profile again."


@dataclass(frozen=True)
class Numbers:
    """What a column may hold: finite numbers between two bounds."""

    lowest: float
    largest: float
    are_whole: bool = False

    def __str__(self) -> str:
        kind = "whole numbers" if self.are_whole else "numbers"
        return f"{kind} from {self.lowest:.0f} to {self.largest:.0f}"


class Words:
    """A column of text."""


Kind = Numbers | Words
COUNT = Numbers(0, 2**20, are_whole=True)  # tokens, requests, experts: more is damage
TIME_US = Numbers(0.0, 1e9)
WORDS = Words()


@dataclass(frozen=True)
class Rows:
    """Columns of a CSV file as arrays: text, int64 where whole, else float64."""

    file: Path
    line: Longs  # of the file, from 1
    columns: dict[str, NDArray[Any]]

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.columns[name]

    def where(self, chosen: Any) -> "Rows":
        """Some of the rows."""
        columns = {name: values[chosen] for name, values in self.columns.items()}
        return Rows(self.file, self.line[chosen], columns)

    def check_once(self, *names: str) -> None:
        """Refuse a row that says of `names` what an earlier row says.

        Raises:
            UserError: there is one.
        """
        seen = set()
        for line, key in zip(
            self.line.tolist(), zip(*(self[name].tolist() for name in names), strict=True), strict=True
        ):
            if key in seen:
                got = ", ".join(f"{name} {value}" for name, value in zip(names, key, strict=True))
                refuse(self.file, "a shape must be profiled once", f"{got} twice", line)
            seen.add(key)


def read_csv(
    file: Path, columns: Mapping[str, Kind], optional: Mapping[str, tuple[Numbers, int]] | None = None
) -> Rows:
    """The named columns of a CSV file with a header; an `optional` one that it lacks holds its default.

    Other columns are skipped: newer profilers also write how a row was measured.

    Raises:
        UserError: no such file, not text, a column missing or twice, a ragged row, or a value that is no
            number of its kind; names file, line and column.
    """
    header, line, rows = _cells(file)
    missing = [name for name in columns if name not in header]
    if missing:
        refuse(file, f"columns must include {', '.join(columns)}", f"none called {missing[0]}", 1)
    if not rows:
        refuse(file, "a table must have rows", "none", 2)
    found: dict[str, NDArray[Any]] = {}
    for name, kind in columns.items():
        cells = [row[header.index(name)].strip() for row in rows]
        found[name] = np.array(cells) if isinstance(kind, Words) else _numbers(file, name, kind, line, cells)
    for name, (kind, default) in (optional or {}).items():
        cells = [row[header.index(name)] for row in rows] if name in header else [str(default)] * len(rows)
        found[name] = _numbers(file, name, kind, line, cells)
    return Rows(file, np.array(line, np.int64), found)


def refuse(file: Path, rule: str, got: object, line: int | None = None) -> NoReturn:
    """Raise what is wrong with a table."""
    raise UserError(rule, got, str(file) if line is None else f"{file} line {line}", REMEDY)


def _cells(file: Path) -> tuple[list[str], list[int], list[list[str]]]:
    """The header, and of each row its line and its cells."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        refuse(file, "a table must be there", "no such file")
    except (OSError, UnicodeDecodeError) as error:
        refuse(file, "a table must be a readable text file", str(error).splitlines()[0])
    reader = csv.reader(text.split("\n"), strict=True)
    header: list[str] = []
    line: list[int] = []
    rows = []
    try:
        header = [name.strip() for name in next(reader)]
        for row in reader:
            line.append(reader.line_num)
            rows.append(row)
    except csv.Error as error:
        refuse(file, "a table must be CSV", error, max(reader.line_num, 1))
    if not any(header):
        refuse(file, "a table must start with the names of its columns", "an empty line", 1)
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        refuse(file, "a column must be there once", f"{twice[0]!r} twice", 1)
    if rows and not rows[-1]:  # after the last line's end
        line.pop()
        rows.pop()
    for number, row in zip(line, rows, strict=True):
        if len(row) != len(header):
            refuse(file, f"a row must have {len(header)} values", len(row), number)
    return header, line, rows


def _numbers(file: Path, name: str, kind: Numbers, line: Sequence[int], cells: Sequence[str]) -> NDArray[Any]:
    values = [_number(cell) for cell in cells]
    for number, cell, value in zip(line, cells, values, strict=True):
        if not kind.lowest <= value <= kind.largest or (kind.are_whole and value != int(value)):
            refuse(file, f"column {name} must hold {kind}", repr(cell), number)
    return np.array(values, np.int64 if kind.are_whole else np.float64)


def _number(cell: str) -> float:
    """The number in a cell; nan where there is none. Python would read 1_000, too."""
    try:
        return math.nan if "_" in cell else float(cell)
    except ValueError:
        return math.nan
