"""Drafters as architectures: weights, KV and shapes of published heads.

C7 is of ../shared/spec-decode-facts.md. Published sizes are those of files on Hugging Face,
published shapes those in the configs of github.com/sgl-project/SpecForge.
"""

from dataclasses import replace
from enum import Enum

import pytest
from example_bundle import CONFIG

from cluster_sim.bundle.architecture import Parallel, kv_bytes_per_token, lm_head
from cluster_sim.compose import compose
from cluster_sim.config import Method, ModelConfig
from cluster_sim.errors import UserError
from cluster_sim.speculation.proposer import Drafter, drafter_of, drafter_of_model, drafters_of

MODEL = CONFIG.model
ALONE = Parallel()


def model(name: str) -> ModelConfig:
    return compose([f"model={name}"]).model


DEEPSEEK = model("deepseek-v3")
QWEN_8B, QWEN_SMALL = model("qwen3-8b"), model("qwen3-0.6b")
LLAMA_70B, LLAMA_1B = model("llama-3.1-70b"), model("llama-3.2-1b")


class Word(Enum):
    """Words of speculation.method."""

    mtp = "mtp"
    draft_model = "draft_model"


def weights(drafter: Drafter) -> int:
    """Number of weights of an mtp drafter."""
    (layer,) = drafter.layers
    assert layer.experts is not None
    routed = layer.experts.on_gpu * sum(gemm.weights for gemm in layer.experts.gemms)
    return routed + sum(gemm.weights for gemm in (*layer.gemms, *drafter.joins))


@pytest.mark.parametrize(("target", "file_gb"), [(MODEL, 1.55), (LLAMA_70B, 4.08)])
def test_eagle_weighs_what_the_published_head_does_but_for_the_targets_embedding(target, file_gb):
    """A layer and fc: EAGLE-LLaMA3-Instruct-8B and -70B, whose files repeat the embedding."""
    embedding_bytes = 2 * target.vocab_size * target.hidden_size
    own_bytes = drafters_of(target, ALONE)["eagle"].weights_bytes
    assert own_bytes + embedding_bytes == pytest.approx(file_gb * 1e9, rel=0.004)


def test_eagle3_weighs_what_the_published_head_does():
    """EAGLE3-LLaMA3.1-Instruct-8B: 850 MB, in it norms and an int64 for each of the 32,000 tokens."""
    drafter = drafters_of(MODEL, ALONE)["eagle3"]
    attention = 8192 * (4096 + 2 * 1024) + 4096 * 4096
    assert drafter.weights_bytes == 2 * (12288 * 4096 + attention + 3 * 4096 * 14336 + 4096 * 32000)
    assert drafter.weights_bytes == pytest.approx(850e6, rel=0.002)


def test_the_module_of_deepseek_v3_has_its_published_weights():
    """11.5e9 of its own, 14e9 with the shared embedding and lm_head (README_WEIGHTS.md of DeepSeek-V3)."""
    own = weights(drafters_of(DEEPSEEK, ALONE)["mtp"])
    assert own == pytest.approx(11.5e9, rel=0.015)
    assert own + 2 * lm_head(DEEPSEEK, ALONE).weights == pytest.approx(14e9, rel=0.05)


def test_the_module_caches_the_latent_of_one_layer():
    assert drafters_of(DEEPSEEK, ALONE)["mtp"].kv_bytes_per_token == 2 * (512 + 64)


def test_two_modules_weigh_and_cache_twice_but_a_pass_uses_one():
    two = drafters_of(replace(DEEPSEEK, num_nextn_predict_layers=2), ALONE)["mtp"]
    one = drafters_of(DEEPSEEK, ALONE)["mtp"]
    assert (two.num_hidden_layers, two.layers_of_a_pass) == (2, 1)
    assert two.weights_bytes == pytest.approx(2 * one.weights_bytes, abs=1)
    assert two.kv_bytes_per_token == 2 * one.kv_bytes_per_token


@pytest.mark.parametrize(
    ("target", "heads", "kv_heads", "head_dim", "intermediate_size"),
    [
        ("llama-3.1-8b", 32, 8, 128, 14336),
        ("qwen3-32b", 64, 8, 128, 25600),
        ("qwen3-30b-a3b", 32, 4, 128, 12288),
        ("qwen3-235b-a22b", 64, 4, 128, 24576),
        ("gpt-oss-120b", 64, 8, 64, 17280),
        ("deepseek-v3", 56, 8, 128, 40960),
    ],
)
def test_eagle3_heads_are_shaped_as_published(target, heads, kv_heads, head_dim, intermediate_size):
    """One dense layer, grouped queries, whatever the target is; widths are assumed within 5 %."""
    head = drafters_of(model(target), ALONE)["eagle3"]
    shape = head.model
    assert (shape.num_attention_heads, shape.num_key_value_heads, shape.head_dim) == (
        heads,
        kv_heads,
        head_dim,
    )
    assert shape.intermediate_size == pytest.approx(intermediate_size, rel=0.05)
    assert (head.num_hidden_layers, shape.num_experts, shape.sliding_window) == (1, 0, 0)
    assert head.kv_bytes_per_token == 2 * 2 * kv_heads * head_dim


def test_a_draft_model_weighs_what_its_checkpoint_does():
    """Llama-3.2-1B: 1,235,814,400 parameters, of which norms have 33 x 2,048; its vocabulary is tied."""
    norms = 33 * 2048
    assert drafter_of_model(LLAMA_1B, ALONE).weights_bytes == 2 * (1_235_814_400 - norms)
    untied = drafter_of_model(replace(LLAMA_1B, tie_word_embeddings=False), ALONE)
    assert untied.weights_bytes == 2 * (1_235_814_400 - norms + 128_256 * 2048)


def test_a_small_draft_model_nearly_doubles_the_kv_of_a_token():
    """C7: Qwen3-0.6B for Qwen3-8B is 1.77 times, (28 + 36) / 36 layers of the same eight heads."""
    drafter = drafter_of(Method.eagle, QWEN_8B, ALONE)
    draft = drafter_of_model(QWEN_SMALL, ALONE)
    target = kv_bytes_per_token(QWEN_8B, ALONE, 36)
    assert (target + draft.kv_bytes_per_token) / target == pytest.approx(1.77, abs=0.01)
    assert drafter is not None
    assert drafter.kv_bytes_per_token / target == 1 / 36


def test_gpus_share_all_but_what_joins_the_hidden_states():
    alone, shared = drafters_of(MODEL, ALONE)["eagle"], drafters_of(MODEL, Parallel(8))["eagle"]
    joined = 2 * 8192 * 4096
    assert shared.weights_bytes - joined == (alone.weights_bytes - joined) / 8
    assert shared.kv_bytes_per_token == alone.kv_bytes_per_token / 8


def test_expert_parallelism_shares_the_experts_of_a_module():
    sliced, whole = (drafters_of(DEEPSEEK, Parallel(8, ranks))["mtp"] for ranks in (1, 8))
    assert whole.layers[0].experts is not None
    assert whole.layers[0].experts.on_gpu == 32
    assert whole.weights_bytes == pytest.approx(sliced.weights_bytes, rel=0.001)


def test_mtp_is_refused_for_a_model_without_a_module():
    said = (
        "^speculation.method=mtp needs a model with an MTP module, but got llama-3.1-8b, whose "
        r"num_nextn_predict_layers is 0 \(speculation.method\). Use eagle, eagle3, ngram, parallel, suffix"
    )
    with pytest.raises(UserError, match=said):
        drafter_of(Word.mtp, MODEL, ALONE)
    assert drafter_of(Word.mtp, DEEPSEEK, ALONE) == drafters_of(DEEPSEEK, ALONE)["mtp"]


def test_a_draft_model_must_be_given_and_speak_the_same_tokens():
    with pytest.raises(UserError, match=r"needs a model that drafts, but got none \(speculation.model"):
        drafter_of(Word.draft_model, MODEL, ALONE)
    said = "must have the 128256 tokens of llama-3.1-8b's vocabulary, but got 151936 of qwen3-0.6b"
    with pytest.raises(UserError, match=said):
        drafter_of(Word.draft_model, MODEL, ALONE, QWEN_SMALL)
    assert drafter_of(Word.draft_model, MODEL, ALONE, LLAMA_1B) == drafter_of_model(LLAMA_1B, ALONE)


def test_only_models_with_a_module_have_mtp():
    assert "mtp" not in drafters_of(MODEL, ALONE)
    assert list(drafters_of(DEEPSEEK, ALONE)) == sorted(
        ["eagle", "eagle3", "mtp", "ngram", "parallel", "suffix"]
    )
    assert drafter_of(Method.none, MODEL, ALONE) is None


def test_a_parallel_drafter_of_an_moe_target_is_dense_and_narrower_than_eagle3():
    """configs/qwen3-vl-30b-a3b-dflash: 32 heads, 4 KV heads, 6,144 wide."""
    shape = drafters_of(model("qwen3-30b-a3b"), ALONE)["parallel"].model
    assert (shape.num_attention_heads, shape.num_key_value_heads, shape.num_experts) == (32, 4, 0)
    assert (shape.num_hidden_layers, shape.intermediate_size) == (5, 6144)


def test_a_parallel_drafter_writes_kv_of_five_layers_from_hidden_states_of_five():
    drafter = drafters_of(MODEL, ALONE)["parallel"]
    joined, key_values = drafter.joins_first
    assert (joined.inputs, joined.outputs) == (5 * 4096, 4096)
    assert key_values.outputs == 5 * 2 * 8 * 128
    assert drafter.kv_bytes_per_token == 5 * 4096


def test_medusa_has_a_residual_block_and_a_vocabulary_for_each_draft_and_no_kv():
    """Section 2.1.1 of arXiv 2401.10774; 5 heads of a 7B model with 32,000 tokens add 0.74e9 weights."""
    five = drafter_of(Method.medusa, MODEL, ALONE, num_speculative_tokens=5)
    assert five is not None
    assert five.weights_bytes == 2 * 5 * (4096 * 4096 + 4096 * 128_256)
    assert (five.kv_bytes_per_token, five.num_hidden_layers) == (0, 0)
    vicuna = drafter_of(Method.medusa, replace(MODEL, vocab_size=32_000), ALONE, num_speculative_tokens=5)
    assert vicuna is not None
    assert vicuna.weights_bytes / 2 == pytest.approx(0.74e9, rel=0.01)


def test_gpus_share_the_vocabularies_of_medusa_and_each_hold_its_blocks():
    alone, shared = (
        drafter_of(Method.medusa, MODEL, gpus, num_speculative_tokens=3) for gpus in (ALONE, Parallel(8))
    )
    assert alone is not None
    assert shared is not None
    blocks = 3 * 2 * 4096 * 4096
    assert shared.weights_bytes - blocks == (alone.weights_bytes - blocks) / 8
