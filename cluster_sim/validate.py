"""`validate`: replay a measured run of vLLM (measured_run.py) and compare latencies and throughput.

The measured times are those of the engine core, from when its loop picked a request up. So TTFT and E2E are
counted here from the simulated pickup too, not from the arrival as elsewhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cluster_sim.files import write_json
from cluster_sim.measured_run import LENGTHS, MEASURED, Floats, Measured, config_of, read_measured, refuse
from cluster_sim.results import Run
from cluster_sim.run import simulate

STATISTICS = ("mean", "p50", "p90", "p95", "p99")
SAME_ARRIVAL_S = 1e-3  # two notes of one arrival differ by less: a tenth of the shortest of steps


@dataclass(frozen=True)
class Latencies:
    """Per request in order of arrival, seconds; TPOT is nan where there is one token."""

    ttft_s: Floats
    tpot_s: Floats
    e2el_s: Floats
    output_throughput_tok_s: float


@dataclass(frozen=True)
class Validation:
    """A measured run, and the same run simulated."""

    run: Run
    measured: Latencies
    simulated: Latencies

    def as_dict(self) -> dict[str, Any]:
        """Errors by metric and statistic, in percent of the measured value; and the MAPE over requests."""
        names = ("ttft_s", "tpot_s", "e2el_s")
        pairs = {name: (getattr(self.measured, name), getattr(self.simulated, name)) for name in names}
        metrics: dict[str, Any] = {
            name: {of: _compared(_statistic(there, of), _statistic(here, of)) for of in STATISTICS}
            for name, (there, here) in pairs.items()
        }
        metrics["output_throughput_tok_s"] = _compared(
            self.measured.output_throughput_tok_s, self.simulated.output_throughput_tok_s
        )
        mape = {name: _mape(there, here) for name, (there, here) in pairs.items()}
        return {"metrics": metrics, "mape_percent": mape}


def validate(directory: Path, bundle: str | None, overrides: Sequence[str]) -> Validation:
    """Simulate the measured run in `directory` with a bundle (None: the roofline's) and compare.

    Raises:
        UserError: the run or the bundle is damaged, or they do not belong together.
    """
    config = config_of(directory, bundle, overrides)
    measured = read_measured(directory / MEASURED)
    run = simulate(config)
    _check_same(directory, measured, run)
    log = run.log
    return Validation(
        run,
        _latencies(measured, measured.arrival_s, measured.first_token_s, measured.last_token_s),
        _latencies(measured, log["queued_s"], log["first_token_s"], log["last_token_s"]),
    )


def write(validation: Validation, file: Path) -> None:
    """Write the comparison as JSON.

    Raises:
        UserError: the file cannot be written.
    """
    write_json(file, validation.as_dict(), "--json")


def _check_same(directory: Path, measured: Measured, run: Run) -> None:
    """Refuse a run whose files are not of the same requests, or that the simulated engine cannot serve."""
    file, requests = directory / MEASURED, run.log.shape[0]
    if requests != len(measured.arrival_s):
        refuse(file, f"there must be one row for each of {requests} requests", len(measured.arrival_s))
    asked = {"prompt_tokens": run.requests["prompt_tokens"], "output_tokens": run.requests["max_tokens"]}
    differ = {name: asked[name] != getattr(measured, name) for name in LENGTHS}
    asked["arrival_s"] = run.requests["arrival_s"]
    differ["arrival_s"] = np.abs(asked["arrival_s"] - measured.arrival_s) > SAME_ARRIVAL_S
    for name, is_different in differ.items():
        if np.any(is_different):
            first = int(np.argmax(is_different))
            rule = f"{name} must be the workload's: {asked[name][first]:g} for request {first} by arrival"
            refuse(file, rule, f"{getattr(measured, name)[first]:g}")
    lost = np.count_nonzero(np.isnan(run.log["last_token_s"]))
    if lost:
        refuse(directory, "the simulated engine must serve every request", f"{lost} rejected")


def _latencies(measured: Measured, start_s: Floats, first_s: Floats, last_s: Floats) -> Latencies:
    later = measured.output_tokens - 1.0
    later = np.where(later > 0, later, np.nan)
    return Latencies(
        first_s - start_s,
        (last_s - first_s) / later,
        last_s - start_s,
        float(measured.output_tokens.sum() / last_s.max()),
    )


def _statistic(seconds: Floats, of: str) -> float:
    if of == "mean":
        return float(np.nanmean(seconds))
    return float(np.nanpercentile(seconds, float(of.removeprefix("p"))))


def _compared(measured: float, simulated: float) -> dict[str, float]:
    return {
        "measured": measured,
        "simulated": simulated,
        "error_percent": 100.0 * (simulated / measured - 1.0),
    }


def _mape(measured: Floats, simulated: Floats) -> float:
    """Mean over requests of the absolute error, in percent of the measured value."""
    return float(100.0 * np.nanmean(np.abs(simulated / measured - 1.0)))
