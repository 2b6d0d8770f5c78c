"""A closed loop and conversations that wait, from the configuration to what is read of them."""

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from sweeping import swept

from cluster_sim import executors
from cluster_sim.batch_means import batch_means
from cluster_sim.client_report import ends_s, most_in_flight
from cluster_sim.compose import compose
from cluster_sim.config import ExecutorConfig, ExecutorKind
from cluster_sim.engine.kinds import Outcome
from cluster_sim.errors import UserError
from cluster_sim.executors import drive_of
from cluster_sim.report.closed_loop import below_the_flip, run_below_the_flip
from cluster_sim.report.terminal import header_of, run_view, to_text
from cluster_sim.results import Run
from cluster_sim.run import digest_of, simulate
from cluster_sim.summary import summarise
from cluster_sim.workload import Workload, build_workload

SMALL = ["workload.requests=300", "workload.output_tokens=40"]
LOOP = ["workload=closed_loop", "workload.max_concurrency=6", *SMALL]
TALKS = ["workload.turns.mean=3", "workload.turns.gap_s=0.5", "workload.turns.after_answer=true"]
PARTLY = ["workload.request_rate=20", *SMALL, *TALKS]


def run_of(*overrides: str) -> Run:
    return simulate(compose(overrides))


def text_of(run: Run) -> str:
    view = run_view(summarise(run), header_of(run), run.config.slo)
    return " ".join(to_text(view, 160, False).split())


def drawn(*overrides: str) -> Workload:
    return build_workload(compose(overrides).workload, 0, 16, 0)


# ---- what is drawn ----


def test_a_closed_loop_asks_for_what_the_open_one_does() -> None:
    """Request r is the same request under any arrivals: arms and loops are compared on paired requests."""
    lengths = ["workload.prompt_tokens={distribution: lognormal, mean: 400, cv: 1.0}"]
    closed, opened = drawn(*LOOP, *lengths), drawn("workload.requests=300", *lengths)
    assert np.array_equal(closed.prompt_tokens, opened.prompt_tokens)
    assert closed.clients == 6
    assert opened.clients == 0
    assert np.all(np.isinf(closed.arrival_s))


def test_think_times_are_exponential_with_the_mean_that_is_given() -> None:
    """20,000 of mean 3 s: mean and standard deviation within 4 standard errors, 1 false alarm in 10,000."""
    think_s = drawn(*LOOP, "workload.requests=20000", "workload.think_time_s=3").think_s
    assert abs(think_s.mean() - 3.0) < 4 * 3.0 / math.sqrt(20_000)
    assert abs(think_s.std() - 3.0) < 4 * 3.0 * math.sqrt(2.0) / math.sqrt(20_000)


def test_turns_that_wait_pause_as_long_as_turns_that_do_not_are_apart() -> None:
    """The same draw: the gap between arrivals there, from the end of an answer to the next arrival here."""
    waits, apart = drawn(*PARTLY), drawn(*PARTLY, "workload.turns.after_answer=false")
    of_first = np.flatnonzero(waits.session == waits.session[0])
    assert len(of_first) > 1
    same = apart.session == waits.session[0]
    arrival_s = apart.arrival_s[same]
    assert waits.think_s[of_first[:-1]] == pytest.approx(np.diff(arrival_s))
    assert waits.arrival_s[0] == arrival_s[0]
    assert np.array_equal(
        waits.prompt_tokens[of_first], apart.prompt_tokens[apart.session == waits.session[0]]
    )


def test_clients_are_part_of_what_a_workload_is() -> None:
    assert len({digest_of(drawn(*LOOP, *more)) for more in ([], ["workload.max_concurrency=7"])}) == 2
    assert drawn(*LOOP, "workload.max_concurrency=500").clients == 300


# ---- a run ----


def test_clients_obey_the_interactive_response_time_law() -> None:
    """N = X (R + Z) (Denning and Buzen, ACM Computing Surveys 1978), but for what the ends of a run cut off.

    Over the time T until its last request has ended, a client thinks after that one at most until T.
    """
    run = run_of(*LOOP, "workload.think_time_s=0.2")
    stay_s, think_s = ends_s(run) - run.requests["arrival_s"], run.requests["think_s"]
    whole_s = ends_s(run).max()
    throughput, response_s = len(stay_s) / whole_s, stay_s.mean() + think_s.mean()
    idle_s = 6 * (stay_s.max() + think_s.max())
    assert 6 * whole_s - idle_s <= (stay_s + think_s).sum() <= 6 * whole_s + 6 * think_s.max()
    assert throughput * response_s == pytest.approx(6, rel=0.05)


def test_a_trace_of_the_arrivals_that_clients_made_is_the_same_run(tmp_path: Path) -> None:
    """Through the whole tool, speculation included: every column of the log, byte for byte."""
    closed = run_of(*LOOP, "cluster.instances=2", "workload.think_time_s=0.05")
    names = ("arrival_s", "prompt_tokens", "max_tokens")
    rows = zip(*(closed.requests[name].tolist() for name in names), strict=True)
    keys = ("arrival_s", "prompt_tokens", "output_tokens")
    trace = tmp_path / "arrivals.jsonl"
    trace.write_text("".join(json.dumps(dict(zip(keys, row, strict=True))) + "\n" for row in rows))
    again = run_of(f"workload.trace={trace}", "cluster.instances=2")
    for name in closed.log.dtype.names:  # type: ignore[attr-defined]
        assert closed.log[name].tobytes() == again.log[name].tobytes(), name


def test_a_run_reports_its_requests_in_order_of_arrival() -> None:
    run = run_of(*PARTLY)
    assert np.all(np.diff(run.requests["arrival_s"]) >= 0.0)
    assert not np.all(np.diff(run.requests["session"]) >= 0)
    assert np.all(run.log["first_token_s"] > run.requests["arrival_s"])


def test_turns_after_one_without_an_answer_are_counted_and_said() -> None:
    run = run_of(*LOOP, *TALKS, "workload.timeout_s=0.25")
    timed_out = run.log["outcome"] == Outcome.timed_out
    broken = set(run.requests["session"][timed_out].tolist())
    whole = drawn(*LOOP, *TALKS).session
    sent = np.isin(whole, list(broken)).sum() - np.isin(run.requests["session"], list(broken)).sum()
    assert timed_out.any()
    assert run.unsent == sent > 0
    assert (
        f"{run.unsent} turns were never sent: a conversation ends with a turn that gets no answer"
        in text_of(run)
    )


def test_nobody_sends_after_the_duration_of_a_closed_loop() -> None:
    run = run_of(*LOOP, "workload.duration_s=1", "workload.requests=300")
    assert 0 < len(run.log) < 300
    assert run.requests["arrival_s"].max() < 1.0
    assert run.unsent == 0


@pytest.mark.parametrize("overrides", [LOOP, [*LOOP, *TALKS], PARTLY])
def test_a_run_in_slices_is_the_same_run(monkeypatch: pytest.MonkeyPatch, overrides: Sequence[str]) -> None:
    whole, reports = run_of(*overrides), list[int]()
    monkeypatch.setattr("cluster_sim.run.REQUESTS_PER_SLICE", 20)
    sliced = simulate(compose(overrides), lambda done, _: reports.append(done))
    assert whole.log.tobytes() == sliced.log.tobytes()  # type: ignore[attr-defined]
    assert len(reports) > 3
    assert reports == sorted(reports)
    assert reports[-1] == 300


def test_clients_that_wait_are_simulated_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    config = compose([*LOOP, "cluster.instances=2"])

    def no_ray(*_: object) -> None:
        raise AssertionError("Ray was asked for")

    monkeypatch.setattr(executors, "drive_hosts", no_ray)
    run = simulate(config, run=drive_of(ExecutorConfig(ExecutorKind.ray)))
    assert np.all(run.log["outcome"] == Outcome.completed)


def test_a_limit_holds_requests_back_at_the_client() -> None:
    """As vLLM's --max-concurrency beside --request-rate: what is held is in no latency, and in the queue."""
    run = run_of("workload.request_rate=60", "workload.requests=600", "workload.max_concurrency=24")
    assert run.due_s is not None
    assert np.array_equal(run.due_s, drawn("workload.request_rate=60", "workload.requests=600").arrival_s)
    summary = summarise(run)
    held_s = run.requests["arrival_s"] - run.due_s
    assert held_s.min() == 0.0
    assert summary["clients"]["held_s"]["mean"] == pytest.approx(held_s.mean())
    assert summary["clients"]["limit"] == summary["clients"]["in_flight"]["max"] == 24
    assert summary["clients"]["number"] is None
    assert summary["saturated"]
    assert summary["ttft_s"]["p99"] < 0.2 < held_s.mean()
    text = text_of(run)
    assert "poisson 60 requests/s, at most 24 under way, seed 0" in text
    assert f"those due waited {held_s.mean():.2f} s at the client on average, which is in no latency" in text


def test_a_limit_that_is_not_reached_changes_no_result() -> None:
    free, limited = (
        run_of("workload.requests=200", *limit) for limit in ([], ["workload.max_concurrency=200"])
    )
    assert free.log.tobytes() == limited.log.tobytes()  # type: ignore[attr-defined]
    assert summarise(limited)["clients"]["held_s"]["p99"] == 0.0


# ---- what is said of it ----


def test_a_closed_loop_says_how_many_requests_were_in_flight_and_judges_no_queue() -> None:
    run = run_of(*LOOP)
    summary = summarise(run)
    assert summary["clients"]["number"] == summary["clients"]["in_flight"]["max"] == 6
    assert 5.5 < summary["clients"]["in_flight"]["mean"] <= 6.0
    assert summary["clients"]["largest_batch"] <= 6
    assert summary["saturated"] is None
    assert batch_means(run)["reason"] != "too few arrivals to tell whether the cluster keeps up with them"
    text = text_of(run)
    assert "closed loop of 6 clients: " in text
    assert "requests in flight on average, at most 6; the queue cannot grow beyond them" in text
    assert "too few arrivals" not in text


def test_turns_that_wait_are_said_to() -> None:
    text = text_of(run_of(*PARTLY))
    assert "conversations of 3 turns on average, each after the answer to the one before" in text
    assert "turns wait for the answer before: " in text


def test_the_most_requests_in_flight_make_room_as_they_end() -> None:
    assert most_in_flight(np.array([0.0, 0.0, 1.0, 3.0]), np.array([1.0, 3.0, 4.0, 5.0])) == 2
    assert most_in_flight(np.zeros(0), np.zeros(0)) == 0


def entry_of(clients: int | None, largest: float) -> dict[str, object]:
    number = None if clients is None else {"value": clients}
    seen = {"number": number, "largest_batch": {"value": largest}}
    return {
        "axes": {"workload.max_concurrency": clients},
        "clients": seen,
    }


def flip_of(last: int, largest: int = 256) -> list[dict[str, object]]:
    return [{"axes": {}, "tables_pay_at": [[1, last]], "tables_largest": largest}]


def test_a_sweep_of_closed_loops_below_the_tables_flip_says_so_with_both_figures() -> None:
    arms = {"K=1": [entry_of(4, 4.0), entry_of(8, 7.5)], "K=3": [entry_of(8, 8.0)], "K=5": [entry_of(8, 8.0)]}
    flips = {"K=1": flip_of(55), "K=3": flip_of(30), "K=5": flip_of(6)}
    assert list(below_the_flip({"arms": arms, "flips": flips})) == [
        "The closed loop never visits the crossover: its largest batch was 8, and by the tables K=1 pays "
        "up to batch 55, K=3 pays up to batch 30: raise workload.max_concurrency, or offer requests at a "
        "rate (workload=poisson)."
    ]


def test_a_sweep_that_reaches_the_flip_or_has_none_or_is_open_says_nothing_of_it() -> None:
    reaches = {"arms": {"K=1": [entry_of(8, 8.0)]}, "flips": {"K=1": flip_of(8)}}
    without = {"arms": {"K=1": [entry_of(8, 8.0)]}, "flips": {"K=1": flip_of(256)}}
    opened = {"arms": {"K=1": [entry_of(None, 8.0)]}, "flips": {"K=1": flip_of(55)}}
    for comparison in (
        reaches,
        without,
        opened,
        {"arms": {"K=1": [{"axes": {}}]}, "flips": {"K=1": flip_of(55)}},
    ):
        assert list(below_the_flip(comparison)) == []


def test_a_run_of_a_closed_loop_below_the_flip_says_so() -> None:
    optimum = {"pays_with_prefills_at": [[1, 55]], "largest_with_prefills": 256}
    clients = {"number": 8, "largest_batch": 8}
    assert list(run_below_the_flip({"clients": clients, "optimum": optimum})) == [
        "the closed loop never visits the crossover: its largest batch was 8, and by the tables drafting "
        "pays up to batch 55: raise workload.max_concurrency, or offer requests at a rate (workload=poisson)"
    ]
    assert list(run_below_the_flip({"clients": clients | {"largest_batch": 55}, "optimum": optimum})) == []
    assert list(run_below_the_flip({"optimum": optimum})) == []


def test_a_sweep_over_clients_shows_them_and_what_it_cannot_show(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["sweep.axes.workload.max_concurrency=[1,4]", "sweep.seeds=[0,1]", "workload.requests=60"]
    assert swept(tmp_path, "+sweep=concurrency", "workload.output_tokens=30", "output.page=true", *small) == 0
    shown = capsys.readouterr().out
    assert "clients" in shown
    words = "The closed loop never visits the crossover: its largest batch was 4, and by the tables"
    assert words in " ".join(shown.split())
    assert words in (tmp_path / "report.html").read_text()


# ---- what is refused ----


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        (
            ["workload=closed_loop", "workload.request_rate=8"],
            "request_rate has no effect with arrivals=closed_loop, but got 8.0 (workload.request_rate). "
            "Set it to null, or choose poisson or gamma or constant or diurnal.",
        ),
        (
            ["workload.max_concurrency=8", *TALKS],
            "a limit on what is under way holds requests back, and not turns of conversations, but got 8 "
            "(workload.max_concurrency). Leave it or workload.turns out, or choose workload=closed_loop.",
        ),
        (
            ["workload.think_time_s=1"],
            "think_time_s has no effect with arrivals=poisson, but got 1.0 (workload.think_time_s). "
            "Set it to null, or choose closed_loop.",
        ),
        (
            ["workload=closed_loop", "workload.max_concurrency=null"],
            "arrivals=closed_loop needs max_concurrency, but got null (workload.max_concurrency). "
            "Choose workload=closed_loop, which sets it, or set it.",
        ),
        (
            ["workload=closed_loop", "workload.max_concurrency=0"],
            "the number of clients must be at least 1, but got 0 (workload.max_concurrency). "
            "Set workload.max_concurrency to 1 or more.",
        ),
        (
            ["workload=closed_loop", "workload.duration_s=9"],
            "a closed loop needs the number of its requests, which no rate tells, but got null "
            "(workload.requests). Set it; workload.duration_s may end the loop earlier.",
        ),
        (
            ["workload=closed_loop", "workload.turns.mean=3", "workload.turns.gap_s=1"],
            "a client of a closed loop waits for an answer, but got false (workload.turns.after_answer). "
            "Set it to true.",
        ),
        (
            ["workload.turns.after_answer=true"],
            "after_answer has no effect without turns, but got true (workload.turns.after_answer). "
            "Set workload.turns.mean, or leave it out.",
        ),
        (
            ["workload=closed_loop", "workload.trace=a.csv"],
            "max_concurrency has no effect with a trace, which has its own times, but got 16 "
            "(workload.max_concurrency). Leave workload.max_concurrency or the trace out.",
        ),
        (
            ["workload=closed_loop", "cluster.faults=[{kind: stop, instances: [0], from_s: 1}]"],
            "faults are simulated only where no client waits for an answer, but got 1 of them "
            "(cluster.faults). Leave them out, or choose traffic that does not wait, as workload=poisson.",
        ),
        (
            ["workload=closed_loop", "executor=ray", "executor.instances_per_host=1"],
            "instances_per_host has no effect where clients wait for answers, which is simulated in one "
            "process, but got 1 (executor.instances_per_host). Leave it out.",
        ),
    ],
)
def test_what_would_do_nothing_or_is_missing_is_refused(overrides: list[str], text: str) -> None:
    with pytest.raises(UserError) as caught:
        compose(overrides)
    assert str(caught.value) == text
