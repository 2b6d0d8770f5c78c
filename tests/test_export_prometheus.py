"""Exports as vLLM's /metrics: a strict reader of the text format, its invariants, and the stored requests."""

import math
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from example_run import example_run, example_tally
from exporting import exported, requests_of, simulated, summary_of
from hypothesis import given
from hypothesis import strategies as st

from cluster_sim.engine.metrics import NUM_GAP_BINS, gap_bin
from cluster_sim.export.exposition import family, histogram_family, observed
from cluster_sim.export.request_metrics import REQUEST_BUCKETS_S, TTFT_BUCKETS_S, token_buckets
from cluster_sim.server_counts import ITL_BUCKETS_S, at_most, server_counts

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"'
SAMPLE = re.compile(rf"({NAME})\{{((?:{LABEL},)*{LABEL})\}} (\S+)")
COUNTERS = {
    *("prefix_cache_queries", "prefix_cache_hits", "num_preemptions", "prompt_tokens", "generation_tokens"),
    *("prompt_tokens_cached", "prompt_tokens_by_source"),
    *("request_success", "spec_decode_num_drafts", "spec_decode_num_draft_tokens"),
    *("spec_decode_num_accepted_tokens", "spec_decode_num_accepted_tokens_per_pos"),
}
TOKENS = {
    *("request_prompt_tokens", "request_generation_tokens", "request_params_max_tokens"),
    *("request_prefill_kv_computed_tokens", "request_max_num_generation_tokens", "request_num_preemptions"),
}
SECONDS = {
    *("time_to_first_token", "inter_token_latency", "request_time_per_output_token", "e2e_request_latency"),
    *("request_queue_time", "request_inference_time", "request_prefill_time", "request_decode_time"),
}
REASONS = {"stop", "length", "abort", "error", "repetition"}  # vllm/v1/engine: FINISH_REASON_STRINGS
MAY_BE_ZERO = ("queue_time_seconds", "num_preemptions")
Series = dict[tuple[tuple[str, str], ...], float]  # labels -> value


def parsed(text: str) -> tuple[dict[str, str], dict[str, Series]]:
    """Family -> type, and name of samples -> its series; asserts what the format asks of every line.

    A family has one HELP, one TYPE after it, and then all of its samples, none twice.
    """
    assert text.endswith("\n")
    types: dict[str, str] = {}
    series: dict[str, Series] = defaultdict(dict)
    helped = current = ""
    for line in text.splitlines():
        if line.startswith("# HELP "):
            helped = line.split(" ")[2]
            assert helped not in types
        elif line.startswith("# TYPE "):
            _, _, current, kind = line.split(" ")
            assert current == helped
            assert kind in {"counter", "gauge", "histogram"}
            types[current] = kind
        else:
            sample = SAMPLE.fullmatch(line)
            assert sample is not None, line
            name, labels = sample[1], tuple(re.findall(LABEL, sample[2]))
            endings = ("_bucket", "_count", "_sum") if types[current] == "histogram" else ("",)
            assert name in {current + ending for ending in endings}
            assert len(dict(labels)) == len(labels)
            assert labels not in series[name]
            series[name][labels] = float(sample[sample.re.groups])
    return types, series


def total(series: Series, **labels: str) -> float:
    """The sum over all series that have `labels`."""
    return sum(value for keys, value in series.items() if labels.items() <= dict(keys).items())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three instances, shared prompts, requests of one token, some that are given up."""
    return simulated(
        tmp_path_factory.mktemp("run"),
        *("cluster.instances=3", "workload.timeout_s=1.5", "workload.shared_prefix.tokens=256"),
        "workload.output_tokens={distribution: lognormal, mean: 60, cv: 1.5, min: 1, max: 900}",
    )


@pytest.fixture(scope="module")
def found(run: Path) -> tuple[dict[str, str], dict[str, Series]]:
    return parsed(exported(run, "prometheus"))


@pytest.fixture(scope="module")
def rows(run: Path) -> list[dict[str, Any]]:
    return requests_of(run)


def test_prometheus_own_client_reads_the_same(
    run: Path, found: tuple[dict[str, str], dict[str, Series]]
) -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    families = list(parser.text_string_to_metric_families(exported(run, "prometheus")))
    kinds = {f"{one.name}_total" if one.type == "counter" else one.name: one.type for one in families}
    series: dict[str, Series] = defaultdict(dict)
    for sample in (sample for one in families for sample in one.samples):
        series[sample.name][tuple(sample.labels.items())] = sample.value
    assert (kinds, series) == found


def test_families_are_vllms_and_each_has_every_engine(
    found: tuple[dict[str, str], dict[str, Series]],
) -> None:
    types, series = found
    gauges = {"num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"}
    assert {name for name, kind in types.items() if kind == "gauge"} == {f"vllm:{name}" for name in gauges}
    assert {name for name, kind in types.items() if kind == "counter"} == {
        f"vllm:{name}_total" for name in COUNTERS
    }
    assert {name for name, kind in types.items() if kind == "histogram"} == {
        *(f"vllm:{name}" for name in TOKENS),
        *(f"vllm:{name}_seconds" for name in SECONDS),
    }
    for values in series.values():
        assert {dict(labels)["engine"] for labels in values} == {"0", "1", "2"}
        assert {dict(labels)["model_name"] for labels in values} == {"llama-3.1-8b"}


def test_buckets_grow_up_to_the_count(found: tuple[dict[str, str], dict[str, Series]]) -> None:
    types, series = found
    for name in (name for name, kind in types.items() if kind == "histogram"):
        for engine in ("0", "1", "2"):
            buckets = [
                (float(dict(labels)["le"]), value)
                for labels, value in series[f"{name}_bucket"].items()
                if dict(labels)["engine"] == engine
            ]
            bounds, counts = zip(*buckets, strict=True)
            assert list(bounds) == sorted(set(bounds))
            assert bounds[-1] == math.inf
            assert list(counts) == sorted(counts)
            count = total(series[f"{name}_count"], engine=engine)
            assert counts[-1] == count > 0
            assert total(series[f"{name}_sum"], engine=engine) > 0 or name.endswith(MAY_BE_ZERO)


def test_buckets_are_vllms() -> None:
    assert (len(TTFT_BUCKETS_S), len(ITL_BUCKETS_S), len(REQUEST_BUCKETS_S)) == (22, 19, 21)
    assert (TTFT_BUCKETS_S[0], TTFT_BUCKETS_S[8], TTFT_BUCKETS_S[-1]) == (0.001, 0.25, 2560.0)
    assert (ITL_BUCKETS_S[0], ITL_BUCKETS_S[-1]) == (0.01, 80.0)
    assert (REQUEST_BUCKETS_S[0], REQUEST_BUCKETS_S[-1]) == (0.3, 7680.0)
    assert token_buckets(100) == [1, 2, 5, 10, 20, 50, 100]
    assert token_buckets(131072)[-2:] == [50_000, 100_000]


def test_counters_are_sums_over_the_requests_of_each_engine(
    found: tuple[dict[str, str], dict[str, Series]], rows: list[dict[str, Any]]
) -> None:
    for engine in range(3):
        own = [row for row in rows if row["instance"] == engine]
        expected = {
            "prefix_cache_queries": sum(row["prompt_tokens"] for row in own),
            "prefix_cache_hits": sum(row["cached_tokens"] for row in own),
            "num_preemptions": sum(row["preemptions"] for row in own),
            "prompt_tokens": sum(row["prompt_tokens"] for row in own if row["chunks"]),
            "prompt_tokens_cached": sum(row["cached_tokens"] for row in own if row["chunks"]),
            "prompt_tokens_by_source": sum(row["prompt_tokens"] for row in own if row["chunks"]),
            "generation_tokens": sum(row["emitted_tokens"] for row in own),
            "spec_decode_num_draft_tokens": sum(row["drafted_tokens"] for row in own),
            "spec_decode_num_accepted_tokens": sum(row["accepted_tokens"] for row in own),
        }
        for name, value in expected.items():
            assert total(found[1][f"vllm:{name}_total"], engine=str(engine)) == value
    assert total(found[1]["vllm:prefix_cache_hits_total"]) > 0
    by_source = found[1]["vllm:prompt_tokens_by_source_total"]
    assert (
        total(by_source, source="local_cache_hit") == total(found[1]["vllm:prompt_tokens_cached_total"]) > 0
    )
    assert total(by_source, source="external_kv_transfer") == 0


def test_a_request_that_is_given_up_in_the_queue_has_not_queried_the_cache(tmp_path: Path) -> None:
    """A query is counted at admission (vllm/v1/core/sched/scheduler.py)."""
    run = simulated(tmp_path, "engine.max_num_seqs=4", "workload.timeout_s=1.0")
    rows, series = requests_of(run), parsed(exported(run, "prometheus"))[1]
    admitted = [row for row in rows if row["queue_s"] is not None]
    assert len(admitted) < len(rows)
    queried = total(series["vllm:prefix_cache_queries_total"])
    assert queried == sum(row["prompt_tokens"] for row in admitted) > 0


def test_counts_of_drafts_add_up_to_the_runs(
    found: tuple[dict[str, str], dict[str, Series]], run: Path
) -> None:
    series, counters = found[1], summary_of(run)["vllm_counters"]
    for name in ("num_drafts", "num_draft_tokens", "num_accepted_tokens"):
        assert total(series[f"vllm:spec_decode_{name}_total"]) == counters[name]
    by_position = series["vllm:spec_decode_num_accepted_tokens_per_pos_total"]
    for position, count in enumerate(counters["num_accepted_tokens_per_pos"]):
        assert total(by_position, position=str(position)) == count > 0


def test_finished_requests_have_their_reason_and_those_that_a_client_gave_up_none(
    found: tuple[dict[str, str], dict[str, Series]], rows: list[dict[str, Any]]
) -> None:
    finished = found[1]["vllm:request_success_total"]
    completed = sum(row["outcome"] == "completed" for row in rows)
    assert any(row["outcome"] == "timed_out" and row["instance"] is not None for row in rows)
    assert total(finished, finished_reason="length") == completed > 0
    assert {dict(labels)["finished_reason"] for labels in finished} == REASONS
    assert total(finished) == completed


def test_an_answer_that_ends_with_a_stop_token_has_stopped(tmp_path: Path) -> None:
    _, series = parsed(exported(simulated(tmp_path, "workload.ignore_eos=false"), "prometheus"))
    assert total(series["vllm:request_success_total"], finished_reason="stop") == 300


def test_histograms_hold_the_times_of_the_requests_of_each_engine(
    found: tuple[dict[str, str], dict[str, Series]], rows: list[dict[str, Any]]
) -> None:
    for engine in range(3):
        own = [row for row in rows if row["instance"] == engine]
        done = [row for row in own if row["outcome"] == "completed"]
        times = {
            "time_to_first_token": [row["ttft_s"] for row in own if row["chunks"]],
            "request_time_per_output_token": [row["tpot_s"] or 0.0 for row in done],
            "e2e_request_latency": [row["e2el_s"] for row in done],
            "request_queue_time": [row["queue_s"] - row["pickup_s"] for row in done],
            "request_prefill_time": [row["ttft_s"] - row["queue_s"] for row in done],
            "request_decode_time": [row["e2el_s"] - row["ttft_s"] for row in done],
            "request_inference_time": [row["e2el_s"] - row["queue_s"] for row in done],
        }
        tokens = {
            "request_prompt_tokens": [row["prompt_tokens"] for row in done],
            "request_generation_tokens": [row["emitted_tokens"] for row in done],
            "request_max_num_generation_tokens": [row["emitted_tokens"] for row in done],
            "request_num_preemptions": [row["preemptions"] for row in done],
            "request_params_max_tokens": [row["max_tokens"] for row in done],
            "request_prefill_kv_computed_tokens": [
                row["prompt_tokens"] - row["cached_tokens"] for row in done
            ],
        }
        for name, values in {**{f"{key}_seconds": each for key, each in times.items()}, **tokens}.items():
            assert_holds(found[1], f"vllm:{name}", str(engine), values)


def assert_holds(series: dict[str, Series], name: str, engine: str, values: list[float]) -> None:
    assert total(series[f"{name}_count"], engine=engine) == len(values)
    assert total(series[f"{name}_sum"], engine=engine) == pytest.approx(sum(values), rel=1e-9, abs=1e-9)
    for labels, count in series[f"{name}_bucket"].items():
        if dict(labels)["engine"] == engine:
            assert count == sum(value <= float(dict(labels)["le"]) for value in values)


def test_gaps_are_those_between_the_chunks_of_each_engine(
    found: tuple[dict[str, str], dict[str, Series]], rows: list[dict[str, Any]]
) -> None:
    name = "vllm:inter_token_latency_seconds"
    for engine in range(3):
        own = [row for row in rows if row["instance"] == engine and row["chunks"]]
        assert total(found[1][f"{name}_count"], engine=str(engine)) == sum(row["chunks"] - 1 for row in own)
        gaps_s = sum(row["e2el_s"] - row["ttft_s"] for row in own)
        assert total(found[1][f"{name}_sum"], engine=str(engine)) == pytest.approx(gaps_s, rel=1e-9)


@given(st.lists(st.floats(1e-3, 100.0), max_size=50))
def test_gaps_that_are_not_within_half_a_percent_of_a_bound_are_counted_right(gaps_s: list[float]) -> None:
    bins = np.bincount([gap_bin(gap) for gap in gaps_s], minlength=NUM_GAP_BINS)
    for bound, count in zip(ITL_BUCKETS_S, at_most(bins), strict=True):
        assert sum(gap <= bound / 1.005 for gap in gaps_s) <= count
        assert count <= sum(gap <= bound * 1.005 for gap in gaps_s)


def test_counts_of_engines_are_of_their_own_rows() -> None:
    bins, verified = np.zeros((2, 2, NUM_GAP_BINS), np.int64), np.zeros((2, 1, 3, 3), np.int64)
    bins[1, 0, gap_bin(0.02)], bins[1, 1, gap_bin(0.29)], verified[1, 0, 2, 1] = 4, 3, 5
    tally = example_tally(gap_bins=bins, verified=verified)
    totals = np.zeros(2, tally.totals.dtype)
    totals["gap_sum_s"] = 0.0, 0.98
    idle, busy = server_counts(example_run(tally=tally._replace(totals=totals)))
    assert (idle["engine"], idle["itl_count"], idle["num_drafts"]) == (0, 0, 0)
    assert idle["itl_at_most"] == [0] * 19
    assert (busy["engine"], busy["itl_count"], busy["itl_sum_s"]) == (1, 7, 0.98)
    assert busy["itl_at_most"] == [0, 4, 4, 4, 4, 4, 4, *[7] * 12]
    assert (busy["num_drafts"], busy["num_draft_tokens"], busy["num_accepted_tokens_per_pos"]) == (
        5,
        10,
        [5, 0],
    )


def test_without_speculation_there_are_no_draft_counters(tmp_path: Path) -> None:
    types, _ = parsed(exported(simulated(tmp_path, "speculation=none"), "prometheus"))
    assert not [name for name in types if "spec_decode" in name]


def test_without_prefix_caching_nothing_is_looked_up(tmp_path: Path) -> None:
    _, series = parsed(exported(simulated(tmp_path, "engine.enable_prefix_caching=false"), "prometheus"))
    assert total(series["vllm:prefix_cache_queries_total"]) == 0


@given(st.lists(st.floats(0, 5000, allow_nan=False)))
def test_an_observation_is_in_every_bucket_from_its_own_on(values: list[float]) -> None:
    found = observed(np.array(values), TTFT_BUCKETS_S)
    assert found.at_most == [sum(value <= bound for value in values) for bound in TTFT_BUCKETS_S]
    assert found.observations == len(values)


def test_labels_are_escaped() -> None:
    lines = family("vllm:x_total", "counter", "Words.", [({"model_name": 'a"b\\c\nd'}, 1.0)])
    assert lines[-1] == 'vllm:x_total{model_name="a\\"b\\\\c\\nd"} 1.0'
    assert parsed("\n".join(lines) + "\n")[0] == {"vllm:x_total": "counter"}
    one = histogram_family("vllm:y", "Words.", [({"engine": "0"}, observed(np.array([0.5, 3.0]), (1.0,)))])
    assert one[2:] == [
        'vllm:y_bucket{engine="0",le="1.0"} 1.0',
        'vllm:y_bucket{engine="0",le="+Inf"} 2.0',
        'vllm:y_count{engine="0"} 2.0',
        'vllm:y_sum{engine="0"} 3.5',
    ]
