"""What must hold in any World, whatever has happened: checks for tests, in plain numpy.

Each function returns the violations it finds, in words; none means that the law holds.
"""

import numpy as np

from cluster_sim.engine.block_pool import NO_KEY
from cluster_sim.engine.kinds import RequestStatus
from cluster_sim.engine.rules import Rules
from cluster_sim.engine.state import World

LIVE = (RequestStatus.waiting, RequestStatus.running, RequestStatus.preempted)


def violations(world: World, rules: Rules) -> list[str]:
    """All laws on all instances."""
    found: list[str] = []
    for instance in range(world.lanes.shape[0]):
        found += blocks_are_conserved(world, rules, instance)
        found += free_list_is_sound(world, rules, instance)
        found += running_list_is_sound(world, rules, instance)
        found += steps_keep_their_budgets(world, rules, instance)
    return found + requests_are_sound(world, rules)


def blocks_are_conserved(world: World, rules: Rules, instance: int) -> list[str]:
    """Free blocks + blocks held = num_gpu_blocks - 1, and every reference has a holder."""
    batching, pool = rules.batching[instance], world.kv.pools[instance]
    running = world.running[instance, : world.lanes[instance].num_running]
    usable = batching.num_gpu_blocks - 1
    if not batching.enable_prefix_caching:
        held = int(world.progress["blocks"][running].sum())
        return (
            []
            if pool.num_free + held == usable
            else [f"instance {instance}: {pool.num_free} free + {held} held"]
        )
    holders = np.zeros(batching.num_gpu_blocks, np.int64)
    for request in running:
        row = world.progress[int(request)]
        np.add.at(holders, world.kv.block_table[instance, row.block_row, : row.blocks], 1)
    references = world.kv.blocks["references"][instance, : batching.num_gpu_blocks]
    found = []
    if not np.array_equal(references, holders):
        found.append(f"instance {instance}: blocks {np.flatnonzero(references != holders)} miscounted")
    if pool.num_free + np.count_nonzero(references) != usable:
        found.append(
            f"instance {instance}: {pool.num_free} free + {np.count_nonzero(references)} held != {usable}"
        )
    return found


def free_list_is_sound(world: World, rules: Rules, instance: int) -> list[str]:
    """The ring holds exactly the free blocks, those without a key first."""
    if not rules.batching[instance].enable_prefix_caching:
        return []
    pool, blocks, ring = world.kv.pools[instance], world.kv.blocks[instance], world.kv.free_ring[instance]
    places = np.arange(pool.front, pool.back)
    numbers = ring[places % len(ring)]
    numbers = numbers[blocks["place"][numbers] == places]
    keyed = (blocks["key"][numbers] != NO_KEY).tolist()
    if len(numbers) != pool.num_free or np.any(blocks["references"][numbers]) or keyed != sorted(keyed):
        return [f"instance {instance}: free list {numbers.tolist()}, {pool.num_free} free, keyed {keyed}"]
    return []


def running_list_is_sound(world: World, rules: Rules, instance: int) -> list[str]:
    """At most max_num_seqs distinct requests run, and they are exactly those with that status here."""
    running = world.running[instance, : world.lanes[instance].num_running]
    status = world.progress["status"][running]
    if len(running) > rules.batching[instance].max_num_seqs or len(set(running.tolist())) < len(running):
        return [f"instance {instance}: running {running.tolist()}"]
    if not np.all(status == RequestStatus.running):
        return [f"instance {instance}: a request in the running list has status {status.tolist()}"]
    return []


def steps_keep_their_budgets(world: World, rules: Rules, instance: int) -> list[str]:
    """No step in flight has more tokens, requests or drafter slots than its limits."""
    batching, slots = rules.batching[instance], rules.drafting[instance].slots_per_request
    lane, found = world.lanes[instance], []
    for number in range(lane.in_flight):
        slot = (lane.oldest_slot + number) % batching.queue_depth
        step, entries = world.steps[instance, slot], world.entries[instance, slot]
        tokens = int(entries["tokens"][: step.num_entries].sum())
        if tokens > batching.max_num_scheduled_tokens or step.num_entries > batching.max_num_seqs:
            found.append(f"instance {instance}: a step of {step.num_entries} requests, {tokens} tokens")
        if tokens + slots * step.num_entries > batching.max_num_batched_tokens:
            found.append(
                f"instance {instance}: a step of {tokens} tokens and {step.num_entries} x {slots} slots"
            )
        if tokens != step.num_tokens:
            found.append(f"instance {instance}: a step counts {step.num_tokens} tokens, has {tokens}")
    return found


def requests_are_sound(world: World, rules: Rules) -> list[str]:
    """Counters stay in range; what was delivered is known; nobody gets more than asked for."""
    rows, log, requests = world.progress, world.log, rules.workload.requests
    found = []
    for name in ("computed_tokens", "draft_tokens", "placeholder_tokens", "in_flight_tokens", "stale_tokens"):
        live = np.isin(rows["status"], LIVE)
        if np.any(rows[name][live] < 0):
            found.append(f"{name} below zero: requests {np.flatnonzero(live & (rows[name] < 0))}")
    at_router = rows["status"] == RequestStatus.held
    if np.any(at_router & ((rows["blocks"] > 0) | (rows["in_flight_tokens"] > 0) | (log["chunks"] > 0))):
        found.append(f"held at the router, and on an instance: requests {np.flatnonzero(at_router)}")
    if np.any(log["emitted_tokens"] > requests["max_tokens"]):
        found.append("more tokens emitted than max_tokens")
    if np.any(rows["known_tokens"] - requests["prompt_tokens"] != log["emitted_tokens"]):
        found.append("delivered tokens are not the known ones")
    return found


def idle_instances_have_no_work(world: World, rules: Rules, until_s: float) -> list[str]:
    """After a run up to `until_s`: where no step is in flight, nobody who arrived before is left unserved.

    Holds where every request fits into the memory of an empty instance. A rank in lockstep takes part in the
    steps of all ranks.
    """
    found = []
    groups = np.cumsum(rules.lockstep > 0)
    for instance in range(world.lanes.shape[0]):
        lane = world.lanes[instance]
        slots = (lane.oldest_slot + np.arange(lane.in_flight)) % rules.batching[instance].queue_depth
        together = np.flatnonzero(groups == groups[instance])
        if np.any(world.steps["num_tokens"][np.ix_(together, slots)] > 0) or lane.clock_s >= until_s:
            continue
        queue = world.queues[instance]
        has_arrived = queue.inbox_head >= 0 and world.sent[queue.inbox_head].arrival_s < until_s
        if lane.num_running > 0 or queue.length > 0 or has_arrived:
            found.append(f"instance {instance} idles at {until_s} s with requests to serve")
    return found
