"""Synthetic traffic: arrivals, common random numbers, and the text of every error.

Statistical tests have fixed seeds; each states how often a right implementation would fail at others.
"""

import math
from typing import Any

import kolmogorov
import numpy as np
import pytest

from cluster_sim.config import WorkloadConfig
from cluster_sim.errors import UserError
from cluster_sim.workload import Workload, build_workload

LOGNORMAL = {"distribution": "lognormal", "mean": 500.0, "cv": 1.5}
COLUMNS = ("arrival_s", "prompt_tokens", "output_tokens", "workload_class", "priority")


def synthetic(seed: int = 0, **values: Any) -> Workload:
    settings = {"requests": 1000, "request_rate": 8.0, "prompt_tokens": 512, "output_tokens": 128}
    return build_workload(WorkloadConfig(**(settings | values)), seed, 16, 0)


def error_of(**values: Any) -> str:
    with pytest.raises(UserError) as caught:
        synthetic(**values)
    return str(caught.value)


def test_gaps_are_exponential_with_the_mean_of_the_rate() -> None:
    """A Poisson process: gaps have P(gap <= t) = 1 - exp(-rate t). KS: false alarm 1e-6."""
    arrival_s = synthetic(requests=20_000, request_rate=8.0).arrival_s
    gaps_s = np.diff(arrival_s, prepend=0.0)
    assert kolmogorov.distance(gaps_s, lambda gap_s: -math.expm1(-8.0 * gap_s)) < kolmogorov.LIMIT
    # The last arrival within 5 standard errors: false alarm 6e-7.
    assert arrival_s[-1] == pytest.approx(20_000 / 8.0, rel=5 / math.sqrt(20_000))


def test_counts_in_a_window_have_the_variance_of_a_poisson_process() -> None:
    """Over 400 seeds mean = variance = rate * duration; each within 5 standard errors: false alarm 1e-6."""
    counts = [
        len(synthetic(seed, requests=None, duration_s=10.0, request_rate=4.0).arrival_s)
        for seed in range(400)
    ]
    assert np.mean(counts) == pytest.approx(40, abs=5 * math.sqrt(40 / 400))
    assert np.var(counts) == pytest.approx(40, rel=5 * math.sqrt((2 + 1 / 40) / 400))


def test_arms_and_rates_are_paired() -> None:
    slow, fast = synthetic(request_rate=2.0), synthetic(request_rate=8.0)
    assert slow.arrival_s == pytest.approx(4 * fast.arrival_s, rel=1e-15)


@pytest.mark.parametrize(
    "values", [{"requests": 700}, {"requests": None, "duration_s": 50.0}, {"duration_s": 50.0}]
)
def test_fewer_requests_are_the_first_of_more(values: dict[str, Any]) -> None:
    lengths: dict[str, Any] = {"prompt_tokens": LOGNORMAL, "output_tokens": LOGNORMAL}
    whole, part = synthetic(**lengths), synthetic(**lengths, **values)
    requests = len(part.arrival_s)
    assert 0 < requests < 1000
    for column in COLUMNS:
        assert np.array_equal(getattr(part, column), getattr(whole, column)[:requests])


def test_a_duration_holds_all_arrivals_before_its_end() -> None:
    whole = synthetic(requests=5000)
    part = synthetic(requests=None, duration_s=100.0)
    assert np.array_equal(part.arrival_s, whole.arrival_s[whole.arrival_s < 100.0])
    assert len(synthetic(requests=10, duration_s=100.0).arrival_s) == 10


def test_seeds_differ_and_one_seed_repeats() -> None:
    assert np.array_equal(synthetic(7).arrival_s, synthetic(7).arrival_s)
    assert not np.any(synthetic(7).arrival_s == synthetic(8).arrival_s)


def test_synthetic_requests_share_nothing() -> None:
    made = synthetic(requests=3)
    assert (made.content_start.tolist(), made.content_ids.size) == ([0, 0, 0, 0], 0)
    assert (made.class_names, made.may_reject, made.warnings) == (("default",), False, ())
    assert made.source == "poisson 8 requests/s, seed 0"


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (
            {"requests": None},
            "the number of requests must be bounded by workload.requests or workload.duration_s, "
            "but got null for both (workload.requests). Set one of them.",
        ),
        (
            {"request_rate": None},
            "traffic without a trace needs this value, but got null (workload.request_rate). "
            "Set it, or give workload.trace.",
        ),
        (
            {"output_tokens": None},
            "traffic without a trace needs this value, but got null (workload.output_tokens). "
            "Set it, or give workload.trace.",
        ),
        (
            {"duration_s": 1e-9},
            "at least one request must arrive before workload.duration_s, but got 1e-09 s at 8 requests/s "
            "(workload.duration_s). Raise it.",
        ),
        (
            {"requests": None, "duration_s": 1e12},
            "a simulation must have at most 2147483647 requests, but got about 8e+12 (workload.duration_s). "
            "Lower the rate or the duration, or set workload.requests.",
        ),
    ],
)
def test_impossible_traffic_gets_its_one_line(values: dict[str, Any], text: str) -> None:
    assert error_of(**values) == text
