"""Qwen-Bailian usage traces (github.com/alibaba-edu/qwen-bailian-usagetraces-anon): JSON lines, times in s.

hash_ids has one id for each block of 16 tokens of the prompt. A request names the one before it in its
conversation (parent_chat_id, -1 for the first): all that lead to the same first one are a session. The type,
as text or search, is the request's class.
"""

from dataclasses import replace

import numpy as np

from cluster_sim.traces.chains import with_content
from cluster_sim.traces.json_columns import (
    Field,
    Kind,
    classes_of,
    floats_of,
    lists_of,
    longs_of,
    read_columns,
)
from cluster_sim.traces.mooncake import COUNT_WORDS, IDS, LATEST_S
from cluster_sim.traces.rows import Longs, TraceRows, plain_rows
from cluster_sim.traces.text import TraceText

BLOCK_TOKENS = 16
LARGEST_CHAT = 2**53
FIELDS = (
    Field("timestamp", Kind.number, f"a number of seconds from 0 to {LATEST_S:g}", high=LATEST_S),
    Field("input_length", Kind.whole, COUNT_WORDS),
    Field("output_length", Kind.whole, COUNT_WORDS),
    Field("chat_id", Kind.whole, f"a whole number from 0 to {LARGEST_CHAT}", high=LARGEST_CHAT),
    Field(
        "parent_chat_id", Kind.whole, f"a whole number from -1 to {LARGEST_CHAT}", low=-1, high=LARGEST_CHAT
    ),
    Field("type", Kind.name, "a name", optional=True),
    IDS,
)
KEYS = ("timestamp", "input_length", "output_length", "chat_id", "parent_chat_id")


def parse(text: TraceText) -> TraceRows:
    """The requests in the order of the file.

    Raises:
        UserError: a line that breaks a rule, or has more ids than blocks.
    """
    columns = read_columns(text, FIELDS)
    prompt_tokens = longs_of(columns["input_length"])
    start, ids = lists_of(columns[IDS.path])
    _check_block_counts(text, prompt_tokens, np.diff(start))
    workload_class, class_names = classes_of(columns["type"])
    rows = replace(
        plain_rows(
            "Qwen-Bailian JSON lines, times in s",
            floats_of(columns["timestamp"]),
            prompt_tokens,
            longs_of(columns["output_length"]),
            _conversations(longs_of(columns["chat_id"]), longs_of(columns["parent_chat_id"])),
        ),
        workload_class=workload_class,
        class_names=class_names,
    )
    return with_content(rows, start, ids, BLOCK_TOKENS)


def _check_block_counts(text: TraceText, prompt_tokens: Longs, given: Longs) -> None:
    blocks = -(-prompt_tokens // BLOCK_TOKENS)
    broken = np.flatnonzero(given > blocks)
    if broken.size:
        line = int(broken[0])
        rule = f"hash_ids must be at most one per block of {BLOCK_TOKENS} tokens of input_length"
        text.refuse(f"{rule}, here {blocks[line]}", str(given[line]), line + 1)


def _conversations(chat: Longs, parent: Longs) -> Longs:
    """The number of each request's conversation, in the order in which they begin in the file."""
    chats, first = np.unique(chat, return_index=True)
    place = np.minimum(np.searchsorted(chats, parent), len(chats) - 1)
    own = first[np.searchsorted(chats, chat)]
    root = np.where(chats[place] == parent, first[place], own)
    for _ in range(len(chat).bit_length()):  # each round doubles how far back a request looks
        root = root[root]
    return np.unique(root, return_inverse=True)[1].astype(np.int64)
