"""Faults of a cluster from the command line to the results: what they do, and what is said of them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from faulty_worlds import drain, slow, stop

from cluster_sim.compose import compose, to_yaml
from cluster_sim.engine.kinds import Outcome
from cluster_sim.errors import UserError
from cluster_sim.fault_config import FaultConfig
from cluster_sim.fault_report import nobody_there
from cluster_sim.report.terminal import header_of, run_view, to_text
from cluster_sim.results import Run, request_table
from cluster_sim.run import simulate
from cluster_sim.single import run_single
from cluster_sim.summary import summarise

CLUSTER = ["cluster.instances=4", "workload.requests=2000", "workload.request_rate=100"]  # for 20 s
STOP = "{instances: [0], kind: stop, from_s: 3, until_s: 6}"
ALL_STOP = "{instances: [0, 1, 2, 3], kind: stop, from_s: 3, until_s: 5}"


def run(*overrides: str) -> Run:
    return simulate(compose([*CLUSTER, *overrides]))


def faults(*entries: str) -> str:
    return f"cluster.faults=[{', '.join(entries)}]"


def p99_ttft_s(*overrides: str) -> float:
    return float(summarise(run(*overrides))["ttft_s"]["p99"])


# ---- what faults do ----


def test_least_requests_avoids_a_slow_instance_where_round_robin_does_not() -> None:
    """Three times as slow, an instance cannot serve the quarter of the requests that round robin sends."""
    fault = faults("{instances: [0], kind: slow, from_s: 0, slowdown: 3}")
    plain = {router: p99_ttft_s(f"router={router}") for router in ("round_robin", "least_requests")}
    slowed = {router: p99_ttft_s(f"router={router}", fault) for router in plain}
    assert slowed["round_robin"] > 20 * plain["round_robin"]
    assert slowed["least_requests"] < 3 * plain["least_requests"]
    shares = np.bincount(run("router=least_requests", fault).log["instance"], minlength=4) / 2000
    assert shares[0] < 0.15


def test_three_instances_serve_all_while_the_fourth_is_away() -> None:
    plain, hit = run(), run(faults(STOP))
    summary = summarise(hit)
    assert summary["requests"]["completed"] == 2000
    assert summary["retries"] == summary["faults"][0]["failed_requests"] > 0
    assert summary["tokens"]["lost"] == summary["faults"][0]["lost_tokens"] > 0
    assert summary["tokens"]["emitted"] == summarise(plain)["tokens"]["emitted"]
    arrival_s, instance = hit.requests["arrival_s"], hit.log["instance"]
    assert 0 not in instance[(arrival_s >= 3.0) & (arrival_s < 6.0)]
    assert 0 in instance[arrival_s >= 6.0]


def test_a_lost_request_misses_the_slo_and_its_tokens_are_no_throughput() -> None:
    summary = summarise(run(faults(STOP), "router.failed_requests=lose", "slo.ttft_s=60", "slo.tpot_s=60"))
    failed = summary["requests"]["failed"]
    assert failed == summary["faults"][0]["failed_requests"] > 0
    assert summary["requests"]["completed"] == 2000 - failed
    assert summary["slo_attainment"] == 1 - failed / 2000
    assert summary["tokens"]["emitted"] == 128 * (2000 - failed)
    assert (summary["retries"], summary["tokens"]["lost"] > 0) == (0, True)


def test_requests_before_a_fault_do_not_know_of_it() -> None:
    plain, hit = run(), run(faults(STOP))
    before = plain.log["last_token_s"] < 3.0
    assert before.sum() > 100
    for column in ("instance", "scheduled_s", "first_token_s", "last_token_s", "emitted_tokens"):
        assert np.array_equal(plain.log[column][before], hit.log[column][before])


def test_faults_after_the_end_leave_the_same_tables(tmp_path: Path) -> None:
    late = faults(
        "{instances: [0, 1], kind: stop, from_s: 900}", "{instances: [2], kind: drain, from_s: 901}"
    )
    for name, overrides in (("plain", []), ("late", [late])):
        run_single(compose([*CLUSTER, *overrides, f"output.dir={tmp_path / name}"]), lambda *_: None)
    plain, hit = (
        (tmp_path / name / "requests/trial-00000.parquet").read_bytes() for name in ("plain", "late")
    )
    assert plain == hit
    warnings = json.loads((tmp_path / "late" / "summary.json").read_text())["warnings"]
    assert warnings == [
        "every request had ended before this fault: stop of instances 0, 1, from 900 s to the end",
        "every request had ended before this fault: drain of instance 2, from 901 s to the end",
    ]


def test_progress_is_reported_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, seen = run(faults(STOP)), list[int]()
    monkeypatch.setattr("cluster_sim.run.REQUESTS_PER_SLICE", 60)
    sliced = simulate(compose([*CLUSTER, faults(STOP)]), lambda done, _: seen.append(done))
    assert len(seen) > 20
    assert whole.log.tobytes() == sliced.log.tobytes()  # type: ignore[attr-defined]


# ---- what is said of them ----


def test_a_run_tells_what_happened_to_whom(tmp_path: Path) -> None:
    overrides = [faults(STOP, "{instances: [1], kind: slow, from_s: 2, until_s: 4, slowdown: 2}")]
    done = run_single(compose([*CLUSTER, *overrides, f"output.dir={tmp_path}"]), lambda *_: None)
    summary = done.summary
    text = " ".join(to_text(run_view(summary, header_of(done.run), done.run.config.slo), 160, False).split())
    failed, lost = summary["retries"], summary["tokens"]["lost"]
    assert "4 instances of h100, eagle3 K=3, 2 faults; poisson" in text
    assert (
        f"faults stop of instance 0, from 3 s to 6 s: {failed} requests failed there, {lost:,} tokens lost; "
        f"slow of instance 1, 2 times as long, from 2 s to 4 s; {failed} retries" in text
    )
    table = pq.read_table(tmp_path / "requests/trial-00000.parquet")
    assert sum(table["retries"].to_pylist()) == failed
    assert sum(table["lost_tokens"].to_pylist()) == lost
    (trial,) = pq.read_table(tmp_path / "trials.parquet").to_pylist()
    assert trial["faults"] == summary["faults"]


def test_a_run_without_faults_says_nothing_of_them() -> None:
    plain = run()
    summary = summarise(plain)
    assert (summary["faults"], summary["retries"], summary["tokens"]["lost"]) == ([], 0, 0)
    text = to_text(run_view({**summary, "optimum": None}, header_of(plain), plain.config.slo), 160, False)
    assert "fault" not in text
    assert set(request_table(plain)["retries"].to_pylist()) == {0}


@pytest.mark.parametrize(
    ("entries", "more", "words"),
    [
        (
            [ALL_STOP],
            [],
            "no instance took requests from 3 s to 5 s: 213 that came then waited at the router",
        ),
        (
            [ALL_STOP],
            ["router.failed_requests=lose"],
            "no instance took requests from 3 s to 5 s: 213 that came then failed",
        ),
        (
            ["{instances: [0, 1, 2, 3], kind: stop, from_s: 19}"],
            [],
            "requests failed: no instance came back",
        ),
        (
            [STOP],
            ["router.failed_requests=lose"],
            "requests failed: they were lost with their instance, or none was there",
        ),
        (
            ["{instances: [0], kind: slow, from_s: 9, until_s: 15, slowdown: 1.5}"],
            [],
            "faults fall into the second half of the arrivals, in which the growth of the queue is measured: "
            "a queue that they leave counts as saturation",
        ),
    ],
)
def test_the_reader_is_warned(entries: Sequence[str], more: list[str], words: str) -> None:
    assert any(words in warning for warning in run(faults(*entries), *more).warnings)


def test_a_fault_over_by_the_second_half_of_the_arrivals_is_not_warned_of() -> None:
    assert run(faults(STOP)).warnings == ()


def test_an_outage_that_the_cluster_recovers_from_is_no_saturation_and_one_to_the_end_is() -> None:
    early, late = (
        summarise(run(faults(f"{{instances: [0, 1, 2], kind: drain, from_s: {from_s}, until_s: {until_s}}}")))
        for from_s, until_s in ((1, 3), (11, "null"))
    )
    assert early["saturated"] is False
    assert late["saturated"] is True
    assert late["requests"]["completed"] == 2000


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        ([stop([0], 1.0, 2.0)], []),
        ([stop([0, 1], 1.0, 2.0)], [(1.0, 2.0)]),
        ([stop([0], 1.0, 3.0), drain([1], 2.0)], [(2.0, 3.0)]),
        ([stop([0], 1.0), drain([1], 2.0)], [(2.0, np.inf)]),
        ([stop([0, 1], 1.0, 2.0), drain([0, 1], 2.0, 4.0)], [(1.0, 4.0)]),
        ([stop([0], 1.0), slow([1], 2.0)], []),
    ],
)
def test_nobody_is_there_while_all_instances_are_stopped_or_drain(
    plan: list[FaultConfig], expected: list[tuple[float, float]]
) -> None:
    assert nobody_there(plan, 2) == expected


# ---- the configuration ----


def test_faults_read_back_from_the_configuration_as_printed() -> None:
    config = compose([*CLUSTER, faults(STOP), "router.failed_requests=retry"])
    text = to_yaml(config)
    assert "  - instances:\n    - 0\n    kind: stop\n    from_s: 3.0\n    until_s: 6.0\n" in text
    assert "  failed_requests: retry\n" in text


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        (
            "{instances: [0], kind: stp, from_s: 1}",
            "the files of the configuration must compose, but got In 'cluster/mine': ValidationError raised "
            "while composing config: Invalid value 'stp', expected one of [stop, slow, drain] "
            "(cluster/mine.yaml). Correct it.",
        ),
        (
            "{instances: [0], kind: stop}",
            "every mandatory key must have a value, but got none for cluster.faults[0].from_s "
            "(cluster.faults[0].from_s). Give it in that entry of the list.",
        ),
    ],
)
def test_a_fault_in_a_file_of_ones_own_is_checked(tmp_path: Path, entry: str, text: str) -> None:
    shipped = compose([]).cluster
    keys: dict[str, Any] = {name: getattr(shipped, name) for name in vars(shipped) if name != "faults"}
    (tmp_path / "cluster").mkdir()
    (tmp_path / "cluster" / "mine.yaml").write_text(json.dumps(keys)[:-1] + f", faults: [{entry}]}}\n")
    with pytest.raises(UserError) as caught:
        compose([f"hydra.searchpath=[{tmp_path}]", "cluster=mine"])
    assert str(caught.value) == text


def test_outcomes_keep_their_numbers() -> None:
    """They are stored; `failed` came last."""
    names = ["pending", "completed", "rejected", "cancelled", "timed_out", "failed"]
    assert [Outcome(number).name for number in range(6)] == names
