"""Sections of a sweep or a study. Each returns nothing for another kind, or without anything to show."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cluster_sim.report import run_charts, sweep_charts
from cluster_sim.report.answer import interval, place_words
from cluster_sim.report.arms import looks_of
from cluster_sim.report.crossover import crossover_sentences
from cluster_sim.report.optimum import flip_sentences
from cluster_sim.report.points import busiest, drafting, value, values, where, words
from cluster_sim.report.section import Section, Table
from cluster_sim.report.stored import Kind, Stored, Tree
from cluster_sim.report.words import NOTHING, figures, percent, seconds

HOLLOW = "Hollow points: most seeds are saturated, and latency grows with the length of the run."


def crossovers(stored: Stored) -> Sequence[Section]:
    """Every arm against the baseline along the traffic axis."""
    if stored.kind is not Kind.sweep:
        return []
    said = list(crossover_sentences(stored.summary, stored.baseline, stored.compared))
    flips = list(flip_sentences(stored.summary.get("flips", {}), stored.baseline))
    if flips:
        said += ["By batch size, in output tokens of a busy second:", *flips]
    drawn = [sweep_charts.crossover(part) for part in sweep_charts.slices_of(stored)]
    tables = [
        _ratio_table(stored.summary, name, title) for name, title in sweep_charts.ratio_titles(stored).items()
    ]
    return [_drawn_or_shown("crossover", f"Against {stored.baseline}", said, drawn, tables)]


def latencies(stored: Stored) -> Sequence[Section]:
    """TTFT, TPOT and E2E of every arm."""
    if stored.kind is not Kind.sweep:
        return []
    drawn = [sweep_charts.latency_curves(part) for part in sweep_charts.slices_of(stored)]
    tables = [
        _mean_table(stored.summary, kind, statistic, title)
        for (kind, statistic), (title, _, _) in sweep_charts.LATENCIES.items()
    ]
    return [_drawn_or_shown("latency", "Latency", [HOLLOW] if drawn else [], drawn, tables)]


def acceptance(stored: Stored) -> Sequence[Section]:
    """What was accepted of each arm's drafts."""
    entries = drafting(stored)
    if not entries:
        return []
    looks = looks_of(stored)
    shares = {arm: values(entry["acceptance_by_position"]) for arm, entry in entries.items()}
    shown = {arm: each for arm, each in shares.items() if each}
    drawn = [run_charts.acceptance(shown, {arm: looks[arm] for arm in shown})] if shown else []
    rows = [
        [arm, words(entry["acceptance_length"]), percent(value(entry["acceptance_rate"]))]
        for arm, entry in entries.items()
    ]
    places = max((len(each) for each in shares.values()), default=0)
    data = [[arm, *(percent(share) for share in each)] for arm, each in shown.items()]
    table = Table(("Arm", "Acceptance length", "Rate"), rows)
    numbers = Table(("Arm", *(f"Position {place + 1}" for place in range(places))), data)
    return [Section("acceptance", "Acceptance", [where(stored)], drawn, [table], [numbers])]


def chunks(stored: Stored) -> Sequence[Section]:
    """The tokens that come together in each arm."""
    entries = drafting(stored)
    if not entries:
        return []
    looks = looks_of(stored)
    counts = {arm: values(entry["chunk_tokens"]["histogram"]) for arm, entry in entries.items()}
    shown = {arm: each for arm, each in counts.items() if sum(each)}
    drawn = [run_charts.chunks(shown, {arm: looks[arm].colour for arm in shown})] if shown else []
    rows = [
        [
            arm,
            words(entry["chunk_tokens"]["mean"]),
            *(_seconds(entry["itl_s"][key]) for key in ("mean", "p50", "p99")),
        ]
        for arm, entry in busiest(stored).items()
    ]
    said = [
        "A verification delivers 1 to K + 1 tokens at once, and then nothing until the next: a stream with "
        f"speculation stutters. {where(stored)}"
    ]
    table = Table(("Arm", "Tokens a chunk", "ITL mean", "ITL p50", "ITL p99"), rows)
    data = [[arm, *(percent(count / sum(each)) for count in each)] for arm, each in shown.items()]
    longest = max((len(each) for each in shown.values()), default=0)
    numbers = Table(("Arm", *(str(tokens + 1) for tokens in range(longest))), data)
    return [Section("chunks", "Tokens per chunk and the gaps between", said, drawn, [table], [numbers])]


def time(stored: Stored) -> Sequence[Section]:
    """Where the time of the GPUs went."""
    parts = {
        arm: {part: 100 * value(share) for part, share in entry["time_share"].items()}
        for arm, entry in busiest(stored).items()
    }
    if not parts:
        return []
    drawn = run_charts.bars("time", "Share of the time of all GPUs", "Share of the time (%)", parts)
    names = list(dict.fromkeys(name for shares in parts.values() for name in shares))
    rows = [[arm, *(f"{shares.get(name, 0.0):.1f}%" for name in names)] for arm, shares in parts.items()]
    numbers = Table(("Arm", *names), rows)
    return [Section("time", "Where the time went", [where(stored)], [drawn], data=[numbers])]


def memory(stored: Stored) -> Sequence[Section]:
    """What a GPU holds in each arm."""
    parts = {
        arm: run_charts.memory_parts({name: value(size) for name, size in entry["memory_bytes"].items()})
        for arm, entry in busiest(stored).items()
        if entry.get("memory_bytes")
    }
    if not parts:
        return []
    drawn = run_charts.bars("memory", "What a GPU holds", "GiB", parts)
    names = list(dict.fromkeys(name for sizes in parts.values() for name in sizes))
    rows = [[arm, *(figures(sizes.get(name, 0.0)) for name in names)] for arm, sizes in parts.items()]
    return [Section("memory", "Memory (GiB)", figures=[drawn], data=[Table(("Arm", *names), rows)])]


def _drawn_or_shown(
    name: str, title: str, said: Sequence[str], drawn: Sequence[Any], tables: Sequence[Table]
) -> Section:
    """Figures with their numbers folded away, or, where no axis is of numbers, the tables alone."""
    if drawn:
        return Section(name, title, said, drawn, data=tables)
    return Section(name, title, said, tables=tables)


def _seconds(number: Any) -> str:
    return NOTHING if number is None else seconds(value(number))


def _ratio_table(summary: Tree, name: str, title: str) -> Table:
    arms = summary["vs_baseline"]
    return _by_point(arms, title, lambda entry: NOTHING if entry[name] is None else interval(entry[name]))


def _mean_table(summary: Tree, kind: str, statistic: str, title: str) -> Table:
    def cell(entry: Tree) -> str:
        return _seconds(entry[kind] and entry[kind][statistic])

    return _by_point(summary["arms"], title.partition(" (")[0], cell)


def _by_point(arms: Mapping[str, Sequence[Tree]], title: str, cell: Callable[[Tree], str]) -> Table:
    points: dict[str, dict[str, str]] = {}
    for arm, entries in arms.items():
        for entry in entries:
            points.setdefault(place_words(entry["axes"]), {})[arm] = cell(entry)
    rows = [[place, *(cells.get(arm, NOTHING) for arm in arms)] for place, cells in points.items()]
    return Table(("Point", *arms), rows, title)
