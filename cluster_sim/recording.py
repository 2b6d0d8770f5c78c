"""A recorded scheduler run as engine tables: the same requests, luck and settings.

Format: ../shared/vllm-traces/README.md.
"""

from typing import Any

import numpy as np

from cluster_sim.engine.kinds import LuckKind, Part, RouterPolicy, SchedulingPolicy
from cluster_sim.engine.rules import (
    Batching,
    Drafting,
    Fate,
    Luck,
    Request,
    Routing,
    Rules,
    StepTime,
    Workload,
)
from cluster_sim.engine.tables import Longs, Table
from cluster_sim.world import empty_table

Json = dict[str, Any]
Token = tuple[str, int]
SAME_NAME = (
    "max_num_seqs",
    "max_num_batched_tokens",
    "max_model_len",
    "block_size",
    "num_gpu_blocks",
    "long_prefill_token_threshold",
    "long_prefill_token_threshold_adaptive",
    "enable_chunked_prefill",
    "enable_prefix_caching",
    "scheduler_reserve_full_isl",
    "prefill_schedule_interval",
)


def read_rules(recording: Json) -> Rules:
    """Rules of one instance that does what the recorded one did; KeyError names what the recording lacks."""
    config = recording["config"]
    submitted = sorted(recording["requests"], key=lambda request: request["arrival_time"])
    return Rules(
        _workload(submitted, config),
        _luck(submitted),
        _batching(config),
        _drafting(config),
        _draft_length_at(config),
        np.ones(1, np.int64),
        _one_tick_a_step(config),
        _no_routing(),
    )


def _no_routing() -> Routing:
    none = np.zeros(1, np.int64)
    policy, part = int(RouterPolicy.round_robin), int(Part.whole)
    return Routing(policy, 1, 1, 0.0, np.uint64(0), 1.0, np.ones(1), none, none, part)


def _workload(submitted: list[Json], config: Json) -> Workload:
    contents: list[list[int]] = [[] for _ in submitted]
    if config["enable_prefix_caching"]:
        contents = _content_ids(submitted, config["block_size"], config["num_hash_lookahead_tokens"])
    start, ids = _concatenate(contents, np.int64)
    requests = empty_table(
        Request,
        len(submitted),
        arrival_s=[request["arrival_time"] for request in submitted],
        abort_s=np.inf,
        content_start=start,
        content_blocks=[len(content) for content in contents],
        prompt_tokens=[request["prompt_len"] for request in submitted],
        max_tokens=[request["max_tokens"] for request in submitted],
        priority=[request["priority"] for request in submitted],
    )
    return Workload(requests, ids, False)


def _content_ids(submitted: list[Json], block_size: int, lookahead: int) -> list[list[int]]:
    """One id per full block of prompt and output: equal ids, equal tokens to `lookahead` past it."""
    known: dict[tuple[int, tuple[Token, ...]], int] = {}
    contents = []
    for request in submitted:
        tokens: list[Token] = [
            (name, place) for name, length in request["prompt_segments"] for place in range(length)
        ]
        tokens += [(f"out:{request['id']}", place) for place in range(request["max_tokens"])]
        parent, ids = -1, []
        for end in range(block_size, len(tokens) - lookahead + 1, block_size):
            chain = (parent, tuple(tokens[end - block_size : end + lookahead]))
            parent = known.setdefault(chain, len(known))
            ids.append(parent)
        contents.append(ids)
    return contents


def _luck(submitted: list[Json]) -> Luck:
    draw_start, draws = _concatenate([request["accept_draws"] for request in submitted], np.int32)
    counts = [request.get("draft_counts", []) for request in submitted]
    proposal_start, proposals = _concatenate(counts, np.int32)
    fates = empty_table(
        Fate,
        len(submitted),
        draw_start=draw_start,
        proposal_start=proposal_start,
        num_proposals=[len(count) for count in counts],
        stop_at=[request.get("eos_at") or 0 for request in submitted],
    )
    key, no_profile = np.uint64(0), np.zeros((1, 1, 1, 1))
    return Luck(fates, int(LuckKind.recorded), key, key, 1, 1, 1, no_profile, draws, proposals)


def _concatenate(rows: list[list[int]], dtype: type[np.generic]) -> tuple[Longs, Any]:
    """Rows of different lengths as (where each starts, all entries)."""
    lengths = [len(row) for row in rows]
    start = np.cumsum(lengths, dtype=np.int64) - lengths
    return start, np.array([entry for row in rows for entry in row], dtype)


def _batching(config: Json) -> Table[Batching]:
    seats, tokens = config["max_num_seqs"], config["max_num_batched_tokens"]
    active, scheduled = config["max_num_active_seqs"], config["max_num_scheduled_tokens"]
    same_name = {name: config[name] for name in SAME_NAME}
    table: Table[Batching] = empty_table(
        Batching,
        1,
        max_num_active_seqs=seats if active is None else active,
        max_num_scheduled_tokens=tokens if scheduled is None else scheduled,
        watermark_blocks=int(config["watermark"] * config["num_gpu_blocks"]),
        lookahead_tokens=config["num_lookahead_tokens"],
        hash_lookahead_tokens=config["num_hash_lookahead_tokens"],
        prefill_lookahead_tokens=0,
        drops_last_hit_block=config["drop_eagle_block"],
        queue_depth=2 if config["async_scheduling"] else 1,
        scheduling_policy=int(SchedulingPolicy[config["policy"]]),
        **same_name,
    )
    return table


def _drafting(config: Json) -> Table[Drafting]:
    table: Table[Drafting] = empty_table(
        Drafting,
        1,
        num_speculative_tokens=config["num_speculative_tokens"] or 0,
        slots_per_request=config["draft_slots_per_request"],
        is_dynamic=config["dense_k_lookup"] is not None,
        may_skip=config["num_lookahead_tokens"] > 0,
    )
    return table


def _draft_length_at(config: Json) -> Longs:
    static = [config["num_speculative_tokens"] or 0] * (config["max_num_seqs"] + 1)
    return np.array([config["dense_k_lookup"] or static], np.int64)


def _one_tick_a_step(config: Json) -> StepTime:
    """Every step takes one second and the host none: recordings count steps, not time."""
    tokens = config["max_num_batched_tokens"]
    axis = np.array([[0.0, 1.0]])
    return StepTime(
        bundle_of=np.zeros(1, np.int64),
        captured_tokens=np.zeros(1, np.int64),
        dense_s=np.ones((1, 2, tokens + 1)),
        experts_s=np.zeros((1, 1)),
        head_s=np.zeros((1, 2 * tokens + 1)),
        prefill_chunk_tokens=axis,
        prefill_history_tokens=axis,
        prefill_attention_s=np.zeros((1, 2, 2)),
        decode_chunk_tokens=axis,
        decode_requests=axis,
        decode_kv_tokens=axis,
        decode_attention_s=np.zeros((1, 2, 2, 2, 2)),
        decode_skew=np.zeros((1, tokens + 1)),
        draft_first_s=np.zeros((1, tokens + 1)),
        draft_more_s=np.zeros((1, 1 + (config["num_speculative_tokens"] or 0), config["max_num_seqs"] + 1)),
        draft_kv_s=np.zeros((1, 1 + (config["num_speculative_tokens"] or 0))),
        host_s=np.zeros(1),
        slowdown=np.ones(1),
    )
