"""What a request counts as done once it is scheduled, before the step has run (vLLM: _update_after_schedule).

`computed` advances by all scheduled tokens, drafts included; output.py takes rejected drafts back. Under
async scheduling the output to come is counted at once (`placeholder` tokens), so that the next step can be
scheduled before it is known (vLLM: v1/core/sched/async_scheduler.py).
"""

from typing import NamedTuple

from cluster_sim.engine.jit import rule
from cluster_sim.engine.rules import Rules
from cluster_sim.engine.state import World


class Batch(NamedTuple):
    """What the duration of a step depends on."""

    tokens: int
    requests: int
    rows: int  # logits: one a request, one more for each draft
    prefill_tokens: int
    prefill_work: float  # sum of c * (h + c / 2) over prefill chunks of c tokens after h
    longest_chunk_tokens: int
    decodes: int
    decode_kv_tokens: int  # sum
    longest_kv_tokens: int  # of one decode
    query_tokens: int  # largest of the decodes


@rule
def after_schedule(world: World, rules: Rules, instance: int, slot: int) -> Batch:
    """Advance every request of the step, and say what kind of batch it is."""
    progress, entries, step = world.progress, world.entries[instance, slot], world.steps[instance, slot]
    is_async = rules.batching[instance].queue_depth > 1
    sum_tokens, sum_drafts, prefill_tokens, longest, decodes = 0, 0, 0, 0, 0
    decode_kv, longest_kv, query, work = 0, 0, 0, 0.0
    uniform = entries[0].tokens if step.num_entries > 0 else 0
    for number in range(step.num_entries):
        entry = entries[number]
        row, tokens, drafts = progress[entry.request], entry.tokens, entry.drafts
        computed = row.computed_tokens
        past = computed + tokens
        is_chunk = past < row.known_tokens + row.placeholder_tokens
        row.computed_tokens = past
        row.in_flight_tokens += tokens
        row.is_prefill_chunk = is_chunk
        entry.samples = not is_chunk
        if is_async and not is_chunk:
            row.placeholder_tokens += 1 + drafts
            row.draft_tokens = step.draft_length
        sum_tokens += tokens
        sum_drafts += drafts
        if tokens == 1 + drafts and not is_chunk:
            decodes += 1
            decode_kv += past
            longest_kv = max(longest_kv, past)
            query = max(query, tokens)
        else:
            prefill_tokens += tokens
            work += tokens * (computed + 0.5 * tokens)
            longest = max(longest, tokens)
        if tokens != uniform:
            uniform = 0
    step.num_tokens = sum_tokens
    step.uniform_tokens = uniform
    rows = step.num_entries + sum_drafts
    return Batch(
        sum_tokens,
        step.num_entries,
        rows,
        prefill_tokens,
        work,
        longest,
        decodes,
        decode_kv,
        longest_kv,
        query,
    )
