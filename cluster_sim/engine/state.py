"""What changes during a run. Each table names the files that write it; nothing else may."""

from typing import NamedTuple

from cluster_sim.engine.client_state import Client, Sent, Source
from cluster_sim.engine.kv_state import KvCache
from cluster_sim.engine.tables import Cube, Flag, Float, Grid, Int8, Int32, Int64, Ints, Longs, Table


class Progress:
    """vLLM's Request counters.

    Written by engine_core.py, scheduler.py, admission.py, preemption.py, after_schedule.py,
    kv_cache_manager.py, output.py, router.py, outage.py.

        0         computed        known            known + drafts
        |============|--------------|- - - - - - - - - - -|
          KV exists      to compute    drafts to verify
    """

    known_tokens: Int32  # prompt and delivered output
    computed_tokens: Int32
    draft_tokens: Int32  # waiting to be verified
    placeholder_tokens: Int32  # output expected from steps in flight under async scheduling; counts as known
    in_flight_tokens: Int32  # scheduled, output not processed yet
    stale_tokens: Int32  # in flight when the request was preempted
    blocks: Int32  # KV blocks held
    registered_blocks: Int32  # the first so many of them can be found in the prefix cache
    block_row: Int32  # row of the block table; -1: none
    hit_tokens: Int32  # prefix-cache hit at the latest admission
    verifications: Int32  # verify steps so far
    proposals: Int32  # proposals so far
    status: Int8  # kinds.RequestStatus
    is_prefill_chunk: Flag  # after its last scheduling, part of what is known was still to compute


class Link:
    """Place of a request in a waiting queue or an inbox. Written by request_queue.py."""

    next: Int32  # behind it in the same queue; heap: next sibling; -1: none
    previous: Int32  # before it; heap: previous sibling, or the parent of a first child; -1: none
    child: Int32  # heap: first child; -1: none


class Queue:
    """Requests of one instance that wait, or are on their way to it. Written by request_queue.py."""

    head: Int64  # -1: empty
    tail: Int64
    length: Int64
    inbox_head: Int64  # dispatched by the router, not yet seen by the engine core
    inbox_tail: Int64


class Lane:
    """One engine core.

    Written by engine_core.py, scheduler.py, admission.py, preemption.py, output.py, outage.py.
    """

    clock_s: Float  # end of the latest action
    gpu_free_s: Float  # end of the latest step
    host_free_s: Float  # end of the latest step's host work
    num_running: Int64
    in_flight: Int64  # steps scheduled whose output is not processed
    oldest_slot: Int64
    executed_steps: Int64
    last_prefill_step: Int64
    finished: Int64  # requests that left, however
    action: Int64  # kinds.Action
    finished_unreported: Flag  # the next call tells the workers, even when it schedules nothing
    starved: Flag  # the latest call could schedule nothing
    prefill_capacity_bound: Flag  # the last admission pass left requests waiting


class Step:
    """Written by scheduler.py, preemption.py, after_schedule.py, step_time.py, engine_core.py."""

    end_s: Float
    num_entries: Int64
    num_running: Int64  # the first so many entries were running before; the rest was admitted
    num_preempted: Int64
    num_tokens: Int64
    uniform_tokens: Int64  # tokens of each request when all have the same; 0: mixed, or none
    attention_s: Float
    head_s: Float
    draft_s: Float
    draft_length: Int64  # K for the drafts proposed after the step
    skips_drafts: Flag


class Entry:
    """A request of a step. Written by budget.py, preemption.py, after_schedule.py, output.py."""

    request: Int32
    tokens: Int32
    drafts: Int32  # drafts verified; padding included
    accepted: Int32  # after the step: drafts accepted
    delivered: Int32  # after the step: tokens delivered; 0: nothing, or discarded
    is_padding: Flag
    samples: Flag  # the step reaches the end of what is known: it emits


class RouterMemory:
    """What the router knows of one instance. Written by router.py."""

    dispatched: Int64  # in all
    in_flight: Int64  # at the latest snapshot, and dispatched since
    waiting: Int64  # at the latest snapshot, and dispatched since
    kv_blocks: Int64  # at the latest snapshot


class LogRow:
    """What happened to a request. Written by metrics.py."""

    queued_s: Float  # the engine core picks it up; nan: never
    scheduled_s: Float  # first admission; nan: never
    first_token_s: Float  # nan: never
    last_token_s: Float  # nan: never
    longest_gap_s: Float  # between two deliveries
    instance: Int32  # -1: never admitted
    emitted_tokens: Int32
    chunks: Int32  # deliveries
    drafted_tokens: Int32
    accepted_tokens: Int32  # as vLLM counts: those past the end of the request included
    preemptions: Int32
    cached_tokens: Int32  # prefix-cache hit at first admission
    retries: Int32  # times that its instance stopped and the router took it back
    lost_tokens: Int32  # output delivered by attempts that failed
    outcome: Int8  # kinds.Outcome


class Totals:
    """What happened on one instance. Written by metrics.py."""

    steps: Int64  # that scheduled something
    mixed_steps: Int64  # those with a prefill among them
    scheduled_tokens: Int64
    target_s: Float  # GPU time of the target model
    draft_s: Float  # GPU time of the drafter
    exposed_host_s: Float  # host time that the GPU waited for
    gap_sum_s: Float
    kv_block_s: Float  # blocks in use, integrated over time
    clock_s: Float  # until which kv_block_s is integrated
    kv_blocks_max: Int64


class Tally(NamedTuple):
    """What happened on the instances. Written by metrics.py."""

    totals: Table[Totals]  # [instance]
    batch_size_steps: Longs  # [instance, requests scheduled]
    draft_length_steps: Longs  # [instance, K]
    verified: Longs  # [instance, class, drafts, accepted] verify events
    chunk_tokens: Longs  # [instance, tokens] deliveries of so many tokens
    gap_bins: Longs  # [instance, 1: ends with a mixed step, bin] gaps between deliveries of a request


class World(NamedTuple):
    """All that changes during a run."""

    sent: Table[Sent]  # [request]
    clients: Table[Client]  # [client]
    soonest: Ints  # [node] clients as a tree by due_s (clients.py)
    source: Table[Source]  # one row
    progress: Table[Progress]  # [request]
    links: Table[Link]  # [request]
    queues: Table[Queue]  # [instance]
    lanes: Table[Lane]  # [instance]
    running: Ints  # [instance, seat] requests in order of admission
    steps: Grid[Step]  # [instance, slot]
    entries: Cube[Entry]  # [instance, slot, entry]
    preempted: Ints  # [instance, slot, victim] in order
    kv: KvCache
    memory: Table[RouterMemory]  # [instance]
    scores: Longs  # [replica of the router, instance, its ranks as one] what routers.py compares
    hits: Longs  # [request modulo rows, instance, its ranks as one] tokens of the prompt in its prefix cache
    sent_to: Ints  # [request] the engine core that the router chose; -1: none, or none of this world
    log: Table[LogRow]  # [request]
    tally: Tally
