"""Time: arrivals, the router's windows, and every instance up to a given moment.

Order of what happens at the same time: ends of steps, then arrivals, then schedule calls; instances by
number. The router acts in windows of its signal interval: at the start of one it takes a snapshot, then
dispatches all of its arrivals, then the instances run through it, each by itself. Conserved: every dispatched
request is held, in an inbox, waiting, running or ended.
"""

import math

from cluster_sim.engine import router
from cluster_sim.engine.aborts import abort_due
from cluster_sim.engine.engine_core import UPDATE, next_action_s, receive, schedule_next, update_oldest
from cluster_sim.engine.jit import entry, rule
from cluster_sim.engine.kinds import Part, Status
from cluster_sim.engine.rules import Rules
from cluster_sim.engine.state import World

DONE = int(Status.done)
STUCK = int(Status.stuck)
ROUTER = int(Part.router)


@entry
def run_until(world: World, rules: Rules, request: int, until_s: float) -> tuple[int, int]:
    """Simulate up to `until_s`, dispatching from `request` on; (next request to dispatch, Status).

    Arrivals at `until_s` are not dispatched. Stopping at a multiple of the signal interval changes no result;
    stopping inside a window lets the router take a snapshot at the first arrival after the stop.
    """
    requests, routing = rules.workload.requests, rules.routing
    last = requests.shape[0]
    while request < last and requests[request].arrival_s < until_s:
        window_end_s = until_s
        if router.needs_signals(routing):
            window_s = router.window_start_s(routing.signal_interval_s, requests[request].arrival_s)
            advance_all(world, rules, window_s)
            router.observe(world, rules)
            window_end_s = min(until_s, router.window_end_s(routing.signal_interval_s, window_s))
        router.dispatch(world, rules, request)
        request += 1
        while request < last and requests[request].arrival_s < window_end_s:
            router.dispatch(world, rules, request)
            request += 1
    status = advance_all(world, rules, until_s)
    if router.is_elsewhere(routing):
        router.look_ahead(world, rules, request)
    return request, status


@rule
def advance_all(world: World, rules: Rules, until_s: float) -> int:
    """Run every instance of this world up to `until_s`."""
    status = DONE
    if rules.routing.part == ROUTER:
        return status
    for instance in range(world.lanes.shape[0]):
        ranks = rules.lockstep[instance]
        if ranks > 0 and advance(world, rules, instance, ranks, until_s) != DONE:
            status = STUCK
    return status


@rule
def advance(world: World, rules: Rules, first: int, ranks: int, until_s: float) -> int:
    """Run an engine core, or ranks in lockstep: ends of steps to `until_s`, schedule calls before it."""
    while True:
        at_s = next_action_s(world, rules, first, ranks)
        if world.lanes[first].action == UPDATE:
            if at_s > until_s:
                return DONE
            for rank in range(first, first + ranks):
                if rules.workload.any_abort:
                    abort_due(world, rules, rank, at_s)
            update_oldest(world, rules, first, ranks, at_s)
        elif at_s < until_s:
            for rank in range(first, first + ranks):
                receive(world, rules, rank, at_s)
            schedule_next(world, rules, first, ranks, at_s)
        else:
            return STUCK if math.isinf(at_s) and num_waiting(world, first, ranks) > 0 else DONE


@rule
def num_waiting(world: World, first: int, ranks: int) -> int:
    """Requests in the waiting queues."""
    waiting = 0
    for rank in range(first, first + ranks):
        waiting += world.queues[rank].length
    return waiting
