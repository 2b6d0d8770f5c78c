"""A sweep on the terminal: every arm against the baseline, and where it stops paying."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from cluster_sim.compared import COMPARED
from cluster_sim.comparison import UNITS
from cluster_sim.report.closed_loop import below_the_flip
from cluster_sim.report.optimum import FLIPS_TITLE, flip_sentences
from cluster_sim.report.words import figures, seconds
from cluster_sim.saturation import MOST_SEEDS

MARKS = {"win": "+", "loss": "-", "tie": "=", "unknown": "?"}
STYLES = {"win": "green", "loss": "red", "tie": "", "unknown": "yellow"}
TITLES = {
    "output_throughput_tok_s": "output throughput: tokens/s, and ratio to it (above 1 is better)",
    "ttft_p99_s": "time to first token (TTFT): p99, and ratio to it (below 1 is better)",
    "tpot_s": "time per output token (TPOT): mean, and ratio to it (below 1 is better)",
    "slo_goodput_rps": "SLO goodput: requests/s that meet the SLO, and ratio to it (above 1 is better)",
}
GAINS = {"ttft_p99_s": "shorter p99 TTFT", "tpot_s": "faster per token"}  # of what is better with less
LOSSES = {"output_throughput_tok_s": "throughput", "slo_goodput_rps": "SLO goodput"}
LEGEND = (
    "+ win, - loss, = tie (the 95% interval holds 1, or the ratio is within 1% of it), "
    "? no interval: one seed, or a baseline too uncertain; "
    "* saturated: more came than was served, so that latency and throughput depend on the run's length"
)
Cell = Callable[[Mapping[str, Any]], str]  # of a ratio
Entries = Mapping[str, Mapping[tuple[object, ...], Mapping[str, Any]]]  # arm -> point -> entry


def sweep_view(
    comparison: Mapping[str, Any], baseline: str, width: int, compare: Sequence[str]
) -> RenderableType:
    """What comparison.compare_arms found: a table for each name in `compare`, a sentence for every arm."""
    tables: list[RenderableType] = []
    for name in compare:
        arms = list(comparison["vs_baseline"])
        tables += [Text(TITLES[name], style="bold"), *_tables(comparison, baseline, arms, name, width)]
    sentences = [
        Text(sentence, style="bold") for sentence in crossover_sentences(comparison, baseline, compare)
    ]
    flips = [Text(sentence) for sentence in flip_sentences(comparison.get("flips", {}), baseline)]
    flips += [Text(sentence, style="yellow") for sentence in below_the_flip(comparison)]
    if flips:
        flips.insert(0, Text(FLIPS_TITLE, style="bold"))
    return Group(*tables, Text(LEGEND, style="dim"), Text(""), *sentences, *flips)


def crossover_sentences(
    comparison: Mapping[str, Any], baseline: str, compare: Sequence[str]
) -> Iterator[str]:
    """For every arm: where it is faster than the baseline, and from where it loses throughput."""
    axis = comparison["crossover"]["axis"]
    if axis is None:
        return
    if _is_unjudged(comparison, compare):
        yield "From one seed nothing is judged: there is no interval. Give sweep.seeds two values or more."
        return
    unit = UNITS.get(axis, axis)
    means, ratios = _by_point(comparison["arms"]), _by_point(comparison["vs_baseline"])
    for arm, groups in comparison["crossover"]["arms"].items():
        for group in groups:
            where = "".join(f", {name}={value}" for name, value in group["axes"].items())
            steady = [
                entry
                for point, entry in ratios[arm].items()
                if entry["axes"].items() >= group["axes"].items() and not _is_saturated(means[arm][point])
            ]
            lasting = {entry["axes"][axis] for entry in steady}
            words = [
                f"{GAINS[name]} than {baseline} {_where_shorter(steady, axis, unit, name)}"
                for name in compare
                if name in GAINS
            ]
            words += [
                f"loses {LOSSES[name]} {_from_where(group[name], unit, lasting)}"
                for name in compare
                if name in LOSSES
            ]
            yield f"{arm}{where}: {'; '.join(words)}."


def _is_unjudged(comparison: Mapping[str, Any], compare: Sequence[str]) -> bool:
    """Whether no arm has an interval at any point."""
    entries = [entry for arm in comparison["vs_baseline"].values() for entry in arm]
    ratios = [entry[name] for entry in entries for name in compare if entry[name]]
    return bool(ratios) and all(ratio["verdict"] == "unknown" for ratio in ratios)


def _from_where(lost: float | None, unit: str, lasting: Collection[float]) -> str:
    """Where losses begin; `lasting` are the values at which runs of any length would say the same."""
    if lost is None:
        return "nowhere in the sweep"
    return f"from {lost:g} {unit}{'' if lost in lasting else ', where it is saturated'}"


def _where_shorter(entries: Sequence[Mapping[str, Any]], axis: str, unit: str, name: str) -> str:
    """Where an arm wins in the time called `name`: up to some value, or at those listed."""
    ordered = sorted(entries, key=lambda entry: float(entry["axes"][axis]))
    wins = [bool(entry[name]) and entry[name]["verdict"] == "win" for entry in ordered]
    values = [entry["axes"][axis] for entry, is_win in zip(ordered, wins, strict=True) if is_win]
    if not values:
        return "nowhere"
    if wins == sorted(wins, reverse=True):
        return f"up to {values[-1]:g} {unit}"
    return f"at {', '.join(f'{value:g}' for value in values)} {unit}"


def _tables(
    comparison: Mapping[str, Any], baseline: str, arms: Sequence[str], name: str, width: int
) -> list[Table]:
    """A table with as much of the intervals as `width` has room for; several where all arms do not fit."""
    console = Console(width=10_000)
    for cell in (_with_bounds, _with_half_width, _bare):
        table = _filled(comparison, baseline, arms, name, cell)
        if console.measure(table).maximum <= width:
            return [table]
    if len(arms) <= 1:
        return [table]
    parts = (arms[: len(arms) // 2], arms[len(arms) // 2 :])
    return [table for part in parts for table in _tables(comparison, baseline, part, name, width)]


def _with_bounds(ratio: Mapping[str, Any]) -> str:
    if ratio["low"] is None or ratio["high"] is None:
        return _bare(ratio)
    return f"{ratio['ratio']:.3f} [{ratio['low']:.3f}, {ratio['high']:.3f}]"


def _with_half_width(ratio: Mapping[str, Any]) -> str:
    if ratio["low"] is None or ratio["high"] is None:
        return _bare(ratio)
    return f"{ratio['ratio']:.2f} ±{(ratio['high'] - ratio['low']) / 2:.2f}"


def _bare(ratio: Mapping[str, Any]) -> str:
    return f"{ratio['ratio']:.2f}"


def _filled(
    comparison: Mapping[str, Any], baseline: str, arms: Sequence[str], name: str, cell: Cell
) -> Table:
    means, ratios = _by_point(comparison["arms"]), _by_point(comparison["vs_baseline"])
    points = list(dict.fromkeys(point for entries in means.values() for point in entries))
    axes = next((list(entry["axes"]) for entries in means.values() for entry in entries.values()), [])
    table = Table(box=box.SIMPLE_HEAD)
    for axis in axes:
        table.add_column(UNITS.get(axis, axis), justify="right", no_wrap=True)
    table.add_column(baseline, justify="right", no_wrap=True)
    for arm in arms:
        table.add_column(arm, justify="right", no_wrap=True)
    for point in points:
        own = _own_cell(means.get(baseline, {}).get(point), name)
        others = (_ratio_cell(means[arm].get(point), ratios[arm].get(point), name, cell) for arm in arms)
        table.add_row(*(str(value) for value in point), own, *others)
    return table


def _by_point(arms: Mapping[str, Sequence[Mapping[str, Any]]]) -> Entries:
    return {arm: {tuple(entry["axes"].values()): entry for entry in entries} for arm, entries in arms.items()}


def _own_cell(entry: Mapping[str, Any] | None, name: str) -> str:
    value: Any = entry
    for key in COMPARED[name][0].split("."):
        value = value and value[key]
    if not entry or not value:
        return ""
    words = seconds(value["value"]) if name in GAINS else figures(value["value"])
    return words + _saturation_mark(entry)


def _ratio_cell(
    entry: Mapping[str, Any] | None, ratios: Mapping[str, Any] | None, name: str, cell: Cell
) -> Text:
    if not entry or not ratios or not ratios[name]:
        return Text("")
    verdict = ratios[name]["verdict"]
    return Text(f"{cell(ratios[name])} {MARKS[verdict]}{_saturation_mark(entry)}", style=STYLES[verdict])


def _saturation_mark(entry: Mapping[str, Any]) -> str:
    """As wide as no mark, so that numbers stay aligned."""
    return "*" if _is_saturated(entry) else " "


def _is_saturated(entry: Mapping[str, Any]) -> bool:
    return entry["saturated"] is not None and entry["saturated"] >= MOST_SEEDS
