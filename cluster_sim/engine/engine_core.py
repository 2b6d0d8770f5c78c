"""The engine core of an instance: when it schedules, when a step ends (vLLM: v1/engine/core.py).

S: schedule, U: update from output. Synchronous scheduling has queue depth 1, asynchronous 2:

    depth 1   S0 [---GPU 0---] U0 S1 [---GPU 1---] U1
    depth 2   S0 S1 [---GPU 0---] U0 S2 [---GPU 1---] U1 S3      S2 runs on the CPU while GPU 1 runs

A step starts when its host work is done and the GPU is free; its tokens are delivered at its end. Host time
delays a synchronous step by all of itself, an asynchronous one only by what outlasts the step before.
Arrivals are seen at the next schedule call, so that under depth 2 they wait for one more step.

Ranks in lockstep (data parallelism of an MoE model) each have a scheduler of their own but one clock: they
schedule, run and update together. `first` is the first of `ranks` neighbours; otherwise there is one.
"""

import math

from cluster_sim.engine import metrics, request_queue, step_time
from cluster_sim.engine.aborts import abort_due, first_abort_s
from cluster_sim.engine.after_schedule import after_schedule
from cluster_sim.engine.jit import rule
from cluster_sim.engine.kinds import Action, RequestStatus
from cluster_sim.engine.output import update_from_output
from cluster_sim.engine.rules import Rules
from cluster_sim.engine.scheduler import schedule
from cluster_sim.engine.state import World

SCHEDULE = int(Action.schedule)
UPDATE = int(Action.update)
WAITING = int(RequestStatus.waiting)


@rule
def next_action_s(world: World, rules: Rules, first: int, ranks: int) -> float:
    """When the engine core acts next; inf: never, unless something arrives."""
    lane = world.lanes[first]
    if lane.action == UPDATE:
        return max(lane.clock_s, world.steps[first, lane.oldest_slot].end_s)
    wake_s = math.inf
    for rank in range(first, first + ranks):
        if has_requests(world, rank) and not is_starved(world, rules, rank):
            return lane.clock_s
        inbox_head = world.queues[rank].inbox_head
        if inbox_head >= 0:
            wake_s = min(wake_s, world.sent[inbox_head].arrival_s)
        if rules.workload.any_abort:
            wake_s = min(wake_s, first_abort_s(world, rank))
    return max(lane.clock_s, wake_s)


@rule
def has_requests(world: World, instance: int) -> bool:
    """Some requests are unfinished, or finished without the workers knowing (has_requests)."""
    lane = world.lanes[instance]
    return lane.num_running > 0 or world.queues[instance].length > 0 or lane.finished_unreported


@rule
def is_starved(world: World, rules: Rules, instance: int) -> bool:
    """The head of the queue does not fit and nothing runs: only an arrival or an abort can change that."""
    lane = world.lanes[instance]
    if not lane.starved or lane.num_running > 0 or lane.finished_unreported:
        return False
    for number in range(lane.in_flight):
        slot = (lane.oldest_slot + number) % rules.batching[instance].queue_depth
        if world.steps[instance, slot].num_tokens > 0:
            return False
    return True


@rule
def receive(world: World, rules: Rules, instance: int, now_s: float) -> None:
    """Take what has arrived into the waiting queue, and drop whom the client has given up."""
    queue = world.queues[instance]
    while queue.inbox_head >= 0 and world.sent[queue.inbox_head].arrival_s <= now_s:
        request = request_queue.take_from_inbox(world.links, queue)
        accept(world, rules, instance, request)
        metrics.queued(world.log, request, now_s)
    if rules.workload.any_abort:
        abort_due(world, rules, instance, now_s)


@rule
def accept(world: World, rules: Rules, instance: int, request: int) -> None:
    """A new request joins the waiting queue (vLLM: Scheduler.add_request)."""
    world.progress[request].status = WAITING
    policy = rules.batching[instance].scheduling_policy
    request_queue.add(world.links, world.queues[instance], world.sent, policy, request)


@rule
def schedule_next(world: World, rules: Rules, first: int, ranks: int, now_s: float) -> None:
    """One schedule() call of each rank, and the launch of their step."""
    lane, depth = world.lanes[first], rules.batching[first].queue_depth
    slot = (lane.oldest_slot + lane.in_flight) % depth
    goes_on = False
    for rank in range(first, first + ranks):
        fill(world, rules, rank, slot, now_s)
        goes_on = goes_on or world.steps[rank, slot].num_tokens > 0 or has_requests(world, rank)
    launch(world, rules, first, ranks, slot, now_s)
    for rank in range(first, first + ranks):
        lane = world.lanes[rank]
        lane.in_flight += 1
        lane.clock_s = now_s
        if lane.in_flight == depth or not goes_on:
            lane.action = UPDATE


@rule
def fill(world: World, rules: Rules, instance: int, slot: int, now_s: float) -> None:
    """One schedule() call: the requests of the next step, and what they cost."""
    metrics.memory_used(world.tally, world.kv, rules.batching[instance], instance, now_s)
    schedule(world, rules, instance, slot)
    step = world.steps[instance, slot]
    for number in range(step.num_running, step.num_entries):
        request = world.entries[instance, slot][number].request
        metrics.admitted(world.log, instance, request, world.progress[request].hit_tokens, now_s)
    batch = after_schedule(world, rules, instance, slot)
    step_time.time_requests(rules.step_time, rules.drafting[instance], step, instance, batch)
    world.lanes[instance].starved = step.num_tokens == 0 and step.num_preempted == 0


@rule
def launch(world: World, rules: Rules, first: int, ranks: int, slot: int, now_s: float) -> None:
    """Give the step its end: host work, then the GPU; a step without tokens ends at once."""
    lane, tokens, draft_s = world.lanes[first], 0, 0.0
    for rank in range(first, first + ranks):
        tokens += world.steps[rank, slot].num_tokens
        draft_s = max(draft_s, world.steps[rank, slot].draft_s)
    if tokens == 0:
        for rank in range(first, first + ranks):
            world.steps[rank, slot].end_s = now_s
        return
    slowdown = rules.step_time.slowdown[first]
    target_s = slowdown * step_time.target_s(world, rules, first, ranks, slot)
    draft_s *= slowdown
    lane.host_free_s = max(now_s, lane.host_free_s) + slowdown * rules.step_time.host_s[first]
    start_s = max(lane.host_free_s, lane.gpu_free_s)
    exposed_host_s = start_s - max(now_s, lane.gpu_free_s)
    lane.gpu_free_s = start_s + target_s + draft_s
    for rank in range(first, first + ranks):
        step = world.steps[rank, slot]
        step.end_s = lane.gpu_free_s
        if step.num_tokens > 0:
            metrics.launched(world.tally, step, rank, target_s, draft_s, exposed_host_s)


@rule
def update_oldest(world: World, rules: Rules, first: int, ranks: int, now_s: float) -> None:
    """The oldest step in flight has ended: process its output."""
    goes_on = False
    for rank in range(first, first + ranks):
        lane, batching = world.lanes[rank], rules.batching[rank]
        metrics.memory_used(world.tally, world.kv, batching, rank, now_s)
        update_from_output(world, rules, rank, lane.oldest_slot, now_s)
        lane.oldest_slot = (lane.oldest_slot + 1) % batching.queue_depth
        lane.in_flight -= 1
        lane.clock_s = now_s
        goes_on = goes_on or has_requests(world, rank)
    for rank in range(first, first + ranks):
        lane = world.lanes[rank]
        lane.action = UPDATE if lane.in_flight > 0 and not goes_on else SCHEDULE
