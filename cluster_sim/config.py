"""The configuration: one dataclass per Hydra group, named as vLLM names its flags.

Values and their sources live in conf/; here are the types. `check.py` holds the bounds that types cannot say.
`None` always has a meaning of its own, given in the comment.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from omegaconf import MISSING


class SchedulingPolicy(Enum):
    """vLLM's --scheduling-policy."""

    fcfs = "fcfs"
    priority = "priority"


class CudagraphMode(Enum):
    """vLLM's words; NONE is --enforce-eager."""

    FULL_AND_PIECEWISE = "FULL_AND_PIECEWISE"
    PIECEWISE = "PIECEWISE"
    NONE = "NONE"


class RouterPolicy(Enum):
    """How the router picks an instance."""

    round_robin = "round_robin"
    least_requests = "least_requests"


class Method(Enum):
    """Proposers of draft tokens."""

    none = "none"
    eagle = "eagle"
    eagle3 = "eagle3"


class AcceptancePolicy(Enum):
    """How many drafts of a verify step are accepted."""

    per_position = "per_position"
    geometric = "geometric"
    fixed = "fixed"


class RatesAre(Enum):
    """What acceptance.rates are: P(the first i all accepted), or P(the i-th accepted | those before it)."""

    marginal = "marginal"
    conditional = "conditional"


class DraftCost(Enum):
    """Where the drafter's time comes from; `zero` labels the result an upper bound."""

    bundle = "bundle"
    zero = "zero"


class ExecutorKind(Enum):
    """Where simulations run: in this process, or on Ray."""

    auto = "auto"
    serial = "serial"
    ray = "ray"


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
    hbm_gb_per_s: float = MISSING
    nvlink_gb_per_s: float = MISSING
    memory_gib: float = MISSING
    gemm_bf16: Roofline = field(default_factory=Roofline)
    decode_attention: Roofline = field(default_factory=Roofline)
    prefill_attention: Roofline = field(default_factory=Roofline)
    default_max_num_batched_tokens: int = MISSING  # vLLM 0.33, API server, by device tier
    default_max_num_seqs: int = MISSING
    source: str = MISSING
    licence: str = MISSING


@dataclass
class ClusterConfig:
    """Instances of the engine, all alike."""

    instances: int = MISSING
    tensor_parallel_size: int = MISSING
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
    host_overhead_s: float | None = None  # None: the bundle's


@dataclass
class AcceptanceConfig:
    """An acceptance profile, and where it comes from."""

    policy: AcceptancePolicy = MISSING
    rate: float | None = None  # geometric: alpha; fixed: accepted / drafted tokens
    rates: list[float] | None = None  # per_position
    rates_are: RatesAre | None = None  # per_position: must be said
    source: str | None = None  # where the numbers come from; None: given by the user


@dataclass
class SpeculationConfig:
    """The drafter, its draft length and its acceptance; vLLM's --speculative-config."""

    method: Method = MISSING
    num_speculative_tokens: int | None = None  # None only with method none
    num_speculative_tokens_per_batch_size: Any = None  # [first, last, K]; None: static
    acceptance: AcceptanceConfig | None = None  # None only with method none
    draft_cost: DraftCost = DraftCost.bundle


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
    signal_interval_s: float | None = (
        None  # age of what the router knows; 0: instant; None: it looks at nothing
    )


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
