"""What must hold of a model's architecture and of a GPU's facts, beyond the bounds of single numbers.

Rules of division are vLLM's: a GPU holds whole query heads, and whole KV heads or a copy of one.
"""

from collections.abc import Iterable
from typing import NoReturn

from cluster_sim.bundle.architecture import linear_layers
from cluster_sim.config import HardwareConfig, ModelConfig, Quantization
from cluster_sim.errors import UserError

_LATENT_SIZES = ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
_LINEAR_SIZES = (
    "linear_num_key_heads",
    "linear_num_value_heads",
    "linear_key_head_dim",
    "linear_value_head_dim",
    "linear_conv_kernel_dim",
)
_SEE_CONFIG = "See its config.json."


def check_model(model: ModelConfig, tensor_parallel_size: int) -> None:
    """Raise for the first thing in `model` that contradicts itself or cannot be split over the GPUs.

    Raises:
        UserError: worded with the rule, the value, its key and what to do.
    """
    if model.dtype != "bfloat16":
        rule = "weights must be bfloat16, the only kind with costs so far"
        raise UserError(rule, model.dtype, "model.dtype", "Use bfloat16.")
    _check_heads(model, tensor_parallel_size)
    _check_latent(model)
    _check_experts(model)
    _check_window(model)
    _check_linear(model, tensor_parallel_size)


def check_hardware(hardware: HardwareConfig) -> None:
    """Raise where a GPU has a peak in fp8 and no fit of it, or the reverse.

    Raises:
        UserError: worded with the rule, the value, its key and what to do.
    """
    if (hardware.fp8_tflops > 0) is (hardware.gemm_fp8 is None):
        fit = "no" if hardware.gemm_fp8 is None else "a"
        rule, got = "fp8 needs a peak and a fit", f"fp8_tflops={hardware.fp8_tflops:g} and {fit} gemm_fp8"
        remedy = "Give both, or fp8_tflops=0 and gemm_fp8=null for a GPU without fp8."
        raise UserError(rule, got, "hardware.fp8_tflops", remedy)


def _check_heads(model: ModelConfig, gpus: int) -> None:
    heads, kv_heads = model.num_attention_heads, model.num_key_value_heads
    if heads % kv_heads:
        rule = "query heads must be a multiple of KV heads"
        raise UserError(rule, f"{heads} and {kv_heads}", "model.num_attention_heads", _SEE_CONFIG)
    if heads % gpus:
        rule = "tensor parallelism must divide the attention heads"
        _refuse_split(rule, f"{heads} heads on {gpus} GPUs", f"a divisor of {heads}")
    if kv_heads % gpus and gpus % kv_heads:
        rule = "tensor parallelism must divide the KV heads or be a multiple of them"
        _refuse_split(rule, f"{kv_heads} KV heads on {gpus} GPUs", f"a divisor or a multiple of {kv_heads}")
    for key in ("intermediate_size", "moe_intermediate_size"):
        if getattr(model, key) % gpus:
            got = f"{getattr(model, key)} on {gpus} GPUs"
            _refuse_split(f"tensor parallelism must divide {key}", got, f"a divisor of {getattr(model, key)}")


def _check_latent(model: ModelConfig) -> None:
    if model.kv_lora_rank:
        _need(model, _LATENT_SIZES, "latent attention (kv_lora_rank above 0)")
    else:
        _leave_out(model, ("q_lora_rank", *_LATENT_SIZES), "kv_lora_rank 0")


def _check_experts(model: ModelConfig) -> None:
    if not model.num_experts:
        keys = ("num_experts_per_tok", "moe_intermediate_size", "n_shared_experts", "first_k_dense_replace")
        _leave_out(model, keys, "num_experts 0")
        if model.quantization is Quantization.mxfp4:
            rule, remedy = "mxfp4 is a kind of experts' weights", "Use none or fp8."
            raise UserError(rule, "no experts", "model.quantization", remedy)
        return
    _need(model, ("num_experts_per_tok", "moe_intermediate_size"), "a model with experts")
    _check_below(model, "num_experts_per_tok", "num_experts", model.num_experts)
    most = model.num_hidden_layers - 1
    _check_below(model, "first_k_dense_replace", "num_hidden_layers - 1", most)


def _check_window(model: ModelConfig) -> None:
    if model.sliding_window:
        _need(model, ("sliding_window_layers",), "a model with sliding_window")
    else:
        _leave_out(model, ("sliding_window_layers",), "sliding_window 0")
    _check_below(model, "sliding_window_layers", "num_hidden_layers", model.num_hidden_layers)


def _check_linear(model: ModelConfig, gpus: int) -> None:
    if linear_layers(model) == 0:
        _leave_out(model, _LINEAR_SIZES, f"full_attention_interval {model.full_attention_interval}")
        return
    _need(model, _LINEAR_SIZES, "linear attention (full_attention_interval above 1)")
    _leave_out(model, ("kv_lora_rank", "sliding_window"), "linear attention")
    for key in ("linear_num_key_heads", "linear_num_value_heads"):
        heads = getattr(model, key)
        if heads % gpus:
            rule = f"tensor parallelism must divide {key}"
            _refuse_split(rule, f"{heads} heads on {gpus} GPUs", f"a divisor of {heads}")


def _check_below(model: ModelConfig, key: str, limit_words: str, limit: int) -> None:
    value = getattr(model, key)
    if value > limit:
        rule = f"{key} must be at most {limit_words} ({limit})"
        raise UserError(rule, value, f"model.{key}", _SEE_CONFIG)


def _need(model: ModelConfig, keys: Iterable[str], kind: str) -> None:
    for key in keys:
        if getattr(model, key) == 0:
            raise UserError(f"{kind} needs {key}", 0, f"model.{key}", _SEE_CONFIG)


def _leave_out(model: ModelConfig, keys: Iterable[str], where: str) -> None:
    for key in keys:
        value = getattr(model, key)
        if value:
            raise UserError(f"{key} has no effect with {where}", value, f"model.{key}", "Leave it out.")


def _refuse_split(rule: str, got: str, use: str) -> NoReturn:
    raise UserError(rule, got, "cluster.tensor_parallel_size", f"Use {use}.")
