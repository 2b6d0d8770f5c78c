"""A trace on the terminal: what is in it, as `trace describe` shows it."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cluster_sim.report.words import NOTHING, figures, percent, seconds

COLUMNS = ("mean", "min", "p50", "p90", "p95", "p99", "max")
ROWS = {"prompt_tokens": "prompt", "output_tokens": "output"}
MOST_CLASSES = 12  # that are named


def trace_view(facts: Mapping[str, Any]) -> RenderableType:
    """The facts of one trace (trace_facts.describe)."""
    return Group(
        Text(facts["file"], style="bold"), _lengths_table(facts), _facts_table(dict(_fact_lines(facts)))
    )


def _lengths_table(facts: Mapping[str, Any]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("tokens", no_wrap=True)
    for column in COLUMNS:
        table.add_column(column, justify="right", no_wrap=True)
    for name, words in ROWS.items():
        table.add_row(words, *(_whole(facts[name][column]) for column in COLUMNS))
    return table


def _facts_table(lines: Mapping[str, str]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, words in lines.items():
        table.add_row(name, Text(words))
    return table


def _fact_lines(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "format", facts["format"]
    yield (
        "requests",
        f"{facts['requests']:,} in {_duration(facts['duration_s'])}, of {facts['prompt_tokens']['total']:,} "
        f"prompt and {facts['output_tokens']['total']:,} output tokens",
    )
    yield (
        "rate",
        f"{figures(facts['rate_rps'])} requests/s on average, {figures(facts['busiest_minute_rps'])} in the "
        "busiest minute",
    )
    yield "burstiness", f"gaps vary by {figures(facts['gap_cv'])} of their mean (1 for a Poisson process)"
    yield "classes", _classes(facts["classes"], facts["requests"])
    yield "sessions", _sessions(facts["sessions"])
    yield "content", _content(facts["content"])
    yield "oddities", "; ".join(facts["oddities"]) or "none"


def _classes(classes: Mapping[str, int], requests: int) -> str:
    ordered = sorted(classes.items(), key=lambda entry: (-entry[1], entry[0]))
    shown = [f"{name} {percent(count / requests)}" for name, count in ordered[:MOST_CLASSES]]
    if len(ordered) > MOST_CLASSES:
        shown.append(f"{len(ordered) - MOST_CLASSES} more")
    return ", ".join(shown)


def _sessions(sessions: Mapping[str, Any]) -> str:
    if not sessions["number"]:
        return "none named"
    return (
        f"{sessions['number']:,} with {sessions['requests']:,} requests, {figures(sessions['mean_turns'])} "
        f"turns on average, {sessions['max_turns']:,} at most"
    )


def _content(content: Mapping[str, Any]) -> str:
    if content["block_tokens"] is None:
        return "unknown: no prefix is shared in a replay"
    return (
        f"known in blocks of {content['block_tokens']} tokens; {percent(content['shared_start_share'])} of "
        f"the requests begin like an earlier one, and an infinite prefix cache would find "
        f"{percent(content['best_hit_rate'])} of the prompt tokens"
    )


def _duration(span_s: float) -> str:
    hours = span_s / 3600
    return seconds(span_s) if hours < 1 else f"{figures(hours)} hours"


def _whole(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,.0f}"
