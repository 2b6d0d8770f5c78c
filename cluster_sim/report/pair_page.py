"""Two results side by side as a page: what differs between them, and every number that they share."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cluster_sim.files import write_text
from cluster_sim.report.answer import Head, head_of
from cluster_sim.report.caveats import caveats
from cluster_sim.report.page import rendered
from cluster_sim.report.section import Section, Table
from cluster_sim.report.side_by_side import Pair, read_pair
from cluster_sim.report.words import NOTHING

OPTION = "--output"
ELSEWHERE = ("output", "executor")  # groups that change no result


def write_pair(first: Path, second: Path, path: Path) -> Path:
    """Write the page of two results to `path`; its path.

    Raises:
        UserError: one has no results, they have nothing in common, or it cannot be written.
    """
    pair = read_pair(first, second)
    heads = [head_of(stored) for stored in (pair.first, pair.second)]
    named = list(zip("AB", (pair.first, pair.second), strict=True))
    answer = [
        f"{name}, {stored.directory}: {head.what}." for (name, stored), head in zip(named, heads, strict=True)
    ]
    found = list(_caveats(pair))
    head = Head("Two results side by side", "How does B differ from A?", answer)
    write_text(path, rendered(head, found, [_differences(pair), _numbers(pair)]), OPTION)
    return path


def _caveats(pair: Pair) -> Iterator[str]:
    """What could make either wrong; what holds of both is said once."""
    mine, theirs = caveats(pair.first), caveats(pair.second)
    for words in dict.fromkeys((*mine, *theirs)):
        yield f"{' and '.join(name for name, of in (('A', mine), ('B', theirs)) if words in of)}: {words}"


def _differences(pair: Pair) -> Section:
    """The settings that are not the same."""
    mine, theirs = (dict(_settings(stored.config)) for stored in (pair.first, pair.second))
    rows = [
        [key, mine.get(key, NOTHING), theirs.get(key, NOTHING)]
        for key in dict.fromkeys((*mine, *theirs))
        if mine.get(key) != theirs.get(key)
    ]
    words = [] if rows else ["Both have the same settings."]
    return Section(
        "settings", "What differs", words, tables=[Table(("Setting", "A", "B"), rows)] if rows else []
    )


def _settings(tree: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    for key, value in tree.items():
        if path or key not in ELSEWHERE:
            if isinstance(value, Mapping) and value:
                yield from _settings(value, f"{path}{key}.")
            else:
                yield f"{path}{key}", value if isinstance(value, str) else json.dumps(value)


def _numbers(pair: Pair) -> Section:
    """Every number that both have."""
    rows = [[*line.place, line.heading, line.first, line.second, line.ratio] for line in pair.lines]
    heads = ["Arm", "Point", "Number", "A", "B", "B / A"]
    kept = [place for place in range(len(heads)) if any(row[place] for row in rows)]
    table = Table([heads[place] for place in kept], [[row[place] for place in kept] for row in rows])
    return Section("numbers", "Side by side", [pair.words], tables=[table])
