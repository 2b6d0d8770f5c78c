"""Layers of linear attention: Qwen3-Next, 36 of 48 layers, 32 value heads and 16 key heads of 128."""

from dataclasses import replace

import numpy as np
import pytest
from example_bundle import CONFIG, NONE, engine

from cluster_sim.bundle.architecture import Parallel, kv_layers, linear_layers
from cluster_sim.bundle.kernels import Kernels
from cluster_sim.bundle.linear_attention import decode_s, page_bytes, prefill_s, state_bytes
from cluster_sim.bundle.memory import MemoryBreakdown, breakdown, target_weights_bytes
from cluster_sim.bundle.roofline import build
from cluster_sim.check_model import check_model
from cluster_sim.compose import compose
from cluster_sim.config import Method, ModelConfig
from cluster_sim.errors import UserError
from cluster_sim.speculation.proposer import drafter_of

NEXT: ModelConfig = compose(["model=qwen3-next-80b-a3b", "speculation=none"]).model
H200 = compose(["hardware=h200", "speculation=none"]).hardware
ALONE, FOUR = Parallel(), Parallel(4)
MTP = replace(CONFIG.speculation, method=Method.mtp)
CONV, STATE = 2 * 16 * 128 + 32 * 128, 32 * 128 * 128


def memory(drafts: int, seats: int = 64, **flags: object) -> MemoryBreakdown:
    speculation = replace(MTP, num_speculative_tokens=drafts) if drafts else NONE
    return breakdown(NEXT, H200, engine(max_num_seqs=seats, **flags), FOUR, speculation)


def test_three_of_four_layers_are_linear_and_the_others_keep_kv():
    assert (linear_layers(NEXT), kv_layers(NEXT)) == (36, 12)
    assert (linear_layers(CONFIG.model), kv_layers(CONFIG.model)) == (0, 32)
    assert memory(0).target_kv_bytes_per_block == 16 * 12 * 2 * 1 * 256 * 2


def test_weights_are_those_of_the_checkpoint_but_norms_and_gates():
    """79,674,391,296 without the MTP module (Qwen/Qwen3-Coder-Next, the same shapes).

    Left out: gates of the shared expert, norms of heads, decay and step of linear heads.
    """
    rotary, norms = 262_144 * 256, 97 * 2048
    counted = target_weights_bytes(NEXT, ALONE) // 2 - rotary
    left_out = 48 * 2048 + 12 * 2 * 256 + 36 * (2 * 32 + 128)
    assert counted + left_out == 79_674_391_296
    assert norms < counted


@pytest.mark.parametrize("drafts", [0, 1, 4])
def test_a_page_holds_the_state_and_convolution_inputs_that_are_wider_by_the_drafts(drafts):
    """gated_delta_net_state_shape: conv_dim x (kernel - 1 + num_spec), heads x value x key; bfloat16."""
    assert page_bytes(NEXT, ALONE, drafts) == 2 * (CONV * (3 + drafts) + STATE)
    assert page_bytes(NEXT, FOUR, drafts) == page_bytes(NEXT, ALONE, drafts) / 4


@pytest.mark.parametrize("drafts", [0, 1, 4])
def test_a_request_has_a_page_of_each_draft_and_layer_and_one_of_its_prefix(drafts):
    """MambaSpec.max_memory_usage_bytes: 1 + num_speculative_blocks, and 2 + of mode align."""
    page = page_bytes(NEXT, ALONE, drafts)
    assert state_bytes(NEXT, ALONE, drafts, caches_prefixes=False) == 36 * (1 + drafts) * page
    assert state_bytes(NEXT, ALONE, drafts, caches_prefixes=True) == 36 * (2 + drafts) * page
    assert state_bytes(CONFIG.model, ALONE, drafts, caches_prefixes=True) == 0


def test_states_of_all_that_may_run_are_set_aside_and_drafts_leave_less_kv():
    """The pressure of recurrent states under speculation: blocks fall with K, beyond the drafter's own."""
    off, one, four = (memory(drafts, enable_prefix_caching=False) for drafts in (0, 1, 4))
    assert off.state_bytes == 64 * 36 * page_bytes(NEXT, FOUR, 0)
    assert four.state_bytes == 64 * 36 * 5 * page_bytes(NEXT, FOUR, 4)
    assert off.num_gpu_blocks > one.num_gpu_blocks > four.num_gpu_blocks
    parts = four.as_dict()
    whole = sum(size for name, size in parts.items() if name.endswith("_bytes") and name != "device_bytes")
    assert whole == parts["device_bytes"]


def test_a_module_of_a_hybrid_model_attends_to_tokens_and_keeps_kv():
    module = drafter_of(Method.mtp, NEXT, ALONE)
    assert module is not None
    assert linear_layers(module.model) == 0
    assert module.kv_bytes_per_token == 2 * 2 * 256 * 2
    eagle3 = drafter_of(Method.eagle3, NEXT, ALONE)
    assert eagle3 is not None
    assert linear_layers(eagle3.model) == 0


def test_a_hybrid_draft_model_is_refused():
    said = "a draft model must attend to tokens in all of its layers; others have no costs so far, but got 36"
    with pytest.raises(UserError, match=said):
        drafter_of(Method.draft_model, NEXT, ALONE, NEXT)


def test_a_decode_reads_its_state_once_and_writes_it_after_every_token():
    """(1 + q) x 36 layers x 1 MiB at the bandwidth of decode attention."""
    kernels = Kernels(NEXT, H200, ALONE)
    moved = 36 * 2 * STATE
    per_byte_s = 1.0 / (H200.decode_attention.memory_efficiency * H200.hbm_gb_per_s * 1e9)
    for queries in (1, 2, 5):
        assert decode_s(kernels, queries) == pytest.approx((1 + queries) * moved * per_byte_s)


def test_a_prefill_takes_time_by_the_token_whatever_came_before():
    kernels = Kernels(NEXT, H200, ALONE)
    one, thousand = prefill_s(kernels, np.array([1, 1000]))
    assert thousand == pytest.approx(1000 * one)
    table = build(NEXT, H200, FOUR).tables["prefill_attention"]
    plain = build(replace(NEXT, full_attention_interval=0), H200, FOUR).tables["prefill_attention"]
    assert (np.diff(table.time_s, axis=1).max()) < np.diff(plain.time_s, axis=1).max() / 3.9


def test_decodes_of_long_contexts_cost_a_quarter_beyond_the_state():
    """12 of 48 layers read KV; without KV there is the state alone."""
    table = build(NEXT, H200, FOUR).tables["decode_attention"]
    plain = build(replace(NEXT, full_attention_interval=0), H200, FOUR).tables["decode_attention"]
    grows, grew = (one.time_s[0, 0, -1, -1] - one.time_s[0, 0, -1, 0] for one in (table, plain))
    assert grows == pytest.approx(grew / 4)
    assert plain.time_s[0, 0, -1, 0] == 0
    states_s = decode_s(Kernels(NEXT, H200, FOUR), 1) * table.axes["requests"][-1]
    assert table.time_s[0, 0, -1, 0] == pytest.approx(states_s)


@pytest.mark.parametrize(
    ("changes", "gpus", "said"),
    [
        (
            {"linear_num_key_heads": 0},
            1,
            "linear attention (full_attention_interval above 1) needs linear_num_key_heads, but got 0 "
            "(model.linear_num_key_heads). See its config.json.",
        ),
        (
            {"full_attention_interval": 0},
            1,
            "linear_num_key_heads has no effect with full_attention_interval 0, but got 16 "
            "(model.linear_num_key_heads). Leave it out.",
        ),
        (
            {"linear_num_key_heads": 6},
            4,
            "tensor parallelism must divide linear_num_key_heads, but got 6 heads on 4 GPUs "
            "(cluster.tensor_parallel_size). Use a divisor of 6.",
        ),
        (
            {"sliding_window": 128, "sliding_window_layers": 2},
            1,
            "sliding_window has no effect with linear attention, but got 128 (model.sliding_window). Leave "
            "it out.",
        ),
    ],
)
def test_sizes_that_contradict_each_other_are_refused(changes, gpus, said):
    with pytest.raises(UserError) as refused:
        check_model(replace(NEXT, **changes), gpus)
    assert str(refused.value) == said


def test_the_shapes_as_published_pass():
    check_model(NEXT, 4)
