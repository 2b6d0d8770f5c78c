"""Preemption by recompute (vLLM: Scheduler.schedule, _preempt_request).

The victim loses its blocks and waits again; output already delivered stays. fcfs takes the request admitted
last; priority the largest (priority, arrival), also one that this call has scheduled already, whose tokens
and drafts then go back to the budgets.
"""

from typing import NamedTuple

from cluster_sim.engine import kv_cache_manager, metrics, request_queue
from cluster_sim.engine.block_pool import Cache
from cluster_sim.engine.jit import rare
from cluster_sim.engine.kinds import RequestStatus, SchedulingPolicy
from cluster_sim.engine.rules import Rules
from cluster_sim.engine.state import Entry, World
from cluster_sim.engine.tables import Table

PREEMPTED = int(RequestStatus.preempted)
PRIORITY = int(SchedulingPolicy.priority)


class Room(NamedTuple):
    """How an attempt to make room ended."""

    fits: bool
    goes_on: bool  # when it does not fit: the next running request gets its turn (priority)
    seat: int  # where the pass over the running requests stands now
    entries: int  # requests scheduled that are left
    returned_tokens: int  # to the budget: of victims that were scheduled already
    returned_inputs: int


@rare
def make_room(
    world: World, rules: Rules, cache: Cache, instance: int, slot: int, seat: int, num_entries: int, want: int
) -> Room:
    """Preempt until the request running at `seat` can hold `want` more tokens, or is preempted itself."""
    batching, lane = rules.batching[instance], world.lanes[instance]
    is_priority = batching.scheduling_policy == PRIORITY
    request = world.running[instance, seat]
    returned_tokens, returned_inputs = 0, 0
    while True:
        victim_seat = largest(world, instance) if is_priority else lane.num_running - 1
        victim = world.running[instance, victim_seat]
        remove_seat(world, instance, victim_seat)
        if victim_seat < seat:
            seat -= 1
            tokens = take_back(world.entries[instance, slot], num_entries, victim)
            if tokens > 0:
                num_entries -= 1
                returned_tokens += tokens
                returned_inputs += tokens + rules.drafting[instance].slots_per_request
        preempt(world, rules, cache, instance, slot, victim)
        if victim == request:
            return Room(False, is_priority, seat, num_entries, returned_tokens, returned_inputs)
        if kv_cache_manager.extend(cache, world.progress, rules.workload, batching, request, want):
            return Room(True, True, seat, num_entries, returned_tokens, returned_inputs)


@rare
def largest(world: World, instance: int) -> int:
    """Seat of the running request with the largest (priority, arrival); the first of equals."""
    running, sent = world.running[instance], world.sent
    best = 0
    for seat in range(1, world.lanes[instance].num_running):
        one, other = sent[running[seat]], sent[running[best]]
        if one.priority > other.priority or (
            one.priority == other.priority and one.arrival_s > other.arrival_s
        ):
            best = seat
    return best


@rare
def remove_seat(world: World, instance: int, seat: int) -> None:
    """Take one request out of the running list; those behind it move up."""
    lane, running = world.lanes[instance], world.running[instance]
    for later in range(seat, lane.num_running - 1):
        running[later] = running[later + 1]
    lane.num_running -= 1


@rare
def take_back(entries: Table[Entry], num_entries: int, request: int) -> int:
    """Tokens that this call had given to `request`, which leaves the step; 0: none.

    Only running requests are victims, and they are never padded.
    """
    tokens = 0
    for number in range(num_entries):
        if tokens > 0:
            entries[number - 1].request = entries[number].request
            entries[number - 1].tokens = entries[number].tokens
            entries[number - 1].drafts = entries[number].drafts
        elif entries[number].request == request:
            tokens = entries[number].tokens
    return tokens


@rare
def preempt(world: World, rules: Rules, cache: Cache, instance: int, slot: int, request: int) -> None:
    """Free the victim's blocks and put it back at the front; what it has in flight becomes stale."""
    batching, row, step = rules.batching[instance], world.progress[request], world.steps[instance, slot]
    if batching.enable_prefix_caching:
        kv_cache_manager.map_private_blocks(cache, world.progress, rules.workload, request)
    kv_cache_manager.free(cache, row, batching)
    row.status = PREEMPTED
    row.computed_tokens = 0
    row.draft_tokens = 0
    row.placeholder_tokens = 0
    row.stale_tokens = row.in_flight_tokens
    metrics.preempted(world.log, request)
    policy = batching.scheduling_policy
    request_queue.prepend(world.links, world.queues[instance], world.sent, policy, request)
    world.preempted[instance, slot, step.num_preempted] = request
    step.num_preempted += 1
