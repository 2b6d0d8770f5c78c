"""Saturated, or only busy: queues whose utilisation is known.

False alarms: measured over 200 seeds of 2,000 requests, a stable M/D/1 queue at utilisation 0.8 was called
saturated 0 times and one at 0.95 once; an overloaded one at 1.2 was missed 0 times.
"""

import numpy as np
import pytest
from example_run import example_run
from numpy.typing import NDArray

from cluster_sim.engine.kinds import Outcome
from cluster_sim.saturation import Growth, growth, growth_of_queue, warnings_of_growth

Floats = NDArray[np.float64]
SEEDS = range(20)


def single_server(utilisation: float, requests: int, seed: int) -> tuple[Floats, Floats]:
    """M/D/1 with a service time of 1 s: arrivals and departures."""
    arrival_s = np.cumsum(np.random.default_rng(seed).exponential(1 / utilisation, requests))
    served = np.arange(requests)
    return arrival_s, np.maximum.accumulate(
        arrival_s - served
    ) + served + 1.0  # Lindley's recursion, unrolled


def infinite_servers(rate: float, stay_s: float, requests: int, seed: int) -> tuple[Floats, Floats]:
    """M/G/inf with lognormal times in the system: never saturated, however many are inside."""
    rng = np.random.default_rng(seed)
    arrival_s = np.cumsum(rng.exponential(1 / rate, requests))
    return arrival_s, arrival_s + stay_s * rng.lognormal(-0.125, 0.5, requests)


@pytest.mark.parametrize("utilisation", [0.3, 0.8, 0.9])
def test_a_stable_queue_is_not_saturated(utilisation: float) -> None:
    assert not any(growth(*single_server(utilisation, 2000, seed)).is_saturated for seed in SEEDS)


@pytest.mark.parametrize("utilisation", [1.2, 1.5, 3.0])
def test_an_overloaded_queue_is_saturated(utilisation: float) -> None:
    assert all(growth(*single_server(utilisation, 2000, seed)).is_saturated for seed in SEEDS)


def test_the_growth_of_an_overloaded_queue_tells_its_utilisation() -> None:
    """Of the requests that arrive, 1 - 1 / utilisation stay: to 3 standard deviations of 1,000 arrivals."""
    shares = [growth(*single_server(1.5, 2000, seed)).share_of_arrivals for seed in SEEDS]
    assert np.mean([share or 0.0 for share in shares]) == pytest.approx(
        1 / 3, abs=3 * 0.035 / len(SEEDS) ** 0.5
    )


def test_a_busy_cluster_is_not_saturated() -> None:
    """About 200 requests inside at any time, for 6 s each, in a run of a minute."""
    assert not any(growth(*infinite_servers(32.0, 6.0, 2000, seed)).is_saturated for seed in SEEDS)


def test_traffic_that_doubles_is_not_saturation() -> None:
    slow, fast = np.arange(0.0, 500.0, 1.0), np.arange(500.0, 1000.0, 0.5)
    arrival_s = np.concatenate([slow, fast])
    assert growth(arrival_s, arrival_s + 5.0).is_saturated is False


@pytest.mark.parametrize("arrival_s", [np.zeros(500), np.arange(30.0), np.zeros(0)])
def test_nobody_can_tell_from_few_arrivals_or_from_a_single_moment(arrival_s: Floats) -> None:
    assert growth(arrival_s, arrival_s + 1.0) == Growth(None, None, None)


def test_rejected_requests_are_not_in_the_system_and_cancelled_ones_leave() -> None:
    arrival_s = np.arange(400.0)
    outcome = np.array([int(Outcome.rejected), int(Outcome.cancelled)] * 200)
    run = example_run(
        requests={
            "arrival_s": arrival_s,
            "abort_s": arrival_s + 2.0,
            "prompt_tokens": 1,
            "max_tokens": 1,
        },
        log={
            **dict.fromkeys(("scheduled_s", "first_token_s", "last_token_s"), np.nan),
            **dict.fromkeys(("emitted_tokens", "chunks"), 0),
            "outcome": outcome,
        },
    )
    found = growth_of_queue(run)
    assert found.requests == pytest.approx(0.0, abs=0.5)
    assert found.is_saturated is False


def test_only_growth_that_a_trace_may_have_brought_along_is_doubted() -> None:
    traced, drawn = example_run(overrides=("workload.trace=day.csv",)), example_run()
    burst, overload = Growth(20.0, 0.14, True), Growth(3000.0, 0.53, True)
    assert warnings_of_growth(traced, burst) == [
        "a burst or a busier hour at the end of a trace looks like saturation: replay more to tell them apart"
    ]
    assert warnings_of_growth(traced, overload) == []
    assert warnings_of_growth(traced, Growth(1.0, 0.01, False)) == []
    assert warnings_of_growth(drawn, burst) == []
