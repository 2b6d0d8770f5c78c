"""What a schedule() call may still hand out, and how it hands it out.

Two budgets are kept: `tokens` (max_num_scheduled_tokens) and `inputs` (max_num_batched_tokens, from which
a request also takes the drafter's extra slots). Neither is ever exceeded.
"""

from typing import NamedTuple

from cluster_sim.engine.jit import rule
from cluster_sim.engine.rules import Request
from cluster_sim.engine.state import Entry, Progress


class Call(NamedTuple):
    """What holds for a whole schedule() call."""

    threshold: int  # most tokens of one request; 0: no limit
    holds_prefill: bool  # the cadence lets only decodes run
    slots: int  # extra input slots of each request


class Pass(NamedTuple):
    """Where a pass over the requests stands."""

    tokens: int  # budget left
    inputs: int  # budget left
    entries: int  # requests scheduled
    prefill_scheduled: bool  # some request got tokens of its prompt
    drafts_needed: bool  # some scheduled request can use the drafts proposed after the step


@rule
def are_drafts_unused(row: Progress, asked: Request, past: int) -> bool:
    """No step will verify what is drafted after this one (vLLM: _drafts_unused).

    It ends in the prompt, at `past`, or samples the last token.
    """
    if past < row.known_tokens:
        return True
    in_flight = 1 if row.placeholder_tokens > 0 else 0
    return row.known_tokens - asked.prompt_tokens + 1 + in_flight >= asked.max_tokens


@rule
def leave_runway(want: int, remaining: int, lookahead: int) -> int:
    """Tokens of a chunk that would leave `remaining`: several MTP modules read `lookahead` tokens ahead.

    Source: vLLM's _reserve_prefill_lookahead.
    """
    if 0 < remaining < lookahead:
        return max(0, want - (lookahead - remaining))
    return want


@rule
def put(entry: Entry, request: int, tokens: int, drafts: int, is_padding: bool) -> None:
    """Write one request of the step."""
    entry.request = request
    entry.tokens = tokens
    entry.drafts = drafts
    entry.is_padding = is_padding
