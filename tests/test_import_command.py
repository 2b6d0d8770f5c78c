"""`import-bundle` on the command line: what it prints, what it leaves, and what it refuses."""

from pathlib import Path

import pytest
from example_bundle import BUNDLE
from example_steps import grid, write_csv

from cluster_sim import cli
from cluster_sim.build import build
from cluster_sim.bundle import format as bundle_format
from cluster_sim.bundle import importing
from cluster_sim.compose import compose

WHOSE = ("--model=llama-3.1-8b", "--hardware=h100", "--source=my server", "--licence=MIT")


def test_measured_steps_become_a_bundle_whose_name_is_the_last_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "bundles_dir", lambda: tmp_path)
    steps = write_csv(tmp_path / "steps.csv", grid(), BUNDLE)
    printed, digests = [], []
    for _ in range(2):
        assert cli.main(["import-bundle", str(steps), *WHOSE]) == 0
        printed.append(capsys.readouterr().out)
        digests.append(bundle_format.digest(tmp_path / "llama-3.1-8b-h100-measured-tp1"))
    assert printed[0].splitlines()[-1] == "llama-3.1-8b-h100-measured-tp1"
    assert printed[0].splitlines()[0].startswith("fit: error over ")
    assert (printed[0], digests[0]) == (printed[1], digests[1])
    assert {path.name for path in tmp_path.iterdir()} == {"steps.csv", "llama-3.1-8b-h100-measured-tp1"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "the following arguments are required: PATH"),
        (
            ["nowhere"],
            "a directory of profiled tables or a CSV of steps, but got nowhere, which is not there",
        ),
        (["HERE"], "meta.yaml"),
        (["FILE"], "does not say its model, but got none (import-bundle --model). Give --model."),
        (["FILE", "--model=llama-3.1-8b"], "(import-bundle --hardware). Give --hardware."),
        (["FILE", *WHOSE], "columns must be batch, query_tokens"),
        (["FILE", *WHOSE, "--tensor-parallel-size=0"], "but got 0 (cluster.tensor_parallel_size)"),
        (["FILE", *WHOSE, "--tensor-parallel-size=3"], "tensor parallelism must divide the attention heads"),
        (["FILE", *WHOSE, "--tensor-parallel-size=x"], "invalid int value: 'x'"),
        (["FILE", *WHOSE, "--model=llama"], "but got 'llama' (model). Options: "),
        (["FILE", "--modl=x"], "unrecognized arguments: --modl=x"),
    ],
)
def test_measurements_that_cannot_be_imported_are_one_line(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "steps.csv").write_text("no steps\n")
    paths = {"HERE": str(tmp_path), "FILE": str(tmp_path / "steps.csv")}
    assert cli.main(["import-bundle", *(paths.get(word, word) for word in arguments)]) == 2
    streams = capsys.readouterr()
    assert streams.out == ""
    assert streams.err.startswith("cluster_sim: error: ")
    assert streams.err.count("\n") == 1
    assert said in streams.err


def test_an_imported_bundle_is_used_by_its_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "bundles_dir", lambda: tmp_path)
    assert cli.main(["import-bundle", str(write_csv(tmp_path / "steps.csv", grid(), BUNDLE)), *WHOSE]) == 0
    name = capsys.readouterr().out.splitlines()[-1]
    built = build(compose(["speculation=none", f"cluster.bundle={tmp_path / name}", "workload.requests=1"]))
    assert (built.bundle.name, built.bundle.kind) == (name, "measured")
    assert "my server" in built.bundle.tables["dense"].source
