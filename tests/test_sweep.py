"""Sweeps: planned whole before anything runs, the same bytes wherever they run, nothing lost or run twice."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from sweeping import SMALL, TRIALS_OF_SMALL, bytes_of, swept

from cluster_sim import sweep as sweep_module
from cluster_sim.build import build as real_build
from cluster_sim.compose import Composer
from cluster_sim.errors import UserError
from cluster_sim.executors import Executor
from cluster_sim.sweep import check_inputs, plan
from cluster_sim.trial import Trial, run_trial
from cluster_sim.trials import JOURNAL, MACHINE_KEYS, read_trials

T = TypeVar("T")
R = TypeVar("R")


def planned(*overrides: str) -> list[Trial]:
    composer = Composer(overrides)
    assert composer.config.sweep is not None
    return plan(composer, composer.config.sweep)


def error_of(function: Callable[..., object], *arguments: Any) -> str:
    with pytest.raises(UserError) as caught:
        function(*arguments)
    return str(caught.value)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small sweep, run in this process without a break."""
    directory = tmp_path_factory.mktemp("whole")
    assert swept(directory) == 0
    return directory


class Stopping:
    """An executor that stops, as by Ctrl-C, after some trials; it counts what it runs."""

    def __init__(self, after: int) -> None:
        self.after, self.ran = after, list[int]()

    def run(self, work: Callable[[T], R], trials: Sequence[T]) -> Iterator[R]:
        for trial in trials:
            if len(self.ran) == self.after:
                raise KeyboardInterrupt
            assert isinstance(trial, Trial)
            self.ran.append(trial.number)
            yield work(trial)


def run_on(executor: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the next sweeps run on `executor`."""
    monkeypatch.setattr(sweep_module, "open_executor", lambda *_: nullcontext(executor))


def test_a_trial_for_every_arm_at_every_point_under_every_seed() -> None:
    trials = planned(*SMALL)
    assert [trial.number for trial in trials] == list(range(TRIALS_OF_SMALL))
    places = {(trial.arm, trial.point["workload.request_rate"], trial.seed) for trial in trials}
    assert len(places) == TRIALS_OF_SMALL
    assert all(trial.config.seed == trial.seed for trial in trials)
    assert all(trial.config.workload.request_rate == trial.point["workload.request_rate"] for trial in trials)


def test_the_arms_of_a_point_and_a_seed_stand_together_and_differ_in_the_arm_alone() -> None:
    first = planned(*SMALL)[:5]
    assert [trial.arm for trial in first] == ["off", "K=1", "K=3", "K=5", "schedule"]
    assert {trial.seed for trial in first} == {0}
    alike = [replace(trial.config, speculation=first[0].config.speculation) for trial in first]
    assert all(config == alike[0] for config in alike)


def test_a_schedule_of_the_tables_is_found_once_and_recorded() -> None:
    """`auto` is the same schedule at every rate and seed, and the manifest says which."""
    trials = [trial for trial in planned(*SMALL) if trial.arm == "schedule"]
    schedules = [trial.config.speculation.num_speculative_tokens_per_batch_size for trial in trials]
    assert schedules == [schedules[0]] * 4
    assert schedules[0][0][:1] == [1]
    assert check_inputs(trials).sources["schedule"] == {f"schedule: {schedules[0]}"}


def test_a_trial_is_what_the_command_line_with_its_values_is() -> None:
    trial = planned(*SMALL)[-2]
    plain = ["speculation.num_speculative_tokens=5", "workload.request_rate=60", "seed=1"]
    assert trial.config == Composer([*plain, "workload.requests=150", "output.page=false"]).config


def test_a_bad_trial_stops_the_sweep_with_its_name_before_anything_is_written(tmp_path: Path) -> None:
    bad = ("+sweep=spec_grid", "sweep.axes.workload.request_rate=[4,-1]")
    assert error_of(swept, tmp_path / "new", *bad) == (
        "the request rate in requests/s must be above 0, but got -1.0 (workload.request_rate; arm off, "
        "workload.request_rate=-1). Set workload.request_rate to a number above 0."
    )
    assert not (tmp_path / "new").exists()


def test_a_schedule_that_breaks_vllms_rules_stops_the_sweep_before_anything_is_written(
    tmp_path: Path,
) -> None:
    arm = "sweep.arms.bad={speculation.num_speculative_tokens_per_batch_size: [[8, 4, 3]]}"
    text = error_of(swept, tmp_path / "new", "+sweep=spec_grid", arm)
    assert "; arm bad, workload.request_rate=2)" in text
    assert not (tmp_path / "new").exists()


def test_a_missing_trace_stops_the_sweep_with_the_name_of_a_trial(tmp_path: Path) -> None:
    trace = tmp_path / "none.csv"
    text = error_of(swept, tmp_path / "new", *SMALL[:-1], f"workload.trace={trace}")
    assert str(trace) in text
    assert "arm schedule, workload.request_rate=4" in text


def test_kinds_of_trials_are_built_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[Any] = []

    def build(config: Any) -> Any:
        built.append(config)
        return real_build(config)

    monkeypatch.setattr(sweep_module, "build", build)
    check_inputs(planned(*SMALL))
    assert len(built) == 5


def test_a_relative_path_means_the_same_file_in_every_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"2023-11-16 18:00:0{second}.0000000,374,44\n" for second in range(3))
    Path("here.csv").write_text(f"TIMESTAMP,ContextTokens,GeneratedTokens\n{rows}")
    (trial, *_) = planned(*SMALL[:-1], "workload.trace=here.csv")
    assert trial.config.workload.trace == str(tmp_path / "here.csv")


def test_a_row_is_a_function_of_its_trial() -> None:
    trial = planned(*SMALL)[5]
    first, second = run_trial(trial), run_trial(trial)
    assert first.row == second.row
    assert not set(MACHINE_KEYS) & set(first.row)
    assert first.row["trial"] == 5
    assert (first.row["arm"], first.row["workload.request_rate"], first.row["seed"]) == ("off", 4, 1)


def test_a_sweep_ends_with_the_comparison(whole: Path) -> None:
    summary = json.loads((whole / "summary.json").read_text())
    assert list(summary["arms"]) == ["off", "K=1", "K=3", "K=5", "schedule"]
    assert list(summary["vs_baseline"]) == ["K=1", "K=3", "K=5", "schedule"]
    assert summary["crossover"]["axis"] == "workload.request_rate"
    assert [row["trial"] for row in read_trials(whole)] == list(range(TRIALS_OF_SMALL))
    assert sorted(file.name for file in whole.iterdir()) == [
        "manifest.yaml",
        "summary.json",
        "trials.parquet",
    ]


def test_a_sweep_prints_its_table_to_stdout_and_all_else_to_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert swept(tmp_path / "new") == 0
    out, err = capsys.readouterr()
    assert "K=5: " in out
    assert err.startswith(f"cluster_sim: 20 trials; results in {tmp_path / 'new'}\n")


def test_an_interrupted_sweep_goes_on_where_it_stopped_and_ends_with_the_same_bytes(
    tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stopping, going_on = Stopping(after=5), Stopping(after=100)
    run_on(stopping, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        swept(tmp_path)
    assert f"5 of 20 trials are kept; go on with output.dir={tmp_path}\n" in capsys.readouterr().err
    with (tmp_path / JOURNAL).open("a") as journal:
        journal.write('{"trial": 5, "ar')  # what a kill may leave of a line
    run_on(going_on, monkeypatch)
    assert swept(tmp_path) == 0
    assert "20 trials, 5 kept from before" in capsys.readouterr().err
    assert (stopping.ran, going_on.ran) == ([0, 1, 2, 3, 4], list(range(5, 20)))
    assert bytes_of(tmp_path) == bytes_of(whole)


def test_a_sweep_that_is_complete_runs_nothing_again(
    tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert swept(tmp_path) == 0
    again = Stopping(after=0)
    run_on(again, monkeypatch)
    assert swept(tmp_path) == 0
    assert again.ran == []
    assert bytes_of(tmp_path) == bytes_of(whole)


def test_trials_that_end_in_another_order_leave_the_same_bytes(
    tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Backwards:
        def run(self, work: Callable[[T], R], trials: Sequence[T]) -> Iterator[R]:
            return map(work, reversed(trials))

    run_on(Backwards(), monkeypatch)
    assert swept(tmp_path) == 0
    assert bytes_of(tmp_path) == bytes_of(whole)


def test_another_sweep_does_not_go_into_a_directory_of_results(whole: Path) -> None:
    before = bytes_of(whole)
    text = error_of(swept, whole, *SMALL, "workload.requests=151")
    assert text.startswith("a directory of results holds one run or sweep, but got ")
    assert bytes_of(whole) == before


def test_two_sweeps_do_not_run_in_one_directory_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Nested:
        def run(self, work: Callable[[T], R], trials: Sequence[T]) -> Iterator[R]:
            texts.append(error_of(swept, tmp_path))
            return map(work, trials)

    texts: list[str] = []
    run_on(Nested(), monkeypatch)
    assert swept(tmp_path) == 0
    assert texts == [
        f"one process at a time writes a directory of results, but got another that is running ({tmp_path}). "
        "Wait for the other one, or choose another directory with output.dir=PATH."
    ]
