"""Profiled tables become a bundle: closed forms, sources, and a refusal of one line for what is damaged."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from example_profile import (
    DENSE,
    H100,
    LLAMA,
    MLP,
    QK_NORM,
    QWEN3_MOE,
    RTX4090,
    SKEW,
    TOKENS,
    WITH_MTP,
    at_points,
    decodes_us,
    experts_us,
    head_us,
    imported,
    mtp_us,
    prefill_us,
    tokens_us,
    write_profile,
)

from cluster_sim.bundle.architecture import Parallel, experts
from cluster_sim.bundle.assumptions import assumptions
from cluster_sim.bundle.kernels import Kernels, active_experts
from cluster_sim.bundle.sections import Parameter
from cluster_sim.bundle.servers import AllReduce, Server

US = 1e-6
AROUND_ATTENTION = 2 * DENSE["layernorm"] + DENSE["qkv_proj"] + DENSE["rotary_emb"] + DENSE["o_proj"]
ONCE = DENSE["embedding"] + DENSE["final_layernorm"]
ONE_MLP = sum(DENSE[name] for name in MLP)
SERVER = Server(
    shared={"eager_overhead_s": Parameter(1e-3, "m", "a server", "l")},
    by_size={2: {"eager_overhead_s": Parameter(2e-3, "m", "two of its GPUs", "l")}},
    all_reduce={
        2: AllReduce(np.array([8192.0, 81920.0]), np.array([5e-6, 50e-6]), "its link", "of the link")
    },
)


def close(found: object, wanted: object) -> None:
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-18)


# ---- tables of the target ----


def test_dense_sums_the_layers_as_often_as_a_step_runs_them(tmp_path):
    bundle = imported(write_profile(tmp_path))
    tokens, time_s = at_points(bundle, "dense")
    assert tokens.tolist() == list(TOKENS)
    close(time_s, US * tokens_us(tokens) * (ONCE + 32 * (AROUND_ATTENTION + ONE_MLP)))


def test_a_norm_of_queries_and_keys_counts_where_it_was_profiled(tmp_path):
    tokens, time_s = at_points(imported(write_profile(tmp_path, parts=("qk_norm",))), "dense")
    close(time_s, US * tokens_us(tokens) * (ONCE + 32 * (AROUND_ATTENTION + QK_NORM + ONE_MLP)))


def test_layers_of_experts_have_no_mlp_in_dense(tmp_path):
    tokens, time_s = at_points(imported(write_profile(tmp_path, QWEN3_MOE), QWEN3_MOE), "dense")
    close(time_s, US * tokens_us(tokens) * (ONCE + 48 * AROUND_ATTENTION))


def test_head_is_lm_head_and_sampler(tmp_path):
    rows, time_s = at_points(imported(write_profile(tmp_path)), "head")
    close(time_s, US * head_us(rows))


def test_a_prefill_costs_its_work_between_profiled_chunks_and_beyond_profiled_histories(tmp_path):
    """P(c, h) / c is linear in c; (256, 2048) is missing; histories of 16 and 128 tokens jump by ten."""
    chunk, history, time_s = at_points(imported(write_profile(tmp_path)), "prefill_attention")
    assert np.unique(history).tolist() == [0, 512, 2048]
    assert np.unique(chunk).tolist() == [16, *range(32, 257, 32)]
    close(time_s, 32 * US * prefill_us(chunk, history))


def test_decodes_cost_what_they_add_to_the_prefill_at_the_longest_chunk(tmp_path):
    """Corners (8, 1024) and eight decodes beside 256 are missing; chunk 1 is the shortest profiled one."""
    _, chunk, decodes, kv_tokens, time_s = at_points(imported(write_profile(tmp_path)), "decode_attention")
    assert np.unique(chunk).tolist() == [0, 1, 16, 64, 256]
    assert np.unique(decodes).tolist() == [0, 1, 2, 4, 8]
    close(time_s, 32 * US * decodes_us(decodes, kv_tokens, np.where(chunk == 1, 16, chunk)))


def test_a_table_without_mixed_steps_takes_decodes_beside_a_prefill_as_alone(tmp_path):
    file = write_profile(tmp_path) / "tp1" / "attention.csv"
    header, *rows = file.read_text().splitlines()
    file.write_text(
        "\n".join([header, *(row for row in rows if row[:2] == "0," or row.split(",")[2] == "0")])
    )
    _, chunk, decodes, kv_tokens, time_s = at_points(imported(tmp_path), "decode_attention")
    assert np.unique(chunk).tolist() == [0, 1]
    close(time_s, 32 * US * decodes_us(decodes, kv_tokens, 0))


def test_a_column_of_query_lengths_becomes_an_axis(tmp_path):
    """Four queries were profiled without a prefill only: that is the nearest chunk to all others."""
    table = imported(write_profile(tmp_path, parts=("queries",))).tables["decode_attention"]
    query, _, decodes, kv_tokens = np.meshgrid(*table.axes.values(), indexing="ij")
    assert table.axes["query_tokens"].tolist() == [1, 4]
    close(table.time_s[1], 32 * US * decodes_us(decodes, kv_tokens, 0, query)[1])
    alone = imported(write_profile(tmp_path)).tables["decode_attention"]
    assert np.array_equal(table.time_s[0], alone.time_s[0])


def test_experts_cost_by_tokens_and_by_those_awake(tmp_path):
    """Of all MoE layers; few tokens cannot wake many experts: those corners cost as the fewest that can."""
    bundle = imported(write_profile(tmp_path, QWEN3_MOE), QWEN3_MOE)
    tokens, active, time_s = at_points(bundle, "moe")
    assert np.unique(active).tolist() == [0, 8, 32, 128]
    fewest = np.where(active <= 8, 1, 16)
    wanted = np.where(active == 0, 0.0, experts_us(np.maximum(tokens, fewest), active))
    close(time_s, 48 * US * wanted)
    assert bundle.parameters["expert_routing_exponent"].value == 1.0


def test_leading_dense_layers_have_an_mlp_and_no_experts(tmp_path):
    model = replace(QWEN3_MOE, first_k_dense_replace=3)
    write_profile(tmp_path / "moe", QWEN3_MOE)
    shutil.copy(
        write_profile(tmp_path / "dense") / "tp1" / "dense.csv", tmp_path / "moe" / "tp1" / "dense.csv"
    )
    bundle = imported(tmp_path / "moe", model)
    tokens, time_s = at_points(bundle, "dense")
    close(time_s, US * tokens_us(tokens) * (ONCE + 48 * AROUND_ATTENTION + 3 * ONE_MLP))
    assert bundle.tables["moe"].time_s[-1, -1] == pytest.approx(45 * US * experts_us(64, 128))


# ---- uneven decodes ----


def test_uneven_decodes_cost_from_where_the_kernel_no_longer_splits(tmp_path):
    """8 KV heads, 128 SMs: it splits below 0.8 * 2 * 128 / 8 = 25.6 requests; profiled from 512 / 8 = 64."""
    requests, share = at_points(imported(write_profile(tmp_path, parts=("skew",))), "decode_skew")
    assert requests.tolist() == list(range(1, 257))
    assert not share[requests <= 25].any()
    close(share[25:64], SKEW["n<=64"] * (requests[25:64] - 25.6) / (64 - 25.6))
    close(share[127], SKEW["n<=128"])
    assert share[255] == 0.0  # fitted below 0


def test_without_a_fit_of_uneven_decodes_there_is_no_such_table(tmp_path):
    assert "decode_skew" not in imported(write_profile(tmp_path)).tables


# ---- several GPUs ----


def test_all_reduces_are_those_of_the_known_server(tmp_path):
    """2 a layer and one of the embedding; 8,192 bytes a token; beyond the known sizes along the last two."""
    bundle = imported(write_profile(tmp_path, sizes=(1, 2)), server=SERVER, place=1)
    assert bundle.tensor_parallel_size == 2
    tokens, time_s = at_points(bundle, "all_reduce")
    close(time_s, 65 * 5e-6 * tokens)
    table = bundle.tables["all_reduce"]
    assert (table.source, table.licence) == ("its link", "of the link")


def test_all_reduces_of_an_unknown_server_are_the_fit_of_the_hardware(tmp_path):
    bundle = imported(write_profile(tmp_path, sizes=(1, 2)), hardware=H100, place=1)
    tokens, time_s = at_points(bundle, "all_reduce")
    close(time_s, 65 * Kernels(LLAMA, H100, Parallel(2)).all_reduce_s(tokens))
    assert bundle.tables["all_reduce"].source.startswith("not profiled; fit of conf/hardware")


def test_every_size_has_its_own_tables(tmp_path):
    one, two = (
        imported(write_profile(tmp_path, sizes=(1, 2)), server=SERVER, place=place) for place in (0, 1)
    )
    close(two.tables["dense"].time_s, one.tables["dense"].time_s / 2)
    assert "all_reduce" not in one.tables


# ---- parameters and their sources ----


def test_parameters_are_the_servers_else_assumed(tmp_path):
    write_profile(tmp_path, sizes=(1, 2))
    eager = [imported(tmp_path, server=SERVER, place=at).parameters["eager_overhead_s"] for at in (0, 1)]
    assert [(entry.value, entry.source) for entry in eager] == [(1e-3, "a server"), (2e-3, "two of its GPUs")]
    assert imported(tmp_path).parameters["host_s"] == assumptions().parameters["host_s"]


def test_the_largest_graph_is_the_hardwares(tmp_path):
    hardware = replace(RTX4090, max_cudagraph_capture_tokens=1024)
    known = imported(write_profile(tmp_path), hardware=hardware).parameters
    assert known["max_cudagraph_capture_tokens"].value == 1024


def test_every_table_says_who_profiled_what(tmp_path):
    for table in imported(write_profile(tmp_path, parts=("skew",))).tables.values():
        assert "LLMServingSim: NVIDIA Test, vLLM 0.19.0; " in table.source
        assert table.licence.startswith("MIT (LLMServingSim")


# ---- the MTP module ----


def test_a_pass_of_an_mtp_module_is_what_was_profiled_and_one_more_layer(tmp_path):
    bundle = imported(write_profile(tmp_path, parts=("mtp",)), WITH_MTP)
    assert list(bundle.drafters) == ["mtp"]
    for name in ("draft_first", "draft_next"):
        _, tokens, time_s = at_points(bundle, name)
        close(time_s, US * (mtp_us(tokens) + tokens_us(tokens) * (AROUND_ATTENTION + ONE_MLP)))
    _, rows, time_s = at_points(bundle, "draft_head")
    close(time_s, US * head_us(rows))
    assert bundle.drafters["mtp"]["prepare_s"] == assumptions().drafters["mtp"]["prepare_s"]


def test_an_mtp_module_of_experts_wakes_those_that_its_tokens_choose(tmp_path):
    model = replace(QWEN3_MOE, num_nextn_predict_layers=1)
    _, tokens, time_s = at_points(
        imported(write_profile(tmp_path, QWEN3_MOE, parts=("mtp",)), model), "draft_next"
    )
    awake = active_experts(tokens[0, -1:], experts(model, Parallel()), 1.0)[0]
    assert awake == pytest.approx(128)
    wanted = mtp_us(256) + tokens_us(256) * AROUND_ATTENTION + experts_us(256, awake)
    assert time_s[0, -1] == pytest.approx(US * wanted)


def test_an_mtp_module_on_several_gpus_reduces_thrice(tmp_path):
    write_profile(tmp_path, sizes=(1, 2), parts=("mtp",))
    two = imported(tmp_path, WITH_MTP, server=SERVER, place=1)
    _, tokens, time_s = at_points(two, "draft_next")
    layer_us = tokens_us(tokens) * (AROUND_ATTENTION + ONE_MLP) / 2
    close(time_s, US * (mtp_us(tokens) + layer_us) + 3 * 5e-6 * tokens)
