"""What the router knows and when: a snapshot at the start of a signal window, and its own dispatches since.

A router may have replicas, that take the requests in turn. All of them look at the instances at the same
moments; between two looks each knows of its own dispatches only, so that all send to whoever looked idle.

An instance with data parallelism is one for the router; vLLM's own balancer then chooses the rank.
"""

import math

from cluster_sim.engine import kv_cache_manager, request_queue, routers
from cluster_sim.engine.block_pool import cache_of
from cluster_sim.engine.jit import rare, rule
from cluster_sim.engine.kinds import RouterPolicy
from cluster_sim.engine.rules import Routing, Rules
from cluster_sim.engine.state import RouterMemory, World
from cluster_sim.engine.tables import Longs, Table

BLIND = (int(RouterPolicy.round_robin), int(RouterPolicy.random), int(RouterPolicy.session_hash))
WEIGHTED = int(RouterPolicy.weighted)
VLLM_DP = int(RouterPolicy.vllm_dp)
LEAST_KV = int(RouterPolicy.least_kv)
PREFIX_AWARE = int(RouterPolicy.prefix_aware)
WAITING_WEIGHT = 6.0
FREELY_USED = 0.5  # share of KV up to which waiting costs no more than running
PRECISION = 1000  # of a score that is no whole number


@rule
def needs_signals(routing: Routing) -> bool:
    """False: the policy looks at nothing but requests, so instances need not be watched."""
    policy = routing.policy
    is_blind = policy == BLIND[0] or policy == BLIND[1] or policy == BLIND[2] or policy == WEIGHTED
    return not is_blind or routing.ranks > 1


@rule
def window_start_s(interval_s: float, at_s: float) -> float:
    """Start of the signal window that holds `at_s`: the largest k * interval_s that is not after it."""
    if interval_s == 0.0:
        return at_s
    k = math.floor(at_s / interval_s)
    if (k + 1) * interval_s <= at_s:  # at_s is an edge, and the quotient came out a hair below k + 1
        k += 1
    if k * interval_s > at_s:
        k -= 1
    return k * interval_s


@rule
def window_end_s(interval_s: float, start_s: float) -> float:
    """End of the window that starts at `start_s`."""
    if interval_s == 0.0:
        return start_s
    return (math.floor(start_s / interval_s + 0.5) + 1) * interval_s


@rare
def observe(world: World, rules: Rules) -> None:
    """Take a snapshot of every instance."""
    for rank in range(world.memory.shape[0]):
        row = world.memory[rank]
        row.in_flight = row.dispatched - world.lanes[rank].finished
        row.waiting = world.queues[rank].length
        row.kv_blocks = rules.batching[rank].num_gpu_blocks - 1 - world.kv.pools[rank].num_free
    replicas, instances = world.scores.shape
    ranks = rules.routing.ranks
    for instance in range(instances):
        score = 0
        for rank in range(instance * ranks, (instance + 1) * ranks):
            score += score_of(world.memory[rank], rules, rank)
        for replica in range(replicas):
            if world.scores[replica, instance] < routers.DOWN:
                world.scores[replica, instance] = score


@rule
def score_of(row: RouterMemory, rules: Rules, rank: int) -> int:
    """What routers.py compares, of one rank; the lower, the better."""
    policy = rules.routing.policy
    if policy == LEAST_KV:
        return row.kv_blocks
    if policy == PREFIX_AWARE:
        return row.kv_blocks * rules.batching[rank].block_size
    if policy == VLLM_DP:
        return int(PRECISION * balancer_score(row, rules, rank))
    return row.in_flight


@rule
def balancer_score(row: RouterMemory, rules: Rules, rank: int) -> float:
    """Requests in flight, and more for those that wait where KV is scarce.

    Source: ../shared/vllm-scheduler.md section 10, with one API server.
    """
    usage = row.kv_blocks / (rules.batching[rank].num_gpu_blocks - 1)
    return row.in_flight + row.waiting * WAITING_WEIGHT * max(0.0, usage - FREELY_USED)


@rule
def dispatch(world: World, rules: Rules, request: int) -> None:
    """Send `request` to the instance that the policy chooses, unless it was refused."""
    if rules.workload.requests[request].is_rejected:
        return
    routing = rules.routing
    if routing.policy == PREFIX_AWARE:
        look_for_prefix(world, rules, request)
    scores = world.scores[request % routing.replicas]
    instance = routers.choose(scores, rules, world.hits, request)
    rank = instance
    if routing.ranks > 1:
        rank = least_loaded_rank(world.memory, rules, instance * routing.ranks)
    remember(world.memory[rank], scores, rules, instance, rank, request)
    request_queue.put_in_inbox(world.links, world.queues[rank], request)


@rule
def remember(row: RouterMemory, scores: Longs, rules: Rules, instance: int, rank: int, request: int) -> None:
    """Count a dispatch at once, as far as the policy looks at it; for the balancer it waits."""
    policy, block_size = rules.routing.policy, rules.batching[rank].block_size
    blocks = kv_cache_manager.ceil_blocks(rules.workload.requests[request].prompt_tokens, block_size)
    row.dispatched += 1
    row.in_flight += 1
    row.waiting += 1
    if policy == WEIGHTED:
        scores[instance] += int(PRECISION * PRECISION / rules.routing.weights[instance])
    elif policy == LEAST_KV:
        scores[instance] += blocks
    elif policy == PREFIX_AWARE:
        scores[instance] += blocks * block_size
    elif policy == VLLM_DP:
        scores[instance] += PRECISION
    elif needs_signals(rules.routing):
        scores[instance] += 1


@rare
def least_loaded_rank(memory: Table[RouterMemory], rules: Rules, first: int) -> int:
    """The rank that vLLM's internal balancer chooses; each scan starts one rank further."""
    ranks, dispatched = rules.routing.ranks, 0
    for rank in range(first, first + ranks):
        dispatched += memory[rank].dispatched
    best, lowest = -1, 0.0
    for step in range(ranks):
        rank = first + (dispatched + step) % ranks
        score = balancer_score(memory[rank], rules, rank)
        if best < 0 or score < lowest:
            best, lowest = rank, score
    return best


@rare
def look_for_prefix(world: World, rules: Rules, request: int) -> None:
    """Prompt tokens of `request` in the prefix cache of each instance, as it was at the window's start."""
    ranks = rules.routing.ranks
    if rules.workload.requests[request].content_blocks == 0:
        world.hits[:] = 0
        return
    for instance in range(world.scores.shape[1]):
        most = 0
        for rank in range(instance * ranks, (instance + 1) * ranks):
            cache, batching = cache_of(world.kv, rank), rules.batching[rank]
            most = max(most, kv_cache_manager.shared_prefix(cache, rules.workload, batching, request))
        world.hits[instance] = most
