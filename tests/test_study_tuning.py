"""Studies of the whole cluster: the fewest GPUs for a load, the highest load on given GPUs."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from studying import TASK, scored, search_over, studied, summary_of
from sweeping import swept

from cluster_sim.compose import compose_file
from cluster_sim.config import Method, Objective
from cluster_sim.report.stored import read_results
from cluster_sim.report.study import answer, study_view
from cluster_sim.report.study_sections import verdicts
from cluster_sim.report.terminal import to_text
from cluster_sim.study.space import Candidate, Space
from cluster_sim.trials import read_trials

FRESH = ("study.fresh_seeds=[10,11]", "study.window=4", "output.page=false")
TUNING = (
    "+study=slo_tuning",
    *FRESH,
    "study.seeds=[0,1]",
    "study.trials=9",
    "study.max_draft_length=2",
    "study.bucket_lasts=[]",
    "study.choices.cluster.instances=[3,1,2]",
    "study.choices.router=[round_robin,least_requests]",
    "study.choices.engine.max_num_seqs=[256]",
    "study.axes.workload.request_rate=[100]",
    "workload.requests=800",
)
LOAD = (
    "+study=slo_load",
    *FRESH,
    "study.seeds=[0]",
    "study.trials=3",
    "study.max_draft_length=1",
    "study.bucket_lasts=[]",
    "study.choices.router=[least_requests]",
    "study.choices.engine.max_num_seqs=[256]",
    "study.search={key: workload.request_rate, low: 10, high: 160, tolerance: 0.2}",
    "workload.requests=300",
)


def by_arm(directory: Path) -> dict[str, dict[str, Any]]:
    return {one["arm"]: one for one in summary_of(directory)["contenders"]}


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tuned")
    assert studied(directory, *TUNING) == 0
    return directory


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("loaded")
    assert studied(directory, *LOAD) == 0
    return directory


def test_the_fewest_gpus_are_found_and_the_best_on_fewer_misses(tuned: Path) -> None:
    """One H100 has its knee near 60 requests/s: 100 need two."""
    summary, arms = summary_of(tuned), by_arm(tuned)
    recommended = arms[summary["verdict"]["recommended"]]
    assert recommended["choices"]["cluster.instances"] == 2
    assert recommended["value"] == {"value": 2.0, "low": 2.0, "high": 2.0}
    on_one = [one for one in arms.values() if one["choices"]["cluster.instances"] == 1]
    assert on_one
    assert not any(one["is_feasible"] for one in on_one)


def test_of_arms_on_as_few_gpus_the_simplest_is_recommended(tuned: Path) -> None:
    verdict, arms = summary_of(tuned)["verdict"], by_arm(tuned)
    equals = [one for one in arms.values() if one["is_feasible"] and one["value"]["value"] == 2.0]
    assert len(arms[verdict["recommended"]]["ranges"]) == min(len(one["ranges"]) for one in equals)


def test_what_needs_no_search_is_judged_with_the_choices_of_the_best(tuned: Path) -> None:
    arms, champion = by_arm(tuned), summary_of(tuned)["verdict"]["champion"]
    with_its_choices = {name.split(";")[0] for name in arms if name.endswith(champion.partition(";")[2])}
    assert with_its_choices >= {"off", "K=1", "K=2"}


@pytest.mark.parametrize(("which", "columns"), [("tuned", 5), ("loaded", 6)])
def test_a_page_has_a_column_for_each_load_where_values_differ_by_load(
    which: str, columns: int, request: pytest.FixtureRequest
) -> None:
    """GPUs are one number for all loads, a capacity has one for each."""
    (section,) = verdicts(read_results(request.getfixturevalue(which)))
    (table,) = section.tables
    assert {len(table.columns), *map(len, table.rows)} == {columns}


def test_the_terminal_has_columns_of_loads_where_there_are_several(loaded: Path) -> None:
    """One load's value is the value."""
    text = to_text(study_view(summary_of(loaded), 160), 160, colours=False)
    (head,) = [line for line in text.splitlines() if "difference" in line and line.lstrip().startswith("arm")]
    assert head.split() == ["arm", "value", "difference"]


def test_the_answer_names_what_the_best_on_fewer_gpus_misses(tuned: Path) -> None:
    summary = summary_of(tuned)
    (sentence, *_) = answer(summary)
    assert sentence.startswith(
        f"Recommended, on 2 GPUs: {summary['verdict']['recommended']}, the simplest arm"
    )
    assert " on 1, misses a limit (" in sentence
    text = to_text(study_view(summary, 100), 100, colours=False)
    assert max(map(len, text.splitlines())) <= 100
    assert "fewest GPUs for 100 requests/s; attainment at least 90.0%;" in " ".join(text.split())


def test_without_any_cluster_that_is_large_enough_it_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ("study.axes.workload.request_rate=[400]", "study.trials=2", "workload.requests=200")
    assert studied(tmp_path, *TUNING, *small) == 1
    assert "INFEASIBLE: no arm meets the constraints at every load." in capsys.readouterr().out
    assert not (tmp_path / "best.yaml").exists()


def test_the_capacity_of_an_arm_is_that_which_a_sweep_finds(loaded: Path, tmp_path: Path) -> None:
    """The same bisection, under the same seeds."""
    code = swept(
        tmp_path,
        "+sweep=capacity",
        "sweep.search={key: workload.request_rate, low: 10, high: 160, tolerance: 0.2}",
        "sweep.seeds=[10,11]",
        "engine.max_num_seqs=256",
        "workload.requests=300",
        "output.page=false",
    )
    assert code == 0
    swept_summary = json.loads((tmp_path / "summary.json").read_text())
    theirs, ours = swept_summary["capacity"]["arms"], summary_of(loaded)["capacity"]["arms"]
    choices = "; router=least_requests; engine.max_num_seqs=256"
    for arm in ("off", "K=1"):
        assert ours[f"{arm}{choices}"] == theirs[arm]
        assert by_arm(loaded)[f"{arm}{choices}"]["value"]["value"] == theirs[arm][0]["value"]


def test_best_yaml_of_a_capacity_is_at_the_highest_load_that_passed(loaded: Path) -> None:
    recommended = summary_of(loaded)["verdict"]["recommended"]
    seeds = summary_of(loaded)["capacity"]["arms"][recommended][0]["seeds"]
    config = compose_file(loaded / "best.yaml", [])
    assert (config.workload.request_rate, config.seed) == (seeds[-1]["passed"], 11)


def test_a_study_of_capacities_goes_on_where_it_ended(loaded: Path) -> None:
    before = (loaded / "trials.parquet").read_bytes()
    summary = summary_of(loaded)
    assert studied(loaded, *LOAD) == 0
    assert (loaded / "trials.parquet").read_bytes() == before
    assert summary_of(loaded) == summary


def test_no_simulation_of_a_bisection_has_the_number_of_another(loaded: Path) -> None:
    rows = read_trials(loaded)
    places = {(row["arm"], row["seed"], row["workload.request_rate"]) for row in rows}
    assert len(places) == len(rows) == len({row["trial"] for row in rows})


def test_the_command_lines_own_schedule_may_be_kept(tmp_path: Path) -> None:
    """Then the choices alone are searched, and no speculation is one of them."""
    code = studied(
        tmp_path,
        *TUNING,
        "study.max_draft_length=null",
        "study.choices.speculation=[eagle3,none]",
        "study.choices.router=[round_robin]",
        "speculation.num_speculative_tokens=3",
        "speculation.num_speculative_tokens_per_batch_size=[[1,32,3],[33,256,1]]",
        "study.trials=6",
        "study.axes.workload.request_rate=[20]",
        "workload.requests=200",
    )
    assert code == 0
    words = {name.split(";")[0] for name in by_arm(tmp_path)}
    assert words == {"K=3 to 32, 1 beyond", "off"}
    assert compose_file(tmp_path / "best.yaml", []).speculation.method is Method.none


GPUS = replace(TASK, objective=Objective.gpus, limits={"attainment": 0.9})
SPACE = Space((4, 16, 64), longest=4, most=256, is_monotone=False, searches_edges=False, choices=(3,))


def test_near_misses_on_fewer_gpus_lead_to_the_one_schedule_that_meets_the_slo_there(tmp_path: Path) -> None:
    """On 3 and 2 GPUs all schedules meet it; on 1 the one (4, 3, 1, 0) of 625 does, in 80 trials."""

    def miss(candidate: Candidate) -> float:
        away = sum(abs(own - best) for own, best in zip(candidate.lengths, (4, 3, 1, 0), strict=True))
        return 0.05 * away if candidate.chosen == (2,) else -0.1

    starts = [SPACE.static(length, (0,)) for length in range(5)]
    search = search_over(SPACE, tmp_path / "journal", starts, task=GPUS)
    for _ in range(80):
        one = search.ask()
        score = replace(scored(3.0 - one.candidate.chosen[0], attainment=miss(one.candidate)), by_load=())
        search.tell(one, score, score, is_stopped=False)
    (best,) = search.front
    assert best.candidate == Candidate((4, 3, 1, 0), SPACE.lasts, (2,))
