"""The front of a study on the terminal: the arms that trade one objective for another."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from cluster_sim.report.objectives import interval_words, objective_words

NO_FRONT = "The front is empty: no arm meets the constraints."


def front_view(summary: Mapping[str, Any]) -> Iterator[RenderableType]:
    """A row for each point of the front; nothing where none was asked for."""
    front = summary.get("front")
    if front is None:
        return
    if not front["points"]:
        yield Text(NO_FRONT)
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("front", overflow="fold", min_width=24)
    for name in names(summary):
        table.add_column(objective_words(name), justify="right", no_wrap=True)
    for point in front["points"]:
        table.add_row(*cells(summary, point))
    yield table
    for sentence in sentences(summary):
        yield Text(sentence)
    yield Text("")


def names(summary: Mapping[str, Any]) -> tuple[str, str]:
    """Of both objectives."""
    return summary["objective"], summary["front"]["against"]


def cells(summary: Mapping[str, Any], point: Mapping[str, Any]) -> tuple[str, str, str]:
    """An arm and its values in both objectives."""
    first, second = names(summary)
    return point["arm"], interval_words(first, point["value"]), interval_words(second, point["against"])


def sentences(summary: Mapping[str, Any]) -> Iterator[str]:
    """Which points are within the noise of another one."""
    points = summary["front"]["points"]
    clear = sum(point["shadow"] is None for point in points)
    yield f"{clear} of {len(points)} points of the front stand clear of the noise."
    for point in points:
        if point["shadow"] is None:
            continue
        better_in = " and ".join(map(objective_words, point["shadow_better_in"]))
        words = f"surely better in {better_in} and as good otherwise" if better_in else "as good in both"
        yield f"Within the noise: {point['arm']}; {point['shadow']} is {words}."
