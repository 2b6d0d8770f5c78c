"""Policy trace: how many drafts would be accepted at each output token of recorded requests.

A file has one request a line, as JSON, with a list in which entry p belongs to a verification that starts
after p output tokens:

    {"accepted": [2, 1, 0, 0, 3]}        drafts that the target would accept
    {"acc_eagle": {"acc_len": [3, 2]}}   SpecDecode-Bench (github.com/SpecDecode-Bench/simulator): tokens
                                         emitted, bonus included; also acc_ngram, acc, and acc_eagle_three,
                                         whose list has no acc_len around it

Other keys of a line are not looked at. A walk with k drafts accepts min(entry, k), emits one token more, and
goes on behind them; so a longer draft starts its verifications at other tokens than a shorter one, and its
first position is not accepted as often (../shared/spec-decode-facts.md, fact 1).
"""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cluster_sim.bounds import LARGEST_COUNT
from cluster_sim.errors import UserError
from cluster_sim.schema import closest

OURS = "accepted"
Floats = NDArray[np.float64]
Ints = NDArray[np.int32]


@dataclass(frozen=True)
class AcceptedLengths:
    """The requests of a file one behind another."""

    accepted: Ints  # [entries of all requests]
    start: NDArray[np.int64]  # [request + 1] where its entries start


def read(file: str | None, series: str | None, key: str) -> AcceptedLengths:
    """The lengths of `file`; `series` says which of several on a line.

    Raises:
        UserError: no file, or one that does not hold such lengths.
    """
    if file is None:
        remedy = f"Set {key}.file to a JSON-lines file of accepted lengths."
        raise UserError("policy trace needs a file", "null", f"{key}.file", remedy)
    return _read(Path(file).expanduser(), series, key)


def walked_marginals(file: str | None, series: str | None, draft_length: int, key: str) -> Floats:
    """Share of the verifications on walks over all requests whose first i drafts are accepted, i = 1 .. k.

    Raises:
        UserError: as of `read`.
    """
    lengths = read(file, series, key)
    counts = np.bincount(_walk(lengths, draft_length), minlength=draft_length + 1)
    at_least = np.cumsum(counts[::-1])[::-1]
    share: Floats = at_least[1:] / at_least[0]
    return share


def _walk(lengths: AcceptedLengths, draft_length: int) -> list[int]:
    """Drafts accepted at each verification."""
    capped = np.minimum(lengths.accepted, draft_length).tolist()
    walked = []
    for first, end in zip(lengths.start[:-1].tolist(), lengths.start[1:].tolist(), strict=True):
        at = first
        while at < end:
            walked.append(capped[at])
            at += capped[at] + 1
    return walked


@cache
def _read(path: Path, series: str | None, key: str) -> AcceptedLengths:
    try:
        content = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        rule = "accepted lengths must be a text file that can be read"
        raise UserError(rule, str(error), str(path), f"Correct {key}.file.") from error
    rows = [
        _row(line, series, f"{path}, line {number}", key)
        for number, line in enumerate(content.splitlines(), 1)
        if line.strip()
    ]
    if not rows:
        raise UserError(
            "a file of accepted lengths has one request a line", "none", str(path), f"Correct {key}.file."
        )
    start = np.concatenate(([0], np.cumsum([len(row) for row in rows])))
    return AcceptedLengths(np.concatenate(rows).astype(np.int32), start.astype(np.int64))


def _row(line: str, series: str | None, where: str, key: str) -> NDArray[np.int64]:
    """Accepted drafts at each output token of a line's request."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UserError("a line must be JSON", str(error), where, "Correct or remove the line.") from error
    known = _series_of(found) if isinstance(found, dict) else {}
    if series is None and len(known) > 1:
        remedy = f"Set {key}.series to one of them."
        raise UserError("one list of lengths must be meant", ", ".join(known), where, remedy)
    name = next(iter(known), OURS) if series is None else series
    if name not in known:
        rule = f'a line needs a list of lengths, {{"{name}": [..]}}'
        raise UserError(rule, "none", where, closest(name, known, "Lists of this line"))
    fewest = 0 if name == OURS else 1
    for index, value in enumerate(known[name]):
        if type(value) is not int or not fewest <= value < LARGEST_COUNT:
            rule = f"a length must be a whole number of {fewest} or more"
            raise UserError(rule, repr(value), f"{where}: {name}[{index}]", "Correct or remove the line.")
    if not known[name]:
        raise UserError("a request has at least one length", "[]", f"{where}: {name}", "Remove the line.")
    return np.array(known[name], np.int64) - fewest


def _series_of(found: dict[str, Any]) -> dict[str, list[Any]]:
    """The lists of lengths in a line, by name."""
    named = {name: value for name, value in found.items() if name in (OURS, "acc") or name.startswith("acc_")}
    inner = {
        name: value.get("acc_len") if isinstance(value, dict) else value for name, value in named.items()
    }
    return {name: value for name, value in inner.items() if isinstance(value, list)}
