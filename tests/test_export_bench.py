"""Exports as `vllm bench serve` JSON: every number against the stored requests, by vLLM's definitions.

Those are in ../shared/vllm-scheduler.md section 13 and vllm/benchmarks/serve.py, calculate_metrics.
"""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exporting import bench_of, requests_of, simulated, summary_of
from hypothesis import given
from hypothesis import strategies as st
from sweeping import swept

from cluster_sim import cli
from cluster_sim.bench_serve import gap_deviation, most_at_once
from cluster_sim.engine.metrics import NUM_GAP_BINS, gap_bin

LIMITS = ("slo.ttft_s=0.2", "slo.tpot_s=0.008", "slo.e2el_s=1.5")
MIXED = (
    "cluster.instances=2",
    "workload.output_tokens={distribution: lognormal, mean: 60, cv: 1.5, min: 1, max: 900}",
    "workload.timeout_s=2.0",
)
SMALL_SWEEP = ("+sweep=spec_grid", "output.page=false", "workload.requests=60")
SETUP = ["date", "endpoint_type", "backend", "label", "model_id", "tokenizer_id", "num_prompts"]
METADATA = ["gpu_count", "seed"]
TRAFFIC = ["request_rate", "burstiness", "max_concurrency"]
COUNTS = [
    *("duration", "completed", "failed", "total_input_tokens", "total_output_tokens", "request_throughput"),
    *("request_goodput", "output_throughput", "total_token_throughput"),
]
PEAKS = ["max_concurrent_requests", "rtfx"]
SPECULATION = [
    *("spec_decode_acceptance_rate", "spec_decode_acceptance_length", "spec_decode_num_drafts"),
    *("spec_decode_draft_tokens", "spec_decode_accepted_tokens"),
    "spec_decode_per_position_acceptance_rates",
]
LATENCIES = [
    f"{statistic}_{name}_ms"
    for name in ("ttft", "tpot", "itl", "e2el")
    for statistic in ("mean", "median", "std", "p90", "p95", "p99")
]
BEFORE = [*SETUP, *METADATA, *TRAFFIC, *COUNTS]
AFTER = [*PEAKS, *SPECULATION, *LATENCIES]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Requests of many lengths, some of one token, some given up, most within the SLO."""
    return simulated(tmp_path_factory.mktemp("mixed"), *MIXED, *LIMITS)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("sweep")
    swept(
        directory,
        *SMALL_SWEEP,
        "sweep.seeds=[3,4]",
        "sweep.axes={workload.request_rate:[4,30],cluster.instances:[1,2]}",
    )
    return directory


def test_the_keys_are_vllms_in_vllms_order(mixed: Path) -> None:
    assert list(bench_of(mixed)) == [*BEFORE, "latencies", "queue_times", *AFTER]
    lists = ["input_lens", "output_lens", "ttfts", "latencies", "start_times", "queue_times", "errors"]
    assert list(bench_of(mixed, "--save-detailed")) == [*BEFORE, *lists, *AFTER]


def test_every_count_and_throughput_is_that_of_the_completed_requests(mixed: Path) -> None:
    found, rows = bench_of(mixed), requests_of(mixed)
    done = [row for row in rows if row["outcome"] == "completed"]
    assert 0 < len(done) < len(rows)  # or the test could not tell them apart
    ends_s = [row["arrival_s"] + row["e2el_s"] for row in rows if row["e2el_s"] is not None]
    duration_s = max(ends_s) - rows[0]["arrival_s"]
    prompt, output = (sum(row[f"{name}_tokens"] for row in done) for name in ("prompt", "emitted"))
    expected = {
        "num_prompts": len(rows),
        "duration": duration_s,
        "completed": len(done),
        "failed": len(rows) - len(done),
        "total_input_tokens": prompt,
        "total_output_tokens": output,
        "request_throughput": len(done) / duration_s,
        "output_throughput": output / duration_s,
        "total_token_throughput": (prompt + output) / duration_s,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-12)


def test_goodput_counts_completed_requests_within_every_limit(mixed: Path) -> None:
    found, rows = bench_of(mixed), requests_of(mixed)
    good = [
        row
        for row in rows
        if row["outcome"] == "completed"
        and row["ttft_s"] <= 0.2
        and (row["tpot_s"] or 0.0) <= 0.008
        and row["e2el_s"] <= 1.5
    ]
    assert 0 < len(good) < found["completed"]
    assert found["request_goodput"] == pytest.approx(len(good) / found["duration"], rel=1e-12)


def test_every_latency_is_numpys_statistic_of_the_completed_requests(mixed: Path) -> None:
    found = bench_of(mixed)
    done = [row for row in requests_of(mixed) if row["outcome"] == "completed"]
    values = {
        "ttft": [row["ttft_s"] for row in done],
        "tpot": [row["tpot_s"] for row in done if row["emitted_tokens"] > 1],
        "e2el": [row["e2el_s"] for row in done],
    }
    assert len(values["tpot"]) < len(values["ttft"])
    for name, seconds in values.items():
        milliseconds = 1000 * np.array(seconds)
        expected = {"mean": milliseconds.mean(), "median": np.median(milliseconds), "std": milliseconds.std()}
        expected |= {f"p{percent}": np.percentile(milliseconds, percent) for percent in (90, 95, 99)}
        assert {key: found[f"{key}_{name}_ms"] for key in expected} == pytest.approx(expected, rel=1e-9)


def test_itl_has_one_gap_per_chunk_of_every_request(mixed: Path) -> None:
    found, summary = bench_of(mixed), summary_of(mixed)
    delivered = [row for row in requests_of(mixed) if row["chunks"] > 1]
    gaps_s = sum(row["e2el_s"] - row["ttft_s"] for row in delivered)
    count = sum(row["chunks"] - 1 for row in delivered)
    assert found["mean_itl_ms"] == pytest.approx(1000 * gaps_s / count, rel=1e-9)
    assert found["median_itl_ms"] == 1000 * summary["itl_s"]["p50"]
    assert found["p99_itl_ms"] == 1000 * summary["itl_s"]["p99"]
    longest_ms = 1000 * max(row["itl_max_s"] for row in delivered)
    assert 0 < found["std_itl_ms"] < longest_ms


@given(st.lists(st.floats(1e-4, 5.0), min_size=1, max_size=60))
def test_the_deviation_of_gaps_is_numpys_to_half_a_percent_of_the_gaps(gaps_s: list[float]) -> None:
    bins = np.bincount([gap_bin(gap) for gap in gaps_s], minlength=NUM_GAP_BINS)
    root_mean_square = math.sqrt(np.mean(np.square(gaps_s)))
    assert gap_deviation(bins) == pytest.approx(np.std(gaps_s), abs=0.005 * root_mean_square)


def test_without_a_gap_there_is_no_deviation() -> None:
    assert gap_deviation(np.zeros(NUM_GAP_BINS, np.int64)) is None


def test_requests_are_listed_in_order_and_failed_ones_have_zeros_and_a_word(mixed: Path) -> None:
    found, rows = bench_of(mixed, "--save-detailed"), requests_of(mixed)
    done = [row["outcome"] == "completed" for row in rows]
    assert found["input_lens"] == [row["prompt_tokens"] for row in rows]
    assert found["start_times"] == [row["arrival_s"] for row in rows]
    assert found["queue_times"] == [0.0] * len(rows)
    for name, column in (("latencies", "e2el_s"), ("ttfts", "ttft_s"), ("output_lens", "emitted_tokens")):
        assert found[name] == [row[column] if good else 0 for row, good in zip(rows, done, strict=True)]
    assert set(found["errors"]) == {"", "timed_out"}
    assert [error == "" for error in found["errors"]] == done


@given(st.lists(st.tuples(st.floats(0, 30), st.floats(0, 9)), max_size=25))
def test_the_most_requests_at_once_are_those_of_the_fullest_second(spans: list[tuple[float, float]]) -> None:
    starts = np.array([start for start, _ in spans])
    ends = np.array([start + length for start, length in spans])
    first = min(starts, default=0.0)
    seconds = np.zeros(60, np.int64)
    for start, end in zip(starts, ends, strict=True):
        seconds[int(start - first) : int(end - first) + 1] += 1
    assert most_at_once(starts, ends) == seconds.max()


def test_acceptance_keeps_the_identities_of_vllms_counters(mixed: Path) -> None:
    found, rows = bench_of(mixed), requests_of(mixed)
    drafts, drafted, accepted = (
        found[f"spec_decode_{name}"] for name in ("num_drafts", "draft_tokens", "accepted_tokens")
    )
    assert drafted == sum(row["drafted_tokens"] for row in rows)
    assert accepted == sum(row["accepted_tokens"] for row in rows)
    assert found["spec_decode_acceptance_rate"] == pytest.approx(100 * accepted / drafted)
    assert found["spec_decode_acceptance_length"] == pytest.approx(1 + accepted / drafts)
    rates = found["spec_decode_per_position_acceptance_rates"]
    assert sum(rates) == pytest.approx(accepted / drafts)
    assert rates == sorted(rates, reverse=True)
    assert len(rates) == 3


def test_without_speculation_and_without_limits_there_are_no_such_values(tmp_path: Path) -> None:
    off = ("slo.ttft_s=null", "slo.tpot_s=null", "slo.e2el_s=null", "speculation=none")
    found = bench_of(simulated(tmp_path, *off))
    assert found["request_goodput"] is None
    assert not [key for key in found if key.startswith("spec_decode")]


def test_nothing_completed_counts_as_zero_as_in_vllm(tmp_path: Path) -> None:
    found = bench_of(simulated(tmp_path, "workload.timeout_s=0.001", "workload.requests=20"))
    assert found["completed"] == found["mean_ttft_ms"] == found["std_tpot_ms"] == found["p99_itl_ms"] == 0
    assert found["failed"] == 20


def test_a_warm_up_is_cut_as_in_summary_json(tmp_path: Path) -> None:
    run = simulated(tmp_path, "workload.warmup=0.3", *LIMITS)
    found, rows = bench_of(run), requests_of(run)
    span_s = rows[-1]["arrival_s"] - rows[0]["arrival_s"]
    measured = [row for row in rows if row["arrival_s"] >= rows[0]["arrival_s"] + 0.3 * span_s]
    times_ms = 1000 * np.array([row["ttft_s"] for row in measured])
    assert len(measured) < len(rows) == found["completed"]
    assert found["mean_ttft_ms"] == pytest.approx(times_ms.mean())
    assert found["std_ttft_ms"] == pytest.approx(times_ms.std())
    assert found["request_goodput"] == summary_of(run)["slo_goodput_rps"]


@pytest.mark.parametrize(
    ("overrides", "rate", "burstiness", "gpus"),
    [
        (("workload.request_rate=50",), 50, 1.0, 1),
        (("workload.arrivals=constant",), 60, "inf", 1),
        (("workload.arrivals=gamma", "workload.burstiness=0.5", "cluster.instances=3"), 60, 0.5, 3),
        (
            (
                "cluster.instances=2",
                "cluster.overrides=[{instances:[1],set:{cluster.tensor_parallel_size:2}}]",
            ),
            60,
            1.0,
            3,
        ),
    ],
)
def test_the_setup_is_that_of_the_run(
    overrides: tuple[str, ...], rate: float, burstiness: object, gpus: int, tmp_path: Path
) -> None:
    found = bench_of(simulated(tmp_path, "workload.requests=20", "seed=7", *overrides))
    assert found["request_rate"] == rate
    assert found["burstiness"] == burstiness
    assert (found["gpu_count"], found["seed"], found["model_id"]) == (gpus, 7, "llama-3.1-8b")
    assert found["backend"] == found["endpoint_type"] == "cluster_sim"
    assert found["max_concurrency"] is None


def test_clients_that_wait_are_vllm_s_max_concurrency(tmp_path: Path) -> None:
    """Without a rate, so that the next request is sent when an answer is there."""
    loop = ("workload=closed_loop", "workload.request_rate=null", "workload.max_concurrency=4")
    found = bench_of(simulated(tmp_path, "workload.requests=20", *loop))
    assert [found[key] for key in TRAFFIC] == ["inf", 1.0, 4]


def test_a_sweep_becomes_a_directory_per_combination_and_a_run_per_seed(sweep: Path, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    assert cli.main(["export", str(sweep), "--format", "vllm-bench", "--output", str(tree)]) == 0
    names = {path.name for path in tree.iterdir()}
    assert names == {
        f"SERVE--arm={arm}-BENCH--workload.request_rate={rate}-cluster.instances={instances}"
        for arm in ("off", "K=1", "K=3", "K=5", "schedule")
        for rate in (4, 30)
        for instances in (1, 2)
    }
    for directory in tree.iterdir():
        runs = [json.loads((directory / f"run={number}.json").read_text()) for number in range(2)]
        assert sorted(path.name for path in directory.iterdir()) == [
            "run=0.json",
            "run=1.json",
            "summary.json",
        ]
        assert json.loads((directory / "summary.json").read_text()) == runs
        assert [run["run_number"] for run in runs] == [0, 1]
        assert [run["seed"] for run in runs] == [3, 4]
        for run in runs:
            assert directory.name.startswith(f"SERVE--arm={run['arm']}-")
            assert run["label"] == run["arm"]
            assert run["request_rate"] == run["workload.request_rate"]
            assert run["gpu_count"] == run["cluster.instances"]
            assert ("spec_decode_num_drafts" in run) == (run["arm"] != "off")


def test_a_sweep_says_how_vllm_draws_it(
    sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The axes go by their own names: clients that wait have no request_rate that a figure could show."""
    tree = tmp_path / "tree"
    assert cli.main(["export", str(sweep), "--format", "vllm-bench", "--output", str(tree)]) == 0
    assert capsys.readouterr().err.splitlines()[1:] == [
        f"cluster_sim: to draw it: vllm bench sweep plot {tree} --var-x workload.request_rate "
        "--curve-by arm,cluster.instances",
        f"cluster_sim: or: vllm bench sweep plot_pareto {tree} --gpu-count-var gpu_count "
        "--label-by arm,cluster.instances",
    ]


def test_an_axis_with_a_null_is_in_words(tmp_path: Path) -> None:
    """VLLM's figures leave out curves that are null."""
    axes = "sweep.axes={workload.request_rate:[8],engine.num_gpu_blocks:[null,9000]}"
    swept(tmp_path, *SMALL_SWEEP, axes, "sweep.seeds=[0]")
    tree = tmp_path / "tree"
    assert cli.main(["export", str(tmp_path), "--format", "vllm-bench", "--output", str(tree)]) == 0
    runs = [json.loads(path.read_text())[0] for path in tree.glob("*/summary.json")]
    assert {run["engine.num_gpu_blocks"] for run in runs} == {"null", "9000"}
    assert {run["workload.request_rate"] for run in runs} == {8}


def test_a_trial_of_a_sweep_is_the_same_simulation_by_itself(sweep: Path, tmp_path: Path) -> None:
    def numbers(found: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in found.items() if key in {*METADATA, *TRAFFIC, *COUNTS, *AFTER}}

    of_trial = bench_of(sweep, "--trial", "6")  # the second seed of the second arm at the first point
    assert (of_trial["label"], of_trial["seed"]) == ("K=1", 4)
    alone = (
        "speculation.num_speculative_tokens=1",
        "seed=4",
        "workload.request_rate=4",
        "workload.requests=60",
    )
    assert numbers(bench_of(simulated(tmp_path, *alone))) == numbers(of_trial)


def test_a_tree_is_never_written_over_another_and_leaves_nothing_half_done(
    sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "mine").touch()
    arguments = ["export", str(sweep), "--format", "vllm-bench", "--output", str(tmp_path / "tree")]
    assert cli.main(arguments) == 2
    assert capsys.readouterr().err == (
        "cluster_sim: error: a tree of runs is written into a directory of its own, but got one that exists "
        f"({tmp_path / 'tree'}). Remove it, or choose another one with --output=PATH.\n"
    )
    assert [path.name for path in tmp_path.rglob("*")] == ["tree", "mine"]
