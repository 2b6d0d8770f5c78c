"""Router policies: one function each, from what the router knows to an instance.

What it knows of an instance is its score: a snapshot at the start of the signal window (router.py) and its
own dispatches since. Lower is better. Ties go to the first in a scan that starts one instance further for
each request, so that equals take turns; replicas of the router start at different instances. An instance that
is down has the score DOWN.

    least_requests, power_of_two, class_aware    requests in flight
    vllm_dp                                      1,000 a request in flight, and more for those that wait
    least_kv                                     KV blocks in use
    prefix_aware                                 KV tokens in use
    weighted                                     requests sent so far, by its weight
"""

from cluster_sim.engine import streams
from cluster_sim.engine.jit import rare, rule
from cluster_sim.engine.kinds import RouterPolicy
from cluster_sim.engine.rules import Routing, Rules
from cluster_sim.engine.tables import Longs

ROUND_ROBIN = int(RouterPolicy.round_robin)
RANDOM = int(RouterPolicy.random)
POWER_OF_TWO = int(RouterPolicy.power_of_two)
SESSION_HASH = int(RouterPolicy.session_hash)
PREFIX_AWARE = int(RouterPolicy.prefix_aware)
CLASS_AWARE = int(RouterPolicy.class_aware)
DOWN = 1 << 60


@rule
def choose(scores: Longs, rules: Rules, hits: Longs, request: int, place: int) -> int:
    """The instance for `request`, sent after `place` others; `hits` as World.hits (prefix_aware)."""
    routing = rules.routing
    policy, instances = routing.policy, scores.shape[0]
    if policy == ROUND_ROBIN:
        found = next_up(scores, place % instances)
    elif policy == RANDOM:
        found = next_up(scores, uniform_instance(routing, request, 0, instances))
    elif policy == POWER_OF_TWO:
        found = power_of_two(scores, routing, request)
    elif policy == SESSION_HASH:
        found = next_up(scores, jump_hash(routing, rules.workload.requests[request].session, instances))
    elif policy == PREFIX_AWARE:
        found = prefix_aware(scores, rules, hits[request % hits.shape[0]], request, place)
    elif policy == CLASS_AWARE:
        found = class_aware(scores, rules, request, place)
    else:
        found = lowest(scores, scan_start(routing, place, instances))
    return found


@rule
def scan_start(routing: Routing, place: int, instances: int) -> int:
    """Where a replica's scan starts: one instance further for each of its requests, spread over replicas.

    Source: vLLM 0.33, DPLBAsyncMPClient.eng_start_index in v1/engine/core_client.py.
    """
    turn, replica = place // routing.replicas, place % routing.replicas
    return (turn + replica * instances // routing.replicas) % instances


@rule
def lowest(scores: Longs, first: int) -> int:
    """The instance with the lowest score, the first of them from `first` on in a circle."""
    instances, least = scores.shape[0], DOWN
    for instance in range(instances):
        least = min(least, scores[instance])
    for instance in range(first, instances):
        if scores[instance] == least:
            return instance
    for instance in range(first):
        if scores[instance] == least:
            return instance
    return first


@rule
def next_up(scores: Longs, first: int) -> int:
    """The first instance that is up, from `first` on in a circle; `first` itself if none is."""
    instances = scores.shape[0]
    for step in range(instances):
        instance = (first + step) % instances
        if scores[instance] < DOWN:
            return instance
    return first


@rule
def uniform_instance(routing: Routing, request: int, n: int, instances: int) -> int:
    """Draw n of the request's stream as an instance."""
    return int(streams.uniform(streams.of_request(routing.key, request), n) * instances)


@rule
def power_of_two(scores: Longs, routing: Routing, request: int) -> int:
    """The less loaded of two different ones drawn at random (Mitzenmacher, IEEE TPDS 2001)."""
    instances = scores.shape[0]
    one = uniform_instance(routing, request, 0, instances)
    if instances == 1:
        return one
    other = (one + 1 + uniform_instance(routing, request, 1, instances - 1)) % instances
    return other if scores[other] < scores[one] else next_up(scores, one)


@rare
def jump_hash(routing: Routing, session: int, instances: int) -> int:
    """The same instance for the same session; a new one takes an equal share of all (Lamping, Veach 2014)."""
    key = streams.of_request(routing.key, session)
    candidate, found, n = 0, 0, 0
    while candidate < instances:
        found = candidate
        candidate = int((found + 1) / (1.0 - streams.uniform(key, n)))
        n += 1
    return found


@rare
def prefix_aware(scores: Longs, rules: Rules, hits: Longs, request: int, place: int) -> int:
    """Fewest tokens: those of the prompt to compute, weighed, and KV in use (NVIDIA Dynamo's KV router)."""
    instances, weight = scores.shape[0], rules.routing.overlap_weight
    first, prompt = (
        scan_start(rules.routing, place, instances),
        rules.workload.requests[request].prompt_tokens,
    )
    best, least = first, weight * (prompt - hits[first]) + scores[first]
    for instance in range(first + 1, instances):
        cost = weight * (prompt - hits[instance]) + scores[instance]
        if cost < least:
            best, least = instance, cost
    for instance in range(first):
        cost = weight * (prompt - hits[instance]) + scores[instance]
        if cost < least:
            best, least = instance, cost
    return best


@rare
def class_aware(scores: Longs, rules: Rules, request: int, place: int) -> int:
    """Fewest requests in flight among the instances that serve the request's class."""
    routing = rules.routing
    workload_class = rules.workload.requests[request].workload_class
    start, end = routing.class_start[workload_class], routing.class_start[workload_class + 1]
    members = routing.class_instances[start:end]
    first, least = scan_start(routing, place, members.shape[0]), DOWN
    for member in range(members.shape[0]):
        least = min(least, scores[members[member]])
    for member in range(first, members.shape[0]):
        if scores[members[member]] == least:
            return members[member]
    for member in range(first):
        if scores[members[member]] == least:
            return members[member]
    return members[first]
