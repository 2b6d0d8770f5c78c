"""What the router knows and when: a snapshot at the start of a signal window, and its own dispatches since.

An instance with data parallelism is one for the router; vLLM's own balancer then chooses the rank. A request
that no instance may take, because those that the policy looks at are all down, is held (outage.py).

Router and instances may be in different worlds (kinds.Part). Between two windows the shell then carries over
what they say to each other: sent_to to the instances; finished, length, num_free and hits to the router.

A router may have replicas, that take the requests in turn. All of them look at the instances at the same
moments; between two looks each knows of its own dispatches only, so that all send to whoever looked idle.
"""

import math

from cluster_sim.engine import balancer, kv_cache_manager, request_queue, routers
from cluster_sim.engine.block_pool import cache_of
from cluster_sim.engine.jit import rare, rule
from cluster_sim.engine.kinds import Part, RequestStatus, RouterPolicy
from cluster_sim.engine.rules import Routing, Rules
from cluster_sim.engine.state import RouterMemory, World
from cluster_sim.engine.tables import Longs

BLIND = (int(RouterPolicy.round_robin), int(RouterPolicy.random), int(RouterPolicy.session_hash))
WEIGHTED = int(RouterPolicy.weighted)
VLLM_DP = int(RouterPolicy.vllm_dp)
LEAST_KV = int(RouterPolicy.least_kv)
PREFIX_AWARE = int(RouterPolicy.prefix_aware)
WHOLE = int(Part.whole)
INSTANCES = int(Part.instances)
HELD = int(RequestStatus.held)
PRECISION = 1000  # of a score that is no whole number


@rule
def needs_signals(routing: Routing) -> bool:
    """False: the policy looks at nothing but requests, or is elsewhere: instances need not be watched."""
    policy = routing.policy
    if is_elsewhere(routing):
        return False
    is_blind = policy == BLIND[0] or policy == BLIND[1] or policy == BLIND[2] or policy == WEIGHTED
    return not is_blind or routing.ranks > 1


@rule
def is_elsewhere(routing: Routing) -> bool:
    """The requests of this world are routed in another one."""
    return routing.part == INSTANCES


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
    if rules.routing.policy == WEIGHTED:  # its scores are the requests sent so far
        return
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
        return int(PRECISION * balancer.score(row, rules, rank))
    return row.in_flight


@rule
def dispatch(world: World, rules: Rules, request: int, place: int) -> None:
    """Send `request`, the `place`-th, where the policy says; hold it if that is down, drop it if refused."""
    routing, rank = rules.routing, world.sent_to[request]
    if is_elsewhere(routing):
        if rank >= 0:
            request_queue.put_in_inbox(world.links, world.queues[rank], request)
        return
    if rules.workload.requests[request].is_rejected:
        return
    if routing.policy == PREFIX_AWARE and routing.part == WHOLE:
        look_for_prefix(world, rules, request)
    scores = world.scores[place % routing.replicas]
    instance = routers.choose(scores, rules, world.hits, request, place)
    if scores[instance] >= routers.DOWN:
        world.progress[request].status = HELD
        return
    rank = instance
    if routing.ranks > 1:
        rank = balancer.least_loaded_rank(world.memory, rules, instance * routing.ranks)
    remember(world.memory[rank], scores, rules, instance, rank, request)
    world.sent_to[request] = rank
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
def take_out(scores: Longs, instance: int) -> None:
    """The instance gets no more requests."""
    scores[:, instance] = routers.DOWN


@rare
def take_in(world: World, rules: Rules, instance: int) -> None:
    """The instance gets requests again; one that is weighted does not make up for those that it missed."""
    score, least, ranks = 0, routers.DOWN, rules.routing.ranks
    if rules.routing.policy == WEIGHTED:
        for rank in range(instance * ranks, (instance + 1) * ranks):
            score += world.memory[rank].dispatched
        score *= int(PRECISION * PRECISION / rules.routing.weights[instance])
        for other in range(world.scores.shape[1]):
            least = min(least, world.scores[0, other])
        if least < routers.DOWN:
            score = max(score, least)
    world.scores[:, instance] = score


@rare
def look_for_prefix(world: World, rules: Rules, request: int) -> None:
    """Prompt tokens of `request` in the prefix cache of each instance, as it was at the window's start."""
    ranks, row = rules.routing.ranks, request % world.hits.shape[0]
    if rules.workload.requests[request].content_blocks == 0:
        world.hits[row, :] = 0
        return
    for instance in range(world.scores.shape[1]):
        most = 0
        for rank in range(instance * ranks, (instance + 1) * ranks):
            cache, batching = cache_of(world.kv, rank), rules.batching[rank]
            most = max(most, kv_cache_manager.shared_prefix(cache, rules.workload, batching, request))
        world.hits[row, instance] = most


@rare
def look_ahead(world: World, rules: Rules, request: int) -> None:
    """Look for the prompts of the whole window that `request` opens, for a router that is elsewhere."""
    requests, interval_s = rules.workload.requests, rules.routing.signal_interval_s
    if rules.routing.policy != PREFIX_AWARE or request == requests.shape[0]:
        return
    start_s = window_start_s(interval_s, requests[request].arrival_s)
    end_s = window_end_s(interval_s, start_s)
    while request < requests.shape[0]:
        arrival_s = requests[request].arrival_s
        if arrival_s >= end_s and arrival_s > start_s:
            return
        look_for_prefix(world, rules, request)
        request += 1
