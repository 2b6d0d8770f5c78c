"""The knee of the roofline: from how many tokens on a GEMM computes for longer than it reads its weights.

A GEMM of n rows does 2 n FLOPs for each of its weights and reads each once (Williams, Waterman and Patterson,
Communications of the ACM 52(4), 2009, section 3: the ridge point), so that both take equally long at

    n = FLOP/s reached * bytes per weight / (2 * bytes/s reached)

whatever its shape. The shares of the peaks that are reached are those of the fit (kernels.py). Activations,
which are moved too, are left out. Tokens are sent to some of the experts: of a step's tokens each expert has
per_token / in_all.
"""

from cluster_sim.bundle.architecture import expert_bytes_per_weight, layer_bytes_per_weight
from cluster_sim.config import HardwareConfig, ModelConfig, Roofline

BYTES_OF_FP8 = 1.0


def dense_knee_tokens(model: ModelConfig, hardware: HardwareConfig) -> float | None:
    """Tokens of a step at the knee of the layers' GEMMs; None: the hardware has no fit of them."""
    size = layer_bytes_per_weight(model)
    return _knee_rows(hardware.gemm_fp8 if size == BYTES_OF_FP8 else hardware.gemm_bf16, hardware, size)


def experts_knee_tokens(model: ModelConfig, hardware: HardwareConfig) -> float | None:
    """The same of routed experts, where all are active; None: there are none."""
    if not model.num_experts:
        return None
    rows = _knee_rows(hardware.moe_bf16, hardware, expert_bytes_per_weight(model))
    return None if rows is None else rows * model.num_experts / model.num_experts_per_tok


def _knee_rows(fit: Roofline | None, hardware: HardwareConfig, bytes_per_weight: float) -> float | None:
    if fit is None or fit.compute_efficiency is None:
        return None
    peak_tflops = hardware.fp8_tflops if bytes_per_weight == BYTES_OF_FP8 else hardware.bf16_tflops
    flop_per_s = fit.compute_efficiency * peak_tflops * 1e12
    bytes_per_s = fit.memory_efficiency * hardware.hbm_gb_per_s * 1e9
    return flop_per_s * bytes_per_weight / (2.0 * bytes_per_s)
