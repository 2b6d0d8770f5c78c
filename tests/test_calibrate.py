"""`calibrate` from end to end: the known numbers of a simulated server, and what the command leaves."""

import io
import json
import re
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from example_bench import Served, bench_json, serve, serve_clients, write_bench
from exporting import exported, simulated

from cluster_sim import cli
from cluster_sim.bundle import format as bundle_format
from cluster_sim.calibrate.parts import scaled
from cluster_sim.compose import compose
from cluster_sim.paths import bundles_dir
from cluster_sim.run import simulate
from cluster_sim.summary import summarise

TRUE_RATES = [0.72, 0.5, 0.33]
TRUE_GPU, TRUE_HOST = 1.25, 1.5
SHIPPED = bundles_dir() / "llama-3.1-8b-h100-tp1"
POLICY = "published: null, policy: per_position, rates_are: marginal"
PROFILE = f"speculation.acceptance={{{POLICY}, rates: {TRUE_RATES}}}"
SYNC = "engine.async_scheduling=false"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """A server whose GPU and whose host are slower than the shipped bundle says."""
    directory = tmp_path_factory.mktemp("server") / "bundle"
    factors = {"gpu": TRUE_GPU, "host_overhead_s": TRUE_HOST}
    bundle_format.write(scaled(bundle_format.read(SHIPPED), factors, "true", "made for a test"), directory)
    return f"cluster.bundle={directory}", "workload.requests=200"


@pytest.fixture(scope="module")
def served(server: tuple[str, ...]) -> list[Served]:
    """Four rates."""
    return [
        serve([*server, PROFILE, f"workload.request_rate={rate}", f"seed={100 + rate}"])
        for rate in (2, 8, 16, 28)
    ]


@pytest.fixture(scope="module")
def runs(served: list[Served], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Their results, one a line."""
    file = tmp_path_factory.mktemp("runs") / "runs.jsonl"
    return write_bench(file, [bench_json(each) for each in served])


@dataclass(frozen=True)
class Done:
    """What the command left and printed."""

    directory: Path
    found: dict[str, Any]
    out: str
    err: str


@pytest.fixture(scope="module")
def done(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Done:
    """All of it on these runs, as it comes, but for a name."""
    directory, out, err = tmp_path_factory.mktemp("done") / "out", io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        found = calibrated([runs, "--name", "mine"], directory)
    return Done(directory, found, out.getvalue(), err.getvalue())


def calibrated(words: Sequence[object], directory: Path) -> dict[str, Any]:
    """What the command finds, as its file has it."""
    assert cli.main(["calibrate", *map(str, words), "--output", str(directory)]) == 0
    found: dict[str, Any] = json.loads((directory / "calibration.json").read_text("utf-8"))
    return found


def holds(interval: dict[str, float], true: float) -> bool:
    return interval["low"] <= true <= interval["high"]


# ---- round trips ----


def test_acceptance_and_scale_of_a_simulated_server_lie_in_their_intervals(done: Done) -> None:
    """Fixed seeds; over seeds each of these intervals would miss in 5 % of cases."""
    found = done.found
    (row,) = found["acceptance"]
    assert all(holds(one, true) for one, true in zip(row["marginals"], TRUE_RATES, strict=True))
    gpu = found["timing"]["values"]["gpu"]
    assert holds(gpu, TRUE_GPU)
    assert gpu["high"] - gpu["low"] < 0.1
    errors = [one["held_out_percent"] for one in found["timing"]["residuals"] if one["metric"] == "tpot"]
    assert np.abs(errors).max() < 8
    unfitted = [one for one in found["timing"]["residuals"] if one["metric"] != "tpot"]
    assert all(one["held_out_percent"] is None and abs(one["error_percent"]) < 8 for one in unfitted)
    assert all(one["before_percent"] < -15 for one in found["timing"]["residuals"])


@pytest.mark.slow
def test_the_host_is_told_from_the_gpu_where_it_is_not_hidden(
    server: tuple[str, ...], tmp_path: Path
) -> None:
    """Without a drafter steps are short and the host weighs more, at each rate."""
    results = [
        bench_json(
            serve([*server, SYNC, *speculation, f"workload.request_rate={rate}", f"seed={200 + rate}"])
        )
        for rate, speculation in (
            *((rate, ["speculation=none"]) for rate in (2, 14)),
            *((rate, [PROFILE]) for rate in (3, 8, 18, 28)),
        )
    ]
    file = write_bench(tmp_path / "runs.jsonl", results)
    found = calibrated([file, SYNC, "--fit", "gpu,host_overhead_s"], tmp_path / "out")
    values = found["timing"]["values"]
    assert holds(values["gpu"], TRUE_GPU)
    assert holds(values["host_overhead_s"], TRUE_HOST * 0.001207)
    assert values["host_overhead_s"]["low"] > 0.001
    assert found["notes"] == ["runs that counted no drafts are simulated without a drafter: 2"]


def test_runs_of_clients_that_wait_are_simulated_as_such(server: tuple[str, ...], tmp_path: Path) -> None:
    """--max-concurrency 1, 8 and 24 without a rate, as most measure."""
    served = [serve_clients(number, [*server, PROFILE, f"seed={number}"]) for number in (1, 8, 24)]
    file = write_bench(tmp_path / "runs.json", [bench_json(each) for each in served])
    found = calibrated([file], tmp_path / "out")
    assert found["timing"]["values"]["gpu"]["value"] == pytest.approx(TRUE_GPU, rel=0.02)
    assert holds(found["timing"]["values"]["gpu"], TRUE_GPU)


def test_runs_with_a_rate_and_a_limit_wait_at_the_client(server: tuple[str, ...], tmp_path: Path) -> None:
    """--max-concurrency 12 at 8, 20 and 40 requests/s, which all reach it."""
    limit = "workload.max_concurrency=12"
    served = [
        serve([*server, PROFILE, limit, f"workload.request_rate={rate}", f"seed={rate}"])
        for rate in (8, 20, 40)
    ]
    found = calibrated([write_bench(tmp_path / "runs.json", list(map(bench_json, served)))], tmp_path / "out")
    assert [each.summary["clients"]["in_flight"]["max"] for each in served] == [12, 12, 12]
    assert found["timing"]["values"]["gpu"]["value"] == pytest.approx(TRUE_GPU, rel=0.03)
    assert holds(found["timing"]["values"]["gpu"], TRUE_GPU)


def test_the_shipped_results_are_those_of_a_server_that_is_a_fifth_slower(tmp_path: Path) -> None:
    """As README shows it."""
    shipped = Path(__file__).parent.parent / "reports" / "examples"
    runs = sorted(shipped.glob("bench-*.json"))
    found = calibrated([*runs, "speculation.num_speculative_tokens=5"], tmp_path / "out")
    gpu = found["timing"]["values"]["gpu"]
    assert holds(gpu, 1.2)
    assert gpu["high"] - gpu["low"] < 0.1


def test_exports_of_this_tool_are_read_back(server: tuple[str, ...], tmp_path: Path) -> None:
    """Its vllm-bench JSON with every request, and its /metrics before and after; lengths that differ."""
    lengths = "workload.output_tokens={distribution: lognormal, mean: 100, cv: 1.0}"
    files = []
    for rate in (6, 20):
        directory = simulated(
            tmp_path / f"rate-{rate}", *server, PROFILE, lengths, f"workload.request_rate={rate}"
        )
        exported(directory, "vllm-bench", "--save-detailed")
        files.append(directory / "exported-vllm-bench")
    exported(directory, "prometheus")
    after = directory / "exported-prometheus"
    before = tmp_path / "before.prom"
    before.write_text(re.sub(r"(_total\{.*\}) \S+", r"\1 0.0", after.read_text("utf-8")), "utf-8")
    found = calibrated([*files, "--metrics-before", before, "--metrics-after", after], tmp_path / "out")
    drafts = json.loads(files[-1].read_text("utf-8"))["spec_decode_num_drafts"]
    assert found["acceptance"][0]["drafts"] == drafts
    assert all(
        holds(one, true) for one, true in zip(found["acceptance"][0]["marginals"], TRUE_RATES, strict=True)
    )
    (gpu,) = found["timing"]["values"].values()
    assert gpu["value"] == pytest.approx(TRUE_GPU, rel=0.01)  # the arrivals and lengths are the server's own
    assert found["notes"] == [
        "times are not fitted to scrapes: --metrics-seconds says how long the traffic between them lasted",
        "the profile is that of scrapes and responses; each run is simulated with its own counts",
    ]


def test_a_schedule_that_mixes_lengths_is_undone(server: tuple[str, ...], tmp_path: Path) -> None:
    """K is 3 up to a batch of 8, then 1: vLLM's own division says far less at positions 1 and 2."""
    schedule = "speculation.num_speculative_tokens_per_batch_size=[[1,8,3],[9,256,1]]"
    result = bench_json(serve([*server, PROFILE, schedule, "workload.request_rate=14"]))
    file = write_bench(tmp_path / "run.json", [result])
    found = calibrated([file, schedule], tmp_path / "out")
    (row,) = found["acceptance"]
    assert row["is_mixed"]
    assert all(holds(one, true) for one, true in zip(row["marginals"], TRUE_RATES, strict=True))
    assert result["spec_decode_per_position_acceptance_rates"][2] < 0.28
    assert found["timing"] is None
    assert found["notes"][0] == "times are not fitted: one number needs 2 runs, and there are 1"


def test_lengths_that_were_measured_apart_become_a_row_each(server: tuple[str, ...], tmp_path: Path) -> None:
    results = [
        bench_json(serve([*server, PROFILE, f"speculation.num_speculative_tokens={drafts}"]))
        for drafts in (1, 3)
    ]
    out = tmp_path / "out"
    calibrated([write_bench(tmp_path / "runs.json", results), "--fit", "none"], out)
    option = yaml.safe_load((out / "speculation" / "calibrated.yaml").read_text("utf-8"))
    assert option["acceptance"]["policy"] == "per_length"
    assert {length: len(rates) for length, rates in option["acceptance"]["per_length"].items()} == {
        1: 1,
        3: 3,
    }


# ---- what it leaves ----


def test_what_it_leaves_simulates_the_server(done: Done, served: list[Served]) -> None:
    out, found = done.directory, done.found
    config = compose(
        [
            *(f"hydra.searchpath=[{out}]", "speculation=mine", f"cluster.bundle={out / 'bundle'}"),
            *("workload.requests=200", "workload.request_rate=16", "seed=116"),
            *("workload.arrivals=gamma", "workload.burstiness=1.0", "workload.ends_on_time=true"),
        ]
    )
    assert config.speculation.acceptance is not None
    assert config.speculation.acceptance.rates == found["acceptance"][0]["rates"]
    summary = summarise(simulate(config))
    assert summary["tpot_s"]["mean"] == pytest.approx(served[2].summary["tpot_s"]["mean"], rel=0.03)
    assert summary["acceptance_source"].startswith("[given] calibrated on runs.jsonl (sha256 ")


def test_every_number_says_where_it_comes_from(done: Done) -> None:
    out, found = done.directory, done.found
    bundle = bundle_format.read(out / "bundle")
    gpu = found["timing"]["values"]["gpu"]
    words = "gpu {value:.4g} ({low:.4g} to {high:.4g}) by mean tpot of 4 runs".format(**gpu)
    (source,) = found["sources"]
    assert bundle.name == "mine"
    assert bundle.tables["dense"].source == (
        f"times {gpu['value']:.6g}, calibrated on runs.jsonl (sha256 {source['sha256'][:16]}, "
        f"20251130-101010): "
        f"{words}; before: {bundle_format.read(SHIPPED).tables['dense'].source}"
    )
    option = yaml.safe_load((out / "speculation" / "mine.yaml").read_text("utf-8"))
    low = found["acceptance"][0]["marginals"][0]["low"]
    assert f"95 % intervals of 3 drafts: {low:.4g} to " in option["acceptance"]["source"]


def test_the_same_files_give_the_same_bytes(runs: Path, done: Done, tmp_path: Path) -> None:
    calibrated([runs, "--name", "mine"], tmp_path)
    files = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*.*"))
    assert len(files) > 5
    assert all((tmp_path / file).read_bytes() == (done.directory / file).read_bytes() for file in files)


def test_the_terminal_shows_values_residuals_and_what_to_run(done: Done) -> None:
    for words in ("acceptance length, K=3", "if those before were", "gpu", "held out", "runs.jsonl, line 4"):
        assert words in done.out
    assert done.out.splitlines()[-1] == (
        f"to simulate with it: python -m cluster_sim 'hydra.searchpath=[{done.directory}]' speculation=mine "
        f"cluster.bundle={done.directory / 'bundle'}"
    )
    assert "cluster_sim: step 1 of the fit changed" in done.err
