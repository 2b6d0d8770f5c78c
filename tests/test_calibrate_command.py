"""`calibrate` on the command line: what it refuses, in one line and with exit code 2, and warns of."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from example_bench import Served, bench_json, serve, write_bench

from cluster_sim import cli
from cluster_sim.calibrate import bench_times, run_checks
from cluster_sim.calibrate.entries import read_entries


@pytest.fixture(scope="module")
def served() -> list[Served]:
    """Four rates, as the shipped bundle serves them."""
    return [serve(["workload.requests=60", f"workload.request_rate={rate}"]) for rate in (4, 8, 16, 28)]


@pytest.fixture(scope="module")
def runs(served: list[Served], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Their results, one a line."""
    file = tmp_path_factory.mktemp("runs") / "runs.jsonl"
    return write_bench(file, [bench_json(each) for each in served])


def refused(words: Sequence[object], capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.main(["calibrate", *map(str, words)]) == 2
    *_, line = capsys.readouterr().err.splitlines()
    return line.removeprefix("cluster_sim: error: ")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (
            ["speculation.num_speculative_tokens=5"],
            "speculation.num_speculative_tokens must be 3, as the counts have 3 positions, but got 5 "
            "({0}, line 1). Set speculation.num_speculative_tokens=3, or give the files of other drafts.",
        ),
        (
            ["speculation=none"],
            "drafts were counted, so that there is a drafter, but got speculation=none ({0}, line 1). "
            "Choose it: speculation=eagle3.",
        ),
        (
            [
                "speculation.acceptance.published=null",
                "speculation.acceptance.policy=decay",
                "speculation.acceptance.rate=0.5",
            ],
            "acceptance is what calibrate finds, but got a value of your own "
            "(speculation.acceptance.published). Leave it out.",
        ),
        (
            ["workload.request_rate=3"],
            "the measured runs say workload.request_rate, but got a value of your own "
            "(workload.request_rate). Leave it out.",
        ),
        (
            ["workload.prompt_tokens=300"],
            "workload.prompt_tokens must have the run's mean, 512.0, but got 300.0 ({0}, line 1). "
            "Correct workload.prompt_tokens, or leave it out.",
        ),
        (
            ["--fit", "gpu,dense"],
            "gpu is all of the bundle's tables together, but got gpu and dense (--fit). "
            "Leave gpu or dense out.",
        ),
        (
            ["--fit", "kernels"],
            "the numbers to fit are among host_overhead_s, gpu, dense, attention, drafter, each once, but "
            "got kernels (--fit). Correct the list.",
        ),
        (
            ["--fit", "host_overhead_s", "engine.host_overhead_s=0.001"],
            "host_overhead_s is given or fitted, but got engine.host_overhead_s=0.001 (--fit). "
            "Leave one of them out.",
        ),
        (
            ["--fit", "drafter", "speculation.draft_cost=zero"],
            "bundle llama-3.1-8b-h100-tp1 must hold the drafter's times, to scale them, but got draft_cost "
            "zero of method eagle3 (--fit). Leave drafter out.",
        ),
        (
            ["--fit", "dense,attention,drafter,host_overhead_s"],
            "4 fitted numbers (dense, attention, drafter, host_overhead_s) need 5 runs or more, but got 4 "
            "(--fit). Fit fewer numbers with --fit, or measure at more rates.",
        ),
        (
            ["--fit-to", "throughput"],
            "means to fit to are among tpot, itl, itl_per_token, ttft, e2el, each once, but got throughput "
            "(--fit-to). Correct the list.",
        ),
        (
            ["--fit-to", "e2el"],
            "a fit to e2el needs its mean, but got means of tpot, itl, ttft ({0}, line 1). "
            "Fit to a mean that all of them have (--fit-to).",
        ),
        (
            ["--metrics-before", "scrape"],
            "--metrics-before and --metrics-after go together: counters grow from one to the other, but got "
            "--metrics-before alone (command line). Give both.",
        ),
        (
            ["--name", "My Server"],
            "a name has small letters, digits, '.', '_' and '-', and starts with a letter or a digit, but "
            "got 'My Server' (--name). Correct it.",
        ),
        (
            ["+sweep=spec_grid"],
            "one server is calibrated, but got a sweep or a study (calibrate). Leave it out.",
        ),
    ],
)
def test_what_does_not_agree_is_refused_in_one_line(
    runs: Path, capsys: pytest.CaptureFixture[str], words: list[str], error: str
) -> None:
    assert refused([runs, *words], capsys) == error.replace("{0}", str(runs))


def test_host_time_that_asynchronous_scheduling_hides_is_not_fitted(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert re.fullmatch(
        r"runs must tell host_overhead_s to 50% where each mean is 1% off, but got \d{3,}% \(--fit\)\. "
        r"Leave host_overhead_s out of --fit, or measure at other rates and draft lengths\.",
        refused([runs, "--fit", "host_overhead_s"], capsys),
    )


def test_without_counts_there_is_no_profile(
    served: list[Served], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = {key: value for key, value in bench_json(served[0]).items() if "spec_decode" not in key}
    file = write_bench(tmp_path / "run.json", [result])
    assert refused([file], capsys) == (
        "a profile needs counts of drafts: spec_decode_* of vLLM's result, two scrapes, or meta_info, but "
        "got none in any file (calibrate). Add such a file, or write speculation=none to fit the target "
        "alone."
    )
    assert refused([], capsys) == (
        "calibrate needs measurements, but got none (command line). "
        "Name FILEs, or two scrapes with --metrics-before A .."
    )


@pytest.mark.parametrize(("option", "got"), [((), "one run"), (("--fit", "none"), "--fit none")])
def test_a_file_that_tells_nothing_is_refused(
    option: tuple[str, ...],
    got: str,
    served: list[Served],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = {key: value for key, value in bench_json(served[0]).items() if "spec_decode" not in key}
    file = write_bench(tmp_path / "run.json", [result])
    assert refused([file, "speculation=none", *option, "--output", tmp_path / "out"], capsys) == (
        "calibrate finds a profile in counts of drafts, or times in 2 runs or more, but got no drafts, and "
        f"{got} (calibrate). Add runs at other rates, or with drafts."
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        (
            {"completed": 0, "failed": 60},
            "all 60 requests of a run must complete: what failed has no latency, and made room, but got "
            "0 completed ({0}, line 1). Leave the run out, or write --fit none.",
        ),
        (
            {"num_prompts": None},  # a benchmark of conversations counts these
            "times are fitted to runs of num_prompts requests, but got one that does not say them "
            "({0}, line 1). Leave it out, or write --fit none.",
        ),
    ],
)
def test_runs_that_cannot_be_sent_again_are_refused(
    changes: dict[str, object],
    error: str,
    served: list[Served],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    results = [bench_json(each) for each in served]
    file = write_bench(tmp_path / "runs.json", [results[0] | changes, *results[1:]])
    assert refused([file], capsys) == error.format(file)


def test_drafts_that_nobody_counted_show_in_chunks_of_several_tokens(
    served: list[Served], tmp_path: Path
) -> None:
    """As behind a router, whose /metrics vLLM's benchmark reads instead of the server's."""
    drafted = [bench_json(each) for each in served]
    hidden = [{key: value for key, value in each.items() if "spec_decode" not in key} for each in drafted]
    alone = hidden[0] | {"mean_itl_ms": 1.1 * hidden[0]["mean_tpot_ms"]}
    file = write_bench(tmp_path / "runs.jsonl", [*drafted, *hidden, alone])
    runs = [bench_times.timed(entry) for entry in read_entries(file)]
    ratio = max(each["mean_itl_ms"] / each["mean_tpot_ms"] for each in hidden)
    (note,) = run_checks.of_several_tokens(runs)
    assert note == (
        f"mean ITL is up to {ratio:.1f} times mean TPOT in {len(hidden)} of {len(hidden) + 1} runs without "
        "drafts: chunks hold several tokens, so the server drafts and its /metrics was not read, or it "
        "streams at an interval"
    )
    assert run_checks.of_several_tokens([runs[0], runs[-1]]) == []


def test_files_of_one_name_are_told_apart_by_their_directories(
    served: list[Served], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `vllm bench sweep` writes them."""
    for rate, each in zip((4, 8), served, strict=False):
        (tmp_path / f"rate={rate}").mkdir()
        write_bench(tmp_path / f"rate={rate}" / "run=0.json", [bench_json(each)])
    files = [str(file) for file in sorted(tmp_path.rglob("run=0.json"))]
    assert cli.main(["calibrate", *files, "--fit", "none", "--output", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr().out
    assert [f" rate={rate}/run=0.json " in shown for rate in (4, 8)] == [True, True]
