"""Draft schedules: vLLM's ranges of batch sizes <-> the draft length at each batch size.

A schedule is a list of [first, last, K]: with first to last requests scheduled in a step, prefills included,
K tokens are drafted per request. The rules, their order and the expansion are those of vLLM 0.33.0
(../shared/vllm-scheduler.md section 7).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from cluster_sim.errors import UserError
from cluster_sim.schema import shown

Longs = NDArray[np.int64]

KEY = "speculation.num_speculative_tokens_per_batch_size"
ITEMS = ("first", "last", "K")
CONTEXT_ITEMS = ("first", "last", "ctx_first", "ctx_last", "K")  # proposed: vllm#48627
EXAMPLE = "[[1, 16, 3], [17, 64, 1], [65, 512, 0]]"
_RANGE = re.compile(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", re.ASCII)
_DIGITS = re.compile(r"\s*[+-]?\d{1,18}\s*", re.ASCII)


@dataclass(frozen=True)
class Range:
    """Draft length `draft_length` from `first` to `last` requests in a step, and where the user wrote it."""

    first: int
    last: int
    draft_length: int
    where: str

    def __str__(self) -> str:
        return f"[{self.first}, {self.last}, {self.draft_length}]"


def dense_lookup(ranges: object, max_num_seqs: int, num_speculative_tokens: int) -> Longs:
    """Draft length at each batch size: entry b for b requests scheduled in a step, b = 0 .. max_num_seqs.

    Ranges may come in any order. Gaps and the tail carry the K of the range before; K is at most
    num_speculative_tokens, which is also entry 0, as vLLM uses it when nothing is scheduled.

    Raises:
        UserError: a rule of vLLM is broken.
    """
    ordered = sorted(_parse(ranges), key=lambda entry: entry.first)
    _check_order(ordered)
    _check_limit(max_num_seqs, "engine.max_num_seqs")
    _check_limit(num_speculative_tokens, "speculation.num_speculative_tokens")
    dense = np.full(max_num_seqs + 1, num_speculative_tokens, np.int64)
    for entry in ordered:
        dense[entry.first :] = min(entry.draft_length, num_speculative_tokens)
    return dense


def describe(dense: Longs) -> list[list[int]]:
    """The shortest schedule [[first, last, K], ...] that expands to `dense`; entry 0 is not part of it."""
    changes = np.flatnonzero(np.diff(dense[1:])) + 2
    firsts = [1, *changes.tolist()]
    lasts = [first - 1 for first in firsts[1:]] + [len(dense) - 1]
    return [[first, last, int(dense[first])] for first, last in zip(firsts, lasts, strict=True)]


def whole_number(item: object) -> int | None:
    """`item` where it is a whole number, also as digits or as 3.0, which is what vLLM takes (pydantic)."""
    if isinstance(item, int) and not isinstance(item, bool):
        return item
    if isinstance(item, float) and item.is_integer():
        return int(item)
    if isinstance(item, str) and _DIGITS.fullmatch(item):
        return int(item)
    return None


def _parse(ranges: object) -> list[Range]:
    """The entries in the user's order, each sound in itself."""
    remedy = f"Give one, for example {EXAMPLE}."
    if ranges is None:
        raise UserError("a draft schedule must be given", "null", KEY, remedy)
    if isinstance(ranges, Mapping):
        rule = "a draft schedule must be a list of [first, last, K]: vLLM dropped the mapping"
        raise UserError(rule, dict(ranges), KEY, f"Write {_as_list(ranges)}.")
    if isinstance(ranges, str) or not isinstance(ranges, Sequence):
        raise UserError("a draft schedule must be a list of [first, last, K]", shown(ranges), KEY, remedy)
    if not ranges:
        raise UserError("a draft schedule must have at least one range", "[]", KEY, remedy)
    return [_parse_range(entry, f"{KEY}[{index}]") for index, entry in enumerate(ranges)]


def _parse_range(entry: object, where: str) -> Range:
    if not isinstance(entry, str) and isinstance(entry, Sequence) and len(entry) == len(CONTEXT_ITEMS):
        _refuse_context_axis(entry, where)
    if isinstance(entry, str) or not isinstance(entry, Sequence) or len(entry) != len(ITEMS):
        remedy = "Write it as three whole numbers, for example [1, 16, 3]."
        raise UserError("each range must be [first, last, K]", _plain(entry), where, remedy)
    first, last, draft_length = (_whole(item, name, where) for item, name in zip(entry, ITEMS, strict=True))
    found = Range(first, last, draft_length, where)
    if first < 1 or last < 1:
        _refuse("a range must start and end at batch size 1 or more", found, "Count requests from 1.")
    if first > last:
        _refuse("first <= last must hold", found, f"Swap them: [{last}, {first}, {draft_length}].")
    if draft_length < 0:
        _refuse("K must be at least 0", found, "Use 0 to draft nothing.")
    return found


def _whole(item: object, name: str, where: str) -> int:
    number = whole_number(item)
    if number is None:
        remedy = "Write each range as three whole numbers, for example [1, 16, 3]."
        raise UserError(f"{name} of a range must be a whole number", shown(item), where, remedy)
    return number


def _refuse_context_axis(entry: Sequence[object], where: str) -> NoReturn:
    first, last, _, _, draft_length = (
        _whole(item, name, where) for item, name in zip(entry, CONTEXT_ITEMS, strict=True)
    )
    rule = "a range must be [first, last, K]: vLLM 0.33 has no context axis (vllm#48627)"
    remedy = f"Write [{first}, {last}, {draft_length}], for every context length."
    raise UserError(rule, _plain(entry), where, remedy)


def _check_order(ordered: Sequence[Range]) -> None:
    for before, after in pairwise(ordered):
        if after.first <= before.last:
            rule, got = "ranges must not overlap", f"{after} beside {before}"
            remedy = f"Let it start at {before.last + 1}, or the other end at {after.first - 1}."
            raise UserError(rule, got, after.where, remedy)
    if ordered[0].first != 1:
        remedy = f"Add a range for 1 to {ordered[0].first - 1}, or let this one start at 1."
        _refuse("the first range must start at batch size 1", ordered[0], remedy)


def _check_limit(limit: int, where: str) -> None:
    if limit < 1:
        raise UserError(
            "a draft schedule needs a limit of 1 or more", limit, where, f"Set {where} to 1 or more."
        )


def _as_list(ranges: Mapping[object, object]) -> str:
    """The list form of {"1-4": 3, "5": 0}; an example where a key cannot be read."""
    entries = []
    for key, draft_length in ranges.items():
        match = _RANGE.fullmatch(str(key))
        if match is None:
            return f"a list, for example {EXAMPLE}"
        first, last = match.groups()
        entries.append(f"[{first}, {last or first}, {draft_length}]")
    return f"[{', '.join(entries)}]" if entries else f"a list, for example {EXAMPLE}"


def _plain(entry: object) -> object:
    return list(entry) if isinstance(entry, Sequence) and not isinstance(entry, str) else shown(entry)


def _refuse(rule: str, found: Range, remedy: str) -> NoReturn:
    raise UserError(rule, found, found.where, remedy)
