"""Clients that give up (vLLM: EngineCore._process_aborts_queue).

Applied before every schedule call and just before every update.
"""

import math

from cluster_sim.engine import metrics, output, request_queue
from cluster_sim.engine.jit import rare
from cluster_sim.engine.rules import Rules
from cluster_sim.engine.state import World


@rare
def abort_due(world: World, rules: Rules, instance: int, now_s: float) -> None:
    """Abort every running or waiting request whose client has given up by `now_s`."""
    metrics.memory_used(world.tally, world.kv, rules.batching[instance], instance, now_s)
    sent, seat = world.sent, 0
    while seat < world.lanes[instance].num_running:
        request = world.running[instance, seat]
        if sent[request].abort_s <= now_s:
            output.abort(world, rules, instance, request)
            metrics.timed_out(world.log, request)
        else:
            seat += 1
    waiting = world.queues[instance].head
    while waiting >= 0:
        if sent[waiting].abort_s <= now_s:
            output.abort(world, rules, instance, waiting)
            metrics.timed_out(world.log, waiting)
            waiting = world.queues[instance].head  # the links have changed: start again
        else:
            waiting = request_queue.following(world.links, waiting)


@rare
def first_abort_s(world: World, instance: int) -> float:
    """When the first waiting request is given up; inf: never."""
    earliest_s = math.inf
    request = world.queues[instance].head
    while request >= 0:
        earliest_s = min(earliest_s, world.sent[request].abort_s)
        request = request_queue.following(world.links, request)
    return earliest_s
