"""Mooncake's JSON lines and those of vLLM's timed_trace: timestamp, input_length, output_length, hash_ids.

Both have one id for each block of the prompt, the last of which may be cut by its end; the number of ids
tells them apart. Mooncake (FAST'25 release): blocks of 512 tokens, times in ms. vLLM's timed_trace in its
defaults (`--timed-trace-chunk-hash-size 16`, `--timed-trace-sec-multiplier 1`): blocks of 16, times in s.
Without any ids, or where both fit, times that are all whole are Mooncake's ms, and others s. Keys beside
these are not read.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from cluster_sim.bounds import LARGEST_COUNT
from cluster_sim.traces.chains import chained
from cluster_sim.traces.json_columns import (
    LARGEST_ID,
    Field,
    Kind,
    floats_of,
    lists_of,
    longs_of,
    read_columns,
)
from cluster_sim.traces.rows import Floats, Longs, TraceRows, plain_rows
from cluster_sim.traces.text import TraceText

LATEST_S = 1e11  # as Unix time the year 5138: beyond it a time is in ms or ns
LATEST = 1e14  # the same in ms
_COUNT = f"a whole number from 0 to {LARGEST_COUNT}"
_IDS = f"a list of whole numbers from 0 to {LARGEST_ID}"
FIELDS = (
    Field("timestamp", Kind.number, f"a number from 0 to {LATEST:g}", high=LATEST),
    Field("input_length", Kind.whole, _COUNT),
    Field("output_length", Kind.whole, _COUNT),
    Field("hash_ids", Kind.ids, _IDS, high=LARGEST_ID, optional=True),
)
REQUIRED_KEYS = tuple(field.path for field in FIELDS if not field.optional)


class Flavour(NamedTuple):
    """A tool's way to write these files."""

    words: str
    block_tokens: int
    seconds: float  # of one unit of its times


MOONCAKE = Flavour("Mooncake JSON lines, times in ms", 512, 1e-3)
TIMED_TRACE = Flavour("vLLM timed_trace, times in s", 16, 1.0)


def parse(text: TraceText) -> TraceRows:
    """The requests in the order of the file.

    Raises:
        UserError: a line that breaks a rule, or ids that fit neither tool's blocks.
    """
    columns = read_columns(text, FIELDS)
    times, prompt_tokens = floats_of(columns["timestamp"]), longs_of(columns["input_length"])
    start, ids = lists_of(columns["hash_ids"])
    flavour = _flavour(text, times, prompt_tokens, np.diff(start))
    late = np.flatnonzero(times * flavour.seconds > LATEST_S)
    if late.size:
        rule = f"timestamp must be a number of seconds from 0 to {LATEST_S:g} beside blocks of 16 tokens"
        text.refuse(rule, f"{times[late[0]]:g}", int(late[0]) + 1)
    rows = plain_rows(
        flavour.words, times * flavour.seconds, prompt_tokens, longs_of(columns["output_length"])
    )
    known = np.minimum(prompt_tokens, np.diff(start) * flavour.block_tokens)
    return replace(
        rows,
        block_start=start,
        block_ids=chained(start, ids),
        known_tokens=known,
        block_tokens=flavour.block_tokens,
    )


def _flavour(text: TraceText, times: Floats, prompt_tokens: Longs, given: Longs) -> Flavour:
    """Whose file it is; a request may have no ids, but not a wrong number of them."""
    some, are_whole = given > 0, bool(np.all(times == np.floor(times)))
    if not some.any():
        return MOONCAKE if are_whole else TIMED_TRACE
    misfits = [
        np.flatnonzero(some & (given != -(-prompt_tokens // flavour.block_tokens)))
        for flavour in (MOONCAKE, TIMED_TRACE)
    ]
    if not misfits[0].size and (misfits[1].size or are_whole):
        return MOONCAKE
    if not misfits[1].size:
        return TIMED_TRACE
    nearest = min(misfits, key=len)
    line, block_tokens = int(nearest[0]), (512, 16)[misfits.index(nearest)]
    rule = (
        "hash_ids must be one per block of 512 tokens (Mooncake) or of 16 (vLLM timed_trace) of "
        f"input_length, here {-(-int(prompt_tokens[line]) // block_tokens)} of {block_tokens}"
    )
    text.refuse(rule, str(given[line]), line + 1)
