"""What vLLM 0.33 makes of its flags: limits that the user left open, and a schedule that it sets aside.

Source: EngineArgs of vllm 0.33.0, as told in ../shared/vllm-scheduler.md sections 7 and 11, with the defaults
of its API server. Numbers by device tier are in conf/hardware.
"""

from dataclasses import replace

from cluster_sim.config import ClusterConfig, EngineConfig, HardwareConfig, ModelConfig, SpeculationConfig
from cluster_sim.speculation.requirements import schedules


def resolve_engine(engine: EngineConfig, model: ModelConfig, hardware: HardwareConfig) -> EngineConfig:
    """`engine` with every limit of length, requests and tokens filled in.

    A default gives way to what the user set: the token budget to the number of requests and the model's
    length, the number of requests to the token budget. What the user set never changes. num_gpu_blocks and
    host_overhead_s stay as they are: None means that memory and the bundle decide.
    """
    max_model_len = _or_default(engine.max_model_len, model.max_position_embeddings)
    max_num_seqs = _or_default(engine.max_num_seqs, hardware.default_max_num_seqs)
    max_num_batched_tokens = engine.max_num_batched_tokens
    if max_num_batched_tokens is None:
        max_num_batched_tokens = hardware.default_max_num_batched_tokens
        if not engine.enable_chunked_prefill:
            max_num_batched_tokens = max(max_num_batched_tokens, max_model_len)
        max_num_batched_tokens = min(max_num_batched_tokens, max_num_seqs * max_model_len)
    if engine.max_num_seqs is None:
        max_num_seqs = min(max_num_seqs, max_num_batched_tokens)
    return replace(
        engine,
        max_model_len=max_model_len,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        max_num_scheduled_tokens=_or_default(engine.max_num_scheduled_tokens, max_num_batched_tokens),
        max_num_active_seqs=_or_default(engine.max_num_active_seqs, max_num_seqs),
    )


def resolve_speculation(
    speculation: SpeculationConfig, cluster: ClusterConfig, engine: EngineConfig
) -> SpeculationConfig:
    """`speculation` with its static draft length alone where vLLM sets a schedule aside."""
    if why_no_schedule(speculation, cluster, engine) is None:
        return speculation
    return replace(speculation, num_speculative_tokens_per_batch_size=None)


def why_no_schedule(
    speculation: SpeculationConfig, cluster: ClusterConfig, engine: EngineConfig
) -> str | None:
    """With what vLLM sets a schedule aside; None where it follows it, or there is none."""
    if speculation.num_speculative_tokens_per_batch_size is None:
        return None
    if not schedules(engine, speculation.method):
        return f"method {speculation.method.name} on the V1 model runner"
    if cluster.data_parallel_size > 1:
        return f"data_parallel_size {cluster.data_parallel_size}"
    return None


def _or_default(value: int | None, default: int) -> int:
    return default if value is None else value
