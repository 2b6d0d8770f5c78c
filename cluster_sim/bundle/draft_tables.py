"""Tables and parameters of drafters in a roofline bundle: their passes, timed as the target's kernels are.

    draft_first[tokens]    sequential: a pass over the step's tokens; one: KV of the step's tokens; else 0
    draft_next[requests]   a pass of so many tokens: one a request where passes are sequential, 1 + K a
                           request where one block drafts all K; heads: one head's block; host: 0
    draft_head[rows]       lm_head and choice of so many drafts; host: look-ups for so many requests

None of them reads KV: that is attention_s_per_kv_token, for each KV token of the decodes and each pass. A
step that drafts K tokens for n requests therefore takes, on top of prepare_s and of that,
    sequential   first(tokens) + head(n) + (K - 1) (next(n) + head(n)), and K = 0 first(tokens)
    one          first(tokens) + next(n (1 + K)) + head(n K),           and K = 0 first(tokens)
    heads        K (next(n) + head(n)),                                 and K = 0 nothing
    host         head(n),                                               and K = 0 nothing
where a pass takes pass_launch_s at least; the first of `one` is a few kernels, and no pass in that sense.

Not in it: what ranks with expert parallelism send each other in the layer of an MTP module.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cluster_sim.bundle.architecture import kv_layers, uses_mla
from cluster_sim.bundle.assumptions import assumptions
from cluster_sim.bundle.kernels import Floats, Kernels, Longs, active_experts
from cluster_sim.bundle.sections import Parameter
from cluster_sim.config import HardwareConfig, ModelConfig
from cluster_sim.speculation.proposer import Drafter, Layers, Passes

Grid = tuple[dict[str, NDArray[Any]], Floats]

ALL_REDUCES_PER_LAYER = 2  # after attention, after the MLP or the experts
_SOURCE = "architecture in cluster_sim/speculation/proposer.py"


def draft_tables(hardware: HardwareConfig, drafters: dict[str, Drafter], tokens: Longs) -> dict[str, Grid]:
    """The three tables of the format, for drafters by method; `tokens` is the axis of each.

    Raises:
        UserError: costs that the hardware lacks (all-reduce, fp8).
    """
    names = sorted(drafters)
    kernels = {name: Kernels(drafters[name].model, hardware, drafters[name].parallel) for name in names}
    axis = {"drafter": np.array(names)}
    first_s = [first_pass_s(kernels[name], drafters[name], tokens) for name in names]
    next_s = [further_pass_s(kernels[name], drafters[name], tokens) for name in names]
    head_s = [choice_s(kernels[name], name, drafters[name], tokens) for name in names]
    return {
        "draft_first": ({**axis, "tokens": tokens}, np.stack(first_s)),
        "draft_next": ({**axis, "requests": tokens}, np.stack(next_s)),
        "draft_head": ({**axis, "rows": tokens}, np.stack(head_s)),
    }


def drafter_parameters(
    model: ModelConfig, hardware: HardwareConfig, drafters: dict[str, Drafter]
) -> dict[str, dict[str, Parameter]]:
    """What the tables do not hold, for drafters of the target `model` by method."""
    return {
        name: _parameters(
            name, drafters[name], model, Kernels(drafters[name].model, hardware, drafters[name].parallel)
        )
        for name in sorted(drafters)
    }


def first_pass_s(kernels: Kernels, drafter: Drafter, tokens: Longs) -> Floats:
    """The drafter's work on the tokens of a step."""
    match drafter.passes:
        case Passes.host | Passes.heads:
            return np.zeros(len(tokens))
        case Passes.sequential:
            return _pass_s(kernels, drafter, tokens, first=True)
        case Passes.one:
            return _context_s(kernels, drafter, tokens)


def further_pass_s(kernels: Kernels, drafter: Drafter, rows: Longs) -> Floats:
    """A pass of `rows` tokens through all layers; of one head."""
    if drafter.passes is Passes.host:
        return np.zeros(len(rows))
    if drafter.passes is Passes.heads:
        residual_s = kernels.elementwise_s(rows, 3.0 * drafter.model.hidden_size, 1)  # SiLU and sum
        return residual_s + sum((kernels.gemm_s(gemm, rows) for gemm in drafter.joins), np.zeros(len(rows)))
    return _pass_s(kernels, drafter, rows, first=False)


def choice_s(kernels: Kernels, name: str, drafter: Drafter, rows: Longs) -> Floats:
    """What makes tokens of `rows` hidden states; on the host, drafts of `rows` requests."""
    if drafter.head is None:
        seconds = assumptions().drafters[name]["host_s_per_request"].value
        return np.asarray(rows * seconds, np.float64)
    return kernels.head_s(drafter.head, rows)


def _pass_s(kernels: Kernels, drafter: Drafter, rows: Longs, *, first: bool) -> Floats:
    """Embedding, joins and layers; with tensor parallelism their all-reduces."""
    joins = (*drafter.joins_first, *drafter.joins) if first else drafter.joins
    total = kernels.elementwise_s(rows, 4.0 * drafter.model.hidden_size, 1)
    for gemm in joins:
        total = total + kernels.gemm_s(gemm, rows)
    for kind in drafter.layers:
        total = total + kind.count * _layer_s(kernels, kind, rows)
    calls = ALL_REDUCES_PER_LAYER * drafter.layers_of_a_pass + 1  # and the embedding, cut by vocabulary
    return total + calls * kernels.all_reduce_s(rows)


def _layer_s(kernels: Kernels, kind: Layers, rows: Longs) -> Floats:
    """One layer; ranks of an instance are taken to have as many tokens as one another."""
    layer_s = kernels.layer_s(kind.gemms, rows, kind.intermediate_size)
    if kind.experts is None:
        return layer_s
    exponent = kernels.hardware.moe_bf16.smooth_p
    ranks, slices = kernels.parallel.expert_parallel_size, kernels.parallel.tensor_parallel_size
    share: NDArray[Any] = rows if ranks == 1 else rows / slices  # of all GPUs' tokens
    active = active_experts(share * ranks, kind.experts, 1.0 if exponent is None else exponent)
    return layer_s + kernels.routing_s(rows) + kernels.experts_s(kind.experts, share, active)


def _context_s(kernels: Kernels, drafter: Drafter, tokens: Longs) -> Floats:
    """Keys and values of all layers from the target's hidden states: two products, their norms, rotary."""
    _, key_values = drafter.joins_first
    total = kernels.elementwise_s(tokens, 2.0 * drafter.model.hidden_size + 4.0 * key_values.outputs, 3)
    for gemm in drafter.joins_first:
        total = total + kernels.gemm_s(gemm, tokens)
    return total


def _parameters(name: str, drafter: Drafter, target: ModelConfig, kernels: Kernels) -> dict[str, Parameter]:
    assumed, layers = assumptions().drafters[name], drafter.num_hidden_layers
    derived = {
        "num_hidden_layers": (layers, "Decoder layers, each with KV for every token."),
        "prefill_attention_share": (
            prefill_attention_share(drafter, target),
            "FLOPs of its attention to a prefill, of those of the target's layers that see all tokens.",
        ),
        "weights_bytes": (drafter.weights_bytes, "Weights beyond the target's, on one GPU."),
        "kv_bytes_per_token": (drafter.kv_bytes_per_token, "KV of one token on one GPU."),
    }
    found = {key: Parameter(float(value), words, _SOURCE, "facts") for key, (value, words) in derived.items()}
    return {
        "prepare_s": assumed["prepare_s"],
        "pass_launch_s": _pass_launch_s(assumed, drafter),
        "attention_s_per_kv_token": _per_kv_token(assumed, drafter, kernels),
        **found,
    }


def prefill_attention_share(drafter: Drafter, target: ModelConfig) -> float:
    """Attention FLOPs of a drafter's pass over prefill tokens over the target's, layers x heads x dimensions.

    0 where the pass does not attend: it writes KV (`one`), or there is none (`host`).
    """
    if drafter.passes is not Passes.sequential:
        return 0.0
    everywhere = kv_layers(target) - target.sliding_window_layers
    return (
        drafter.layers_of_a_pass * _attention_width(drafter.model) / (everywhere * _attention_width(target))
    )


def _attention_width(model: ModelConfig) -> int:
    """Values of keys and values that all heads of a layer multiply for a pair of tokens."""
    if uses_mla(model):
        return model.num_attention_heads * (
            model.qk_nope_head_dim + model.qk_rope_head_dim + model.v_head_dim
        )
    return 2 * model.num_attention_heads * model.head_dim


def _pass_launch_s(assumed: dict[str, Parameter], drafter: Drafter) -> Parameter:
    """CPU time to launch a pass: that of one layer, and the further ones."""
    if drafter.layers_of_a_pass <= 1:
        return assumed["pass_launch_s"]
    one, more = assumed["pass_launch_s"], assumptions().drafters["trained_layer"]["layer_launch_s"]
    return Parameter(
        one.value + (drafter.layers_of_a_pass - 1) * more.value,
        f"{one.meaning} Of {drafter.layers_of_a_pass} layers: {more.meaning}",
        f"{one.source}; {more.source}",
        one.licence,
    )


def _per_kv_token(assumed: dict[str, Parameter], drafter: Drafter, kernels: Kernels) -> Parameter:
    """Time of a pass for each KV token of the decodes; the CPU's to compare it where there is no pass."""
    if drafter.passes is Passes.host:
        return assumed["attention_s_per_kv_token"]
    seconds = kernels.kv_read_s(1.0, drafter.layers_of_a_pass)
    return Parameter(seconds, "Time of a pass to read a token's KV.", _SOURCE, "facts")
