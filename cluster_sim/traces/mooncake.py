"""Mooncake's JSON lines and those of vLLM's timed_trace: timestamp, input_length, output_length, hash_ids.

Both have one id for each block of the prompt, the last of which may be cut by its end; the number of ids
tells them apart. Mooncake (FAST'25 release): blocks of 512 tokens, times in ms. vLLM's timed_trace in its
defaults (`--timed-trace-chunk-hash-size 16`, `--timed-trace-sec-multiplier 1`): blocks of 16, times in s.
Blocks of another power of two (aiperf's `--isl-block-size`) are Mooncake's in ms. Without any ids, or where
both fit, times that are all whole are Mooncake's ms, and others s. aiperf's session_id is the session; keys
beside these are not read.
"""

from typing import NamedTuple

import numpy as np

from cluster_sim.bounds import LARGEST_COUNT
from cluster_sim.traces.chains import with_content
from cluster_sim.traces.json_columns import (
    LARGEST_ID,
    Field,
    Kind,
    floats_of,
    lists_of,
    longs_of,
    numbers_of,
    read_columns,
)
from cluster_sim.traces.rows import Floats, Longs, TraceRows, plain_rows, with_warning
from cluster_sim.traces.text import TraceText

LATEST_S = 1e11  # as Unix time the year 5138: beyond it a time is in ms or ns
LATEST = 1e14  # the same in ms
MOST_GAP_S, LEAST_GAP_S = 10.0, 0.005  # mean gaps beyond which times may be in the other unit
COUNT_WORDS = f"a whole number from 0 to {LARGEST_COUNT}"
IDS = Field(
    "hash_ids",
    Kind.ids,
    f"a list of whole numbers from 0 to {LARGEST_ID}",
    high=LARGEST_ID,
    optional=True,
)
FIELDS = (
    Field("timestamp", Kind.number, f"a number from 0 to {LATEST:g}", high=LATEST),
    Field("input_length", Kind.whole, COUNT_WORDS),
    Field("output_length", Kind.whole, COUNT_WORDS),
    Field("session_id", Kind.label, "text or a whole number", optional=True),
    IDS,
)
LENGTHS = ("input_length", "output_length")  # what tells these files; one without timestamp is told so


class Flavour(NamedTuple):
    """A tool's way to write these files."""

    words: str
    block_tokens: int
    seconds: float  # of one unit of its times


MOONCAKE = Flavour("Mooncake JSON lines, times in ms", 512, 1e-3)
TIMED_TRACE = Flavour("vLLM timed_trace, times in s", 16, 1.0)
OTHERS = tuple(
    Flavour(f"Mooncake JSON lines in blocks of {2**power}, times in ms", 2**power, 1e-3)
    for power in range(21)
)


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
        flavour.words,
        times * flavour.seconds,
        prompt_tokens,
        longs_of(columns["output_length"]),
        numbers_of(columns["session_id"]),
    )
    return _questioned(text, with_content(rows, start, ids, flavour.block_tokens), flavour)


def _flavour(text: TraceText, times: Floats, prompt_tokens: Longs, given: Longs) -> Flavour:
    """Whose file it is; a request may have no ids, but not a wrong number of them."""
    are_whole = bool(np.all(times == np.floor(times)))
    if not given.any():
        return MOONCAKE if are_whole else TIMED_TRACE
    misfits = [_misfits(prompt_tokens, given, flavour.block_tokens) for flavour in (MOONCAKE, TIMED_TRACE)]
    if not misfits[0].size and (misfits[1].size or are_whole):
        return MOONCAKE
    if not misfits[1].size:
        return TIMED_TRACE
    for flavour in OTHERS:
        if not _misfits(prompt_tokens, given, flavour.block_tokens).size:
            return flavour
    nearest = min(misfits, key=len)
    line, block_tokens = int(nearest[0]), (512, 16)[misfits.index(nearest)]
    rule = (
        "hash_ids must be one per block of input_length, of 512 tokens (Mooncake), 16 (vLLM timed_trace) or "
        f"another power of two, here {-(-int(prompt_tokens[line]) // block_tokens)} of {block_tokens}"
    )
    text.refuse(rule, str(given[line]), line + 1)


def _misfits(prompt_tokens: Longs, given: Longs, block_tokens: int) -> Longs:
    """The requests that have ids, but not one for each block."""
    return np.flatnonzero((given > 0) & (given != -(-prompt_tokens // block_tokens)))


def _questioned(text: TraceText, rows: TraceRows, flavour: Flavour) -> TraceRows:
    """`rows`, with a warning where their times are hardly in the unit in which they were read."""
    gap_s = float(np.ptp(rows.arrival_s)) / max(1, len(rows.arrival_s) - 1)
    if flavour is TIMED_TRACE and gap_s >= MOST_GAP_S:
        unit, remedy = "s", "ms, divide them by 1000"
    elif flavour is MOONCAKE and not len(rows.block_ids) and 0.0 < gap_s <= LEAST_GAP_S:
        unit, remedy = "ms", "s, multiply them by 1000"
    else:
        return rows
    warning = f"times read as {unit} leave {gap_s:.3g} s between requests; if they are {remedy}"
    return with_warning(rows, f"{text.path}: {warning}")
