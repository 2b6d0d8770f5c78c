"""How long a step takes: prefills by their work, decodes of uneven KV, and ranks that wait for each other."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from engine_worlds import Asked, Scenario, Server
from hypothesis import given
from hypothesis import strategies as st

from cluster_sim.engine.after_schedule import Batch
from cluster_sim.engine.rules import Rules, StepTime
from cluster_sim.engine.state import World
from cluster_sim.engine.step_time import decode_attention_s, prefill_attention_s, target_s
from cluster_sim.world import new_world

PAIR_S = 2.0**-20  # attention of a query to a key
KV_S = 2.0**-16  # read of a token of KV
CHUNKS, HISTORIES = np.array([16.0, 32.0, 64.0, 128.0]), np.array([0.0, 64.0, 256.0])
REQUESTS, KV = np.array([1.0, 4.0, 16.0]), np.array([1.0, 1024.0])
CAPTURED = 8  # the largest graph, tokens
EXPERT_S = 1000.0  # a token through the experts: thousands of a step are the experts'
GRAPH_S = 100.0  # row of dense_s: its hundreds are the graph, its units the tokens
MIXED, NO_GRAPH = 0, 3

NOTHING = Batch(
    tokens=0,
    requests=0,
    rows=0,
    prefill_tokens=0,
    prefill_work=0.0,
    longest_chunk_tokens=0,
    decodes=0,
    decode_kv_tokens=0,
    longest_kv_tokens=0,
    query_tokens=1,
)


def times(**changes: Any) -> StepTime:
    """Prefill attention by pairs of query and key, decode attention by KV, both exact at their points."""
    prefill_s = PAIR_S * CHUNKS[:, np.newaxis] * (HISTORIES + CHUNKS[:, np.newaxis] / 2)
    decode_s = np.broadcast_to(KV_S * REQUESTS[:, np.newaxis] * KV, (2, 2, 3, 2))
    tables: dict[str, Any] = {
        "prefill_chunk_tokens": CHUNKS[np.newaxis],
        "prefill_history_tokens": HISTORIES[np.newaxis],
        "prefill_attention_s": prefill_s[np.newaxis],
        "decode_requests": REQUESTS[np.newaxis],
        "decode_kv_tokens": KV[np.newaxis],
        "decode_attention_s": decode_s[np.newaxis],
        "decode_skew": np.zeros((1, 17)),
    }
    return Scenario((Asked(),)).rules().step_time._replace(**tables | changes)


# ---- several prefills ----


def prefills(*chunks: tuple[int, int]) -> Batch:
    """Chunks of (tokens, history) in one step."""
    work = sum(tokens * (history + 0.5 * tokens) for tokens, history in chunks)
    longest = max(tokens for tokens, _ in chunks)
    total = sum(tokens for tokens, _ in chunks)
    return NOTHING._replace(prefill_tokens=total, prefill_work=work, longest_chunk_tokens=longest)


def of_prefills_s(*chunks: tuple[int, int]) -> float:
    return float(prefill_attention_s(times(), 0, prefills(*chunks)))


def test_one_prefill_is_a_point_of_the_table() -> None:
    assert of_prefills_s((32, 64)) == PAIR_S * 32 * (64 + 16)


def test_two_equal_fresh_prefills_cost_as_their_work() -> None:
    """2 c^2 / 2, and not the (2 c)^2 / 2 of one prefill of their sum (measured-runs/README.md, finding 2)."""
    assert of_prefills_s((32, 0), (32, 0)) == 2 * of_prefills_s((32, 0)) == PAIR_S * 32 * 32
    assert of_prefills_s((64, 0)) == 2 * PAIR_S * 32 * 32


@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    histories=st.lists(st.integers(0, 400), min_size=7, max_size=7),
    total=st.sampled_from([32, 64, 128]),
)
def test_prefills_cost_as_their_work_however_it_is_spread(
    lengths: list[int], histories: list[int], total: int
) -> None:
    """Where attention costs by pairs: sum of c (h + c / 2), whenever the sum of c is a point of the table."""
    cut: list[int] = []
    for length in lengths:
        cut.append(min(length, total - sum(cut) - 1))
    cut = [length for length in (*cut, total - sum(cut)) if length > 0]
    chunks = list(zip(cut, histories, strict=False))
    work = prefills(*chunks).prefill_work
    least_s = PAIR_S * 16 * 8
    assert of_prefills_s(*chunks) == pytest.approx(max(least_s, PAIR_S * work), rel=1e-12)


def test_no_prefill_takes_less_than_the_first_point_of_all() -> None:
    """64 prefills of a token have a history of -31.5: the line below 0 ends at the launch of the kernel."""
    assert of_prefills_s(*[(1, 0)] * 64) == of_prefills_s((16, 0)) == of_prefills_s((1, 0))


def test_beyond_the_last_history_the_line_goes_on() -> None:
    assert of_prefills_s((64, 1000)) == pytest.approx(PAIR_S * 64 * (1000 + 32))


# ---- uneven decodes ----


def decodes(*kv_tokens: int, **changes: Any) -> Batch:
    return NOTHING._replace(
        decodes=len(kv_tokens), decode_kv_tokens=sum(kv_tokens), longest_kv_tokens=max(kv_tokens), **changes
    )


def of_decodes_s(batch: Batch, share: float) -> float:
    return float(decode_attention_s(times(decode_skew=np.full((1, 17), share)), 0, batch))


def test_even_decodes_cost_their_kv_whatever_the_share() -> None:
    for share in (0.0, 0.25, 1.0):
        assert of_decodes_s(decodes(100, 100, 100, 100), share) == pytest.approx(KV_S * 400)


def test_without_a_share_uneven_decodes_cost_their_mean() -> None:
    assert of_decodes_s(decodes(10, 20, 30, 340), 0.0) == pytest.approx(KV_S * 400)


def test_the_share_leads_from_the_mean_to_the_longest() -> None:
    """1: all cost what the longest costs (measured-runs/README.md, finding 4)."""
    uneven = decodes(10, 20, 30, 340)
    assert of_decodes_s(uneven, 1.0) == pytest.approx(KV_S * 4 * 340)
    assert of_decodes_s(uneven, 0.25) == pytest.approx(KV_S * (0.75 * 400 + 0.25 * 4 * 340))


def test_the_share_is_that_of_the_number_of_decodes() -> None:
    skew = np.zeros((1, 17))
    skew[0, 4] = 1.0
    uneven = times(decode_skew=skew)
    assert decode_attention_s(uneven, 0, decodes(10, 20, 30, 340)) == pytest.approx(KV_S * 4 * 340)
    assert decode_attention_s(uneven, 0, decodes(10, 30, 340)) == pytest.approx(KV_S * 380)


def test_beside_a_prefill_uneven_decodes_cost_their_mean() -> None:
    """Finding 3: no skew term in mixed steps."""
    mixed = decodes(10, 20, 30, 340, prefill_tokens=16, longest_chunk_tokens=16)
    assert of_decodes_s(mixed, 1.0) == pytest.approx(KV_S * 400)


# ---- ranks ----


def rules_of_ranks(ranks: int = 2) -> Rules:
    """Times that tell what was looked up: 1000 * experts' tokens + 100 * graph + tokens."""
    tokens = 32
    graphs = GRAPH_S * np.arange(NO_GRAPH + 1)[:, np.newaxis] + np.arange(tokens + 1)
    rules = Scenario((Asked(),), (replace(Server(), max_num_batched_tokens=tokens),) * ranks).rules()
    told = rules.step_time._replace(
        bundle_of=np.zeros(ranks, np.int64),
        captured_tokens=np.full(1, CAPTURED),
        dense_s=graphs[np.newaxis],
        experts_s=EXPERT_S * np.arange(ranks * tokens + 1)[np.newaxis],
    )
    return rules._replace(step_time=told)


def world_of(rules: Rules, *steps: tuple[int, int]) -> World:
    """Each rank's step has so many tokens, of which every request has so many (0: mixed, or none)."""
    world = new_world(rules)
    for rank, (tokens, uniform) in enumerate(steps):
        world.steps[rank, 0].num_tokens = tokens
        world.steps[rank, 0].uniform_tokens = uniform
    return world


def of_ranks_s(*steps: tuple[int, int]) -> float:
    rules = rules_of_ranks(len(steps))
    return float(target_s(world_of(rules, *steps), rules, 0, len(steps), 0))


def looked_up_s(graph: int, tokens: int, experts_tokens: int) -> float:
    return EXPERT_S * experts_tokens + GRAPH_S * graph + tokens


def test_a_rank_on_its_own_has_the_graph_of_its_batch_and_no_experts_apart() -> None:
    assert of_ranks_s((5, 1)) == looked_up_s(1, 5, 0)
    assert of_ranks_s((6, 2)) == looked_up_s(2, 6, 0)
    assert of_ranks_s((6, 0)) == looked_up_s(MIXED, 6, 0)
    assert of_ranks_s((20, 1)) == looked_up_s(1, 20, 0)  # dense_s itself knows what has no graph
    assert of_ranks_s((9, 9)) == looked_up_s(MIXED, 9, 0)  # a length that no graph was captured for


def test_ranks_in_a_graph_are_padded_to_the_largest_of_them() -> None:
    """dense_s has the experts of a captured size in it."""
    assert of_ranks_s((3, 1), (5, 1)) == looked_up_s(1, 5, 0)
    assert of_ranks_s((4, 2), (CAPTURED, 2)) == looked_up_s(2, CAPTURED, 0)


def test_ranks_share_a_full_graph_only_with_one_query_length() -> None:
    assert of_ranks_s((3, 1), (6, 2)) == looked_up_s(MIXED, 6, 0)
    assert of_ranks_s((6, 0), (3, 1)) == looked_up_s(MIXED, 6, 0)
    assert of_ranks_s((3, 1), (6, 0)) == looked_up_s(MIXED, 6, 0)


def test_an_idle_rank_goes_along_with_any_graph() -> None:
    """Its dummy batch is a uniform decode (vLLM: v1/worker/gpu_worker.py, execute_dummy_batch)."""
    for steps in (((0, 0), (5, 1)), ((5, 1), (0, 0)), ((0, 0), (5, 1), (0, 0), (3, 1))):
        assert of_ranks_s(*steps) == looked_up_s(1, 5, 0)


def test_above_the_largest_graph_no_rank_is_padded_or_in_a_graph() -> None:
    assert of_ranks_s((5, 1), (9, 1)) == looked_up_s(NO_GRAPH, 9, 5 + 9)
    assert of_ranks_s((5, 0), (32, 0)) == looked_up_s(NO_GRAPH, 32, 5 + 32)


def test_beside_a_step_without_a_graph_an_idle_rank_runs_one_token() -> None:
    assert of_ranks_s((0, 0), (9, 1)) == looked_up_s(NO_GRAPH, 9, 1 + 9)


def test_the_slowest_rank_is_waited_for() -> None:
    """Attention and head are a rank's own; the experts start when all are there."""
    rules = rules_of_ranks()
    world = world_of(rules, (5, 0), (9, 0))
    world.steps[0, 0].attention_s = 6.0
    world.steps[1, 0].head_s = 1.0
    assert target_s(world, rules, 0, 2, 0) == looked_up_s(NO_GRAPH, 5, 14) + 6.0
    world.steps[0, 0].attention_s = 4.0
    assert target_s(world, rules, 0, 2, 0) == looked_up_s(NO_GRAPH, 9, 14) + 1.0


def test_ranks_of_other_instances_are_not_waited_for() -> None:
    rules = rules_of_ranks(4)
    world = world_of(rules, (5, 0), (9, 0), (30, 0), (31, 0))
    assert target_s(world, rules, 0, 2, 0) == looked_up_s(NO_GRAPH, 9, 14)
    assert target_s(world, rules, 2, 2, 0) == looked_up_s(NO_GRAPH, 31, 61)
