"""The files of a run: complete, repeatable, and never mixed with another's."""

import errno
import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from example_run import example_run
from omegaconf import OmegaConf

from cluster_sim import files
from cluster_sim.config import Config
from cluster_sim.engine.jit import digest
from cluster_sim.engine.kinds import Outcome
from cluster_sim.errors import UserError
from cluster_sim.files import default_dir, open_directory, write_json, write_parquet
from cluster_sim.manifest import manifest
from cluster_sim.results import request_table, run_manifest, write_run
from cluster_sim.summary import summarise
from cluster_sim.trials import MACHINE_KEYS, read_trials

SWEEP = ("+sweep=spec_grid",)


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def test_a_run_leaves_its_manifest_summary_trial_and_requests(tmp_path: Path) -> None:
    run = example_run()
    summary = summarise(run)
    write_run(run, summary, tmp_path / "new" / "directory")
    found = contents(tmp_path / "new" / "directory")
    assert set(found) == {"manifest.yaml", "summary.json", "trials.parquet", "requests/trial-00000.parquet"}
    assert json.loads(found["summary.json"]) == summary
    (row,) = read_trials(tmp_path / "new" / "directory")
    assert row["trial"] == 0
    assert row["ttft_s.p99"] == summary["ttft_s"]["p99"]
    assert not row.keys() & set(MACHINE_KEYS)


def test_the_same_run_leaves_the_same_bytes_but_for_its_wall_times(tmp_path: Path) -> None:
    for directory, wall_s in (("one", 1.0), ("two", 2.0)):
        run = example_run(wall_s=wall_s)
        write_run(run, summarise(run), tmp_path / directory)
    one, two = contents(tmp_path / "one"), contents(tmp_path / "two")
    for found in (one, two):
        summary = json.loads(found["summary.json"])
        found["summary.json"] = json.dumps({**summary, **dict.fromkeys(MACHINE_KEYS)}).encode()
    assert one == two


def test_the_same_run_may_be_written_again_and_another_may_not(tmp_path: Path) -> None:
    run, other = example_run(), example_run(("workload.request_rate=9",))
    write_run(run, summarise(run), tmp_path)
    before = contents(tmp_path)
    write_run(run, summarise(run), tmp_path)
    with pytest.raises(UserError) as caught:
        write_run(other, summarise(other), tmp_path)
    assert str(caught.value) == (
        "a directory of results holds one run or sweep, but got another one's manifest.yaml "
        f"({tmp_path}). Choose another one with output.dir=PATH."
    )
    assert contents(tmp_path).keys() == before.keys()
    assert contents(tmp_path)["manifest.yaml"] == before["manifest.yaml"]


@pytest.mark.parametrize("name", ["summary.json", "trials.parquet", "requests"])
def test_results_without_a_manifest_belong_to_someone_else(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(UserError, match=f"but got another one's {name}"):
        open_directory(tmp_path, "identity")


@pytest.mark.parametrize("text", ["", "[1, 2]", "identity: [", "\x00"])
def test_a_manifest_that_cannot_be_read_is_another_one_s(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.yaml").write_text(text)
    with pytest.raises(UserError, match="holds one run or sweep"):
        open_directory(tmp_path, "identity")


def test_the_manifest_has_what_it_takes_to_make_the_result_again() -> None:
    run = example_run(SWEEP)
    found = run_manifest(run)
    assert found["digests"] == {"bundle": "b" * 64, "workload": "d" * 64, "engine": digest()}
    assert found["versions"].keys() == {"cluster_sim", "python", "numpy", "numba", "pyarrow", "ray", "optuna"}
    assert found["seeds"] == [run.config.seed]
    assert found["sources"]["acceptance"] == "by hand"
    assert found["git"] is None or found["git"].keys() == {"commit", "changed"}
    read = yaml.safe_load(yaml.safe_dump(found))
    again = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Config), read["config"]))
    assert cast(Config, again) == run.config


def test_the_identity_is_of_what_results_depend_on() -> None:
    def identity(*overrides: str, **changes: Any) -> object:
        return run_manifest(example_run(overrides, **changes))["identity"]

    same = identity()
    assert identity("output.dir=elsewhere", "executor=ray") == same
    assert identity(wall_s=9.0) == same
    shows = ("+sweep=spec_grid", "sweep.compare=[ttft_p99_s]")
    assert identity(*shows) == identity(*shows[:1]) != same
    assert len({same, identity("seed=1"), identity("slo.ttft_s=1"), identity(workload_digest="e")}) == 4


def test_the_identity_of_a_sweep_has_its_seeds() -> None:
    config = example_run(SWEEP).config
    assert manifest(config, [0, 1], {}, {})["identity"] != manifest(config, [0, 2], {}, {})["identity"]


def test_requests_have_columns_with_units_and_null_where_there_is_nothing() -> None:
    rejected = {
        "outcome": [int(Outcome.completed), int(Outcome.completed), int(Outcome.rejected)],
        "scheduled_s": [1.0, 2.5, np.nan],
        "first_token_s": [1.25, 3.0, np.nan],
        "last_token_s": [2.25, 3.0, np.nan],
        "emitted_tokens": [11, 1, 0],
        "chunks": [5, 1, 0],
        "instance": [0, 0, -1],
        "drafted_tokens": [8, 0, 0],
        "accepted_tokens": [6, 0, 0],
    }
    rows = request_table(example_run(log=rejected)).to_pylist()
    assert [row["outcome"] for row in rows] == ["completed", "completed", "rejected"]
    assert [row["workload_class"] for row in rows] == ["default"] * 3
    assert [row["instance"] for row in rows] == [0, 0, None]
    assert [row["tpot_s"] for row in rows] == pytest.approx([0.1, None, None])
    assert [row["itl_mean_s"] for row in rows] == pytest.approx([0.25, None, None])
    assert [row["queue_s"] for row in rows] == pytest.approx([0.0, 0.5, None])
    assert [row["rejected_tokens"] for row in rows] == [2, 0, 0]
    assert [row["slo_met"] for row in rows] == [False, False, False]
    no_limits = example_run(("slo.ttft_s=null", "slo.tpot_s=null"))
    assert "slo_met" not in request_table(no_limits).column_names


def test_a_request_says_its_instance_and_the_rank_of_it() -> None:
    """Rows of the engine are instance * ranks + rank."""
    places = {"instance": [0, 5, -1]}
    rows = request_table(example_run(("cluster.instances=3", "cluster.data_parallel_size=2"), log=places))
    assert rows["instance"].to_pylist() == [0, 2, None]
    assert rows["rank"].to_pylist() == [0, 1, None]
    without_ranks = request_table(example_run(("cluster.instances=6",), log=places))
    assert without_ranks["instance"].to_pylist() == [0, 5, None]
    assert "rank" not in without_ranks.column_names


def test_what_fails_half_way_leaves_the_old_file_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "table.parquet"
    write_parquet(path, pa.table({"a": [1]}))

    def fill_the_disk(_table: pa.Table, where: Path) -> None:
        where.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.pq, "write_table", fill_the_disk)
    with pytest.raises(UserError) as caught:
        write_parquet(path, pa.table({"a": [2]}))
    assert str(caught.value) == (
        f"results must be written, but got No space left on device ({path}). "
        "Make room or get permission there, or choose another place with output.dir=PATH."
    )
    assert contents(tmp_path).keys() == {"table.parquet"}
    assert pq.read_table(path).to_pydict() == {"a": [1]}


def test_a_directory_that_cannot_be_made_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for directory in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(UserError, match=r"must be written, but got (File exists|Not a directory)"):
            open_directory(directory, "identity")


def test_a_number_that_json_lacks_is_an_error_of_the_program(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "summary.json", {"a": float("nan")})
    assert contents(tmp_path) == {}


def test_default_directories_never_collide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = [default_dir("spec_grid") for _ in range(5)]
    assert len(set(found)) == 5
    assert all(directory.is_dir() and directory.parent == Path("sweeps/spec_grid") for directory in found)


def test_a_default_directory_that_cannot_be_made_is_bad_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sweeps").touch()
    with pytest.raises(UserError, match="results must be written"):
        default_dir("spec_grid")
