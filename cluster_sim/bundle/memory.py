"""What a GPU's memory leaves for KV, as vLLM profiles it at start.

    budget = gpu_memory_utilization * device memory
    KV     = budget - weights - drafter weights - states - activations - CUDA graphs - runtime
    num_gpu_blocks = KV / (block_size * KV bytes per token of target and drafter), rounded down

Conserved: weights, KV, states, activations, graphs, runtime, headroom (of the budget) and reserve make up the
device.

Source: vLLM 0.33.0, Worker.determine_available_memory in v1/worker/gpu_worker.py, with model runner V2. It
counts from a snapshot that is taken after the CUDA context, NCCL and cuBLAS have their memory: they lie in
the reserve, and the runtime here is much smaller than what nvidia-smi shows. CUDA graphs count in the budget
since 0.21; an older engine gives their share to KV.

Numbers beyond the architecture: bundles/assumptions.yaml, section memory. Not modelled: fragmentation, block
tables (33 MB for 1,024 requests of 131,072 tokens), weights that a kernel wants filled up (gpt-oss), graphs
and activations of the drafter; states of linear attention that come and go with requests (all that may run
have theirs from the start here). Layers with a sliding window hold KV of all tokens, as with
--disable-hybrid-kv-cache-manager: fewer blocks than vLLM has by default.
"""

from dataclasses import asdict, dataclass

from cluster_sim.bundle.architecture import (
    BYTES_PER_VALUE,
    Parallel,
    attention_gemms,
    experts,
    kv_bytes_per_token,
    kv_heads,
    kv_layers,
    layer_bytes_per_weight,
    linear_layers,
    lm_head,
    mlp_gemms,
    moe_layers,
    shared_gemms,
    uses_mla,
)
from cluster_sim.bundle.assumptions import assumptions
from cluster_sim.bundle.linear_attention import linear_weights_bytes, state_bytes
from cluster_sim.config import (
    CudagraphMode,
    EngineConfig,
    HardwareConfig,
    Method,
    ModelConfig,
    SpeculationConfig,
)
from cluster_sim.cudagraphs import capture_sizes, uniform_sizes
from cluster_sim.errors import UserError
from cluster_sim.naming import model_named
from cluster_sim.speculation.proposer import drafter_of

GIB = 2**30
_MLA_CONTEXT_TOKENS = 64 * 1024  # most that one chunk of cached context is expanded to


@dataclass(frozen=True)
class MemoryBreakdown:
    """Bytes of one GPU; from target_weights_bytes to reserve_bytes they make up device_bytes."""

    device_bytes: int
    target_weights_bytes: int
    drafter_weights_bytes: int
    target_kv_bytes: int
    drafter_kv_bytes: int
    state_bytes: int  # of linear attention, of max_num_seqs running requests
    activations_bytes: int
    graphs_bytes: int
    runtime_bytes: int
    headroom_bytes: int  # of the budget; below 0 where the user's num_gpu_blocks overdraws it
    reserve_bytes: int  # beyond the budget
    target_kv_bytes_per_block: int
    drafter_kv_bytes_per_block: int
    num_gpu_blocks: int  # block 0 is vLLM's null block: one less is usable

    def as_dict(self) -> dict[str, int]:
        """All of it, by name."""
        return asdict(self)


@dataclass(frozen=True)
class _Fixed:
    """What a budget pays for before KV, bytes."""

    target_weights: int
    drafter_weights: int
    states: int
    activations: int
    graphs: int
    runtime: int

    @property
    def total(self) -> int:
        return sum(vars(self).values())


def breakdown(
    model: ModelConfig,
    hardware: HardwareConfig,
    engine: EngineConfig,
    parallel: Parallel,
    speculation: SpeculationConfig,
) -> MemoryBreakdown:
    """Memory of one GPU; `engine` is resolved. The user's num_gpu_blocks takes the place of the derived one.

    Raises:
        UserError: no KV block fits, or the user's blocks do not fit on the device.
    """
    drafter_weights, drafter_kv = _drafter_bytes(model, parallel, speculation)
    fixed = _Fixed(
        target_weights_bytes(model, parallel),
        drafter_weights,
        _states_bytes(model, engine, parallel, speculation),
        activations_bytes(model, engine, parallel),
        graphs_bytes(hardware, engine, speculation),
        runtime_bytes(model, engine, parallel),
    )
    device = int(hardware.memory_gib * GIB)
    budget = int(engine.gpu_memory_utilization * device)
    target_block = engine.block_size * kv_bytes_per_token(model, parallel, kv_layers(model))
    drafter_block = engine.block_size * drafter_kv
    blocks = (budget - fixed.total) // (target_block + drafter_block)
    if engine.num_gpu_blocks is not None:
        blocks = engine.num_gpu_blocks
        _check_blocks(blocks * (target_block + drafter_block), fixed, device, hardware)
    if blocks < 1:
        _refuse(model, hardware, budget, fixed)
    return MemoryBreakdown(
        device_bytes=device,
        target_weights_bytes=fixed.target_weights,
        drafter_weights_bytes=fixed.drafter_weights,
        target_kv_bytes=blocks * target_block,
        drafter_kv_bytes=blocks * drafter_block,
        state_bytes=fixed.states,
        activations_bytes=fixed.activations,
        graphs_bytes=fixed.graphs,
        runtime_bytes=fixed.runtime,
        headroom_bytes=budget - fixed.total - blocks * (target_block + drafter_block),
        reserve_bytes=device - budget,
        target_kv_bytes_per_block=target_block,
        drafter_kv_bytes_per_block=drafter_block,
        num_gpu_blocks=blocks,
    )


def target_weights_bytes(model: ModelConfig, parallel: Parallel) -> int:
    """Layers, embedding and lm_head (one matrix if tied), norms and the rotary table; one GPU's share."""
    routed = moe_layers(model)
    dense = mlp_gemms(model, parallel, model.intermediate_size)
    attention = sum(gemm.weights_bytes for gemm in attention_gemms(model, parallel))
    layers = kv_layers(model) * (attention + _latent_expansion_bytes(model, parallel))
    if linear_layers(model):
        layers += linear_layers(model) * linear_weights_bytes(model, parallel)
    layers += (model.num_hidden_layers - routed) * sum(gemm.weights_bytes for gemm in dense)
    if routed:
        shared = sum(gemm.weights_bytes for gemm in shared_gemms(model, parallel))
        layers += routed * (shared + experts(model, parallel).weights_bytes)
    vocabularies = 1 if model.tie_word_embeddings else 2
    norms = (2 * model.num_hidden_layers + 1) * model.hidden_size
    rotary = model.max_position_embeddings * (model.qk_rope_head_dim or model.head_dim)
    return int(
        layers + vocabularies * lm_head(model, parallel).weights_bytes + (norms + rotary) * BYTES_PER_VALUE
    )


def activations_bytes(model: ModelConfig, engine: EngineConfig, parallel: Parallel) -> int:
    """Peak of vLLM's profiling run: a layer over max_num_batched_tokens, or the sampler over max_num_seqs.

    Compilation comes before either, in the same measurement, and may take more. In a layer every token has
    its residual and hidden state; the largest of attention, MLP and experts comes on top.
    """
    tokens, rows = int(engine.max_num_batched_tokens or 0), int(engine.max_num_seqs or 0)
    assumed = assumptions().memory
    inside = max(
        _attention_values(model, engine, parallel),
        tokens * 3 * model.intermediate_size // parallel.tensor_parallel_size,
        _experts_values(model, tokens, parallel),
    )
    layer = (2 * tokens * model.hidden_size + inside) * BYTES_PER_VALUE
    sampler = rows * model.vocab_size * assumed["sampler_bytes_per_logit"].value
    sampler += (tokens + rows) * model.hidden_size * BYTES_PER_VALUE
    is_compiled = engine.cudagraph_mode is not CudagraphMode.NONE  # NONE is --enforce-eager
    compilation = assumed["compilation_peak_bytes"].value if is_compiled else 0.0
    return int(max(layer, sampler, compilation))


def graphs_bytes(hardware: HardwareConfig, engine: EngineConfig, speculation: SpeculationConfig) -> int:
    """Captured graphs: each size piecewise, and the sizes of whole decode batches in full."""
    if engine.cudagraph_mode is CudagraphMode.NONE:
        return 0
    seats = int(engine.max_num_seqs or 0)
    is_off = speculation.method is Method.none
    query = 1 if is_off else 1 + int(speculation.num_speculative_tokens or 0)
    largest = hardware.max_cudagraph_capture_tokens
    sizes = capture_sizes(seats, query - 1, int(engine.max_num_batched_tokens or 0), largest)
    graphs = len(sizes)
    if engine.cudagraph_mode is CudagraphMode.FULL_AND_PIECEWISE:
        graphs += int((uniform_sizes(sizes, query) <= seats * query).sum())
    return int(graphs * assumptions().memory["graph_bytes"].value)


def runtime_bytes(model: ModelConfig, engine: EngineConfig, parallel: Parallel) -> int:
    """What stays outside of torch after the profiling run, and the sampler's state of every request.

    The state (PenaltiesState in v1/worker/gpu/sample/penalties.py) counts the output's tokens and marks the
    prompt's, over the whole vocabulary, whether a request has penalties or not.
    """
    assumed = assumptions().memory
    state = int(engine.max_num_seqs or 0) * model.vocab_size * assumed["sampler_state_bytes_per_logit"].value
    shared = assumed["tensor_parallel_bytes"].value if parallel.tensor_parallel_size > 1 else 0.0
    return int(assumed["non_torch_bytes"].value + shared + state)


def _states_bytes(
    model: ModelConfig, engine: EngineConfig, parallel: Parallel, speculation: SpeculationConfig
) -> int:
    """States of linear attention, of as many requests as may run."""
    drafts = int(speculation.num_speculative_tokens or 0)
    return int(engine.max_num_seqs or 0) * state_bytes(model, parallel, drafts, engine.enable_prefix_caching)


def _drafter_bytes(model: ModelConfig, parallel: Parallel, speculation: SpeculationConfig) -> tuple[int, int]:
    """The drafter's weights, and its KV of one token, on one GPU."""
    draft = None if speculation.model is None else model_named(speculation.model)
    drafts = int(speculation.num_speculative_tokens or 0)
    drafter = drafter_of(speculation.method, model, parallel, draft, drafts)
    return (0, 0) if drafter is None else (drafter.weights_bytes, drafter.kv_bytes_per_token)


def _latent_expansion_bytes(model: ModelConfig, parallel: Parallel) -> float:
    """MLA's kv_b_proj, which vLLM keeps for prefills beside the two halves that decodes absorb."""
    heads = model.num_attention_heads // parallel.tensor_parallel_size
    wide = heads * (model.qk_nope_head_dim + model.v_head_dim) if uses_mla(model) else 0
    return model.kv_lora_rank * wide * layer_bytes_per_weight(model)


def _attention_values(model: ModelConfig, engine: EngineConfig, parallel: Parallel) -> int:
    """Queries, keys, values and outputs of a step; with MLA the keys and values of one chunk of context.

    Source of the latter: MLACommonMetadataBuilder.determine_chunked_prefill_workspace_size in
    model_executor/layers/attention/mla_attention.py.
    """
    heads = model.num_attention_heads // parallel.tensor_parallel_size
    tokens, seats = int(engine.max_num_batched_tokens or 0), int(engine.max_num_seqs or 0)
    if uses_mla(model):
        asked = max(8 * int(engine.max_model_len or 0), 4 * seats * engine.block_size)
        return min(asked, _MLA_CONTEXT_TOKENS) * heads * (model.qk_nope_head_dim + model.v_head_dim)
    return 2 * tokens * (heads + kv_heads(model, parallel)) * model.head_dim


def _experts_values(model: ModelConfig, tokens: int, parallel: Parallel) -> int:
    """Workspaces and output of the routed experts, for the tokens of all data-parallel ranks that share them.

    Source: TritonExperts.workspace_shapes in model_executor/layers/fused_moe/experts/triton_moe.py.
    """
    if not model.num_experts:
        return 0
    ranks = max(1, parallel.expert_parallel_size // parallel.tensor_parallel_size)
    gate_up, down = experts(model, parallel).gemms
    activated = max(down.inputs, model.hidden_size)
    multiplied = max(gate_up.outputs, model.hidden_size)
    per_token = model.num_experts_per_tok * (activated + multiplied) + model.hidden_size
    return ranks * tokens * per_token


def _check_blocks(kv: int, fixed: _Fixed, device: int, hardware: HardwareConfig) -> None:
    weights = fixed.target_weights + fixed.drafter_weights
    if kv + weights > device:
        raise UserError(
            f"engine.num_gpu_blocks must fit beside the weights in the {_gib(device)} GiB of {hardware.name}",
            f"{_gib(kv)} GiB of KV and {_gib(weights)} GiB of weights",
            "engine.num_gpu_blocks",
            "Give fewer blocks, or leave it out: it is derived then.",
        )


def _refuse(model: ModelConfig, hardware: HardwareConfig, budget: int, fixed: _Fixed) -> None:
    parts = ", ".join(f"{name.replace('_', ' ')} {_gib(size)}" for name, size in vars(fixed).items())
    raise UserError(
        f"a model must leave memory for KV: {_gib(budget)} GiB of {model.name}'s budget on {hardware.name}",
        f"{parts} GiB",
        "engine.gpu_memory_utilization",
        "Use a larger GPU or more of them, raise it, lower engine.max_num_batched_tokens or max_num_seqs, or "
        "give engine.num_gpu_blocks.",
    )


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / GIB:.1f}"
