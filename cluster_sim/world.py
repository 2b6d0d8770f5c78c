"""Empty tables: World before the first arrival, and the maker of record arrays."""

from functools import cache
from typing import Any, TypeVar

import numpy as np

from cluster_sim.engine import metrics, outage, prefix_index
from cluster_sim.engine.client_state import Client, Sent, Source
from cluster_sim.engine.kinds import Outcome, Part, RouterPolicy
from cluster_sim.engine.kv_state import Block, KvCache, Pool
from cluster_sim.engine.rules import Rules
from cluster_sim.engine.state import (
    Entry,
    Lane,
    Link,
    LogRow,
    Progress,
    Queue,
    RouterMemory,
    Step,
    Tally,
    Totals,
    World,
)
from cluster_sim.engine.tables import Ints, Longs, Table, row_dtype

Row = TypeVar("Row")
ROUNDING = 1e-12  # relative: more than the edges of windows are rounded by


def empty_table(row: type, *shape: int, **columns: Any) -> Any:
    """A table of `row` of the given shape: zeros, except for the `columns` given (scalars or arrays)."""
    table = np.zeros(shape, _dtype(row)).view(np.recarray)
    for name, values in columns.items():
        table[name] = values
    return table


@cache
def _dtype(row: type) -> np.dtype[np.void]:
    """row_dtype, once for each class: reading annotations takes as long as filling a table."""
    return row_dtype(row)


def columns(table: Table[Row]) -> Table[Row]:
    """The same table for those who read whole columns: Ray does not bring record arrays back as such."""
    plain: Any = table
    as_columns: Table[Row] = plain.view(np.ndarray)
    return as_columns


def new_world(rules: Rules) -> World:
    """The state before the first arrival."""
    requests = rules.workload.requests
    num_requests, num_instances = requests.shape[0], rules.batching.shape[0]
    seats = int(rules.batching["max_num_seqs"].max())
    depth = int(rules.batching["queue_depth"].max())
    clients, untaken = _new_clients(rules)
    as_asked = {name: requests[name] for name in ("arrival_s", "abort_s", "priority")}
    return World(
        sent=empty_table(Sent, num_requests, client=-1, **as_asked),
        clients=clients,
        soonest=_tree_of(clients.shape[0]),
        source=empty_table(Source, 1, untaken=untaken),
        progress=empty_table(Progress, num_requests, known_tokens=requests["prompt_tokens"], block_row=-1),
        links=empty_table(Link, num_requests, next=-1, previous=-1, child=-1),
        queues=empty_table(Queue, num_instances, head=-1, tail=-1, inbox_head=-1, inbox_tail=-1),
        lanes=empty_table(Lane, num_instances),
        running=_ints(num_instances, seats),
        steps=empty_table(Step, num_instances, depth),
        entries=empty_table(Entry, num_instances, depth, seats),
        preempted=_ints(num_instances, depth, seats),
        kv=_new_kv(rules, seats),
        memory=empty_table(RouterMemory, num_instances),
        scores=_longs(rules.routing.replicas, num_instances // rules.routing.ranks),
        hits=_longs(_hit_rows(rules), num_instances // rules.routing.ranks),
        sent_to=np.full(num_requests, -1, np.int32),
        log=empty_table(
            LogRow,
            num_requests,
            queued_s=np.nan,
            scheduled_s=np.nan,
            first_token_s=np.nan,
            last_token_s=np.nan,
            instance=-1,
            outcome=np.where(requests["is_rejected"], int(Outcome.rejected), int(Outcome.pending)),
        ),
        tally=_new_tally(rules, num_instances, seats),
    )


def _new_clients(rules: Rules) -> tuple[Table[Client], int]:
    """Clients before they send anything, and the first request that none of them has.

    Each has the first turn of its conversation, or the first requests, which it sends at a known time; in a
    closed loop none has any.
    """
    arrival_s, number = rules.workload.requests["arrival_s"], rules.workload.clients
    known = np.flatnonzero(np.isfinite(arrival_s)) if number > 0 else np.zeros(0, np.int64)
    if len(known) == 0:
        return empty_table(Client, number, next=-1), 0
    own, others = known[:number], known[number:]
    untaken = int(others[0]) if len(others) else len(arrival_s)
    return empty_table(Client, number, due_s=arrival_s[own], next=own), untaken


def _tree_of(clients: int) -> Ints:
    """Clients as a tree by due time, in which they are numbered (engine/clients.py)."""
    soonest = _ints(max(2 * clients, 1))
    soonest[clients:] = np.arange(len(soonest) - clients)
    high = clients
    while high > 1:  # the nodes below `high` whose children are done, a level at a time
        low = (high + 1) // 2
        soonest[low:high] = np.minimum(soonest[2 * low : 2 * high : 2], soonest[2 * low + 1 : 2 * high : 2])
        high = low
    return soonest


def blocks_per_request(rules: Rules) -> int:
    """Most KV blocks that any request of the run can hold, lookahead and drafts in flight included."""
    requests, batching = rules.workload.requests, rules.batching
    drafts = 2 * (rules.drafting["num_speculative_tokens"] + 1) + batching["lookahead_tokens"]
    whole = requests["prompt_tokens"].astype(np.int64) + requests["max_tokens"]
    whole[requests["is_rejected"]] = 1
    longest = np.minimum(whole.max(initial=1) + drafts, batching["max_model_len"])
    return int(np.minimum(-(-longest // batching["block_size"]), batching["num_gpu_blocks"]).max())


def _hit_rows(rules: Rules) -> int:
    """Requests whose hits are kept at once: those of a signal window where another world looks for them."""
    routing, arrival_s = rules.routing, rules.workload.requests["arrival_s"]
    if routing.part == Part.whole or routing.policy != RouterPolicy.prefix_aware:
        return 1
    longest_s = (arrival_s + routing.signal_interval_s) * (1.0 + ROUNDING)
    windows = np.searchsorted(arrival_s, longest_s, side="right") - np.arange(len(arrival_s))
    return int(windows.max(initial=1))


def _new_kv(rules: Rules, seats: int) -> KvCache:
    """Free lists hold blocks 1 .. num_gpu_blocks - 1; without prefix caching there are none."""
    num_blocks = rules.batching["num_gpu_blocks"]
    caches = bool(rules.batching["enable_prefix_caching"].any())
    width = int(num_blocks.max()) if caches else 1
    slots = 1 << (2 * width - 1).bit_length()
    kv = KvCache(
        pools=empty_table(Pool, len(num_blocks)),
        blocks=empty_table(Block, len(num_blocks), width),
        free_ring=_ints(len(num_blocks), slots),
        slots=_ints(len(num_blocks), slots),
        block_table=_ints(len(num_blocks), seats, blocks_per_request(rules) if caches else 1),
        free_rows=_ints(len(num_blocks), seats),
        holders=_longs(_num_indexed(rules), prefix_index.words_for(len(num_blocks))),
    )
    for rank, blocks in enumerate(num_blocks.tolist()):
        outage.empty_memory(kv, blocks, rank)
    return kv


def _num_indexed(rules: Rules) -> int:
    """Content ids of which prefix_aware asks who holds them, where there are instances to hold any."""
    if rules.routing.policy != RouterPolicy.prefix_aware or rules.routing.part == Part.router:
        return 0
    return int(rules.workload.content_ids.max(initial=-1)) + 1


def _new_tally(rules: Rules, num_instances: int, seats: int) -> Tally:
    num_classes = int(rules.workload.requests["workload_class"].max(initial=0)) + 1
    lengths = int(rules.drafting["num_speculative_tokens"].max()) + 1
    return Tally(
        totals=empty_table(Totals, num_instances),
        batch_size_steps=_longs(num_instances, seats + 1),
        draft_length_steps=_longs(num_instances, lengths),
        verified=_longs(num_instances, num_classes, lengths, lengths),
        chunk_tokens=_longs(num_instances, lengths + 1),
        gap_bins=_longs(num_instances, 2, metrics.NUM_GAP_BINS),
    )


def _longs(*shape: int) -> Longs:
    return np.zeros(shape, np.int64)


def _ints(*shape: int) -> Ints:
    return np.zeros(shape, np.int32)
