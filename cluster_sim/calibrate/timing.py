"""The fit of a bundle's parts to measured runs. The simulator is the only model of their time.

Each evaluation writes the scaled bundle, as the user gets it in the end, and simulates every run on it with
SEEDS seeds of its own, the same ones each time (common random numbers): what they err by is the same in all
evaluations, and differs from run to run, so that it shows in the residuals.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cluster_sim.bundle import format as bundle_format
from cluster_sim.bundle.format import Bundle
from cluster_sim.calibrate.least_squares import Floats, Report, Solution, check_enough, solve
from cluster_sim.calibrate.parts import HOST, HOST_S, scaled
from cluster_sim.calibrate.points import Point, simulated
from cluster_sim.calibrate.timed import METRICS
from cluster_sim.statistics import Interval

SEEDS = 3


@dataclass(frozen=True)
class Residual:
    """One mean of one run: measured, and simulated with the bundle as it was and as it is fitted; s."""

    place: str
    metric: str
    measured_s: float
    before_s: float
    after_s: float
    held_out_percent: float | None  # of a fit without this run; None: not fitted to, or others do not tell

    @property
    def before_percent(self) -> float:
        """Error with the bundle as it was."""
        return 100.0 * (self.before_s / self.measured_s - 1.0)

    @property
    def error_percent(self) -> float:
        """Error with the fitted bundle."""
        return 100.0 * (self.after_s / self.measured_s - 1.0)


@dataclass(frozen=True)
class Fit:
    """What was fitted."""

    values: dict[str, Interval]  # host_overhead_s in s, the others as factors
    factors: dict[str, float]  # of the bundle's numbers
    metrics: tuple[str, ...]  # fitted to
    residuals: tuple[Residual, ...]  # of all metrics
    steps: int


@dataclass(frozen=True)
class Problem:
    """Runs to meet, and what may be changed to meet them."""

    bundle: Bundle
    points: Sequence[Point]
    names: Sequence[str]  # parts.NAMES
    metrics: Sequence[str]  # of points.METRICS
    seed: int


def fit(problem: Problem, scratch: Path, report: Report) -> Fit:
    """Fit the bundle's parts; trials go to the directory `scratch`.

    Raises:
        UserError: too few runs, parts that they do not tell apart, or a run that cannot be simulated.
    """
    check_enough(problem.names, len(problem.points))
    measured = np.log([[_measured(point, metric) for metric in problem.metrics] for point in problem.points])
    fitted = [list(METRICS).index(metric) for metric in problem.metrics]
    means = _Means(problem, scratch)
    solution = solve(lambda at: np.log(means.at(at)[:, fitted]), measured, problem.names, report)
    before, after = means.at(np.ones(len(problem.names))), means.at(solution.factors)
    return Fit(
        _values(problem, solution),
        dict(zip(problem.names, solution.factors.tolist(), strict=True)),
        tuple(problem.metrics),
        _residuals(problem, before, after, solution.held_out),
        solution.steps,
    )


class _Means:
    """Simulated means [point, metric] of all METRICS in s, by factors."""

    def __init__(self, problem: Problem, scratch: Path) -> None:
        self._problem, self._scratch = problem, scratch
        self._known: dict[tuple[float, ...], Floats] = {}

    def at(self, factors: Floats) -> Floats:
        """Those of the bundle scaled by `factors`."""
        key = tuple(factors.tolist())
        if key not in self._known:
            self._known[key] = self._simulated(key)
        return self._known[key]

    def _simulated(self, factors: tuple[float, ...]) -> Floats:
        problem, directory = self._problem, self._scratch / str(len(self._known))
        by_name = dict(zip(problem.names, factors, strict=True))
        bundle_format.write(scaled(problem.bundle, by_name, problem.bundle.name, "on trial"), directory)
        sums = np.zeros((len(problem.points), len(METRICS)))
        for row, point in enumerate(problem.points):
            first = problem.seed + SEEDS * row
            for seed in range(first, first + SEEDS):
                found = simulated(point, str(directory), seed)
                sums[row] += [found[metric] for metric in METRICS]
        return np.asarray(sums / SEEDS)


def _measured(point: Point, metric: str) -> float:
    known = point.timed.means_s
    if metric not in known:
        remedy = "Fit to a mean that all of them have (--fit-to)."
        point.timed.refuse(f"a fit to {metric} needs its mean", f"means of {', '.join(known)}", remedy)
    return known[metric]


def _values(problem: Problem, solution: Solution) -> dict[str, Interval]:
    found = {}
    for name, factor, half in zip(
        problem.names, solution.factors.tolist(), solution.halves.tolist(), strict=True
    ):
        unit = problem.bundle.parameters[HOST_S].value if name == HOST else 1.0
        found[name] = Interval(factor * unit, max(0.0, factor - half) * unit, (factor + half) * unit)
    return found


def _residuals(problem: Problem, before: Floats, after: Floats, held_out: Floats) -> tuple[Residual, ...]:
    found = []
    for row, point in enumerate(problem.points):
        for column, metric in enumerate(METRICS):
            measured = point.timed.means_s.get(metric)
            if measured is None:
                continue
            unseen = held_out[row, problem.metrics.index(metric)] if metric in problem.metrics else math.nan
            found.append(
                Residual(
                    point.timed.place,
                    metric,
                    measured,
                    float(before[row, column]),
                    float(after[row, column]),
                    None if math.isnan(unseen) else 100 * math.expm1(-unseen),
                )
            )
    return tuple(found)
