"""Classes of requests: shares, lengths, priorities, limits of their own, and numbers of each apart.

Statistical tests have fixed seeds; each states how often a right implementation would fail at others.
"""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster_sim.compose import compose
from cluster_sim.config import ClassConfig, WorkloadConfig
from cluster_sim.engine.kinds import Outcome
from cluster_sim.errors import UserError
from cluster_sim.report.terminal import run_view, to_text
from cluster_sim.results import request_table
from cluster_sim.run import simulate
from cluster_sim.slo import own_limits
from cluster_sim.summary import summarise
from cluster_sim.trials import trial_row
from cluster_sim.workload import Workload, build_workload

LOGNORMAL = {"distribution": "lognormal", "mean": 500.0, "cv": 1.5}
TWO = (
    "workload.classes={chat: {share: 0.7, slo: {e2el_s: 0.5}}, "
    "code: {share: 0.3, prompt_tokens: 2000, output_tokens: 32}}"
)


def made(classes: dict[str, ClassConfig], **values: Any) -> Workload:
    settings = {"requests": 20_000, "request_rate": 8.0, "prompt_tokens": 512, "output_tokens": 128}
    return build_workload(WorkloadConfig(classes=classes, **(settings | values)), 0, 16, 0)


def test_shares_lengths_and_priorities_are_those_of_the_class() -> None:
    """Shares within 5 standard errors: false alarm 6e-7."""
    workload = made({"chat": ClassConfig(0.75), "batch": ClassConfig(0.25, 2000, priority=3)})
    assert workload.class_names == ("batch", "chat")
    is_batch = workload.workload_class == 0
    assert is_batch.mean() == pytest.approx(0.25, abs=5 * math.sqrt(0.1875 / 20_000))
    assert np.array_equal(workload.prompt_tokens, np.where(is_batch, 2000, 512))
    assert np.array_equal(workload.priority, np.where(is_batch, 3, 0))
    assert set(workload.output_tokens.tolist()) == {128}


def test_nothing_depends_on_the_order_of_the_classes() -> None:
    classes = {"a": ClassConfig(0.5, LOGNORMAL), "b": ClassConfig(0.2, 7), "c": ClassConfig(0.3)}
    one, other = made(classes), made(dict(reversed(classes.items())))
    assert one.class_names == other.class_names
    for column in ("prompt_tokens", "workload_class", "arrival_s"):
        assert np.array_equal(getattr(one, column), getattr(other, column))


def test_a_class_of_its_own_changes_no_draw() -> None:
    """Common random numbers: the requests of the other class keep their lengths and times."""
    alone = made({"a": ClassConfig(1.0)}, prompt_tokens=LOGNORMAL)
    both = made({"a": ClassConfig(0.5), "b": ClassConfig(0.5, 9)}, prompt_tokens=LOGNORMAL)
    stayed = both.workload_class == 0
    assert np.array_equal(alone.prompt_tokens[stayed], both.prompt_tokens[stayed])
    assert np.array_equal(alone.arrival_s, both.arrival_s)


@pytest.fixture(name="run", scope="module")
def fixture_run() -> Any:
    return simulate(compose(["workload.requests=300", "slo.ttft_s=10", "slo.tpot_s=null", TWO]))


def test_a_class_is_held_to_its_own_limits_instead_of_those_of_all(run: Any) -> None:
    times = request_table(run).to_pydict()
    for workload_class, ttft_s, e2el_s, good in zip(
        times["workload_class"], times["ttft_s"], times["e2el_s"], times["slo_met"], strict=True
    ):
        assert good == (e2el_s <= 0.5 if workload_class == "chat" else ttft_s <= 10)
    assert 0 < sum(times["slo_met"]) < 300


def test_every_class_has_the_numbers_of_all_and_they_add_up(run: Any) -> None:
    summary = json.loads(json.dumps(summarise(run), allow_nan=False))
    classes = summary["classes"]
    assert list(classes) == ["chat", "code"]
    for one in classes.values():
        assert one.keys() <= summary.keys()
        assert one["ttft_s"].keys() == summary["ttft_s"].keys()
    for path in ("request_throughput_rps", "output_throughput_tok_s", "slo_goodput_rps", "preemptions"):
        assert sum(one[path] for one in classes.values()) == pytest.approx(summary[path])
    for path in (("requests", "offered"), ("tokens", "emitted"), ("tokens", "drafted")):
        assert sum(one[path[0]][path[1]] for one in classes.values()) == summary[path[0]][path[1]]
    assert classes["code"]["slo_attainment"] == 1.0
    assert classes["chat"]["slo_attainment"] < 1.0


def test_a_single_class_is_not_told_twice() -> None:
    assert "classes" not in summarise(simulate(compose(["workload.requests=50"])))


def test_rows_of_trials_keep_the_parts_of_a_name_with_dots_together() -> None:
    row = trial_row(0, "a", {}, 0, {"classes": {"gpt-3.5": {"preemptions": 4}}})
    assert row["classes.gpt-3_5.preemptions"] == 4


@pytest.mark.parametrize("columns", [80, 160])
def test_the_classes_are_on_the_terminal(run: Any, columns: int) -> None:
    text = to_text(
        run_view(summarise(run), "header", run.config.slo, dict(own_limits(run.config))), columns, False
    )
    assert max(map(len, text.splitlines())) <= columns
    counts = np.bincount(run.requests["workload_class"])
    rows = [line.split()[:2] for line in text.splitlines() if line.strip()]
    assert ["chat", str(counts[0])] in rows
    assert ["code", str(counts[1])] in rows
    assert "TTFT <= 10.0 s; chat: E2E <= 500 ms" in " ".join(text.split())


def test_limits_of_a_class_need_no_limits_of_all() -> None:
    overrides = ["workload.requests=50", "slo.ttft_s=null", "slo.tpot_s=null", TWO]
    classes = summarise(simulate(compose(overrides)))["classes"]
    assert classes["chat"]["slo_attainment"] is not None
    assert classes["code"]["slo_attainment"] is None


def test_a_traces_class_can_have_limits(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"arrival_s": 0, "prompt_tokens": 40, "output_tokens": 8, "class": "chat"}\n')
    overrides = [f"workload.trace={trace}", "workload.classes={chat: {slo: {e2el_s: 1e-6}}}"]
    assert summarise(simulate(compose(overrides)))["slo_attainment"] == 0.0
    overrides[1] = overrides[1].replace("chat", "chatter")
    with pytest.raises(UserError) as caught:
        simulate(compose(overrides))
    assert str(caught.value) == (
        "a class of workload.classes must be one of the trace's, but got 'chatter' (workload.classes). "
        "Did you mean chat? Classes: chat."
    )


# ---- clients that give up ----


def test_a_client_without_its_answer_gives_up_and_is_counted_apart() -> None:
    overrides = ["workload.requests=300", "workload.request_rate=30"]
    patient = simulate(compose(overrides))
    hasty = simulate(compose([*overrides, "workload.timeout_s=0.6"]))
    e2el_s = hasty.log["last_token_s"] - hasty.requests["arrival_s"]
    outcome = hasty.log["outcome"]
    assert set(outcome.tolist()) == {int(Outcome.completed), int(Outcome.timed_out)}
    assert np.all(e2el_s[outcome == int(Outcome.completed)] <= 0.6)
    assert np.all(hasty.log["emitted_tokens"][outcome == int(Outcome.timed_out)] < 128)
    summary = summarise(hasty)
    assert summary["requests"]["timed_out"] == int((outcome == int(Outcome.timed_out)).sum()) > 0
    assert summary["requests"]["completed"] + summary["requests"]["timed_out"] == 300
    assert summary["e2el_s"]["p99"] <= 0.6
    assert np.all(patient.log["outcome"] == int(Outcome.completed))
