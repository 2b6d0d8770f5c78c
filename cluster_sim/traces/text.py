"""The bytes of a trace file, and how an error names a line of it."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NoReturn

from cluster_sim.errors import UserError

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MOST_SHOWN_CHARACTERS = 60
MOST_BYTES = 2**31 - 1  # pyarrow reads a block of at most so many
UNPACK = "Unpack it first."
NOT_TEXT = (  # how files begin that are often given where text is wanted, what they are, and the remedy
    (b"\x1f\x8b", "gzip data", UNPACK),
    (b"PK\x03\x04", "a zip archive", UNPACK),
    (b"BZh", "bzip2 data", UNPACK),
    (b"\xfd7zXZ\0", "xz data", UNPACK),
    (b"\x28\xb5\x2f\xfd", "zstandard data", UNPACK),
    (b"PAR1", "a parquet file", "Write its rows as CSV or JSON lines."),
    (b"version https://git-lfs", "a Git LFS pointer", "Fetch what it points to with git lfs pull."),
)


@dataclass(frozen=True)
class TraceText:
    """A trace's text, UTF-8, without what is blank at its end."""

    path: Path
    data: bytes

    @property
    def first_line(self) -> str:
        """The first line, without blanks around it."""
        end = self.data.find(b"\n")
        return self.data[: end if end >= 0 else None].decode().strip()

    @cached_property
    def num_lines(self) -> int:
        """Lines, the first and the last included."""
        return self.data.count(b"\n") + 1

    def refuse(self, rule: str, got: str, line: int, remedy: str = "Correct or remove the line.") -> NoReturn:
        """Raise the error for line `line`, counted from 1."""
        raise UserError(rule, shortened(got), f"{self.path}, line {line}", remedy)


def load(path: Path, what: str = "a trace", holds: str = "request", key: str = "workload.trace") -> TraceText:
    """The text of the file at `path`, named by `key`, that is `what` and `holds` something.

    Raises:
        UserError: there is no such file, it cannot be read, is empty, too large, or is not UTF-8 text.
    """
    data = _read_bytes(path, what, key).removeprefix(BYTE_ORDER_MARK).rstrip()
    for start, found, remedy in NOT_TEXT:
        if data.startswith(start):
            raise UserError(f"{what} must be a text file", found, str(path), remedy)
    if not data:
        raise UserError(
            f"{what} must hold at least one {holds}", "an empty file", str(path), "Choose another."
        )
    if len(data) > MOST_BYTES:
        rule = f"{what} must have at most {MOST_BYTES} bytes"
        raise UserError(rule, len(data), str(path), "Cut it into parts.")
    if not data.isascii():
        try:
            data.decode("utf-8")
        except UnicodeDecodeError as error:
            _refuse_bytes(path, what, data, error.start)
    if b"\0" in data:
        _refuse_bytes(path, what, data, data.index(0))
    return TraceText(path, data)


def shortened(got: str) -> str:
    """`got` as far as an error shows it."""
    return got if len(got) <= MOST_SHOWN_CHARACTERS else f"{got[:MOST_SHOWN_CHARACTERS]}..."


def _read_bytes(path: Path, what: str, key: str) -> bytes:
    try:
        if path.is_file():
            return path.read_bytes()
        found = "a directory" if path.is_dir() else "a special file" if path.exists() else "no such file"
    except OSError as error:
        found = str(error.strerror)
    raise UserError(f"{what} must be a file that can be read", found, str(path), f"Set {key} to one.")


def _refuse_bytes(path: Path, what: str, data: bytes, at: int) -> NoReturn:
    """Raise the error for the byte at `at`, which no text holds."""
    line = data.count(b"\n", 0, at) + 1
    TraceText(path, b"").refuse(
        f"{what} must be UTF-8 text", f"the byte 0x{data[at]:02x}", line, "Save the file as UTF-8."
    )
