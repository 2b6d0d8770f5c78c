"""Files of lengths in tokens, of which drawn requests take theirs.

    512                                          a whole number a line, or
    {"prompt_tokens": 512, "output_tokens": 40}  JSON lines, one request each

A request takes a line at random, with replacement: the file is a sample of a distribution, and no request's
length depends on how many came before. Where prompts and outputs both come from JSON lines of one length, a
request takes both from the same line, so that long prompts keep the answers that go with them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cluster_sim.bounds import LARGEST_COUNT
from cluster_sim.config import WorkloadConfig
from cluster_sim.traces.json_columns import Field, Kind, longs_of, read_columns
from cluster_sim.traces.text import TraceText, load

Longs = NDArray[np.int64]
WHAT = "a file of lengths"
WORDS = f"a whole number from 1 to {LARGEST_COUNT}"
MOST_DIGITS = 10


@dataclass(frozen=True)
class LengthTable:
    """Lengths of one key."""

    tokens: Longs  # [line]
    has_pairs: bool  # lines hold prompts and outputs


def read_lengths(path: str, key: str) -> LengthTable:
    """The lengths that the file at `path` holds for `key`, whose last word names the column of JSON lines.

    Raises:
        UserError: no such file, not text, or a line that is no length.
    """
    text = load(Path(path).expanduser(), WHAT, "length", f"{key}.path")
    if text.first_line.startswith("{"):
        name = key.rpartition(".")[2]
        columns = read_columns(text, (Field(name, Kind.whole, WORDS, low=1),))
        return LengthTable(longs_of(columns[name]), has_pairs=True)
    return LengthTable(_numbers(text), has_pairs=False)


def with_whole_files(workload: WorkloadConfig) -> WorkloadConfig:
    """The same files named from the root: a worker process may have another working directory."""
    lengths = {key: _whole(getattr(workload, key)) for key in ("prompt_tokens", "output_tokens")}
    classes = workload.classes and {
        name: replace(one, prompt_tokens=_whole(one.prompt_tokens), output_tokens=_whole(one.output_tokens))
        for name, one in workload.classes.items()
    }
    trace = None if workload.trace is None else str(Path(workload.trace).expanduser().absolute())
    return replace(workload, trace=trace, classes=classes, **lengths)


def _whole(lengths: Any) -> Any:
    if isinstance(lengths, Mapping) and isinstance(lengths.get("path"), str):
        return {**lengths, "path": str(Path(lengths["path"]).expanduser().absolute())}
    return lengths


def _numbers(text: TraceText) -> Longs:
    tokens = []
    for line, content in enumerate(text.data.decode().split("\n"), 1):
        word = content.strip()
        is_whole = word.isascii() and word.isdigit() and len(word) <= MOST_DIGITS
        if not is_whole or not 1 <= int(word) <= LARGEST_COUNT:
            text.refuse(f"a length must be {WORDS}", repr(word), line)
        tokens.append(int(word))
    return np.array(tokens, np.int64)
