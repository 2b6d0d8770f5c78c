"""A CSV of measured steps: one line a step, units in the column names.

    batch                   decoding requests in the step
    query_tokens            of each of them: 1 + drafts
    kv_tokens               their mean context after the step, in tokens
    prefill_tokens          prompt tokens beside them, of all chunks
    prefill_history_tokens  that these chunks follow, weighted by chunk; the column may be missing: none
    step_ms                 GPU time of the step; or, instead,
    sync_step_ms            a whole step under synchronous scheduling, the host's time included

Columns may stand in any order. Without decodes, query_tokens and kv_tokens say nothing; without a prefill,
neither does prefill_history_tokens.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from cluster_sim.bounds import LARGEST_COUNT
from cluster_sim.errors import UserError

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]

COUNTS = ("batch", "query_tokens", "prefill_tokens")
HISTORY = "prefill_history_tokens"
MEANS = ("kv_tokens", HISTORY)
STEP, SYNC_STEP, DRAFT = "step_ms", "sync_step_ms", "draft_ms"
NEEDED = ("batch", "query_tokens", "kv_tokens", "prefill_tokens")
HEADER = f"{', '.join(NEEDED)}, {STEP} (or {SYNC_STEP}), and maybe {HISTORY}"
MOST_TOKENS = 2**24  # of a step or of a context: no engine holds more, and its square is exact
LONGEST_STEP_MS = 3.6e6  # an hour: more is another unit
FIRST_LINE = 2  # below the header

_NUMBER = re.compile(r"[0-9]{1,12}(\.[0-9]{0,17})?(e[-+]?[0-9]{1,2})?", re.ASCII | re.IGNORECASE)
_COUNT = re.compile(r"[0-9]{1,12}", re.ASCII)
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_MOST_SHOWN_CHARACTERS = 60


@dataclass(frozen=True)
class Steps:
    """Measured steps; every column has one entry a step."""

    path: Path
    line: Longs  # of the file, counted from 1
    batch: Longs
    query_tokens: Longs  # 1 or more where there is a batch
    kv_tokens: Floats
    prefill_tokens: Longs
    prefill_history_tokens: Floats
    time_s: Floats
    has_host_time: bool  # time_s is that of whole synchronous steps


@dataclass(frozen=True)
class _Cell:
    path: Path
    line: int
    column: str
    text: str

    def refuse(self, rule: str, remedy: str) -> NoReturn:
        """Raise what is wrong with the cell."""
        where = f"{self.path}, line {self.line}, column {self.column}"
        raise UserError(f"{self.column} must be {rule}", shown(self.text) or "nothing", where, remedy)


def load(path: Path) -> Steps:
    """The steps in the file at `path`.

    Raises:
        UserError: it cannot be read, or a line or column of it breaks a rule; names file, line and column.
    """
    header, *lines = _text(path).split("\n")
    names = _names(path, header)
    if not lines:
        raise UserError("a CSV of steps must hold steps", "only a header", str(path), "Add a line a step.")
    columns: dict[str, list[float]] = {name: [] for name in names}
    for number, line in enumerate(lines, FIRST_LINE):
        cells = line.split(",")
        if len(cells) != len(names):
            rule = f"a line must have {len(names)} columns, as the header has"
            got = f"{len(cells)}: {shown(line)}" if line.strip() else "an empty line"
            raise UserError(rule, got, f"{path}, line {number}", "Correct or remove the line.")
        for name, text in zip(names, cells, strict=True):
            columns[name].append(_number(_Cell(path, number, name, text.strip())))
    steps = _steps(path, {name: np.array(values) for name, values in columns.items()})
    _check_work(steps)
    return steps


def shown(text: str) -> str:
    """`text` in one short line."""
    line = text.encode("unicode_escape").decode("ascii")
    return line if len(line) <= _MOST_SHOWN_CHARACTERS else f"{line[:_MOST_SHOWN_CHARACTERS]}..."


def _text(path: Path) -> str:
    try:
        content = path.read_bytes().removeprefix(_BYTE_ORDER_MARK)
    except (OSError, ValueError) as error:
        got = (getattr(error, "strerror", None) or str(error)).splitlines()[0]
        remedy = "Give the path of a CSV of steps."
        raise UserError("a CSV of steps must be a file that can be read", got, str(path), remedy) from error
    try:
        text = content.decode("utf-8")
        bad = text.find("\0")
        start = len(text[:bad].encode()) if bad >= 0 else -1
    except UnicodeDecodeError as error:
        start = error.start
    if start >= 0:
        where = f"{path}, line {content.count(10, 0, start) + 1}"
        remedy = "Save the file as UTF-8."
        raise UserError("a CSV of steps must be UTF-8 text", f"byte 0x{content[start]:02x}", where, remedy)
    if not text.strip():
        remedy = f"Its first line names the columns: {HEADER}."
        raise UserError("a CSV of steps must hold steps", "an empty file", str(path), remedy)
    return text.replace("\r\n", "\n").rstrip()


def _names(path: Path, header: str) -> list[str]:
    """The columns in the order of the file."""
    names, where = [name.strip() for name in header.split(",")], f"{path}, line 1"
    if DRAFT in names:
        rule = "the time of drafts cannot be told apart into first and further passes"
        remedy = "Remove the column; a drafter's cost comes from another bundle, or draft_cost=zero."
        raise UserError(rule, DRAFT, f"{where}, column {DRAFT}", remedy)
    rule = f"columns must be {HEADER}"
    for name in names:
        if name not in (*NEEDED, HISTORY, STEP, SYNC_STEP):
            remedy = "Correct or remove the column."
            raise UserError(rule, shown(name) or "a column without a name", where, remedy)
        if names.count(name) > 1:
            raise UserError("a column must be there once", f"{name} twice", where, "Remove one of them.")
    for name in NEEDED:
        if name not in names:
            raise UserError(rule, f"none called {name}", where, "Add the column.")
    if (STEP in names) == (SYNC_STEP in names):
        got = "both" if STEP in names else "neither"
        remedy = f"Give {STEP} for GPU time, or {SYNC_STEP} for whole synchronous steps."
        raise UserError(f"one of {STEP} and {SYNC_STEP} must be there", got, where, remedy)
    return names


def _number(cell: _Cell) -> float:
    """The number in a cell, in the unit of its column."""
    if cell.column in COUNTS:
        if not _COUNT.fullmatch(cell.text):
            cell.refuse("a whole number >= 0", "Correct or remove the line.")
        return _at_most(cell, int(cell.text), MOST_TOKENS)
    if not _NUMBER.fullmatch(cell.text):
        cell.refuse("a number >= 0", "Correct or remove the line.")
    if cell.column in MEANS:
        return _at_most(cell, float(cell.text), MOST_TOKENS)
    if float(cell.text) < 1.0 / LARGEST_COUNT:
        cell.refuse("a time above 0", "Correct or remove the line.")
    return _at_most(cell, float(cell.text), LONGEST_STEP_MS)


def _at_most(cell: _Cell, value: float, limit: float) -> float:
    if value > limit:
        cell.refuse(f"at most {limit:,.0f}", "Correct the line, or the unit.")
    return value


def _steps(path: Path, columns: dict[str, Floats]) -> Steps:
    time_ms = columns.get(STEP)
    rows = len(columns["batch"])
    return Steps(
        path=path,
        line=np.arange(rows) + FIRST_LINE,
        batch=columns["batch"].astype(np.int64),
        query_tokens=columns["query_tokens"].astype(np.int64),
        kv_tokens=columns["kv_tokens"],
        prefill_tokens=columns["prefill_tokens"].astype(np.int64),
        prefill_history_tokens=columns.get(HISTORY, np.zeros(rows)),
        time_s=(columns[SYNC_STEP] if time_ms is None else time_ms) * 1e-3,
        has_host_time=time_ms is None,
    )


def _check_work(steps: Steps) -> None:
    """Every step must have tokens, and every decode a query that its context holds."""
    tokens = steps.batch * steps.query_tokens + steps.prefill_tokens
    short = (steps.batch > 0) & (steps.kv_tokens < steps.query_tokens)
    for broken, column, rule in (
        ((steps.batch > 0) & (steps.query_tokens == 0), "query_tokens", "at least 1 where batch is above 0"),
        (short, "kv_tokens", "at least query_tokens where batch is above 0"),
        (tokens == 0, "prefill_tokens", "above 0 where batch is 0"),
        (tokens > MOST_TOKENS, "batch", f"so small that a step has at most {MOST_TOKENS:,} tokens"),
    ):
        if broken.any():
            row = int(np.flatnonzero(broken)[0])
            value = getattr(steps, column)[row]
            cell = _Cell(steps.path, int(steps.line[row]), column, f"{value:g}")
            cell.refuse(rule, "Correct or remove the line.")
