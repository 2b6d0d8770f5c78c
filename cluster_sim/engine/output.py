"""What a finished step means for its requests (vLLM: Scheduler.update_from_output, update_draft_token_ids).

A verify step emits accepted + 1 tokens; rejected drafts leave `computed`, so that right after a synchronous
step a decoding request has computed = known - 1. Tokens past the request's end are thrown away, though
accepted drafts count as accepted. A request that was preempted with output in flight still gets it; one that
finished meanwhile does not.
"""

from cluster_sim.engine import acceptance, clients, kv_cache_manager, metrics, request_queue
from cluster_sim.engine.block_pool import Cache, cache_of
from cluster_sim.engine.jit import rare, rule
from cluster_sim.engine.kinds import RequestStatus
from cluster_sim.engine.rules import Rules
from cluster_sim.engine.state import Progress, World

RUNNING = int(RequestStatus.running)
PREEMPTED = int(RequestStatus.preempted)
STOPPED = int(RequestStatus.finished_stopped)
ABORTED = int(RequestStatus.finished_aborted)
LENGTH_CAPPED = int(RequestStatus.finished_length_capped)


@rule
def update_from_output(world: World, rules: Rules, instance: int, slot: int, now_s: float) -> None:
    """Deliver the output of the step in `slot`, which ends now; then take its drafts (synchronous)."""
    entries, num_entries = world.entries[instance, slot], world.steps[instance, slot].num_entries
    drafting = rules.drafting[instance]
    first_profile = drafting.first_profile
    cache = cache_of(world.kv, instance)
    gap = metrics.ended(world.tally, entries, num_entries, instance)
    running_ended = False
    for number in range(num_entries):
        entry = entries[number]
        request, drafts = entry.request, entry.drafts
        row = world.progress[request]
        row.in_flight_tokens -= entry.tokens
        is_stale = row.stale_tokens > 0
        if is_stale:
            row.stale_tokens -= entry.tokens
        entry.accepted = 0
        entry.delivered = 0
        if drafts > 0 and not entry.is_padding:
            entry.accepted = acceptance.accept(
                rules.luck, row, rules.workload, first_profile, request, drafts
            )
            row.verifications += 1
        status = row.status
        if status not in (RUNNING, PREEMPTED):
            continue
        if drafts > 0:
            metrics.verified(
                world.tally, world.log, rules.workload, instance, request, drafts, entry.accepted
            )
            if not is_stale:
                roll_back(row, drafts - entry.accepted)
        if not entry.samples:
            continue
        sampled = entry.accepted + 1
        delivered, ended = append_output(world, rules, cache, instance, request, sampled, is_stale)
        entry.delivered = delivered
        gap = metrics.delivered(world.tally, world.log, instance, request, delivered, now_s, gap)
        if ended:
            running_ended = running_ended or status == RUNNING
            end(world, rules, cache, instance, request, status)
            metrics.completed(world.log, request)
            if rules.workload.clients > 0:
                clients.answered(world, rules, request, now_s)
    if running_ended:
        drop_ended(world, instance)
    if rules.batching[instance].queue_depth == 1 and drafting.num_speculative_tokens > 0:
        take_drafts(world, rules, instance, slot)


@rule
def roll_back(row: Progress, rejected: int) -> None:
    """Rejected drafts were not computed after all."""
    if row.computed_tokens > 0:
        row.computed_tokens -= rejected
    if row.placeholder_tokens > 0:
        row.placeholder_tokens -= rejected


@rule
def append_output(
    world: World, rules: Rules, cache: Cache, instance: int, request: int, sampled: int, is_stale: bool
) -> tuple[int, bool]:
    """Append `sampled` tokens up to the first at which the request stops; (tokens delivered, stopped)."""
    row, asked, batching = world.progress[request], rules.workload.requests[request], rules.batching[instance]
    known, outputs = row.known_tokens, row.known_tokens - asked.prompt_tokens
    room = min(asked.max_tokens - outputs, batching.max_model_len - known)
    stop_at = rules.luck.fates[request].stop_at
    at_stop_token = outputs < stop_at <= outputs + room
    if at_stop_token:
        room = stop_at - outputs
    room = max(1, room)
    delivered = min(sampled, room)
    ended = sampled >= room
    row.known_tokens = known + delivered
    if not is_stale:
        had_placeholders = row.placeholder_tokens > 0
        row.computed_tokens -= sampled - delivered
        if had_placeholders:
            row.placeholder_tokens -= sampled
        if batching.enable_prefix_caching and (
            had_placeholders or rules.drafting[instance].num_speculative_tokens > 0
        ):
            settled = row.computed_tokens - row.in_flight_tokens
            kv_cache_manager.register(cache, world.progress, rules.workload, batching, request, settled)
    if ended:
        row.status = STOPPED if at_stop_token else LENGTH_CAPPED
    return delivered, ended


@rule
def end(world: World, rules: Rules, cache: Cache, instance: int, request: int, was: int) -> None:
    """A finished or aborted request gives its blocks back and leaves the queue, if it waits in one."""
    batching, lane = rules.batching[instance], world.lanes[instance]
    if was != RUNNING:
        policy = batching.scheduling_policy
        request_queue.remove(world.links, world.queues[instance], world.sent, policy, request)
    kv_cache_manager.free(cache, world.progress[request], batching)
    lane.finished += 1
    lane.finished_unreported = True


@rare
def drop_ended(world: World, instance: int) -> None:
    """Close the gaps that ended requests leave in the running list."""
    lane, running = world.lanes[instance], world.running[instance]
    kept = 0
    for seat in range(lane.num_running):
        if world.progress[running[seat]].status == RUNNING:
            running[kept] = running[seat]
            kept += 1
    lane.num_running = kept


@rare
def take_drafts(world: World, rules: Rules, instance: int, slot: int) -> None:
    """The worker's drafts become each request's own; those after a prefill chunk are ignored."""
    entries, step = world.entries[instance, slot], world.steps[instance, slot]
    if step.skips_drafts:
        return
    for number in range(step.num_entries):
        request = entries[number].request
        row = world.progress[request]
        if row.status == RUNNING and not row.is_prefill_chunk:
            row.draft_tokens = acceptance.propose(rules.luck, row, request, step.draft_length)
            row.proposals += 1


@rare
def abort(world: World, rules: Rules, instance: int, request: int) -> None:
    """The client is gone: free the request now (vLLM: finish_requests) and discard its output."""
    row = world.progress[request]
    was = row.status
    row.status = ABORTED
    end(world, rules, cache_of(world.kv, instance), instance, request, was)
    if was == RUNNING:
        drop_ended(world, instance)
    metrics.aborted(world.log, request)
