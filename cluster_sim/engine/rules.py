"""What does not change during a run: requests, luck, settings and step times. Never written."""

import math
from typing import NamedTuple

import numpy as np

from cluster_sim.engine.tables import Flag, Float, Floats, Int32, Int64, Ints, Longs, Table


class Request:
    """What a client asks for."""

    arrival_s: Float  # non-decreasing; inf: its client sends it when it has an answer (clients.py)
    abort_s: Float  # when the client's time is over and it gives up; inf: never, or not known yet
    think_s: Float  # from its end to the next request of its client
    content_start: Int64  # into Workload.content_ids
    content_blocks: Int32  # its first so many full blocks have a content id
    prompt_tokens: Int32
    max_tokens: Int32  # output tokens after which vLLM ends it
    priority: Int32  # lower first
    workload_class: Int32
    session: Int32  # of a conversation; its own number without
    is_rejected: Flag  # refused before the router: it could never be served


class Workload(NamedTuple):
    """All requests, and the identity of what they share."""

    requests: Table[Request]  # [request]
    content_ids: Longs  # equal ids = equal content up to and including that block
    any_abort: bool  # False: abort_s need not be looked at
    clients: int = 0  # that wait for their answers; 0: arrivals are known
    timeout_s: float = math.inf  # after which such a client gives up
    close_s: float = math.inf  # from then on such clients send nothing more


class Fate:
    """What nobody in the system can foresee about a request; only acceptance.py and output.py read it."""

    draw_start: Int64  # into Luck.draws
    proposal_start: Int64  # into Luck.proposals
    num_draws: Int32  # of a walk
    num_proposals: Int32  # 0: always K
    stop_at: Int32  # the output token that is the stop token, from 1; 0: none


class Luck(NamedTuple):
    """Where acceptance comes from: profiles and streams, or a recording."""

    fates: Table[Fate]  # [request]
    kind: int  # kinds.LuckKind
    key: np.uint64  # of the acceptance streams
    level_key: np.uint64  # of how easy a text is to draft
    request_levels: int  # equally likely levels of ease between requests
    run_levels: int  # and between the runs of a request's output
    run_tokens: int  # output tokens of a run
    conditional: Floats  # [profile, level, draft length, position] P(accepted | all before it accepted)
    draws: Ints  # drafts the target would accept: recorded at each verification; walked at each output token
    proposals: Ints  # recorded: drafts proposed at a request's 1st, 2nd, .. proposal, cycled


class Batching:
    """vLLM's scheduler and cache settings of one instance."""

    max_num_seqs: Int64
    max_num_active_seqs: Int64
    max_num_batched_tokens: Int64
    max_num_scheduled_tokens: Int64
    max_model_len: Int64
    block_size: Int64
    num_gpu_blocks: Int64  # block 0 is vLLM's null block: one less is usable
    watermark_blocks: Int64
    lookahead_tokens: Int64  # KV slots reserved for drafts beyond the step's tokens
    hash_lookahead_tokens: Int64  # tokens after a block that its prefix-cache key covers too
    prefill_lookahead_tokens: Int64  # that a prefill chunk leaves to the next one, or takes all
    long_prefill_token_threshold: Int64
    prefill_schedule_interval: Int64
    queue_depth: Int64  # steps in flight: 1 synchronous, 2 asynchronous
    scheduling_policy: Int64  # kinds.SchedulingPolicy
    long_prefill_token_threshold_adaptive: Flag
    enable_chunked_prefill: Flag
    enable_prefix_caching: Flag
    drops_last_hit_block: Flag  # EAGLE without look-ahead keys
    scheduler_reserve_full_isl: Flag


class Drafting:
    """Speculation settings of one instance."""

    num_speculative_tokens: Int64  # 0: no speculation
    first_profile: Int64  # into Luck.conditional: that of the first class on this instance
    slots_per_request: Int64  # extra input slots of the drafter
    is_dynamic: Flag  # a schedule by batch size: no padded admission
    may_skip: Flag  # the V2 runner skips drafting when no scheduled request can use it


class StepTime(NamedTuple):
    """Seconds of each part of a step, from a bundle."""

    bundle_of: Longs  # [instance]
    host_s: Floats  # [instance] CPU time of a step
    slowdown: Floats  # [instance] of all times of a step that is launched now; 1: none
    captured_tokens: Longs  # [bundle] largest size of a captured graph; 0: none
    dense_s: Floats  # [bundle, graph, tokens] 0: mixed batch; q: every request has q tokens; last: no graph
    experts_s: Floats  # [bundle, tokens of all ranks] in lockstep, no graph; otherwise part of dense_s
    head_s: Floats  # [bundle, rows] lm_head and sampler
    prefill_chunk_tokens: Floats  # [bundle, axis]
    prefill_history_tokens: Floats  # [bundle, axis]
    prefill_attention_s: Floats  # [bundle, chunk, history]
    decode_chunk_tokens: Floats  # [bundle, axis] longest prefill chunk beside the decodes
    decode_requests: Floats  # [bundle, axis]
    decode_kv_tokens: Floats  # [bundle, axis] mean over the decodes
    decode_attention_s: Floats  # [bundle, query tokens, chunk, requests, kv]
    decode_skew: Floats  # [bundle, decodes] share of the way from mean to longest KV
    draft_first_s: Floats  # [bundle, tokens] the drafter's pass over the step's tokens
    draft_more_s: Floats  # [bundle, draft length, requests] what it takes beyond that pass
    draft_kv_s: Floats  # [bundle, draft length] for each KV token of the decodes


class Routing(NamedTuple):
    """The router's settings."""

    policy: int  # kinds.RouterPolicy
    ranks: int  # of data parallelism in each instance: neighbours, among which vLLM's balancer chooses
    replicas: int  # of the router: they take the requests in turn, and each counts its own dispatches only
    signal_interval_s: float  # age of what the router knows; 0: instant
    key: np.uint64  # of what is drawn
    overlap_weight: float  # prefix_aware: KV tokens in use that are worth a token of the prompt
    weights: Floats  # [instance] weighted
    class_start: Longs  # [class + 1] into class_instances
    class_instances: Longs  # class_aware: those that serve each class
    part: int  # kinds.Part


class Rules(NamedTuple):
    """All that does not change during a run."""

    workload: Workload
    luck: Luck
    batching: Table[Batching]  # [instance]
    drafting: Table[Drafting]  # [instance]
    draft_length_at: Longs  # [instance, requests scheduled] draft length proposed after the step
    lockstep: Longs  # [instance] ranks that step together from this one on; 0: one of those above
    step_time: StepTime
    routing: Routing
