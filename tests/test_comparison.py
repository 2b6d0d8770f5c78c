"""Arms against the baseline: paired, by aggregates, and with a verdict that follows the interval."""

import json
import math
from typing import Any

import numpy as np
import pytest

from cluster_sim.comparison import RATE_AXIS, compare_arms, verdict
from cluster_sim.statistics import Interval, mean_interval, ratio_interval
from cluster_sim.trials import Row

SEEDS = (0, 1, 2)


def row(arm: str, rate: float, seed: int, throughput: float, tpot_s: float | None, **others: Any) -> Row:
    return {
        "trial": 0,
        "arm": arm,
        RATE_AXIS: rate,
        "seed": seed,
        "output_throughput_tok_s": throughput,
        "tpot_s.mean": tpot_s,
        "ttft_s.p99": tpot_s and tpot_s * rate,
        "slo_goodput_rps": None,
        "saturated": rate > 8,
        **others,
    }


def rows() -> list[Row]:
    """An arm that halves TPOT at every rate and loses a tenth of the throughput from 16 requests/s."""
    noise = {0: 1.0, 1: 1.02, 2: 0.97}
    return [
        row(arm, rate, seed, 100 * rate * noise[seed] * factor, 0.02 * noise[seed] * speed)
        for rate in (2, 8, 16, 32)
        for seed in SEEDS
        for arm, factor, speed in (("off", 1.0, 1.0), ("K=3", 0.9 if rate >= 16 else 1.0, 0.5 + seed / 1000))
    ]


def test_the_means_of_an_arm_have_student_s_intervals() -> None:
    (point, *_) = compare_arms(rows(), "off", [RATE_AXIS])["arms"]["off"]
    expected = mean_interval([200.0, 204.0, 194.0])
    assert point["axes"] == {RATE_AXIS: 2}
    assert point["seeds"] == [0, 1, 2]
    assert point["output_throughput_tok_s"] == pytest.approx(
        {"value": expected.value, "low": expected.low, "high": expected.high}
    )
    assert point["tpot_s"]["mean"]["value"] == pytest.approx(0.02 * 2.99 / 3)
    assert point["slo_goodput_rps"] is None


def test_ratios_are_paired_by_seed_and_of_aggregates() -> None:
    found = compare_arms(rows(), "off", [RATE_AXIS])["vs_baseline"]
    assert list(found) == ["K=3"]
    tpot = found["K=3"][0]["tpot_s"]
    noise = np.array([1.0, 1.02, 0.97])
    expected = ratio_interval(noise * [0.5, 0.501, 0.502], noise)
    assert tpot["ratio"] == pytest.approx(expected.value)
    assert (tpot["low"], tpot["high"]) == pytest.approx((expected.low, expected.high))
    assert tpot["high"] - tpot["low"] < 0.01  # unpaired, the noise of 2 % would make it 0.06
    assert tpot["verdict"] == "win"


def test_the_crossover_is_the_lowest_rate_at_which_the_arm_loses() -> None:
    found = compare_arms(rows(), "off", [RATE_AXIS])["crossover"]
    assert found == {
        "axis": RATE_AXIS,
        "arms": {
            "K=3": [
                {
                    "axes": {},
                    "output_throughput_tok_s": 16,
                    "ttft_p99_s": None,
                    "tpot_s": None,
                    "slo_goodput_rps": None,
                }
            ]
        },
    }


def test_every_combination_of_the_other_axes_has_a_crossover_of_its_own() -> None:
    twice = [
        {
            **trial,
            "router": router,
            "output_throughput_tok_s": trial["output_throughput_tok_s"]
            * (factor if trial["arm"] == "K=3" else 1.0),
        }
        for router, factor in (("round_robin", 1.0), ("least_requests", 0.5))
        for trial in rows()
    ]
    found = compare_arms(twice, "off", ["router", RATE_AXIS])["crossover"]["arms"]["K=3"]
    assert [(group["axes"]["router"], group["output_throughput_tok_s"]) for group in found] == [
        ("round_robin", 16),
        ("least_requests", 2),
    ]


def test_without_an_axis_of_numbers_there_is_no_crossover() -> None:
    renamed = [{**trial, "router": str(trial.pop(RATE_AXIS))} for trial in rows()]
    assert compare_arms(renamed, "off", ["router"])["crossover"] == {"axis": None, "arms": {}}
    assert compare_arms(rows()[:6], "off", [])["crossover"] == {"axis": None, "arms": {}}


def test_one_seed_gives_values_and_no_verdict() -> None:
    found = compare_arms([trial for trial in rows() if trial["seed"] == 0], "off", [RATE_AXIS])
    ratio = found["vs_baseline"]["K=3"][2]["output_throughput_tok_s"]
    assert ratio == {"ratio": pytest.approx(0.9), "low": None, "high": None, "verdict": "unknown"}
    assert found["crossover"]["arms"]["K=3"][0]["output_throughput_tok_s"] is None
    json.dumps(found, allow_nan=False)


def test_only_seeds_that_both_arms_have_are_compared() -> None:
    short = [trial for trial in rows() if not (trial["arm"] == "off" and trial["seed"] == 2)]
    ratio = compare_arms(short, "off", [RATE_AXIS])["vs_baseline"]["K=3"][0]["output_throughput_tok_s"]
    assert (ratio["ratio"], ratio["low"]) == pytest.approx((1.0, 1.0))


def test_a_baseline_of_nothing_has_no_ratio() -> None:
    nothing = [row(arm, 2, seed, 0.0, None) for arm in ("off", "K=3") for seed in SEEDS]
    found = compare_arms(nothing, "off", [RATE_AXIS])["vs_baseline"]["K=3"][0]
    assert found["output_throughput_tok_s"] is found["tpot_s"] is None


def test_words_lists_and_flags_of_the_seeds_become_one() -> None:
    trials = [
        row("off", 2, seed, 1.0, 1.0, draft_cost="bundle", saturated=seed == 0, warnings=["!"] * seed)
        | {"acceptance_by_position": [0.5 + seed, 0.25], "word": str(seed), "tokens.drafted": seed}
        for seed in SEEDS
    ]
    (point,) = compare_arms(trials, "off", [RATE_AXIS])["arms"]["off"]
    assert point["draft_cost"] == "bundle"
    assert point["word"] is None
    assert point["saturated"] == pytest.approx(1 / 3)
    assert point["warnings"] == ["!"]
    assert [entry["value"] for entry in point["acceptance_by_position"]] == [1.5, 0.25]
    assert point["tokens"]["drafted"]["value"] == 1.0


@pytest.mark.parametrize(
    ("ratio", "more_is_better", "expected"),
    [
        (Interval(1.1, 1.05, 1.15), True, "win"),
        (Interval(1.1, 1.05, 1.15), False, "loss"),
        (Interval(0.9, 0.85, 0.95), True, "loss"),
        (Interval(0.9, 0.85, 0.95), False, "win"),
        (Interval(1.1, 0.99, 1.21), True, "tie"),
        (Interval(0.995, 0.994, 0.996), True, "tie"),  # sure, and too small to act on
        (Interval(1.1, -math.inf, math.inf), True, "unknown"),
    ],
)
def test_the_verdict_follows_the_interval(ratio: Interval, more_is_better: bool, expected: str) -> None:
    assert verdict(ratio, more_is_better) == expected


def test_a_histogram_as_long_as_the_largest_batch_stays_with_its_trial() -> None:
    some = [{**one, "batch_size.histogram": [0, 3], "batch_size.mean": 1.0} for one in rows()]
    (point, *_) = compare_arms(some, "off", [RATE_AXIS])["arms"]["off"]
    assert point["batch_size"].keys() == {"mean"}
