"""Fitted terms of whole steps as the tables and parameters of a bundle, each with a source in words."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cluster_sim.bundle.architecture import Parallel, experts
from cluster_sim.bundle.assumptions import assumptions
from cluster_sim.bundle.format import ALL_REDUCE, MOE, PARAMETERS
from cluster_sim.bundle.grids import Table
from cluster_sim.bundle.importers.step_fit import EXPERTS, GAP, HEAD, PREFILL, Floats, StepFit
from cluster_sim.bundle.importers.steps_csv import Steps
from cluster_sim.bundle.roofline import MAX_KV_TOKENS, MAX_REQUESTS, MAX_TOKENS, sizes
from cluster_sim.bundle.sections import Parameter
from cluster_sim.config import HardwareConfig, ModelConfig

Grid = tuple[dict[str, NDArray[Any]], Floats, str]  # axes, seconds, what it is


class Origin(NamedTuple):
    """Where the steps come from."""

    source: str
    licence: str


NOT_MEASURED = "not measured here: "
_IN_DENSE = "0: these steps cannot tell it apart, so dense holds it"


def tables(
    found: StepFit, steps: Steps, model: ModelConfig, parallel: Parallel, origin: Origin
) -> dict[str, Table]:
    """All tables that a bundle of `model` needs."""
    grids = {
        "dense": _dense(found),
        "head": _head(found),
        **({"prefill_attention": _prefill_attention(found)} if PREFILL in found.coefficients else {}),
        "decode_attention": _decode_attention(found, steps),
    }
    if parallel.tensor_parallel_size > 1:
        tokens = np.array([1, MAX_TOKENS])
        grids[ALL_REDUCE] = ({"tokens": tokens}, np.zeros(2), _IN_DENSE)
    if model.num_experts:
        grids[MOE] = _moe(found, experts(model, parallel).on_gpu)
    fitted = {
        name: Table(axes, time_s, f"{words}; fitted to whole steps, {origin.source}", origin.licence)
        for name, (axes, time_s, words) in grids.items()
    }
    if found.prefill_attention is None:
        return fitted
    assumed = found.prefill_attention
    return fitted | {"prefill_attention": replace(assumed, source=NOT_MEASURED + assumed.source)}


def parameters(
    found: StepFit, model: ModelConfig, hardware: HardwareConfig, origin: Origin
) -> dict[str, Parameter]:
    """What the steps say of launches without a full graph; the rest is assumed, and says so."""
    assumed = {name: entry for name, entry in assumptions().parameters.items() if name in PARAMETERS}
    known = {name: replace(entry, source=NOT_MEASURED + entry.source) for name, entry in assumed.items()}
    captured = "Largest size of a captured CUDA graph, whatever max_num_seqs allows."
    largest = float(hardware.max_cudagraph_capture_tokens)
    of_hardware = f"{NOT_MEASURED}{hardware.source}"
    known["max_cudagraph_capture_tokens"] = Parameter(largest, captured, of_hardware, hardware.licence)
    gap = "fitted to whole steps with and without a full graph" if GAP in found.coefficients else _IN_DENSE
    known["piecewise_layer_gap_s"] = replace(
        assumed["piecewise_layer_gap_s"],
        value=found.coefficients.get(GAP, 0.0),
        source=f"{gap}; {origin.source}",
        licence=origin.licence,
    )
    fastest_s = float(found.launched_s[~found.full_graph].min()) / model.num_hidden_layers
    launch = assumed["piecewise_layer_launch_s"]
    if fastest_s < launch.value:
        words = (
            f"at most that of the fastest whole step without a full graph, {origin.source}; {launch.source}"
        )
        known["piecewise_layer_launch_s"] = replace(launch, value=fastest_s, source=words)
    if model.num_experts:
        words = "s of active experts = E * (1 - (1 - k/E)^(T^s)); 1 if tokens chose experts independently."
        exponent = float(hardware.moe_bf16.smooth_p or 0.0)
        known["expert_routing_exponent"] = Parameter(exponent, words, of_hardware, hardware.licence)
    return known


def _dense(found: StepFit) -> Grid:
    tokens = np.unique([*found.knots, found.tokens.max()])
    words = (
        "with everything that the other tables lack: the first row of lm_head, the sampler, norms, launches"
    )
    return {"tokens": tokens}, found.dense_s(tokens), words


def _head(found: StepFit) -> Grid:
    rows = np.array([0, MAX_TOKENS])
    words = "what a decode's token takes beyond a prefill's" if HEAD in found.coefficients else _IN_DENSE
    return {"rows": rows}, found.coefficients.get(HEAD, 0.0) * rows, words


def _prefill_attention(found: StepFit) -> Grid:
    chunk, history = sizes(MAX_TOKENS), np.array([0, MAX_KV_TOKENS])
    each_s, longer = found.coefficients[PREFILL], chunk[:, np.newaxis].astype(np.float64)
    axes = {"chunk_tokens": chunk, "history_tokens": history}
    words = f"{each_s:.3g} s * chunk * (history + chunk / 2)"
    return axes, each_s * longer * (history + 0.5 * longer), words


def _decode_attention(found: StepFit, steps: Steps) -> Grid:
    """Of the measured query lengths only."""
    query = np.unique(steps.query_tokens[steps.batch > 0])
    requests, kv_tokens = np.array([0, MAX_REQUESTS]), np.array([0, MAX_KV_TOKENS])
    reads_s = np.array([found.read_s(int(length)) for length in query])
    tokens = requests[:, np.newaxis] * kv_tokens.astype(np.float64)
    time_s = np.repeat((reads_s[:, np.newaxis, np.newaxis] * tokens)[:, np.newaxis], 2, axis=1)
    axes = {"query_tokens": query, "chunk_tokens": np.array([0, 1]), "requests": requests}
    words = ", ".join(f"{each:.3g} s" for each in reads_s)
    lengths = ", ".join(map(str, query.tolist()))
    return {**axes, "kv_tokens": kv_tokens}, time_s, f"a KV token takes {words} with {lengths} query tokens"


def _moe(found: StepFit, on_gpu: int) -> Grid:
    active, tokens = np.array([0, on_gpu]), np.array([1, MAX_TOKENS])
    each_s = found.coefficients.get(EXPERTS, 0.0)
    words = f"an active expert of all layers takes {each_s:.3g} s, their products are in dense"
    time_s = np.repeat(each_s * active[np.newaxis].astype(np.float64), 2, axis=0)
    return (
        {"tokens": tokens, "experts": active},
        time_s,
        words if EXPERTS in found.coefficients else _IN_DENSE,
    )
