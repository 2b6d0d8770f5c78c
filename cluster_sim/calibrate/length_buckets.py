"""Lengths that a histogram stands for: as many in each bucket as it counted, with the mean that it states.

Within a bucket they lie between its bounds, in equal steps of a power p of the share u of values below:

    length(u) = low * (high / low) ** (u ** p),

with one p for all buckets, such that the mean is the histogram's: what the buckets leave open, and no more.
"""

import math

import numpy as np
from numpy.typing import NDArray

from cluster_sim.calibrate.growth import Growth, Histogram
from cluster_sim.traces.text import shortened

MOST_LENGTHS = 2000  # a distribution needs no more
BEYOND = 4.0  # times the last bound: where what lies beyond it ends
STEEPEST = 8.0  # of log(p): all values at one end of their bucket
HALVINGS = 60
TOLERANCE = 0.01  # of the mean, which whole numbers cannot always have


def lengths_of(histogram: Histogram, name: str, growth: Growth) -> list[int]:
    """Whole lengths in tokens, ascending; at most MOST_LENGTHS of them.

    Raises:
        UserError: no lengths in these buckets have this mean.
    """
    mean = histogram.mean
    if mean is None:
        raise ValueError("a histogram of no values has no lengths")
    low, high, shares = _in_buckets(histogram)
    flat, steep = -STEEPEST, STEEPEST
    for _ in range(HALVINGS):
        middle = (flat + steep) / 2
        if _lengths(low, high, shares, middle).mean() > mean:
            flat = middle
        else:
            steep = middle
    found = np.rint(_lengths(low, high, shares, steep))
    if abs(found.mean() - mean) > max(TOLERANCE * mean, 0.5):
        rule = f"the mean of {name}, {mean:.5g}, lies within its buckets"
        growth.refuse(rule, shortened(f"{found.mean():.5g} at the nearest"))
    lengths: list[int] = found.astype(np.int64).tolist()
    return lengths


Floats = NDArray[np.float64]


def _in_buckets(histogram: Histogram) -> tuple[Floats, Floats, Floats]:
    """For each length: the ends of its bucket, and the share of the bucket's values below it."""
    bounds, counts = np.array(histogram.bounds), np.array(histogram.counts, np.float64)
    low = np.maximum(np.concatenate(([0.0], np.floor(bounds[:-1]))) + 1, 1)
    high = np.maximum(np.where(np.isfinite(bounds), bounds, BEYOND * low), low)
    number = min(histogram.count, MOST_LENGTHS)
    at = (np.arange(number) + 0.5) / number * histogram.count
    ends = np.cumsum(counts)
    bucket = np.searchsorted(ends, at)
    return low[bucket], high[bucket], (at - (ends - counts)[bucket]) / counts[bucket]


def _lengths(low: Floats, high: Floats, shares: Floats, log_power: float) -> Floats:
    return np.asarray(low * (high / low) ** (shares ** math.exp(log_power)))
