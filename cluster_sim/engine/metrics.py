"""What is written down while the simulation runs, and nothing that it depends on.

Gaps between deliveries (vLLM's ITL: one gap per chunk, however many tokens it carries) go into a histogram
whose bins are 0.5 % wide, since a run has tens of millions of them; everything else is exact. There is one
for steps of decodes alone and one for mixed steps, which prefills make longer: ITL has two humps. What is
tallied of an instance includes attempts that failed; the log of a request has its latest attempt, and of all
of them its drafts, preemptions and lost tokens.
"""

import math
from typing import NamedTuple

import numpy as np

from cluster_sim.engine.jit import rare, rule
from cluster_sim.engine.kinds import Outcome
from cluster_sim.engine.kv_state import KvCache
from cluster_sim.engine.rules import Batching, Workload
from cluster_sim.engine.state import Entry, LogRow, Step, Tally
from cluster_sim.engine.tables import Floats, Table

SHORTEST_GAP_S = 1e-6
BIN_WIDTH = 0.005  # relative
NUM_GAP_BINS = 4200  # up to 1e-6 s * exp(4200 * 0.005) = 1,319 s
COMPLETED = int(Outcome.completed)
CANCELLED = int(Outcome.cancelled)
FAILED = int(Outcome.failed)
TIMED_OUT = int(Outcome.timed_out)


def gap_edges_s() -> Floats:
    """Edges of the bins of Tally.gap_bins, seconds, shape [NUM_GAP_BINS + 1]; the first starts at 0."""
    edges: Floats = SHORTEST_GAP_S * np.exp(BIN_WIDTH * np.arange(NUM_GAP_BINS + 1))
    edges[0] = 0.0
    return edges


class Gap(NamedTuple):
    """The latest gap and its bin: requests of one step mostly share it, so the logarithm is taken once."""

    seconds: float
    bin: int
    is_mixed: int  # the step has a prefill


@rule
def ended(tally: Tally, entries: Table[Entry], num_entries: int, instance: int) -> Gap:
    """Count a step that has ended as mixed if it is; a gap that no request has, of a step of its kind."""
    is_mixed = 0
    for number in range(num_entries):
        entry = entries[number]
        is_mixed |= int(entry.tokens != 1 + entry.drafts or not entry.samples)
    tally.totals[instance].mixed_steps += is_mixed
    return Gap(-1.0, 0, is_mixed)


@rule
def gap_bin(seconds: float) -> int:
    """The bin of a gap; beyond the last edge, the last bin."""
    if seconds <= SHORTEST_GAP_S:
        return 0
    return min(int(math.log(seconds / SHORTEST_GAP_S) / BIN_WIDTH), NUM_GAP_BINS - 1)


@rule
def queued(log: Table[LogRow], request: int, now_s: float) -> None:
    """The engine core has picked the request up (vLLM's event QUEUED)."""
    log[request].queued_s = now_s


@rule
def admitted(log: Table[LogRow], instance: int, request: int, hit: int, now_s: float) -> None:
    """The first admission ends the request's time in the queue."""
    row = log[request]
    if math.isnan(row.scheduled_s):
        row.scheduled_s = now_s
        row.cached_tokens = hit
        row.instance = instance


@rule
def launched(
    tally: Tally, step: Step, instance: int, target_s: float, draft_s: float, exposed_host_s: float
) -> None:
    """Count a step that has work, and its time."""
    row = tally.totals[instance]
    row.steps += 1
    row.scheduled_tokens += step.num_tokens
    row.target_s += target_s
    row.draft_s += draft_s
    row.exposed_host_s += exposed_host_s
    tally.batch_size_steps[instance, step.num_entries] += 1
    tally.draft_length_steps[instance, step.draft_length] += 1


@rule
def verified(
    tally: Tally,
    log: Table[LogRow],
    workload: Workload,
    instance: int,
    request: int,
    drafts: int,
    accepted: int,
) -> None:
    """Count a verification as vLLM does: padding is one with nothing accepted."""
    tally.verified[instance, workload.requests[request].workload_class, drafts, accepted] += 1
    log[request].drafted_tokens += drafts
    log[request].accepted_tokens += accepted


@rule
def delivered(
    tally: Tally, log: Table[LogRow], instance: int, request: int, tokens: int, now_s: float, gap: Gap
) -> Gap:
    """Write down a delivery; the gap that ended with it, for the next request of the step."""
    row = log[request]
    if row.chunks == 0:
        row.first_token_s = now_s
    else:
        seconds = now_s - row.last_token_s
        if seconds != gap.seconds:
            gap = Gap(seconds, gap_bin(seconds), gap.is_mixed)
        tally.gap_bins[instance, gap.is_mixed, gap.bin] += 1
        tally.totals[instance].gap_sum_s += seconds
        row.longest_gap_s = max(row.longest_gap_s, seconds)
    row.last_token_s = now_s
    row.emitted_tokens += tokens
    row.chunks += 1
    tally.chunk_tokens[instance, tokens] += 1
    return gap


@rule
def preempted(log: Table[LogRow], request: int) -> None:
    """Count a preemption."""
    log[request].preemptions += 1


@rule
def completed(log: Table[LogRow], request: int) -> None:
    """The client has its whole answer."""
    log[request].outcome = COMPLETED


@rule
def aborted(log: Table[LogRow], request: int) -> None:
    """The client gave up."""
    log[request].outcome = CANCELLED


@rare
def attempt_failed(log: Table[LogRow], request: int) -> None:
    """Its instance stopped: times, chunks and tokens will be those of the next attempt; these are lost."""
    row = log[request]
    row.lost_tokens += row.emitted_tokens
    row.queued_s = math.nan
    row.scheduled_s = math.nan
    row.first_token_s = math.nan
    row.last_token_s = math.nan
    row.longest_gap_s = 0.0
    row.instance = -1
    row.emitted_tokens = 0
    row.chunks = 0
    row.cached_tokens = 0


@rare
def retried(log: Table[LogRow], request: int) -> None:
    """The router has taken it back."""
    log[request].retries += 1


@rare
def failed(log: Table[LogRow], request: int) -> None:
    """The client has got an error."""
    log[request].outcome = FAILED


@rule
def timed_out(log: Table[LogRow], request: int) -> None:
    """The client had set itself a time, and it is over."""
    log[request].outcome = TIMED_OUT


@rule
def memory_used(tally: Tally, kv: KvCache, batching: Batching, instance: int, now_s: float) -> None:
    """Integrate the blocks in use up to `now_s`, when they are about to change."""
    row = tally.totals[instance]
    used = batching.num_gpu_blocks - 1 - kv.pools[instance].num_free
    row.kv_block_s += used * (now_s - row.clock_s)
    row.kv_blocks_max = max(row.kv_blocks_max, used)
    row.clock_s = now_s
