"""Time: arrivals, the router's windows, and every instance up to a given moment.

Order of what happens at the same time: ends of steps, then arrivals, then schedule calls; instances by
number. The router acts in windows of its signal interval: at the start of one it takes a snapshot, then
dispatches all of its arrivals, then the instances run through it, each by itself. Conserved: every dispatched
request is in an inbox, waiting, running or ended.
"""

import math

from cluster_sim.engine import router
from cluster_sim.engine.aborts import abort_due
from cluster_sim.engine.engine_core import UPDATE, next_action_s, receive, schedule_next, update_oldest
from cluster_sim.engine.jit import entry, rule
from cluster_sim.engine.kinds import Status
from cluster_sim.engine.rules import Rules
from cluster_sim.engine.state import World

DONE = int(Status.done)
STUCK = int(Status.stuck)


@entry
def run_until(world: World, rules: Rules, request: int, until_s: float) -> tuple[int, int]:
    """Simulate up to `until_s`, dispatching from `request` on; (next request to dispatch, Status).

    Arrivals at `until_s` are not dispatched. Stopping at a multiple of the signal interval changes no result.
    """
    requests, routing = rules.workload.requests, rules.routing
    last = requests.shape[0]
    while request < last and requests[request].arrival_s < until_s:
        window_end_s = until_s
        if router.needs_signals(routing):
            window_s = router.window_start_s(routing.signal_interval_s, requests[request].arrival_s)
            advance_all(world, rules, window_s)
            router.observe(world)
            window_end_s = min(until_s, router.window_end_s(routing.signal_interval_s, window_s))
        router.dispatch(world, rules, request)
        request += 1
        while request < last and requests[request].arrival_s < window_end_s:
            router.dispatch(world, rules, request)
            request += 1
    return request, advance_all(world, rules, until_s)


@rule
def advance_all(world: World, rules: Rules, until_s: float) -> int:
    """Run every instance up to `until_s`."""
    status = DONE
    for instance in range(world.lanes.shape[0]):
        if advance(world, rules, instance, until_s) != DONE:
            status = STUCK
    return status


@rule
def advance(world: World, rules: Rules, instance: int, until_s: float) -> int:
    """Run one engine core up to `until_s`: ends of steps at that time, schedule calls only before it."""
    while True:
        at_s = next_action_s(world, rules, instance)
        if world.lanes[instance].action == UPDATE:
            if at_s > until_s:
                return DONE
            if rules.workload.any_abort:
                abort_due(world, rules, instance, at_s)
            update_oldest(world, rules, instance, at_s)
        elif at_s < until_s:
            receive(world, rules, instance, at_s)
            schedule_next(world, rules, instance, at_s)
        elif math.isinf(at_s) and world.queues[instance].length > 0:
            return STUCK
        else:
            return DONE
