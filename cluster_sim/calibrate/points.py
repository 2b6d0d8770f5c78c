"""A measurement as a configuration: the same traffic, drafts of the same length, the bundle of a fit."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cluster_sim.calibrate.acceptance import Row
from cluster_sim.calibrate.timed import DEFAULT_METRICS, METRICS, PER_TOKEN, Timed
from cluster_sim.compose import Composer
from cluster_sim.config import Config
from cluster_sim.errors import UserError
from cluster_sim.results import Run, latencies
from cluster_sim.run import simulate
from cluster_sim.summary import summarise
from cluster_sim.warmup import measured_of

LENGTH_TOLERANCE = 0.05  # relative, of a mean length
SURE = 3.0  # standard errors
CACHED_TOLERANCE = 0.05  # of prompt tokens


@dataclass(frozen=True)
class Point:
    """A measurement, and the configuration that simulates it."""

    timed: Timed
    config: Config


def point_of(
    timed: Timed, composer: Composer, given: Collection[str], rows: Sequence[Row], scratch: Path
) -> Point:
    """How to simulate a measurement; `given` are the keys of the command line, `rows` the profile found.

    Files of its traffic go to `scratch`.

    Raises:
        UserError: the measurement says what is given, or its traffic cannot be simulated.
    """
    for name in timed.traffic.own_keys:
        key = f"workload.{name}"
        if key in given:
            raise UserError(f"the measured runs say {key}", "a value of your own", key, "Leave it out.")
    changes = timed.traffic.as_workload(given, scratch)
    if timed.draft_length == 0:
        return Point(timed, composer.variant(changes | {"speculation": "none"}))
    row = next(row for row in rows if row.draft_length == timed.draft_length)
    if timed.draft_length != composer.config.speculation.num_speculative_tokens:
        changes["speculation.num_speculative_tokens"] = timed.draft_length
    changes["speculation.acceptance"] = profile_of([row], None)
    return Point(timed, composer.variant(changes))


def default_metrics(points: Sequence[Point]) -> tuple[str, ...]:
    """The first of DEFAULT_METRICS that all measurements have.

    Raises:
        UserError: there is none.
    """
    for metric in DEFAULT_METRICS:
        if all(metric in point.timed.means_s for point in points):
            return (metric,)
    rule = f"all measurements have one of {', '.join(DEFAULT_METRICS)} to be fitted to"
    raise UserError(rule, "none that is common to all", "calibrate", "Give fewer kinds of them at a time.")


def profile_of(rows: Sequence[Row], source: str | None) -> dict[str, Any]:
    """speculation.acceptance: the rates by position of one draft length, or of several."""
    rates = {row.draft_length: row.rates for row in rows}
    profile: dict[str, Any] = {"published": None, "rates_are": "marginal", "source": source}
    if len(rates) == 1:
        return profile | {"policy": "per_position", "rates": next(iter(rates.values()))}
    return profile | {"policy": "per_length", "per_length": rates}


def simulated(point: Point, bundle: str, seed: int) -> dict[str, float]:
    """Mean of each of METRICS in s, on the bundle at the path `bundle`.

    Raises:
        UserError: the simulated server cannot serve all requests, or its traffic is not that measured.
    """
    config = replace(point.config, seed=seed, cluster=replace(point.config.cluster, bundle=bundle))
    run = simulate(config)
    summary = summarise(run)
    offered, completed = (summary["requests"][name] for name in ("offered", "completed"))
    if completed < offered:
        rule = f"the simulated server must complete all {offered} requests"
        point.timed.refuse(rule, completed, "Correct engine and workload.")
    _check_lengths(point.timed, run)
    _check_cached(point.timed, summary["tokens"])
    found = {metric: summary[f"{metric}_s"]["mean"] for metric in METRICS if metric != PER_TOKEN}
    found[PER_TOKEN] = _per_token_s(run)
    if None in found.values():
        point.timed.refuse("requests must have two output tokens or more, to have a TPOT", "one")
    return found


def _per_token_s(run: Run) -> float | None:
    """Mean time per token after the first, over the tokens of all measured requests (timed.py), s."""
    times, tokens = latencies(run), run.log["emitted_tokens"]
    chosen = measured_of(run).chosen & (tokens > 1)
    after_first = int((tokens[chosen] - 1).sum())
    return float((times.e2el_s - times.ttft_s)[chosen].sum()) / after_first if after_first else None


def _check_lengths(timed: Timed, simulation: Run) -> None:
    asked = {
        "prompt_tokens": simulation.requests["prompt_tokens"],
        "output_tokens": simulation.log["emitted_tokens"],
    }
    for key, tokens in asked.items():
        measured, mean = timed.mean_tokens[key], float(np.mean(tokens))
        chance = SURE * float(np.std(tokens)) / math.sqrt(len(tokens))
        if abs(mean - measured) > max(LENGTH_TOLERANCE * measured, 0.5) + chance:
            rule = f"workload.{key} must have the run's mean, {measured:.1f}"
            timed.refuse(rule, f"{mean:.1f}", f"Correct workload.{key}, or leave it out.")


def _check_cached(timed: Timed, tokens: dict[str, int]) -> None:
    """What the prefix cache holds is not computed: a share of another size is another load."""
    share = tokens["cached"] / tokens["prompt"]
    if timed.cached_share is not None and abs(share - timed.cached_share) > CACHED_TOLERANCE:
        rule = f"the prefix cache must hold {100 * timed.cached_share:.0f}% of the prompts, as measured"
        remedy = "Say what prompts share (workload.shared_prefix, workload.turns), or measure without it."
        timed.refuse(rule, f"{100 * share:.0f}% in the simulation", remedy)
