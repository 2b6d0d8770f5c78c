"""What a GPU's memory leaves for KV. Llama-3.1-8B in bfloat16: 8,030,261,248 weights, 128 KiB KV a token."""

from dataclasses import replace

import pytest
from example_bundle import CONFIG, NONE, engine

from cluster_sim.bundle.memory import activations_bytes, breakdown, target_weights_bytes
from cluster_sim.config import SpeculationConfig
from cluster_sim.errors import UserError

MODEL, H100, EAGLE3 = CONFIG.model, CONFIG.hardware, CONFIG.speculation


def memory(speculation: SpeculationConfig = NONE, **changes: object):
    return breakdown(MODEL, H100, engine(**changes), 1, speculation)


def test_weights_are_those_of_the_checkpoint():
    assert target_weights_bytes(MODEL, 1) == 2 * 8_030_261_248  # parameters on the model card
    tied = replace(MODEL, tie_word_embeddings=True)
    assert target_weights_bytes(MODEL, 1) - target_weights_bytes(tied, 1) == 2 * 128_256 * 4096


def test_the_parts_are_the_budget():
    """gpu_memory_utilization x device = weights + drafter + activations + runtime + KV."""
    for speculation in (NONE, EAGLE3):
        parts = memory(speculation)
        used = parts.target_weights_bytes + parts.drafter_weights_bytes + parts.activations_bytes
        assert used + parts.runtime_bytes + parts.kv_bytes == parts.budget_bytes
        assert parts.budget_bytes == int(0.92 * 80 * 2**30)
        per_block = parts.target_kv_bytes_per_block + parts.drafter_kv_bytes_per_block
        assert parts.num_gpu_blocks == parts.kv_bytes // per_block


def test_a_block_holds_keys_and_values_of_all_layers():
    parts = memory(EAGLE3)
    assert parts.target_kv_bytes_per_block == 16 * 131_072
    assert parts.drafter_kv_bytes_per_block == 16 * 131_072 // 32  # one layer
    assert memory(EAGLE3, block_size=32).target_kv_bytes_per_block == 32 * 131_072


def test_activations_are_the_larger_of_a_layer_and_the_sampler():
    """8,192 tokens x (2 hidden + 3 intermediate) x 2 bytes; 1,024 logits x 10 bytes + hidden states."""
    wide = engine(max_num_batched_tokens=65536)
    assert activations_bytes(MODEL, wide, 1) == 65536 * (2 * 4096 + 3 * 14336) * 2
    assert activations_bytes(MODEL, engine(), 1) == 1024 * 128_256 * 10 + 8192 * 4096 * 2


def test_a_drafter_leaves_fewer_blocks():
    assert memory(EAGLE3).num_gpu_blocks < memory().num_gpu_blocks
    assert memory(EAGLE3).drafter_weights_bytes > 0


def test_blocks_that_the_user_gives_take_the_place_of_the_derived_ones():
    assert memory(num_gpu_blocks=100).num_gpu_blocks == 100


def test_a_model_that_does_not_fit_is_refused_with_the_numbers():
    said = (
        "2[0-9].[0-9] GiB of llama-3.1-8b's budget on small, but got weights 15.0, drafter 0.0, activations"
    )
    small = replace(H100, name="small", memory_gib=22.0)
    with pytest.raises(UserError, match=said):
        breakdown(MODEL, small, engine(gpu_memory_utilization=0.92, max_num_batched_tokens=65536), 1, NONE)


def test_every_part_is_reported_by_name():
    assert memory().as_dict()["runtime_bytes"] == 3_500_000_000
