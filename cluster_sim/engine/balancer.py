"""vLLM's own balancer before the data-parallel ranks of an instance.

Source: ../shared/vllm-scheduler.md section 10, with one API server.
"""

from cluster_sim.engine.jit import rare, rule
from cluster_sim.engine.rules import Rules
from cluster_sim.engine.state import RouterMemory
from cluster_sim.engine.tables import Table

WAITING_WEIGHT = 6.0
FREELY_USED = 0.5  # share of KV up to which waiting costs no more than running


@rule
def score(row: RouterMemory, rules: Rules, rank: int) -> float:
    """Requests in flight, and more for those that wait where KV is scarce."""
    usage = row.kv_blocks / (rules.batching[rank].num_gpu_blocks - 1)
    return row.in_flight + row.waiting * WAITING_WEIGHT * max(0.0, usage - FREELY_USED)


@rare
def least_loaded_rank(memory: Table[RouterMemory], rules: Rules, first: int) -> int:
    """The rank that vLLM's internal balancer chooses; each scan starts one rank further."""
    ranks, dispatched = rules.routing.ranks, 0
    for rank in range(first, first + ranks):
        dispatched += memory[rank].dispatched
    best, lowest = -1, 0.0
    for step in range(ranks):
        rank = first + (dispatched + step) % ranks
        found = score(memory[rank], rules, rank)
        if best < 0 or found < lowest:
            best, lowest = rank, found
    return best
