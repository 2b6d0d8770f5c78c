"""Recorded requests: trace files -> columns. A file's content tells its format; a module per format.

Nothing is guessed: a line that breaks a rule and a blank line before the end stop the reading with the line's
number. Requests that nothing can serve, without prompt or output tokens, are left out and counted in a
warning; this tool's own format refuses them. Requests out of order in time are sorted, ties as in the file,
with a warning. Those too long for a model are kept: the engine counts them as rejected.
"""

from collections.abc import Callable, Sequence, Set
from pathlib import Path

from cluster_sim.traces import aiperf, azure, bailian, burstgpt, guidellm, json_lines, mooncake
from cluster_sim.traces.csv_columns import header_of
from cluster_sim.traces.json_columns import first_object
from cluster_sim.traces.rows import BLOCK_TOKENS, TraceRows, leave_out, sort_by_arrival
from cluster_sim.traces.text import TraceText, load

__all__ = ["BLOCK_TOKENS", "TraceRows", "read_trace"]

Parser = Callable[[TraceText], TraceRows]
RULE = "a trace must be in a known format"
KNOWN = (
    "Known: CSV with TIMESTAMP,ContextTokens,GeneratedTokens (Azure) or Timestamp,Request tokens,Response "
    "tokens (BurstGPT); JSON lines with timestamp, input_length, output_length (Mooncake, Qwen-Bailian, vLLM "
    "timed_trace), metadata, metrics (aiperf) or arrival_s, prompt_tokens, output_tokens (this tool's); "
    "guidellm's report."
)
HEAD_BYTES = 65536  # in which a report over many lines names its benchmarks


def read_trace(path: Path) -> TraceRows:
    """All requests of the trace at `path`, in order of arrival.

    Raises:
        UserError: the file cannot be read, is in no known format, holds no request, or a line breaks a rule.
    """
    text = load(path)
    return sort_by_arrival(leave_out(_parser(text)(text), path), path)


def _parser(text: TraceText) -> Parser:
    """The reader of the format that the first line tells."""
    if text.first_line.startswith("["):
        is_sharegpt = b'"conversations"' in text.data[:HEAD_BYTES]
        found = "ShareGPT texts, without arrivals and token counts" if is_sharegpt else "a JSON list"
        text.refuse(RULE, found, 1, KNOWN)
    if not text.first_line.startswith("{"):
        return _by_names(
            text, set(header_of(text)), ((azure.COLUMNS, azure.parse), (burstgpt.COLUMNS, burstgpt.parse))
        )
    request = first_object(text)
    if request is None:
        if b'"benchmarks"' in text.data[:HEAD_BYTES]:
            return guidellm.parse
        if text.first_line == "{":
            text.refuse(RULE, "a JSON object over many lines", 1, KNOWN)
        return json_lines.parse
    if request.keys() & set(json_lines.KEYS):
        return json_lines.parse
    known = (
        ((guidellm.KEY,), guidellm.parse),
        (bailian.KEYS, bailian.parse),
        (mooncake.LENGTHS, mooncake.parse),
        (aiperf.KEYS, aiperf.parse),
    )
    return _by_names(text, request.keys(), known)


def _by_names(text: TraceText, names: Set[str], known: Sequence[tuple[Sequence[str], Parser]]) -> Parser:
    """The first of the readers all of whose names are there.

    Raises:
        UserError: there is none.
    """
    for needed, parse in known:
        if names >= set(needed):
            return parse
    text.refuse(RULE, repr(text.first_line), 1, KNOWN)
