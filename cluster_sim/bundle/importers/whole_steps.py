"""A bundle from measured steps of an engine: read them, fit them, fill the tables, and say how well they fit.

What whole steps cannot tell apart is held by `dense`, and each table's source says what it lacks. Errors are
relative: |fitted - measured| / measured. The same CSV gives the same bundle.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from cluster_sim.bundle.architecture import Parallel, layer_bytes_per_weight
from cluster_sim.bundle.assumptions import assumptions
from cluster_sim.bundle.format import Bundle, facts_of
from cluster_sim.bundle.grids import Table
from cluster_sim.bundle.importers.fitted_tables import NOT_MEASURED, Origin, parameters, tables
from cluster_sim.bundle.importers.step_fit import FOLDS, Facts, fit
from cluster_sim.bundle.importers.steps_csv import SYNC_STEP, Steps, load
from cluster_sim.bundle.roofline import build, bundle_name
from cluster_sim.bundle.sections import Parameter
from cluster_sim.config import HardwareConfig, ModelConfig, Quantization
from cluster_sim.errors import UserError

MOST_RESIDUALS_SHOWN = 20


@dataclass(frozen=True)
class Residual:
    """A measured step, what the bundle takes for it, and what a fit without its fold does."""

    line: int  # of the CSV
    measured_s: float
    fitted_s: float
    held_out_s: float

    @property
    def error(self) -> float:
        """Of the fit, as a share of the measured time."""
        return self.fitted_s / self.measured_s - 1.0

    @property
    def held_out_error(self) -> float:
        """Of the fit to the other folds."""
        return self.held_out_s / self.measured_s - 1.0


@dataclass(frozen=True)
class Fitted:
    """A bundle, and what is left of each step that it was fitted to."""

    bundle: Bundle
    residuals: list[Residual]


def read_steps(
    path: Path, model: ModelConfig, hardware: HardwareConfig, parallel: Parallel, origin: Origin
) -> Fitted:
    """Fit the bundle of `model` on `hardware` to the steps in the CSV at `path` (steps_csv.py).

    Raises:
        UserError: a line of the file breaks a rule, or the steps cannot tell the terms of the fit apart.
    """
    steps = _without_host(load(path))
    found = fit(steps, _facts(model, hardware, parallel))
    bundle = Bundle(
        name=bundle_name(model, hardware, parallel),
        kind="measured",
        engine=f"that of the measured steps: {origin.source}",
        dtype=model.dtype,
        tensor_parallel_size=parallel.tensor_parallel_size,
        model=facts_of(model),
        hardware=facts_of(hardware),
        parameters=parameters(found, model, hardware, origin),
        drafters={},
        tables=tables(found, steps, model, parallel, origin),
    )
    columns = (steps.line, steps.time_s, found.fitted_s, found.held_out_s)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return Fitted(bundle, [Residual(*row) for row in rows])


def residual_table(fitted: Fitted) -> Iterator[str]:
    """Lines for the terminal: errors over all steps, then the steps with the largest ones."""
    rows = fitted.residuals
    for words, errors in (
        ("fit", [abs(row.error) for row in rows]),
        (f"held out ({FOLDS} folds, line by line)", [abs(row.held_out_error) for row in rows]),
    ):
        middle, high = np.quantile(errors, [0.5, 0.9])
        shares = f"median {middle:.1%}, p90 {high:.1%}, largest {max(errors):.1%}"
        yield f"{words}: error over {len(rows):,} steps {shares}"
    about: dict[str, Table | Parameter] = {**fitted.bundle.tables, **fitted.bundle.parameters}
    assumed = [name for name, entry in about.items() if entry.source.startswith(NOT_MEASURED)]
    yield f"{NOT_MEASURED}{', '.join(assumed)}"
    worst = sorted(rows, key=lambda row: -abs(row.error))[:MOST_RESIDUALS_SHOWN]
    yield "largest errors, in ms:" if len(worst) < len(rows) else "errors, in ms, the largest first:"
    yield f"{'line':>8}{'measured':>12}{'fitted':>12}{'error':>9}{'held out':>12}{'error':>9}"
    for row in worst:
        times = f"{row.measured_s * 1e3:>12.3f}{row.fitted_s * 1e3:>12.3f}{row.error:>+9.1%}"
        yield f"{row.line:>8}{times}{row.held_out_s * 1e3:>12.3f}{row.held_out_error:>+9.1%}"


def _without_host(steps: Steps) -> Steps:
    """GPU time: synchronous steps less the host's time, which the engine adds again."""
    if not steps.has_host_time:
        return steps
    host_s = assumptions().parameters["host_s"].value
    row = int(np.argmin(steps.time_s))
    if steps.time_s[row] <= host_s:
        raise UserError(
            f"{SYNC_STEP} must exceed the host's {host_s * 1e3:g} ms (host_s of bundles/assumptions.yaml)",
            f"{steps.time_s[row] * 1e3:g}",
            f"{steps.path}, line {steps.line[row]}, column {SYNC_STEP}",
            "Measure the GPU time of the steps, and call the column step_ms.",
        )
    return replace(steps, time_s=steps.time_s - host_s)


def _facts(model: ModelConfig, hardware: HardwareConfig, parallel: Parallel) -> Facts:
    """What the form of the fit takes from model and GPU.

    Raises:
        UserError: a model with experts, and hardware without the exponent of its routing.
    """
    is_fp8 = model.quantization is Quantization.fp8
    flop_per_s = (hardware.fp8_tflops if is_fp8 else hardware.bf16_tflops) * 1e12
    exponent = hardware.moe_bf16.smooth_p
    if model.num_experts and exponent is None:
        raise UserError("hardware.moe_bf16 needs smooth_p", "null", "hardware.moe_bf16", "Give it.")
    return Facts(
        num_hidden_layers=model.num_hidden_layers,
        max_cudagraph_capture_tokens=hardware.max_cudagraph_capture_tokens,
        ridge_tokens=flop_per_s * layer_bytes_per_weight(model) / (2.0 * hardware.hbm_gb_per_s * 1e9),
        expert_share=model.num_experts_per_tok / model.num_experts if model.num_experts else 0.0,
        experts_on_gpu=model.num_experts / parallel.expert_parallel_size,
        expert_routing_exponent=exponent or 1.0,
        prefill_attention=lambda: build(model, hardware, parallel).tables["prefill_attention"],
    )
