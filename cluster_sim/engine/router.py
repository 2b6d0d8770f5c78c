"""Which instance gets a request, from what the router knows: a snapshot and its own dispatches since.

Ties go to the first in a scan that starts one instance further for each request, so that equals take turns.
"""

import math

from cluster_sim.engine import request_queue
from cluster_sim.engine.jit import rare, rule
from cluster_sim.engine.kinds import RouterPolicy
from cluster_sim.engine.rules import Routing, Rules
from cluster_sim.engine.state import RouterMemory, World
from cluster_sim.engine.tables import Table

ROUND_ROBIN = int(RouterPolicy.round_robin)


@rule
def needs_signals(routing: Routing) -> bool:
    """False: the policy looks at nothing but the order of arrivals, so instances need not be watched."""
    return routing.policy != ROUND_ROBIN


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


@rule
def choose(memory: Table[RouterMemory], routing: Routing, request: int) -> int:
    """The instance for `request`."""
    if routing.policy == ROUND_ROBIN:
        return request % memory.shape[0]
    return least_requests(memory, request)


@rare
def least_requests(memory: Table[RouterMemory], request: int) -> int:
    """The instance with the fewest requests in flight, as known; each scan starts one instance further."""
    instances = memory.shape[0]
    best = request % instances
    fewest = memory[best].known_in_flight + memory[best].dispatched_since
    for step in range(1, instances):
        instance = (request + step) % instances
        in_flight = memory[instance].known_in_flight + memory[instance].dispatched_since
        if in_flight < fewest:
            best, fewest = instance, in_flight
    return best


@rare
def observe(world: World) -> None:
    """Take a snapshot of every instance."""
    for instance in range(world.memory.shape[0]):
        row = world.memory[instance]
        row.known_in_flight = row.dispatched - world.lanes[instance].finished
        row.dispatched_since = 0


@rule
def dispatch(world: World, rules: Rules, request: int) -> None:
    """Send `request` to the instance that the policy chooses, unless it was refused."""
    if rules.workload.requests[request].is_rejected:
        return
    instance = choose(world.memory, rules.routing, request)
    world.memory[instance].dispatched += 1
    world.memory[instance].dispatched_since += 1
    request_queue.put_in_inbox(world.links, world.queues[instance], request)
