"""A step-time bundle from facts: what each kernel computes and moves, over what the GPU can do.

Formulas and fitted parameters: ../shared/hardware/README.md. A GEMM takes
    launch floor + ((FLOPs / compute)^p + (bytes / bandwidth)^p)^(1/p);
decode attention reads its KV; prefill attention is a p-norm of its causal FLOPs and its bytes.

The fit timed kernels alone. Two of its parts do not add up over a step, and are treated so:
- each replay of a graph costs graph_launch_s on the GPU, which all layers of a step pay once: it is taken off
  the floors of their kernels;
- a mixed step makes one attention call a layer, not one for prefills and one for decodes: the floor is in the
  table `dense`.
"""

from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cluster_sim.bundle.assumptions import assumptions
from cluster_sim.bundle.format import PARAMETERS, Bundle
from cluster_sim.bundle.grids import Table
from cluster_sim.bundle.sections import Parameter
from cluster_sim.config import HardwareConfig, Method, ModelConfig
from cluster_sim.config import Roofline as Fit
from cluster_sim.errors import UserError
from cluster_sim.speculation.proposer import (
    BYTES_PER_WEIGHT,
    Drafter,
    Gemm,
    drafter_of,
    kv_bytes_per_token,
    layer_gemms,
)

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]

GEMM_CALLS_PER_REPLAY = 5  # how AIConfigurator timed them: bundles/assumptions.yaml, graph_launch_s
KERNELS_PER_LAYER = 4  # two norms (each with its residual), rotary, activation
MAX_QUERY_TOKENS = 17  # 1 + 16 drafts
MAX_TOKENS = 2**15  # of a step
MAX_REQUESTS = 2**12
MAX_KV_TOKENS = 2**20
_HOW = "cluster_sim/bundle/roofline.py from model, hardware and parameters above"
DRAFTERS = (Method.eagle, Method.eagle3)


def build(model: ModelConfig, hardware: HardwareConfig, tensor_parallel_size: int) -> Bundle:
    """The bundle of a dense model with grouped-query attention.

    Raises:
        UserError: tensor parallelism, for which all-reduce costs are missing.
    """
    if tensor_parallel_size != 1:
        raise UserError(
            "a roofline bundle is made for one GPU per instance (all-reduce has no cost yet)",
            tensor_parallel_size,
            "cluster.tensor_parallel_size",
            "Use 1, or name a measured bundle in cluster.bundle.",
        )
    drafters = {method.name: drafter_of(method, model) for method in DRAFTERS}
    known = {name: drafter for name, drafter in drafters.items() if drafter is not None}
    kernels = Kernels(model, hardware)
    return Bundle(
        name=f"{model.name}-{hardware.name}-tp{tensor_parallel_size}",
        kind="roofline",
        engine="vLLM: kernels of 0.24.0, host and drafter overheads of 0.10, graphs of 0.33.0",
        dtype=model.dtype,
        tensor_parallel_size=tensor_parallel_size,
        model={**_facts(model), "licence": "facts"},
        hardware=_facts(hardware),
        parameters=_parameters(),
        drafters={name: _drafter_parameters(name, known[name], kernels) for name in known},
        tables={
            name: Table(axes, time_s, f"{_HOW}; fit: {hardware.source}", hardware.licence)
            for name, (axes, time_s) in {**_target_tables(kernels), **_draft_tables(kernels, known)}.items()
        },
    )


class Kernels:
    """Times of one GPU's kernels for one model; counts may be arrays."""

    def __init__(self, model: ModelConfig, hardware: HardwareConfig) -> None:
        self.model, self.hardware = model, hardware
        self._assumed = {name: entry.value for name, entry in assumptions().parameters.items()}
        self._flop_per_s = hardware.bf16_tflops * 1e12
        self._bytes_per_s = hardware.hbm_gb_per_s * 1e9

    def gemm_s(self, gemm: Gemm, rows: Longs) -> Floats:
        """A product of [rows, inputs] and [inputs, outputs]."""
        fit = self.hardware.gemm_bf16
        flops = 2.0 * gemm.weights * rows.astype(np.float64)
        moved = BYTES_PER_WEIGHT * (gemm.weights + (gemm.inputs + gemm.outputs) * rows.astype(np.float64))
        launch_s = self._assumed["graph_launch_s"] / GEMM_CALLS_PER_REPLAY
        return self._floor_s(fit, launch_s) + self._smooth_max_s(fit, flops, moved)

    def elementwise_s(self, rows: Longs, values_per_row: float, kernels: int) -> Floats:
        """Kernels that read and write `values_per_row` values a token between them, bound by memory."""
        bandwidth = self._assumed["elementwise_memory_efficiency"] * self._bytes_per_s
        floor_s = kernels * self._assumed["elementwise_floor_s"]
        return np.asarray(floor_s + rows * values_per_row * BYTES_PER_WEIGHT / bandwidth, np.float64)

    def layer_s(self, gemms: tuple[Gemm, ...], rows: Longs) -> Floats:
        """A decoder layer with one attention call that reads no KV: GEMMs, norms, rotary, activation."""
        model = self.model
        rotated = (model.num_attention_heads + model.num_key_value_heads) * model.head_dim
        values = 8.0 * model.hidden_size + 2.0 * rotated + 3.0 * model.intermediate_size
        total = self.elementwise_s(rows, values, KERNELS_PER_LAYER) + self.attention_floor_s
        return total + sum((self.gemm_s(gemm, rows) for gemm in gemms), np.zeros(len(rows)))

    def pass_s(self, drafter: Drafter, gemms: tuple[Gemm, ...], rows: Longs) -> Floats:
        """A drafter's pass without its head: embedding, and layers of `gemms`."""
        embedding_s = self.elementwise_s(rows, 4.0 * self.model.hidden_size, 1)
        return embedding_s + drafter.num_hidden_layers * self.layer_s(gemms, rows)

    def head_s(self, gemm: Gemm, rows: Longs) -> Floats:
        """lm_head, and a sampler over the target's vocabulary."""
        bandwidth = self._assumed["elementwise_memory_efficiency"] * self._bytes_per_s
        logits_bytes = rows * self._assumed["sampler_bytes_per_logit"] * self.model.vocab_size
        return self.gemm_s(gemm, rows) + self._assumed["sampler_floor_s"] + logits_bytes / bandwidth

    @property
    def attention_floor_s(self) -> float:
        """Launch floor of an attention call inside a graph."""
        return self._floor_s(self.hardware.decode_attention, self._assumed["graph_launch_s"])

    def kv_read_s(self, kv_tokens: float, layers: int) -> float:
        """Decode attention over `kv_tokens`, on top of its floor."""
        bandwidth = self.hardware.decode_attention.memory_efficiency * self._bytes_per_s
        return kv_tokens * kv_bytes_per_token(self.model, layers) / bandwidth

    def prefill_attention_s(self, chunk: Longs, history: Longs) -> Floats:
        """All layers: causal attention of `chunk` tokens after `history`, beyond the calls' decode floor."""
        model, fit = self.model, self.hardware.prefill_attention
        heads = model.num_attention_heads * model.head_dim
        flops = np.asarray(4.0 * heads * chunk * (history + 0.5 * chunk), np.float64)
        read = kv_bytes_per_token(model, 1) * (history + chunk)
        moved = np.asarray(2.0 * BYTES_PER_WEIGHT * heads * chunk + read, np.float64)
        floor_us = max(0.0, fit.launch_floor_us - self.hardware.decode_attention.launch_floor_us)
        return model.num_hidden_layers * (floor_us * 1e-6 + self._smooth_max_s(fit, flops, moved))

    def _floor_s(self, fit: Fit, launch_s: float) -> float:
        return max(0.0, fit.launch_floor_us * 1e-6 - launch_s)

    def _smooth_max_s(self, fit: Fit, flops: Floats, moved: Floats) -> Floats:
        if fit.compute_efficiency is None or fit.smooth_p is None:
            return moved / (fit.memory_efficiency * self._bytes_per_s)
        compute_s = flops / (fit.compute_efficiency * self._flop_per_s)
        memory_s = moved / (fit.memory_efficiency * self._bytes_per_s)
        return np.asarray((compute_s**fit.smooth_p + memory_s**fit.smooth_p) ** (1.0 / fit.smooth_p))


Grid = tuple[dict[str, NDArray[Any]], Floats]


def _target_tables(kernels: Kernels) -> dict[str, Grid]:
    model, verify = kernels.model, assumptions().parameters["verify_attention"].value
    tokens, rows, pair = _sizes(MAX_TOKENS), _sizes(MAX_TOKENS), np.array([0, 1])
    hidden, layers = model.hidden_size, model.num_hidden_layers
    around = kernels.elementwise_s(tokens, 6.0 * hidden, 2)  # embedding and final norm
    dense_s = layers * kernels.layer_s(layer_gemms(model, hidden), tokens) + around
    chunk, history = _sizes(MAX_TOKENS, per_octave=4), np.concatenate([[0], 2 ** np.arange(4, 21)])
    query = np.arange(1, MAX_QUERY_TOKENS + 1)
    requests, kv_tokens = np.array([0, MAX_REQUESTS]), np.array([0, MAX_KV_TOKENS])
    read_s = kernels.kv_read_s(1.0, layers) * requests[:, np.newaxis] * kv_tokens
    reads = 1.0 + verify * (query - 1)
    decode_s = np.broadcast_to(reads[:, np.newaxis, np.newaxis, np.newaxis] * read_s, (len(query), 2, 2, 2))
    return {
        "dense": ({"tokens": tokens}, dense_s),
        "head": ({"rows": rows}, kernels.head_s(Gemm(hidden, model.vocab_size), rows)),
        "prefill_attention": (
            {"chunk_tokens": chunk, "history_tokens": history},
            kernels.prefill_attention_s(chunk[:, np.newaxis], history),
        ),
        "decode_attention": (
            {"query_tokens": query, "chunk_tokens": pair, "requests": requests, "kv_tokens": kv_tokens},
            decode_s,
        ),
    }


def _draft_tables(kernels: Kernels, drafters: dict[str, Drafter]) -> dict[str, Grid]:
    tokens, requests = _sizes(MAX_TOKENS), _sizes(MAX_REQUESTS)
    names = np.array(list(drafters))
    each = drafters.values()
    first_s = [
        kernels.pass_s(drafter, (*drafter.first_only, *drafter.every_pass), tokens) for drafter in each
    ]
    next_s = [kernels.pass_s(drafter, drafter.every_pass, requests) for drafter in each]
    head_s = [kernels.head_s(drafter.head, requests) for drafter in each]
    return {
        "draft_first": ({"drafter": names, "tokens": tokens}, np.stack(first_s)),
        "draft_next": ({"drafter": names, "requests": requests}, np.stack(next_s)),
        "draft_head": ({"drafter": names, "rows": requests}, np.stack(head_s)),
    }


def _parameters() -> dict[str, Parameter]:
    assumed = assumptions().parameters
    return {name: assumed[name] for name in assumed if name in PARAMETERS}


def _drafter_parameters(name: str, drafter: Drafter, kernels: Kernels) -> dict[str, Parameter]:
    assumed = assumptions().drafters[name]
    layers = drafter.num_hidden_layers
    derived = {
        "num_hidden_layers": (layers, "Decoder layers, each with KV for every token."),
        "attention_s_per_kv_token": (kernels.kv_read_s(1.0, layers), "Time of a pass to read a token's KV."),
        "weights_bytes": (drafter.weights_bytes, "Weights beyond the target's."),
        "kv_bytes_per_token": (kv_bytes_per_token(kernels.model, layers), "KV of one token."),
    }
    source = "architecture in cluster_sim/speculation/proposer.py"
    return {
        "prepare_s": assumed["prepare_s"],
        "pass_launch_s": assumed["pass_launch_s"],
        **{key: Parameter(float(value), words, source, "facts") for key, (value, words) in derived.items()},
    }


def _facts(config: ModelConfig | HardwareConfig) -> dict[str, Any]:
    return {key: value for key, value in asdict(config).items() if not key.startswith("default_")}


def _sizes(largest: int, per_octave: int = 8) -> Longs:
    """Whole numbers from 1 to `largest`, `per_octave` to a doubling; times in between are nearly straight."""
    octaves = int(np.log2(largest))
    return np.unique(np.rint(2.0 ** (np.arange(octaves * per_octave + 1) / per_octave)).astype(np.int64))
