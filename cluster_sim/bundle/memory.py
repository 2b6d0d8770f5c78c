"""What a GPU's memory leaves for KV, as vLLM profiles it at start.

    budget = gpu_memory_utilization * device memory
    KV     = budget - weights - drafter weights - peak activations - runtime (context, workspaces, graphs)
    num_gpu_blocks = KV / (block_size * KV bytes per token of target and drafter), rounded down

Source: vLLM's determine_available_memory; the runtime's share is assumed (bundles/assumptions.yaml). Not
modelled: the spread of real devices' sizes around their nominal one, fragmentation.
"""

from dataclasses import asdict, dataclass

from cluster_sim.bundle.assumptions import assumptions
from cluster_sim.config import EngineConfig, HardwareConfig, ModelConfig, SpeculationConfig
from cluster_sim.errors import UserError
from cluster_sim.speculation.proposer import (
    BYTES_PER_WEIGHT,
    drafter_of,
    kv_bytes_per_token,
    layer_gemms,
)

GIB = 2**30
_FLOAT32_BYTES = 4


@dataclass(frozen=True)
class MemoryBreakdown:
    """Bytes of one GPU, and the KV blocks that they make; `kv_bytes` is what the budget leaves."""

    device_bytes: int
    budget_bytes: int
    target_weights_bytes: int
    drafter_weights_bytes: int
    activations_bytes: int
    runtime_bytes: int
    kv_bytes: int
    target_kv_bytes_per_block: int
    drafter_kv_bytes_per_block: int
    num_gpu_blocks: int  # block 0 is vLLM's null block: one less is usable

    def as_dict(self) -> dict[str, int]:
        """All of it, by name."""
        return asdict(self)


def breakdown(
    model: ModelConfig,
    hardware: HardwareConfig,
    engine: EngineConfig,
    tensor_parallel_size: int,
    speculation: SpeculationConfig,
) -> MemoryBreakdown:
    """Memory of one GPU; `engine` is resolved. The user's num_gpu_blocks takes the place of the derived one.

    Raises:
        UserError: no KV block fits.
    """
    drafter = drafter_of(speculation.method, model)
    device = int(hardware.memory_gib * GIB)
    budget = int(engine.gpu_memory_utilization * device)
    weights = target_weights_bytes(model, tensor_parallel_size)
    drafter_weights = 0 if drafter is None else drafter.weights_bytes // tensor_parallel_size
    activations = activations_bytes(model, engine, tensor_parallel_size)
    runtime = int(assumptions().memory["runtime_bytes"].value)
    shards = min(tensor_parallel_size, model.num_key_value_heads)
    per_layer = kv_bytes_per_token(model, 1) * engine.block_size // shards
    target_block = per_layer * model.num_hidden_layers
    drafter_block = 0 if drafter is None else per_layer * drafter.num_hidden_layers
    left = budget - weights - drafter_weights - activations - runtime
    fitting = left // (target_block + drafter_block)
    blocks = fitting if engine.num_gpu_blocks is None else engine.num_gpu_blocks
    if blocks < 1:
        gib = [f"{part / GIB:.1f}" for part in (budget, weights, drafter_weights, activations, runtime)]
        raise UserError(
            f"a model must leave memory for KV: {gib[0]} GiB of {model.name}'s budget on {hardware.name}",
            f"weights {gib[1]}, drafter {gib[2]}, activations {gib[3]} and runtime {gib[4]} GiB",
            "engine.gpu_memory_utilization",
            "Use a larger GPU, raise it, lower engine.max_num_batched_tokens, or give engine.num_gpu_blocks.",
        )
    return MemoryBreakdown(
        device,
        budget,
        weights,
        drafter_weights,
        activations,
        runtime,
        max(left, 0),
        target_block,
        drafter_block,
        blocks,
    )


def target_weights_bytes(model: ModelConfig, tensor_parallel_size: int) -> int:
    """Layers, embedding and lm_head (one matrix if tied), norms; what of it one GPU holds."""
    gemms = sum(gemm.weights for gemm in layer_gemms(model, model.hidden_size))
    vocabularies = 1 if model.tie_word_embeddings else 2
    matrices = model.num_hidden_layers * gemms + vocabularies * model.vocab_size * model.hidden_size
    norms = (2 * model.num_hidden_layers + 1) * model.hidden_size
    return BYTES_PER_WEIGHT * (matrices // tensor_parallel_size + norms)


def activations_bytes(model: ModelConfig, engine: EngineConfig, tensor_parallel_size: int) -> int:
    """Peak of vLLM's profiling run: max_num_batched_tokens in a layer, or max_num_seqs rows in the sampler.

    A token holds residual, hidden state, gate and up (2 intermediate) and their product (intermediate). A row
    of logits is bfloat16, then float32 and a float32 copy to sort.
    """
    tokens, seqs = int(engine.max_num_batched_tokens or 0), int(engine.max_num_seqs or 0)
    per_token = 2 * model.hidden_size + 3 * model.intermediate_size // tensor_parallel_size
    layer = tokens * per_token * BYTES_PER_WEIGHT
    sampler = seqs * model.vocab_size * (BYTES_PER_WEIGHT + 2 * _FLOAT32_BYTES)
    return max(layer, sampler + tokens * model.hidden_size * BYTES_PER_WEIGHT)
