"""Drafters as architectures of their own: what their passes multiply, what they weigh, what they cache.

All of one GPU. Keys are the words of speculation.method:

    eagle        arXiv 2401.15077. fc joins token embedding and the target's hidden state (2 hidden ->
                 hidden); one decoder layer; the target's lm_head
    eagle3       arXiv 2503.01840. The first pass joins hidden states of three target layers (3 hidden ->
                 hidden); one decoder layer whose attention reads embedding and hidden state side by side
                 (2 hidden wide); an lm_head of its own over a reduced vocabulary
    mtp          arXiv 2412.19437 section 2.2. eh_proj joins as eagle's fc does; one decoder layer of the
                 target's own kind, with all of its experts; the target's lm_head. Drafting further than there
                 are modules uses them again
    draft_model  a model of its own (`drafter_of_model`), with embedding and lm_head
    parallel     arXiv 2602.06036 (DFlash). The first pass only makes KV of the drafter's layers from hidden
                 states of several target layers; one block of 1 + K tokens a request then drafts all K
    medusa       arXiv 2401.10774 section 2.1.1. A head for each draft, of a residual block (hidden x hidden)
                 and an lm_head of its own, on the last hidden state of a request; no KV. Not in vLLM 0.33
    ngram        prompt lookup on the CPU
    suffix       arXiv 2411.04975, suffix trees on the CPU

All but draft_model share the target's embedding. fc and eh_proj are held whole by every GPU (vLLM 0.33:
llama_eagle.py, llama_eagle3.py, deepseek_mtp.py, qwen3_dflash.py); the rest is shared as the target is.
"""

from dataclasses import dataclass, replace
from enum import Enum

from cluster_sim.bundle.architecture import (
    Experts,
    Gemm,
    Parallel,
    attention_gemms,
    experts,
    kv_heads,
    linear_layers,
    lm_head,
    mlp_gemms,
    moe_layers,
    shared_gemms,
    uses_mla,
)
from cluster_sim.bundle.architecture import kv_bytes_per_token as kv_bytes
from cluster_sim.bundle.assumptions import assumptions
from cluster_sim.config import Method, ModelConfig, Quantization
from cluster_sim.errors import UserError


class Passes(Enum):
    """How K drafts come about."""

    sequential = "sequential"  # a pass over the step's tokens, then K - 1 passes of one token a request
    one = "one"  # a pass over the step's tokens that only writes KV, then one block of 1 + K tokens a request
    heads = "heads"  # K heads, each on one hidden state a request; none looks at the step's other tokens
    host = "host"  # no pass: the CPU looks them up


def passes_of(method: Method) -> Passes:
    """How a method drafts."""
    if method in (Method.ngram, Method.suffix):
        return Passes.host
    return {Method.parallel: Passes.one, Method.medusa: Passes.heads}.get(method, Passes.sequential)


@dataclass(frozen=True)
class Layers:
    """Decoder layers that are alike."""

    count: int
    gemms: tuple[Gemm, ...]  # of one layer: attention, and the MLP that every token passes
    intermediate_size: int  # of that MLP on all GPUs; 0: routed experts only
    experts: Experts | None = None  # routed


@dataclass(frozen=True)
class Drafter:
    """A drafter of one target, as one GPU holds it."""

    passes: Passes
    model: ModelConfig  # shapes of its layers, and the vocabulary that it drafts from
    parallel: Parallel
    joins_first: tuple[Gemm, ...] = ()  # before the layers, in the pass over the step's tokens only
    joins: tuple[Gemm, ...] = ()  # before the layers, in every pass
    layers: tuple[Layers, ...] = ()  # of one pass
    head: Gemm | None = None  # None: nothing to multiply
    own_vocabulary: tuple[Gemm, ...] = ()  # embedding and lm_head, as far as they are not the target's
    modules: int = 1  # of mtp and medusa: layers or heads held, of which a pass uses one

    @property
    def num_hidden_layers(self) -> int:
        """Layers with KV of every token."""
        return self.modules * self.layers_of_a_pass

    @property
    def layers_of_a_pass(self) -> int:
        """Layers that a pass runs through."""
        return sum(kind.count for kind in self.layers)

    @property
    def weights_bytes(self) -> int:
        """Memory of the drafter's own weights; norms, a few KB a layer, are left out."""
        layers = sum(kind.count * _layer_bytes(kind) for kind in self.layers)
        joins = sum(gemm.weights_bytes for gemm in (*self.joins_first, *self.joins))
        return round(
            self.modules * (layers + joins) + sum(gemm.weights_bytes for gemm in self.own_vocabulary)
        )

    @property
    def kv_bytes_per_token(self) -> int:
        """KV of one token in all layers."""
        return kv_bytes(self.model, self.parallel, self.num_hidden_layers)


def drafter_of(
    method: Method,
    model: ModelConfig,
    parallel: Parallel,
    draft: ModelConfig | None = None,
    num_speculative_tokens: int = 1,
) -> Drafter | None:
    """The drafter of a method for a target; None without speculation.

    `draft` is draft_model's model; medusa has a head for each of num_speculative_tokens.

    Raises:
        UserError: mtp without a module, draft_model without a model or of another vocabulary.
    """
    if method.name == "none":
        return None
    if method.name == "draft_model":
        return _checked_draft_model(model, parallel, draft)
    if method.name == "medusa":
        return _medusa(model, parallel, num_speculative_tokens)
    known = drafters_of(model, parallel)
    if method.name == "mtp" and method.name not in known:
        raise UserError(
            "speculation.method=mtp needs a model with an MTP module",
            f"{model.name}, whose num_nextn_predict_layers is {model.num_nextn_predict_layers}",
            "speculation.method",
            f"Use {', '.join(known)}, or a model that was trained with one.",
        )
    return known[method.name]


def drafters_of(model: ModelConfig, parallel: Parallel) -> dict[str, Drafter]:
    """All drafters that a target has whatever their draft length, by method in alphabetical order."""
    hidden, dense = model.hidden_size, _dense(model, 1, "trained_layer")
    vocabulary = int(assumptions().drafters["eagle3"]["vocab_size"].value)
    reduced = lm_head(replace(model, vocab_size=vocabulary), parallel)
    known = {
        "eagle": Drafter(
            Passes.sequential,
            dense,
            parallel,
            joins=(Gemm(2 * hidden, hidden),),
            layers=_layers(dense, parallel),
            head=lm_head(model, parallel),
        ),
        "eagle3": Drafter(
            Passes.sequential,
            dense,
            parallel,
            joins_first=(Gemm(3 * hidden, hidden),),
            layers=_layers(dense, parallel, 2 * hidden),
            head=reduced,
            own_vocabulary=(reduced,),
        ),
    }
    if model.num_nextn_predict_layers:
        known["mtp"] = _mtp(model, parallel)
    host = Drafter(Passes.host, model, parallel)
    return known | {"ngram": host, "parallel": _parallel(model, parallel), "suffix": host}


def drafter_of_model(draft: ModelConfig, parallel: Parallel) -> Drafter:
    """A model that drafts for a larger one, spread over as many GPUs (vLLM's draft_tensor_parallel_size)."""
    head = lm_head(draft, parallel)
    return Drafter(
        Passes.sequential,
        draft,
        parallel,
        layers=_layers(draft, parallel),
        head=head,
        own_vocabulary=(head,) if draft.tie_word_embeddings else (head, head),
    )


def _checked_draft_model(model: ModelConfig, parallel: Parallel, draft: ModelConfig | None) -> Drafter:
    where, remedy = "speculation.model", "Name a model of conf/model, of the same family as the target."
    if draft is None:
        raise UserError("speculation.method=draft_model needs a model that drafts", "none", where, remedy)
    if linear_layers(draft):
        rule = "a draft model must attend to tokens in all of its layers; others have no costs so far"
        raise UserError(rule, f"{linear_layers(draft)} linear ones of {draft.name}", where, remedy)
    if draft.vocab_size != model.vocab_size:
        rule = f"a draft model must have the {model.vocab_size} tokens of {model.name}'s vocabulary"
        raise UserError(rule, f"{draft.vocab_size} of {draft.name}", where, remedy)
    return drafter_of_model(draft, parallel)


def _mtp(model: ModelConfig, parallel: Parallel) -> Drafter:
    """The checkpoint's own module: a layer like the target's last."""
    layer = replace(model, num_hidden_layers=1, first_k_dense_replace=0, full_attention_interval=0)
    return Drafter(
        Passes.sequential,
        layer,
        parallel,
        joins=(Gemm(2 * model.hidden_size, model.hidden_size),),
        layers=_layers(layer, parallel),
        head=lm_head(model, parallel),
        modules=model.num_nextn_predict_layers,
    )


def _medusa(model: ModelConfig, parallel: Parallel, heads: int) -> Drafter:
    """Residual blocks are whole on every GPU, vocabularies shared (medusa.py of vLLM 0.10)."""
    head = lm_head(model, parallel)
    return Drafter(
        Passes.heads,
        model,
        parallel,
        joins=(Gemm(model.hidden_size, model.hidden_size),),
        head=head,
        own_vocabulary=(head,) * heads,
        modules=heads,
    )


def _parallel(model: ModelConfig, parallel: Parallel) -> Drafter:
    """DFlash: the target's hidden states become keys and values of all its layers in two products.

    vLLM holds the weights of those keys and values a second time, for the second of the products.
    """
    assumed = assumptions().drafters["parallel"]
    dense = _dense(model, int(assumed["num_hidden_layers"].value), "parallel")
    key_values = 2 * dense.num_hidden_layers * kv_heads(dense, parallel) * dense.head_dim
    joined = Gemm(int(assumed["target_layers"].value) * model.hidden_size, model.hidden_size)
    return Drafter(
        Passes.one,
        dense,
        parallel,
        joins_first=(joined, Gemm(model.hidden_size, key_values)),
        layers=_layers(dense, parallel),
        head=lm_head(model, parallel),
    )


def _dense(model: ModelConfig, layers: int, section: str) -> ModelConfig:
    """Layers as published EAGLE-3 and DFlash heads have them: dense, grouped queries, bfloat16, no window.

    That is so for MoE and MLA targets too; widths that such a target has not are assumed, those of the MLP in
    `section` of the assumptions.
    """
    drafters = assumptions().drafters
    assumed = {name: entry.value for name, entry in drafters["trained_layer"].items()}
    dense = replace(
        model,
        num_hidden_layers=layers,
        quantization=Quantization.none,
        sliding_window=0,
        sliding_window_layers=0,
        full_attention_interval=0,
        attn_output_gate=False,
    )
    if uses_mla(model):
        head_dim = int(assumed["head_dim"])
        dense = replace(
            dense,
            num_attention_heads=model.hidden_size // head_dim,
            num_key_value_heads=int(assumed["num_key_value_heads"]),
            head_dim=head_dim,
            kv_lora_rank=0,
        )
    if model.num_experts:
        width = round(drafters[section]["intermediate_size_per_hidden_size"].value * model.hidden_size)
        dense = replace(dense, num_experts=0, intermediate_size=width)
    return dense


def _layers(model: ModelConfig, parallel: Parallel, inputs: int | None = None) -> tuple[Layers, ...]:
    """All layers of a model: dense ones, then those with experts."""
    attention, routed = attention_gemms(model, parallel, inputs), moe_layers(model)
    mlp = mlp_gemms(model, parallel, model.intermediate_size)
    dense = Layers(model.num_hidden_layers - routed, (*attention, *mlp), model.intermediate_size)
    if routed == 0:
        return (dense,)
    shared = model.n_shared_experts * model.moe_intermediate_size
    gemms = (*attention, *shared_gemms(model, parallel))
    moe = Layers(routed, gemms, shared, experts(model, parallel))
    return (dense, moe) if dense.count else (moe,)


def _layer_bytes(kind: Layers) -> float:
    routed = 0.0 if kind.experts is None else kind.experts.weights_bytes
    return routed + sum(gemm.weights_bytes for gemm in kind.gemms)
