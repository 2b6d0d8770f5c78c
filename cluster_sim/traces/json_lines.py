"""This tool's own traces: JSON lines, one request each.

arrival_s, prompt_tokens and output_tokens must be there. May be there:

- block_ids: one for each full block of 16 tokens of prompt and output, from the first, as far as known; equal
  ids mean equal content from the start to that block's end
- class: the name of the request's workload class
- priority: lower first, as vLLM has it; 0 if not given
- session: the name of the conversation that the request belongs to; router=session_hash goes by it
"""

import numpy as np

from cluster_sim.bounds import LARGEST_COUNT
from cluster_sim.traces.json_columns import (
    LARGEST_ID,
    Field,
    Kind,
    classes_of,
    floats_of,
    lists_of,
    longs_of,
    numbers_of,
    read_columns,
)
from cluster_sim.traces.rows import BLOCK_TOKENS, Longs, TraceRows
from cluster_sim.traces.text import TraceText

LATEST_S = 1e11  # as Unix time the year 5138: beyond it a time is in ms or ns
_COUNT = f"a whole number from 1 to {LARGEST_COUNT}"
FIELDS = (
    Field("arrival_s", Kind.number, f"a number of seconds from 0 to {LATEST_S:g}", high=LATEST_S),
    Field("prompt_tokens", Kind.whole, _COUNT, low=1),
    Field("output_tokens", Kind.whole, _COUNT, low=1),
    Field("class", Kind.name, "a name", optional=True),
    Field(
        "priority",
        Kind.whole,
        f"a whole number within +-{LARGEST_COUNT}",
        low=-LARGEST_COUNT,
        optional=True,
    ),
    Field("session", Kind.label, "text or a whole number", optional=True),
    Field(
        "block_ids",
        Kind.ids,
        f"a list of whole numbers from 0 to {LARGEST_ID}",
        high=LARGEST_ID,
        optional=True,
    ),
)
REQUIRED_KEYS = tuple(field.path for field in FIELDS if not field.optional)
KEYS = tuple(field.path for field in FIELDS)


def parse(text: TraceText) -> TraceRows:
    """The requests in the order of the file.

    Raises:
        UserError: a line that is not a JSON object, or one that breaks a rule.
    """
    columns = read_columns(text, FIELDS, closed=True)
    block_start, block_ids = lists_of(columns["block_ids"])
    workload_class, class_names = classes_of(columns["class"])
    rows = TraceRows(
        format="JSON lines",
        arrival_s=floats_of(columns["arrival_s"]),
        prompt_tokens=longs_of(columns["prompt_tokens"]),
        output_tokens=longs_of(columns["output_tokens"]),
        workload_class=workload_class,
        priority=longs_of(columns["priority"]),
        session=numbers_of(columns["session"]),
        block_start=block_start,
        block_ids=block_ids,
        known_tokens=np.diff(block_start) * BLOCK_TOKENS,
        block_tokens=BLOCK_TOKENS,
        class_names=class_names,
        warnings=(),
    )
    _check_block_counts(text, rows)
    _check_chains(text, rows)
    return rows


def _check_block_counts(text: TraceText, rows: TraceRows) -> None:
    given = np.diff(rows.block_start)
    full = (rows.prompt_tokens + rows.output_tokens) // BLOCK_TOKENS
    broken = np.flatnonzero(given > full)
    if broken.size:
        request = int(broken[0])
        rule = f"block_ids must be at most one per full block of {BLOCK_TOKENS} tokens, here {full[request]}"
        text.refuse(rule, f"{given[request]}", request + 1, "Leave out the ids of blocks that are not full.")


def _check_chains(text: TraceText, rows: TraceRows) -> None:
    """An id stands for all content up to its block's end: it follows the same id everywhere."""
    ids = rows.block_ids
    before = np.concatenate(([-1], ids[:-1]))[: len(ids)]
    before[rows.block_start[:-1][np.diff(rows.block_start) > 0]] = -1
    order = np.argsort(ids, kind="stable")
    same = ids[order][1:] == ids[order][:-1]
    broken = np.flatnonzero(same & (before[order][1:] != before[order][:-1]))
    if broken.size:
        entry = int(order[broken[0] + 1])
        request = int(np.searchsorted(rows.block_start, entry, side="right")) - 1
        rule = "equal block_ids must mean equal content from the start, so follow the same id"
        text.refuse(
            rule, f"{ids[entry]} after {_words(before[entry])}", request + 1, "Number the blocks anew."
        )


def _words(before: Longs) -> str:
    return "nothing" if before < 0 else str(before)
