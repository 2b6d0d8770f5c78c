"""What vLLM keeps for a proposer: KV slots, input slots, keys of the prefix cache; and what it turns off.

Source: vLLM 0.33.0. In config/vllm.py VllmConfig.num_lookahead_tokens, .num_prefill_lookahead_tokens,
.num_hash_lookahead_tokens, ._get_v2_model_runner_unsupported_features, ._maybe_disable_dynamic_sd_for_v1 and
._maybe_override_dynamic_sd_cudagraph_mode; in config/speculative.py max_num_new_slots_for_drafting. medusa,
which 0.33 no longer has, as 0.10 had it. `parallel` is a block drafter such as DFlash.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from cluster_sim.config import CudagraphMode, EngineConfig, Method, ModelConfig, SpeculationConfig

READS_HIDDEN_STATES = (Method.eagle, Method.eagle3, Method.mtp)  # and the token after each of them
WRITES_KV_AHEAD = (*READS_HIDDEN_STATES, Method.draft_model, Method.parallel)
ON_THE_HOST = (Method.ngram, Method.suffix)
V1_ONLY = (Method.suffix, Method.medusa)
V1_SCHEDULES = (Method.ngram, Method.eagle, Method.eagle3, Method.mtp, Method.draft_model, Method.parallel)


@dataclass(frozen=True)
class Requirements:
    """Of one proposer with its draft length; zeros without speculation."""

    lookahead_tokens: int = 0
    slots_per_request: int = 0
    hash_lookahead_tokens: int = 0
    prefill_lookahead_tokens: int = 0
    drops_last_hit_block: bool = False
    may_skip: bool = False


def requirements(
    speculation: SpeculationConfig, draft_length: int, engine: EngineConfig, model: ModelConfig
) -> Requirements:
    """What the engine keeps for drafts of at most `draft_length` tokens."""
    method = speculation.method
    if draft_length == 0:
        return Requirements()
    ahead = draft_length if method in WRITES_KV_AHEAD else 0
    reads_next = method in READS_HIDDEN_STATES
    runway = 0
    if reads_next or method is Method.parallel:
        modules = model.num_nextn_predict_layers if method is Method.mtp else 1
        runway = draft_length if min(modules, draft_length) > 1 else 1
    plain_keys = engine.disable_lookahead_block_hashes or engine.disable_eagle_block_drop
    covers_next = reads_next and engine.enable_prefix_caching and not plain_keys
    return Requirements(
        lookahead_tokens=ahead + (1 if method is Method.parallel else 0),
        slots_per_request=1 if method is Method.draft_model else 0,
        hash_lookahead_tokens=runway if covers_next else 0,
        prefill_lookahead_tokens=runway,
        drops_last_hit_block=reads_next and not covers_next and not engine.disable_eagle_block_drop,
        may_skip=ahead > 0 and uses_v2_runner(engine, method),
    )


def uses_v2_runner(engine: EngineConfig, method: Method) -> bool:
    """Whether the V2 model runner serves the method: it has no suffix and no medusa."""
    return engine.use_v2_model_runner and method not in V1_ONLY


def runs_async(engine: EngineConfig, method: Method) -> bool:
    """Whether scheduling stays asynchronous: the V1 runner turns it off where the CPU or medusa drafts."""
    on_v1 = (*ON_THE_HOST, Method.medusa)
    return engine.async_scheduling and (uses_v2_runner(engine, method) or method not in on_v1)


def schedules(engine: EngineConfig, method: Method) -> bool:
    """Whether the method can follow num_speculative_tokens_per_batch_size: V2 cuts the drafts of any."""
    return uses_v2_runner(engine, method) or method in V1_SCHEDULES


def cudagraph_mode(engine: EngineConfig, speculation: SpeculationConfig) -> CudagraphMode:
    """The mode that graphs are captured in: under a schedule the V1 runner has no full graphs."""
    by_size = speculation.num_speculative_tokens_per_batch_size is not None
    is_full = engine.cudagraph_mode is CudagraphMode.FULL_AND_PIECEWISE
    if is_full and by_size and not uses_v2_runner(engine, speculation.method):
        return CudagraphMode.PIECEWISE
    return engine.cudagraph_mode


def changes(engine: EngineConfig, speculation: SpeculationConfig) -> Iterator[str]:
    """What vLLM changes of `engine`, as the user gave it, for the proposer; a line each.

    `speculation` is without a schedule that was set aside.
    """
    method = speculation.method
    if method is Method.medusa:
        yield "vLLM 0.33 has no medusa: it runs here as in 0.10, on the V1 model runner"
    elif engine.use_v2_model_runner and method in V1_ONLY:
        yield f"as in vLLM, method {method.name} runs on the V1 model runner, V2 does not have it"
    if engine.async_scheduling and not runs_async(engine, method):
        yield f"as in vLLM, async_scheduling is off: the V1 model runner has none with method {method.name}"
    if cudagraph_mode(engine, speculation) is not engine.cudagraph_mode:
        yield (
            f"as in vLLM, cudagraph_mode {engine.cudagraph_mode.name} becomes PIECEWISE: under "
            "num_speculative_tokens_per_batch_size the V1 model runner has no full graphs"
        )
