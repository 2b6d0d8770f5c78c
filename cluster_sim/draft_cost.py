"""What drafting costs, from the bundle or from a roofline of the drafter's own architecture.

A drafter is never free by accident: the bundle's tables come first; without them the drafter is timed as the
roofline times the target, on the same GPU; a number may be given instead, and zero must be asked for by name.

K drafts for n requests in a step of T tokens take, on top of prepare_s and of reading KV (draft_tables.py),
    sequential   first(T) + head(n) + (K - 1) (next(n) + head(n)),   K = 0: first(T)
    one block    first(T) + next(n (1 + K)) + head(n K),             K = 0: first(T)
    on the host  head(n),                                            K = 0: nothing
where a pass takes pass_launch_s at least. Passes are padded to the captured sizes of the target.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cluster_sim.bundle.architecture import Parallel
from cluster_sim.bundle.draft_tables import draft_tables, drafter_parameters
from cluster_sim.bundle.format import Bundle
from cluster_sim.bundle.roofline import MAX_TOKENS, sizes
from cluster_sim.bundle.sections import Parameter
from cluster_sim.config import DraftCost, HardwareConfig, Method, ModelConfig, SpeculationConfig
from cluster_sim.cudagraphs import padded
from cluster_sim.speculation.proposer import Passes, drafter_of, passes_of

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]
FIRST_PASS = (Passes.sequential, Passes.one)  # over the step's tokens, whatever K is


@dataclass(frozen=True)
class DraftTables:
    """A drafter's tables on their axes, seconds; and where they come from."""

    passes: Passes
    axis: Longs
    first_s: Floats  # [tokens]
    next_s: Floats  # [requests]
    head_s: Floats  # [rows]
    parameters: dict[str, float]
    is_chain: bool  # of several MTP modules, each with KV of all tokens


@dataclass(frozen=True)
class DraftArrays:
    """Columns of engine.rules.StepTime for one bundle."""

    first_s: Floats  # [tokens]
    more_s: Floats  # [draft length, requests]
    kv_s: Floats  # [draft length]


def of_bundle(bundle: Bundle, method: Method) -> DraftTables | None:
    """The drafter's tables in a bundle; None where it has none."""
    if method.name not in bundle.drafters:
        return None
    first, further, head = (bundle.tables[name] for name in ("draft_first", "draft_next", "draft_head"))
    row = first.axes["drafter"].tolist().index(method.name)
    axis = first.axes["tokens"]
    return DraftTables(
        passes_of(method),
        axis,
        first.time_s[row],
        _on(axis, further.axes["requests"], further.time_s[row]),
        _on(axis, head.axes["rows"], head.time_s[row]),
        _values(bundle.drafters[method.name]),
        _is_chain(method, bundle.drafters[method.name]["num_hidden_layers"].value),
    )


def of_roofline(
    method: Method,
    model: ModelConfig,
    hardware: HardwareConfig,
    parallel: Parallel,
    draft: ModelConfig | None,
) -> DraftTables:
    """The drafter's tables from its architecture; `draft` is draft_model's model.

    Raises:
        UserError: a drafter that the model cannot have, or costs that the hardware lacks.
    """
    drafter = drafter_of(method, model, parallel, draft)
    if drafter is None:
        raise ValueError("no speculation, no drafter")
    known = {method.name: drafter}
    grids = draft_tables(hardware, known, sizes(MAX_TOKENS))
    first, further, head = (grids[name] for name in ("draft_first", "draft_next", "draft_head"))
    parameters = drafter_parameters(model, hardware, known)[method.name]
    axis = first[0]["tokens"]
    return DraftTables(
        drafter.passes,
        axis,
        first[1][0],
        further[1][0],
        head[1][0],
        _values(parameters),
        _is_chain(method, drafter.num_hidden_layers),
    )


def draft_arrays(
    tables: DraftTables | None, speculation: SpeculationConfig, counts: tuple[int, int, int], captured: Longs
) -> DraftArrays:
    """Arrays of a drafter for (tokens, requests, draft length) up to `counts`; zeros where it is free."""
    tokens, requests, drafts = (np.arange(most + 1) for most in counts)
    shape = (len(drafts), len(requests))
    if counts[2] == 0 or speculation.draft_cost is DraftCost.zero:
        return DraftArrays(np.zeros(len(tokens)), np.zeros(shape), np.zeros(len(drafts)))
    passes = passes_of(speculation.method)
    if speculation.draft_cost is DraftCost.given:
        pass_s = float(speculation.draft_pass_s or 0.0)
        number = _passes_beyond_first(passes, drafts)
        first_s = np.full(len(tokens), pass_s if passes in FIRST_PASS else 0.0)
        return DraftArrays(
            first_s, np.tile(pass_s * number[:, np.newaxis], (1, len(requests))), np.zeros(len(drafts))
        )
    if tables is None:
        raise ValueError("a drafter whose cost is not given needs tables")
    parameters = tables.parameters
    launch_s = parameters["pass_launch_s"]
    first_s = _at(tables, tables.first_s, _pad(captured, tokens))
    more_s = np.stack([_more_s(tables, int(length), requests, captured) for length in drafts])
    if passes in FIRST_PASS:
        floor_s = launch_s if passes is Passes.sequential else 0.0
        first_s = parameters["prepare_s"] + np.maximum(first_s, floor_s)
    kv_s = parameters["attention_s_per_kv_token"] * _kv_reads(passes, drafts).astype(np.float64)
    return DraftArrays(first_s, more_s, kv_s)


def _more_s(tables: DraftTables, length: int, requests: Longs, captured: Longs) -> Floats:
    """[requests]: all that `length` drafts take beyond the first pass."""
    if length == 0:
        return np.zeros(len(requests))
    launch_s = tables.parameters["pass_launch_s"]
    head_s = _at(tables, tables.head_s, requests)
    match tables.passes:
        case Passes.host:
            return tables.parameters["prepare_s"] + head_s
        case Passes.heads:
            block_s = _at(tables, tables.next_s, requests)
            heads_s = length * np.maximum(block_s + head_s, launch_s)
            return np.asarray(tables.parameters["prepare_s"] + heads_s)
        case Passes.one:
            block = requests * (1 + length)
            block_s = _at(tables, tables.next_s, _pad(captured, block)) + _at(
                tables, tables.head_s, requests * length
            )
            return np.maximum(block_s, launch_s)
        case Passes.sequential:
            alone_s = _at(tables, tables.first_s, _pad(captured, requests * (1 + length)))
            waits_s = np.maximum(launch_s - alone_s, 0.0)  # of the first pass, in which its head runs too
            next_s = _at(tables, tables.next_s, _pad(captured, requests))
            next_s = (alone_s if tables.is_chain else next_s) + head_s
            further_s = (length - 1) * np.maximum(next_s, launch_s)
            return np.asarray(np.maximum(head_s - waits_s, 0.0) + further_s)


def _is_chain(method: Method, layers: float) -> bool:
    return method is Method.mtp and layers > 1


def _passes_beyond_first(passes: Passes, drafts: Longs) -> Longs:
    """Passes for each draft length on top of the one over the step's tokens."""
    if passes is Passes.sequential:
        return np.maximum(drafts - 1, 0)
    return drafts if passes is Passes.heads else np.minimum(drafts, 1)


def _kv_reads(passes: Passes, drafts: Longs) -> Longs:
    """Passes that read the KV of the decodes; on the host, searches of their text."""
    if passes is Passes.sequential:
        return np.maximum(drafts, 1)
    return 0 * drafts if passes is Passes.heads else np.minimum(drafts, 1)


def _pad(captured: Longs, counts: Longs) -> Longs:
    """Padded to a captured size; as they are where none fits."""
    size = padded(captured, counts)
    return np.where(size < 0, counts, size)


def _at(tables: DraftTables, values: Floats, counts: Longs) -> Floats:
    return _on(counts, tables.axis, values)


def _on(at: Longs, axis: Longs, values: Floats) -> Floats:
    """Linear between points, as the first below them, along the last two above."""
    slope = (values[-1] - values[-2]) / (axis[-1] - axis[-2])
    return np.asarray(np.interp(at, axis, values) + np.maximum(at - axis[-1], 0) * slope)


def _values(parameters: dict[str, Parameter]) -> dict[str, float]:
    return {name: parameter.value for name, parameter in parameters.items()}
