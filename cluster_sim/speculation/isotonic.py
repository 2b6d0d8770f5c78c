"""Isotonic regression: the closest sequence that does not increase."""

from collections.abc import Sequence


def non_increasing(values: Sequence[float]) -> list[float]:
    """The non-negative, non-increasing sequence with the least sum of squared differences from `values`.

    Pool adjacent violators (Ayer, Brunk, Ewing, Reid, Silverman: "An empirical distribution function for
    sampling with incomplete information", Annals of Mathematical Statistics, 1955): neighbours that rise
    share their mean, which keeps the sum. What is then negative becomes 0: the projection onto both.
    """
    pools: list[tuple[float, int]] = []  # (mean, how many values share it)
    for value in values:
        mean, size = value, 1
        while pools and pools[-1][0] < mean:
            before, its_size = pools.pop()
            mean = (before * its_size + mean * size) / (its_size + size)
            size += its_size
        pools.append((mean, size))
    return [max(mean, 0.0) for mean, size in pools for _ in range(size)]
