"""Factors that bring predicted means to measured ones, by least squares of their logarithms.

Model: log(measured / predicted) of each mean is an error of one size, the same for all. Gauss-Newton steps
until they are small; the Jacobian J = d log(predicted) / d factor is made of differences, anew where a step
was larger than these. With RSS for the sum of the squared errors that remain,

    s^2 = metrics * RSS / (points * metrics - factors),    covariance = s^2 (J'J)^-1,

and Student's t of (points - factors) degrees: the metrics of a point count as one measurement, which is what
the factor `metrics` does. Held-out errors are those of a point that a fit to the others makes: (I - H)^-1 r
in the point's own block of H = J (J'J)^-1 J', linear in the way from one fit to the other.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cluster_sim.errors import UserError
from cluster_sim.statistics import student_t_quantile

Floats = NDArray[np.float64]
Predict = Callable[[Floats], Floats]  # factors -> log of the means [point, metric]
Report = Callable[[int, float], None]  # (step, its largest relative change)
NUDGE = 0.1  # of a factor, for a difference
SMALL = 2e-3  # a step that no interval shows
MOST_STEPS = 12
LARGEST_STEP = 2.0  # a factor at most doubles or halves at once
MEAN_ERROR = 0.01  # of a measured mean, of several hundred requests
LEAST_KNOWN = 0.5  # to what share of itself a factor must be told at that error
ALIKE = 0.5  # of the largest share in what cannot be told: a factor that is as much part of it
WHERE = "--fit"


@dataclass(frozen=True)
class Solution:
    """Factors, half their 95 % intervals, and errors log(measured / predicted) [point, metric]."""

    factors: Floats
    halves: Floats
    errors: Floats
    held_out: Floats  # of a fit to the other points; nan: they do not tell
    steps: int


def check_enough(names: Sequence[str], points: int) -> None:
    """Refuse to fit more numbers than points can hold.

    Raises:
        UserError: there are no more points than numbers.
    """
    if points < len(names) + 1:
        rule = f"{len(names)} fitted numbers ({', '.join(names)}) need {len(names) + 1} runs or more"
        raise UserError(rule, points, WHERE, "Fit fewer numbers with --fit, or measure at more rates.")


def solve(predict: Predict, measured: Floats, names: Sequence[str], report: Report) -> Solution:
    """Fit factors called `names`, from 1, to the logs of `measured` means [point, metric].

    Raises:
        UserError: too few points, factors that they do not tell, or steps that do not settle.
    """
    check_enough(names, len(measured))
    factors, change = np.ones(len(names)), math.inf
    for steps in range(1, MOST_STEPS + 1):
        errors = measured - predict(factors)
        if change > NUDGE:
            slopes = _jacobian(predict, factors)
            _check_told(names, slopes * factors)
        step = np.linalg.lstsq(slopes, errors.ravel(), rcond=None)[0]
        new = np.clip(factors + step, factors / LARGEST_STEP, factors * LARGEST_STEP)
        change = float(np.abs(new / factors - 1).max())
        factors = new
        report(steps, change)
        if change < SMALL:
            errors = measured - predict(factors)
            return Solution(factors, _halves(slopes, errors), errors, _held_out(slopes, errors), steps)
    rule, got = f"a fit must settle within {MOST_STEPS} steps", f"a last change of {100 * change:.1f}%"
    raise UserError(rule, got, WHERE, "Fit fewer numbers with --fit, or leave saturated runs out.")


def _jacobian(predict: Predict, factors: Floats) -> Floats:
    """Slopes d log(predicted) / d factor [point * metric, factor], by differences to both sides."""
    columns = []
    for number, factor in enumerate(factors):
        low, high = factors.copy(), factors.copy()
        low[number], high[number] = factor * (1 - NUDGE), factor * (1 + NUDGE)
        columns.append((predict(high) - predict(low)).ravel() / (2 * NUDGE * factor))
    return np.stack(columns, axis=1)


def _check_told(names: Sequence[str], slopes: Floats) -> None:
    """Refuse factors that the points do not tell, or not apart; `slopes` by log(factor).

    Means that are MEAN_ERROR off move a combination of factors by MEAN_ERROR over its singular value.
    """
    _, sizes, directions = np.linalg.svd(slopes, full_matrices=False)
    if sizes[-1] * LEAST_KNOWN >= MEAN_ERROR:
        return
    shares = np.abs(directions[-1])
    worst = [name for name, share in zip(names, shares, strict=True) if share > ALIKE * shares.max()]
    told = worst[0] if len(worst) == 1 else f"{' and '.join(worst)} apart"
    rule = f"runs must tell {told} to {100 * LEAST_KNOWN:.0f}% where each mean is {100 * MEAN_ERROR:.0f}% off"
    got = f"{100 * MEAN_ERROR / sizes[-1]:.0f}%" if sizes[-1] > MEAN_ERROR / 100 else "no effect on any mean"
    remedy = f"Leave {' or '.join(worst)} out of --fit, or measure at other rates and draft lengths."
    raise UserError(rule, got, WHERE, remedy)


def _halves(slopes: Floats, errors: Floats) -> Floats:
    """Half the intervals of the factors."""
    points, metrics = errors.shape
    number = slopes.shape[1]
    variance = metrics * float((errors**2).sum()) / (errors.size - number)
    deviations = np.sqrt(np.diag(np.linalg.inv(slopes.T @ slopes)) * variance)
    return np.asarray(student_t_quantile(points - number) * deviations)


def _held_out(slopes: Floats, errors: Floats) -> Floats:
    """Errors log(measured / predicted) [point, metric] of each point by a fit to the others."""
    points, metrics = errors.shape
    hat = slopes @ np.linalg.inv(slopes.T @ slopes) @ slopes.T
    found = np.full_like(errors, math.nan)
    for point in range(points):
        block = slice(point * metrics, (point + 1) * metrics)
        kept = np.eye(metrics) - hat[block, block]
        if np.linalg.cond(kept) < 1 / np.sqrt(np.finfo(np.float64).eps):
            found[point] = np.linalg.solve(kept, errors[point])
    return found
