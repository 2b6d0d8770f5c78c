"""When drawn requests arrive: the processes of workload.arrivals, by their first arrivals.

Each is a function of the draws of a request's own stream, so a longer run begins with the same arrivals, and
the same process at another rate is the same pattern, stretched. A rate that changes with time is followed
exactly, by inversion (Cinlar 1975): where U_1 < U_2 < .. is a Poisson process of rate 1 and L(t) the integral
of the rate from 0 to t, the times with L(t_i) = U_i are a Poisson process with that rate.

    ramp      from start_rate to end_rate over T = duration_s, or where that is null the time in which
              `requests` are expected, 2 requests / (start_rate + end_rate); end_rate from there on
    diurnal   request_rate (1 + amplitude sin(2 pi t / period_s))
    bursts    calm_rate or burst_rate for exponential times of mean calm_s or burst_s in turn: a Markov-
              modulated Poisson process of two states, stationary from the start
    gamma     gaps of mean 1 / request_rate and shape burstiness, as `vllm bench serve` draws them; with
              ends_on_time all times are stretched so that the last is requests / request_rate, as it does
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from cluster_sim import draws
from cluster_sim.bounds import LARGEST_COUNT
from cluster_sim.config import Arrivals, WorkloadConfig
from cluster_sim.engine.kinds import Purpose
from cluster_sim.errors import UserError

Floats = NDArray[np.float64]
HALVINGS = 60  # of an interval, until floats have no more between its ends


def draw_arrivals(config: WorkloadConfig, seed: int) -> Floats:
    """Arrivals in s of the first `requests`, or of those before `duration_s`; whichever are fewer.

    Raises:
        UserError: neither is given, they hold no request, or too many.
    """
    return those_let_in(lambda requests: first_arrivals(config, requests, seed), config)


def those_let_in(first: Callable[[int], Floats], config: WorkloadConfig) -> Floats:
    """Of the process whose first arrivals `first` gives: those that `requests` and `duration_s` let in.

    Raises:
        UserError: as of draw_arrivals.
    """
    requests, duration_s, rate = config.requests, config.duration_s, mean_rate(config)
    if duration_s is None:
        if requests is None:
            rule = "the number of requests must be bounded by workload.requests or workload.duration_s"
            raise UserError(rule, "null for both", "workload.requests", "Set one of them.")
        return first(requests)
    limit = LARGEST_COUNT if requests is None else requests
    expected = rate * duration_s
    if requests is None and expected > LARGEST_COUNT:
        rule = f"a simulation must have at most {LARGEST_COUNT} requests"
        got = f"about {expected:.3g}"
        raise UserError(
            rule, got, "workload.duration_s", "Lower the rate or the duration, or set workload.requests."
        )
    count = int(min(limit, expected + 6 * expected**0.5 + 16))  # enough but for 1 seed in 10^9, if poisson
    arrival_s = first(count)
    while count < limit and arrival_s[-1] < duration_s:
        count = min(limit, 2 * count)
        arrival_s = first(count)
    arrival_s = arrival_s[arrival_s < duration_s]
    if arrival_s.size == 0:
        rule = "at least one request must arrive before workload.duration_s"
        raise UserError(rule, f"{duration_s:g} s at {rate:g} requests/s", "workload.duration_s", "Raise it.")
    return arrival_s


def mean_rate(config: WorkloadConfig) -> float:
    """Requests per second in the long run; of a ramp over its time."""
    if config.arrivals is Arrivals.ramp:
        return (_given(config, "start_rate") + _given(config, "end_rate")) / 2
    if config.arrivals is Arrivals.bursts:
        calm_s, burst_s = _given(config, "calm_s"), _given(config, "burst_s")
        requests = _given(config, "calm_rate") * calm_s + _given(config, "burst_rate") * burst_s
        return requests / (calm_s + burst_s)
    return _given(config, "request_rate")


def described(config: WorkloadConfig) -> str:
    """The process in words."""
    if config.arrivals is Arrivals.closed_loop:
        thinks = f" that think for {config.think_time_s:g} s on average" if config.think_time_s else ""
        return f"closed loop of {config.max_concurrency} clients{thinks}"
    kind, rate = config.arrivals.name, f"{mean_rate(config):g} requests/s"
    details = {
        Arrivals.gamma: f", burstiness {config.burstiness}",
        Arrivals.ramp: f" on average, from {config.start_rate} to {config.end_rate}",
        Arrivals.diurnal: f" on average, +-{100 * (config.amplitude or 0):g}% over {config.period_s} s",
        Arrivals.bursts: (
            f" on average, {config.calm_rate} for {config.calm_s} s and "
            f"{config.burst_rate} for {config.burst_s} s in turn"
        ),
    }
    limit = "" if config.max_concurrency is None else f", at most {config.max_concurrency:,} under way"
    return f"{kind} {rate}{details.get(config.arrivals, '')}{limit}"


def first_arrivals(config: WorkloadConfig, requests: int, seed: int, spacing: float = 1.0) -> Floats:
    """Times in s of the first `requests`, or of things that are `spacing` times as rare."""
    kind = config.arrivals
    if kind is Arrivals.constant:
        return np.arange(1.0, requests + 1.0) * (spacing / _given(config, "request_rate"))
    if kind is Arrivals.gamma:
        return _gamma(config, requests, seed) * spacing
    units = np.cumsum(draws.exponentials(seed, Purpose.arrivals, requests))
    if spacing != 1.0:
        units = units * spacing
    if kind is Arrivals.ramp:
        return _ramp(config, units)
    if kind is Arrivals.diurnal:
        return _diurnal(config, units)
    if kind is Arrivals.bursts:
        return _bursts(config, units, seed)
    return units / _given(config, "request_rate")


def _gamma(config: WorkloadConfig, requests: int, seed: int) -> Floats:
    rate, shape = _given(config, "request_rate"), _given(config, "burstiness")
    arrival_s = np.cumsum(draws.gammas(seed, Purpose.arrivals, requests, shape)) / (rate * shape)
    if config.ends_on_time:
        arrival_s *= requests / rate / arrival_s[-1]
    return np.asarray(arrival_s)


def _ramp(config: WorkloadConfig, units: Floats) -> Floats:
    """Inverse of L(t) = start t + (end - start) t^2 / 2 T up to T, and of its tangent after it."""
    start, end = _given(config, "start_rate"), _given(config, "end_rate")
    mean = (start + end) / 2
    ramp_s = config.duration_s
    if ramp_s is None:
        ramp_s = (config.requests or 0) / mean
    slope, whole = (end - start) / ramp_s, mean * ramp_s
    inside = np.minimum(units, whole)
    speed = np.sqrt(np.maximum(start**2 + 2 * slope * inside, 0.0))  # the rate at that time
    inside_s = 2 * inside / np.maximum(start + speed, np.finfo(np.float64).tiny)
    beyond = np.maximum(units - whole, 0.0)
    return inside_s + (beyond / end if end > 0 else np.where(beyond > 0, np.inf, 0.0))


def _diurnal(config: WorkloadConfig, units: Floats) -> Floats:
    """Inverse of L(t) = rate (t + a (1 - cos wt) / w), w = 2 pi / period, by bisection."""
    amplitude, period_s = _given(config, "amplitude"), _given(config, "period_s")
    angular = 2 * np.pi / period_s
    mean_s = units / _given(config, "request_rate")
    low, high = np.maximum(mean_s - 2 * amplitude / angular, 0.0), mean_s.copy()
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        above = middle + amplitude * (1 - np.cos(angular * middle)) / angular > mean_s
        high = np.where(above, middle, high)
        low = np.where(above, low, middle)
    return (low + high) / 2


def _bursts(config: WorkloadConfig, units: Floats, seed: int) -> Floats:
    """Inverse of L(t), which is straight within each stay in a state."""
    rates = np.array([_given(config, "calm_rate"), _given(config, "burst_rate")])
    means_s = np.array([_given(config, "calm_s"), _given(config, "burst_s")])
    begins_in_burst = draws.uniforms(seed, Purpose.bursts, 1, 1)[0] < means_s[1] / means_s.sum()
    stays = int(4 * units[-1] / (rates @ means_s)) + 16
    while True:
        state = (np.arange(stays) + int(begins_in_burst)) % 2
        stay_s = draws.exponentials(seed, Purpose.bursts, stays) * means_s[state]
        end = np.cumsum(rates[state] * stay_s)
        if end[-1] >= units[-1]:
            break
        stays *= 2
    place = np.searchsorted(end, units)
    rate, before = rates[state[place]], end[place] - (rates[state] * stay_s)[place]
    start_s = (np.cumsum(stay_s) - stay_s)[place]
    return np.asarray(start_s + (units - before) / np.where(rate > 0.0, rate, 1.0))


def _given(config: WorkloadConfig, key: str) -> float:
    """The value of a key that the process needs.

    Raises:
        UserError: it is null.
    """
    value = getattr(config, key)
    if value is None:
        rule = f"arrivals={config.arrivals.name} needs this value"
        if config.arrivals is Arrivals.poisson:
            rule = "traffic without a trace needs this value"
        raise UserError(rule, "null", f"workload.{key}", "Set it, or give workload.trace.")
    return float(value)
