"""Times of one GPU's kernels for one model: what each computes and moves, over what the GPU can do.

Formulas and fitted parameters: ../shared/hardware/README.md. With p-norm(a, b) = (a^p + b^p)^(1/p), of the
time to compute and the time to move bytes,
    GEMM                 floor + p-norm, p fitted
    routed experts       floor + p-norm, p = 3, of all tokens' FLOPs and the bytes of the active experts
    prefill attention    floor + p-norm, p = 3, of causal FLOPs and of queries, keys, values and outputs
    decode attention     floor + KV bytes; with MLA a p-norm, p = 3, with the FLOPs of all heads on one latent
    all-reduce           floor + 2 (n - 1) / n bytes over a link
and everything else reads and writes memory.

The fit timed kernels alone. Two of its parts do not add up over a step, and are treated so:
- each replay of a graph costs graph_launch_s on the GPU, which all layers of a step pay once: it is taken off
  the floors of their kernels;
- a mixed step makes one attention call a layer, not one for prefills and one for decodes: the decode call's
  floor is in `layer_s`.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cluster_sim.bundle.architecture import (
    BYTES_PER_VALUE,
    Experts,
    Gemm,
    Parallel,
    kv_bytes_per_token,
    kv_heads,
    uses_mla,
)
from cluster_sim.bundle.assumptions import assumptions
from cluster_sim.config import HardwareConfig, ModelConfig
from cluster_sim.config import Roofline as Fit
from cluster_sim.errors import UserError

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]

CALLS_PER_REPLAY = 5  # of GEMMs, experts and all-reduces, as timed: bundles/assumptions.yaml, graph_launch_s
_SMOOTH_P = 3.0  # of experts, and of attention with MLA: ../shared/hardware/README.md


class Kernels:
    """Times in seconds on one of the GPUs that share a model; counts may be arrays."""

    def __init__(
        self, model: ModelConfig, hardware: HardwareConfig, parallel: Parallel, **other: float
    ) -> None:  # `other` values of assumptions
        self.model, self.hardware, self.parallel = model, hardware, parallel
        self._assumed = {name: entry.value for name, entry in assumptions().parameters.items()} | other
        self._bytes_per_s = hardware.hbm_gb_per_s * 1e9
        self._heads = model.num_attention_heads // parallel.tensor_parallel_size

    def gemm_s(self, gemm: Gemm, rows: Longs) -> Floats:
        """A product of [rows, inputs] and [inputs, outputs]; all of its copies in one kernel.

        Raises:
            UserError: 8-bit weights on a card without fp8.
        """
        fit, flop_per_s = self._gemm_fit(gemm)
        wide = np.asarray(rows, np.float64)
        bytes_in = min(gemm.bytes_per_weight, BYTES_PER_VALUE)  # activations are multiplied as weights are
        activations = gemm.copies * (gemm.inputs * bytes_in + gemm.outputs * BYTES_PER_VALUE)
        moved_s = (gemm.weights_bytes + activations * wide) / (fit.memory_efficiency * self._bytes_per_s)
        compute_s = 2.0 * gemm.weights * wide / (_given(fit.compute_efficiency) * flop_per_s)
        return self._shared_floor_s(fit) + _p_norm(compute_s, moved_s, _given(fit.smooth_p))

    def elementwise_s(self, rows: Longs, values_per_row: float, kernels: int) -> Floats:
        """Kernels that read and write `values_per_row` values a token between them, bound by memory."""
        floor_s = kernels * self._assumed["elementwise_floor_s"]
        return np.asarray(floor_s + rows * values_per_row * BYTES_PER_VALUE / self._streaming, np.float64)

    def layer_s(self, gemms: tuple[Gemm, ...], rows: Longs, intermediate: int | None = None) -> Floats:
        """A decoder layer with one attention call that reads no KV: GEMMs, norms, rotary, activation.

        `intermediate` is the width of the gated MLP on all GPUs: None for the model's dense one, 0 for none.
        """
        width = self.model.intermediate_size if intermediate is None else intermediate
        values, kernels = self._around_attention()
        if width:
            values += 3.0 * width / self.parallel.tensor_parallel_size  # reads gate and up, writes one
            kernels += 1
        total = self.elementwise_s(rows, values, kernels) + self.attention_floor_s
        return total + sum((self.gemm_s(gemm, rows) for gemm in gemms), np.zeros(len(rows)))

    def experts_s(self, experts: Experts, tokens: Floats | Longs, active: Floats | Longs) -> Floats:
        """One layer's routed experts: `tokens` go to experts.per_token each, `active` of them are read.

        The floor holds the small kernels around the products (sorting tokens by expert, activation, sum), as
        they were timed together. Assumed: fp8 weights are multiplied at the same share of the fp8 peak, 4-bit
        weights as bfloat16.

        Raises:
            UserError: 8-bit weights on a card without fp8.
        """
        fit = self.hardware.moe_bf16
        _, flop_per_s = self._gemm_fit(experts.gemms[0])
        per_expert = sum(gemm.weights for gemm in experts.gemms)
        bytes_per_expert = sum(gemm.weights_bytes for gemm in experts.gemms)
        flops = 2.0 * per_expert * experts.per_token * np.asarray(tokens, np.float64)
        compute_s = flops / (_given(fit.compute_efficiency) * flop_per_s)
        memory_s = bytes_per_expert * active / (fit.memory_efficiency * self._bytes_per_s)
        return self._shared_floor_s(fit) + _p_norm(compute_s, memory_s, _SMOOTH_P)

    def routing_s(self, tokens: Longs) -> Floats:
        """One layer's choice of experts: softmax over the router's logits in float32, top k."""
        values = 2.0 * self.model.num_experts + 4.0 * self.model.num_experts_per_tok
        return self.elementwise_s(tokens, values, 1)

    def head_s(self, gemm: Gemm, rows: Longs) -> Floats:
        """lm_head, logits gathered from all GPUs, and a sampler over the target's vocabulary."""
        logits_bytes = rows * self._assumed["sampler_bytes_per_logit"] * self.model.vocab_size
        sampler_s = self._assumed["sampler_floor_s"] + logits_bytes / self._streaming
        gathered = rows * BYTES_PER_VALUE * gemm.outputs * self.parallel.tensor_parallel_size
        return self.gemm_s(gemm, rows) + sampler_s + self._link_s(1.0, gathered)

    def all_reduce_s(self, rows: Longs) -> Floats:
        """One all-reduce of [rows, hidden_size]; nothing on one GPU.

        Raises:
            UserError: the hardware has no fit for so many GPUs.
        """
        return self._link_s(2.0, rows * BYTES_PER_VALUE * self.model.hidden_size)

    @property
    def attention_floor_s(self) -> float:
        """Launch floor of an attention call inside a graph."""
        return _floor_s(self.hardware.decode_attention, self._assumed["graph_launch_s"])

    def kv_read_s(self, kv_tokens: float, layers: int, query_tokens: int = 1) -> float:
        """Decode attention of `layers` layers over `kv_tokens`, on top of its floor.

        Beyond one query token, 1 + verify_attention * (query_tokens - 1) reads. With MLA every head
        multiplies the latent it has read, as a key (kv_lora_rank + qk_rope_head_dim) and as a value
        (kv_lora_rank); prefill attention's share of the peak is assumed for it.
        """
        model = self.model
        reads = 1.0 + self._assumed["verify_attention"] * (query_tokens - 1)
        moved = reads * kv_tokens * kv_bytes_per_token(model, self.parallel, layers)
        memory_s = self.read_s(moved)
        if not uses_mla(model):
            return memory_s
        values = 2 * model.kv_lora_rank + model.qk_rope_head_dim
        flops = 2.0 * self._heads * query_tokens * values * kv_tokens * layers
        compute_s = self.attention_compute_s(flops)
        return float(_p_norm(compute_s, memory_s, _SMOOTH_P))

    def read_s(self, moved_bytes: float) -> float:
        """Bytes at the bandwidth that decode attention reaches."""
        return moved_bytes / (self.hardware.decode_attention.memory_efficiency * self._bytes_per_s)

    def attention_compute_s(self, flops: float) -> float:
        """FLOPs at the share of the peak that prefill attention reaches."""
        return flops / (_given(self.hardware.prefill_attention.compute_efficiency) * self._bf16_flop_per_s)

    def prefill_attention_s(self, chunk: Longs, history: Longs, window: int = 0) -> Floats:
        """One layer: causal attention of `chunk` tokens after `history`, beyond the call's decode floor.

        A token sees at most `window` tokens; 0 is all. With MLA the history's keys and values are first made
        from its latents again; the chunk's are in `layer_s`, whose absorbed products have as many FLOPs.
        """
        model, fit = self.model, self.hardware.prefill_attention
        key, value = self._head_dims()
        seen = np.minimum(history, window) if window else history
        flops = 2.0 * self._heads * (key + value) * attended(chunk, history, window)
        kept = self._heads if uses_mla(model) else kv_heads(model, self.parallel)
        moved = BYTES_PER_VALUE * (key + value) * (self._heads * chunk + kept * (seen + chunk))
        compute_s = flops / (_given(fit.compute_efficiency) * self._bf16_flop_per_s)
        memory_s = moved / (fit.memory_efficiency * self._bytes_per_s)
        floor_us = max(0.0, fit.launch_floor_us - self.hardware.decode_attention.launch_floor_us)
        attention_s = floor_us * 1e-6 + _p_norm(compute_s, memory_s, _given(fit.smooth_p))
        return attention_s + self._made_again_s(history)

    def _made_again_s(self, history: Longs) -> Floats:
        """With MLA: a layer's keys and values of `history` from its latents, bound by compute."""
        model, fit = self.model, self.hardware.gemm_bf16
        values = self._heads * (model.qk_nope_head_dim + model.v_head_dim)
        flops = 2.0 * model.kv_lora_rank * values * np.asarray(history, np.float64)
        return np.asarray(flops / (_given(fit.compute_efficiency) * self._bf16_flop_per_s))

    def _gemm_fit(self, gemm: Gemm) -> tuple[Fit, float]:
        """Fitted parameters and FLOP/s of a GEMM, by the bytes of its weights."""
        if gemm.bytes_per_weight != 1.0:
            return self.hardware.gemm_bf16, self._bf16_flop_per_s
        if self.hardware.gemm_fp8 is None:
            raise UserError(
                "hardware must have fp8 for a model quantized to it",
                f"{self.hardware.name} without",
                "model.quantization",
                "Use model.quantization=none, or a GPU that has fp8.",
            )
        return self.hardware.gemm_fp8, self.hardware.fp8_tflops * 1e12

    def _shared_floor_s(self, fit: Fit) -> float:
        """Inside a graph, of kernels that shared a replay when they were timed."""
        return _floor_s(fit, self._assumed["graph_launch_s"] / CALLS_PER_REPLAY)

    def _around_attention(self) -> tuple[float, int]:
        """Values per token and kernels of a layer's norms (each adds its residual) and rotary embedding."""
        model = self.model
        norms = 8.0 * model.hidden_size
        if uses_mla(model):
            latents = 2.0 * (model.q_lora_rank + model.kv_lora_rank)  # a norm each
            rotated = (self._heads + 1) * model.qk_rope_head_dim
            return norms + latents + 2.0 * rotated, 5
        rotated = (self._heads + kv_heads(model, self.parallel)) * model.head_dim
        return norms + 2.0 * rotated, 3

    def _head_dims(self) -> tuple[int, int]:
        """Values of a key and of a value of one head in prefill attention."""
        model = self.model
        if uses_mla(model):
            return model.qk_nope_head_dim + model.qk_rope_head_dim, model.v_head_dim
        return model.head_dim, model.head_dim

    def _link_s(self, passes: float, moved: ArrayLike) -> Floats:
        """A ring over the instance's GPUs: `passes` times (n - 1) / n of the bytes; 1 gathers, 2 reduce."""
        size, wide = self.parallel.tensor_parallel_size, np.asarray(moved, np.float64)
        if size == 1:
            return np.zeros(wide.shape)
        fit = self._all_reduce_fit(size)
        link_bytes_per_s = fit.memory_efficiency * self.hardware.nvlink_gb_per_s * 1e9
        return self._shared_floor_s(fit) + passes * wide * (size - 1) / size / link_bytes_per_s

    def _all_reduce_fit(self, size: int) -> Fit:
        hardware = self.hardware
        fits = {2: hardware.all_reduce_tp2, 4: hardware.all_reduce_tp4, 8: hardware.all_reduce_tp8}
        fit = fits.get(size)
        if fit is None:
            known = [1, *(gpus for gpus, known_fit in fits.items() if known_fit is not None)]
            raise UserError(
                f"hardware {hardware.name} must have the cost of an all-reduce over the instance's GPUs",
                f"{size}; it has {', '.join(map(str, known))}",
                "cluster.tensor_parallel_size",
                "Use one of those, or name a measured bundle in cluster.bundle.",
            )
        return fit

    @property
    def _bf16_flop_per_s(self) -> float:
        return self.hardware.bf16_tflops * 1e12

    @property
    def _streaming(self) -> float:
        """Bytes/s of kernels that only read and write."""
        return self._assumed["elementwise_memory_efficiency"] * self._bytes_per_s


def attended(chunk: Longs, history: Longs, window: int) -> Floats:
    """Pairs of a query and a key in causal attention of `chunk` tokens after `history`.

    The i-th token sees min(history + i, window) tokens: chunk * (history + chunk / 2), less what lies outside
    the window (0: none does).
    """
    pairs = chunk * (history + 0.5 * chunk)
    if window == 0:
        return np.asarray(pairs, np.float64)
    beyond = np.maximum(history + chunk - window, 0)  # keys that the last token does not see
    before = np.maximum(history - window, 0)  # that the first one does not see
    return np.asarray(pairs - 0.5 * (beyond**2.0 - before**2.0), np.float64)


def active_experts(tokens: Floats | Longs, experts: Experts, exponent: float = 1.0) -> Floats:
    """Expected distinct experts of a GPU that `tokens` tokens are sent to.

        on_gpu * (1 - (1 - per_token / in_all) ^ (tokens ^ exponent))

    With exponent 1 tokens choose independently of one another. Real routing is correlated, and its fewer
    distinct experts are those of tokens ^ exponent independent tokens (../shared/hardware/README.md: s).
    """
    spared = 1.0 - experts.per_token / experts.in_all
    return np.asarray(experts.on_gpu * (1.0 - spared ** np.asarray(tokens, np.float64) ** exponent))


def _floor_s(fit: Fit, launch_s: float) -> float:
    """A fitted floor inside a graph."""
    return max(0.0, fit.launch_floor_us * 1e-6 - launch_s)


def _p_norm(compute_s: ArrayLike, memory_s: ArrayLike, p: float) -> Floats:
    compute, memory = np.asarray(compute_s, np.float64), np.asarray(memory_s, np.float64)
    return np.asarray((compute**p + memory**p) ** (1.0 / p))


def _given(parameter: float | None) -> float:
    """A parameter of a kernel that computes.

    Raises:
        UserError: it is null.
    """
    if parameter is None:
        raise UserError(
            "gemm_bf16, gemm_fp8, moe_bf16 and prefill_attention need compute_efficiency and smooth_p",
            "null",
            "hardware",
            "Give both of each.",
        )
    return parameter
