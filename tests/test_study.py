"""A study from the command line: what it leaves, what it says, and that it can be run again."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from made_up import journal_of
from studying import SMALL, studied, summary_of, told_of
from sweeping import Driver, bytes_of

from cluster_sim import cli
from cluster_sim.compose import Composer, compose_file
from cluster_sim.config import Method
from cluster_sim.errors import UserError
from cluster_sim.report.study import answer, study_view
from cluster_sim.report.terminal import to_text
from cluster_sim.run import simulate
from cluster_sim.speculation.vllm_config import read
from cluster_sim.study.export import export
from cluster_sim.study.plan import Plan
from cluster_sim.summary import summarise
from cluster_sim.trials import read_trials

MACHINE = ("engine_wall_s", "wall_s", "peak_rss_bytes", "optimiser_wall_s")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("whole")
    assert studied(directory) == 0
    return directory


def planned(*overrides: str) -> Plan:
    composer = Composer([*SMALL, *overrides])
    assert composer.config.study is not None
    return Plan(composer.config, composer.config.study, composer)


def test_it_leaves_what_the_design_names(whole: Path) -> None:
    names = {file.name for file in whole.iterdir()}
    assert {"manifest.yaml", "summary.json", "trials.parquet", "study.journal", "best.yaml"} <= names
    assert not any(name.startswith((".", "trials.jsonl")) or ".lock" in name for name in names)


def test_the_verdict_holds_every_baseline_and_the_best_of_the_search_on_fresh_seeds(whole: Path) -> None:
    summary = summary_of(whole)
    arms = {one["arm"] for one in summary["contenders"]}
    assert {"off", "K=1", "K=2", "K=3"} < arms
    assert len([one for one in summary["contenders"] if not one["is_baseline"]]) >= 1
    for arm in arms:
        assert [entry["seeds"] for entry in summary["arms"][arm]] == [[10, 11, 12]] * 2
    assert set(summary["vs_baseline"]) == arms - {"off"}


def test_the_recommended_arm_loses_to_no_baseline_at_any_load_on_fresh_seeds(whole: Path) -> None:
    """`worse` and `better` are those of verdict.compare: by more than 95 % chance and 1 %."""
    summary = summary_of(whole)
    by_name = {one["arm"]: one for one in summary["contenders"]}
    assert by_name[summary["verdict"]["recommended"]]["vs_champion"]["by_load"] == ["tie", "tie"]
    assert not any("better" in one["vs_champion"]["by_load"] for one in summary["contenders"])


def test_off_is_no_drafter_and_not_zero_drafts(whole: Path) -> None:
    """vllm#49986: K = 0 pays for the drafter; a schedule that never drafts is run as no speculation."""
    off = [row for row in read_trials(whole) if row["arm"] == "off"]
    assert {row["draft_cost"] for row in off} == {"no speculation"}
    assert all(row["memory_bytes.drafter_weights_bytes"] == 0 for row in off)


def test_the_journal_holds_every_trial_once_and_none_under_way(whole: Path) -> None:
    trials = told_of(whole)
    assert len(trials) == 16
    assert {state for state, _, _ in trials} <= {"COMPLETE", "PRUNED"}


def test_optuna_loads_the_journal_with_every_value_constraint_and_arm(whole: Path) -> None:
    """As optuna-dashboard does: load_study on JournalStorage."""
    trials = journal_of(whole)
    history = summary_of(whole)["search"]["history"]
    told = [(trial.user_attrs["arm"], trial.value) for trial in trials if trial.state.name == "COMPLETE"]
    assert told == [(one["arm"], one["value"]) for one in history]
    assert all(set(trial.params) == set(trial.distributions) and trial.params for trial in trials)
    stopped = [trial for trial in trials if trial.state.name == "PRUNED"]
    assert all(list(trial.intermediate_values) == [1] for trial in stopped)


def test_the_same_command_again_simulates_nothing_and_leaves_the_same(
    whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, told = (whole / "trials.parquet").read_bytes(), told_of(whole)
    summary = summary_of(whole)
    assert studied(whole) == 0
    assert (whole / "trials.parquet").read_bytes() == before
    assert (summary_of(whole), told_of(whole)) == (summary, told)
    assert f"{len(read_trials(whole))} simulations kept from before" in capsys.readouterr().err
    assert json.loads((whole / "summary.json").read_text())["engine_wall_s"] == 0


def test_the_checkpoint_can_be_named_afterwards(whole: Path) -> None:
    assert studied(whole, *SMALL, "output.drafter=org/drafter") == 0
    assert json.loads((whole / "schedule.json").read_text())["model"] == "org/drafter"
    assert json.loads((whole / "summary.json").read_text())["engine_wall_s"] == 0


def test_another_study_in_the_same_directory_is_refused(whole: Path) -> None:
    with pytest.raises(UserError, match="a directory of results holds one run or sweep"):
        studied(whole, *SMALL, "study.max_draft_length=2")


def test_best_yaml_makes_the_recommended_arms_last_row_again(whole: Path) -> None:
    recommended = summary_of(whole)["verdict"]["recommended"]
    row = [row for row in read_trials(whole) if row["arm"] == recommended][-1]
    summary = summarise(simulate(compose_file(whole / "best.yaml", [])))
    assert summary["slo_goodput_rps"] == row["slo_goodput_rps"]
    assert summary["tpot_s"]["mean"] == row["tpot_s.mean"]
    assert summary["steps"] == row["steps"]


def test_a_configuration_file_takes_values_and_options_on_top(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = compose_file(whole / "best.yaml", ["workload.request_rate=5", "speculation=none", "seed=9"])
    assert (config.workload.request_rate, config.seed) == (5.0, 9)
    assert config.speculation.method is Method.none
    assert config.workload.requests == 150
    run = ["--config", str(whole / "best.yaml"), "executor=serial", f"output.dir={tmp_path}"]
    assert cli.main(run) == 0
    assert "150 of 150 requests completed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "overrides", "text"),
    [
        (None, [], "--config must name a readable YAML file, but got [Errno 2]"),
        ("[1]", [], "--config must name a file of keys, but got list"),
        ("seeed: 3", [], "a key must exist in the configuration, but got 'seeed'"),
        ("seed: x", [], "seed must be a whole number, but got"),
        ("seed: 3", ["+study=draft_schedule"], "a file of --config is one simulation, but got +study"),
    ],
)
def test_a_wrong_configuration_file_is_one_line(
    content: str | None, overrides: list[str], text: str, tmp_path: Path
) -> None:
    file = tmp_path / "some.yaml"
    if content is not None:
        file.write_text(content)
    with pytest.raises(UserError) as caught:
        compose_file(file, overrides)
    assert str(caught.value).startswith(text)


def exported(tmp_path: Path, ranges: list[list[int]] | None, *overrides: str) -> tuple[list[str], Path]:
    given = ["speculation.num_speculative_tokens=4", *overrides]
    if ranges is not None:
        given.append(f"speculation.num_speculative_tokens_per_batch_size={ranges}")
    return export(Composer(given).config, 256, tmp_path, "org/drafter"), tmp_path


def test_schedule_json_is_what_vllm_takes(tmp_path: Path) -> None:
    ranges = [[1, 16, 4], [17, 64, 1], [65, 256, 0]]
    lines, directory = exported(tmp_path, ranges)
    written = json.loads((directory / "schedule.json").read_text())
    assert written == {
        "method": "eagle3",
        "model": "org/drafter",
        "num_speculative_tokens": 4,
        "num_speculative_tokens_per_batch_size": ranges,
    }
    assert read(written).schedule == ranges
    trtllm = json.loads((directory / "schedule_trtllm.json").read_text())
    assert trtllm == {"max_draft_len": 4, "draft_len_schedule": {"16": 4, "64": 1}}
    command = next(line for line in lines if line.startswith("for vLLM 0.33: ")).partition(": ")[2]
    assert shlex.split(command)[:4] == ["vllm", "serve", "MODEL", "--speculative-config"]
    assert any("spec_decode_num_(drafts|draft_tokens)_total" in line for line in lines)


def test_a_missing_checkpoint_is_asked_for_in_a_line(tmp_path: Path) -> None:
    lines = export(Composer([]).config, 256, tmp_path, None)
    assert "model" not in json.loads((tmp_path / "schedule.json").read_text())
    (line,) = [line for line in lines if "still needs" in line]
    assert line == (
        'schedule.json still needs the drafter\'s checkpoint, "model", which vLLM does not guess: the same '
        f"command with output.dir={tmp_path} output.drafter=ORGANISATION/CHECKPOINT writes it, at once"
    )


def test_a_checkpoint_that_the_configuration_names_is_written(tmp_path: Path) -> None:
    named = 'speculation.vllm_config={"method":"eagle3","model":"a/b","num_speculative_tokens":3}'
    lines = export(Composer([named]).config, 256, tmp_path, None)
    assert json.loads((tmp_path / "schedule.json").read_text())["model"] == "a/b"
    assert not any("still needs" in line for line in lines)


def test_what_tensorrt_llm_cannot_hold_is_said(tmp_path: Path) -> None:
    lines, directory = exported(tmp_path, [[1, 4, 1], [5, 256, 4]])
    assert not (directory / "schedule_trtllm.json").exists()
    assert any(line.startswith("no schedule_trtllm.json: no draft length may exceed") for line in lines)


def test_without_speculation_there_is_no_schedule_and_an_old_one_is_removed(tmp_path: Path) -> None:
    (tmp_path / "schedule.json").write_text("{}")
    lines = export(Composer(["speculation=none"]).config, 256, tmp_path, None)
    assert not (tmp_path / "schedule.json").exists()
    assert "for vLLM: leave --speculative-config out" in lines


def test_infeasible_is_said_loudly_with_the_nearest_miss_and_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert studied(tmp_path, *SMALL, "study.tpot_p99_s=0.001", "study.trials=4") == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "INFEASIBLE: no arm meets the constraints at every load. The nearest, " in out
    assert "(p99 TPOT). Relax it, lower the load, or add instances." in out
    assert not (tmp_path / "schedule.json").exists()
    verdict = summary_of(tmp_path)["verdict"]
    assert (verdict["recommended"], verdict["nearest_miss"]["constraint"]) == (None, "tpot_p99_s")


def test_the_fewest_gpus_that_meet_the_slo_are_found(tmp_path: Path) -> None:
    """One H100 has its knee near 60 requests/s: 100 requests/s need two, and not three."""
    overrides = [
        "study.objective=gpus",
        "study.choices.cluster.instances=[1,2,3]",
        "study.axes.workload.request_rate=[100]",
        "study.bucket_lasts=[]",
        "study.max_draft_length=2",
        "workload.requests=1000",
    ]
    assert studied(tmp_path, *SMALL, *overrides) == 0
    summary = summary_of(tmp_path)
    recommended = next(
        one for one in summary["contenders"] if one["arm"] == summary["verdict"]["recommended"]
    )
    assert recommended["choices"] == {"cluster.instances": 2}
    assert recommended["value"]["value"] == 2.0


def test_on_the_terminal_the_recommended_arm_is_marked_and_nothing_is_wider_than_it(whole: Path) -> None:
    summary = summary_of(whole)
    for width in (80, 160):
        text = to_text(study_view(summary, width), width, colours=False)
        assert max(map(len, text.splitlines())) <= width
        assert "<- recommended" in text
        assert f"Recommended: {summary['verdict']['recommended']}." in " ".join(text.split())


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"champion": "K=3 to 8, 1 beyond", "recommended": "off", "is_tie": True},
            "Recommended: off. The best of the search, K=3 to 8, 1 beyond, is no better than it by more than "
            "chance or 1%: a TIE, and the simpler one goes first.",
        ),
        (
            {"champion": "K=2", "recommended": "K=2", "is_tie": False},
            "Recommended: K=2. Every simpler arm is worse by more than chance and 1%, over all loads or "
            "under one of them.",
        ),
    ],
)
def test_the_answer_is_a_sentence(changes: dict[str, Any], sentence: str) -> None:
    verdict = {"is_feasible": True, "was_overtaken": False, **changes}
    assert list(answer({"verdict": verdict})) == [sentence]


@pytest.mark.parametrize(
    ("method", "runner", "text"),
    [("suffix", "true", "follows no schedule with method suffix on the V1 model runner")],
)
def test_schedules_that_vllm_would_set_aside_are_not_searched(method: str, runner: str, text: str) -> None:
    acceptance = "speculation.acceptance={policy: decay, rate: 0.5}"
    with pytest.raises(UserError, match=text):
        planned(f"speculation={method}", f"engine.use_v2_model_runner={runner}", acceptance)


@pytest.mark.ray
@pytest.mark.slow
def test_ray_leaves_the_same_bytes_as_this_process(whole: Path, tmp_path: Path) -> None:
    driver = Driver(*SMALL, "executor=ray", "executor.workers=2", f"output.dir={tmp_path}")
    code, out, _ = driver.end()
    driver.kill()
    assert (code, "Recommended: " in out) == (0, True)
    assert told_of(tmp_path) == told_of(whole)
    ours, theirs = bytes_of(tmp_path), bytes_of(whole)
    for one in (ours, theirs):
        one["summary"].pop("optimiser_wall_s")  # type: ignore[attr-defined]
        one.pop("files")
    assert ours == theirs
