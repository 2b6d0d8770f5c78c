"""Points of a sweep or a study: the busiest one without saturation, and numbers that are means over seeds."""

import itertools
from collections.abc import Mapping
from typing import Any

from cluster_sim.report.answer import place_words
from cluster_sim.report.recommended import is_saturated
from cluster_sim.report.stored import Kind, Stored, Tree
from cluster_sim.report.words import figures


def busiest(stored: Stored) -> dict[str, Tree]:
    """Arm -> its entry at the last point at which no arm is saturated, else at the first of all.

    Of a search every arm's entry is that at its own capacity, at the first point.
    """
    if stored.kind not in (Kind.sweep, Kind.capacity, Kind.study):
        return {}
    arms = {arm: stored.summary["arms"][arm] for arm in _shown(stored)}
    by_point = {arm: {repr(entry["axes"]): entry for entry in entries} for arm, entries in arms.items()}
    points = list(dict.fromkeys(point for entries in by_point.values() for point in entries))

    def is_steady(point: str) -> bool:
        entries = [entries.get(point) for entries in by_point.values()]
        return all(entry is not None and not is_saturated(entry) for entry in entries)

    steady = [point for point in points if is_steady(point)]
    if stored.kind is Kind.capacity or not steady:
        steady = points[:1]
    return {
        arm: entries[point] for arm, entries in by_point.items() for point in steady[-1:] if point in entries
    }


def drafting(stored: Stored) -> dict[str, Tree]:
    """Those of them that draft."""
    return {arm: entry for arm, entry in busiest(stored).items() if entry["acceptance_length"]}


def where(stored: Stored) -> str:
    """Where `busiest` is, in a sentence."""
    entries = busiest(stored)
    axes = next(iter(entries.values()))["axes"] if entries else {}
    place = f"At {place_words(axes)}" if axes else ""
    if stored.kind is Kind.capacity:
        return f"{place + ', each' if place else 'Each'} arm at its capacity."
    if not place:
        return "Means over seeds."
    if any(is_saturated(entry) for entry in entries.values()):
        return f"{place}; there is no point at which no arm is saturated."
    return f"{place}, the busiest point at which no arm is saturated."


def value(number: Any) -> float:
    """The mean over seeds, or the number itself."""
    return float(number["value"]) if isinstance(number, Mapping) else float(number)


def values(numbers: Any) -> list[float]:
    """Of a list, up to the first entry that no seed has."""
    return [value(number) for number in itertools.takewhile(lambda number: number is not None, numbers or [])]


def words(number: Any) -> str:
    """Three figures of it; a dash where there is none."""
    return figures(None if number is None else value(number))


def _shown(stored: Stored) -> list[str]:
    """All arms; of a study, whose arms are many and alike, the baseline, the recommended and the best."""
    arms = list(stored.summary["arms"])
    if stored.kind is not Kind.study:
        return arms
    verdict = stored.summary["verdict"]
    names = (stored.baseline, verdict["recommended"], verdict["champion"])
    return [arm for arm in dict.fromkeys(names) if arm in arms]
