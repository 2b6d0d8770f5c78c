"""How far a sample is from its distribution: the test of Kolmogorov and Smirnov."""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

LIMIT = math.sqrt(-math.log(1e-6 / 2) / 2)  # a right sample exceeds it once in 10^6 (Kolmogorov's limit law)


def distance(sample: NDArray[np.float64], cdf: Callable[[float], float]) -> float:
    """sqrt(n) * D, where D is the largest gap between the empirical distribution and `cdf`."""
    expected = np.array([cdf(value) for value in np.sort(sample)])
    steps = np.arange(len(sample) + 1) / len(sample)
    gap = max(np.max(steps[1:] - expected), np.max(expected - steps[:-1]))
    return math.sqrt(len(sample)) * float(gap)
