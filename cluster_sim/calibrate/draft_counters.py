"""vLLM's counters of drafts between two scrapes of /metrics.

Names: vLLM 0.33.0 (../shared/spec-decode-facts.md F2).
"""

import re

from cluster_sim.calibrate.counts import MOST_POSITIONS, Counts, check
from cluster_sim.calibrate.growth import Growth
from cluster_sim.calibrate.page import BY_POSITION, DRAFTS, REMEDY, VLLM
from cluster_sim.traces.text import shortened

DRAFT_TOKENS, ACCEPTED = "spec_decode_num_draft_tokens", "spec_decode_num_accepted_tokens"


def has_drafts(growth: Growth) -> bool:
    """Whether the server counts drafts: vLLM does so with a --speculative-config."""
    return bool(growth.after.of(f"{DRAFTS}_total"))


def counts_of(growth: Growth) -> Counts:
    """What the counters grew by.

    Raises:
        UserError: they contradict each other, or nothing was drafted.
    """
    drafts, tokens, accepted = (growth.counted(name) for name in (DRAFTS, DRAFT_TOKENS, ACCEPTED))
    if drafts == 0:
        growth.refuse("drafts must be counted between two scrapes", "none", "Scrape after some traffic.")
    counts = Counts(growth.place, drafts, tokens, _by_position(growth))
    if counts.accepted != accepted:
        growth.refuse(f"accepted tokens by position add up to all, {accepted}", counts.accepted)
    check(counts)
    return counts


def _by_position(growth: Growth) -> tuple[int, ...]:
    """Sums over engines, by position from 0; one that was never accepted before had no sample."""
    sums: dict[int, float] = {}
    name = f"{VLLM}{BY_POSITION}_total"
    for labels, value in growth.series(f"{BY_POSITION}_total").items():
        position = dict(labels).get("position", "")
        if not re.fullmatch(r"\d{1,4}", position) or int(position) >= MOST_POSITIONS:
            rule = f"{name} has a position from 0 to {MOST_POSITIONS - 1}"
            growth.after.refuse(rule, shortened(repr(position)))
        sums[int(position)] = sums.get(int(position), 0.0) + value
    if sorted(sums) != list(range(len(sums))) or not sums:
        got = shortened(", ".join(map(str, sorted(sums))) or "none")
        growth.after.refuse(f"{name} has all positions from 0 on", got, REMEDY)
    return tuple(round(sums[position]) for position in range(len(sums)))
