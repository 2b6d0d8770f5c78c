"""Files of results: written whole or not at all, into a directory that holds one run or one sweep.

A file appears under its name only when it is complete: it is written beside it first and then renamed.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from cluster_sim.errors import UserError

MANIFEST, SUMMARY, TRIALS, REQUESTS = "manifest.yaml", "summary.json", "trials.parquet", "requests"
FLEET = "fleet.parquet"
OUTPUT = "output.dir"  # the option that says where results go


def default_dir(name: str) -> Path:
    """Make sweeps/NAME/UTC-TIME under the current directory, with -2, -3, .. added if it is there already.

    Raises:
        UserError: it cannot be made.
    """
    moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    parent, attempt = Path("sweeps") / name, 1
    while True:
        directory = parent / (moment if attempt == 1 else f"{moment}-{attempt}")
        with worded(directory):
            try:
                directory.mkdir(parents=True)
            except FileExistsError:
                if not directory.is_dir():
                    raise
                attempt += 1
            else:
                return directory


def open_directory(directory: Path, identity: str) -> None:
    """Make `directory` if need be, and see that it can be written and holds nothing but the run `identity`.

    Raises:
        UserError: it cannot be written, or holds another run.
    """
    with worded(directory):
        directory.mkdir(parents=True, exist_ok=True)
        probe = _beside(directory / MANIFEST)
        probe.touch()
        probe.unlink()
        found = [name for name in (MANIFEST, SUMMARY, TRIALS, REQUESTS) if (directory / name).exists()]
        if found and (MANIFEST not in found or _identity(directory / MANIFEST) != identity):
            raise UserError(
                "a directory of results holds one run or sweep",
                f"another one's {found[0]}",
                str(directory),
                "Choose another one with output.dir=PATH.",
            )


def write_json(path: Path, value: Mapping[str, Any], option: str = OUTPUT) -> None:
    """Write `value` as indented JSON; nan and inf, which JSON does not have, are errors of the program."""
    text = json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False)
    _write(path, lambda temporary: temporary.write_text(text + "\n", "utf-8"), option)


def write_text(path: Path, text: str, option: str = OUTPUT) -> None:
    """Write `text` as it is."""
    _write(path, lambda temporary: temporary.write_text(text, "utf-8"), option)


def write_yaml(path: Path, value: Mapping[str, Any]) -> None:
    """Write `value` as YAML, keys in their order."""
    text = yaml.safe_dump(dict(value), sort_keys=False, allow_unicode=True, width=110)
    _write(path, lambda temporary: temporary.write_text(text, "utf-8"))


def write_parquet(path: Path, table: pa.Table) -> None:
    """Write `table`; the same table gives the same bytes."""
    _write(path, lambda temporary: pq.write_table(table, temporary))


@contextmanager
def worded(path: Path, option: str = OUTPUT) -> Iterator[None]:
    """Word what the operating system says of files under `path`: no permission, no room, read-only.

    `option` is how the user chooses another place.
    """
    try:
        yield
    except OSError as error:
        got = error.strerror or str(error).partition("\n")[0]
        remedy = f"Make room or get permission there, or choose another place with {option}=PATH."
        raise UserError("results must be written", got, str(path), remedy) from error


def _write(path: Path, fill: Callable[[Path], object], option: str = OUTPUT) -> None:
    """Let `fill` write a file beside `path`, which takes its name when it is on disk."""
    temporary = _beside(path)
    with worded(path, option):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            fill(temporary)
            with temporary.open("rb") as written:
                os.fsync(written.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}")


def _identity(manifest: Path) -> object:
    try:
        found = yaml.safe_load(manifest.read_text("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError):
        return None
    return found.get("identity") if isinstance(found, dict) else None
