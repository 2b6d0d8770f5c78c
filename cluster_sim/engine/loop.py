"""Time: arrivals, the router's windows, and every instance up to a given moment.

Order of what happens at the same time: ends of steps, then arrivals, then schedule calls; instances by
number. The router acts in windows of its signal interval: at the start of one it takes a snapshot, then
dispatches its arrivals. Where these are known, it dispatches those of a window at once, and the instances run
through it one after the other, each by itself. Where clients wait for answers, an answer of one instance may
be an arrival at another: the instances then act in the order of time. Conserved: every dispatched request is
held, in an inbox, waiting, running or ended.
"""

import math

from cluster_sim.engine import clients, router
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
    stopping inside a window lets the router take a snapshot at the first arrival after the stop. Where
    clients wait for answers, `request` counts those sent, and stopping changes nothing anywhere.
    """
    while True:
        stop_s = until_s
        if not clients.are_waiting(rules) and next_arrival_s(world, rules, request) < until_s:
            stop_s = -math.inf
            if router.needs_signals(rules.routing):
                arrival_s = world.sent[request].arrival_s
                stop_s = router.window_start_s(rules.routing.signal_interval_s, arrival_s)
        advance_all(world, rules, stop_s)
        if next_arrival_s(world, rules, request) >= until_s:
            break
        request = dispatch_due(world, rules, request, until_s)
    if router.is_elsewhere(rules.routing):
        router.look_ahead(world, rules, request)
    return request, status_of(world, rules)


@rule
def next_arrival_s(world: World, rules: Rules, request: int) -> float:
    """When the next request arrives, as far as that is known; inf: never."""
    if clients.are_waiting(rules):
        return clients.first_due_s(world)
    return world.sent[request].arrival_s if request < world.sent.shape[0] else math.inf


@rule
def dispatch_due(world: World, rules: Rules, request: int, until_s: float) -> int:
    """Dispatch the arrivals of the window that `request` opens; of waiting clients, one. The next request."""
    routing, waits, end_s = rules.routing, clients.are_waiting(rules), until_s
    sent = clients.send(world, rules) if waits else request
    if sent < 0:
        return request
    if router.needs_signals(routing):
        arrival_s = world.sent[sent].arrival_s
        if waits and routing.signal_interval_s > 0.0:
            look(world, rules, arrival_s, False)
        else:
            router.observe(world, rules)
            start_s = router.window_start_s(routing.signal_interval_s, arrival_s)
            end_s = min(until_s, router.window_end_s(routing.signal_interval_s, start_s))
    while True:
        router.dispatch(world, rules, sent, request)
        request += 1
        if waits or next_arrival_s(world, rules, request) >= end_s:
            return request
        sent = request


@rule
def look(world: World, rules: Rules, at_s: float, is_update: bool) -> None:
    """Before what happens at `at_s`: take the snapshot of its window, unless that has been taken."""
    interval_s, source = rules.routing.signal_interval_s, world.source[0]
    if at_s < source.window_end_s or (is_update and at_s == source.window_end_s):
        return
    router.observe(world, rules)
    start_s = router.window_start_s(interval_s, at_s)
    is_before = is_update and at_s == start_s  # the window starts after the steps that end then
    source.window_end_s = start_s if is_before else router.window_end_s(interval_s, start_s)


@rule
def advance_all(world: World, rules: Rules, until_s: float) -> None:
    """Run every instance up to `until_s`; where clients wait for answers, up to the first arrival before."""
    if rules.routing.part == ROUTER:
        return
    is_watched = clients.are_waiting(rules) and rules.routing.signal_interval_s > 0.0
    is_watched = is_watched and router.needs_signals(rules.routing)
    instance = 0
    while True:
        instance, at_s = next_to_act(world, rules, instance, until_s)
        if instance < 0:
            return
        if is_watched:
            look(world, rules, at_s, world.lanes[instance].action == UPDATE)
        act(world, rules, instance, rules.lockstep[instance], at_s)


@rule
def next_to_act(world: World, rules: Rules, first: int, until_s: float) -> tuple[int, float]:
    """Who acts next and when, ends of steps up to `until_s`, schedule calls before it; (-1, inf): nobody.

    The first from `first` on that acts at all; where clients wait for answers, the first in time.
    """
    waits, found, found_s, updates = clients.are_waiting(rules), -1, math.inf, False
    if waits:
        first, until_s = 0, min(until_s, clients.first_due_s(world))
    for instance in range(first, world.lanes.shape[0]):
        ranks = rules.lockstep[instance]
        if ranks == 0:
            continue
        at_s = next_action_s(world, rules, instance, ranks)
        is_update = world.lanes[instance].action == UPDATE
        if at_s > until_s or (at_s == until_s and not is_update):
            continue
        if found < 0 or at_s < found_s or (at_s == found_s and is_update and not updates):
            found, found_s, updates = instance, at_s, is_update
        if not waits:
            break
    return found, found_s


@rule
def act(world: World, rules: Rules, first: int, ranks: int, at_s: float) -> None:
    """The next action of an engine core, or of ranks in lockstep, which is at `at_s`."""
    if world.lanes[first].action == UPDATE:
        for rank in range(first, first + ranks):
            if rules.workload.any_abort:
                abort_due(world, rules, rank, at_s)
        update_oldest(world, rules, first, ranks, at_s)
        return
    for rank in range(first, first + ranks):
        receive(world, rules, rank, at_s)
    schedule_next(world, rules, first, ranks, at_s)


@rule
def status_of(world: World, rules: Rules) -> int:
    """STUCK: somewhere requests wait, and nothing will happen any more."""
    if rules.routing.part == ROUTER:
        return DONE
    for first in range(world.lanes.shape[0]):
        ranks = rules.lockstep[first]
        waits = ranks > 0 and num_waiting(world, first, ranks) > 0
        if waits and math.isinf(next_action_s(world, rules, first, ranks)):
            return STUCK
    return DONE


@rule
def num_waiting(world: World, first: int, ranks: int) -> int:
    """Requests in the waiting queues."""
    waiting = 0
    for rank in range(first, first + ranks):
        waiting += world.queues[rank].length
    return waiting
