"""Processes of arrivals: one suite of laws for all of them, and each one's own rate and gaps.

Statistical tests have fixed seeds; each states how often a right implementation would fail at others. Times
are tested by their integral: for a Poisson process of any rate, L(t_i) - L(t_(i - 1)) is exponential with
mean 1 (the time-rescaling theorem).
"""

import math
from typing import Any

import kolmogorov
import numpy as np
import pytest
from numpy.typing import NDArray

from cluster_sim import draws
from cluster_sim.config import Arrivals, WorkloadConfig
from cluster_sim.engine.kinds import Purpose
from cluster_sim.workload import Workload, build_workload

Floats = NDArray[np.float64]
PROCESSES: dict[str, dict[str, Any]] = {
    "poisson": {"request_rate": 8.0},
    "gamma": {"request_rate": 8.0, "burstiness": 0.3},
    "constant": {"request_rate": 8.0},
    "ramp": {"start_rate": 2.0, "end_rate": 14.0},
    "diurnal": {"request_rate": 8.0, "amplitude": 0.8, "period_s": 50.0},
    "bursts": {"calm_rate": 4.0, "burst_rate": 24.0, "calm_s": 4.0, "burst_s": 1.0},
}


def made(process: str, seed: int = 0, **values: Any) -> Workload:
    settings: dict[str, Any] = {"requests": 2000, "prompt_tokens": 512, "output_tokens": 128}
    config = WorkloadConfig(arrivals=Arrivals[process], **(settings | PROCESSES[process] | values))
    return build_workload(config, seed, 16, 0)


def is_exponential(sample: Floats) -> bool:
    return kolmogorov.distance(sample, lambda value: -math.expm1(-value)) < kolmogorov.LIMIT


@pytest.mark.parametrize("process", PROCESSES)
class TestEveryProcess:
    """What holds of all of them."""

    def test_times_rise_from_above_zero(self, process: str) -> None:
        arrival_s = made(process).arrival_s
        assert arrival_s[0] > 0
        assert np.all(np.diff(arrival_s) >= 0)
        assert np.all(np.isfinite(arrival_s))

    def test_a_run_begins_like_a_longer_one(self, process: str) -> None:
        if process == "ramp":
            values: dict[str, Any] = {"duration_s": 1000.0}  # else the ramp's own time is another
        else:
            values = {}
        short, long = made(process, requests=300, **values), made(process, requests=2000, **values)
        assert np.array_equal(short.arrival_s, long.arrival_s[:300])

    def test_a_duration_holds_all_arrivals_before_its_end(self, process: str) -> None:
        held = made(process, requests=None, duration_s=40.0).arrival_s
        more = made(process, requests=2 * len(held) + 50, duration_s=None).arrival_s
        assert held[-1] < 40.0
        if process != "ramp":  # whose time is another without a duration
            assert np.array_equal(held, more[more < 40.0])

    def test_seeds_differ_and_one_seed_repeats(self, process: str) -> None:
        assert np.array_equal(made(process, 7).arrival_s, made(process, 7).arrival_s)
        assert process == "constant" or not np.any(made(process, 7).arrival_s == made(process, 8).arrival_s)

    def test_the_mean_rate_is_what_it_says(self, process: str) -> None:
        """8 requests/s over 2500 s, for all of these settings; within 6 standard errors: false alarm 2e-9.

        Counts of a process whose gaps have squared cv c2 vary by c2 of their mean; bursts add
        2 (rate difference)^2 p (1 - p) tau t with p = 0.2 in bursts, 1 / tau = 1 / 4 + 1 / 1 (Fischer and
        Meier-Hellstern 1993, equation 8, to first order).
        """
        count = len(made(process, requests=None, duration_s=2500.0).arrival_s)
        variance = {"gamma": 20_000 / 0.3, "bursts": 20_000 + 2 * 20.0**2 * 0.16 * 0.8 * 2500}
        assert count == pytest.approx(20_000, abs=6 * math.sqrt(variance.get(process, 20_000)))

    def test_lengths_do_not_depend_on_the_process(self, process: str) -> None:
        drawn = {"distribution": "lognormal", "mean": 500.0, "cv": 1.5}
        one, other = made(process, prompt_tokens=drawn), made("poisson", prompt_tokens=drawn)
        assert np.array_equal(one.prompt_tokens, other.prompt_tokens)


def test_rates_stretch_the_same_pattern() -> None:
    for process in ("poisson", "gamma", "constant"):
        slow, fast = made(process, request_rate=2.0), made(process)
        assert slow.arrival_s == pytest.approx(4 * fast.arrival_s, rel=1e-12)


@pytest.mark.parametrize("shape", [0.3, 1.0, 4.0])
def test_gaps_of_burstiness_are_gamma(shape: float) -> None:
    """KS against the gamma distribution by its series (DLMF 8.7.1): false alarm 1e-6.

    Mean 1 / rate and squared cv 1 / burstiness, as vLLM has them: mean within 6 standard errors, 2e-9.
    """
    gaps_s = np.diff(made("gamma", requests=4000, burstiness=shape).arrival_s, prepend=0.0)

    def cdf(gap_s: float) -> float:
        x = gap_s * 8.0 * shape
        term = total = 1.0 / shape
        for n in range(1, 400):
            term *= x / (shape + n)
            total += term
        return total * math.exp(-x + shape * math.log(x) - math.lgamma(shape)) if x > 0 else 0.0

    assert kolmogorov.distance(gaps_s, cdf) < kolmogorov.LIMIT
    assert gaps_s.mean() == pytest.approx(1 / 8, rel=6 / math.sqrt(4000 * shape))


def test_gamma_draws_are_those_of_their_request_alone() -> None:
    whole = draws.gammas(3, Purpose.arrivals, 500, 0.5)
    assert np.array_equal(whole[:100], draws.gammas(3, Purpose.arrivals, 100, 0.5))


def test_ends_on_time_is_vllms_rescaling() -> None:
    """`vllm bench serve`: all times stretched so that the last one is num_prompts / request_rate."""
    plain, scaled = made("gamma"), made("gamma", ends_on_time=True)
    assert scaled.arrival_s[-1] == pytest.approx(2000 / 8.0, rel=1e-15)
    assert scaled.arrival_s == pytest.approx(plain.arrival_s * (250.0 / plain.arrival_s[-1]), rel=1e-12)


def test_constant_arrivals_are_a_gap_apart() -> None:
    assert made("constant", requests=4).arrival_s.tolist() == [0.125, 0.25, 0.375, 0.5]


@pytest.mark.parametrize(("start", "end"), [(2.0, 14.0), (14.0, 2.0), (0.0, 16.0), (16.0, 0.0)])
def test_a_ramp_is_a_poisson_process_of_its_rate(start: float, end: float) -> None:
    """L(t) = start t + (end - start) t^2 / 2 T. KS: false alarm 1e-6."""
    time_s = made("ramp", requests=None, duration_s=600.0, start_rate=start, end_rate=end).arrival_s
    integral = start * time_s + (end - start) * time_s**2 / (2 * 600.0)
    assert is_exponential(np.diff(integral, prepend=0.0))
    halves = (time_s < 300.0).sum(), (time_s >= 300.0).sum()
    expected = (3 * start + end) / 8 * 600, (start + 3 * end) / 8 * 600
    assert halves == pytest.approx(expected, abs=6 * math.sqrt(max(expected)))


def test_a_ramp_without_a_duration_takes_the_time_of_its_requests() -> None:
    """2000 requests at (2 + 14) / 2 requests/s: 250 s, then the last rate. KS: false alarm 1e-6."""
    time_s = made("ramp").arrival_s
    inside = np.minimum(time_s, 250.0)
    integral = 2.0 * inside + 12.0 * inside**2 / 500.0 + 14.0 * (time_s - inside)
    assert is_exponential(np.diff(integral, prepend=0.0))


def test_a_day_is_a_poisson_process_of_its_rate() -> None:
    """L(t) = rate (t + a (1 - cos wt) / w). KS: false alarm 1e-6."""
    time_s, angular = made("diurnal", requests=5000).arrival_s, 2 * math.pi / 50.0
    integral = 8.0 * (time_s + 0.8 * (1 - np.cos(angular * time_s)) / angular)
    assert is_exponential(np.diff(integral, prepend=0.0))
    phase = time_s % 50.0  # the first half of a period is the high one: 1 + 2 a / pi of the mean
    assert (phase < 25.0).mean() == pytest.approx(0.5 + 0.8 / math.pi, abs=0.03)


def test_bursts_come_and_go_with_their_rates_and_times() -> None:
    """Gaps of a Markov-modulated Poisson process (Fischer and Meier-Hellstern 1993): phase-type.

    P(gap > t) = p exp((Q - R) t) 1 with p the state just after an arrival; KS on gaps thinned to every 40th,
    which are all but independent (5 mean dwell times apart): false alarm 1e-6.
    """
    rates, leave = np.array([4.0, 24.0]), np.array([1 / 4.0, 1 / 1.0])
    generator = np.array([[-leave[0], leave[0]], [leave[1], -leave[1]]]) - np.diag(rates)
    after = np.array([0.8, 0.2]) * rates
    after /= after.sum()
    values, vectors = np.linalg.eig(generator)
    weights = (after @ vectors) * np.linalg.solve(vectors, np.ones(2))
    gaps_s = np.diff(made("bursts", requests=160_000).arrival_s)[::40]
    distance = kolmogorov.distance(gaps_s, lambda gap_s: 1.0 - float(weights @ np.exp(values * gap_s)))
    assert distance < kolmogorov.LIMIT


def test_bursts_start_in_the_long_run() -> None:
    """The mean number in the first second is 8 over seeds, not 4 as if all began calm.

    Its variance is at most 8 + 20^2 0.16 = 72; 6 standard errors over 600 seeds: false alarm 2e-9.
    """
    counts = [(made("bursts", seed, requests=60).arrival_s < 1.0).sum() for seed in range(600)]
    assert np.mean(counts) == pytest.approx(8.0, abs=6 * math.sqrt(72 / 600))
