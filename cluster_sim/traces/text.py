"""The text of a trace file, and how an error names a line of it."""

from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from cluster_sim.errors import UserError

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MOST_SHOWN_CHARACTERS = 60


@dataclass(frozen=True)
class TraceText:
    """A trace's text without what is blank at its end."""

    path: Path
    content: str

    def refuse(self, rule: str, got: str, line: int, remedy: str = "Correct or remove the line.") -> NoReturn:
        """Raise the error for line `line`, counted from 1."""
        raise UserError(rule, _shortened(got), f"{self.path}, line {line}", remedy)


def load(path: Path) -> TraceText:
    """The text of the file at `path`.

    Raises:
        UserError: there is no such file, it cannot be read, is empty, or is not UTF-8 text.
    """
    data = _read_bytes(path).removeprefix(BYTE_ORDER_MARK).rstrip()
    if not data:
        raise UserError(
            "a trace must hold at least one request", "an empty file", str(path), "Choose another."
        )
    try:
        content = data.decode("utf-8")
    except UnicodeDecodeError as error:
        _refuse_bytes(path, data, error.start)
    if "\0" in content:
        _refuse_bytes(path, data, data.index(0))
    return TraceText(path, content)


def _read_bytes(path: Path) -> bytes:
    try:
        if path.is_file():
            return path.read_bytes()
        found = "a directory" if path.is_dir() else "a special file" if path.exists() else "no such file"
    except OSError as error:
        found = str(error.strerror)
    raise UserError("a trace must be a file that can be read", found, str(path), "Set workload.trace to one.")


def _refuse_bytes(path: Path, data: bytes, at: int) -> NoReturn:
    """Raise the error for the byte at `at`, which no text holds."""
    line = data.count(b"\n", 0, at) + 1
    TraceText(path, "").refuse(
        "a trace must be UTF-8 text", f"the byte 0x{data[at]:02x}", line, "Save the file as UTF-8."
    )


def _shortened(got: str) -> str:
    return got if len(got) <= MOST_SHOWN_CHARACTERS else f"{got[:MOST_SHOWN_CHARACTERS]}..."
