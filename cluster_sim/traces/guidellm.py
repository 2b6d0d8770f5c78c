"""guidellm's report (JSON): every request of every benchmark in it, successful, incomplete and errored.

A benchmark's requests stand under benchmarks[].requests.STATUS[]. Several benchmarks follow one another in
time, as they did on the server. A request's start is its arrival; one without tokens is left out as in other
traces. Reports of versions 1 and 2 spell the same things in several ways, all of which are read.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import numpy as np

from cluster_sim.bounds import LARGEST_COUNT
from cluster_sim.errors import UserError
from cluster_sim.traces.json_columns import reason
from cluster_sim.traces.rows import TraceRows, plain_rows, with_warning
from cluster_sim.traces.text import TraceText, shortened

KEY = "benchmarks"
STATUSES = ("successful", "incomplete", "errored")
LATEST_S = 1e11  # as Unix time the year 5138: beyond it a time is in ms or ns
STARTS = ("request_start_time", "start_time", "info.timings.request_start", "info.timings.resolve_start")
PROMPTS = ("prompt_tokens", "input_metrics.total_tokens", "input_metrics.text_tokens")
OUTPUTS = ("output_tokens", "output_metrics.total_tokens", "output_metrics.text_tokens")
WITHOUT_REQUESTS = "Let guidellm write its requests too."
TIME_WORDS = f"a number of seconds from 0 to {LATEST_S:g}"
COUNT_WORDS = f"a whole number from 0 to {LARGEST_COUNT}"


def parse(text: TraceText) -> TraceRows:
    """The requests, benchmark by benchmark.

    Raises:
        UserError: not a report, no request in it, or one that breaks a rule.
    """
    benchmarks = _benchmarks(text)
    found = [
        (
            _time(text, place, request),
            _tokens(text, place, request, PROMPTS),
            _tokens(text, place, request, OUTPUTS),
        )
        for place, request in _requests(text, benchmarks)
    ]
    if not found:
        rule, got = "a trace must hold at least one request", "a report without any"
        raise UserError(rule, got, str(text.path), WITHOUT_REQUESTS)
    starts, prompts, outputs = zip(*found, strict=True)
    start_s = np.array(starts, np.float64)
    rows = plain_rows(
        "guidellm report", start_s - start_s.min(), np.array(prompts, np.int64), np.array(outputs, np.int64)
    )
    if len(benchmarks) == 1:
        return rows
    return with_warning(rows, f"{text.path}: {len(benchmarks)} benchmarks, one after another")


def _benchmarks(text: TraceText) -> list[Any]:
    try:
        report = json.loads(text.data)
    except json.JSONDecodeError as error:
        got, remedy = f"{error.msg} at column {error.colno}", "Correct the file."
        text.refuse("a guidellm report must be JSON", got, error.lineno, remedy)
    except (ValueError, RecursionError) as error:
        text.refuse("a guidellm report must be JSON", reason(error), 1, "Correct the file.")
    benchmarks = report.get(KEY) if isinstance(report, dict) else None
    if not isinstance(benchmarks, list):
        _refuse(text, KEY, "a list", benchmarks)
    return benchmarks


def _requests(text: TraceText, benchmarks: Sequence[Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every request, and where it stands."""
    for number, benchmark in enumerate(benchmarks):
        place = f"{KEY}[{number}]"
        by_status = benchmark.get("requests") if isinstance(benchmark, dict) else None
        if not isinstance(by_status, dict):
            words = f"lists of requests under {', '.join(STATUSES)}"
            _refuse(text, f"{place}.requests", words, by_status, WITHOUT_REQUESTS)
        for status in STATUSES:
            requests = by_status.get(status) or []
            if not isinstance(requests, list):
                _refuse(text, f"{place}.requests.{status}", "a list", requests)
            for entry, request in enumerate(requests):
                where = f"{place}.requests.{status}[{entry}]"
                if not isinstance(request, dict):
                    _refuse(text, where, "an object", request)
                yield where, request


def _time(text: TraceText, place: str, request: dict[str, Any]) -> float:
    value = _first(request, STARTS)
    if type(value) not in (int, float) or not 0 <= value <= LATEST_S:
        _refuse(text, f"{place}.{STARTS[0]}", TIME_WORDS, value)
    return float(value)


def _tokens(text: TraceText, place: str, request: dict[str, Any], paths: Sequence[str]) -> int:
    value = _first(request, paths)
    if value is None:
        return 0
    if type(value) not in (int, float) or value != value // 1 or not 0 <= value <= LARGEST_COUNT:
        _refuse(text, f"{place}.{paths[0]}", COUNT_WORDS, value)
    return int(value)


def _first(request: dict[str, Any], paths: Sequence[str]) -> Any:
    """The value at the first of `paths` that has one."""
    for path in paths:
        value: Any = request
        for name in path.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        if value is not None:
            return value
    return None


def _refuse(
    text: TraceText, place: str, words: str, value: Any, remedy: str = "Correct the report."
) -> NoReturn:
    rule, got = f"{place} must be {words}", shortened(json.dumps(value))
    raise UserError(rule, got, str(text.path), remedy)
