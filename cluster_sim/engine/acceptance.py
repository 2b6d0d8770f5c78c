"""How many drafts the target accepts: a prefix of those proposed, drawn from the text's own stream.

Output token p of a request has one uniform number u(p), whatever proposes it and when. The draft at position
i of a verification of k drafts, standing for output token p + i, is accepted if u(p + i) <
conditional[profile, level, k, i] and all before it were. The profile is that of the request's class on its
instance. So P(first i accepted) = m_i = c_1 * .. * c_i, and mean accepted = sum of m_i for any dependence
between positions. The level says how easy the text is to draft: drawn once for the request, and once for each
run of its output.
"""

from cluster_sim.engine import streams
from cluster_sim.engine.jit import rare, rule
from cluster_sim.engine.kinds import LuckKind
from cluster_sim.engine.rules import Luck, Workload
from cluster_sim.engine.state import Progress

RECORDED = int(LuckKind.recorded)
WALKED = int(LuckKind.walked)


@rule
def accept(
    luck: Luck, row: Progress, workload: Workload, first_profile: int, request: int, drafts: int
) -> int:
    """Drafts accepted of `drafts` >= 1 proposed ones that follow the request's latest output token.

    `first_profile` is that of the instance's first class.
    """
    if luck.kind == RECORDED:
        return min(luck.draws[luck.fates[request].draw_start + row.verifications], drafts)
    asked = workload.requests[request]
    outputs = row.known_tokens - asked.prompt_tokens
    if luck.kind == WALKED:
        fate = luck.fates[request]
        return min(luck.draws[fate.draw_start + outputs % fate.num_draws], drafts)
    key = streams.of_request(luck.key, request)
    level = 0
    if luck.request_levels * luck.run_levels > 1:
        level = ease(luck, request, outputs)
    profile = first_profile + asked.workload_class
    accepted, goes_on = 0, 1
    for position in range(drafts):  # no early exit: a branch on luck costs more than the draws it saves
        goes_on &= int(
            streams.uniform(key, outputs + position) < luck.conditional[profile, level, drafts, position]
        )
        accepted += goes_on
    return accepted


@rare
def ease(luck: Luck, request: int, outputs: int) -> int:
    """The level of a verification that starts after `outputs` output tokens."""
    key = streams.of_request(luck.level_key, request)
    of_request = int(streams.uniform(key, 0) * luck.request_levels)
    of_run = int(streams.uniform(key, 1 + outputs // luck.run_tokens) * luck.run_levels)
    return of_request * luck.run_levels + of_run


@rule
def propose(luck: Luck, row: Progress, request: int, draft_length: int) -> int:
    """Drafts a synchronous worker proposes, at most `draft_length`."""
    fate = luck.fates[request]
    if fate.num_proposals == 0:
        return draft_length
    return min(luck.proposals[fate.proposal_start + row.proposals % fate.num_proposals], draft_length)
