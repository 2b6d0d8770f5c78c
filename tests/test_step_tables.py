"""Dense tables of the engine: CUDA-graph padding, launch gaps, drafters."""

from dataclasses import replace

import numpy as np
import pytest
from example_bundle import BUNDLE, CONFIG, NONE, eager, engine

from cluster_sim.bundle import roofline
from cluster_sim.bundle.architecture import Parallel
from cluster_sim.compose import compose
from cluster_sim.config import CudagraphMode, DraftCost, Method
from cluster_sim.cudagraphs import capture_sizes, padded, uniform_sizes
from cluster_sim.engine.rules import StepTime
from cluster_sim.errors import UserError
from cluster_sim.expert_tables import Ranks, experts_s
from cluster_sim.step_tables import step_arrays

EAGLE3 = CONFIG.speculation
GAP_S = BUNDLE.parameters["piecewise_layer_gap_s"].value * 32


def kernels_s(tokens: int) -> float:
    """`dense` of the bundle at a number of tokens."""
    table = BUNDLE.tables["dense"]
    return float(np.interp(tokens, table.axes["tokens"], table.time_s))


def test_captured_sizes_are_vllms():
    """1, 2, 4, 8 .. 248 by 8, 256 .. max by 16 (../shared/vllm-scheduler.md section 8)."""
    sizes = capture_sizes(1024, 0, 8192, 512).tolist()
    assert sizes == [1, 2, 4, *range(8, 256, 8), *range(256, 513, 16)]
    assert len(sizes) == 51  # as vLLM logs "Capturing CUDA graphs: 51"


@pytest.mark.parametrize(
    ("seqs", "drafts", "batched_tokens", "largest"),
    [(1024, 0, 8192, 512), (16, 0, 8192, 32), (16, 3, 8192, 128), (300, 0, 300, 300), (1, 0, 2048, 2)],
)
def test_the_largest_captured_size_follows_the_limits(seqs, drafts, batched_tokens, largest):
    """min(max_num_seqs x (1 + K) x 2, 512, max_num_batched_tokens)."""
    assert capture_sizes(seqs, drafts, batched_tokens, 512)[-1] == largest


def test_uniform_sizes_are_whole_requests():
    sizes = uniform_sizes(capture_sizes(1024, 3, 8192, 512), 3)
    assert (sizes % 3 == 0).all()
    assert sizes[:5].tolist() == [
        3,
        6,
        9,
        12,
        18,
    ]  # from 1, 2, 4 and 8 tokens, and 4 requests; 6 requests from 16
    assert sizes[-1] <= 512


def test_padding_is_the_next_size_or_none():
    sizes = np.array([1, 2, 4, 8])
    assert padded(sizes, np.array([0, 1, 2, 3, 5, 8, 9])).tolist() == [1, 1, 2, 4, 8, 8, -1]


def test_arrays_cover_the_engine_and_are_named_as_its_table():
    arrays = step_arrays(BUNDLE, engine(), EAGLE3)
    names = set(vars(arrays)) - {"warnings"}
    assert names == set(StepTime._fields) - {"bundle_of", "slowdown"}
    assert arrays.dense_s.shape == (1 + 1 + 3 + 1, 8193)  # mixed, 1 + K tokens a request, no graph
    assert arrays.head_s.shape == (1024 * 4 + 1,)
    assert arrays.decode_attention_s.shape[0] == 2 + 3
    assert arrays.draft_first_s.shape == (8193,)
    assert arrays.draft_more_s.shape == (4, 1025)
    assert arrays.draft_kv_s.shape == (4,)
    assert arrays.decode_skew.shape == (1025,)
    assert arrays.captured_tokens == 512
    assert arrays.experts_s.tolist() == [0.0]
    assert arrays.warnings == ()
    for axis in (
        "prefill_chunk_tokens",
        "prefill_history_tokens",
        "decode_chunk_tokens",
        "decode_requests",
        "decode_kv_tokens",
    ):
        points = getattr(arrays, axis)
        assert len(points) >= 2
        assert (np.diff(points) > 0).all()


def test_a_uniform_decode_is_padded_to_its_full_graph():
    dense_s = step_arrays(BUNDLE, engine(), NONE).dense_s[1]
    assert dense_s[5] == dense_s[8] == pytest.approx(kernels_s(8))
    assert dense_s[121] == dense_s[128]  # "121 tokens cost the 128 graph" (spec-decode-facts.md C4)
    assert dense_s[9] == dense_s[16] > dense_s[8]


def test_a_mixed_batch_pays_a_gap_a_layer_and_above_the_largest_size_no_padding():
    dense_s = step_arrays(BUNDLE, engine(), NONE).dense_s[0]
    assert dense_s[121] == pytest.approx(kernels_s(128) + GAP_S)
    assert dense_s[513] == pytest.approx(kernels_s(513) + GAP_S)
    assert dense_s[511] == dense_s[512] < dense_s[513] < dense_s[514]


def test_beyond_full_graphs_a_uniform_decode_runs_as_a_mixed_batch():
    dense_s = step_arrays(BUNDLE, engine(), NONE).dense_s
    assert dense_s[1, 513:].tolist() == dense_s[0, 513:].tolist()


def test_static_drafts_have_graphs_of_their_query_length_only():
    dense_s = step_arrays(BUNDLE, engine(), EAGLE3).dense_s
    assert np.array_equal(dense_s[1], dense_s[0])
    assert np.array_equal(dense_s[3], dense_s[0])
    assert (dense_s[4, 1:513] < dense_s[0, 1:513]).all()


def test_a_schedule_has_graphs_of_each_of_its_query_lengths():
    schedule = replace(EAGLE3, num_speculative_tokens_per_batch_size=[[1, 4, 3], [5, 1024, 1]])
    dense_s = step_arrays(BUNDLE, engine(), schedule).dense_s
    is_full = [bool((dense_s[query, 1:513] < dense_s[0, 1:513]).all()) for query in range(1, 5)]
    assert is_full == [False, True, False, True]


def test_piecewise_only_runs_everything_as_a_mixed_batch():
    dense_s = step_arrays(BUNDLE, engine(cudagraph_mode=CudagraphMode.PIECEWISE), EAGLE3).dense_s
    assert (dense_s[:-1] == dense_s[0]).all()


def test_without_a_graph_nothing_is_padded():
    """The last row, for ranks in lockstep where one has no graph: kernels of the tokens, and overhead."""
    dense_s = step_arrays(BUNDLE, engine(), NONE).dense_s
    overhead_s = BUNDLE.parameters["eager_overhead_s"].value
    assert dense_s[-1][121] == pytest.approx(kernels_s(121) + GAP_S + overhead_s)
    assert dense_s[-1][513:].tolist() == dense_s[0][513:].tolist()
    eager_s = step_arrays(BUNDLE, eager(), NONE).dense_s
    assert (eager_s == eager_s[-1]).all()
    assert step_arrays(BUNDLE, eager(), NONE).captured_tokens == 0


def test_without_graphs_the_cpu_bounds_small_steps_and_the_gpu_large_ones():
    dense_s = step_arrays(BUNDLE, eager(), NONE).dense_s[1]
    assert dense_s[1] == dense_s[512] == pytest.approx(32 * 800e-6)
    assert dense_s[8192] == pytest.approx(kernels_s(8192) + GAP_S)


def test_the_first_pass_waits_for_the_verdict_and_each_pass_for_its_launches():
    """One request at K = 3: prepare_s + pass_launch_s, then pass_launch_s (C2)."""
    arrays = step_arrays(BUNDLE, engine(), EAGLE3)
    assert arrays.draft_first_s[4] == pytest.approx(1.28e-3 + 1.02e-3)
    assert arrays.draft_more_s[:, 1] == pytest.approx([0.0, 0.0, 1.02e-3, 2 * 1.02e-3])
    assert arrays.draft_first_s[8192] > 5e-3  # prefill: a layer and fc over all tokens


def test_the_drafter_attends_to_prefills_too():
    with_drafter = step_arrays(BUNDLE, engine(), EAGLE3).prefill_attention_s
    alone = step_arrays(BUNDLE, engine(), NONE).prefill_attention_s
    np.testing.assert_allclose(with_drafter, alone * 33 / 32)


def test_a_drafter_is_free_only_when_asked_for():
    arrays = step_arrays(BUNDLE, engine(), replace(EAGLE3, draft_cost=DraftCost.zero))
    assert not arrays.draft_first_s.any()
    assert not arrays.draft_more_s.any()
    assert not arrays.draft_kv_s.any()
    lacking = replace(BUNDLE, drafters={"eagle": BUNDLE.drafters["eagle"]})
    with pytest.raises(UserError, match=r"cost of the drafter, but got eagle3; it has eagle \(speculation"):
        step_arrays(lacking, engine(), EAGLE3)


def test_without_speculation_the_drafter_costs_nothing():
    arrays = step_arrays(BUNDLE, engine(), NONE)
    assert not arrays.draft_first_s.any()
    assert arrays.decode_attention_s.shape[0] == 2


def test_an_unmeasured_query_length_takes_the_nearest_and_says_so():
    arrays = step_arrays(BUNDLE, engine(), replace(EAGLE3, method=Method.eagle, num_speculative_tokens=18))
    assert np.array_equal(arrays.decode_attention_s[19], arrays.decode_attention_s[17])
    assert len(arrays.warnings) == 1
    assert "no attention with 18, 19 query tokens" in arrays.warnings[0]


def test_the_users_host_overhead_takes_the_place_of_the_bundles():
    assert step_arrays(BUNDLE, engine(), NONE).host_s == pytest.approx(1.207e-3)
    assert step_arrays(BUNDLE, engine(host_overhead_s=0.0), NONE).host_s == 0.0


MOE = compose(["model=qwen3-30b-a3b", "hardware=h100", "speculation=none"])
SPARSE = roofline.build(MOE.model, MOE.hardware, Parallel(1))
TWO = Ranks(data_parallel_size=2, enable_expert_parallel=True)


def test_in_a_graph_the_experts_of_ranks_in_lockstep_see_every_rank_padded():
    """9 tokens on the larger of two: both run 16, the experts 32 (vLLM: v1/worker/gpu/dp_utils.py)."""
    dense_s = step_arrays(SPARSE, engine(), NONE, TWO).dense_s[1]
    alone = np.interp(16, SPARSE.tables["dense"].axes["tokens"], SPARSE.tables["dense"].time_s)
    assert dense_s[9] == dense_s[16] == pytest.approx(alone + experts_s(SPARSE, np.array([32]), TWO)[0])


def test_without_a_graph_the_experts_of_ranks_in_lockstep_see_the_tokens_of_all():
    arrays = step_arrays(SPARSE, engine(), NONE, TWO)
    assert arrays.experts_s.shape == (2 * 8192 + 1,)
    assert arrays.experts_s[700] == pytest.approx(experts_s(SPARSE, np.array([700]), TWO)[0])
    one = step_arrays(SPARSE, engine(), NONE)
    assert one.experts_s.tolist() == [0.0]
    apart_s = arrays.dense_s[-1][8192] + experts_s(SPARSE, np.array([8192]), Ranks())[0]
    assert apart_s == pytest.approx(one.dense_s[-1][8192])


def test_the_cpu_bound_of_a_piecewise_step_covers_its_experts():
    launch_s = 48 * SPARSE.parameters["piecewise_layer_launch_s"].value
    assert step_arrays(SPARSE, engine(), NONE, TWO).dense_s[0][1] == pytest.approx(launch_s)
