"""How long a step takes: the one latency path, by interpolation of dense tables.

    target = dense(graph, tokens) + head(rows) + prefill attention(work)
           + decode attention(query, chunk, decodes, mean KV)
    draft = first pass(tokens) + all else that K drafts take(K, requests) + KV read by the drafter(K)

K = 0 pays the first pass.

Several prefills of one step are looked up by their work: chunk = sum of c, history = sum of c (h + c/2) /
chunk - chunk/2, which is below 0 when they are short. Axes are clamped below their first point (history goes
on, but no prefill takes less than the first point of all) and extended linearly past their last. An axis that
repeats its first point, to be as long as that of another bundle, gives what it gives without.

Decodes of uneven KV, without a prefill beside them, cost more where the kernel gives each to one block:
`decode_skew` of the way from their mean KV to their longest.

Ranks in lockstep (an MoE model with data parallelism) wait for each other in each layer: a step takes as
long as its slowest rank, and then the experts on the tokens of all. Where all of them fit a captured graph
they are padded to that of the largest, so that `dense` has the experts in it; where not they run without one,
unpadded (vLLM: v1/worker/gpu/dp_utils.py). A rank without work runs one token, in the graph of the others.
"""

from typing import NamedTuple

from cluster_sim.engine.after_schedule import Batch
from cluster_sim.engine.jit import rule
from cluster_sim.engine.rules import Drafting, Rules, StepTime
from cluster_sim.engine.state import Step, World
from cluster_sim.engine.tables import Floats


class Place(NamedTuple):
    """A point on an axis: `weight` of the way from `low` to `low + 1`; more than 1 past the end."""

    low: int
    weight: float


@rule
def time_requests(times: StepTime, drafting: Drafting, step: Step, instance: int, batch: Batch) -> None:
    """Write down the parts of a step that are its rank's own: attention, head, and drafter."""
    bundle = times.bundle_of[instance]
    step.attention_s, step.draft_s = 0.0, 0.0
    step.head_s = times.head_s[bundle, batch.rows] if batch.rows > 0 else 0.0
    if batch.prefill_tokens > 0:
        step.attention_s += prefill_attention_s(times, bundle, batch)
    if batch.decodes > 0:
        step.attention_s += decode_attention_s(times, bundle, batch)
    if drafting.num_speculative_tokens == 0 or batch.tokens == 0:
        return
    drafts = 0 if step.skips_drafts else step.draft_length
    step.draft_s = (
        times.draft_first_s[bundle, batch.tokens] + times.draft_more_s[bundle, drafts, batch.requests]
    )
    step.draft_s += times.draft_kv_s[bundle, drafts] * batch.decode_kv_tokens


@rule
def target_s(world: World, rules: Rules, first: int, ranks: int, slot: int) -> float:
    """GPU time of the target model in a step of `ranks` ranks from `first` on."""
    times, most, uniform = rules.step_time, 0, 0
    bundle = times.bundle_of[first]
    for rank in range(first, first + ranks):
        step = world.steps[rank, slot]
        if step.num_tokens > 0:
            uniform = step.uniform_tokens if most == 0 or step.uniform_tokens == uniform else 0
            most = max(most, step.num_tokens)
    last_graph = times.dense_s.shape[1] - 1
    in_graph = ranks == 1 or most <= times.captured_tokens[bundle]
    graph = (uniform if uniform < last_graph else 0) if in_graph else last_graph
    slowest_s, tokens = 0.0, 0
    for rank in range(first, first + ranks):
        step = world.steps[rank, slot]
        padded = most if in_graph else max(step.num_tokens, 1)
        tokens += padded
        rank_s = times.dense_s[bundle, graph, padded] + step.attention_s + step.head_s
        slowest_s = max(slowest_s, rank_s)
    return slowest_s if in_graph else slowest_s + times.experts_s[bundle, tokens]


@rule
def prefill_attention_s(times: StepTime, bundle: int, batch: Batch) -> float:
    """Attention of all prefill chunks of the step."""
    chunk, table = float(batch.prefill_tokens), times.prefill_attention_s[bundle]
    history = batch.prefill_work / chunk - 0.5 * chunk
    at_history = along(times.prefill_history_tokens[bundle], history)
    at_chunk = locate(times.prefill_chunk_tokens[bundle], chunk)
    return max(table[0, 0], bilinear(table, at_chunk, at_history))


@rule
def decode_attention_s(times: StepTime, bundle: int, batch: Batch) -> float:
    """Attention of all decodes of the step, 1 + K queries each over one KV read."""
    mean = batch.decode_kv_tokens / batch.decodes
    mean_s = even_decodes_s(times, bundle, batch, mean)
    share = times.decode_skew[bundle, batch.decodes]
    if share == 0.0 or batch.prefill_tokens > 0:
        return mean_s
    longest_s = even_decodes_s(times, bundle, batch, float(batch.longest_kv_tokens))
    return mean_s + share * (longest_s - mean_s)


@rule
def even_decodes_s(times: StepTime, bundle: int, batch: Batch, kv_tokens: float) -> float:
    """Attention of all decodes of the step if each had `kv_tokens`."""
    query = min(batch.query_tokens, times.decode_attention_s.shape[1] - 1)
    at_chunk = locate(times.decode_chunk_tokens[bundle], float(batch.longest_chunk_tokens))
    at_requests = locate(times.decode_requests[bundle], float(batch.decodes))
    at_kv = locate(times.decode_kv_tokens[bundle], kv_tokens)
    tables = times.decode_attention_s[bundle, query]
    low = bilinear(tables[at_chunk.low], at_requests, at_kv)
    if at_chunk.weight == 0.0:
        return low
    return low + at_chunk.weight * (bilinear(tables[at_chunk.low + 1], at_requests, at_kv) - low)


@rule
def locate(axis: Floats, value: float) -> Place:
    """Where `value` lies on an axis: at its first point, or beyond."""
    if value <= axis[0]:
        return Place(0, 0.0)
    return along(axis, value)


@rule
def along(axis: Floats, value: float) -> Place:
    """Where `value` lies on an axis that goes on at both ends, by bisection; its last two points differ."""
    low, high, reached = 0, axis.shape[0] - 1, max(value, axis[0])
    while high - low > 1:
        middle = (low + high) // 2
        if axis[middle] <= reached:
            low = middle
        else:
            high = middle
    return Place(low, (value - axis[low]) / (axis[low + 1] - axis[low]))


@rule
def bilinear(table: Floats, row: Place, column: Place) -> float:
    """Interpolate a table at a point of its two axes."""
    low = _between(table[row.low, column.low], table[row.low, column.low + 1], column.weight)
    high = _between(table[row.low + 1, column.low], table[row.low + 1, column.low + 1], column.weight)
    return _between(low, high, row.weight)


@rule
def _between(low: float, high: float, weight: float) -> float:
    return low + weight * (high - low)
