"""The interval that each number of the configuration must lie in, with what it is and its unit."""

import math
from dataclasses import dataclass

LARGEST_COUNT = 2**31 - 1  # the engine's tables count in 32 bits
LARGEST_SEED = 2**63 - 1
LARGEST_REPLICAS = 1024  # of the router: each keeps a score of every instance
LARGEST_SPREAD = 20  # of a logit: odds of e^20; beyond it, every draft is all but certain or all but hopeless


@dataclass(frozen=True)
class Bound:
    """An interval from `low` to `high`; `above` and `below` leave its ends out."""

    quantity: str
    low: float = 0
    high: float = math.inf
    above: bool = False  # low itself is outside
    below: bool = False  # high itself is outside

    def broken(self, value: float) -> tuple[str, str] | None:
        """What `value` must be and is not, and what to give instead; None where it lies in the interval."""
        if self.above and value <= self.low:
            return f"above {self.low:g}", f"a number above {self.low:g}"
        if value < self.low:
            return f"at least {self.low:g}", f"{self.low:g} or more"
        if self.below and value >= self.high:
            return f"below {self.high:g}", f"a number below {self.high:g}"
        if value > self.high:
            return f"at most {self.high}", f"{self.high} or less"
        if not isinstance(value, int) and not math.isfinite(value):
            return "finite", "a finite number"
        return None


def _count(quantity: str, low: int = 1) -> Bound:
    return Bound(quantity, low=low, high=LARGEST_COUNT)


def _positive(quantity: str) -> Bound:
    return Bound(quantity, above=True)


BOUNDS = {
    "seed": Bound("the seed", high=LARGEST_SEED),
    "model.num_hidden_layers": _count("the number of layers"),
    "model.hidden_size": _count("the hidden size"),
    "model.intermediate_size": _count("the intermediate size"),
    "model.num_attention_heads": _count("the number of attention heads"),
    "model.num_key_value_heads": _count("the number of KV heads"),
    "model.head_dim": _count("the size of a head"),
    "model.vocab_size": _count("the size of the vocabulary"),
    "model.max_position_embeddings": _count("the model's length in tokens", low=2),
    "model.num_experts": _count("the number of experts", low=0),
    "model.num_experts_per_tok": _count("the number of experts per token", low=0),
    "model.moe_intermediate_size": _count("the intermediate size of an expert", low=0),
    "model.n_shared_experts": _count("the number of shared experts", low=0),
    "model.first_k_dense_replace": _count("the number of layers without experts", low=0),
    "model.kv_lora_rank": _count("the rank of keys and values", low=0),
    "model.q_lora_rank": _count("the rank of queries", low=0),
    "model.qk_nope_head_dim": _count("the size of a head without positions", low=0),
    "model.qk_rope_head_dim": _count("the size of a head with positions", low=0),
    "model.v_head_dim": _count("the size of a head's values", low=0),
    "model.sliding_window": _count("the window in tokens", low=0),
    "model.sliding_window_layers": _count("the number of layers with a window", low=0),
    "model.full_attention_interval": _count("the distance of layers that attend", low=0),
    "model.linear_num_key_heads": _count("the number of linear key heads", low=0),
    "model.linear_num_value_heads": _count("the number of linear value heads", low=0),
    "model.linear_key_head_dim": _count("the size of a linear key head", low=0),
    "model.linear_value_head_dim": _count("the size of a linear value head", low=0),
    "model.linear_conv_kernel_dim": _count("the width of the convolution", low=0),
    "model.num_nextn_predict_layers": _count("the number of MTP modules", low=0),
    "hardware.bf16_tflops": _positive("the peak in TFLOP/s"),
    "hardware.fp8_tflops": Bound("the peak in TFLOP/s"),
    "hardware.hbm_gb_per_s": _positive("the memory bandwidth in GB/s"),
    "hardware.nvlink_gb_per_s": _positive("the link's bandwidth in GB/s"),
    "hardware.memory_gib": _positive("the device memory in GiB"),
    "hardware.price_per_hour": _positive("the price of a GPU and hour"),
    "hardware.num_sms": _count("the number of streaming multiprocessors"),
    "hardware.default_max_num_batched_tokens": _count("the default token budget"),
    "hardware.default_max_num_seqs": _count("the default number of requests"),
    "hardware.max_cudagraph_capture_tokens": _count("the largest captured size in tokens"),
    "cluster.instances": _count("the number of instances"),
    "cluster.tensor_parallel_size": _count("the number of GPUs per instance"),
    "cluster.data_parallel_size": _count("the number of ranks per instance"),
    "engine.max_num_seqs": _count("the number of requests running at once"),
    "engine.max_num_batched_tokens": _count("the number of tokens per step"),
    "engine.max_num_scheduled_tokens": _count("the number of tokens per step"),
    "engine.max_num_active_seqs": _count("the number of requests admitted at once"),
    "engine.max_model_len": _count("the model's length in tokens", low=2),
    "engine.block_size": _count("the tokens per KV block"),
    "engine.num_gpu_blocks": _count("the number of KV blocks, of which vLLM keeps one for itself,", low=2),
    "engine.gpu_memory_utilization": Bound("the share of device memory", above=True, high=1),
    "engine.long_prefill_token_threshold": _count("the threshold in tokens", low=0),
    "engine.watermark": Bound("the share of KV blocks kept free", high=1, below=True),
    "engine.prefill_schedule_interval": _count("the interval in steps"),
    "engine.host_overhead_s": Bound("the CPU time of a step in s"),
    "speculation.num_speculative_tokens": _count("the draft length in tokens"),
    "speculation.draft_pass_s": _positive("the time of a drafter's pass in s"),
    "speculation.acceptance.rate": Bound("an acceptance rate", high=1),
    "speculation.acceptance.measured_draft_length": _count("the draft length in tokens"),
    "speculation.acceptance.request_spread": Bound("the spread of a logit", high=LARGEST_SPREAD),
    "speculation.acceptance.run_spread": Bound("the spread of a logit", high=LARGEST_SPREAD),
    "speculation.acceptance.run_tokens": _count("the length of a run in tokens"),
    "workload.requests": _count("the number of requests"),
    "workload.duration_s": _positive("the duration in s"),
    "workload.request_rate": _positive("the request rate in requests/s"),
    "workload.warmup": Bound("the share of the time of arrivals", high=1, below=True),
    "workload.cooldown": Bound("the share of the time of arrivals", high=1, below=True),
    "workload.trace_start_s": Bound("the start of the window in s"),
    "workload.trace_end_s": _positive("the end of the window in s"),
    "workload.burstiness": Bound("the shape of the gaps", low=1e-3, high=1e6),
    "workload.start_rate": Bound("the request rate in requests/s"),
    "workload.end_rate": Bound("the request rate in requests/s"),
    "workload.amplitude": Bound("the share by which the rate swings", high=1),
    "workload.period_s": _positive("the period in s"),
    "workload.calm_rate": Bound("the request rate in requests/s"),
    "workload.burst_rate": _positive("the request rate in requests/s"),
    "workload.calm_s": _positive("the mean time between bursts in s"),
    "workload.burst_s": _positive("the mean length of a burst in s"),
    "workload.max_concurrency": _count("the number of clients"),
    "workload.think_time_s": Bound("the mean think time in s"),
    "workload.shared_prefix.tokens": _count("the length of a system prompt in tokens"),
    "workload.shared_prefix.groups": _count("the number of system prompts"),
    "workload.shared_prefix.share": Bound("the share of requests with a system prompt", above=True, high=1),
    "workload.turns.mean": Bound("the mean number of turns", low=1, high=1e4),
    "workload.turns.gap_s": _positive("the mean time between turns in s"),
    "workload.timeout_s": _positive("the time after which clients give up in s"),
    "router.signal_interval_s": Bound("the router's interval in s"),
    "router.replicas": Bound("the number of routers", low=1, high=LARGEST_REPLICAS),
    "slo.ttft_s": _positive("the time to the first token in s"),
    "slo.tpot_s": _positive("the time per output token in s"),
    "slo.e2el_s": _positive("the time to the last token in s"),
    "slo.attainment": Bound("the share of requests that meet the SLO", above=True, high=1),
    "sweep.search.low": _positive("the lowest value of a search"),
    "sweep.search.high": _positive("the highest value of a search"),
    "sweep.search.tolerance": Bound("the relative step of a search", low=1e-6, high=1),
    "executor.workers": _count("the number of workers"),
    "executor.instances_per_host": _count("the number of instances of a host"),
    "study.search.low": _positive("the lowest value of a search"),
    "study.search.high": _positive("the highest value of a search"),
    "study.search.tolerance": Bound("the relative step of a search", low=1e-6, high=1),
    "study.attainment": Bound("the share of requests that meet the SLO", above=True, high=1),
    "study.ttft_p99_s": _positive("the time to the first token in s"),
    "study.tpot_p99_s": _positive("the time per output token in s"),
    "study.max_draft_length": _count("the longest draft in tokens"),
    "study.trials": _count("the number of trials"),
    "study.time_limit_s": _positive("the time of the search in s"),
    "study.window": _count("the number of trials under way"),
    "study.stop_below": Bound("the share of the best value", above=True, high=1, below=True),
}
for _operation in (
    "gemm_bf16",
    "gemm_fp8",
    "moe_bf16",
    "decode_attention",
    "prefill_attention",
    "all_reduce_tp2",
    "all_reduce_tp4",
    "all_reduce_tp8",
):
    BOUNDS |= {
        f"hardware.{_operation}.launch_floor_us": Bound("a launch floor in us"),
        f"hardware.{_operation}.compute_efficiency": Bound("an efficiency", above=True, high=1),
        f"hardware.{_operation}.memory_efficiency": Bound("an efficiency", above=True, high=1),
        f"hardware.{_operation}.smooth_p": Bound("the exponent of a smooth maximum", low=1),
    }
BOUNDS["hardware.moe_bf16.smooth_p"] = Bound("the exponent of the tokens", above=True, high=1)
