"""Sections of a sweep. Each returns nothing for one simulation, or where there is nothing to show."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cluster_sim.report import run_charts, sweep_charts
from cluster_sim.report.answer import interval
from cluster_sim.report.arms import Look, looks_of
from cluster_sim.report.crossover import crossover_sentences
from cluster_sim.report.optimum import flip_sentences
from cluster_sim.report.section import Section, Table
from cluster_sim.report.stored import Stored, Tree
from cluster_sim.report.words import figures, percent, seconds

BUSIEST = "the busiest point without saturation in every arm"


def crossovers(stored: Stored) -> Sequence[Section]:
    """Every arm against the baseline along the traffic axis."""
    if stored.sweep is None:
        return []
    baseline = stored.sweep["baseline"]
    words = list(crossover_sentences(stored.summary, baseline))
    words += [
        f"Batch size: {sentence}" for sentence in flip_sentences(stored.summary.get("flips", {}), baseline)
    ]
    drawn = [sweep_charts.crossover(part) for part in sweep_charts.slices_of(stored)]
    data = [_ratio_table(stored.summary, name, title) for name, title in sweep_charts.RATIOS.items()]
    return [Section("crossover", f"Against {baseline}", words, drawn, data=data)]


def latencies(stored: Stored) -> Sequence[Section]:
    """TTFT, TPOT and E2E of every arm."""
    if stored.sweep is None:
        return []
    drawn = [sweep_charts.latency_curves(part) for part in sweep_charts.slices_of(stored)]
    words = ["Hollow points: most seeds saturated, so that the latency grows with the length of the run."]
    data = [
        _mean_table(stored.summary, kind, statistic, title)
        for (kind, statistic), (title, _, _) in sweep_charts.LATENCIES.items()
    ]
    return [Section("latency", "Latency", words, drawn, data=data)]


def acceptance(stored: Stored) -> Sequence[Section]:
    """What was accepted of each arm's drafts."""
    entries = _drafting(stored)
    if not entries:
        return []
    looks = _looks(stored)
    shares = {arm: _values(entry["acceptance_by_position"]) for arm, entry in entries.items()}
    drawn = run_charts.acceptance(shares, {arm: looks[arm].colour for arm in shares})
    rows = [
        [
            arm,
            _number(entry["acceptance_length"]),
            percent(_value(entry["acceptance_rate"])),
            entry["acceptance_source"] or "",
        ]
        for arm, entry in entries.items()
    ]
    table = Table(("Arm", "acceptance length", "rate", "source"), rows)
    return [Section("acceptance", "Acceptance", [f"At {_place(entries)}."], [drawn], [table])]


def chunks(stored: Stored) -> Sequence[Section]:
    """The tokens that come together in each arm."""
    entries = _drafting(stored)
    if not entries:
        return []
    looks = _looks(stored)
    counts = {arm: _values(entry["chunk_tokens"]["histogram"]) for arm, entry in entries.items()}
    drawn = run_charts.chunks(counts, {arm: looks[arm].colour for arm in counts})
    rows = [
        [
            arm,
            figures(_value(entry["chunk_tokens"]["mean"])),
            *(seconds(_value(entry["itl_s"][key])) for key in ("mean", "p50", "p99")),
        ]
        for arm, entry in entries.items()
    ]
    table = Table(("Arm", "tokens a chunk", "ITL mean", "p50", "p99"), rows)
    words = [
        "A verification delivers 1 to K + 1 tokens at once, and then nothing until the next: a stream with speculation stutters."
    ]
    return [Section("chunks", "Tokens per chunk and the gaps between", words, [drawn], [table])]


def time(stored: Stored) -> Sequence[Section]:
    """Where the time of the GPUs went."""
    entries = _busiest(stored)
    if not entries:
        return []
    parts = {
        arm: {part: 100 * _value(share) for part, share in entry["time_share"].items()}
        for arm, entry in entries.items()
    }
    drawn = run_charts.bars("time", "Where the time went", "Share of the time (%)", parts)
    names = list(next(iter(parts.values())))
    rows = [[arm, *(f"{shares[name]:.1f}%" for name in names)] for arm, shares in parts.items()]
    return [
        Section(
            "time",
            "Where the time went",
            [f"At {_place(entries)}."],
            [drawn],
            data=[Table(("Arm", *names), rows)],
        )
    ]


def memory(stored: Stored) -> Sequence[Section]:
    """What a GPU holds in each arm."""
    entries = _busiest(stored)
    if not entries:
        return []
    parts = {
        arm: run_charts.memory_parts({name: _value(size) for name, size in entry["memory_bytes"].items()})
        for arm, entry in entries.items()
    }
    drawn = run_charts.bars("memory", "What a GPU holds", "GiB", parts)
    names = list(dict.fromkeys(name for sizes in parts.values() for name in sizes))
    rows = [[arm, *(figures(sizes.get(name, 0.0)) for name in names)] for arm, sizes in parts.items()]
    return [Section("memory", "Memory", figures=[drawn], data=[Table(("Arm", *names), rows)])]


def _busiest(stored: Stored) -> dict[str, Tree]:
    """Arm -> its entry at the last point at which no arm is saturated; else at the first of all."""
    if stored.sweep is None:
        return {}
    arms = stored.summary["arms"]
    points = [entry["axes"] for entry in next(iter(arms.values()), [])]
    by_point = {arm: {repr(entry["axes"]): entry for entry in entries} for arm, entries in arms.items()}

    def is_steady(point: Tree) -> bool:
        entries = [entries.get(repr(point)) for entries in by_point.values()]
        return all(entry is not None and not entry["saturated"] for entry in entries)

    steady = [point for point in points if is_steady(point)]
    chosen = steady[-1] if steady else (points[0] if points else {})
    return {arm: entries[repr(chosen)] for arm, entries in by_point.items() if repr(chosen) in entries}


def _drafting(stored: Stored) -> dict[str, Tree]:
    return {arm: entry for arm, entry in _busiest(stored).items() if entry["acceptance_length"]}


def _looks(stored: Stored) -> dict[str, Look]:
    return looks_of(stored.sweep or {}, stored.config)


def _place(entries: Mapping[str, Tree]) -> str:
    axes = next(iter(entries.values()))["axes"]
    return ", ".join(f"{axis}={value}" for axis, value in axes.items()) + f", {BUSIEST}" if axes else BUSIEST


def _ratio_table(summary: Tree, name: str, title: str) -> Table:
    arms = summary["vs_baseline"]
    return _by_point(arms, title, lambda entry: "-" if entry[name] is None else interval(entry[name]))


def _mean_table(summary: Tree, kind: str, statistic: str, title: str) -> Table:
    def cell(entry: Tree) -> str:
        value = entry[kind] and entry[kind][statistic]
        return "-" if not value else seconds(value["value"])

    return _by_point(summary["arms"], title.partition(" (")[0], cell)


def _by_point(arms: Mapping[str, Iterable[Tree]], title: str, cell: Any) -> Table:
    points: dict[str, dict[str, str]] = {}
    names: dict[str, str] = {}
    for arm, entries in arms.items():
        for entry in entries:
            key = repr(entry["axes"])
            names[key] = ", ".join(
                f"{value:g}" if isinstance(value, int | float) else str(value)
                for value in entry["axes"].values()
            )
            points.setdefault(key, {})[arm] = cell(entry)
    rows = [[names[key], *(cells.get(arm, "-") for arm in arms)] for key, cells in points.items()]
    return Table((title, *arms), rows)


def _value(number: Any) -> float:
    return float(number["value"]) if isinstance(number, Mapping) else float(number)


def _values(numbers: Any) -> list[float]:
    """Entries over seeds, up to the first that no seed has."""
    return [
        _value(number) for number in itertools.takewhile(lambda number: number is not None, numbers or [])
    ]


def _number(number: Any) -> str:
    return figures(_value(number))
