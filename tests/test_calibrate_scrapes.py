"""Times from scrapes of /metrics: known numbers of a simulated server, and windows that do not tell them."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from exporting import exported, simulated, summary_of
from scraping import after, changed, series, started, with_gauges
from test_calibrate import PROFILE, SHIPPED, TRUE_GPU, TRUE_RATES, calibrated, holds
from test_calibrate_command import refused

from cluster_sim.bundle import format as bundle_format
from cluster_sim.calibrate.growth import growths
from cluster_sim.calibrate.parts import scaled
from cluster_sim.calibrate.server_times import Window, timed
from cluster_sim.calibrate.timed import Timed
from cluster_sim.errors import UserError

LENGTHS = (
    "workload.prompt_tokens={distribution: lognormal, mean: 400, cv: 0.8, max: 3000}",
    "workload.output_tokens={distribution: lognormal, mean: 120, cv: 0.7, min: 2, max: 600}",
)
RATES = (4, 12, 20, 28)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """A server whose GPU is slower than the shipped bundle says."""
    directory = tmp_path_factory.mktemp("server") / "bundle"
    bundle = scaled(bundle_format.read(SHIPPED), {"gpu": TRUE_GPU}, "true", "made for a test")
    bundle_format.write(bundle, directory)
    return f"cluster.bundle={directory}", PROFILE, *LENGTHS


@pytest.fixture(scope="module")
def served(server: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """One load after the other."""
    return [
        simulated(
            tmp_path_factory.mktemp("load"), *server, f"workload.request_rate={rate}", f"seed={300 + rate}"
        )
        for rate in RATES
    ]


@pytest.fixture(scope="module")
def pages(served: list[Path]) -> list[str]:
    """What /metrics shows of each load alone."""
    return [exported(directory, "prometheus") for directory in served]


@pytest.fixture(scope="module")
def scrapes(pages: list[str], tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Before the loads, and after each."""
    return series(pages, tmp_path_factory.mktemp("scrapes"))


@pytest.fixture(scope="module")
def seconds(served: list[Path]) -> str:
    return ",".join(f"{summary_of(directory)['simulated_s']:.3f}" for directory in served)


def options(scrapes: Sequence[Path]) -> list[object]:
    first, *others = scrapes
    return ["--metrics-before", first, *(word for file in others for word in ("--metrics-after", file))]


# ---- round trips ----


def test_scale_and_acceptance_of_a_simulated_server_lie_in_their_intervals(
    scrapes: list[Path], seconds: str, tmp_path: Path
) -> None:
    """Lengths come from the histograms' buckets, arrivals are others than the server's."""
    found = calibrated([*options(scrapes), "--metrics-seconds", seconds], tmp_path)
    (row,) = found["acceptance"]
    assert all(holds(one, true) for one, true in zip(row["marginals"], TRUE_RATES, strict=True))
    gpu = found["timing"]["values"]["gpu"]
    assert holds(gpu, TRUE_GPU)
    assert gpu["high"] - gpu["low"] < 0.12
    residuals = found["timing"]["residuals"]
    assert [one["metric"] for one in residuals[:5]] == ["tpot", "itl", "itl_per_token", "ttft", "e2el"]
    assert all(one["before_percent"] < -15 for one in residuals if one["metric"] == "tpot")
    assert all(abs(one["error_percent"]) < 6 for one in residuals if one["metric"] == "tpot")
    assert found["notes"] == [
        "a scrape does not say how requests arrive: poisson is assumed, and that lengths of prompts and "
        "outputs do not depend on each other"
    ]


def test_a_server_under_way_is_simulated_under_way(server: tuple[str, ...], tmp_path: Path) -> None:
    """A steady 20 requests/s from which 1,000 are taken: those before and after them belong to others."""
    windows = []
    for seed in (1, 2, 3):
        load = (*server, "workload.request_rate=20", f"seed={seed}")
        few, many = (
            exported(
                simulated(tmp_path / f"{seed}-{number}", *load, f"workload.requests={number}"), "prometheus"
            )
            for number in (300, 1300)
        )
        windows.append([tmp_path / f"{seed}-before.prom", tmp_path / f"{seed}-after.prom"])
        for file, page in zip(windows[-1], (few, many), strict=True):
            file.write_text(with_gauges(page, running=14), "utf-8")
    found = window(windows[0], 50.0)
    assert "itl" not in found.means_s
    assert isinstance(found.traffic, Window)
    keys = found.traffic.as_workload([], tmp_path / "scratch")
    assert keys["workload.request_rate"] == pytest.approx(20.0)
    settles_s = 3 * found.means_s["e2el"]
    assert (
        keys["workload.warmup"]
        == keys["workload.cooldown"]
        == pytest.approx(settles_s / (50 + 2 * settles_s))
    )
    words = [word for each in windows for word in options(each)]
    gpu = calibrated([*words, "--metrics-seconds", "50"], tmp_path / "out")["timing"]["values"]["gpu"]
    assert holds(gpu, TRUE_GPU)
    assert gpu["value"] == pytest.approx(TRUE_GPU, rel=0.03)


def test_scrapes_and_benchmarks_are_fitted_together(
    served: list[Path], scrapes: list[Path], seconds: str, tmp_path: Path
) -> None:
    exported(served[0], "vllm-bench", "--save-detailed")
    words = [served[0] / "exported-vllm-bench", *options(scrapes), "--metrics-seconds", seconds]
    found = calibrated(words, tmp_path)
    places = dict.fromkeys(one["place"] for one in found["timing"]["residuals"])
    assert len(places) == 5
    assert holds(found["timing"]["values"]["gpu"], TRUE_GPU)


def test_prometheus_own_times_say_how_long_it_was(scrapes: list[Path], seconds: str, tmp_path: Path) -> None:
    """As /federate writes them: ms behind each sample."""
    at_ms, files = 1_764_000_000_000, []
    for number, length in enumerate(["0", *seconds.split(",")]):
        at_ms += round(1000 * float(length))
        text = re.sub(r"(?m)^([^#].*)$", rf"\1 {at_ms}", scrapes[number].read_text("utf-8"))
        files.append(tmp_path / f"federated-{number}.prom")
        files[-1].write_text(text, "utf-8")
    told = calibrated([*options(files)], tmp_path / "told")
    given = calibrated([*options(scrapes), "--metrics-seconds", seconds], tmp_path / "given")
    assert told["timing"]["values"]["gpu"] == pytest.approx(given["timing"]["values"]["gpu"], rel=1e-3)


def test_seconds_that_would_do_nothing_are_refused(
    scrapes: list[Path], served: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rule = "--metrics-seconds is of scrapes that carry no times of their own, but got"
    exported(served[0], "vllm-bench")
    run = served[0] / "exported-vllm-bench"
    assert (
        refused([run, "--metrics-seconds", "30"], capsys)
        == f"{rule} no scrapes (command line). Leave it out."
    )
    files = []
    for number, scrape in enumerate(scrapes[:2]):
        text = re.sub(r"(?m)^([^#].*)$", rf"\1 {1000 + 30_000 * number}", scrape.read_text("utf-8"))
        files.append(tmp_path / f"timed-{number}.prom")
        files[-1].write_text(text, "utf-8")
    words = [*options(files), "--metrics-seconds", "30"]
    assert refused(words, capsys) == f"{rule} scrapes that do (command line). Leave it out."


# ---- what does not tell times ----


def test_without_the_seconds_there_is_a_profile_and_a_note(scrapes: list[Path], tmp_path: Path) -> None:
    found = calibrated(options(scrapes), tmp_path)
    assert found["timing"] is None
    assert len(found["acceptance"]) == 1
    assert found["notes"] == [
        "times are not fitted: one number needs 2 runs, and there are 0",
        "times are not fitted to scrapes: --metrics-seconds says how long the traffic between them lasted",
    ]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (
            ["--fit", "gpu"],
            "times are fitted to results of `vllm bench serve`, to scrapes and their seconds, or to "
            "responses, but got times are not fitted to scrapes: --metrics-seconds says how long the traffic "
            "between them lasted (--fit). Add some, give --metrics-seconds, or write --fit none.",
        ),
        (
            ["--metrics-seconds", "10,20"],
            "--metrics-seconds has one value, or one for each of 4 pairs of scrapes, but got 2 (command "
            "line). Correct it.",
        ),
        (
            ["--metrics-seconds", "ten"],
            "--metrics-seconds is a number of seconds above 0, or one for each pair of scrapes: 600,600, but "
            "got 'ten' (command line). Correct it.",
        ),
        (
            ["--metrics-seconds", "0.5"],
            "the time between scrapes holds more than one latency, 0.6",
        ),
        (
            ["--metrics-seconds", "30", "cluster.data_parallel_size=2"],
            "scrapes of 1 engines are of as many in the configuration, but got 2 ({0}, {1}). Set "
            "cluster.instances or cluster.data_parallel_size, or write --fit none.",
        ),
        (
            ["--metrics-seconds", "30", "workload.request_rate=3"],
            "the measured runs say workload.request_rate, but got a value of your own "
            "(workload.request_rate). Leave it out.",
        ),
        (
            ["--metrics-seconds", "30", "workload.prompt_tokens=100"],
            "workload.prompt_tokens must have the run's mean, ",
        ),
    ],
)
def test_what_the_command_line_must_say_is_asked_for(
    scrapes: list[Path], capsys: pytest.CaptureFixture[str], words: list[str], error: str
) -> None:
    line = refused([*options(scrapes), *words], capsys)
    assert line.startswith(error.replace("{0}", str(scrapes[0])).replace("{1}", str(scrapes[1])))


def window(files: Sequence[Path], length_s: float) -> Timed:
    (growth,) = growths(files)
    return timed(growth, length_s, 1, 3)


def test_a_bucket_without_a_bound_is_refused(pages: list[str], tmp_path: Path) -> None:
    files = tmp_path / "before", tmp_path / "after"
    for file, page in zip(files, (started(pages[0]), pages[0]), strict=True):
        file.write_text(page.replace('le="0.5"', 'le="half"'), "utf-8")
    with pytest.raises(
        UserError, match="a bucket of time_to_first_token_seconds has a bound le, but got 'half'"
    ):
        window(files, 30.0)


@pytest.mark.parametrize(
    ("change", "length_s", "error"),
    [
        (
            lambda page: with_gauges(page, running=40, waiting=200),
            30.0,
            "between two scrapes as many requests come as end, 300, but for 10%, but got 0 under way at the "
            "first and 240 at the second ({0}). Scrape under a steady load, below saturation, or write "
            "--fit none.",
        ),
        (
            lambda page: changed(
                page, lambda name, value: value + 30 * ("time_to_first_token_seconds_" in name)
            ),
            30.0,
            "all but 5% of 330 requests end: those whose clients hang up make room, but got 30 that did not "
            "({0}). Scrape while clients wait for their answers, or write --fit none.",
        ),
        (
            lambda page: re.sub(r"(?m)^vllm:num_requests_waiting.*\n", "", page),
            30.0,
            "vllm:num_requests_waiting says how many requests there are, up to 1,000,000, but got nothing",
        ),
        (
            lambda page: re.sub(r"(?m)^vllm:e2e_request_latency.*\n", "", page),
            30.0,
            "vllm:e2e_request_latency_seconds_bucket",
        ),
        (
            lambda page: page.replace("request_prompt_tokens_sum", "request_prompt_tokens_other"),
            30.0,
            "vllm:request_prompt_tokens_sum",
        ),
        (
            lambda page: re.sub(r'(first_token_seconds_bucket.*le="0.5",.*\}) \S+', r"\1 1e6", page),
            30.0,
            'the buckets of time_to_first_token_seconds grow up to le="+Inf", which is its count, 300, but '
            "got 0, 0, 0",
        ),
    ],
)
def test_a_window_that_does_not_tell_times_is_refused(
    pages: list[str], tmp_path: Path, change: Callable[[str], str], length_s: float, error: str
) -> None:
    files = tmp_path / "before", tmp_path / "after"
    for file, page in zip(files, (started(pages[0]), change(pages[0])), strict=True):
        file.write_text(page, "utf-8")
    with pytest.raises(UserError) as raised:
        window(files, length_s)
    assert str(raised.value).startswith(error.replace("{0}", ", ".join(map(str, files))))


def test_a_window_in_which_nothing_came_is_refused(pages: list[str], tmp_path: Path) -> None:
    """One that ended of two under way, and none since."""
    one = changed(pages[0], lambda name, value: 1.0 if re.search(r"_count|_bucket", name) else value)
    files = tmp_path / "before", tmp_path / "after"
    for file, page in zip(files, (with_gauges(started(one), running=2), one), strict=True):
        file.write_text(page, "utf-8")
    with pytest.raises(UserError, match=r"requests must come between two scrapes, but got -1 \("):
        window(files, 30.0)


def test_seconds_in_another_unit_contradict_what_is_under_way(pages: list[str], tmp_path: Path) -> None:
    """Little's law; where nothing is under way at a scrape there is nothing to contradict."""
    texts = [with_gauges(page, running=20) for page in (pages[0], after(pages[0], pages[3]))]
    files = tmp_path / "before", tmp_path / "after"
    for file, text in zip(files, texts, strict=True):
        file.write_text(text, "utf-8")
    assert window(files, 10.0).requests == 300
    with pytest.raises(
        UserError, match=r"at 3e\+04 requests/s of 0\.\d+ s each there are \d+ under way, but"
    ):
        window(files, 0.01)


def test_a_share_of_the_prefix_cache_that_is_not_simulated_is_refused(
    server: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prefix = ("workload.shared_prefix.tokens=512", "workload.shared_prefix.share=0.8")
    fixed = ("workload.prompt_tokens=100", "workload.output_tokens=60")
    runs = [
        simulated(
            tmp_path / f"{rate}", *server, *fixed, *prefix, f"workload.request_rate={rate}", f"seed={rate}"
        )
        for rate in (10, 20)
    ]
    files = series([exported(run, "prometheus") for run in runs], tmp_path)
    length = ",".join(str(summary_of(run)["simulated_s"]) for run in runs)
    words = [*options(files), "--metrics-seconds", length]
    assert re.match(
        r"the prefix cache must hold 78% of the prompts, as measured, but got 0% in the simulation \(.*\)\. "
        r"Say what prompts share \(workload\.shared_prefix, workload\.turns\), or measure without it\.",
        refused(words, capsys),
    )
    found: dict[str, Any] = calibrated([*words, *prefix, *fixed], tmp_path / "out")
    assert found["timing"]["values"]["gpu"]["value"] == pytest.approx(TRUE_GPU, rel=0.05)


def test_the_shipped_scrapes_are_those_of_a_server_that_is_a_fifth_slower(tmp_path: Path) -> None:
    """As README shows it."""
    shipped = Path(__file__).parent.parent / "reports" / "examples"
    words: list[object] = []
    for rate in ("08", "24", "48"):
        words += options([shipped / "metrics-start.prom", shipped / f"metrics-{rate}.prom"])
    found = calibrated(
        [*words, "--metrics-seconds", "22,6.9,5", "speculation.num_speculative_tokens=5"], tmp_path
    )
    assert holds(found["timing"]["values"]["gpu"], 1.2)
