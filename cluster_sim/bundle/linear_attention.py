"""Layers of linear attention (gated delta rule, arXiv 2412.06464), as in Qwen3-Next and Qwen3.5; of one GPU.

Such a layer keeps for each request a state of value heads x value dimensions x key dimensions and the last
inputs of a short convolution, however long the request is. To undo drafts that are rejected, vLLM writes the
state after each of them: 1 + K pages a request and layer, whose convolution inputs are K wider. With prefix
caching it is one more, the state of the last whole block.

    page = conv (kernel - 1 + K) + state,   conv = 2 key heads x dimensions + value heads x dimensions

Source: vLLM 0.33.0, gated_delta_net_state_shape in model_executor/layers/mamba/mamba_utils.py, MambaSpec in
v1/kv_cache_interface.py (mamba_cache_mode none, and align with prefix caching), qwen_gdn_linear_attn.py. Both
parts are bfloat16 (--mamba-ssm-cache-dtype auto). Not modelled: blocks of KV that vLLM makes as large as a
page, and that a cached prefix can be resumed only where a state was kept.
"""

import numpy as np

from cluster_sim.bundle.architecture import (
    BYTES_PER_VALUE,
    Gemm,
    Parallel,
    layer_bytes_per_weight,
    linear_layers,
)
from cluster_sim.bundle.kernels import Floats, Kernels, Longs
from cluster_sim.config import ModelConfig

CHUNK_TOKENS = 64  # of the prefill's scan: FLA_CHUNK_SIZE in vLLM's third_party/flash_linear_attention


def linear_gemms(model: ModelConfig, parallel: Parallel) -> tuple[Gemm, ...]:
    """Projections of one layer: queries, keys, values and gates; two numbers a value head; the output."""
    keys, values = _widths(model, parallel)
    heads = model.linear_num_value_heads // parallel.tensor_parallel_size
    size = layer_bytes_per_weight(model)
    return (
        Gemm(model.hidden_size, 2 * keys + 2 * values, size),
        Gemm(model.hidden_size, 2 * heads),
        Gemm(values, model.hidden_size, size),
    )


def linear_weights_bytes(model: ModelConfig, parallel: Parallel) -> float:
    """Weights of one layer: its projections and its convolution."""
    convolution = _conv_width(model, parallel) * model.linear_conv_kernel_dim * BYTES_PER_VALUE
    return sum(gemm.weights_bytes for gemm in linear_gemms(model, parallel)) + convolution


def page_bytes(model: ModelConfig, parallel: Parallel, drafts: int) -> int:
    """One page of one layer."""
    inputs = _conv_width(model, parallel) * (model.linear_conv_kernel_dim - 1 + drafts)
    return int((inputs + _state_values(model, parallel)) * BYTES_PER_VALUE)


def state_bytes(model: ModelConfig, parallel: Parallel, drafts: int, caches_prefixes: bool) -> int:
    """State of a running request in all layers: a page, one of each draft, and one of the cached prefix."""
    pages = 1 + drafts + (1 if caches_prefixes else 0)
    return linear_layers(model) * pages * page_bytes(model, parallel, drafts)


def tokens_s(kernels: Kernels, tokens: Longs) -> Floats:
    """Projections of one layer, its convolution, and the norm of its output with its gate."""
    model, parallel = kernels.model, kernels.parallel
    _, values = _widths(model, parallel)
    total = kernels.elementwise_s(tokens, 2.0 * _conv_width(model, parallel) + 3.0 * values, 2)
    for gemm in linear_gemms(model, parallel):
        total = total + kernels.gemm_s(gemm, tokens)
    return total


def decode_s(kernels: Kernels, queries: int) -> float:
    """One request in all layers: its state is read once, and written after each of its `queries` tokens."""
    one_s = kernels.read_s(_state_values(kernels.model, kernels.parallel) * BYTES_PER_VALUE)
    return linear_layers(kernels.model) * (1 + queries) * one_s


def prefill_s(kernels: Kernels, chunk: Longs) -> Floats:
    """All layers over `chunk` tokens of prompts, in pieces of CHUNK_TOKENS.

    FLOPs of a token and value head: products of keys, queries and values within a piece, 2 C (2 k + 2 v), and
    three with the state, 6 k v; at the share of the peak that prefill attention reaches (assumed).
    """
    model, parallel = kernels.model, kernels.parallel
    heads = model.linear_num_value_heads // parallel.tensor_parallel_size
    key, value = model.linear_key_head_dim, model.linear_value_head_dim
    flops = heads * (2.0 * CHUNK_TOKENS * (2 * key + 2 * value) + 6.0 * key * value)
    moved = 2.0 * _state_values(model, parallel) * BYTES_PER_VALUE / CHUNK_TOKENS
    per_token_s = kernels.attention_compute_s(flops) + kernels.read_s(moved)
    return np.asarray(linear_layers(model) * per_token_s * chunk, np.float64)


def _widths(model: ModelConfig, parallel: Parallel) -> tuple[int, int]:
    """Values of all keys, and of all values, of a token."""
    gpus = parallel.tensor_parallel_size
    keys = model.linear_num_key_heads * model.linear_key_head_dim // gpus
    return keys, model.linear_num_value_heads * model.linear_value_head_dim // gpus


def _conv_width(model: ModelConfig, parallel: Parallel) -> int:
    keys, values = _widths(model, parallel)
    return 2 * keys + values


def _state_values(model: ModelConfig, parallel: Parallel) -> int:
    return _widths(model, parallel)[1] * model.linear_key_head_dim
