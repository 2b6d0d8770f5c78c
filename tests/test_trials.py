"""Trials of a sweep on disk: nothing lost, nothing doubled, the same bytes whatever happened on the way."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from example_run import example_run

from cluster_sim.errors import UserError
from cluster_sim.summary import summarise
from cluster_sim.trials import JOURNAL, Row, TrialWriter, open_trials, read_trials, trial_row, write_trials

ROWS: list[Row] = [
    {"trial": 0, "arm": "off", "rate": 2, "seed": 0, "x.mean": 0.1 + 0.2, "lengths": None, "warnings": []},
    {"trial": 1, "arm": "K=1", "rate": 2, "seed": 0, "x.mean": None, "lengths": [0.5], "warnings": ["!"]},
    {"trial": 2, "arm": "off", "rate": 8, "seed": 0, "x.mean": 1e-300, "lengths": None, "warnings": []},
]


def finished_bytes(directory: Path, rows: list[Row]) -> bytes:
    directory.mkdir()
    with open_trials(directory) as trials:
        for row in rows:
            trials.append(row)
        trials.finish()
    return (directory / "trials.parquet").read_bytes()


def test_rows_come_back_as_they_were_in_the_order_of_the_trials(tmp_path: Path) -> None:
    finished_bytes(tmp_path / "sweep", [ROWS[2], ROWS[0], ROWS[1]])
    assert read_trials(tmp_path / "sweep") == ROWS
    assert [path.name for path in (tmp_path / "sweep").iterdir()] == ["trials.parquet"]


def test_the_order_in_which_trials_end_leaves_no_trace(tmp_path: Path) -> None:
    assert finished_bytes(tmp_path / "one", ROWS) == finished_bytes(tmp_path / "two", ROWS[::-1])


def test_an_interrupted_sweep_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    whole = finished_bytes(tmp_path / "whole", ROWS)
    (tmp_path / "cut").mkdir()
    with open_trials(tmp_path / "cut") as trials:
        trials.append(ROWS[1])
    with open_trials(tmp_path / "cut") as trials:
        assert trials.finished == {1: ROWS[1]}
        trials.append(ROWS[0])
        trials.append(ROWS[2])
        assert trials.finish() == ROWS
    assert (tmp_path / "cut" / "trials.parquet").read_bytes() == whole


@pytest.mark.parametrize("torn", [1, 10, 60])
def test_a_torn_last_line_is_cut_off_and_its_trial_runs_again(tmp_path: Path, torn: int) -> None:
    with open_trials(tmp_path) as trials:
        trials.append(ROWS[0])
    journal = tmp_path / JOURNAL
    whole = journal.read_bytes()
    journal.write_bytes(whole + json.dumps(ROWS[1]).encode()[:torn])
    with open_trials(tmp_path) as trials:
        assert trials.finished == {0: ROWS[0]}
        assert journal.read_bytes() == whole
        trials.append(ROWS[1])
    with open_trials(tmp_path) as trials:
        assert trials.finished == {0: ROWS[0], 1: ROWS[1]}


def test_a_finished_sweep_has_nothing_left_to_do_and_stays_as_it_is(tmp_path: Path) -> None:
    before = finished_bytes(tmp_path / "sweep", ROWS)
    with open_trials(tmp_path / "sweep") as trials:
        assert list(trials.finished.values()) == ROWS
        trials.finish()
    assert (tmp_path / "sweep" / "trials.parquet").read_bytes() == before


def test_a_kill_between_the_table_and_the_end_of_the_journal_doubles_nothing(tmp_path: Path) -> None:
    finished_bytes(tmp_path / "sweep", ROWS)
    (tmp_path / "sweep" / JOURNAL).write_text(json.dumps(ROWS[0]) + "\n")
    with open_trials(tmp_path / "sweep") as trials:
        assert trials.finish() == ROWS


def test_a_killed_process_loses_no_row_that_it_kept(tmp_path: Path) -> None:
    script = f"""
import os, signal
from pathlib import Path
from cluster_sim.trials import open_trials
with open_trials(Path({str(tmp_path)!r})) as trials:
    trials.append({ROWS[0]!r})
    trials.append({ROWS[1]!r})
    os.kill(os.getpid(), signal.SIGKILL)
"""
    killed = subprocess.run([sys.executable, "-c", script], check=False, cwd=Path(__file__).parent.parent)
    assert killed.returncode == -signal.SIGKILL
    with open_trials(tmp_path) as trials:
        assert list(trials.finished.values()) == ROWS[:2]


def test_two_sweeps_cannot_write_one_directory(tmp_path: Path) -> None:
    with open_trials(tmp_path), pytest.raises(UserError) as caught, open_trials(tmp_path):
        pass
    assert str(caught.value) == (
        "one process at a time writes a directory of results, but got another that is running "
        f"({tmp_path}). Wait for the other one, or choose another directory with output.dir=PATH."
    )
    with open_trials(tmp_path):
        pass


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_full_disk_is_told(tmp_path: Path) -> None:
    with Path("/dev/full").open("wb", buffering=0) as journal:
        trials = TrialWriter(tmp_path, journal, {})
        with pytest.raises(UserError, match="No space left on device"):
            trials.append(ROWS[0])
    assert trials.finished == {}


def test_values_of_several_types_are_written_as_json(tmp_path: Path) -> None:
    write_trials(tmp_path, [{"trial": 0, "axis": "fixed"}, {"trial": 1, "axis": 3}])
    assert [row["axis"] for row in read_trials(tmp_path)] == ['"fixed"', "3"]


def test_whole_and_broken_numbers_make_a_column_of_numbers(tmp_path: Path) -> None:
    write_trials(tmp_path, [{"trial": 0, "rate": 2}, {"trial": 1, "rate": 2.5}])
    assert [row["rate"] for row in read_trials(tmp_path)] == [2.0, 2.5]


@pytest.mark.parametrize("content", [None, b"not a table"])
def test_trials_that_cannot_be_read_are_bad_input(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "trials.parquet").write_bytes(content)
    with pytest.raises(UserError, match="the trials of a result must be a readable table"):
        read_trials(tmp_path)


def test_a_row_has_the_paths_of_the_summary_and_nothing_of_the_machine() -> None:
    point = {"workload.request_rate": 8.0, "workload.prompt_tokens": {"mean": 512}}
    row = trial_row(7, "K=3", point, 1, summarise(example_run()))
    again = trial_row(7, "K=3", point, 1, summarise(example_run(wall_s=99.0, engine_wall_s=88.0)))
    assert row == again
    assert list(row)[:5] == ["trial", "arm", "workload.request_rate", "workload.prompt_tokens", "seed"]
    assert row["workload.prompt_tokens"] == '{"mean": 512}'
    assert row["requests.completed"] == 3
    assert row["memory_bytes.target_kv_bytes"] == 54 * 2**30
