"""Requests that vLLM could never serve: refused if the user made them, rejected if a trace brings them."""

import numpy as np
from numpy.typing import NDArray

from cluster_sim.config import EngineConfig
from cluster_sim.config import SchedulingPolicy as PolicyName
from cluster_sim.errors import UserError
from cluster_sim.workload import Workload

Flags = NDArray[np.bool_]
TOO_LONG = "Shorten workload.prompt_tokens (max: of a lognormal) or raise engine.max_model_len."
TOO_BIG = "Shorten it, or give more memory: engine.num_gpu_blocks, engine.gpu_memory_utilization."


def tokens_ahead(engine: EngineConfig, drafts: int, lookahead_tokens: int) -> int:
    """Most KV slots of a request beyond its tokens: steps in flight with their drafts, and lookahead."""
    return (2 if engine.async_scheduling else 1) * (1 + drafts) + lookahead_tokens


def rejections(
    engine: EngineConfig, workload: Workload, ahead: int, blocks: int, may_come: Flags
) -> tuple[Flags, tuple[str, ...]]:
    """Which of the requests that `may_come` to an instance vLLM could never serve, and what to say of them.

    vLLM's API server refuses a prompt that leaves no room for an output token; its scheduler hangs for ever
    with a request that outgrows the whole KV cache at the head of the queue. Both are counted as rejected
    when a trace brings them, or a conversation grows so long. A request whose output leaves max_model_len is
    served up to there, as the scheduler does, and told of.

    Raises:
        UserError: such a request was made by the user's own lengths.
    """
    longest = int(engine.max_model_len or 0)
    tokens = np.minimum(workload.prompt_tokens + workload.output_tokens + ahead, longest)
    too_long = may_come & (workload.prompt_tokens >= longest)
    too_big = may_come & ~too_long & (-(-tokens // engine.block_size) > blocks - 1)
    if not workload.may_reject:
        _refuse(workload, too_long, f"a prompt must be shorter than engine.max_model_len={longest}", TOO_LONG)
        cache = f"the KV cache of {blocks - 1} blocks of {engine.block_size} tokens"
        rule = f"a request must fit into {cache} alone (vLLM hangs with it at the head of the queue)"
        _refuse(workload, too_big, rule, TOO_BIG)
    warnings = []
    if engine.scheduling_policy is PolicyName.fcfs and np.any(workload.priority):
        warnings.append("priorities of the trace do nothing under engine.scheduling_policy=fcfs")
    if np.any(too_long):
        warnings.append(
            f"{too_long.sum()} requests rejected: prompt of max_model_len={longest} tokens or more"
        )
    if np.any(too_big):
        warnings.append(
            f"{too_big.sum()} requests rejected: larger than the whole KV cache of {blocks - 1} blocks"
        )
    cut = may_come & ~(too_long | too_big) & (workload.prompt_tokens + workload.output_tokens > longest)
    if np.any(cut):
        warnings.append(
            f"{cut.sum()} requests would end at max_model_len={longest}, short of their output tokens; "
            "vLLM's API server refuses a max_tokens beyond it"
        )
    needed = -(-longest // engine.block_size)
    if needed > blocks - 1:
        warnings.append(
            f"vLLM would refuse to start: one request of max_model_len={longest} needs {needed} KV blocks, "
            f"there are {blocks - 1}; lower engine.max_model_len to {(blocks - 1) * engine.block_size}"
        )
    return too_long | too_big, tuple(warnings)


def _refuse(workload: Workload, refused: Flags, rule: str, remedy: str) -> None:
    """Raise for the first refused request, if there is one: the user made it, so it can be made otherwise."""
    if np.any(refused):
        first = int(np.argmax(refused))
        got = f"{workload.prompt_tokens[first]} prompt and {workload.output_tokens[first]} output tokens"
        raise UserError(rule, got, f"request {first}", remedy)
