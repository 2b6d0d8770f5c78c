"""Waiting requests join the running ones (vLLM: the second half of Scheduler.schedule).

They are tried from the head of the queue, and the first that does not fit ends it: nothing behind it is
tried, and a waiting request never preempts a running one.
"""

from cluster_sim.engine import kv_cache_manager, request_queue
from cluster_sim.engine.block_pool import cache_of
from cluster_sim.engine.budget import Call, Pass, are_drafts_unused, leave_runway, put
from cluster_sim.engine.jit import rule
from cluster_sim.engine.kinds import RequestStatus
from cluster_sim.engine.rules import Rules
from cluster_sim.engine.state import World

RUNNING = int(RequestStatus.running)


@rule
def schedule_waiting(world: World, rules: Rules, call: Call, running: Pass, instance: int, slot: int) -> Pass:
    """Admit from the head of the queue until something does not fit; nothing behind it is tried."""
    progress, workload, batching = world.progress, rules.workload, rules.batching[instance]
    lane, queue, entries = world.lanes[instance], world.queues[instance], world.entries[instance, slot]
    cache = cache_of(world.kv, instance)
    tokens, inputs, entry = running.tokens, running.inputs, running.entries
    prefill_scheduled, drafts_needed = running.prefill_scheduled, running.drafts_needed
    while tokens > 0 and inputs > call.slots and queue.length > 0:
        request = queue.head
        row = progress[request]
        if lane.num_running >= batching.max_num_active_seqs or row.stale_tokens > 0:
            break
        hit = kv_cache_manager.find_hit(cache, progress, workload, batching, request)
        known = row.known_tokens
        if call.holds_prefill and hit < known - 1:
            break
        rest = min(tokens, inputs - call.slots)
        want = padded_want(rules, running, instance, hit, known)
        is_padding = want > known - hit
        if is_padding and want > rest:
            break
        if 0 < call.threshold < want:
            want = call.threshold
        if not batching.enable_chunked_prefill and want > rest:
            break
        want = min(want, rest)
        want = leave_runway(want, known - hit - want, batching.prefill_lookahead_tokens)
        if want == 0:
            break
        anything_runs = lane.num_running > 0
        if not kv_cache_manager.admit(cache, progress, workload, batching, request, hit, want, anything_runs):
            break
        start(world, rules, instance, request, hit)
        drafts_needed = drafts_needed or not are_drafts_unused(row, workload.requests[request], hit + want)
        put(entries[entry], request, want, want - 1 if is_padding else 0, is_padding)
        prefill_scheduled = prefill_scheduled or hit < known - 1
        entry += 1
        tokens -= want
        inputs -= want + call.slots
    return Pass(tokens, inputs, entry, prefill_scheduled, drafts_needed)


@rule
def padded_want(rules: Rules, running: Pass, instance: int, hit: int, known: int) -> int:
    """Tokens a waiting request wants; one token is padded to 1 + K so that the batch keeps one query length.

    `running` is the finished pass over the running requests.
    """
    drafting, padded = rules.drafting[instance], 1 + rules.drafting[instance].num_speculative_tokens
    if (
        known - hit == 1
        and padded > 1
        and not drafting.is_dynamic
        and not running.prefill_scheduled
        and (running.entries > 0 or hit > 0)
        and hit + padded + 1 <= rules.batching[instance].max_model_len
    ):
        return padded
    return known - hit


@rule
def start(world: World, rules: Rules, instance: int, request: int, hit: int) -> None:
    """Move an admitted request from the waiting queue to the end of the running list."""
    policy = rules.batching[instance].scheduling_policy
    request_queue.remove(world.links, world.queues[instance], world.sent, policy, request)
    lane, row = world.lanes[instance], world.progress[request]
    world.running[instance, lane.num_running] = request
    lane.num_running += 1
    row.status = RUNNING
    row.computed_tokens = hit
    row.hit_tokens = hit
