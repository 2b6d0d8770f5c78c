"""Kernels from first principles: bytes over bandwidth, FLOPs over the peak, whichever takes longer.

H100: 989 TFLOP/s in bfloat16, 3.35 TB/s. C8 is of ../shared/spec-decode-facts.md.
"""

from dataclasses import replace

import numpy as np
import pytest
from example_bundle import CONFIG

from cluster_sim.bundle.architecture import (
    Experts,
    Gemm,
    Parallel,
    attention_gemms,
    experts,
    kv_bytes_per_token,
    lm_head,
    mlp_gemms,
)
from cluster_sim.bundle.kernels import Kernels, active_experts, attended
from cluster_sim.compose import compose
from cluster_sim.config import ModelConfig, Quantization, Roofline
from cluster_sim.errors import UserError

MODEL, H100 = CONFIG.model, CONFIG.hardware
ALONE = Parallel()
ONE = np.array([1])


def model(name: str) -> ModelConfig:
    return compose([f"model={name}"]).model


def kernels(of: ModelConfig = MODEL, gpus: int = 1) -> Kernels:
    return Kernels(of, H100, Parallel(gpus))


def without_floors() -> Kernels:
    """Kernels of a GPU that launches in no time."""
    free = {
        name: replace(getattr(H100, name), launch_floor_us=0.0)
        for name in ("gemm_bf16", "gemm_fp8", "moe_bf16", "prefill_attention", "all_reduce_tp2")
    }
    return Kernels(MODEL, replace(H100, **free), Parallel(2))


def test_a_gemm_of_one_row_reads_its_weights_at_the_fitted_bandwidth():
    weights_bytes = 2 * 8192 * 28672
    took = without_floors().gemm_s(Gemm(8192, 28672), ONE)[0]
    assert took == pytest.approx(weights_bytes / (0.875 * 3.35e12), rel=0.001)


def test_the_knee_sits_at_peak_over_bandwidth():
    """A GEMM's terms meet at peak / bandwidth tokens (1 FLOP per byte each): 295, x 0.93 for efficiencies."""
    knee = int(989e12 * 0.813 / (3.35e12 * 0.875))
    wide = Gemm(2**16, 2**16)  # activations do not count
    at_one, at_knee, beyond = kernels().gemm_s(wide, np.array([1, knee, 8 * knee]))
    assert knee == 274
    assert at_knee / at_one == pytest.approx(2 ** (1 / 3.11), rel=0.02)  # both terms alike in a p-norm
    assert beyond / at_one == pytest.approx(8, rel=0.05)


def test_fp8_weights_are_half_the_bytes():
    half, whole = (without_floors().gemm_s(Gemm(8192, 28672, size), ONE)[0] for size in (1.0, 2.0))
    assert half / whole == pytest.approx(0.5 * 0.875 / 0.872, rel=0.02)  # 0.872: memory efficiency in fp8


def test_fp8_on_a_card_without_it_is_refused():
    without = Kernels(MODEL, replace(H100, gemm_fp8=None), ALONE)
    with pytest.raises(UserError, match=r"must have fp8 .*, but got h100 without \(model.quantization\)"):
        without.gemm_s(Gemm(4096, 4096, 1.0), ONE)
    with pytest.raises(UserError, match="must have fp8"):
        without.experts_s(Experts(8, 2, 8, (Gemm(4096, 4096, 1.0),)), ONE, ONE)


def test_a_compute_term_without_its_parameters_is_refused():
    unfitted = Kernels(MODEL, replace(H100, gemm_bf16=Roofline(3.77, None, 0.875, None)), ALONE)
    with pytest.raises(UserError, match="need compute_efficiency and smooth_p, but got null"):
        unfitted.gemm_s(Gemm(4096, 4096), ONE)


@pytest.mark.parametrize("gpus", [2, 4, 8])
def test_tensor_parallelism_shares_weights_heads_and_kv(gpus):
    def weights_bytes(parallel: Parallel) -> float:
        layer = (*attention_gemms(MODEL, parallel), *mlp_gemms(MODEL, parallel, MODEL.intermediate_size))
        return sum(gemm.weights_bytes for gemm in (*layer, lm_head(MODEL, parallel)))

    assert weights_bytes(Parallel(gpus)) == weights_bytes(ALONE) / gpus
    assert kernels(gpus=gpus).kv_read_s(1e6, 32) == pytest.approx(kernels().kv_read_s(1e6, 32) / gpus)


def test_an_all_reduce_moves_twice_the_bytes_less_its_own_share():
    """Floor + 2 B (n - 1) / n / (0.505 x 450 GB/s); B = tokens x 4096 x 2 bytes, n = 2."""
    tokens = np.array([1, 8192])
    expected = 2 * tokens * 8192 * 0.5 / (0.505 * 450e9)
    np.testing.assert_allclose(without_floors().all_reduce_s(tokens), expected)
    assert kernels().all_reduce_s(tokens).tolist() == [0, 0]


def test_an_all_reduce_that_the_hardware_has_not_is_refused():
    lonely = Kernels(MODEL, replace(H100, all_reduce_tp4=None), Parallel(4))
    with pytest.raises(UserError, match=r"but got 4; it has 1, 2, 8 \(cluster.tensor_parallel_size\)"):
        lonely.all_reduce_s(ONE)


def test_logits_are_gathered_from_all_gpus():
    """The head does 1 / n of the product, then moves (n - 1) / n of a row of logits."""
    rows = np.array([100_000])
    alone, shared = (kernels(gpus=gpus) for gpus in (1, 2))
    whole_s = alone.head_s(lm_head(MODEL, ALONE), rows) - alone.gemm_s(lm_head(MODEL, ALONE), rows)
    head = lm_head(MODEL, Parallel(2))
    half_s = shared.head_s(head, rows) - shared.gemm_s(head, rows)
    gathered_bytes = 100_000 * 128_256 * 2 / 2
    assert (half_s - whole_s)[0] == pytest.approx(gathered_bytes / (0.505 * 450e9), rel=0.001)


@pytest.mark.parametrize(
    ("per_token", "in_all", "distinct"),
    [
        (8, 128, {1: 8, 2: 15.5, 4: 29.1, 8: 51.6, 16: 82.4, 32: 111.8, 64: 125.9}),
        (8, 256, {1: 8, 2: 15.8, 4: 30.5, 8: 57.4, 16: 102, 32: 163, 64: 222}),
        (2, 8, {1: 2, 2: 3.5, 4: 5.5, 8: 7.2, 16: 7.9, 32: 8}),
    ],
)
def test_independent_tokens_touch_as_many_experts_as_expected(per_token, in_all, distinct):
    """C8: E (1 - (1 - k / E)^t)."""
    layer = Experts(in_all, per_token, in_all, ())
    assert active_experts(np.array(list(distinct)), layer) == pytest.approx(
        list(distinct.values()), rel=5e-3, abs=0.05
    )


def test_correlated_tokens_touch_fewer_experts_and_one_token_as_many():
    layer, tokens = Experts(128, 8, 128, ()), np.array([1, 2, 64])
    independent, correlated = active_experts(tokens, layer), active_experts(tokens, layer, 0.9)
    assert correlated[0] == pytest.approx(8)
    assert (correlated[1:] < independent[1:]).all()


def test_an_expert_parallel_gpu_has_its_share_of_the_active_experts():
    qwen = model("qwen3-30b-a3b")
    whole, share = experts(qwen, ALONE), experts(qwen, Parallel(1, 2))
    assert share.on_gpu == whole.on_gpu / 2
    assert active_experts(ONE, share) == active_experts(ONE, whole) / 2


def test_experts_of_few_tokens_are_bound_by_the_bytes_of_those_active():
    qwen = model("qwen3-30b-a3b")
    layer = experts(qwen, ALONE)
    one, eight = kernels(qwen).experts_s(layer, ONE, np.array([1, 8]))
    expert_bytes = 3 * 2048 * 768 * 2
    assert eight - one == pytest.approx(7 * expert_bytes / (0.879 * 3.35e12), rel=0.001)


def test_experts_of_many_tokens_are_bound_by_compute():
    qwen = model("qwen3-30b-a3b")
    took = kernels(qwen).experts_s(experts(qwen, ALONE), np.array([2**17]), np.array([128]))[0]
    assert took == pytest.approx(2 * 3 * 2048 * 768 * 8 * 2**17 / (0.304 * 989e12), rel=0.02)


def test_4_bit_experts_move_a_quarter_of_the_bytes_and_a_scale():
    four_bit = experts(model("gpt-oss-120b"), ALONE)
    sixteen_bit = experts(replace(model("gpt-oss-120b"), quantization=Quantization.none), ALONE)
    assert four_bit.weights_bytes / sixteen_bit.weights_bytes == pytest.approx((4 + 8 / 32) / 16)


def test_mla_caches_576_values_a_token_on_every_gpu():
    deepseek = model("deepseek-v3")
    for gpus in (1, 8):
        assert kv_bytes_per_token(deepseek, Parallel(gpus), 1) == 576 * 2


def test_mla_decode_is_bound_by_compute_with_all_heads_and_by_memory_with_few():
    """128 heads: 2 x 128 x 1,088 FLOPs on 1,152 bytes are 242 FLOP/B; 16 heads are 30, the ridge is 295."""
    deepseek, kv_tokens = model("deepseek-v3"), 1e6
    compute_s = 2 * 128 * (2 * 512 + 64) * kv_tokens / (0.552 * 989e12)
    memory_s = 1152 * kv_tokens / (0.873 * 3.35e12)
    expected = (compute_s**3 + memory_s**3) ** (1 / 3)
    assert kernels(deepseek).kv_read_s(kv_tokens, 1) == pytest.approx(expected)
    assert kernels(deepseek, 8).kv_read_s(kv_tokens, 1) == pytest.approx(memory_s, rel=0.01)


def test_mla_prefill_multiplies_full_heads():
    """128 heads of 192 (key) and 128 (value): 2 x 128 x 320 x c^2 / 2 FLOPs."""
    deepseek = model("deepseek-v3")
    took = kernels(deepseek).prefill_attention_s(np.array([2**15]), np.array([0]))[0]
    assert took == pytest.approx(128 * 320 * 2**30 / (0.552 * 989e12), rel=0.02)


def test_mla_prefill_makes_keys_and_values_of_its_history_again():
    """512 x 128 heads x (128 + 128) weights on every token of the history, at a GEMM's share of the peak."""
    deepseek, short = model("deepseek-v3"), np.array([1])
    none, after = kernels(deepseek).prefill_attention_s(short, np.array([0, 2**17]))
    assert after - none > 2 * 512 * 128 * 256 * 2**17 / (0.813 * 989e12)


@pytest.mark.parametrize(
    ("chunk", "history", "window", "pairs"),
    [
        (100, 0, 0, 100 * 50),
        (100, 1000, 0, 100 * 1050),
        (100, 0, 200, 100 * 50),  # the window holds all
        (100, 1000, 200, 100 * 200),  # every token sees a whole window
        (300, 0, 200, 200 * 100 + 100 * 200),  # a triangle, then whole windows
    ],
)
def test_a_token_attends_to_what_came_before_it_within_its_window(chunk, history, window, pairs):
    assert attended(np.array([chunk]), np.array([history]), window)[0] == pairs
    seen = [min(history + token + 0.5, window or np.inf) for token in range(chunk)]
    assert sum(seen) == pytest.approx(pairs, abs=0.5)
