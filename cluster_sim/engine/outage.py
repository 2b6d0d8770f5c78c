"""Instances that stop, and what becomes of their requests. Python calls these rules between runs of the loop.

A stop at t comes after the steps that end at t and before the arrivals of t. The steps in flight are lost,
and with them all KV and the prefix cache; every request in the inbox, the queue or the running list fails.
One that is taken back stands as if it had never been sent: it has the same luck again, keeps the place that
its arrival gives it under priority scheduling, and waits at the router (status held) until an instance that
may serve it takes requests.

Conserved: requests that leave an instance count as finished there, so that dispatched - finished = in flight;
after a stop all blocks of the instance are free.
"""

import numpy as np

from cluster_sim.engine import metrics, request_queue, router
from cluster_sim.engine.block_pool import NO_KEY
from cluster_sim.engine.jit import rare
from cluster_sim.engine.kinds import Action, RequestStatus
from cluster_sim.engine.kv_state import KvCache
from cluster_sim.engine.rules import Rules
from cluster_sim.engine.state import Lane, Progress, World

SCHEDULE = int(Action.schedule)
UNSEEN = int(RequestStatus.unseen)
ABORTED = int(RequestStatus.finished_aborted)
ERROR = int(RequestStatus.finished_error)
HELD = int(RequestStatus.held)


@rare
def stop(world: World, rules: Rules, instance: int, now_s: float) -> list[int]:
    """Stop an instance with all its ranks; its unfinished requests, in order of arrival.

    What their attempts delivered counts as lost. Those whose clients have given up by now have timed out and
    not among them. The caller says what becomes of the others: take_back or fail.
    """
    ranks, found = rules.routing.ranks, list[int]()
    for rank in range(instance * ranks, (instance + 1) * ranks):
        metrics.memory_used(world.tally, world.kv, rules.batching[rank], rank, now_s)
        forget_steps(world, rules, rank)
        requests = requests_of(world, rank)
        request_queue.clear(world.links, world.queues[rank], requests)
        empty_memory(world.kv, rules.batching[rank].num_gpu_blocks, rank)
        start_again(world.lanes[rank], len(requests), now_s)
        found += requests
    return [request for request in sorted(found) if not is_given_up(world, rules, request, now_s)]


@rare
def forget_steps(world: World, rules: Rules, rank: int) -> None:
    """Nothing is in flight any more, also of requests that have finished meanwhile."""
    lane, depth = world.lanes[rank], rules.batching[rank].queue_depth
    for number in range(lane.in_flight):
        slot = (lane.oldest_slot + number) % depth
        for place in range(world.steps[rank, slot].num_entries):
            row = world.progress[world.entries[rank, slot][place].request]
            row.in_flight_tokens = 0
            row.stale_tokens = 0


@rare
def requests_of(world: World, rank: int) -> list[int]:
    """All unfinished requests of an engine core: on their way to it, waiting, running."""
    found, queue = list[int](), world.queues[rank]
    request = queue.inbox_head
    while request >= 0:
        found.append(int(request))
        request = world.links[request].next
    request = queue.head
    while request >= 0:
        found.append(int(request))
        request = request_queue.following(world.links, request)
    for seat in range(world.lanes[rank].num_running):
        found.append(int(world.running[rank, seat]))
    return found


@rare
def empty_memory(kv: KvCache, num_gpu_blocks: int, rank: int) -> None:
    """All blocks free in the order of their numbers and none cached, as before the first request."""
    width, seats = kv.blocks.shape[1], kv.free_rows.shape[1]
    pool, blocks = kv.pools[rank], kv.blocks[rank]
    pool.num_free = num_gpu_blocks - 1
    pool.front = 0
    pool.back = num_gpu_blocks - 1
    pool.num_free_rows = seats
    blocks["key"][:] = NO_KEY
    blocks["place"][:] = np.arange(width) - 1
    blocks["references"][:] = 0
    blocks["next_copy"][:] = -1
    blocks["is_mapped"][:] = False
    kv.free_ring[rank] = 0
    kv.free_ring[rank, : width - 1] = np.arange(1, width)
    kv.slots[rank] = -1
    kv.free_rows[rank] = np.arange(seats - 1, -1, -1)


@rare
def start_again(lane: Lane, num_left: int, now_s: float) -> None:
    """A new engine core without work; only the count of requests that left goes on."""
    lane.clock_s = now_s
    lane.gpu_free_s = now_s
    lane.host_free_s = now_s
    lane.num_running = 0
    lane.in_flight = 0
    lane.oldest_slot = 0
    lane.executed_steps = 0
    lane.last_prefill_step = 0
    lane.finished += num_left
    lane.action = SCHEDULE
    lane.finished_unreported = False
    lane.starved = False
    lane.prefill_capacity_bound = False


@rare
def is_given_up(world: World, rules: Rules, request: int, now_s: float) -> bool:
    """End the attempt of a request; True: its client had given up, with what was delivered until then."""
    row = world.progress[request]
    known_tokens = row.known_tokens
    begin_again(row, rules.workload.requests[request].prompt_tokens)
    if world.sent[request].abort_s > now_s:
        metrics.attempt_failed(world.log, request)
        return False
    row.known_tokens = known_tokens
    give_up(world, request)
    return True


@rare
def begin_again(row: Progress, prompt_tokens: int) -> None:
    """The counters of a request that was never sent."""
    row.known_tokens = prompt_tokens
    row.computed_tokens = 0
    row.draft_tokens = 0
    row.placeholder_tokens = 0
    row.in_flight_tokens = 0
    row.stale_tokens = 0
    row.blocks = 0
    row.registered_blocks = 0
    row.block_row = -1
    row.hit_tokens = 0
    row.verifications = 0
    row.proposals = 0
    row.status = UNSEEN
    row.is_prefill_chunk = False


# ---- at the router ----


@rare
def take_back(world: World, request: int) -> None:
    """The router keeps a request whose instance stopped, to send it again."""
    world.progress[request].status = HELD
    metrics.retried(world.log, request)


@rare
def fail(world: World, request: int) -> None:
    """The client of a request that no instance has gets an error."""
    world.progress[request].status = ERROR
    metrics.failed(world.log, request)


@rare
def give_up(world: World, request: int) -> None:
    """The client of a request that no instance has is gone."""
    world.progress[request].status = ABORTED
    metrics.timed_out(world.log, request)


@rare
def held(world: World) -> list[int]:
    """Requests that wait at the router, in order of arrival."""
    requests: list[int] = np.flatnonzero(world.progress["status"] == HELD).tolist()
    return requests


@rare
def send_held(world: World, rules: Rules, now_s: float) -> None:
    """Send what waits at the router, in order of arrival; nobody works on it before now.

    The router looks at the instances first. What still finds no instance waits on.
    """
    if router.needs_signals(rules.routing):
        router.observe(world, rules)
    for lane in range(world.lanes.shape[0]):
        world.lanes[lane].clock_s = max(world.lanes[lane].clock_s, now_s)
    for request in held(world):
        world.progress[request].status = UNSEEN
        if world.sent[request].abort_s > now_s:
            router.dispatch(world, rules, request, request)
        else:
            give_up(world, request)
