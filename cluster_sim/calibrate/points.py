"""A measured run as a configuration: the same traffic, drafts of the same length, on the bundle of a fit.

The run says its rate, burstiness, number of requests and the means of its lengths; vLLM ends the arrivals at
num_prompts / request_rate exactly (../shared/vllm-scheduler.md section 13). Lengths that the user does not
give are fixed at those means. A run that was kept with --save-detailed says when each request was sent and
how long it was: those requests are simulated, as a trace. With a rate of inf, --max-concurrency clients wait
for their answers (closed_loop), as vLLM's do.
"""

import json
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cluster_sim.calibrate.acceptance import Row
from cluster_sim.calibrate.bench import Timed, is_limited
from cluster_sim.compose import Composer
from cluster_sim.config import Config
from cluster_sim.errors import UserError
from cluster_sim.results import Run
from cluster_sim.run import simulate
from cluster_sim.summary import summarise

ALL_AT_ONCE = 1e6  # requests/s, for a rate of inf
METRICS = {"tpot": "tpot_s", "itl": "itl_s", "ttft": "ttft_s"}  # name -> key of summary.json
OF_THE_RUN = (
    *("requests", "duration_s", "request_rate", "arrivals", "burstiness", "ends_on_time", "trace"),
    "max_concurrency",
)
LENGTHS = {"prompt_tokens": "mean_input_tokens", "output_tokens": "mean_output_tokens"}
LENGTH_TOLERANCE = 0.05  # relative, of a mean length


@dataclass(frozen=True)
class Point:
    """A measured run, and the configuration that simulates it."""

    run: Timed
    config: Config

    def measured(self, metric: str) -> float | None:
        """The mean of a metric in s; None: not in the file."""
        value: float | None = getattr(self.run, f"mean_{METRICS[metric]}")
        return value


def check_given(given: Collection[str]) -> None:
    """Refuse keys of the command line that every measured run says itself.

    Raises:
        UserError: naming the first one.
    """
    for name in OF_THE_RUN:
        if f"workload.{name}" in given:
            key = f"workload.{name}"
            raise UserError(f"the measured runs say {key}", "a value of your own", key, "Leave it out.")


def point_of(
    run: Timed, composer: Composer, given: Collection[str], rows: Sequence[Row], trace: Path
) -> Point:
    """How to simulate a run; `given` are the keys of the command line, `rows` the profile found.

    `trace` is where the requests go, if the run lists them.

    Raises:
        UserError: the run had drafts that the configuration has not, or clients that waited for others.
    """
    is_closed = is_limited(run)
    if is_closed and math.isfinite(run.request_rate):
        rule = "requests of a run are sent at its rate, or when others end (rate inf), and not as both allow"
        remedy = "Measure without --max-concurrency or without --request-rate, or write --fit none."
        run.entry.refuse(rule, f"max_concurrency {run.max_concurrency} at a rate", remedy)
    free = {key: mean for key, mean in LENGTHS.items() if f"workload.{key}" not in given}
    changes: dict[str, object] = {"workload.requests": run.num_prompts}
    if run.requests and free == LENGTHS and not is_closed:
        trace.write_text("".join(json.dumps(vars(one)) + "\n" for one in run.requests), "utf-8")
        changes |= {"workload.trace": str(trace), "workload.request_rate": None}
        changes |= {f"workload.{key}": None for key in LENGTHS}
    else:
        changes |= _clients(run) if is_closed else _arrivals(run)
        changes |= {f"workload.{key}": max(1, round(getattr(run, mean))) for key, mean in free.items()}
    if run.draft_length == 0:
        return Point(run, composer.variant(changes | {"speculation": "none"}))
    row = next(row for row in rows if row.draft_length == run.draft_length)
    if run.draft_length != composer.config.speculation.num_speculative_tokens:
        changes["speculation.num_speculative_tokens"] = run.draft_length
    changes["speculation.acceptance"] = profile_of([row], None)
    return Point(run, composer.variant(changes))


def profile_of(rows: Sequence[Row], source: str | None) -> dict[str, Any]:
    """speculation.acceptance: the rates by position of one draft length, or of several."""
    rates = {row.draft_length: row.rates for row in rows}
    profile: dict[str, Any] = {"published": None, "rates_are": "marginal", "source": source}
    if len(rates) == 1:
        return profile | {"policy": "per_position", "rates": next(iter(rates.values()))}
    return profile | {"policy": "per_length", "per_length": rates}


def simulated(point: Point, bundle: str, seed: int) -> dict[str, float]:
    """Mean of each metric in s, on the bundle at the path `bundle`.

    Raises:
        UserError: the simulated server cannot serve all requests, or lengths are not those measured.
    """
    config = replace(point.config, seed=seed, cluster=replace(point.config.cluster, bundle=bundle))
    run = simulate(config)
    summary = summarise(run)
    if summary["requests"]["completed"] < point.run.num_prompts:
        rule = f"the simulated server must complete all {point.run.num_prompts} requests"
        point.run.entry.refuse(rule, summary["requests"]["completed"], "Correct engine and workload.")
    _check_lengths(point.run, run)
    found = {metric: summary[key]["mean"] for metric, key in METRICS.items()}
    if None in found.values():
        point.run.entry.refuse("requests must have two output tokens or more, to have a TPOT", "one")
    return found


def _clients(run: Timed) -> dict[str, object]:
    """As many clients as --max-concurrency says, each of which sends its next request at its answer."""
    return {
        "workload.arrivals": "closed_loop",
        "workload.max_concurrency": run.max_concurrency,
        "workload.think_time_s": 0.0,
        "workload.request_rate": None,
    }


def _arrivals(run: Timed) -> dict[str, object]:
    if math.isinf(run.request_rate):
        return {"workload.arrivals": "constant", "workload.request_rate": ALL_AT_ONCE}
    if math.isinf(run.burstiness):
        return {"workload.arrivals": "constant", "workload.request_rate": run.request_rate}
    return {
        "workload.arrivals": "gamma",
        "workload.burstiness": run.burstiness,
        "workload.ends_on_time": True,
        "workload.request_rate": run.request_rate,
    }


def _check_lengths(run: Timed, simulation: Run) -> None:
    asked = {
        "prompt_tokens": simulation.requests["prompt_tokens"],
        "output_tokens": simulation.log["emitted_tokens"],
    }
    for key, tokens in asked.items():
        measured, mean = getattr(run, LENGTHS[key]), float(np.mean(tokens))
        if abs(mean - measured) > max(LENGTH_TOLERANCE * measured, 0.5):
            rule = f"workload.{key} must have the run's mean, {measured:.1f}"
            run.entry.refuse(rule, f"{mean:.1f}", f"Correct workload.{key}, or leave it out.")
