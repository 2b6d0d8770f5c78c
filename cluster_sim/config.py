"""The configuration: one dataclass per Hydra group, named as vLLM names its flags.

Values and their sources live in conf/; here are the types. `check.py` holds the bounds that types cannot say.
`None` always has a meaning of its own, given in the comment.
"""

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING

from cluster_sim.choices import (
    AcceptancePolicy,
    Arrivals,
    CudagraphMode,
    DraftCost,
    ExecutorKind,
    FailedRequests,
    Method,
    Objective,
    OverLoads,
    Quantization,
    RatesAre,
    RouterPolicy,
    SchedulingPolicy,
)
from cluster_sim.compared import SHOWN
from cluster_sim.facts import HardwareConfig, ModelConfig, Roofline
from cluster_sim.fault_config import FaultConfig
from cluster_sim.study_config import SearchConfig, StudyConfig
from cluster_sim.traffic_config import (
    ClassConfig,
    LimitsConfig,
    SharedPrefixConfig,
    TrafficConfig,
    TurnsConfig,
)

__all__ = [
    "AcceptanceConfig",
    "AcceptancePolicy",
    "Arrivals",
    "ClassConfig",
    "ClusterConfig",
    "Config",
    "CudagraphMode",
    "DraftCost",
    "EngineConfig",
    "ExecutorConfig",
    "ExecutorKind",
    "HardwareConfig",
    "InstanceConfig",
    "LimitsConfig",
    "Method",
    "ModelConfig",
    "Objective",
    "OutputConfig",
    "OverLoads",
    "OverrideConfig",
    "Quantization",
    "RatesAre",
    "Roofline",
    "RouterConfig",
    "RouterPolicy",
    "SchedulingPolicy",
    "SearchConfig",
    "SharedPrefixConfig",
    "SloConfig",
    "SpeculationConfig",
    "StudyConfig",
    "SweepConfig",
    "TurnsConfig",
    "WorkloadConfig",
]


@dataclass
class ClusterConfig:
    """Instances of the engine: all alike, but for `overrides`."""

    instances: int = MISSING
    tensor_parallel_size: int = MISSING
    data_parallel_size: int = MISSING  # ranks of an instance; those of an MoE model step together
    enable_expert_parallel: bool = MISSING  # whole experts on each GPU of an instance, not slices of all
    bundle: str | None = None  # name or path; None: the shipped one of model, hardware and TP
    overrides: "list[OverrideConfig] | None" = None  # instances that differ; None: all are alike
    faults: list[FaultConfig] | None = None  # None: nothing happens to any instance


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
class InstanceConfig:
    """All that an instance can have of its own."""

    tensor_parallel_size: int = MISSING
    bundle: str | None = None  # as ClusterConfig's
    hardware: HardwareConfig = MISSING
    engine: EngineConfig = MISSING
    speculation: SpeculationConfig = MISSING


@dataclass
class OverrideConfig:
    """Some instances, and what they have of their own."""

    instances: list[int] = MISSING  # counted from 0
    set: dict[str, Any] | None = None  # keys and options, as a sweep's arms have; read into the next
    resolved: InstanceConfig | None = None  # what they are then; None only where `set` says it


@dataclass
class WorkloadConfig(TrafficConfig):
    """Lengths are a whole number (fixed) or {distribution: lognormal, mean: ..., cv: ...}."""

    requests: int | None = None  # None: all of the trace, or as many as duration_s holds
    duration_s: float | None = None  # None: no limit in time
    request_rate: float | None = None  # requests/s over the cluster; None: the trace's own times
    prompt_tokens: Any = None  # None only with a trace
    output_tokens: Any = None  # None only with a trace
    ignore_eos: bool = True  # output_tokens is max_tokens; False: a stop token ends the output
    trace: str | None = None  # a file; None: drawn arrivals
    warmup: float = 0.0  # share of the time of arrivals; requests of it are not measured (warmup.py)
    cooldown: float = 0.0  # the same at the end


@dataclass
class RouterConfig:
    """The router before the instances."""

    policy: RouterPolicy = MISSING
    signal_interval_s: float | None = None  # age of what it knows; 0: instant; None: it looks at nothing
    weights: list[float] | None = None  # weighted: one for each instance
    replicas: int = 1  # routers that share the requests; between looks each knows its own dispatches only
    overlap_weight: float | None = None  # prefix_aware: KV tokens in use that a token of the prompt is worth
    classes: dict[str, list[int]] | None = None  # class_aware: class -> instances that serve it
    failed_requests: FailedRequests | None = None  # those of an instance that stops; None: retry


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
    instances_per_host: int | None = None  # of one simulation, a worker each; None: spread over workers


@dataclass
class OutputConfig:
    """Where results go."""

    dir: str | None = None  # None: sweeps/<name>/<UTC time>
    drafter: str | None = None  # checkpoint in a study's schedule.json; None: that of vllm_config, if any
    page: bool = True  # leave report.html


@dataclass
class SweepConfig:
    """Arms are compared with one another, at every point of the axes, on the same arrivals."""

    name: str = MISSING
    question: str = MISSING
    arms: dict[str, dict[str, Any]] = MISSING  # arm -> overrides (config keys or group choices)
    baseline: str = MISSING  # an arm
    axes: dict[str, list[Any]] = MISSING  # config key -> values
    seeds: list[int] = MISSING
    search: SearchConfig | None = None  # None: every arm at every point of the axes, as they are
    compare: list[str] = field(default_factory=lambda: list(SHOWN))  # what it prints


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
