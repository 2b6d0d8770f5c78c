"""This tool's own traces: JSON lines, one request each.

arrival_s, prompt_tokens and output_tokens must be there. May be there:

- block_ids: one for each full block of 16 tokens of prompt and output, from the first, as far as known; equal
  ids mean equal content from the start to that block's end
- class: the name of the request's workload class
- priority: lower first, as vLLM has it; 0 if not given
- session: the name of the conversation that the request belongs to; router=session_hash goes by it
"""

import json
from array import array
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from cluster_sim.bounds import LARGEST_COUNT
from cluster_sim.traces.rows import BLOCK_TOKENS, DEFAULT_CLASS, Longs, TraceRows
from cluster_sim.traces.text import TraceText

REQUIRED_KEYS = ("arrival_s", "prompt_tokens", "output_tokens")
OPTIONAL_KEYS = ("class", "priority", "session", "block_ids")
KEYS = frozenset(REQUIRED_KEYS + OPTIONAL_KEYS)
LATEST_S = 1e11  # as Unix time the year 5138: beyond it a time is in ms or ns
LARGEST_ID = 2**63 - 1


def parse(text: TraceText) -> TraceRows:
    """The requests in the order of the file.

    Raises:
        UserError: a line that is not a JSON object, or one that breaks a rule.
    """
    columns: dict[str, list[Any]] = {key: [] for key in (*REQUIRED_KEYS, "class", "priority", "session")}
    block_ids, block_start = array("q"), array("q", [0])
    for line, content in enumerate(text.content.split("\n"), 1):
        request = _parse_line(text, line, content)
        for key, values in columns.items():
            values.append(request.get(key))
        if request.get("block_ids") is not None:
            block_ids.extend(_checked_ids(text, line, request["block_ids"]))
        block_start.append(len(block_ids))
    _check_columns(text, columns)
    class_numbers: dict[str, int] = {}
    classes = [DEFAULT_CLASS if name is None else name for name in columns["class"]]
    session_numbers: dict[Any, int] = {None: -1}
    rows = TraceRows(
        arrival_s=np.array(columns["arrival_s"], np.float64),
        prompt_tokens=np.array(columns["prompt_tokens"], np.int64),
        output_tokens=np.array(columns["output_tokens"], np.int64),
        workload_class=np.array(
            [class_numbers.setdefault(name, len(class_numbers)) for name in classes], np.int64
        ),
        priority=np.array([priority or 0 for priority in columns["priority"]], np.int64),
        session=np.array(
            [session_numbers.setdefault(session, len(session_numbers) - 1) for session in columns["session"]],
            np.int64,
        ),
        block_start=np.array(block_start, np.int64),
        block_ids=np.array(block_ids, np.int64),
        class_names=tuple(class_numbers),
        warnings=(),
    )
    _check_block_counts(text, rows)
    _check_chains(text, rows)
    return rows


def _parse_line(text: TraceText, line: int, content: str) -> dict[str, Any]:
    try:
        request = _DECODER.decode(content)
    except (ValueError, RecursionError) as error:
        rule = "a line must be one JSON object"
        text.refuse(rule, repr(content.strip()), line, f"Correct or remove the line: {_reason(error)}.")
    if not isinstance(request, dict):
        text.refuse("a line must be one JSON object", repr(content.strip()), line)
    if not request.keys() <= KEYS:
        unknown = min(request.keys() - KEYS)
        remedy = f"Leave it out; the keys are {', '.join(REQUIRED_KEYS + OPTIONAL_KEYS)}."
        text.refuse("a request must have no unknown keys", repr(unknown), line, remedy)
    for key in REQUIRED_KEYS:
        if key not in request:
            text.refuse(f"a request must have {key}", repr(content.strip()), line, f"Add {key}.")
    return request


def _check_columns(text: TraceText, columns: dict[str, list[Any]]) -> None:
    """Types and bounds of all columns; what is optional may be null."""
    _check(text, columns, "arrival_s", f"a number of seconds from 0 to {LATEST_S:g}", _is_time)
    for key in ("prompt_tokens", "output_tokens"):
        _check(text, columns, key, f"a whole number from 1 to {LARGEST_COUNT}", _is_count)
    _check(text, columns, "priority", f"a whole number within +-{LARGEST_COUNT}", _is_priority)
    _check(text, columns, "class", "a name", _is_name)
    _check(text, columns, "session", "text or a whole number", _is_session)


def _check(
    text: TraceText, columns: dict[str, list[Any]], key: str, words: str, is_sound: Callable[[Any], bool]
) -> None:
    for line, value in enumerate(columns[key], 1):
        if not is_sound(value):
            text.refuse(f"{key} must be {words}", json.dumps(value), line)


def _is_time(value: Any) -> bool:
    return type(value) in (float, int) and 0 <= value <= LATEST_S


def _is_count(value: Any) -> bool:
    return type(value) is int and 1 <= value <= LARGEST_COUNT


def _is_priority(value: Any) -> bool:
    return value is None or (type(value) is int and abs(value) <= LARGEST_COUNT)


def _is_name(value: Any) -> bool:
    return value is None or (isinstance(value, str) and value.isprintable() and value.strip() != "")


def _is_session(value: Any) -> bool:
    return value is None or type(value) in (str, int)


def _checked_ids(text: TraceText, line: int, ids: Any) -> list[int]:
    if not isinstance(ids, list) or not all(
        type(number) is int and 0 <= number <= LARGEST_ID for number in ids
    ):
        rule = f"block_ids must be a list of whole numbers from 0 to {LARGEST_ID}"
        text.refuse(rule, json.dumps(ids), line)
    return ids


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


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a JSON number")


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at column {error.colno}"
    return str(error).partition("\n")[0]


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
