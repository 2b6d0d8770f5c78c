"""How long a step takes: the one latency path, by interpolation of dense tables.

    target = dense(graph, tokens) + head(rows) + prefill attention(work)
           + decode attention(query, chunk, decodes, mean KV)
    draft = first pass(tokens) + (K - 1) * further pass(requests), each reading the drafter's KV

K = 0 pays the first pass.

Several prefills of one step are looked up by their work: chunk = sum of c, history = sum of c (h + c/2) /
chunk - chunk/2. Axes are clamped below their first point and extended linearly past their last.
"""

from typing import NamedTuple

from cluster_sim.engine.after_schedule import Batch
from cluster_sim.engine.jit import rule
from cluster_sim.engine.rules import Drafting, StepTime
from cluster_sim.engine.tables import Floats


class Duration(NamedTuple):
    """GPU time of a step, seconds."""

    target_s: float
    draft_s: float


class Place(NamedTuple):
    """A point on an axis: `weight` of the way from `low` to `low + 1`; more than 1 past the end."""

    low: int
    weight: float


@rule
def duration(times: StepTime, drafting: Drafting, instance: int, batch: Batch, draft_length: int) -> Duration:
    """GPU time of a step of `batch` after which `draft_length` tokens are drafted."""
    bundle = times.bundle_of[instance]
    graph = batch.uniform_tokens if batch.uniform_tokens < times.dense_s.shape[1] else 0
    target_s = times.dense_s[bundle, graph, batch.tokens] + times.head_s[bundle, batch.rows]
    if batch.prefill_tokens > 0:
        target_s += prefill_attention_s(times, bundle, batch)
    if batch.decodes > 0:
        target_s += decode_attention_s(times, bundle, batch)
    if drafting.num_speculative_tokens == 0:
        return Duration(target_s, 0.0)
    further = max(0, draft_length - 1)
    attention_s = times.draft_attention_s_per_kv_token[bundle] * batch.decode_kv_tokens
    draft_s = times.draft_first_s[bundle, batch.tokens] + attention_s
    draft_s += further * (times.draft_next_s[bundle, batch.requests] + attention_s)
    return Duration(target_s, draft_s)


@rule
def prefill_attention_s(times: StepTime, bundle: int, batch: Batch) -> float:
    """Attention of all prefill chunks of the step."""
    chunk = float(batch.prefill_tokens)
    history = max(0.0, batch.prefill_work / chunk - 0.5 * chunk)
    at_chunk = locate(times.prefill_chunk_tokens[bundle], chunk)
    at_history = locate(times.prefill_history_tokens[bundle], history)
    return bilinear(times.prefill_attention_s[bundle], at_chunk, at_history)


@rule
def decode_attention_s(times: StepTime, bundle: int, batch: Batch) -> float:
    """Attention of all decodes of the step, 1 + K queries each over one KV read."""
    query = min(batch.query_tokens, times.decode_attention_s.shape[1] - 1)
    at_chunk = locate(times.decode_chunk_tokens[bundle], float(batch.longest_chunk_tokens))
    at_requests = locate(times.decode_requests[bundle], float(batch.decodes))
    at_kv = locate(times.decode_kv_tokens[bundle], batch.decode_kv_tokens / batch.decodes)
    tables = times.decode_attention_s[bundle, query]
    low = bilinear(tables[at_chunk.low], at_requests, at_kv)
    if at_chunk.weight == 0.0:
        return low
    return low + at_chunk.weight * (bilinear(tables[at_chunk.low + 1], at_requests, at_kv) - low)


@rule
def locate(axis: Floats, value: float) -> Place:
    """Where `value` lies on a strictly increasing axis of at least two points, by bisection."""
    low, high = 0, axis.shape[0] - 1
    if value <= axis[0]:
        return Place(0, 0.0)
    while high - low > 1:
        middle = (low + high) // 2
        if axis[middle] <= value:
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
