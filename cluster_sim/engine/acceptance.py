"""How many drafts the target accepts: a prefix of those proposed, drawn from the text's own stream.

Output token p of a request has one uniform number u(p), whatever proposes it and when. The draft at position
i of a verification of k drafts, standing for output token p + i, is accepted if u(p + i) < conditional[class,
k, i] and all before it were. So P(first i accepted) = m_i = c_1 * .. * c_i, and mean accepted = sum of m_i
for any dependence between positions.
"""

from cluster_sim.engine import streams
from cluster_sim.engine.jit import rule
from cluster_sim.engine.kinds import LuckKind
from cluster_sim.engine.rules import Luck, Workload
from cluster_sim.engine.state import Progress

RECORDED = int(LuckKind.recorded)


@rule
def accept(luck: Luck, row: Progress, workload: Workload, request: int, drafts: int) -> int:
    """Drafts accepted of `drafts` >= 1 proposed ones that follow the request's latest output token."""
    if luck.kind == RECORDED:
        return min(luck.draws[luck.fates[request].draw_start + row.verifications], drafts)
    asked = workload.requests[request]
    key = streams.of_request(luck.key, request)
    outputs = row.known_tokens - asked.prompt_tokens
    accepted, goes_on = 0, 1
    for position in range(drafts):  # no early exit: a branch on luck costs more than the draws it saves
        goes_on &= int(
            streams.uniform(key, outputs + position)
            < luck.conditional[asked.workload_class, drafts, position]
        )
        accepted += goes_on
    return accepted


@rule
def propose(luck: Luck, row: Progress, request: int, draft_length: int) -> int:
    """Drafts a synchronous worker proposes, at most `draft_length`."""
    fate = luck.fates[request]
    if fate.num_proposals == 0:
        return draft_length
    return min(luck.proposals[fate.proposal_start + row.proposals % fate.num_proposals], draft_length)
