"""One schedule() call: running requests first, then waiting ones (vLLM: v1/core/sched/scheduler.py).

There is no prefill or decode phase: a request wants known + drafts + placeholders - computed tokens, as
many of them as the budgets (budget.py) allow.
"""

from cluster_sim.engine import draft_length, kv_cache_manager, preemption
from cluster_sim.engine.admission import schedule_waiting
from cluster_sim.engine.block_pool import cache_of
from cluster_sim.engine.budget import Call, Pass, are_drafts_unused, leave_runway, put
from cluster_sim.engine.jit import rare, rule
from cluster_sim.engine.rules import Request, Rules
from cluster_sim.engine.state import Progress, World


@rule
def schedule(world: World, rules: Rules, instance: int, slot: int) -> None:
    """Fill `slot` of the steps in flight with the next step of `instance`; it may stay empty."""
    lane, step = world.lanes[instance], world.steps[instance, slot]
    batching, drafting = rules.batching[instance], rules.drafting[instance]
    call = begin_call(world, rules, instance)
    budget = Pass(
        batching.max_num_scheduled_tokens, batching.max_num_batched_tokens, 0, False, not drafting.may_skip
    )
    step.num_preempted = 0
    budget = schedule_running(world, rules, call, budget, instance, slot)
    step.num_running = budget.entries
    if step.num_preempted == 0:
        budget = schedule_waiting(world, rules, call, budget, instance, slot)
        if not call.holds_prefill:
            lane.prefill_capacity_bound = world.queues[instance].length > 0
    if budget.entries > 0:
        lane.executed_steps += 1
    if budget.prefill_scheduled:
        lane.last_prefill_step = lane.executed_steps
    step.num_entries = budget.entries
    step.skips_drafts = not budget.drafts_needed
    step.draft_length = draft_length.choose(drafting, rules.draft_length_at[instance], budget.entries)
    lane.finished_unreported = False


@rule
def begin_call(world: World, rules: Rules, instance: int) -> Call:
    """Settle what the whole call goes by."""
    batching = rules.batching[instance]
    eligible = world.lanes[instance].num_running + world.queues[instance].length
    threshold = batching.long_prefill_token_threshold if eligible > 1 else 0
    if threshold > 0 and batching.long_prefill_token_threshold_adaptive:
        threshold = max(threshold, batching.max_num_batched_tokens // eligible)
    return Call(
        threshold, is_prefill_on_hold(world, rules, instance), rules.drafting[instance].slots_per_request
    )


@rare
def is_prefill_on_hold(world: World, rules: Rules, instance: int) -> bool:
    """Decodes run alone for prefill_schedule_interval steps after one with prefill."""
    lane, interval = world.lanes[instance], rules.batching[instance].prefill_schedule_interval
    if interval <= 1 or lane.prefill_capacity_bound:
        return False
    if lane.executed_steps + 1 - lane.last_prefill_step >= interval:
        return False
    for seat in range(lane.num_running):
        if not world.progress[world.running[instance, seat]].is_prefill_chunk:
            return True
    return False


@rule
def schedule_running(world: World, rules: Rules, call: Call, budget: Pass, instance: int, slot: int) -> Pass:
    """Give running requests their tokens, in order of admission; preempt when memory is short."""
    progress, workload, batching = world.progress, rules.workload, rules.batching[instance]
    lane, running, entries = world.lanes[instance], world.running[instance], world.entries[instance, slot]
    cache = cache_of(world.kv, instance)
    tokens, inputs, entry = budget.tokens, budget.inputs, budget.entries
    prefill_scheduled, drafts_needed = False, budget.drafts_needed
    seat = 0
    while seat < lane.num_running and tokens > 0 and inputs > call.slots:
        request = running[seat]
        row, asked = progress[request], workload.requests[request]
        if is_surely_done(row, asked) or (call.holds_prefill and row.is_prefill_chunk):
            seat += 1
            continue
        computed, known = row.computed_tokens, row.known_tokens + row.placeholder_tokens
        want = known + row.draft_tokens - computed
        if 0 < call.threshold < want:
            want = call.threshold
        want = min(want, tokens, inputs - call.slots, batching.max_model_len - computed - 1)
        want = leave_runway(want, row.known_tokens - computed - want, batching.prefill_lookahead_tokens)
        if want <= 0:
            seat += 1
            continue
        if not kv_cache_manager.extend(cache, progress, workload, batching, request, want):
            room = preemption.make_room(world, rules, cache, instance, slot, seat, entry, want)
            seat, entry = room.seat, room.entries
            tokens += room.returned_tokens
            inputs += room.returned_inputs
            if not room.fits:
                if room.goes_on:
                    continue
                break
        prefill_scheduled = prefill_scheduled or row.is_prefill_chunk
        drafts_needed = drafts_needed or not are_drafts_unused(row, asked, computed + want)
        drafts = max(0, want + computed - known) if row.draft_tokens > 0 else 0
        row.draft_tokens = 0
        put(entries[entry], request, want, drafts, False)
        entry += 1
        tokens -= want
        inputs -= want + call.slots
        seat += 1
    return Pass(tokens, inputs, entry, prefill_scheduled, drafts_needed)


@rule
def is_surely_done(row: Progress, asked: Request) -> bool:
    """Async: the steps in flight reach max_tokens even if every draft in them is rejected."""
    return (
        row.placeholder_tokens > 0
        and row.computed_tokens + 2 - row.placeholder_tokens >= asked.prompt_tokens + asked.max_tokens
    )
