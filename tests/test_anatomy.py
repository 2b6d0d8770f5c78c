"""What a step is made of: parts that add up to the engine's own step, and the knee of the roofline."""

from collections.abc import Sequence

import numpy as np
import pytest

from cluster_sim.anatomy import anatomy_of
from cluster_sim.build import find_bundle
from cluster_sim.bundle.knee import dense_knee_tokens, experts_knee_tokens
from cluster_sim.compose import compose
from cluster_sim.decode_time import clock, decode_batch
from cluster_sim.optimum import resolved, timing_of
from cluster_sim.report.anatomy_sections import knee_batch

KV_TOKENS = 700.0
MOE = ("model=qwen3-30b-a3b", "hardware=h200", "speculation=none")
TWO_RANKS = ("cluster.data_parallel_size=2", "cluster.enable_expert_parallel=true")
AUTO = "speculation.num_speculative_tokens_per_batch_size=auto"


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        ((), {"dense", "attention", "head", "launch", "draft"}),
        ((AUTO,), {"dense", "attention", "head", "launch", "draft"}),
        (("engine.async_scheduling=false",), {"dense", "attention", "head", "launch", "draft", "host"}),
        (("engine.cudagraph_mode=NONE", "speculation=none"), {"dense", "attention", "head", "launch"}),
        (
            (*MOE, "cluster.tensor_parallel_size=2"),
            {"dense", "experts", "all_reduce", "attention", "head", "launch"},
        ),
        ((*MOE, *TWO_RANKS), {"dense", "experts", "exchange", "attention", "head", "launch"}),
    ],
)
def test_the_parts_of_a_step_add_up_to_the_engines_own_step(
    overrides: Sequence[str], parts: set[str]
) -> None:
    config = resolved(compose(overrides))
    found, step_s = anatomy_of(config, KV_TOKENS), clock(timing_of(config))
    lengths = zip(found["batch_size"], found["draft_length"], strict=True)
    expected = [step_s(decode_batch(size, drafts, KV_TOKENS), drafts) for size, drafts in lengths]
    assert found["step_s"] == pytest.approx(expected, rel=1e-12)
    assert np.sum(list(found["parts_s"].values()), axis=0) == pytest.approx(expected, rel=1e-9)
    assert set(found["parts_s"]) == parts
    assert all(time_s > -1e-12 for times_s in found["parts_s"].values() for time_s in times_s)


def test_a_part_of_a_full_graph_is_its_table_at_the_captured_size() -> None:
    config = compose((*MOE, "cluster.tensor_parallel_size=2"))
    found, tables = anatomy_of(config, KV_TOKENS), find_bundle(config).tables
    place = found["batch_size"].index(16)
    for part in ("dense", "all_reduce"):
        own = np.interp(16, tables[part].axes["tokens"], tables[part].time_s)
        assert found["parts_s"][part][place] == pytest.approx(own, rel=1e-9)
    assert found["parts_s"]["launch"][place] == 0.0


def test_the_draft_lengths_are_those_in_force() -> None:
    ranges = "[[1,16,5],[17,64,2],[65,1024,0]]"
    config = compose(
        [
            f"speculation.num_speculative_tokens_per_batch_size={ranges}",
            "speculation.num_speculative_tokens=5",
        ]
    )
    found = anatomy_of(config, KV_TOKENS)
    in_force = dict(zip(found["batch_size"], found["draft_length"], strict=True))
    assert (in_force[16], in_force[24], in_force[64], in_force[96]) == (5, 2, 2, 0)


def test_the_knee_is_where_a_gemm_computes_for_as_long_as_it_reads_its_weights() -> None:
    config = compose(())
    hardware, fit = config.hardware, config.hardware.gemm_bf16
    tokens = dense_knee_tokens(config.model, hardware)
    assert tokens is not None
    weights = 4096 * 4096
    computes_s = 2 * weights * tokens / (float(fit.compute_efficiency or 0) * hardware.bf16_tflops * 1e12)
    reads_s = 2 * weights / (fit.memory_efficiency * hardware.hbm_gb_per_s * 1e9)
    assert computes_s == pytest.approx(reads_s)
    assert experts_knee_tokens(config.model, hardware) is None


def test_experts_share_the_tokens_and_reach_their_knee_later() -> None:
    config = compose(MOE)
    model, hardware = config.model, config.hardware
    dense, experts = dense_knee_tokens(model, hardware), experts_knee_tokens(model, hardware)
    assert dense is not None
    assert experts is not None
    reached = float(hardware.moe_bf16.compute_efficiency or 0) / hardware.moe_bf16.memory_efficiency
    reached /= float(hardware.gemm_bf16.compute_efficiency or 0) / hardware.gemm_bf16.memory_efficiency
    assert experts == pytest.approx(dense * reached * model.num_experts / model.num_experts_per_tok)


@pytest.mark.parametrize(("drafts", "batch"), [([0, 0, 0], 200.0), ([3, 3, 3], 50.0), ([3, 1, 0], 100.0)])
def test_drafts_bring_the_knee_to_smaller_batches(drafts: list[int], batch: float) -> None:
    anatomy = {"knee_tokens": {"dense": 200.0}, "draft_length": drafts, "batch_size": [16, 128, 256]}
    assert knee_batch(anatomy, "dense") == batch
