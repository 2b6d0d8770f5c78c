"""What a GPU's memory leaves for KV. Llama-3.1-8B in bfloat16: 8,030,261,248 weights, 128 KiB KV a token."""

from dataclasses import replace

import pytest
from example_bundle import CONFIG, NONE, engine
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_sim.bundle.architecture import Parallel
from cluster_sim.bundle.assumptions import assumptions
from cluster_sim.bundle.memory import (
    GIB,
    MemoryBreakdown,
    activations_bytes,
    breakdown,
    graphs_bytes,
    target_weights_bytes,
)
from cluster_sim.compose import compose
from cluster_sim.config import CudagraphMode, HardwareConfig, Method, ModelConfig, SpeculationConfig
from cluster_sim.errors import UserError

MODEL, H100, EAGLE3 = CONFIG.model, CONFIG.hardware, CONFIG.speculation
ALONE = Parallel()
PARTS = (
    *("target_weights_bytes", "drafter_weights_bytes", "target_kv_bytes", "drafter_kv_bytes"),
    *("state_bytes", "activations_bytes", "graphs_bytes", "runtime_bytes", "headroom_bytes", "reserve_bytes"),
)


def model(name: str, *overrides: str) -> ModelConfig:
    return compose(["speculation=none", f"model={name}", *overrides]).model


def memory(speculation: SpeculationConfig = NONE, **changes: object) -> MemoryBreakdown:
    return breakdown(MODEL, H100, engine(**changes), ALONE, speculation)


def assumed(name: str) -> float:
    return assumptions().memory[name].value


def test_weights_are_those_of_the_checkpoint_and_the_rotary_table() -> None:
    """The log says "Model loading took 14.9889 GiB"; the table is 131,072 x 128 values."""
    weights = target_weights_bytes(MODEL, ALONE)
    assert weights == 2 * (8_030_261_248 + 131_072 * 128)
    assert round(weights / GIB, 4) in (14.9888, 14.9889)
    tied = replace(MODEL, tie_word_embeddings=True)
    assert weights - target_weights_bytes(tied, ALONE) == 2 * 128_256 * 4096


@pytest.mark.parametrize(
    ("name", "overrides", "gpus", "logged_gib"),
    [
        ("llama-3.1-8b", (), 1, 14.99),
        ("llama-3.1-70b", ("model.quantization=fp8",), 2, 33.88),
        ("qwen3-0.6b", (), 1, 1.12),
        ("qwen3-32b", (), 1, 61.03),
    ],
)
def test_weights_are_what_vllm_logs_within_a_thousandth(
    name: str, overrides: tuple[str, ...], gpus: int, logged_gib: float
) -> None:
    """github.com/llm-d/llm-d-benchmark, config_explorer/empirical-vllm-memory-results.md; two decimals."""
    weights = target_weights_bytes(model(name, *overrides), Parallel(gpus))
    assert weights / GIB == pytest.approx(logged_gib, rel=1e-3, abs=0.005)


def test_the_experts_of_gpt_oss_are_less_than_vllm_holds() -> None:
    """Its kernels want 2,880 filled up: 64.38 GiB (as above), 6 percent more than the checkpoint has."""
    assert 0.93 < target_weights_bytes(model("gpt-oss-120b"), ALONE) / GIB / 64.38 < 1.0


@settings(max_examples=50)
@given(
    utilization=st.floats(0.5, 1.0),
    gpus=st.sampled_from([1, 2, 4, 8]),
    speculation=st.sampled_from([NONE, EAGLE3]),
    blocks=st.sampled_from([None, 1, 1000]),
)
def test_the_parts_make_up_the_device(
    utilization: float, gpus: int, speculation: SpeculationConfig, blocks: int | None
) -> None:
    limits = engine(gpu_memory_utilization=utilization, num_gpu_blocks=blocks)
    sizes = breakdown(MODEL, H100, limits, Parallel(gpus), speculation).as_dict()
    assert sum(sizes[part] for part in PARTS) == sizes["device_bytes"] == 80 * GIB
    assert sizes["reserve_bytes"] == pytest.approx((1 - utilization) * 80 * GIB, abs=1)
    per_block = sizes["target_kv_bytes_per_block"] + sizes["drafter_kv_bytes_per_block"]
    assert sizes["target_kv_bytes"] + sizes["drafter_kv_bytes"] == sizes["num_gpu_blocks"] * per_block
    if blocks is None:
        assert 0 <= sizes["headroom_bytes"] < per_block


@settings(max_examples=50)
@given(st.tuples(st.floats(0.3, 1.0), st.floats(0.3, 1.0)).map(sorted))
def test_more_utilization_never_leaves_fewer_blocks(utilizations: list[float]) -> None:
    less, more = (memory(gpu_memory_utilization=share).num_gpu_blocks for share in utilizations)
    assert less <= more


def test_two_gpus_hold_half_the_weights_and_half_the_kv_each() -> None:
    """Norms and the rotary table are whole on each; a GPU holds at least one KV head."""
    one, two, many = (breakdown(MODEL, H100, engine(), Parallel(gpus), NONE) for gpus in (1, 2, 16))
    whole = 2 * (65 * 4096 + 131_072 * 128)
    halved = (one.target_weights_bytes - whole) // 2
    assert two.target_weights_bytes == halved + whole
    assert 2 * two.target_kv_bytes_per_block == one.target_kv_bytes_per_block
    assert 8 * many.target_kv_bytes_per_block == one.target_kv_bytes_per_block
    assert two.runtime_bytes - one.runtime_bytes == assumed("tensor_parallel_bytes")


def test_whole_experts_on_each_gpu_or_a_slice_of_all_weigh_the_same() -> None:
    moe = model("qwen3-30b-a3b")
    routed = 48 * 128 * 3 * 2048 * 768 * 2
    alone, spread = (target_weights_bytes(moe, Parallel(1, ranks)) for ranks in (1, 2))
    assert alone - spread == routed / 2
    both, sliced = (target_weights_bytes(moe, Parallel(2, ranks)) for ranks in (2, 1))
    assert both == sliced


def test_a_block_holds_keys_and_values_of_all_layers() -> None:
    parts = memory(EAGLE3)
    assert parts.target_kv_bytes_per_block == 16 * 131_072
    assert parts.drafter_kv_bytes_per_block == 16 * 131_072 // 32  # one layer
    assert memory(EAGLE3, block_size=32).target_kv_bytes_per_block == 32 * 131_072


def test_a_block_of_latents_is_whole_on_every_gpu() -> None:
    """MLA: 512 + 64 values a token and layer, whatever the tensor parallel size."""
    deepseek, h200 = model("deepseek-v3"), compose(["speculation=none", "hardware=h200"]).hardware
    parts = breakdown(deepseek, h200, engine(), Parallel(8), NONE)
    assert parts.target_kv_bytes_per_block == 16 * 61 * 576 * 2


def test_activations_are_the_largest_of_a_layer_the_sampler_and_compilation() -> None:
    """Tokens x (2 hidden + 3 intermediate) x 2 bytes; rows x (14 vocabulary + 2 hidden), hidden states."""
    wide = engine(max_num_batched_tokens=65536)
    assert activations_bytes(MODEL, wide, ALONE) == 65536 * (2 * 4096 + 3 * 14336) * 2
    sampler = 1024 * 128_256 * 14 + (8192 + 1024) * 4096 * 2
    assert activations_bytes(MODEL, engine(), ALONE) == sampler
    narrow = engine(max_num_batched_tokens=2048, max_num_seqs=16)
    assert activations_bytes(MODEL, narrow, ALONE) == assumed("compilation_peak_bytes")
    eager = replace(narrow, cudagraph_mode=CudagraphMode.NONE)
    assert activations_bytes(MODEL, eager, ALONE) == 2048 * (2 * 4096 + 3 * 14336) * 2


def test_experts_take_workspace_for_the_tokens_of_all_ranks() -> None:
    """Tokens x (8 of (2048 + 2048) + 2048 for the output, 2 hidden of the token) x 2 bytes."""
    limits = engine(max_num_batched_tokens=65536, max_num_seqs=16)
    moe = model("qwen3-30b-a3b")
    per_token = 8 * (2048 + 2048) + 2048
    assert activations_bytes(moe, limits, ALONE) == 65536 * (2 * 2048 + per_token) * 2
    assert activations_bytes(moe, limits, Parallel(1, 2)) == 65536 * (2 * 2048 + 2 * per_token) * 2


def test_latent_attention_takes_workspace_for_a_chunk_of_context() -> None:
    """65,536 tokens x 16 heads x (128 + 128) values."""
    eager = engine(max_num_batched_tokens=1024, max_num_seqs=16, cudagraph_mode=CudagraphMode.NONE)
    expected = (65536 * 16 * 256 + 2 * 1024 * 7168) * 2
    assert (
        activations_bytes(model("deepseek-v3"), replace(eager, max_model_len=163_840), Parallel(8))
        == expected
    )
    short = replace(eager, max_model_len=4096)  # 8 requests of 4,096 tokens
    assert activations_bytes(model("deepseek-v3"), short, Parallel(8)) == expected - 32768 * 16 * 256 * 2


def test_graphs_are_the_captured_sizes_once_piecewise_and_once_in_full() -> None:
    """The log says "PIECEWISE=51 (largest=512), FULL=35 (largest=256)" at 256 requests."""
    limits = engine(max_num_seqs=256, max_num_batched_tokens=2048)
    graph = int(assumed("graph_bytes"))
    assert graphs_bytes(H100, limits, NONE) == (51 + 35) * graph
    piecewise = replace(limits, cudagraph_mode=CudagraphMode.PIECEWISE)
    assert graphs_bytes(H100, piecewise, NONE) == 51 * graph
    assert graphs_bytes(H100, replace(limits, cudagraph_mode=CudagraphMode.NONE), NONE) == 0
    assert graphs_bytes(H100, limits, EAGLE3) > 51 * graph


def recorded(
    name: str, hardware: HardwareConfig, parallel: Parallel, seats: int, **changes: float
) -> MemoryBreakdown:
    limits = engine(max_num_seqs=seats, max_num_batched_tokens=2048, max_model_len=32768, **changes)
    return breakdown(model(name), hardware, limits, parallel, NONE)


def card(name: str, cuda_gib: float) -> HardwareConfig:
    """A GPU with the memory that CUDA reports, as vLLM logs it."""
    return replace(compose(["speculation=none", f"hardware={name}"]).hardware, memory_gib=cuda_gib)


def blocks_of_0_19(parts: MemoryBreakdown) -> float:
    """Blocks without graphs in the budget: VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS is off in vLLM 0.19."""
    left = parts.target_kv_bytes + parts.headroom_bytes + parts.graphs_bytes
    return left / parts.target_kv_bytes_per_block


def test_blocks_of_the_recorded_run_within_two_percent() -> None:
    """2,588 on RTX 4090: ../shared/measured-runs, vLLM 0.19.0, whose CUDA memory is 23.52 GiB (recon-a5.md).

    By 0.33's rules and for a first start, which the record does not tell. By the same rules a warm compile
    cache leaves 8 percent more than recorded; without the sampler's state, which 0.19 did not keep, 4.
    """
    card_4090 = card("rtx4090", 23.52)
    parts = recorded("llama-3.1-8b", card_4090, ALONE, 256, gpu_memory_utilization=0.9)
    assert blocks_of_0_19(parts) == pytest.approx(2588, rel=0.02)


@pytest.mark.parametrize(
    ("name", "parallel", "fitting"),
    [("qwen3-32b", Parallel(2), 28_614), ("qwen3-30b-a3b", Parallel(1, 2), 38_590)],
)
def test_blocks_that_fit_the_other_recorded_runs_within_a_tenth(
    name: str, parallel: Parallel, fitting: int
) -> None:
    """../shared/measured-runs: not recorded; these fit, and 30 percent more or less change nothing."""
    parts = recorded(name, card("rtx_pro_6000", 94.97), parallel, 128, gpu_memory_utilization=0.9)
    assert blocks_of_0_19(parts) == pytest.approx(fitting, rel=0.1)


def test_a_drafter_leaves_fewer_blocks() -> None:
    assert memory(EAGLE3).num_gpu_blocks < memory().num_gpu_blocks
    assert memory(EAGLE3).drafter_weights_bytes > 0
    assert memory().drafter_kv_bytes == memory().drafter_weights_bytes == 0


def drafting(method: Method, drafts: int, draft: str | None = None) -> MemoryBreakdown:
    speculation = replace(EAGLE3, method=method, num_speculative_tokens=drafts, model=draft)
    return breakdown(MODEL, H100, engine(), ALONE, speculation)


def test_a_draft_model_takes_its_weights_and_the_kv_of_its_layers() -> None:
    """Llama-3.2-1B: 1,235,814,400 weights but norms; 16 layers of 8 KV heads of 64."""
    parts = drafting(Method.draft_model, 3, "llama-3.2-1b")
    assert parts.drafter_weights_bytes == 2 * (1_235_814_400 - 33 * 2048)
    assert parts.drafter_kv_bytes_per_block == 16 * 16 * 2 * 8 * 64 * 2
    per_token = memory().num_gpu_blocks / parts.num_gpu_blocks
    assert per_token > 1.25  # a quarter more KV a token, and the weights


def test_a_parallel_drafter_caches_five_layers_whatever_it_drafts() -> None:
    few, many = drafting(Method.parallel, 3), drafting(Method.parallel, 7)
    assert few.drafter_kv_bytes_per_block == many.drafter_kv_bytes_per_block == 16 * 5 * 4096
    assert few.drafter_weights_bytes == many.drafter_weights_bytes > 0


def test_each_draft_of_medusa_takes_a_head_and_no_kv() -> None:
    one, three = drafting(Method.medusa, 1), drafting(Method.medusa, 3)
    assert three.drafter_weights_bytes == 3 * one.drafter_weights_bytes
    assert three.drafter_kv_bytes == 0


@pytest.mark.parametrize("method", [Method.ngram, Method.suffix])
def test_a_look_up_on_the_host_takes_no_memory(method: Method) -> None:
    parts = drafting(method, 3)
    assert parts.drafter_weights_bytes == parts.drafter_kv_bytes == 0


def test_blocks_that_the_user_gives_take_the_place_of_the_derived_ones() -> None:
    given = memory(num_gpu_blocks=100)
    assert given.num_gpu_blocks == 100
    assert given.target_kv_bytes == 100 * 16 * 131_072
    derived = memory()
    assert given.headroom_bytes > 0
    overdrawn = memory(num_gpu_blocks=derived.num_gpu_blocks + 100)
    assert overdrawn.headroom_bytes < 0


def test_blocks_that_no_budget_could_hold_are_refused() -> None:
    said = (
        "engine.num_gpu_blocks must fit beside the weights in the 80.0 GiB of h100, but got 78.1 GiB of KV "
        r"and 15.0 GiB of weights \(engine.num_gpu_blocks\). Give fewer blocks"
    )
    with pytest.raises(UserError, match=said):
        memory(num_gpu_blocks=40_000)


def test_a_model_that_does_not_fit_is_refused_with_the_numbers() -> None:
    said = (
        "a model must leave memory for KV: 20.2 GiB of llama-3.1-8b's budget on small, but got target "
        "weights 15.0, drafter weights 0.0, states 0.0, activations 6.2, graphs 0.8, runtime 0.6 GiB "
        ".* Use a larger GPU"
    )
    small = replace(H100, name="small", memory_gib=22.0)
    with pytest.raises(UserError, match=said):
        breakdown(MODEL, small, engine(max_num_batched_tokens=65536), ALONE, NONE)


def test_every_part_is_reported_by_name() -> None:
    sizes = memory().as_dict()
    assert tuple(name for name in sizes if name.endswith("_bytes")) == ("device_bytes", *PARTS)
