"""A step-time bundle from facts: which kernels a model runs in a step, each timed by kernels.py.

Everything is of one GPU of the instance: its share of heads, of intermediate sizes and of the vocabulary, its
slice of every expert or its whole experts (architecture.py).
"""

from dataclasses import replace

import numpy as np

from cluster_sim.bundle import linear_attention
from cluster_sim.bundle.architecture import (
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
from cluster_sim.bundle.assumptions import assumptions
from cluster_sim.bundle.draft_tables import ALL_REDUCES_PER_LAYER, Grid, draft_tables, drafter_parameters
from cluster_sim.bundle.format import ALL_REDUCE, MOE, PARAMETERS, Bundle, facts_of
from cluster_sim.bundle.grids import Table
from cluster_sim.bundle.kernels import Floats, Kernels, Longs
from cluster_sim.bundle.sections import Parameter
from cluster_sim.config import HardwareConfig, ModelConfig, Quantization
from cluster_sim.config import Roofline as Fit
from cluster_sim.errors import UserError
from cluster_sim.speculation.proposer import drafters_of

MAX_QUERY_TOKENS = 17  # 1 + 16 drafts
MAX_TOKENS = 2**15  # of a step
MAX_REQUESTS = 2**12
MAX_KV_TOKENS = 2**20
_HOW = "cluster_sim/bundle/roofline.py from model, hardware and parameters above"


def build(
    model: ModelConfig, hardware: HardwareConfig, parallel: Parallel, verify_attention: float | None = None
) -> Bundle:
    """The bundle of a model on one GPU type; `verify_attention` stands in for the assumed one.

    Raises:
        UserError: heads that do not divide, or costs that the hardware lacks (all-reduce, fp8).
    """
    _check_divides(model, parallel)
    other = {} if verify_attention is None else {"verify_attention": verify_attention}
    kernels = Kernels(model, hardware, parallel, **other)
    drafters = drafters_of(model, parallel)
    grids = {**_target_tables(kernels), **draft_tables(hardware, drafters, sizes(MAX_TOKENS))}
    source = f"{_HOW}; fit: {hardware.source}"
    return Bundle(
        name=bundle_name(model, hardware, parallel),
        kind="roofline",
        engine="vLLM: kernels of 0.24.0, host and drafter overheads of 0.10, graphs of 0.33.0",
        dtype=model.dtype,
        tensor_parallel_size=parallel.tensor_parallel_size,
        model=facts_of(model),
        hardware=facts_of(hardware),
        parameters=_parameters(model, hardware, parallel, verify_attention),
        drafters=drafter_parameters(model, hardware, drafters),
        tables={
            name: Table(axes, time_s, source, hardware.licence) for name, (axes, time_s) in grids.items()
        },
    )


def bundle_name(model: ModelConfig, hardware: HardwareConfig, parallel: Parallel) -> str:
    """MODEL[-QUANTIZATION]-HARDWARE-tpN[-epM]; a quantization that the model's name has is not repeated."""
    parts = [model.name]
    if model.quantization is not Quantization.none and model.quantization.name not in model.name:
        parts.append(model.quantization.name)
    parts += [hardware.name, f"tp{parallel.tensor_parallel_size}"]
    if parallel.expert_parallel_size > 1:
        parts.append(f"ep{parallel.expert_parallel_size}")
    return "-".join(parts)


def _check_divides(model: ModelConfig, parallel: Parallel) -> None:
    """Every GPU has as many heads as the others: the rule of vLLM too."""
    if model.num_attention_heads % parallel.tensor_parallel_size:
        raise UserError(
            f"cluster.tensor_parallel_size must divide the {model.num_attention_heads} heads of {model.name}",
            parallel.tensor_parallel_size,
            "cluster.tensor_parallel_size",
            "Use 1, 2, 4 or 8, as the heads allow.",
        )


def _target_tables(kernels: Kernels) -> dict[str, Grid]:
    model, parallel, tokens = kernels.model, kernels.parallel, sizes(MAX_TOKENS)
    tables = {
        "dense": ({"tokens": tokens}, _dense_s(kernels, tokens)),
        "head": ({"rows": tokens}, kernels.head_s(lm_head(model, parallel), tokens)),
        "prefill_attention": _prefill_attention(kernels),
        "decode_attention": _decode_attention(kernels),
    }
    if parallel.tensor_parallel_size > 1:
        calls = ALL_REDUCES_PER_LAYER * model.num_hidden_layers + 1  # and the embedding, cut by vocabulary
        tables[ALL_REDUCE] = ({"tokens": tokens}, calls * kernels.all_reduce_s(tokens))
    if model.num_experts:
        tables[MOE] = _moe(kernels)
    return tables


def _dense_s(kernels: Kernels, tokens: Longs) -> Floats:
    """All that every token passes, whatever it attends to and whichever experts it is sent to."""
    model, parallel = kernels.model, kernels.parallel
    attention, routed = attention_gemms(model, parallel), moe_layers(model)
    mlp = mlp_gemms(model, parallel, model.intermediate_size)
    total = kernels.elementwise_s(tokens, 6.0 * model.hidden_size, 2)  # embedding and final norm
    total = total + (model.num_hidden_layers - routed) * kernels.layer_s((*attention, *mlp), tokens)
    linear = linear_layers(model)
    if linear:  # in place of the projections of attention; the call's launch floor is that of attention
        projections_s = sum((kernels.gemm_s(gemm, tokens) for gemm in attention), np.zeros(len(tokens)))
        total = total + linear * (linear_attention.tokens_s(kernels, tokens) - projections_s)
    if routed:
        shared = model.n_shared_experts * model.moe_intermediate_size
        layer_s = kernels.layer_s((*attention, *shared_gemms(model, parallel)), tokens, shared)
        total = total + routed * (layer_s + kernels.routing_s(tokens))
    return total


def _moe(kernels: Kernels) -> Grid:
    model = kernels.model
    layer, tokens = experts(model, kernels.parallel), sizes(MAX_TOKENS, per_octave=4)
    active = sizes(max(layer.on_gpu, 2), per_octave=4)
    time_s = moe_layers(model) * kernels.experts_s(layer, tokens[:, np.newaxis], active)
    return {"tokens": tokens, "experts": active}, time_s


def _prefill_attention(kernels: Kernels) -> Grid:
    window, windowed = kernels.model.sliding_window, kernels.model.sliding_window_layers
    chunk = sizes(MAX_TOKENS, per_octave=4)
    history = np.unique([0, window, *(2 ** np.arange(4, 21))])
    everywhere = kernels.prefill_attention_s(chunk[:, np.newaxis], history)
    total = (kv_layers(kernels.model) - windowed) * everywhere
    if linear_layers(kernels.model):
        total = total + linear_attention.prefill_s(kernels, chunk)[:, np.newaxis]
    if windowed:
        total = total + windowed * kernels.prefill_attention_s(chunk[:, np.newaxis], history, window)
    return {"chunk_tokens": chunk, "history_tokens": history}, total


def _decode_attention(kernels: Kernels) -> Grid:
    """[query, chunk, requests, kv]: proportional to requests; straight in KV, but for a sliding window."""
    window, windowed = kernels.model.sliding_window, kernels.model.sliding_window_layers
    everywhere = kv_layers(kernels.model) - windowed
    query, kv_tokens = np.arange(1, MAX_QUERY_TOKENS + 1), np.unique([0, window, MAX_KV_TOKENS])
    linear_s = [linear_attention.decode_s(kernels, queries) for queries in range(MAX_QUERY_TOKENS + 1)]
    one_request_s = np.array(
        [
            [
                kernels.kv_read_s(kv, everywhere, queries)
                + kernels.kv_read_s(min(kv, window), windowed, queries)
                + linear_s[queries]
                for kv in kv_tokens.tolist()
            ]
            for queries in query.tolist()
        ]
    )
    requests = np.array([0, MAX_REQUESTS])
    time_s = one_request_s[:, np.newaxis, np.newaxis, :] * requests[:, np.newaxis]
    axes = {"query_tokens": query, "chunk_tokens": np.array([0, 1]), "requests": requests}
    return {**axes, "kv_tokens": kv_tokens}, np.repeat(time_s, 2, axis=1)


def _parameters(
    model: ModelConfig, hardware: HardwareConfig, parallel: Parallel, verify_attention: float | None
) -> dict[str, Parameter]:
    assumed = dict(assumptions().parameters)
    if verify_attention is not None:
        assumed["verify_attention"] = replace(
            assumed["verify_attention"], value=verify_attention, source="given in place of the assumption"
        )
    parameters = {name: assumed[name] for name in assumed if name in PARAMETERS}
    largest_graph = "max_cudagraph_capture_tokens"
    largest = parameters[largest_graph]
    parameters[largest_graph] = replace(largest, value=float(hardware.max_cudagraph_capture_tokens))
    if model.num_experts:
        parameters |= _expert_parameters(hardware, parallel)
    return parameters


def _expert_parameters(hardware: HardwareConfig, parallel: Parallel) -> dict[str, Parameter]:
    """Which experts tokens choose, and what it takes to send them there where the GPUs are linked."""
    if hardware.moe_bf16.smooth_p is None:
        raise UserError("hardware.moe_bf16 needs smooth_p", "null", "hardware.moe_bf16", "Give it.")
    fitted, licence = f"fit: {hardware.source}", hardware.licence
    meaning = (
        "s of active experts = E * (1 - (1 - k/E)^(T^s)); 1 if tokens chose experts independently. That of "
        "the timed routing, whose popularity follows a power law."
    )
    found = {"expert_routing_exponent": Parameter(hardware.moe_bf16.smooth_p, meaning, fitted, licence)}
    link = _link(hardware, parallel.expert_parallel_size)
    if link is not None:
        gpus, fit = link
        latency = f"Least time of gathering or scattering tokens; an all-reduce's over {gpus} GPUs."
        width = f"Bytes/s between ranks, 1e9; reached by an all-reduce over {gpus} GPUs."
        bandwidth = fit.memory_efficiency * hardware.nvlink_gb_per_s
        found["expert_link_latency_s"] = Parameter(fit.launch_floor_us * 1e-6, latency, fitted, licence)
        found["expert_link_gb_per_s"] = Parameter(bandwidth, width, fitted, licence)
    return found


def _link(hardware: HardwareConfig, gpus: int) -> tuple[int, Fit] | None:
    """The fitted all-reduce over the fewest GPUs that hold `gpus`, or over the most; None without."""
    fits = ((2, hardware.all_reduce_tp2), (4, hardware.all_reduce_tp4), (8, hardware.all_reduce_tp8))
    known = [(size, fit) for size, fit in fits if fit is not None]
    enough = [(size, fit) for size, fit in known if size >= gpus]
    return enough[0] if enough else known[-1] if known else None


def sizes(largest: int, per_octave: int = 8) -> Longs:
    """Whole numbers from 1 to `largest`, `per_octave` to a doubling; times in between are nearly straight."""
    octaves = np.arange(int(np.ceil(np.log2(largest) * per_octave)) + 1) / per_octave
    points = np.minimum(np.rint(2.0**octaves), largest)
    return np.unique(points.astype(np.int64))
