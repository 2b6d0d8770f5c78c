"""What calibrate reads of vLLM: results of `vllm bench serve`, and two scrapes of /metrics."""

import json
from pathlib import Path
from typing import Any

import pytest
from example_bench import scrape_text, write_bench

from cluster_sim.calibrate import bench, bench_times, draft_counters, run_checks
from cluster_sim.calibrate.counts import Counts
from cluster_sim.calibrate.entries import names_of, read_entries
from cluster_sim.calibrate.growth import growths
from cluster_sim.errors import UserError

# ../shared/spec-decode-facts.md F1, with the token counts and the mean of TTFT that it leaves out
RESULT: dict[str, Any] = {
    **{"date": "20251130-101010", "backend": "vllm", "model_id": "m", "num_prompts": 4, "request_rate": 2.0},
    **{"burstiness": 1.0, "max_concurrency": None, "duration": 2.0, "completed": 4, "failed": 0},
    **{"total_input_tokens": 2000, "total_output_tokens": 400, "output_throughput": 200.0},
    **{"mean_ttft_ms": 20.0, "mean_tpot_ms": 9.5, "spec_decode_acceptance_rate": 60.0},
    **{"spec_decode_acceptance_length": 2.8, "spec_decode_num_drafts": 100, "spec_decode_draft_tokens": 300},
    "spec_decode_accepted_tokens": 180,
    "spec_decode_per_position_acceptance_rates": [0.8, 0.6, 0.4],
}
GROWN = {"num_drafts": 100, "num_draft_tokens": 300, "num_accepted_tokens": 180}
BEFORE = {**{name: 10 for name in GROWN}, "num_accepted_tokens_per_pos": [6, 4, 0]}
AFTER = {**{name: 10 + value for name, value in GROWN.items()}, "num_accepted_tokens_per_pos": [86, 64, 40]}


def result(tmp_path: Path, **changes: Any) -> Path:
    values = {name: value for name, value in (RESULT | changes).items() if value != "left out"}
    return write_bench(tmp_path / "run.json", [values])


def counted(file: Path) -> Counts:
    return bench.counts_of(read_entries(file)[0])


def scrapes(tmp_path: Path, before: str, after: str) -> tuple[Path, Path]:
    files = tmp_path / "before.prom", tmp_path / "after.prom"
    for file, text in zip(files, (before, after), strict=True):
        file.write_text(text, "utf-8")
    return files


def of_scrapes(*files: Path) -> Counts:
    (grown,) = growths(files)
    return draft_counters.counts_of(grown)


# ---- vllm bench serve ----


def test_a_run_that_is_given_twice_is_refused(tmp_path: Path) -> None:
    """A sweep of vLLM leaves run=0.json, and summary.json that holds it with its parameters."""
    summary = tmp_path / "summary.json"
    summary.write_text(json.dumps([RESULT | {"run_number": 0, "max_num_seqs": 64}]), "utf-8")
    runs = [*read_entries(result(tmp_path)), *read_entries(summary)]
    with pytest.raises(UserError) as caught:
        run_checks.check_once(runs)
    assert str(caught.value) == (
        f"the run of {runs[0].place} counts once, but got it again ({runs[1].place}). "
        "Name it once: summary.json holds the runs of the files beside it."
    )


def test_runs_that_differ_in_a_moment_or_a_mean_are_two(tmp_path: Path) -> None:
    other = RESULT | {"duration": 2.0001}
    run_checks.check_once(read_entries(write_bench(tmp_path / "runs.jsonl", [RESULT, other])))


@pytest.mark.parametrize(
    ("name", "simulated"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("/models/Qwen3-30B-A3B-FP8", "qwen3-30b-a3b"),
    ],
)
def test_a_model_goes_by_the_name_of_its_repository_or_its_path(
    tmp_path: Path, name: str, simulated: str
) -> None:
    runs = read_entries(result(tmp_path, model_id=name))
    assert run_checks.other_models(runs, simulated) == []
    assert run_checks.other_models(runs, "mixtral-8x7b") == [
        f'measured with model_id "{name}", calibrated as mixtral-8x7b: write model=NAME if they differ'
    ]


def test_runs_are_named_by_as_many_directories_as_tell_them_apart() -> None:
    places = ["a/K=1/summary.json, entry 1", "a/K=1/summary.json, entry 2", "a/K=3/summary.json, entry 1"]
    assert names_of(places) == {place: place.removeprefix("a/") for place in places}
    assert names_of(["runs/8.json", "runs/8.json", "runs/24.json"]) == {
        "runs/8.json": "8.json",
        "runs/24.json": "24.json",
    }


def test_the_counts_of_a_result_are_its_rates_times_its_drafts(tmp_path: Path) -> None:
    counts = counted(result(tmp_path))
    assert (counts.drafts, counts.draft_tokens, counts.accepted_at) == (100, 300, (80, 60, 40))
    assert counts.acceptance_length == pytest.approx(2.8)


@pytest.mark.parametrize("text", ["{0}", "{0}\n{0}\n", "[{0}, {0}]"])
def test_one_result_lines_of_results_and_a_list_of_them_are_read_alike(tmp_path: Path, text: str) -> None:
    file = tmp_path / "runs.json"
    file.write_text(text.replace("{0}", json.dumps(RESULT)), "utf-8")
    found = read_entries(file)
    assert len(found) == text.count("{0}")
    assert all(bench.counts_of(entry).accepted_at == (80, 60, 40) for entry in found)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        (
            {"spec_decode_acceptance_rate": 0.6},
            "spec_decode_acceptance_rate is accepted of draft tokens in percent, 60, but got 0.6 ({0}). "
            "Correct the file, or measure again.",
        ),
        (
            {"spec_decode_per_position_acceptance_rates": [80, 60, 40]},
            "spec_decode_per_position_acceptance_rates[0] must be a number from 0 to 1, but got 80 ({0}). "
            "Correct the file, or measure again.",
        ),
        (
            {"spec_decode_per_position_acceptance_rates": [0.6, 0.8, 0.4]},
            "position 1 is accepted no more often than position 0, 60 times, but got 80 ({0}). "
            "Correct the file, or measure again.",
        ),
        (
            {"spec_decode_per_position_acceptance_rates": []},
            "spec_decode_per_position_acceptance_rates must be a list of numbers, one or more, but got [] "
            "({0}). Correct the file, or measure again.",
        ),
        (
            {"spec_decode_accepted_tokens": 200},
            "the sum of spec_decode_per_position_acceptance_rates is accepted tokens per draft, 2, but got "
            "1.8 ({0}). Correct the file, or measure again.",
        ),
        (
            {"spec_decode_draft_tokens": 301},
            "100 drafts of 1 to 3 tokens, 180 of them accepted, have 180 to 300 tokens, but got 301 ({0}). "
            "Correct the file, or measure again.",
        ),
        (
            {"spec_decode_num_drafts": 10**400},
            "spec_decode_num_drafts must be a whole number from 1 to 1e+15, but got "
            f"1{'0' * 59}... ({{0}}). Correct the file, or measure again.",
        ),
        (
            {"spec_decode_num_drafts": "left out"},
            "spec_decode_num_drafts must be a whole number from 1 to 1e+15, but got nothing ({0}). "
            "Correct the file, or measure again.",
        ),
    ],
)
def test_a_result_that_contradicts_itself_is_refused(
    tmp_path: Path, changes: dict[str, Any], error: str
) -> None:
    file = result(tmp_path, **changes)
    with pytest.raises(UserError) as raised:
        counted(file)
    assert str(raised.value) == error.replace("{0}", str(file))


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        (
            {"mean_tpot_ms": 9500.0},
            "mean_ttft_ms and mean_tpot_ms are in ms, so that at most 4 requests are under way at a time, "
            "but got 1881 by Little's law ({0}). Correct the file, or measure again.",
        ),
        (
            {"mean_tpot_ms": 0.0095},
            "mean_tpot_ms must be a number from 0.05 to 1e+09, but got 0.0095 ({0}). "
            "Correct the file, or measure again.",
        ),
        (
            {"failed": 1, "completed": 3},
            "all 4 requests of a run must complete: what failed has no latency, and made room, but got "
            "3 completed ({0}). Leave the run out, or write --fit none.",
        ),
        (
            {"ramp_up_strategy": "linear"},
            'a run of one rate has one mean to compare, but got ramp_up_strategy "linear" ({0}). '
            "Measure each rate by itself, or write --fit none.",
        ),
        (
            {"request_rate": "fast"},
            'request_rate must be a number from 1e-06 to 1e+06, but got "fast" ({0}). '
            "Correct the file, or measure again.",
        ),
    ],
)
def test_latencies_in_another_unit_or_of_another_kind_of_run_are_refused(
    tmp_path: Path, changes: dict[str, Any], error: str
) -> None:
    file = result(tmp_path, **changes)
    with pytest.raises(UserError) as raised:
        bench_times.timed(read_entries(file)[0])
    assert str(raised.value) == error.replace("{0}", str(file))


def test_means_of_a_run_come_in_seconds_and_per_request(tmp_path: Path) -> None:
    run = bench_times.timed(read_entries(result(tmp_path, request_rate="inf", mean_itl_ms=26.6))[0])
    assert run.means_s == pytest.approx({"tpot": 0.0095, "itl": 0.0266, "ttft": 0.02})
    assert run.mean_tokens == {"prompt_tokens": 500.0, "output_tokens": 100.0}
    assert run.draft_length == 3
    assert isinstance(run.traffic, bench_times.Sending)
    assert (run.traffic.request_rate, run.traffic.burstiness) == (float("inf"), 1.0)


@pytest.mark.parametrize(
    ("limit", "seen", "is_limited"),
    [(None, 9, False), (2, 2, True), (2, None, True), (3, 2, False), (4, None, False)],
)
def test_a_limit_on_concurrency_counts_where_it_may_have_been_reached(
    tmp_path: Path, limit: int | None, seen: int | None, is_limited: bool
) -> None:
    file = result(tmp_path, max_concurrency=limit, max_concurrent_requests=seen, duration=4.0)
    traffic = bench_times.timed(read_entries(file)[0]).traffic
    assert isinstance(traffic, bench_times.Sending)
    assert traffic.is_limited is is_limited


# ---- two scrapes ----


def test_counts_of_scrapes_are_what_the_counters_grew_by_in_all_engines(tmp_path: Path) -> None:
    files = scrapes(tmp_path, scrape_text([BEFORE, BEFORE]), scrape_text([AFTER, AFTER]))
    counts = of_scrapes(*files)
    assert (counts.drafts, counts.draft_tokens, counts.accepted_at) == (200, 600, (160, 120, 80))


def _refused(before: str, after: str, tmp_path: Path) -> str:
    with pytest.raises(UserError) as raised:
        of_scrapes(*scrapes(tmp_path, before, after))
    return str(raised.value).replace(str(tmp_path), "DIR")


def test_a_counter_that_falls_is_another_run_of_the_server(tmp_path: Path) -> None:
    assert _refused(scrape_text([AFTER]), scrape_text([BEFORE]), tmp_path) == (
        'vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} cannot fall or start anew while a '
        "server runs: at first 110, but got 10 (DIR/after.prom). Take both scrapes from one run of one "
        "server."
    )


def test_a_counter_that_was_made_anew_is_another_run_though_it_grew(tmp_path: Path) -> None:
    after = scrape_text([AFTER]).replace("1.7643e+09", "1.7644e+09")
    assert _refused(scrape_text([BEFORE]), after, tmp_path).startswith(
        'vllm:spec_decode_num_drafts_created{engine="0",model_name="m"} cannot fall or start anew'
    )


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (
            lambda text: text[: len(text) // 2],
            'a sample must read NAME{LABEL="VALUE"} NUMBER, but got',
        ),
        (
            lambda text: text.rstrip("\n"),
            "a scrape ends with a line feed; one cut short does not, but got",
        ),
        (lambda text: text + text.splitlines()[-1] + "\n", "a sample comes once in a scrape, but got"),
        (
            lambda text: text.replace("position=", "engine="),
            "a label comes once in a sample, but got",
        ),
        (lambda text: text.replace(" 110.0", " many"), 'a sample must have a number, but got "many"'),
        (
            lambda text: text.replace(" 110.0", " 1e400"),
            'vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} must be a whole number',
        ),
        (
            lambda text: text.replace('engine="0"', 'engine="1"'),
            'both scrapes are of the same engines, here {engine="0",model_name="m"}, but got {engine="1"',
        ),
        (
            lambda text: text.replace(" 86.0", " 87.0"),
            "accepted tokens by position add up to all, 180, but got 181",
        ),
        (
            lambda _text: "process_start_time_seconds 1.7e9\n",
            "a scrape must hold samples of vllm: or sglang:, but got none (DIR/after.prom).",
        ),
    ],
)
def test_a_damaged_scrape_is_refused(tmp_path: Path, change: Any, error: str) -> None:
    assert _refused(scrape_text([BEFORE]), change(scrape_text([AFTER])), tmp_path).startswith(error)


def test_scrapes_without_one_of_the_positions_are_refused(tmp_path: Path) -> None:
    before, after = (scrape_text([each]).replace('position="1"', 'position="7"') for each in (BEFORE, AFTER))
    assert _refused(before, after, tmp_path) == (
        "vllm:spec_decode_num_accepted_tokens_per_pos_total has all positions from 0 on, but got 0, 2, 7 "
        "(DIR/after.prom). Save it again: curl -s http://SERVER/metrics > FILE."
    )
