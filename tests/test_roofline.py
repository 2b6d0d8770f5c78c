"""The roofline from first principles, and against what was measured (../shared/spec-decode-facts.md).

Llama-3.1-8B on H100: 989 TFLOP/s and 3.35 TB/s. Equation numbers C1, C2 and A1 are of that file.
"""

from dataclasses import replace

import numpy as np
import pytest
from example_bundle import BUNDLE, CONFIG, NONE, engine

from cluster_sim.bundle import roofline
from cluster_sim.config import Method
from cluster_sim.errors import UserError
from cluster_sim.speculation.proposer import Gemm, drafter_of, kv_bytes_per_token, layer_gemms
from cluster_sim.step_tables import StepArrays, step_arrays

MODEL, H100 = CONFIG.model, CONFIG.hardware
STREAMED_BYTES = 2 * (
    32 * 218_103_808 + 128_256 * 4096
)  # weights of all layers and the lm_head, read in every step
KV_TOKENS = 180  # mean context of the runs behind A1 and C1


def interpolated(table: str, at: float, row: int | None = None) -> float:
    grid = BUNDLE.tables[table]
    axis = list(grid.axes.values())[-1]
    return float(np.interp(at, axis, grid.time_s if row is None else grid.time_s[row]))


def verify_s(arrays: StepArrays, requests: int, query: int, kv_tokens: float) -> float:
    """Target time of a uniform decode batch: `query` tokens for each request."""
    share = requests / arrays.decode_requests[1] * kv_tokens / arrays.decode_kv_tokens[1]  # bilinear from 0
    attention_s = share * arrays.decode_attention_s[query, 0, 1, 1]
    tokens = requests * query
    return float(arrays.dense_s[query, tokens] + arrays.head_s[tokens] + attention_s)


def tpot_ms(method: str, drafts: int, acceptance_length: float) -> float:
    """One request, synchronous scheduling: (target + drafter + host) / AL."""
    speculation = replace(CONFIG.speculation, method=Method[method], num_speculative_tokens=drafts)
    arrays = step_arrays(BUNDLE, engine(), speculation)
    first_s, next_s = arrays.draft_first_s[1 + drafts], arrays.draft_next_s[1]
    attention_s = drafts * KV_TOKENS * arrays.draft_attention_s_per_kv_token
    draft_s = first_s + (drafts - 1) * next_s + attention_s
    step_s = verify_s(arrays, 1, 1 + drafts, KV_TOKENS) + draft_s + arrays.host_s
    return 1e3 * float(step_s) / acceptance_length


def test_layer_weights_are_those_of_the_architecture():
    assert sum(gemm.weights for gemm in layer_gemms(MODEL, 4096)) == 218_103_808
    assert kv_bytes_per_token(MODEL, 32) == 131_072  # 2 x 32 layers x 8 heads x 128 x 2 bytes


def test_decode_of_one_request_reads_the_weights_at_the_fitted_bandwidth():
    """The bound is bytes / (0.875 x 3.35 TB/s) = 5.13 ms; floors of 291 kernels add less than a fifth."""
    bound_s = STREAMED_BYTES / (0.875 * 3.35e12)
    step_s = interpolated("dense", 1) + interpolated("head", 1)
    assert bound_s < step_s < 1.2 * bound_s


def test_prefill_is_bound_by_compute():
    """8,192 tokens: 2 x weights x tokens / (0.813 x 989 TFLOP/s) and at most a tenth more."""
    bound_s = 2 * 32 * 218_103_808 * 8192 / (0.813 * 989e12)
    assert bound_s < interpolated("dense", 8192) < 1.15 * bound_s


def test_the_knee_sits_at_peak_over_bandwidth():
    """A GEMM's terms meet at peak / bandwidth tokens (1 FLOP per byte each): 295, x 0.93 for efficiencies."""
    knee = int(989e12 * 0.813 / (3.35e12 * 0.875))
    kernels = roofline.Kernels(MODEL, H100)
    wide = Gemm(2**16, 2**16)  # activations do not count
    at_one, at_knee, beyond = kernels.gemm_s(wide, np.array([1, knee, 8 * knee]))
    assert knee == 274
    assert at_knee / at_one == pytest.approx(2 ** (1 / 3.11), rel=0.02)  # both terms alike in a p-norm
    assert beyond / at_one == pytest.approx(8, rel=0.05)


def test_times_never_fall_with_more_work():
    for name, table in BUNDLE.tables.items():
        for axis in range(table.time_s.ndim):
            if list(table.axes)[axis] != "drafter":
                assert (np.diff(table.time_s, axis=axis) >= 0).all(), name


def test_verify_attention_lies_between_one_kv_read_and_one_a_query():
    table = BUNDLE.tables["decode_attention"]
    reads = table.time_s[:, 0, 1, 1] / table.time_s[0, 0, 1, 1]
    queries = table.axes["query_tokens"]
    assert (reads[1:] > 1).all()
    assert (reads[1:] < queries[1:]).all()
    assert reads[4] == pytest.approx(1 + 0.12 * 4)


def test_causal_prefill_attention_is_halved():
    """FLOPs of c tokens after h: 4 x heads x dim x c x (h + c / 2); c after c costs 3 times c after 0."""
    kernels = roofline.Kernels(MODEL, H100)
    none, same = kernels.prefill_attention_s(np.array([16384]), np.array([0, 16384]))
    assert same / none == pytest.approx(3, rel=0.01)
    flops = 32 * 2 * 4096 * 16384**2
    assert none == pytest.approx(flops / (0.552 * 989e12), rel=0.02)


def test_tensor_parallelism_is_refused_until_it_has_a_cost():
    with pytest.raises(UserError, match=r"all-reduce has no cost yet\), but got 2"):
        roofline.build(MODEL, H100, 2)


def test_eagle_weighs_a_layer_and_its_fc_and_eagle3_its_own_head_too():
    eagle, eagle3 = drafter_of(Method.eagle, MODEL), drafter_of(Method.eagle3, MODEL)
    assert eagle is not None
    assert eagle3 is not None
    assert drafter_of(Method.none, MODEL) is None
    assert eagle.weights_bytes == 2 * (8192 * 4096 + 218_103_808)
    wider = 4096 * 6144  # attention reads embedding and hidden state
    assert eagle3.weights_bytes == 2 * (12288 * 4096 + 218_103_808 + wider + 4096 * 32000)


def test_vanilla_tpot_of_one_request_is_that_measured():
    """A1 row 1: 7.07 ms. Here kernels take 6.1 ms and the host 1.2, not hidden in synchronous runs."""
    arrays = step_arrays(BUNDLE, engine(), NONE)
    assert 1e3 * (verify_s(arrays, 1, 1, KV_TOKENS) + arrays.host_s) == pytest.approx(7.07, rel=0.05)


MEASURED = {  # A1 row 1: (K, acceptance length, TPOT in ms), MT-Bench, one request
    "eagle": [
        (2, 2.10, 4.37),
        (3, 2.29, 4.29),
        (4, 2.39, 4.48),
        (5, 2.43, 4.71),
        (6, 2.45, 4.94),
        (7, 2.47, 5.20),
    ],
    "eagle3": [
        (2, 2.36, 4.32),
        (3, 2.79, 4.09),
        (4, 3.08, 4.05),
        (5, 3.32, 4.13),
        (6, 3.46, 4.20),
        (7, 3.54, 4.29),
    ],
}


@pytest.mark.parametrize(("method", "best"), [("eagle", 3), ("eagle3", 4)])
def test_tpot_with_drafts_is_that_measured_and_the_best_draft_length_the_same(method, best):
    simulated = {drafts: tpot_ms(method, drafts, length) for drafts, length, _ in MEASURED[method]}
    assert min(simulated, key=lambda drafts: simulated[drafts]) == best
    for drafts, _, measured in MEASURED[method]:
        assert simulated[drafts] == pytest.approx(measured, rel=0.05)


@pytest.mark.parametrize(("kv_tokens", "largest"), [(KV_TOKENS, 64), (512, 256), (1024, 256)])
def test_target_steps_follow_the_line_fitted_to_measurements(kv_tokens, largest):
    """C1, fitted at 1 to 64 requests: 5.886 ms + 21.01 us a token + 39.26 ns a KV token, within 15 %.

    At short contexts the roofline falls below the line beyond its range (18 % at 128, 22 % at 256 requests):
    the line adds the whole compute time to the whole memory time, a GEMM overlaps the two.
    """
    arrays = step_arrays(BUNDLE, engine(), NONE)
    for requests in (1, 2, 4, 8, 16, 32, 64, 128, 256):
        if requests <= largest:
            line_s = 5.88590713e-3 + 2.10103129e-5 * requests + 3.92645679e-8 * requests * kv_tokens
            assert verify_s(arrays, requests, 1, kv_tokens) == pytest.approx(line_s, rel=0.15)
