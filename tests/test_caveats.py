"""What the page objects to: each said where it holds, and only there; and which arm it recommends."""

from dataclasses import replace
from typing import Any

import pytest
from paging import CONFIG, against, entry, ratio, row, stored_of

from cluster_sim.report import caveats
from cluster_sim.report.answer import head_of
from cluster_sim.report.recommended import as_fast, recommended
from cluster_sim.report.stored import Kind, Stored

WIN, LOSS, TIE = ratio(0.8, "win"), ratio(1.2, "loss"), ratio(1.0, "tie")
OFF = [entry(1, 0.01), entry(2, 0.02)]


def sweep_of(**arms: tuple[list[Any], list[Any]]) -> Stored:
    """A sweep over two rates: arm -> its entries, and those against `off`."""
    means = {"off": OFF, **{name.replace("_", "="): own for name, (own, _) in arms.items()}}
    return stored_of(means, {name.replace("_", "="): other for name, (_, other) in arms.items()})


def good(speed: float) -> tuple[list[Any], list[Any]]:
    means = [entry(1, 0.01 * speed), entry(2, 0.02 * speed)]
    return means, [against(1, ratio(speed, "win")), against(2, TIE)]


def test_the_fastest_arm_that_is_nowhere_worse_is_recommended() -> None:
    assert recommended(sweep_of(K_1=good(0.8), K_3=good(0.7))) == "K=3"


def test_of_arms_within_1_percent_the_first_is_recommended() -> None:
    assert recommended(sweep_of(K_1=good(0.704), K_3=good(0.7))) == "K=1"


def test_an_arm_that_loses_throughput_or_time_per_token_somewhere_is_not_recommended() -> None:
    means, _ = good(0.5)
    loses_throughput = (means, [against(1, WIN), against(2, WIN, ratio(0.9, "loss"))])
    loses_speed = (means, [against(1, WIN), against(2, LOSS)])
    assert recommended(sweep_of(K_1=loses_throughput, K_3=loses_speed)) is None


def test_time_per_token_at_saturated_points_decides_nothing() -> None:
    means = [entry(1, 0.005), entry(2, 0.05, saturated=1.0)]
    assert recommended(sweep_of(K_1=(means, [against(1, WIN), against(2, LOSS)]))) == "K=1"
    assert recommended(sweep_of(K_1=(means, [against(1, TIE), against(2, WIN)]))) is None


def noisy(values: dict[str, list[float]]) -> Stored:
    """Two arms at one steady rate; arm -> mean TPOT under each seed."""
    rows = [row(arm, 1, seed, tpot) for arm, all_ in values.items() for seed, tpot in enumerate(all_)]
    means = {"off": [entry(1, 0.02)], **{arm: [entry(1, sum(all_) / 3)] for arm, all_ in values.items()}}
    return stored_of(means, {arm: [against(1, WIN)] for arm in values}, rows)


def test_a_winner_inside_the_noise_is_called_so() -> None:
    stored = noisy({"K=1": [0.0110, 0.0115, 0.0120], "K=3": [0.0118, 0.0101, 0.0117]})
    assert recommended(stored) == "K=3"
    assert as_fast(stored, "K=3") == ["K=1"]
    assert caveats.winner_inside_the_noise(stored) == (
        "K=3 is not surely the best: K=1 took the same time per token, over the points without saturation, "
        "within 1% or the noise."
    )
    sure = noisy({"K=1": [0.0130, 0.0131, 0.0132], "K=3": [0.0100, 0.0101, 0.0102]})
    assert caveats.winner_inside_the_noise(sure) is None


def with_rows(**changes: object) -> Stored:
    return stored_of({"off": OFF}, {}, [row("off", 1, 0, 0.01, **changes)])


@pytest.mark.parametrize(
    ("ask", "changes", "words"),
    [
        (
            caveats.drafter_without_cost,
            {"draft_cost": "zero"},
            "The drafter costs nothing in some runs: their gains are an upper bound.",
        ),
        (
            caveats.few_requests,
            {"requests.completed": 450},
            "The smallest run measured 450 requests: a p99 of it rests on the slowest 4.",
        ),
        (
            caveats.long_drain,
            {"drain_s": 2.0, "simulated_s": 20.0},
            "Up to 10% of a run's time comes after its last arrival and counts in throughputs and goodputs, "
            "which read low by as much, those of slower arms the most: simulate more requests.",
        ),
        (caveats.no_slo, {"slo_attainment": None}, "There is no SLO: fast and slow requests count alike."),
        (
            caveats.warm_prefix_cache,
            {"tokens.cached": 300},
            "30% of the prompt tokens came from the prefix cache: with a cold one more of the time goes to "
            "prefills, and speculation gains less.",
        ),
        (
            caveats.acceptance_of_other_text,
            {"acceptance_source": "[published] x: y"},
            "The acceptance was measured on the text of a benchmark, not on your traffic, which may be "
            "accepted more or less: give your own (speculation.acceptance), or see how far the answer holds "
            "with +sweep=acceptance_sensitivity.",
        ),
        (
            caveats.acceptance_of_other_text,
            {"acceptance_source": "[published] x: y", "acceptance_texts": ["GSM8K at temperature 0"]},
            "The acceptance was measured on GSM8K at temperature 0, not on your traffic, which may be "
            "accepted more or less: give your own (speculation.acceptance), or see how far the answer holds "
            "with +sweep=acceptance_sensitivity.",
        ),
        (
            caveats.acceptance_without_source,
            {"acceptance_source": "[given] by the user"},
            "The acceptance was given without a source: name one with speculation.acceptance.source.",
        ),
    ],
)
def test_what_rows_show_is_said_and_only_then(ask: Any, changes: dict[str, Any], words: str) -> None:
    assert ask(with_rows(**changes)) == words
    assert ask(with_rows()) is None


def test_measured_requests_count_where_some_are_cut() -> None:
    assert "measured 99 requests" in str(caveats.few_requests(with_rows(**{"measured.requests": 99})))


def test_the_drain_of_a_saturated_run_is_no_surprise() -> None:
    """There it is the backlog, and throughput the capacity, which is said already."""
    drained = {"drain_s": 2.0, "simulated_s": 20.0}
    assert caveats.long_drain(with_rows(saturated=True, **drained)) is None
    assert caveats.long_drain(with_rows(drain_s=0.5, simulated_s=20.0)) is None


def test_saturation_is_counted_over_all_points() -> None:
    stored = stored_of({"off": [entry(1, 0.01), entry(2, 0.02, saturated=0.5)]}, {})
    assert caveats.saturation(stored) == (
        "1 of 2 points (of any arm) are saturated: throughput is the capacity there for runs of this "
        "length, and latencies grow with it."
    )
    assert caveats.saturation(stored_of({"off": OFF}, {})) is None
    run = replace(stored, kind=Kind.run, summary={"saturated": True})
    assert str(caveats.saturation(run)).startswith("This run is saturated: ")


@pytest.mark.parametrize(
    ("trace", "share", "ending"),
    [
        (None, 0.1, "900 output tokens/s is its capacity in a run of this length."),
        ("day.csv", 0.6, "900 output tokens/s is its capacity in a run of this length."),
        (
            "day.csv",
            0.1,
            "900 output tokens/s is its capacity in a run of this length, unless the trace's own load rose.",
        ),
    ],
)
def test_a_capacity_is_claimed_of_a_trace_only_where_no_burst_explains_the_queue(
    trace: str | None, share: float, ending: str
) -> None:
    summary = {
        "output_throughput_tok_s": 900.0,
        "saturated": True,
        "queue_growth": {"requests": 20.0, "share_of_arrivals": share},
        "tpot_s": {"mean": 0.01},
    }
    made_up = stored_of({}, {}, workload={"trace": trace}, sweep=None)
    stored = replace(made_up, kind=Kind.run, summary=summary)
    assert head_of(stored).answer[0].endswith(f"than it served; {ending}")


def test_an_slo_of_ttft_alone_is_called_blind_to_speculation() -> None:
    slo = {"ttft_s": 0.5, "tpot_s": None, "e2el_s": None}
    assert caveats.slo_of_ttft_alone(stored_of({}, {}, slo=slo)) == (
        "The SLO bounds TTFT alone: it does not see what speculation does to each further token."
    )
    assert caveats.slo_of_ttft_alone(stored_of({}, {})) is None


def test_classes_that_share_a_profile_are_named_and_only_where_something_drafts() -> None:
    classes = {"classes": {"chat": {}, "code": {}, "translation": {}}}
    own = {"method": "eagle3", "acceptance_by_class": {"code": {}}}
    rows = [row("K=1", 1, 0, 0.01)]
    assert caveats.classes_of_one_profile(stored_of({}, {}, rows, workload=classes, speculation=own)) == (
        "The classes chat, translation share one acceptance profile, though kinds of text are accepted "
        "differently: give each its own with speculation.acceptance_by_class."
    )
    both = {"method": "eagle3", "acceptance_by_class": {"code": {}, "chat": {}}}
    assert caveats.classes_of_one_profile(stored_of({}, {}, rows, workload=classes, speculation=both)) is None
    off = [row("off", 1, 0, 0.01, acceptance_source="no speculation")]
    assert caveats.classes_of_one_profile(stored_of({}, {}, off, workload=classes, speculation=own)) is None


def test_step_times_of_a_given_bundle_are_not_called_computed() -> None:
    assert str(caveats.computed_step_times(stored_of({}, {}))).startswith("Step times are computed from")
    given = {**CONFIG["cluster"], "bundle": "mine"}
    assert caveats.computed_step_times(stored_of({}, {}, cluster=given)) is None


def test_one_seed_is_said_where_nothing_has_an_interval() -> None:
    unknown = {**ratio(0.8, "unknown"), "low": None, "high": None}
    compared = [{**against(1, unknown, unknown), "slo_goodput_rps": unknown}]
    stored = stored_of({"off": OFF}, {"K=1": compared})
    assert caveats.one_seed(stored) == (
        "There is one seed: what chance does cannot be told from what an arm does."
    )
    assert caveats.one_seed(stored_of({"off": OFF}, {"K=1": [against(1, WIN)]})) is None


def test_what_the_runs_warned_of_is_repeated_once() -> None:
    rows = [row("off", 1, seed, 0.01, warnings=["the queue is long"]) for seed in range(2)]
    found = caveats.caveats(stored_of({"off": OFF, "K=1": OFF}, {"K=1": [against(1, WIN)]}, rows))
    assert found.count("The queue is long.") == 1
