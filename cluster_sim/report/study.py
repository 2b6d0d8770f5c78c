"""A study on the terminal: the recommendation in a sentence, the arms beside it, and how far it stands."""

import math
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cluster_sim.comparison import RATE_AXIS
from cluster_sim.report.front import front_view
from cluster_sim.report.objectives import interval_words, objective_number, objective_words
from cluster_sim.report.words import NOTHING, percent, seconds

MARKS = {"better": "+", "worse": "-", "tie": "="}
STYLES = {"better": "green", "worse": "red", "tie": ""}
LIMITS = {
    "attainment": "attainment",
    "ttft_p99_s": "p99 TTFT",
    "tpot_p99_s": "p99 TPOT",
    "saturated": "saturation: more came than was served",
}
FEWEST = "gpus"  # an objective that many arms have the same value of
WIDE = 110  # columns from which values of each load are shown
LEGEND_FEWEST = (
    "under fresh seeds: GPUs, and the constraint that is nearest to its limit; * misses a constraint"
)
LEGEND = (
    "under fresh seeds: value, mean difference from the best with its 95% interval, "
    "= tie (the interval holds 0, or less than 1%), - worse; * misses a constraint"
)


def study_view(summary: Mapping[str, Any], width: int) -> RenderableType:
    """The summary.json of a study, to be read in ten seconds."""
    parts: list[RenderableType] = [
        Text(summary["question"], style="bold"),
        Text(" ".join(asked(summary))),
        _arms(summary, width),
        Text(LEGEND_FEWEST if summary["objective"] == FEWEST else LEGEND, style="dim"),
        Text(""),
        *front_view(summary),
        *[Text(sentence, style="bold") for sentence in answer(summary)],
        *[Text(line) for line in stands(summary)],
    ]
    return Group(*parts)


def answer(summary: Mapping[str, Any]) -> Iterator[str]:
    """What to do."""
    verdict = summary["verdict"]
    if not verdict["is_feasible"]:
        yield _infeasible(summary)
        return
    champion, recommended = verdict["champion"], verdict["recommended"]
    if summary.get("objective") == FEWEST:
        yield _fewest(summary, recommended)
    elif verdict["is_tie"]:
        yield (
            f"Recommended: {recommended}. The best of the search, {champion}, is no better than it by more "
            "than chance or 1%: a TIE, and the simpler one goes first."
        )
    else:
        yield (
            f"Recommended: {recommended}. Every simpler arm is worse by more than chance and 1%, "
            "over all loads or under one of them."
        )
    if verdict["was_overtaken"]:
        yield "The best of the search was not the best under fresh seeds: it owed something to luck."


def _fewest(summary: Mapping[str, Any], recommended: str) -> str:
    """The arm on the fewest GPUs, and what the best arm on fewer ones lacks."""
    by_name = {one["arm"]: one for one in summary["contenders"]}
    own = by_name[recommended]["value"]["value"]
    lacking = [one for one in summary["contenders"] if one["value"]["value"] < own and not one["is_feasible"]]
    words = (
        f"Recommended, on {own:g} GPU{'s' * (own != 1)}: {recommended}, the simplest arm that needs no more."
    )
    if not lacking:
        return f"{words} No arm on fewer GPUs came to the verdict."
    nearest = lacking[0]  # they stand in the order of what they miss
    value = nearest["value"]["value"]
    return (
        f"{words} The best on fewer, {nearest['arm']} on {value:g}, misses a limit ({margin_words(nearest)})."
    )


def asked(summary: Mapping[str, Any]) -> Iterator[str]:
    """What was searched for, and how long."""
    search = summary["search"]
    loads = ", ".join(load_words(load) for load in summary["loads"])
    if summary["objective"] == FEWEST:
        yield f"fewest GPUs for {loads};"
    else:
        classes = f", {summary['over_classes']} over classes" if summary.get("over_classes") else ""
        over = f", {summary['over_loads']} over {loads}" if loads else ""
        yield f"{objective_words(summary['objective'])} in {summary['unit']}{classes}{over};"
    if summary.get("front"):
        yield f"against {objective_words(summary['front']['against'])} in {summary['front']['unit']};"
    for name, limit in summary["constraints"].items():
        words = f"at least {percent(limit)}" if name == "attainment" else f"at most {seconds(limit)}"
        yield f"{LIMITS[name]} {words};"
    yield f"{search['trials']} trials, {search['stopped_early']} of them stopped early."


def load_words(load: Mapping[str, Any]) -> str:
    """The axes of a load."""
    if list(load) == [RATE_AXIS]:
        return f"{load[RATE_AXIS]:g} requests/s"
    return " and ".join(f"{axis}={value}" for axis, value in load.items())


def _arms(summary: Mapping[str, Any], width: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("arm", overflow="fold", min_width=24)
    table.add_column("value", justify="right", no_wrap=True)
    is_fewest = summary["objective"] == FEWEST
    table.add_column("nearest limit" if is_fewest else "difference", justify="right", no_wrap=True)
    is_wide = width >= WIDE and len(summary["loads"]) > 1
    loads = summary["loads"] if is_wide and summary["contenders"][0]["by_load"] else []
    for load in loads:
        table.add_column(load_words(load), justify="right")
    for one in summary["contenders"]:
        is_chosen = one["arm"] == summary["verdict"]["recommended"]
        arm = Text(one["arm"], style="bold" if is_chosen else "")
        arm.append("  <- recommended" if is_chosen else "")
        by_load = [number_words(summary, value) for value in one["by_load"]] if loads else []
        marks = one["vs_champion"]["by_load"] if one["vs_champion"] else []
        cells = [
            Text(f"{value} {MARKS[mark]}", style=STYLES[mark])
            for value, mark in zip_longest(by_load, marks[: len(by_load)], fillvalue="tie")
        ]
        beside = Text(margin_words(one)) if is_fewest else _difference(summary, one)
        table.add_row(arm, _value(summary, one), beside, *cells)
    return table


def _value(summary: Mapping[str, Any], one: Mapping[str, Any]) -> str:
    value = one["value"] and one["value"]["value"]
    return number_words(summary, value) + (" " if one["is_feasible"] else "*")


def margin_words(one: Mapping[str, Any]) -> str:
    """The constraint that a contender comes nearest to missing, or misses most, and by how much."""
    missed = {name: math.inf if miss is None else miss for name, miss in one["misses"].items()}
    known = {name: miss for name, miss in missed.items() if name != "saturated" or miss > 0.0}
    name, miss = max(known.items(), key=lambda item: item[1])
    if math.isinf(miss):
        return f"{LIMITS[name]}: none"
    words = f"missed by {percent(miss)}" if miss > 0.0 else f"{percent(abs(miss))} to spare"
    return f"{LIMITS[name].partition(':')[0]}: {words}"


def _difference(summary: Mapping[str, Any], one: Mapping[str, Any]) -> Text:
    against = one["vs_champion"]
    if against is None or one["arm"] == summary["verdict"]["champion"]:
        return Text("best  " if against else NOTHING)
    low, high = against["low"], against["high"]
    words = "" if low is None else f" [{_signed(summary, low)}, {_signed(summary, high)}]"
    mark = against["verdict"]
    return Text(f"{_signed(summary, against['difference'])}{words} {MARKS[mark]}", style=STYLES[mark])


def value_words(summary: Mapping[str, Any], value: Mapping[str, Any]) -> str:
    """A value of the objective and its 95 % interval."""
    return interval_words(summary["objective"], value)


def number_words(summary: Mapping[str, Any], value: float | None) -> str:
    """A value of the objective."""
    return objective_number(summary["objective"], value)


def _signed(summary: Mapping[str, Any], value: float | None) -> str:
    if value is None:
        return NOTHING
    return ("+" if value >= 0.0 else "-") + number_words(summary, abs(value))


def stands(summary: Mapping[str, Any]) -> Iterator[str]:
    """How far the recommendation stands."""
    held = [one["variation"] for one in summary["sensitivity"] if one.get("stands")]
    if held:
        yield f"It stands with {', '.join(held)}."
    for one in summary["sensitivity"]:
        if "why_not" in one:
            yield f"Not varied: {one['variation']} ({one['why_not']})."
        elif not one["is_feasible"]:
            other = f"; {one['better']} meets it" if one["better"] else ", as does every other arm"
            yield f"It FALLS with {one['variation']}: it misses a constraint{other}."
        elif not one["stands"]:
            ours, theirs = (one["values"][one[key]] for key in ("recommended", "better"))
            yield (
                f"It FALLS with {one['variation']}: {one['better']} is better "
                f"({number_words(summary, theirs)} against {number_words(summary, ours)})."
            )


def _infeasible(summary: Mapping[str, Any]) -> str:
    miss = summary["verdict"]["nearest_miss"]
    words = LIMITS[miss["constraint"]]
    excess = "without any value" if miss["excess"] is None else f"by {percent(miss['excess'])}"
    return (
        f"INFEASIBLE: no arm meets the constraints at every load. The nearest, {miss['arm']}, misses one "
        f"{excess} ({words}). Relax it, lower the load, or add instances."
    )
