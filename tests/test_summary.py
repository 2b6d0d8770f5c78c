"""What summary.json says, against its definitions (../shared/vllm-scheduler.md sections 12 and 13)."""

import json

import numpy as np
import pytest
from example_run import example_run, example_tally
from hypothesis import given
from hypothesis import strategies as st

from cluster_sim.compose import compose
from cluster_sim.counters import acceptance
from cluster_sim.engine.kinds import Outcome
from cluster_sim.engine.metrics import gap_bin, gap_edges_s
from cluster_sim.engine.state import Totals
from cluster_sim.percentiles import counted_percentile, distribution, histogram_percentile
from cluster_sim.run import simulate
from cluster_sim.summary import of_requests, simulated_s, summarise
from cluster_sim.world import empty_table

CONTRACT = {  # of scripts and people, ../shared/DESIGN.md section 15
    *("ttft_s", "tpot_s", "itl_s", "e2el_s", "queue_s", "requests", "request_throughput_rps"),
    *("output_throughput_tok_s", "slo_goodput_rps", "slo_attainment", "token_goodput_tok_s"),
    *("acceptance_length", "acceptance_rate", "acceptance_by_position", "tokens", "preemptions", "kv_usage"),
    *("memory_bytes", "saturated", "steps", "simulated_s", "engine_wall_s", "wall_s", "peak_rss_bytes"),
}
GIVEN_UP = ("workload.requests=1", "workload.timeout_s=0.001", "engine.async_scheduling=false")
SMALL = ("workload.requests=300", "workload.request_rate=30", "engine.max_num_seqs=16")


def test_the_contract_is_kept_and_is_json() -> None:
    summary = json.loads(json.dumps(summarise(example_run()), allow_nan=False))
    assert summary.keys() >= CONTRACT
    for name in ("ttft_s", "tpot_s", "itl_s", "e2el_s", "queue_s"):
        assert list(summary[name]) == ["mean", "p50", "p90", "p95", "p99"]
    assert list(summary["requests"]) == [
        *("offered", "completed", "rejected", "cancelled", "timed_out", "failed")
    ]
    assert summary["tokens"].keys() >= {"drafted", "accepted", "rejected", "emitted"}


def test_latencies_are_those_of_vllm_bench_serve() -> None:
    summary = summarise(example_run())
    assert summary["queue_s"]["mean"] == pytest.approx(np.mean([0.0, 0.5, 0.0]))
    assert summary["ttft_s"]["mean"] == pytest.approx(np.mean([0.25, 1.0, 0.5]))
    assert summary["ttft_s"]["p90"] == pytest.approx(np.percentile([0.25, 1.0, 0.5], 90))
    assert summary["e2el_s"]["mean"] == pytest.approx(np.mean([1.25, 1.0, 2.0]))
    # (E2EL - TTFT) / (tokens - 1), and only where there are two tokens or more
    assert summary["tpot_s"]["mean"] == pytest.approx(np.mean([1.0 / 10, 1.5 / 3]))


def test_throughputs_divide_by_first_arrival_to_last_token() -> None:
    summary = summarise(example_run())
    assert summary["simulated_s"] == pytest.approx(4.0)
    assert summary["drain_s"] == pytest.approx(4.0 - 2.0)
    assert summary["request_throughput_rps"] == pytest.approx(3 / 4)
    assert summary["output_throughput_tok_s"] == pytest.approx(16 / 4)
    assert summary["tokens_per_chunk"] == pytest.approx(16 / 10)


def test_a_good_request_meets_every_limit_and_a_single_token_has_no_tpot_to_miss() -> None:
    run = example_run(("slo.ttft_s=1.0", "slo.tpot_s=0.1", "slo.e2el_s=null"))
    summary = summarise(run)  # request 2 has a TPOT of 0.5 s; request 1 has none
    assert summary["slo_attainment"] == pytest.approx(2 / 3)
    assert summary["slo_goodput_rps"] == pytest.approx(2 / 4)
    assert summary["token_goodput_tok_s"] == pytest.approx(12 / 4)
    assert summary["token_attainment"] == pytest.approx(12 / 16)
    strict = summarise(example_run(("slo.ttft_s=0.3", "slo.tpot_s=0.1", "slo.e2el_s=1.2")))
    assert strict["slo_goodput_rps"] == 0.0


def test_without_limits_there_is_no_goodput() -> None:
    summary = summarise(example_run(("slo.ttft_s=null", "slo.tpot_s=null", "slo.e2el_s=null")))
    for name in ("slo_goodput_rps", "slo_attainment", "slo_attainment_interval", "token_goodput_tok_s"):
        assert summary[name] is None


def test_a_rejected_request_is_offered_but_not_completed_and_misses_the_slo() -> None:
    rejected = {
        "outcome": [int(Outcome.completed), int(Outcome.rejected), int(Outcome.completed)],
        "scheduled_s": [1.0, np.nan, 3.0],
        "first_token_s": [1.25, np.nan, 3.5],
        "last_token_s": [2.25, np.nan, 5.0],
        "emitted_tokens": [11, 0, 4],
        "chunks": [5, 0, 4],
    }
    summary = summarise(example_run(("slo.ttft_s=10", "slo.tpot_s=10"), log=rejected))
    assert summary["requests"] == {
        "offered": 3,
        "completed": 2,
        "rejected": 1,
        "cancelled": 0,
        "timed_out": 0,
        "failed": 0,
    }
    assert summary["slo_attainment"] == pytest.approx(2 / 3)
    assert summary["ttft_s"]["mean"] == pytest.approx(np.mean([0.25, 0.5]))


def test_a_run_that_completes_nothing_has_rates_of_zero_and_no_latencies() -> None:
    nothing = {
        "outcome": int(Outcome.rejected),
        **dict.fromkeys(("scheduled_s", "first_token_s", "last_token_s"), np.nan),
        **dict.fromkeys(("emitted_tokens", "chunks"), 0),
    }
    summary = json.loads(json.dumps(summarise(example_run(log=nothing)), allow_nan=False))
    assert summary["ttft_s"]["mean"] is None
    assert summary["itl_s"]["p99"] is None
    assert summary["output_throughput_tok_s"] == 0.0
    assert summary["batch_size"]["p50"] is None
    assert summary["batch_size"]["histogram"] == []
    assert summary["output_tokens_per_busy_s"] is None
    assert summary["saturated"] is None


def test_kv_and_time_are_shares_over_the_instances() -> None:
    totals = empty_table(
        Totals,
        2,
        target_s=[2.0, 1.0],
        draft_s=[0.5, 0.0],
        exposed_host_s=[0.0, 0.5],
        kv_block_s=[120.0, 40.0],
        kv_blocks_max=[60, 90],
        clock_s=[5.0, 4.0],
    )
    blank = example_tally()
    twice = {name: np.repeat(getattr(blank, name), 2, axis=0) for name in blank._fields if name != "totals"}
    run = example_run(tally=blank._replace(totals=totals, **twice), usable_blocks=np.array([100, 100]))
    summary = summarise(run)  # 4 s on two instances
    assert summary["kv_usage"] == pytest.approx({"mean": 160 / 800, "max": 0.9})
    assert summary["time_share"] == pytest.approx(
        {"target": 3 / 8, "draft": 0.5 / 8, "host": 0.5 / 8, "idle": 4 / 8}
    )
    assert summary["output_tokens_per_busy_s"] == pytest.approx(16 / 4)


def test_the_histogram_of_batch_sizes_ends_at_the_largest() -> None:
    """3 steps of one request and 1 of three on one instance, 2 of three on the other."""
    sizes = np.zeros((2, 9), np.int64)
    sizes[0, 1], sizes[0, 3], sizes[1, 3] = 3, 1, 2
    summary = summarise(example_run(tally=example_tally(batch_size_steps=sizes)))
    assert summary["batch_size"]["histogram"] == [0, 3, 0, 3]
    assert summary["batch_size"]["mean"] == pytest.approx(12 / 6)


def test_shares_are_over_the_ranks_of_an_instance() -> None:
    """One request on two ranks in lockstep: the rank without it is idle, and its memory empty."""
    moe = ("model=qwen3-30b-a3b", "speculation=none", "cluster.data_parallel_size=2")
    one = ("cluster.enable_expert_parallel=true", "workload.requests=1", "engine.num_gpu_blocks=101")
    run = simulate(compose([*moe, *one]))
    summary, (busy, idle) = summarise(run), run.tally.totals
    assert run.usable_blocks.tolist() == [100, 100]
    assert (idle["steps"], idle["target_s"], idle["kv_blocks_max"]) == (0, 0.0, 0)
    span_s = busy["clock_s"] - run.requests["arrival_s"][0]
    assert summary["time_share"]["target"] == pytest.approx(busy["target_s"] / (2 * span_s))
    assert summary["time_share"]["target"] == pytest.approx(0.5, abs=0.01)
    assert summary["time_share"]["idle"] == pytest.approx(0.5, abs=0.01)
    assert summary["kv_usage"]["max"] == busy["kv_blocks_max"] / 100
    assert summary["kv_usage"]["mean"] == pytest.approx(busy["kv_block_s"] / (200 * span_s))


def test_a_request_that_is_given_up_holds_its_memory_until_then() -> None:
    """Its client leaves during the first step, at whose end the blocks come back: always held."""
    kv_usage = summarise(simulate(compose(list(GIVEN_UP))))["kv_usage"]
    assert kv_usage["mean"] == pytest.approx(kv_usage["max"])


def test_acceptance_by_position_divides_by_the_events_that_had_the_position() -> None:
    verified = np.zeros((3, 3), np.int64)  # [drafts, accepted]
    verified[2, 2], verified[2, 0], verified[1, 1], verified[1, 0] = 3, 1, 2, 4
    found = acceptance(verified)
    assert found["acceptance_length"] == pytest.approx(1 + 8 / 10)
    assert found["acceptance_rate"] == pytest.approx(8 / 14)
    assert found["acceptance_by_position"] == pytest.approx([5 / 10, 3 / 4])
    assert found["acceptance_by_position_vllm"] == pytest.approx([5 / 10, 3 / 10])


@given(
    counts=st.lists(st.integers(0, 50), min_size=10, max_size=10).filter(lambda counts: sum(counts[2:]) > 0)
)
def test_acceptance_length_is_one_more_than_the_sum_of_vllm_s_positions(counts: list[int]) -> None:
    """AL = 1 + sum of the marginals, for any dependence (../shared/spec-decode-facts.md, D1)."""
    verified = np.zeros((4, 4), np.int64)
    verified[np.tril_indices(4)] = counts
    verified[0] = 0
    if verified.sum() == 0:
        return
    found = acceptance(verified)
    assert found["acceptance_length"] == pytest.approx(1 + sum(found["acceptance_by_position_vllm"]))


def test_without_drafts_there_is_no_acceptance() -> None:
    assert set(acceptance(np.zeros((1, 1), np.int64)).values()) == {None}


@given(
    counts=st.lists(st.integers(0, 5), min_size=1, max_size=30).filter(any), percent=st.sampled_from([50, 99])
)
def test_percentiles_of_counts_are_numpy_s(counts: list[int], percent: int) -> None:
    sample = np.repeat(np.arange(len(counts)), counts)
    assert counted_percentile(np.array(counts), percent) == pytest.approx(np.percentile(sample, percent))


def test_percentiles_of_gaps_are_right_to_half_a_percent() -> None:
    """Each lies in the bin of the sample's own percentile; bins are 0.5 % wide."""
    sample = np.random.default_rng(1).lognormal(-4.0, 1.0, 20_000)
    edges = gap_edges_s()
    counts = np.bincount([gap_bin(gap) for gap in sample], minlength=len(edges) - 1)
    for percent in (50, 90, 95, 99):
        expected = np.percentile(sample, percent, method="inverted_cdf")
        assert histogram_percentile(counts, edges, percent) == pytest.approx(expected, rel=0.00502)


def test_no_values_have_no_distribution() -> None:
    assert set(distribution(np.zeros(0)).values()) == {None}


def test_the_parts_of_a_run_add_up_to_the_whole() -> None:
    run = simulate(compose([*SMALL, "workload.output_tokens={distribution: lognormal, mean: 64, cv: 1.0}"]))
    duration_s = simulated_s(run)
    odd = np.arange(len(run.log["chunks"])) % 2 == 1
    whole, first, second = (of_requests(run, chosen, duration_s) for chosen in (odd | ~odd, odd, ~odd))
    for name in ("request_throughput_rps", "output_throughput_tok_s", "slo_goodput_rps"):
        assert first[name] + second[name] == pytest.approx(whole[name])
    for name, tokens in whole["tokens"].items():
        assert first["tokens"][name] + second["tokens"][name] == tokens


def test_a_simulation_s_tallies_agree_with_its_log() -> None:
    run = simulate(compose([*SMALL]))
    summary = summarise(run)
    log = run.log
    gaps = (log["chunks"] - 1).sum()
    assert summary["itl_s"]["mean"] == pytest.approx(
        (log["last_token_s"] - log["first_token_s"]).sum() / gaps
    )
    assert summary["itl_s"]["p50"] <= summary["itl_s"]["p99"] <= 1.005 * log["longest_gap_s"].max()
    tokens = summary["tokens"]
    assert tokens["emitted"] == run.requests["max_tokens"].sum()
    assert tokens["drafted"] == tokens["accepted"] + tokens["rejected"]
    assert summary["acceptance_rate"] == pytest.approx(tokens["accepted"] / tokens["drafted"])
    assert sum(summary["time_share"].values()) == pytest.approx(1.0)
    assert sum(summary["steps_by_draft_length"]) == summary["steps"]
    assert 0.0 < summary["kv_usage"]["mean"] < summary["kv_usage"]["max"] <= 1.0
    assert summary["requests"]["completed"] == 300
