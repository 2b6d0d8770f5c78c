"""Intervals: how far a number could be from the truth, by chance.

Seeds are replicates: the values of different seeds are independent, those of one seed under two arms are
paired. All intervals cover the truth in 95 % of studies; the exact ones assume normal values. Counted on
simulated clusters (tests/test_coverage.py): means over three seeds 94 to 95 %, their ratios 93 to 95 %; the
p99 of 150 requests, which is skewed, 91 to 94 %. Three values cannot tell skewness: take more seeds.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95
SMALLEST_BEND = 1e-6  # of batch means: a smaller one moves nothing but the last digits
Values = Sequence[float] | NDArray[np.float64]  # [replicate]


@dataclass(frozen=True)
class Interval:
    """A value and its confidence interval; from one replicate there is none: -inf to inf."""

    value: float
    low: float
    high: float


def mean_interval(values: Values) -> Interval:
    """The mean of independent replicates, with Student's interval: mean +- t s / sqrt(n)."""
    sample = np.asarray(values, np.float64)
    mean = float(sample.mean())
    if len(sample) == 1:
        return Interval(mean, -math.inf, math.inf)
    half = student_t_quantile(len(sample) - 1) * float(sample.std(ddof=1)) / math.sqrt(len(sample))
    return Interval(mean, mean - half, mean + half)


def difference_interval(values: Values, baseline: Values) -> Interval:
    """The mean difference of paired replicates, values - baseline, with Student's interval."""
    return mean_interval(np.asarray(values, np.float64) - np.asarray(baseline, np.float64))


def ratio_interval(values: Values, baseline: Values) -> Interval:
    """The ratio of the means of paired replicates, mean(values) / mean(baseline), with Fieller's interval.

    It holds the ratios R for which mean(values - R baseline) could be 0 by Student's test: the roots of

        (y - R x)^2 = t^2 (Syy - 2 R Sxy + R^2 Sxx) / n        (Fieller 1954, J. R. Stat. Soc. B 16, 175-185)

    for means x of the baseline and y of the values and their covariances S. Where the baseline's mean could
    be 0 itself, the interval is unbounded: -inf to inf.

    Raises:
        ZeroDivisionError: the baseline's mean is 0.
    """
    y, x = np.asarray(values, np.float64), np.asarray(baseline, np.float64)
    y_mean, x_mean = float(y.mean()), float(x.mean())
    ratio = y_mean / x_mean
    if len(y) == 1:
        return Interval(ratio, -math.inf, math.inf)
    covariance = np.cov(y, x, ddof=1) * student_t_quantile(len(y) - 1) ** 2 / len(y)
    a = x_mean**2 - covariance[1, 1]
    b = x_mean * y_mean - covariance[0, 1]
    c = y_mean**2 - covariance[0, 0]
    if a <= 0.0:
        return Interval(ratio, -math.inf, math.inf)
    root = math.sqrt(max(b * b - a * c, 0.0))
    return Interval(ratio, float(b - root) / a, float(b + root) / a)


def batch_means_interval(batches: Values) -> Interval:
    """The mean of a long run from those of its consecutive batches, which are skewed and not independent.

    Student's interval with the two corrections of Skart (Tafazzoli, Wilson, Lada and Steiger 2011, INFORMS J.
    on Computing 23, 297-314): the variance of the mean is multiplied by (1 + r) / (1 - r) for the correlation
    r of neighbouring batches where that is positive, and t is replaced by

        G(t) = ((1 + 6 B (t - B))^(1/3) - 1) / (2 B),    B = skewness of the batches / (6 sqrt(batches))

    so that the interval reaches further on the side of the long tail. -inf to inf where r is 1.
    """
    sample = np.asarray(batches, np.float64)
    number, mean = len(sample), float(sample.mean())
    error = math.sqrt(_variance_of_mean(sample))
    deviation = float(sample.std(ddof=1))
    if error == 0.0 or math.isinf(error):
        return Interval(mean, mean - error, mean + error)
    cubes = float(((sample - mean) ** 3).sum())
    skewness = number * cubes / ((number - 1) * (number - 2) * deviation**3)
    bend = skewness / (6 * math.sqrt(number))
    t = student_t_quantile(number - 1)
    return Interval(mean, mean - _bent(t, bend) * error, mean - _bent(-t, bend) * error)


def effective_number(values: Values, batches: Values) -> float:
    """How many independent values would tell the mean as well as all of `values`, from their `batches`."""
    return float(np.var(values)) / _variance_of_mean(np.asarray(batches, np.float64))


def _variance_of_mean(batches: NDArray[np.float64]) -> float:
    """Variance of the mean of batches whose neighbours may be correlated; inf where wholly so."""
    away = batches - batches.mean()
    squares = float((away**2).sum())
    if squares == 0.0:
        return 0.0
    correlation = max(float((away[1:] * away[:-1]).sum()) / squares, 0.0)
    inflation = (1 + correlation) / (1 - correlation) if correlation < 1.0 else math.inf
    return inflation * squares / (len(batches) - 1) / len(batches)


def _bent(t: float, bend: float) -> float:
    """Student's t, corrected for skewness; t itself without any."""
    if abs(bend) < SMALLEST_BEND:
        return t
    return float(np.cbrt(1 + 6 * bend * (t - bend)) - 1) / (2 * bend)


def wilson_interval(successes: int, trials: int) -> Interval:
    """The share of successes in independent trials, with its score interval (Wilson 1927)."""
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    share = successes / trials
    centre = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z / (1 + z * z / trials) * math.sqrt(share * (1 - share) / trials + (z / (2 * trials)) ** 2)
    return Interval(share, max(0.0, centre - half), min(1.0, centre + half))


@cache
def student_t_quantile(degrees: int, confidence: float = CONFIDENCE) -> float:
    """The t that Student's variable with whole `degrees` of freedom exceeds in size with 1 - `confidence`.

    By bisection of the angle whose tangent is t / sqrt(degrees), to the last bit that doubles hold.
    """
    low, high = 0.0, math.pi / 2
    while low < (middle := (low + high) / 2) < high:
        if _student_t_inside(middle, degrees) < confidence:
            low = middle
        else:
            high = middle
    return math.sqrt(degrees) * math.tan(low)


def _student_t_inside(angle: float, degrees: int) -> float:
    """P(|t| < tan(angle) sqrt(degrees)): the finite series of Abramowitz and Stegun, 26.7.3 and 26.7.4."""
    sine, cosine = math.sin(angle), math.cos(angle)
    is_odd = degrees % 2 == 1
    term = cosine if is_odd else 1.0
    total = term if degrees > 1 else 0.0
    for k in range(2 if is_odd else 1, degrees - 2, 2):
        term *= cosine * cosine * k / (k + 1)
        total += term
    return 2 / math.pi * (angle + sine * total) if is_odd else sine * total
