"""The facts in conf/model and conf/hardware: they make sense, and are those of their sources."""

import csv
import json
from pathlib import Path

import pytest

from cluster_sim.bundle.architecture import (
    BYTES_PER_VALUE,
    Gemm,
    Parallel,
    attention_gemms,
    experts,
    kv_layers,
    linear_layers,
    lm_head,
    mlp_gemms,
    moe_layers,
    shared_gemms,
)
from cluster_sim.bundle.linear_attention import linear_weights_bytes
from cluster_sim.compose import compose
from cluster_sim.config import HardwareConfig, ModelConfig, Quantization, Roofline
from cluster_sim.paths import conf_dir, group_options

MODELS, GPUS = (group_options(group, [conf_dir()]) for group in ("model", "hardware"))
SYSTEMS = {  # in ../shared/hardware; the RTX 4090 is in none of its files
    "a100": "a100_sxm",
    "h100": "h100_sxm",
    "h200": "h200_sxm",
    "b200": "b200_sxm",
    "gb200": "gb200",
    "l40s": "l40s",
    "rtx_pro_6000": "rtx_pro_6000_server",
}
OPERATIONS = {
    "gemm_bf16": "gemm_bfloat16",
    "gemm_fp8": "gemm_fp8",
    "moe_bf16": "moe_bf16_powerlaw",
    "decode_attention": "gen_attention_bf16_gqa",
    "prefill_attention": "ctx_attention_bf16_causal",
    "all_reduce_tp2": "allreduce_tp2",
    "all_reduce_tp4": "allreduce_tp4",
    "all_reduce_tp8": "allreduce_tp8",
}


def model_of(name: str) -> ModelConfig:
    return compose([f"model={name}"]).model


def hardware_of(name: str) -> HardwareConfig:
    return compose([f"hardware={name}"]).hardware


def fits_of(hardware: HardwareConfig) -> dict[str, Roofline]:
    """The operations that the GPU has a fit of."""
    fits = {operation: getattr(hardware, operation) for operation in OPERATIONS}
    return {operation: fit for operation, fit in fits.items() if fit is not None}


def rows(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def test_a_file_is_named_as_what_it_holds():
    assert [model_of(name).name for name in MODELS] == MODELS
    assert [hardware_of(name).name for name in GPUS] == GPUS
    assert {*SYSTEMS, "rtx4090"} == set(GPUS)


# Parameters in 1e9: of all, and of those that a token passes. From the model cards on Hugging Face, except
# gpt-oss (arXiv 2508.10925, table 1), DeepSeek-V3 (arXiv 2412.19437) and GLM (arXiv 2508.06471, table 1).
PARAMETERS = {
    "llama-3.1-8b": (8.03, None),
    "llama-3.1-70b": (70.6, None),
    "llama-3.2-1b": (1.24, None),
    "qwen3-0.6b": (0.6, None),
    "qwen3-8b": (8.19, None),
    "qwen3-32b": (32.8, None),
    "qwen3-30b-a3b": (30.5, 3.3),
    "qwen3-235b-a22b": (235, 22),
    "mixtral-8x7b": (46.7, 12.9),
    "deepseek-v3": (671, 37),
    "gpt-oss-120b": (116.83, 5.13),
    "gpt-oss-20b": (20.91, 3.61),
    "qwq-32b": (32.5, None),
    "glm-4.5-air": (106, 12),
    "glm-4.7": (355, 32),
    "qwen3-next-80b-a3b": (79.67, 3.87),  # of safetensors' index; active: less 502 of 512 experts a layer
}
UNCOUNTED_EMBEDDING = {  # matrices of the vocabulary's size that its authors do not count as active
    "gpt-oss-120b": 1,
    "gpt-oss-20b": 1,
    "glm-4.5-air": 2,
    "glm-4.7": 2,
}


def weights(gemms: tuple[Gemm, ...]) -> int:
    return sum(gemm.weights for gemm in gemms)


def parameters(model: ModelConfig) -> tuple[int, int]:
    """Weights of a model on one GPU, without norms and biases: all, and those that a token passes."""
    alone, sparse = Parallel(), moe_layers(model)
    embedding = lm_head(model, alone).weights
    both = embedding + kv_layers(model) * weights(attention_gemms(model, alone))
    if linear_layers(model):
        both += linear_layers(model) * round(linear_weights_bytes(model, alone) / BYTES_PER_VALUE)
    both += (model.num_hidden_layers - sparse) * weights(mlp_gemms(model, alone, model.intermediate_size))
    if not model.tie_word_embeddings:
        both += embedding
    if sparse == 0:
        return both, both
    both += sparse * weights(shared_gemms(model, alone))
    routed = experts(model, alone)
    per_expert = sparse * weights(routed.gemms)
    return both + routed.on_gpu * per_expert, both + routed.per_token * per_expert


@pytest.mark.parametrize("name", MODELS)
def test_weights_add_up_to_the_published_parameters(name: str):
    model, (published, active) = model_of(name), PARAMETERS[name]
    total, passed = parameters(model)
    assert total / 1e9 == pytest.approx(published, rel=0.01)
    if active is None:
        assert passed == total
        return
    passed -= UNCOUNTED_EMBEDDING.get(name, 0) * lm_head(model, Parallel()).weights
    assert passed / 1e9 == pytest.approx(active, rel=0.02)


def test_the_experts_of_mxfp4_take_four_bits_and_a_quarter():
    """gpt-oss-120b: 114.7e9 weights of experts (arXiv 2508.10925, table 1) at 4.25 bits, so 61 GB."""
    model = model_of("gpt-oss-120b")
    routed = experts(model, Parallel())
    assert model.quantization is Quantization.mxfp4
    assert moe_layers(model) * routed.weights_bytes == pytest.approx(114.7e9 * 4.25 / 8, rel=0.01)


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("llama-3.1-8b", "meta-llama/Llama-3.1-8B"),
        ("llama-3.1-70b", "meta-llama/Llama-3.1-70B"),
        ("qwen3-32b", "Qwen/Qwen3-32B"),
        ("qwen3-30b-a3b", "Qwen/Qwen3-30B-A3B-Instruct-2507"),
        ("mixtral-8x7b", "mistralai/Mixtral-8x7B-v0.1"),
    ],
)
def test_models_are_those_of_their_config_json(shared: Path, name: str, file: str):
    path = shared / "perf-tables" / "model-configs" / f"{file}.json"
    facts = json.loads(path.read_text(encoding="utf-8"))
    model = model_of(name)
    facts["head_dim"] = facts.get("head_dim", facts["hidden_size"] // facts["num_attention_heads"])
    if "num_local_experts" in facts:
        facts |= {"num_experts": facts["num_local_experts"], "moe_intermediate_size": model.intermediate_size}
    facts["dtype"], facts["sliding_window"] = facts["torch_dtype"], facts.get("sliding_window") or 0
    known = [key for key in vars(model) if key in facts]
    assert len(known) >= 11
    assert {key: getattr(model, key) for key in known} == {key: facts[key] for key in known}
    assert file in model.source


@pytest.mark.shared
@pytest.mark.parametrize("name", SYSTEMS)
def test_peaks_are_those_of_the_file(shared: Path, name: str):
    hardware = hardware_of(name)
    listed = {row["system"]: row for row in rows(shared / "hardware" / "system_peaks.csv")}[SYSTEMS[name]]
    peaks = {
        "bf16_tflops": hardware.bf16_tflops,
        "fp8_tflops": hardware.fp8_tflops,
        "hbm_gbs": hardware.hbm_gb_per_s,
        "nvlink_gbs_uni": hardware.nvlink_gb_per_s,
        "mem_gib": hardware.memory_gib,
    }
    assert peaks == pytest.approx({key: float(listed[key]) for key in peaks}, rel=1e-5)


@pytest.mark.shared
@pytest.mark.parametrize("name", SYSTEMS)
def test_fits_are_those_of_vllm_in_the_file(shared: Path, name: str):
    listed = {
        row["op"]: row
        for row in rows(shared / "hardware" / "roofline_fit.csv")
        if (row["system"], row["backend"]) == (SYSTEMS[name], "vllm")
    }
    fits = fits_of(hardware_of(name))
    if name == "gb200":
        assert "allreduce_tp8" not in listed
        assert fits.pop("all_reduce_tp8") == hardware_of("b200").all_reduce_tp8
    assert {OPERATIONS[operation] for operation in fits} == set(OPERATIONS.values()) & set(listed)
    for operation, fit in fits.items():
        row = listed[OPERATIONS[operation]]
        efficiency, exponent = row["eff_compute"], row["smooth_p"]
        assert (fit.launch_floor_us, fit.memory_efficiency) == (float(row["t0_us"]), float(row["eff_mem"]))
        assert fit.compute_efficiency == (float(efficiency) if efficiency else None)
        assert fit.smooth_p == (float(exponent) if exponent else None)


@pytest.mark.parametrize("name", GPUS)
def test_operations_that_compute_have_both_terms_and_the_others_one(name: str):
    for operation, fit in fits_of(hardware_of(name)).items():
        computes = operation.startswith(("gemm", "moe", "prefill"))
        assert (fit.compute_efficiency is not None, fit.smooth_p is not None) == (computes, computes)
        assert fit.launch_floor_us < 50


@pytest.mark.parametrize("name", GPUS)
def test_fp8_doubles_the_peak_where_the_card_has_it(name: str):
    """Tensor cores of Ada, Hopper and Blackwell have it, Ampere's do not."""
    hardware = hardware_of(name)
    assert hardware.fp8_tflops == pytest.approx(0 if name == "a100" else 2 * hardware.bf16_tflops, rel=0.02)
    assert (hardware.gemm_fp8 is None) is (name == "a100")


@pytest.mark.parametrize("name", GPUS)
def test_defaults_are_those_of_the_device_tier(name: str):
    """vllm-scheduler.md section 11, API server; section 8: larger graphs on data-center Blackwell."""
    hardware = hardware_of(name)
    large, middle = hardware.memory_gib >= 160, hardware.memory_gib >= 70 and name != "a100"
    tokens, seqs = (16384, 1024) if large else (8192, 1024) if middle else (2048, 256)
    assert hardware.default_max_num_batched_tokens == tokens
    assert hardware.default_max_num_seqs == seqs
    assert hardware.max_cudagraph_capture_tokens == (1024 if name in ("b200", "gb200") else 512)


def test_what_was_assumed_for_a_card_says_so():
    assert "all_reduce_tp8 assumed" in hardware_of("gb200").source
    rtx4090, l40s = hardware_of("rtx4090"), hardware_of("l40s")
    assert "gemm_fp8, moe_bf16 and all_reduce: assumed to be L40S's" in rtx4090.source
    for operation in ("gemm_fp8", "moe_bf16", "all_reduce_tp2", "all_reduce_tp4", "all_reduce_tp8"):
        assert getattr(rtx4090, operation) == getattr(l40s, operation)
