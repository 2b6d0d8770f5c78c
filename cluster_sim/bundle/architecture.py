"""What a model's layers multiply and cache on one GPU: the facts that costs and memory are derived from.

Dense layers with grouped queries (GQA), layers of experts (MoE) with shared ones, and multi-head latent
attention (MLA, arXiv 2405.04434 section 2.1) as vLLM runs it: the latent of a token is cached once for all
heads, and the up-projections of keys and values are absorbed into batched products per head.

Tensor parallelism gives a GPU a share of the heads and of the intermediate size; what does not divide is
held by all. Expert parallelism gives it whole experts.
"""

from dataclasses import dataclass

from cluster_sim.config import ModelConfig, Quantization

BYTES_PER_VALUE = 2.0  # bfloat16: activations, KV, embedding, lm_head
_BYTES_PER_FP8 = 1.0
_BYTES_PER_MXFP4 = 0.5 + 1.0 / 32.0  # 4 bits, and a scale of 8 bits for 32 weights


@dataclass(frozen=True)
class Parallel:
    """How the GPUs of one instance share a model."""

    tensor_parallel_size: int = 1
    expert_parallel_size: int = 1  # 1: every GPU holds a slice of all experts


@dataclass(frozen=True)
class Gemm:
    """A product of [rows, inputs] with a weight matrix [inputs, outputs], `copies` of them side by side."""

    inputs: int
    outputs: int
    bytes_per_weight: float = BYTES_PER_VALUE
    copies: int = 1  # one per head, for products batched over heads

    @property
    def weights(self) -> int:
        """Weights of all copies."""
        return self.inputs * self.outputs * self.copies

    @property
    def weights_bytes(self) -> float:
        """Memory of all copies."""
        return self.weights * self.bytes_per_weight


@dataclass(frozen=True)
class Experts:
    """The routed experts of one MoE layer on one GPU."""

    on_gpu: int  # that this GPU holds, whole or a slice of each
    per_token: int  # that a token is sent to, over all GPUs
    in_all: int
    gemms: tuple[Gemm, ...]  # of one expert: gate and up, down

    @property
    def weights_bytes(self) -> float:
        """Memory of all experts on the GPU."""
        return self.on_gpu * sum(gemm.weights_bytes for gemm in self.gemms)


def uses_mla(model: ModelConfig) -> bool:
    """Whether attention caches a latent instead of keys and values."""
    return model.kv_lora_rank > 0


def moe_layers(model: ModelConfig) -> int:
    """Layers with routed experts; the other ones are dense."""
    return model.num_hidden_layers - model.first_k_dense_replace if model.num_experts else 0


def linear_layers(model: ModelConfig) -> int:
    """Layers of linear attention, which keep a state a request instead of KV a token."""
    interval = model.full_attention_interval
    return model.num_hidden_layers - model.num_hidden_layers // interval if interval > 1 else 0


def kv_layers(model: ModelConfig) -> int:
    """Layers that attend to tokens and keep KV of them."""
    return model.num_hidden_layers - linear_layers(model)


def layer_bytes_per_weight(model: ModelConfig) -> float:
    """Bytes of a weight of attention and of dense or shared MLPs."""
    return _BYTES_PER_FP8 if model.quantization is Quantization.fp8 else BYTES_PER_VALUE


def expert_bytes_per_weight(model: ModelConfig) -> float:
    """Bytes of a weight of a routed expert."""
    return _BYTES_PER_MXFP4 if model.quantization is Quantization.mxfp4 else layer_bytes_per_weight(model)


def attention_gemms(model: ModelConfig, parallel: Parallel, inputs: int | None = None) -> tuple[Gemm, ...]:
    """Projections around attention; `inputs` wide instead of hidden_size for EAGLE-3's layer."""
    wide = model.hidden_size if inputs is None else inputs
    size = layer_bytes_per_weight(model)
    heads = model.num_attention_heads // parallel.tensor_parallel_size
    if uses_mla(model):
        rank, rope, nope = model.kv_lora_rank, model.qk_rope_head_dim, model.qk_nope_head_dim
        down = Gemm(wide, (model.q_lora_rank or 0) + rank + rope, size)  # held by every GPU
        query = Gemm(model.q_lora_rank or wide, heads * (nope + rope), size)
        return (
            down,
            query,
            Gemm(nope, rank, copies=heads),  # absorbed key up-projection, bfloat16
            Gemm(rank, model.v_head_dim, copies=heads),  # absorbed value up-projection
            Gemm(heads * model.v_head_dim, model.hidden_size, size),
        )
    key_value = 2 * kv_heads(model, parallel)
    gates = heads if model.attn_output_gate else 0
    return (
        Gemm(wide, (heads + gates + key_value) * model.head_dim, size),
        Gemm(heads * model.head_dim, model.hidden_size, size),
    )


def mlp_gemms(model: ModelConfig, parallel: Parallel, intermediate: int) -> tuple[Gemm, ...]:
    """A gated MLP: gate and up as one product, down."""
    share, size = intermediate // parallel.tensor_parallel_size, layer_bytes_per_weight(model)
    return (Gemm(model.hidden_size, 2 * share, size), Gemm(share, model.hidden_size, size))


def shared_gemms(model: ModelConfig, parallel: Parallel) -> tuple[Gemm, ...]:
    """What every token passes in an MoE layer beside its routed experts: the router, the shared experts."""
    router = Gemm(model.hidden_size, model.num_experts)
    if model.n_shared_experts == 0:
        return (router,)
    return (router, *mlp_gemms(model, parallel, model.n_shared_experts * model.moe_intermediate_size))


def experts(model: ModelConfig, parallel: Parallel) -> Experts:
    """The routed experts of an MoE layer."""
    size = expert_bytes_per_weight(model)
    slices = parallel.tensor_parallel_size if parallel.expert_parallel_size == 1 else 1
    share = model.moe_intermediate_size // slices
    gemms = (Gemm(model.hidden_size, 2 * share, size), Gemm(share, model.hidden_size, size))
    on_gpu = -(-model.num_experts // parallel.expert_parallel_size)
    return Experts(on_gpu, model.num_experts_per_tok, model.num_experts, gemms)


def kv_heads(model: ModelConfig, parallel: Parallel) -> int:
    """KV heads on one GPU: at least one."""
    return max(1, model.num_key_value_heads // parallel.tensor_parallel_size)


def kv_bytes_per_token(model: ModelConfig, parallel: Parallel, layers: int) -> int:
    """KV of one token in `layers` layers on one GPU: keys and values, or MLA's latent (whole on each GPU)."""
    if uses_mla(model):
        values = model.kv_lora_rank + model.qk_rope_head_dim
    else:
        values = 2 * kv_heads(model, parallel) * model.head_dim
    return int(layers * values * BYTES_PER_VALUE)


def lm_head(model: ModelConfig, parallel: Parallel) -> Gemm:
    """Output projection, a share of the vocabulary on each GPU."""
    return Gemm(model.hidden_size, -(-model.vocab_size // parallel.tensor_parallel_size))
