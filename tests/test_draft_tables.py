"""What drafters cost on H100: tables and parameters of a bundle, put together as draft_tables.py says.

A3 and C8 are of ../shared/spec-decode-facts.md.
"""

from dataclasses import replace

import numpy as np
import pytest
from example_bundle import CONFIG

from cluster_sim.bundle.architecture import Parallel
from cluster_sim.bundle.assumptions import assumptions
from cluster_sim.bundle.draft_tables import draft_tables, drafter_parameters, prefill_attention_share
from cluster_sim.bundle.kernels import Kernels
from cluster_sim.bundle.roofline import build
from cluster_sim.compose import compose
from cluster_sim.config import ModelConfig
from cluster_sim.speculation.proposer import Drafter, drafter_of_model, drafters_of

MODEL, H100 = CONFIG.model, CONFIG.hardware
ALONE = Parallel()
TOKENS = np.array([1, 2, 4, 8, 16, 32, 64, 128, 256, 1024, 8192])


def model(name: str) -> ModelConfig:
    return compose([f"model={name}"]).model


DEEPSEEK = model("deepseek-v3")
QWEN_8B, QWEN_SMALL = model("qwen3-8b"), model("qwen3-0.6b")
LLAMA_70B, LLAMA_1B = model("llama-3.1-70b"), model("llama-3.2-1b")


class Costs:
    """A step of the drafters of one target, as the tables are put together (draft_tables.py)."""

    def __init__(self, drafters: dict[str, Drafter], target: ModelConfig = MODEL) -> None:
        self.tables = draft_tables(H100, drafters, TOKENS)
        self.parameters = drafter_parameters(target, H100, drafters)
        self.names = sorted(drafters)

    def at(self, table: str, name: str, rows: int) -> float:
        return float(np.interp(rows, TOKENS, self.tables[table][1][self.names.index(name)]))

    def pass_s(self, name: str, requests: int = 1) -> float:
        """A further pass with its head."""
        kernels_s = self.at("draft_next", name, requests) + self.at("draft_head", name, requests)
        return max(kernels_s, self.parameters[name]["pass_launch_s"].value)

    def block_s(self, name: str, drafts: int, requests: int = 1) -> float:
        """A drafter whose one block drafts all."""
        first_s = self.at("draft_first", name, requests * (1 + drafts))
        block = self.at("draft_next", name, requests * (1 + drafts))
        return first_s + block + self.at("draft_head", name, requests * drafts)


def test_tables_hold_every_drafter_in_the_order_of_the_format():
    drafters = drafters_of(DEEPSEEK, Parallel(8))
    tables = draft_tables(H100, drafters, TOKENS)
    keys = {"draft_first": "tokens", "draft_next": "requests", "draft_head": "rows"}
    assert {table: list(axes) for table, (axes, _) in tables.items()} == {
        table: ["drafter", key] for table, key in keys.items()
    }
    for axes, time_s in tables.values():
        assert axes["drafter"].tolist() == sorted(drafters)
        assert time_s.shape == (len(drafters), len(TOKENS))
        assert (np.diff(time_s, axis=1) >= 0).all()
        assert (time_s >= 0).all()


def test_every_parameter_says_what_it_is_and_where_it_is_from():
    drafters = {**drafters_of(DEEPSEEK, ALONE), "draft_model": drafter_of_model(LLAMA_1B, ALONE)}
    names = {
        "num_hidden_layers",
        "prefill_attention_share",
        "prepare_s",
        "pass_launch_s",
        "attention_s_per_kv_token",
        "weights_bytes",
        "kv_bytes_per_token",
    }
    for parameters in drafter_parameters(DEEPSEEK, H100, drafters).values():
        assert set(parameters) == names
        assert all(entry.meaning and entry.source and entry.licence for entry in parameters.values())


def test_a_pass_of_one_request_reads_the_drafter_at_the_fitted_bandwidth():
    """Bytes / (0.875 x 3.35 TB/s), and launch floors of a layer's nine kernels and the embedding's."""
    costs = Costs(drafters_of(MODEL, ALONE))
    for name, joined in (("eagle", 2 * 8192 * 4096), ("eagle3", 0)):
        layer = drafters_of(MODEL, ALONE)[name].layers[0]
        bound_s = (joined + sum(gemm.weights_bytes for gemm in layer.gemms)) / (0.875 * 3.35e12)
        assert bound_s < costs.at("draft_next", name, 1) < bound_s + 60e-6


def test_no_drafts_still_pay_the_first_pass_over_the_tokens_of_the_step():
    costs = Costs(drafters_of(DEEPSEEK, ALONE), DEEPSEEK)
    for name in ("eagle", "eagle3", "mtp", "parallel"):
        one, many = (costs.at("draft_first", name, tokens) for tokens in (1, 8192))
        assert 0 < one < many / 10  # a prefill of 8,192 tokens is bound by compute
    for name in ("ngram", "suffix"):
        assert costs.at("draft_first", name, 8192) == 0


def test_the_pass_without_drafts_of_an_mtp_module_is_near_that_measured():
    """A3: propose() took 1.71 ms with K = 0, 27B in fp8 on two RTX 5090; bound by launches on both cards."""
    parameters = drafter_parameters(DEEPSEEK, H100, drafters_of(DEEPSEEK, ALONE))["mtp"]
    assert parameters["prepare_s"].value + parameters["pass_launch_s"].value == pytest.approx(
        1.71e-3, rel=0.25
    )


def test_a_module_reads_the_experts_that_its_tokens_are_sent_to():
    """8 of 256 experts at one token, nearly all at 256: C8."""
    costs = Costs(drafters_of(DEEPSEEK, ALONE), DEEPSEEK)
    expert_bytes = 3 * 7168 * 2048
    read_s = costs.at("draft_next", "mtp", 256) - costs.at("draft_next", "mtp", 1)
    assert read_s == pytest.approx((256 - 8) * expert_bytes / 3.35e12, rel=0.35)


def test_a_parallel_drafter_pays_one_block_however_many_drafts():
    """DFlash: 7 drafts read its five layers once; a sequential drafter reads its layer 7 times."""
    costs = Costs(drafters_of(MODEL, ALONE))
    assert costs.block_s("parallel", 7) < 1.15 * costs.block_s("parallel", 1)
    drafter = drafters_of(MODEL, ALONE)["parallel"]
    layers_bytes = sum(gemm.weights_bytes for gemm in drafter.layers[0].gemms) * 5
    assert costs.block_s("parallel", 7) > layers_bytes / 3.35e12
    assert costs.block_s("parallel", 7) < 7 * costs.pass_s("eagle")


@pytest.mark.parametrize(
    ("target", "gpus", "draft", "measured"),
    [(QWEN_8B, 1, QWEN_SMALL, 0.375), (LLAMA_70B, 4, LLAMA_1B, 0.125)],
)
def test_a_draft_models_pass_is_the_measured_share_of_the_targets(target, gpus, draft, measured):
    """About 37.5 % of an 8B target's and 12.5 % of a 70B one's (arXiv 2601.11580); launches bound both.

    Both went into layer_launch_s: one number fits the two within 15 %, no more is shown.
    """
    parallel = Parallel(gpus)
    tables = build(target, H100, parallel).tables
    target_s = sum(
        float(tables[name].time_s[0]) for name in ("dense", "head", "all_reduce") if name in tables
    )
    costs = Costs({"draft_model": drafter_of_model(draft, parallel)}, target)
    assert costs.pass_s("draft_model") / target_s == pytest.approx(measured, rel=0.15)
    kernels_s = costs.at("draft_next", "draft_model", 1) + costs.at("draft_head", "draft_model", 1)
    assert kernels_s < costs.parameters["draft_model"]["pass_launch_s"].value


def test_all_reduces_come_with_gpus():
    """Two a layer and one of the embedding, in each pass."""
    two = Parallel(2)
    costs = Costs(drafters_of(MODEL, two))
    unlinked = replace(H100, all_reduce_tp2=replace(H100.all_reduce_tp2, launch_floor_us=0.0))
    free_s = draft_tables(unlinked, drafters_of(MODEL, two), TOKENS)["draft_next"][1][0, 0]
    linked_s, free_call_s = (Kernels(MODEL, gpu, two).all_reduce_s(TOKENS[:1])[0] for gpu in (H100, unlinked))
    assert costs.at("draft_next", "eagle", 1) - free_s == pytest.approx(3 * (linked_s - free_call_s))


def test_prefill_attention_is_counted_in_layers_heads_and_dimensions():
    drafters = drafters_of(MODEL, ALONE)
    assert prefill_attention_share(drafters["eagle"], MODEL) == 1 / 32
    small = drafter_of_model(LLAMA_1B, ALONE)  # 16 layers of 32 heads of 64, for 32 of 32 of 128
    assert prefill_attention_share(small, MODEL) == 0.25
    assert prefill_attention_share(drafters_of(DEEPSEEK, ALONE)["mtp"], DEEPSEEK) == 1 / 61
    assert prefill_attention_share(drafters["parallel"], MODEL) == 0
    assert prefill_attention_share(drafters["ngram"], MODEL) == 0


def test_looking_up_n_grams_costs_the_cpu_a_nanosecond_a_token_and_the_gpu_nothing():
    """vllm#56732: 512 requests of 129,536 tokens took 70.28 ms in one thread."""
    drafter = drafters_of(MODEL, ALONE)["ngram"]
    costs = Costs(drafters_of(MODEL, ALONE))
    per_token_s = costs.parameters["ngram"]["attention_s_per_kv_token"].value
    assert 512 * 129_536 * per_token_s == pytest.approx(70.28e-3, rel=0.01)
    assert (drafter.weights_bytes, drafter.kv_bytes_per_token, drafter.num_hidden_layers) == (0, 0, 0)
    assert costs.at("draft_next", "ngram", 64) == 0
    assert costs.parameters["ngram"]["pass_launch_s"].value == 0


def test_suffix_trees_cost_the_cpu_by_the_request():
    """ArcticInference#212: 6.288 + 4.126 us a token, 1.69 tokens a step."""
    costs = Costs(drafters_of(MODEL, ALONE))
    per_request_s = (6.288e-6 + 4.126e-6) * 1.693
    assert costs.at("draft_head", "suffix", 64) == pytest.approx(64 * per_request_s, rel=0.01)
    assert assumptions().drafters["suffix"]["attention_s_per_kv_token"].value == 0
