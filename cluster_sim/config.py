"""The configuration: one dataclass per Hydra group, named as vLLM names its flags.

Values and their sources live in conf/; here are the types. `check.py` holds the bounds that types cannot say.
`None` always has a meaning of its own, given in the comment.
"""

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING

from cluster_sim.choices import (
    AcceptancePolicy,
    CudagraphMode,
    DraftCost,
    ExecutorKind,
    Method,
    Objective,
    OverLoads,
    Quantization,
    RatesAre,
    RouterPolicy,
    SchedulingPolicy,
)

__all__ = [
    "AcceptanceConfig",
    "AcceptancePolicy",
    "ClusterConfig",
    "Config",
    "CudagraphMode",
    "DraftCost",
    "EngineConfig",
    "ExecutorConfig",
    "ExecutorKind",
    "HardwareConfig",
    "Method",
    "ModelConfig",
    "Objective",
    "OutputConfig",
    "OverLoads",
    "Quantization",
    "RatesAre",
    "Roofline",
    "RouterConfig",
    "RouterPolicy",
    "SchedulingPolicy",
    "SloConfig",
    "SpeculationConfig",
    "StudyConfig",
    "SweepConfig",
    "WorkloadConfig",
]


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
    source: str = MISSING
    licence: str = MISSING


@dataclass
class ClusterConfig:
    """Instances of the engine, all alike."""

    instances: int = MISSING
    tensor_parallel_size: int = MISSING
    data_parallel_size: int = MISSING  # ranks of an instance; those of an MoE model step together
    enable_expert_parallel: bool = MISSING  # whole experts on each GPU of an instance, not slices of all
    bundle: str | None = None  # name or path; None: the shipped one of model, hardware and TP


@dataclass
class EngineConfig:
    """Flags of `vllm serve`."""

    max_num_seqs: int | None = None  # None: vLLM's default for the device tier
    max_num_batched_tokens: int | None = None  # None: vLLM's default for the device tier
    max_num_scheduled_tokens: int | None = None  # None: max_num_batched_tokens
    max_num_active_seqs: int | None = None  # None: max_num_seqs
    max_model_len: int | None = None  # None: the model's max_position_embeddings
    block_size: int = MISSING
    num_gpu_blocks: int | None = None  # None: derived from memory
    gpu_memory_utilization: float = MISSING
    enable_prefix_caching: bool = MISSING
    enable_chunked_prefill: bool = MISSING
    async_scheduling: bool = MISSING
    scheduling_policy: SchedulingPolicy = MISSING
    long_prefill_token_threshold: int = MISSING
    long_prefill_token_threshold_adaptive: bool = MISSING
    scheduler_reserve_full_isl: bool = MISSING
    watermark: float = MISSING
    prefill_schedule_interval: int = MISSING
    disable_lookahead_block_hashes: bool = MISSING
    disable_eagle_block_drop: bool = MISSING
    cudagraph_mode: CudagraphMode = MISSING
    use_v2_model_runner: bool = MISSING
    host_overhead_s: float | None = None  # None: the bundle's


@dataclass
class AcceptanceConfig:
    """An acceptance profile and where it comes from: a published one by name, or a policy and numbers."""

    published: str | None = None  # one of `list profiles`; auto: that of the model and the method
    policy: AcceptancePolicy | None = None  # None only with published
    rate: float | None = None  # geometric: alpha; fixed, decay, binomial: accepted / drafted tokens
    measured_draft_length: int | None = None  # at which that share was measured; None: the same at each
    rates: list[float] | None = None  # per_position
    per_length: Any = None  # {K: acceptance length, bonus included, or list of rates}
    file: str | None = None  # trace: accepted lengths at each output token, one request a line
    series: str | None = None  # trace: which lengths, where a line of the file has several
    function: str | None = None  # custom: package.module.function of the draft length, that returns rates
    rates_are: RatesAre | None = None  # where rates are given by position: must be said
    request_spread: float = 0.0  # between requests: standard deviation of the logit of each draft's chance
    run_spread: float = 0.0  # the same along a request's output
    run_tokens: int | None = None  # output tokens that share a level of run_spread; None only without
    source: str | None = None  # where the numbers come from; None: not said


@dataclass
class SpeculationConfig:
    """The drafter, its draft length and its acceptance; vLLM's --speculative-config."""

    method: Method = MISSING
    model: str | None = None  # of draft_model: an option of conf/model, or a checkpoint's name
    num_speculative_tokens: int | None = None  # None only with method none
    num_speculative_tokens_per_batch_size: Any = None  # [first, last, K]; None: static
    draft_len_schedule: Any = None  # TensorRT-LLM's {last: K}; read into the key above
    vllm_config: Any = None  # JSON of --speculative-config; read into its keys, keeps those without effect
    acceptance: AcceptanceConfig | None = None  # None only with method none
    acceptance_by_class: dict[str, AcceptanceConfig] | None = None  # classes of the workload; else acceptance
    draft_cost: DraftCost = DraftCost.bundle
    draft_pass_s: float | None = None  # GPU time of a pass of the drafter; None: not given


@dataclass
class WorkloadConfig:
    """Lengths are a whole number (fixed) or {distribution: lognormal, mean: ..., cv: ...}."""

    requests: int | None = None  # None: all of the trace, or as many as duration_s holds
    duration_s: float | None = None  # None: no limit in time
    request_rate: float | None = None  # requests/s over the cluster; None: the trace's own times
    prompt_tokens: Any = None  # None only with a trace
    output_tokens: Any = None  # None only with a trace
    ignore_eos: bool = True  # output_tokens is max_tokens; False: a stop token ends the output
    trace: str | None = None  # a file; None: Poisson arrivals


@dataclass
class RouterConfig:
    """The router before the instances."""

    policy: RouterPolicy = MISSING
    signal_interval_s: float | None = None  # age of what it knows; 0: instant; None: it looks at nothing
    weights: list[float] | None = None  # weighted: one for each instance
    overlap_weight: float | None = None  # prefix_aware: KV tokens in use that a token of the prompt is worth
    classes: dict[str, list[int]] | None = None  # class_aware: class -> instances that serve it


@dataclass
class SloConfig:
    """What a request must meet to count as good."""

    ttft_s: float | None = None  # None: not part of the SLO
    tpot_s: float | None = None
    e2el_s: float | None = None
    attainment: float = MISSING  # share of requests that must meet it


@dataclass
class ExecutorConfig:
    """How the work is spread; no result depends on it."""

    kind: ExecutorKind = MISSING
    address: str | None = None  # None: a local Ray, or RAY_ADDRESS
    workers: int | None = None  # None: one per core


@dataclass
class OutputConfig:
    """Where results go."""

    dir: str | None = None  # None: sweeps/<name>/<UTC time>
    drafter: str | None = None  # checkpoint in a study's schedule.json; None: that of vllm_config, if any


@dataclass
class SweepConfig:
    """Arms are compared with one another, at every point of the axes, on the same arrivals."""

    name: str = MISSING
    question: str = MISSING
    arms: dict[str, dict[str, Any]] = MISSING  # arm -> overrides (config keys or group choices)
    baseline: str = MISSING  # an arm
    axes: dict[str, list[Any]] = MISSING  # config key -> values
    seeds: list[int] = MISSING


@dataclass
class StudyConfig:
    """A search for the draft schedule, and values of other keys, that serve a list of loads best."""

    name: str = MISSING
    question: str = MISSING
    objective: Objective = MISSING
    over_loads: OverLoads | None = None  # None: the mean, or nothing to sum up (capacity, gpus)
    attainment: float | None = None  # at each load; None: no constraint, or slo.attainment (capacity, gpus)
    ttft_p99_s: float | None = None  # at each load; None: no constraint
    tpot_p99_s: float | None = None
    max_draft_length: int = MISSING
    bucket_lasts: list[int] = MISSING  # last batch size of each bucket; one more goes on to max_num_seqs
    search_edges: bool = False  # bucket_lasts are where the search of them starts
    monotone: bool | None = None  # K never rises with the batch size; None: with models without experts
    choices: dict[str, list[Any]] = field(default_factory=dict)  # config key or group -> values to try
    axes: dict[str, list[Any]] = MISSING  # config key -> values; each combination is a load
    seeds: list[int] = MISSING  # of the search
    fresh_seeds: list[int] = MISSING  # of the verdict
    trials: int = MISSING
    time_limit_s: float | None = None  # no trial starts later; None: no limit
    window: int = MISSING  # trials under way at a time
    stop_below: float | None = None  # share of the best: a trial below it ends at its first seed; None: never


@dataclass
class Config:
    """All of it, as conf/config.yaml composes it."""

    seed: int = MISSING
    model: ModelConfig = MISSING
    hardware: HardwareConfig = MISSING
    cluster: ClusterConfig = MISSING
    engine: EngineConfig = MISSING
    speculation: SpeculationConfig = MISSING
    workload: WorkloadConfig = MISSING
    router: RouterConfig = MISSING
    slo: SloConfig = MISSING
    executor: ExecutorConfig = MISSING
    output: OutputConfig = field(default_factory=OutputConfig)
    sweep: SweepConfig | None = None
    study: StudyConfig | None = None
