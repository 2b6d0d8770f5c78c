"""Facts of models and GPUs, a part of the configuration (config.py). Values and sources are in conf/."""

from dataclasses import dataclass, field

from omegaconf import MISSING

from cluster_sim.choices import Quantization


@dataclass
class ModelConfig:
    """Architecture facts under the names of Hugging Face's config.json."""

    name: str = MISSING
    num_hidden_layers: int = MISSING
    hidden_size: int = MISSING
    intermediate_size: int = MISSING
    num_attention_heads: int = MISSING
    num_key_value_heads: int = MISSING
    head_dim: int = MISSING
    vocab_size: int = MISSING
    max_position_embeddings: int = MISSING
    tie_word_embeddings: bool = MISSING
    dtype: str = MISSING  # bfloat16
    quantization: Quantization = Quantization.none  # of the checkpoint
    num_experts: int = 0  # routed experts of an MoE layer; 0: no MoE
    num_experts_per_tok: int = 0
    moe_intermediate_size: int = 0  # of one expert
    n_shared_experts: int = 0  # every token passes them; each as wide as an expert
    first_k_dense_replace: int = 0  # leading layers without experts
    kv_lora_rank: int = 0  # multi-head latent attention (MLA); 0: grouped queries
    q_lora_rank: int = 0
    qk_nope_head_dim: int = 0
    qk_rope_head_dim: int = 0
    v_head_dim: int = 0
    sliding_window: int = 0  # tokens that such a layer attends to; 0: all
    sliding_window_layers: int = 0  # layers with that window
    attn_output_gate: bool = False  # as many gates as queries
    full_attention_interval: int = 0  # every n-th layer attends, the others are linear; 0: all attend
    linear_num_key_heads: int = 0
    linear_num_value_heads: int = 0
    linear_key_head_dim: int = 0
    linear_value_head_dim: int = 0
    linear_conv_kernel_dim: int = 0
    num_nextn_predict_layers: int = 0  # MTP modules of the checkpoint
    source: str = MISSING


@dataclass
class Roofline:
    """Fitted parameters of one operation on one GPU; formulas: ../shared/hardware/README.md."""

    launch_floor_us: float = MISSING
    compute_efficiency: float | None = None  # None: memory bound only
    memory_efficiency: float = MISSING
    smooth_p: float | None = None  # None: no compute term


@dataclass
class HardwareConfig:
    """One GPU type: peaks, fitted roofline parameters, and where both come from."""

    name: str = MISSING
    bf16_tflops: float = MISSING
    fp8_tflops: float = MISSING  # 0: the card has no fp8
    hbm_gb_per_s: float = MISSING
    nvlink_gb_per_s: float = MISSING  # between two GPUs of a server, one way; PCIe where there is no NVLink
    memory_gib: float = MISSING
    num_sms: int = MISSING
    gemm_bf16: Roofline = field(default_factory=Roofline)
    gemm_fp8: Roofline | None = None  # None: the card has no fp8
    moe_bf16: Roofline = field(default_factory=Roofline)  # smooth_p: exponent of the tokens (README)
    decode_attention: Roofline = field(default_factory=Roofline)
    prefill_attention: Roofline = field(default_factory=Roofline)
    all_reduce_tp2: Roofline | None = None  # of nvlink_gb_per_s; None: no such servers
    all_reduce_tp4: Roofline | None = None
    all_reduce_tp8: Roofline | None = None
    default_max_num_batched_tokens: int = MISSING  # vLLM 0.33, API server, by device tier
    default_max_num_seqs: int = MISSING
    max_cudagraph_capture_tokens: int = MISSING  # largest captured size, whatever max_num_seqs allows
    price_per_hour: float | None = None  # of one GPU; costs are in its currency; None: no costs
    source: str = MISSING
    licence: str = MISSING
