"""Batch means: what is cut, what batches are, when there is no interval. Coverage: test_coverage.py."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from example_run import example_run
from numpy.typing import NDArray

from cluster_sim.batch_means import ALL_ALIKE, NAMES, NUM_BATCHES, Steady, batch_means, steady_part
from cluster_sim.compose import compose
from cluster_sim.faults import Happened
from cluster_sim.results import Run
from cluster_sim.single import run_single
from cluster_sim.statistics import batch_means_interval, effective_number, mean_interval
from cluster_sim.trial import Trial, run_trial

Floats = NDArray[np.float64]
STAY_S = 50.0


def steady_run(requests: int = 1000, stay_s: Any = STAY_S, overrides: tuple[str, ...] = ()) -> Run:
    """A request a second, served at once: its first token after a tenth of its stay, 10 tokens in all."""
    arrival_s = np.arange(float(requests))
    return example_run(
        overrides,
        requests={"arrival_s": arrival_s, "prompt_tokens": 1, "max_tokens": 10},
        log={
            "scheduled_s": arrival_s,
            "first_token_s": arrival_s + 0.1 * stay_s,
            "last_token_s": arrival_s + stay_s,
            "emitted_tokens": 10,
            "chunks": 10,
            "outcome": example_run().log["outcome"][0],
        },
    )


def part_of(run: Run) -> Steady:
    found = steady_part(run)
    assert isinstance(found, Steady)
    return found


def test_the_warm_up_ends_when_the_system_has_filled_and_the_cool_down_is_a_stay() -> None:
    """Request n finds n others inside until they begin to leave after 50 s: the last arrives at 999 s."""
    part = part_of(steady_run())
    assert (part.start_s, part.end_s) == (49.0, 999.0 - STAY_S)
    assert np.flatnonzero(part.chosen)[[0, -1]].tolist() == [49, 949]


def test_at_most_half_of_the_arrivals_is_warm_up() -> None:
    """The last requests stay longer and longer, which is less than a saturated run."""
    part = part_of(steady_run(stay_s=np.where(np.arange(1000) < 960, 1.0, 30.0)))
    assert part.start_s == 500.0


def test_the_part_is_one_of_the_measured_requests() -> None:
    part = part_of(steady_run(overrides=("workload.warmup=0.3", "workload.cooldown=0.2")))
    assert part.start_s >= 299.0
    assert part.end_s <= 800.0 - STAY_S


def test_every_name_has_a_mean_or_a_reason_and_all_is_json() -> None:
    rng = np.random.default_rng(1)
    found = batch_means(steady_run(2000, rng.uniform(10.0, 20.0, 2000)))
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert list(found["means"]) == list(NAMES)
    ttft = found["means"]["ttft_s"]
    assert ttft["low"] < 1.5 < ttft["high"]
    assert ttft["high"] - ttft["low"] < 0.05  # sd 0.29 over 1,970 requests, and t of 19 degrees: 0.027
    assert 800 < ttft["effective_requests"] < 5000
    assert found["means"]["queue_s"] == {
        **dict.fromkeys(("value", "low", "high", "effective_requests")),
        "reason": ALL_ALIKE,
    }


def test_the_output_rate_of_a_constant_flow_is_that_of_its_arrivals() -> None:
    """Ten tokens a second, whatever the edges of the batches cut; those edges are 45 s apart."""
    rate = batch_means(steady_run())["means"]["output_throughput_tok_s"]
    assert rate["value"] == pytest.approx(10.0, rel=0.01)
    assert rate["effective_requests"] is None


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (steady_run(30), "too few arrivals to tell whether the cluster keeps up with them"),
        (
            steady_run(stay_s=np.linspace(0.0, 900.0, 1000)),
            "the run is saturated: its latencies grow with its length",
        ),
        (steady_run(240), "141 requests between warm-up and cool-down: it takes 200"),
        (
            steady_run(overrides=("workload.warmup=0.9",)),
            "100 requests between warm-up and cool-down: it takes 200",
        ),
        (
            steady_run(overrides=("workload=diurnal",)),
            "the request rate changes during the run (arrivals: diurnal)",
        ),
        (replace(steady_run(), faults=(Happened(0, 1, 1),)), "faults change the cluster during the run"),
    ],
)
def test_a_run_without_a_steady_part_has_no_interval_and_says_why(run: Run, reason: str) -> None:
    found = batch_means(run)
    assert found == {"reason": reason, "batches": NUM_BATCHES, "means": dict.fromkeys(NAMES)}


def test_a_mean_of_few_requests_has_no_interval() -> None:
    run = steady_run(2000, np.random.default_rng(2).uniform(10.0, 20.0, 2000))
    run.log["emitted_tokens"][150:] = 1
    assert batch_means(run)["means"]["tpot_s"]["reason"] == "130 requests have it: it takes 200"


def test_a_mean_of_requests_that_are_nearly_one_has_no_interval() -> None:
    """TTFT swings twice in the run: its batches are as correlated as can be."""
    stay_s = 20.0 + 10.0 * np.sin(np.arange(2000) * 2 * np.pi / 1000)
    reason = batch_means(steady_run(2000, stay_s))["means"]["ttft_s"]["reason"]
    assert reason.startswith("the requests tell as much as ")
    assert reason.endswith(" independent ones, and it takes 10: run longer")


# ---- the interval ----


def test_batches_without_correlation_and_skewness_leave_student_s_interval() -> None:
    batches = [1.0, 3.0, 1.0, 3.0, 1.0, 3.0]  # neighbours are opposed: nothing is gained by that
    found, student = batch_means_interval(batches), mean_interval(batches)
    assert (found.value, found.low, found.high) == pytest.approx((student.value, student.low, student.high))


def test_correlated_batches_widen_the_interval_by_their_correlation() -> None:
    """Deviations -1, -1, 1, 1: lag one is (1 - 1 + 1) / 4 = 1/4, so the variance is 5/3 of Student's."""
    batches = [1.0, 1.0, 3.0, 3.0]
    found, student = batch_means_interval(batches), mean_interval(batches)
    assert (found.high - found.low) / (student.high - student.low) == pytest.approx((5 / 3) ** 0.5)
    assert effective_number([1.0, 3.0], batches) == pytest.approx(1.0 / ((5 / 3) * (4 / 3) / 4))


def test_skewed_batches_reach_further_on_the_side_of_the_tail() -> None:
    found = batch_means_interval([1.0, 2.0, 1.0, 2.0, 1.0, 9.0, 1.0, 2.0])
    assert found.high - found.value > 1.5 * (found.value - found.low)
    mirrored = batch_means_interval([-1.0, -2.0, -1.0, -2.0, -1.0, -9.0, -1.0, -2.0])
    assert (-mirrored.low, -mirrored.high) == pytest.approx((found.high, found.low))


def test_batches_that_are_alike_are_certain() -> None:
    found = batch_means_interval([2.0] * 20)
    assert (found.low, found.value, found.high) == (2.0, 2.0, 2.0)


@pytest.mark.parametrize("correlation", [0.0, 0.2])
def test_the_interval_covers_the_mean_of_skewed_and_correlated_batches(correlation: float) -> None:
    """2,000 studies of 20 batches: gamma(4) deviations, as an autoregression of order one.

    binomial(2000, 0.95) has standard deviation 9.7. The corrections are of first order and 20 batches tell
    their correlation badly: 92 to 97 % are asked for. Student's interval holds it in 90 % at most.
    """
    rng = np.random.default_rng(3)
    steps = rng.gamma(4.0, 1.0, (2000, 70)) - 4.0
    values = np.zeros_like(steps)
    for place in range(1, 70):
        values[:, place] = correlation * values[:, place - 1] + steps[:, place]
    held = sum(found.low <= 0.0 <= found.high for found in map(batch_means_interval, values[:, 50:]))
    assert 1840 <= held <= 1940
    if correlation > 0:
        assert sum(found.low <= 0.0 <= found.high for found in map(mean_interval, values[:, 50:])) < 1800


def test_one_simulation_has_batch_means_and_a_trial_of_a_sweep_has_none(tmp_path: Path) -> None:
    config = compose(["workload.requests=500", f"output.dir={tmp_path}"])
    done = run_single(config, lambda *_: None)
    assert done.summary["batch_means"] == batch_means(done.run)
    assert done.summary["batch_means"]["means"]["e2el_s"]["value"] is not None
    row = run_trial(Trial(0, "off", {}, 0, config)).row
    assert not [name for name in row if name.startswith("batch_means")]
