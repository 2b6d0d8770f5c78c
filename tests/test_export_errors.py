"""What `export` refuses, by the whole text of its line, and results that are damaged in every way."""

import json
import random
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from exporting import exported, simulated
from sweeping import swept

from cluster_sim import cli
from cluster_sim.export.command import FORMATS
from cluster_sim.manifest import identity_of

NAME_ONE = "Name the output.dir of a simulation or a sweep."


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated(tmp_path_factory.mktemp("run"), "workload.requests=25")


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("sweep")
    axes = "sweep.axes={workload.request_rate:[4]}"
    swept(
        directory, *("+sweep=spec_grid", "output.page=false", "workload.requests=20", "sweep.seeds=[0]", axes)
    )
    return directory


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """The line on stderr of a command that fails, without the name of the program."""
    capsys.readouterr()
    assert cli.main(["export", *map(str, words)]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    return err.removeprefix("cluster_sim: error: ").rstrip("\n")


def test_the_command_line_must_name_a_directory_and_a_format(capsys: pytest.CaptureFixture[str]) -> None:
    known = "vllm-bench, csv, jsonl, prometheus, timed-trace"
    assert refused(capsys) == f"export needs a DIR, but got none (command line). {NAME_ONE}"
    for words, got in ((["."], "none"), ([".", "--format", "xml"], "'xml'")):
        assert refused(capsys, *words) == (
            f"--format is one of {known}, but got {got} (command line). Choose one."
        )
    assert refused(capsys, ".", "--format", "csv", "--save-detailed") == (
        "--save-detailed goes with --format vllm-bench, but got --format csv (command line). Leave it out."
    )
    assert refused(capsys, ".", "--format", "csv", "--trial", "x") == (
        "options must be those of --help, but got argument --trial: invalid int value: 'x' (command line). "
        "See python -m cluster_sim --help."
    )


@pytest.mark.parametrize("format", FORMATS)
def test_a_directory_without_results_is_refused(
    format: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rule = "an export is made from a directory of results"
    for directory, got in ((tmp_path, "no manifest"), (tmp_path / "none", "no such directory")):
        assert refused(capsys, directory, "--format", format) == (
            f"{rule}, but got {got} ({directory}). {NAME_ONE}"
        )


@pytest.mark.parametrize("format", [format for format in FORMATS if format != "vllm-bench"])
def test_a_sweep_has_no_requests_to_export(
    format: str, sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused(capsys, sweep, "--format", format) == (
        f"--format {format} needs the requests of one simulation, but got a sweep, which keeps none "
        f"({sweep}). Simulate one of its arms by itself, or write --format vllm-bench."
    )


def test_options_without_effect_and_trials_that_are_not_there_are_refused(
    run: Path, sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for format in ("vllm-bench", "csv"):
        assert refused(capsys, run, "--format", format, "--trial", 0) == (
            f"--trial chooses one of a sweep's trials, but got one simulation ({run}). Leave --trial out."
        )
    assert refused(capsys, sweep, "--format", "vllm-bench", "--trial", 5) == (
        f"--trial is one of the 5 trials that have ended, 0 to 4, but got 5 ({sweep}). "
        "Their arms and points are in trials.parquet."
    )
    for options in ([], ["--trial", 0]):
        assert refused(capsys, sweep, "--format", "vllm-bench", "--save-detailed", *options) == (
            "--save-detailed needs the requests of one simulation, but got a sweep, which keeps none "
            f"({sweep}). Simulate one of its arms by itself, or write --format vllm-bench."
        )


def test_a_study_is_exported_by_its_best_arm(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = altered(run, tmp_path)
    manifest = directory / "manifest.yaml"
    about = yaml.safe_load(manifest.read_text())
    about["config"]["study"] = {"name": "draft_schedule"}
    about["identity"] = identity_of(about["config"], about["seeds"], about["digests"])
    manifest.write_text(yaml.safe_dump(about))
    assert refused(capsys, directory, "--format", "csv") == (
        f"an export is made from a simulation or a sweep, but got a study ({directory}). "
        f"Simulate its best arm: python -m cluster_sim --config {directory}/best.yaml."
    )


def altered(run: Path, tmp_path: Path) -> Path:
    """A copy of the results of `run`, to be changed."""
    return Path(shutil.copytree(run, tmp_path / "copy"))


@pytest.mark.parametrize("format", FORMATS)
def test_requests_that_are_missing_are_missed(
    format: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = altered(run, tmp_path)
    (directory / "requests" / "trial-00000.parquet").unlink()
    assert refused(capsys, directory, "--format", format) == (
        "this export needs the requests of a run, but got no requests/trial-00000.parquet "
        f"({directory}). Run it again."
    )


def test_results_of_an_older_version_say_what_they_lack(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = altered(run, tmp_path)
    requests, trials = directory / "requests" / "trial-00000.parquet", directory / "trials.parquet"
    pq.write_table(pq.read_table(requests).drop_columns(["pickup_s"]), requests)
    again = "Run it again with this version."
    assert refused(capsys, directory, "--format", "prometheus") == (
        f"this export needs the requests of a run, but got no column pickup_s ({requests}). {again}"
    )
    pq.write_table(pq.read_table(trials).drop_columns(["bench_serve.itl_std_s"]), trials)
    assert refused(capsys, directory, "--format", "vllm-bench") == (
        "an export needs bench_serve.itl_std_s of trials.parquet, but got a result without "
        f"({directory}). {again}"
    )
    summary = json.loads((directory / "summary.json").read_text())
    del summary["engines"]
    (directory / "summary.json").write_text(json.dumps(summary))
    assert refused(capsys, directory, "--format", "prometheus") == (
        f"this export needs engines of summary.json, but got a result without ({directory}). {again}"
    )
    manifest = directory / "manifest.yaml"
    manifest.write_text(manifest.read_text().replace("request_rate: 60", "request_rate: 61"))
    assert refused(capsys, directory, "--format", "csv") == (
        f"an export needs the manifest of this version, but got another ({directory}). {again}"
    )


def test_an_output_that_cannot_be_written_leaves_nothing(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    line = refused(capsys, run, "--format", "csv", "--output", tmp_path / "file" / "requests.csv")
    assert line.startswith("results must be written, but got ")
    assert line.endswith("or choose another place with --output=PATH.")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_files_lie_in_the_directory_of_the_results_unless_asked_for_elsewhere(
    run: Path, sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("vllm-bench.json", "requests.csv", "requests.jsonl", "metrics.prom", "timed-trace.jsonl")
    directory = altered(run, tmp_path)
    for format, name in zip(FORMATS, names, strict=True):
        capsys.readouterr()
        assert cli.main(["export", str(directory), "--format", format]) == 0
        assert capsys.readouterr().out == f"{directory / name}\n"
        assert (directory / name).read_text() == exported(run, format)
    for options, name in (([], "vllm-bench"), (["--trial", "2"], "vllm-bench-00002.json")):
        assert cli.main(["export", str(sweep), "--format", "vllm-bench", *options]) == 0
        assert (sweep / name).exists()


FILES = ("manifest.yaml", "summary.json", "trials.parquet", "requests/trial-00000.parquet")


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_one_line_or_nothing_that_matters(
    name: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cut short, emptied, and with bytes changed: exit code 2 and one line, or an export that is whole."""
    directory, generator = altered(run, tmp_path), random.Random(name)
    whole = (directory / name).read_bytes()
    damaged = [b"", b"{}", b"[]", whole[: len(whole) // 2], whole[1:], whole[:-5]]
    for _ in range(25):
        content = bytearray(whole)
        for _ in range(generator.choice((1, 1, 8))):
            content[generator.randrange(len(content))] = generator.randrange(256)
        damaged.append(bytes(content))
    failures = 0
    for number, content in enumerate(damaged):
        (directory / name).write_bytes(content)
        format = FORMATS[number % len(FORMATS)]
        capsys.readouterr()
        code = cli.main(["export", str(directory), "--format", format, "--output", str(tmp_path / "out")])
        err = capsys.readouterr().err
        assert code in {0, 2}
        assert code == 0 or err.count("\n") == 1
        failures += code == 2
    assert failures >= 4
