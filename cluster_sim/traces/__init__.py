"""Recorded requests: trace files -> columns. A file's first line tells its format; a module per format.

Nothing is guessed: a line that breaks a rule, a request without prompt or output tokens, and a blank line
before the end stop the reading with the line's number. Requests out of order in time are sorted, ties as in
the file, with a warning.
"""

from pathlib import Path

from cluster_sim.traces import azure, json_lines
from cluster_sim.traces.rows import BLOCK_TOKENS, TraceRows, sort_by_arrival
from cluster_sim.traces.text import load

__all__ = ["BLOCK_TOKENS", "TraceRows", "read_trace"]


def read_trace(path: Path) -> TraceRows:
    """All requests of the trace at `path`, in order of arrival.

    Raises:
        UserError: the file cannot be read, is in no known format, holds no request, or a line breaks a rule.
    """
    text = load(path)
    first = text.content.partition("\n")[0].strip()
    if first == azure.HEADER:
        return sort_by_arrival(azure.parse(text), path)
    if first.startswith("{"):
        return sort_by_arrival(json_lines.parse(text), path)
    rule = f"a trace must begin with the header {azure.HEADER} or with a JSON object"
    remedy = f"Write one JSON object per line with {', '.join(json_lines.REQUIRED_KEYS)}."
    text.refuse(rule, repr(first), 1, remedy)
