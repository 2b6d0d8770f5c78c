"""The command line: commands, streams and exit codes."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster_sim import __version__, cli, single, sweep, usage
from cluster_sim.config import AcceptancePolicy, Config, Method, RouterPolicy

SLOW = ("numba", "ray", "pandas", "pyarrow", "hydra", "omegaconf", "numpy")


@pytest.fixture(autouse=True)
def _own_signals() -> Iterator[None]:
    """Leave the process's answer to SIGTERM as it was."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "cluster_sim", *arguments]
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=60)


def test_help_names_every_command_and_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    text = capsys.readouterr().out
    for word in (
        "validate DIR",
        "--bundle",
        "--set",
        "--json",
        "calibrate FILE...",
        "import-bundle PATH",
        "--model",
        "--hardware",
        "--tensor-parallel-size",
        "--source",
        "--licence",
        "replay-vllm",
        "list",
        "+sweep=",
        "--cfg",
        "--debug",
        "--version",
        "--help",
        "hydra.searchpath",
    ):
        assert word in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("command", ["validate", "import-bundle", "replay-vllm", "list", "seed=3"])
def test_help_may_be_asked_for_anywhere(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([command, "--help"], ["-h", command], [command, "there", "--bundle", "x", "-h"]):
        assert cli.main(words) == 0
        assert capsys.readouterr().out == usage.HELP


def test_help_waits_for_no_heavy_import() -> None:
    script = (
        f"import sys; from cluster_sim.cli import main; main(['--help']); print({SLOW} & sys.modules.keys())"
    )
    script = script.replace(str(SLOW), f"set({SLOW})")
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert run.stdout.splitlines()[-1] == "set()"


def test_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"cluster_sim {__version__}\n"


def test_cfg_job_prints_the_configuration_and_runs_nothing() -> None:
    run = command("--cfg", "job", "seed=5", "router=round_robin")
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.startswith("seed: 5\nmodel:\n  name: llama-3.1-8b\n")
    assert "policy: round_robin" in run.stdout


def test_bad_input_is_one_line_on_stderr_and_exit_code_2() -> None:
    run = command("cluster.instances=abc")
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr == (
        "cluster_sim: error: the value must be a whole number, but got 'abc' (cluster.instances). "
        "Give a whole number.\n"
    )


def test_a_python_without_the_packages_is_one_line_too() -> None:
    script = (
        "import sys; sys.modules['hydra'] = None; from cluster_sim import cli; sys.exit(cli.main(['seed=1']))"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60
    )
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr == (
        f"cluster_sim: error: its packages must be installed, but got no module hydra ({sys.executable}). "
        "Run make demo, then source .venv/bin/activate.\n"
    )


def test_debug_shows_where_an_error_comes_from() -> None:
    run = command("cluster.instances=abc", "--debug")
    assert run.returncode == 2
    assert run.stderr.startswith("Traceback (most recent call last):")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ["lst"],
            "the first word must be a command or an override KEY=VALUE, but got 'lst' (command line). "
            "Did you mean list? Commands: validate, calibrate, import-bundle, trace, report, export, "
            "replay-vllm, list.",
        ),
        (
            ["--jobs"],
            "options must be those of --help, but got unrecognized arguments: --jobs (command line). "
            "See python -m cluster_sim --help.",
        ),
        (
            ["--max-num-seqs", "256"],
            "an option of vLLM is a key here, but got --max-num-seqs (command line). "
            "Write engine.max_num_seqs=VALUE.",
        ),
        (
            ["--no-enable-prefix-caching"],
            "an option of vLLM is a key here, but got --no-enable-prefix-caching (command line). "
            "Write engine.enable_prefix_caching=VALUE.",
        ),
        (
            ['--speculative-config={"method": "eagle3", "num_speculative_tokens": 3}'],
            "an option of vLLM is a key here, but got --speculative-config (command line). "
            "Write speculation.vllm_config=VALUE.",
        ),
        (
            ["--model", "meta-llama/Llama-3.1-8B"],
            "an option of vLLM is a key here, but got --model (command line). Write model=VALUE.",
        ),
        (
            ["--cfg", "all"],
            "--cfg prints the configuration of the job, but got 'all' (command line). Write --cfg job.",
        ),
        (
            ["replay-vllm"],
            "replay-vllm needs a PATH, but got none (command line). Name a recording or a directory of them.",
        ),
        (
            ["list"],
            "list takes the one kind of names to print, but got none (command line). "
            "Kinds: models, hardware, bundles, routers, proposers, policies, profiles, sweeps, studies.",
        ),
        (
            ["list", "model"],
            "list takes the one kind of names to print, but got 'model' (command line). "
            "Did you mean models? Kinds: models, hardware, bundles, routers, proposers, policies, profiles, "
            "sweeps, studies.",
        ),
    ],
)
def test_a_wrong_command_line_says_what_there_is(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == 2
    assert capsys.readouterr().err == f"cluster_sim: error: {text}\n"


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("routers", [member.name for member in RouterPolicy]),
        ("proposers", [member.name for member in Method]),
        ("policies", [member.name for member in AcceptancePolicy]),
    ],
)
def test_list_prints_one_name_a_line(kind: str, names: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list", kind]) == 0
    assert capsys.readouterr().out.split("\n") == [*names, ""]


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("hardware", {"a100", "h100", "h200", "b200", "gb200", "l40s", "rtx_pro_6000", "rtx4090"}),
        ("models", {"llama-3.1-8b", "llama-3.1-70b", "qwen3-8b", "qwen3-32b", "qwen3-30b-a3b"}),
        ("models", {"qwen3-235b-a22b", "mixtral-8x7b", "deepseek-v3", "gpt-oss-120b"}),
        ("bundles", {"llama-3.1-8b-h100-tp1"}),
        ("sweeps", {"spec_grid"}),
        ("studies", {"draft_schedule"}),
    ],
)
def test_list_prints_what_there_are_files_of(
    kind: str, names: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["list", kind]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert names <= set(listed)
    assert listed == sorted(listed)


def test_without_a_command_one_simulation_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert (
        cli.main(["seed=3", "--debug", "router=round_robin", "workload.requests=20", "output.dir=here"]) == 0
    )
    assert capsys.readouterr().out.startswith(
        "llama-3.1-8b, 1 instance of h100, eagle3 K=3; poisson 8 requests/s"
    )
    summary = json.loads(Path("here/summary.json").read_text())
    assert summary["requests"]["completed"] == 20
    assert {path.name for path in Path("here").iterdir()} == {
        "fleet.parquet",
        "manifest.yaml",
        "report.html",
        "requests",
        "summary.json",
        "trials.parquet",
    }


def test_an_override_that_names_a_sweep_runs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, list[str]]] = []

    def run_sweep(config: Config, overrides: list[str]) -> int:
        seen.append((config.sweep.name if config.sweep else "", overrides))
        return 0

    monkeypatch.setattr(sweep, "run_sweep", run_sweep)
    assert cli.main(["+sweep=spec_grid", "--debug"]) == 0
    assert seen == [("spec_grid", ["+sweep=spec_grid"])]


def test_an_error_of_the_user_in_the_work_is_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["workload.trace=a.csv"]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("cluster_sim: error: ")
    assert "a.csv" in error


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_is_exit_code_130(
    sent: signal.Signals, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run_single(*_: object) -> None:
        os.kill(os.getpid(), sent)
        time.sleep(10)

    monkeypatch.setattr(single, "run_single", run_single)
    assert cli.main([]) == 130
    assert capsys.readouterr().err.splitlines()[-1] == "cluster_sim: interrupted"


def test_a_reader_that_has_gone_is_no_error() -> None:
    """As in `... | head -1`: the pipe closes before all is written."""
    reading, writing = os.pipe()
    os.close(reading)
    line = [sys.executable, "-m", "cluster_sim", "--cfg", "job"]
    run = subprocess.run(line, stdout=writing, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    os.close(writing)
    assert (run.returncode, run.stderr) == (0, "")


def test_a_trace_of_the_users_own_directory_is_named_from_there(tmp_path: Path) -> None:
    """Nothing changes the working directory: relative paths mean what they mean in the shell."""
    line = [sys.executable, "-m", "cluster_sim", "--cfg", "job", "workload.trace=here.csv"]
    path = os.pathsep.join([str(Path(cli.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    run = subprocess.run(
        line, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    assert "trace: here.csv" in run.stdout
    assert list(tmp_path.iterdir()) == []
