"""Intervals against published tables, and against the share of studies in which they hold the truth.

A coverage test draws 2,000 studies; the number that hold the truth is binomial(2000, 0.95), of standard
deviation 9.7. It fails outside 1,900 +- 32, by chance once in 1,000 choices of the seed.
"""

import math

import numpy as np
import pytest

from cluster_sim.statistics import (
    difference_interval,
    mean_interval,
    ratio_interval,
    student_t_quantile,
    wilson_interval,
)

STUDIES, COVERED, MARGIN = 2000, 1900, 32


# NIST/SEMATECH e-Handbook of Statistical Methods, section 1.3.6.7.2, two-sided 95 %.
@pytest.mark.parametrize(
    ("degrees", "expected"),
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (9, 2.262), (10, 2.228), (100, 1.984)],
)
def test_student_s_quantiles_are_those_of_the_table(degrees: int, expected: float) -> None:
    assert student_t_quantile(degrees) == pytest.approx(expected, abs=0.0005)


def test_student_s_quantiles_meet_their_closed_forms() -> None:
    """One degree of freedom is Cauchy's distribution; with two, t = q sqrt(2 / (1 - q^2)) for q = 0.95."""
    assert student_t_quantile(1) == pytest.approx(math.tan(0.95 * math.pi / 2), rel=1e-12)
    assert student_t_quantile(2) == pytest.approx(0.95 * math.sqrt(2 / (1 - 0.95**2)), rel=1e-12)
    assert student_t_quantile(10_001) == pytest.approx(1.9602, abs=0.0001)  # towards the normal 1.95996
    assert student_t_quantile(7, 0.99) == pytest.approx(3.499, abs=0.0005)


def test_the_mean_of_three_replicates() -> None:
    found = mean_interval([1.0, 2.0, 3.0])
    assert found.value == 2.0
    assert found.high - found.value == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)
    assert found.value - found.low == pytest.approx(found.high - found.value)


def test_one_replicate_has_no_interval() -> None:
    for found in (mean_interval([5.0]), ratio_interval([5.0], [5.0]), difference_interval([5.0], [4.0])):
        assert (found.low, found.high) == (-math.inf, math.inf)


def test_pairing_removes_what_the_seeds_have_in_common() -> None:
    seeds = np.array([10.0, 20.0, 30.0])
    found = difference_interval(seeds + np.array([1.0, 1.1, 0.9]), seeds)
    assert found.value == pytest.approx(1.0)
    assert 0.7 < found.low < found.high < 1.3


def test_a_ratio_is_that_of_the_aggregates() -> None:
    found = ratio_interval([2.0, 30.0], [1.0, 20.0])
    assert found.value == pytest.approx(32 / 21)  # the mean of ratios would be 1.75


def test_proportional_replicates_have_a_certain_ratio() -> None:
    base = np.array([10.0, 20.0, 15.0])
    found = ratio_interval(1.2 * base, base)
    assert (found.low, found.high) == pytest.approx((1.2, 1.2))


def test_a_certain_baseline_leaves_student_s_interval() -> None:
    values = [3.0, 4.0, 5.0]
    found, mean = ratio_interval(values, [2.0] * 3), mean_interval(values)
    assert (found.low, found.high) == pytest.approx((mean.low / 2, mean.high / 2))


def test_a_baseline_that_could_be_zero_bounds_nothing() -> None:
    found = ratio_interval([1.0, 1.0, 1.0], [-5.0, 1.0, 10.0])
    assert (found.low, found.high) == (-math.inf, math.inf)


def test_the_interval_of_a_mean_covers_it_in_95_of_100_studies() -> None:
    samples = np.random.default_rng(1).normal(7.0, 2.0, (STUDIES, 5))
    covered = sum(found.low <= 7.0 <= found.high for found in map(mean_interval, samples))
    assert covered == pytest.approx(COVERED, abs=MARGIN)


def test_the_interval_of_a_paired_ratio_covers_it_in_95_of_100_studies() -> None:
    """Values 1.3 times a baseline of 10 +- 2, and noise of 1: strongly paired, as the arms of a seed are."""
    rng = np.random.default_rng(2)
    baseline = rng.normal(10.0, 2.0, (STUDIES, 5))
    values = 1.3 * baseline + rng.normal(0.0, 1.0, (STUDIES, 5))
    studies = [ratio_interval(*pair) for pair in zip(values, baseline, strict=True)]
    assert sum(found.low <= 1.3 <= found.high for found in studies) == pytest.approx(COVERED, abs=MARGIN)


# Newcombe 1998, Statistics in Medicine 17, 857-872, table I, method 3 (score, no continuity correction).
@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_s_interval_is_the_published_one(successes: int, trials: int, low: float, high: float) -> None:
    found = wilson_interval(successes, trials)
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.00005)


def test_wilson_s_interval_stays_a_share() -> None:
    assert wilson_interval(20, 20).high == 1.0
    assert wilson_interval(20, 20).low == pytest.approx(1 - 0.1611, abs=0.00005)
