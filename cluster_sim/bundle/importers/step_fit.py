"""What a whole step takes, as a sum of terms that steps tell apart, fitted to measured ones.

    step = fixed + experts * distinct experts(tokens) + sum over knots: slope * max(0, tokens - knot)
         + gap * layers (without a full CUDA graph) + head * rows of decodes
         + sum over query lengths <= query_tokens: read * batch * kv_tokens
         + prefill * prefill_tokens * (prefill_history_tokens + prefill_tokens / 2)

`tokens` are those of the CUDA graph that vLLM pads the step to. All coefficients are >= 0: time grows with
tokens, and each costs no less than those before it (memory bound, then compute bound); a context that more
queries read takes no less time. The sum of squared relative errors is least. With one knot and one query
length this is the linear form of SmartSpec (arXiv 2406.14066), T = a * context + b * tokens + d.

Knots lie at measured token counts, up to _KNOTS_TO_RIDGE times the ridge: past it a product is bound by
compute and straight. There are as many of them as leave reads and prefill a share of the data that no other
term explains, and more steps than numbers; data that is too little for that is refused. Gap and head are left
out where they have no such share: dense then holds them. Where prefill has none (chunks of few sizes, without
history), it is that of the roofline, and the rest is fitted to what remains.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cluster_sim.bundle.grids import Table
from cluster_sim.bundle.importers.nnls import nonnegative_least_squares
from cluster_sim.bundle.importers.steps_csv import Steps
from cluster_sim.cudagraphs import capture_sizes, padded, uniform_sizes
from cluster_sim.errors import UserError

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]

FIXED, EXPERTS, GAP, HEAD, PREFILL = "fixed", "experts", "gap", "head", "prefill"
KNOT, READ = "tokens above", "KV reads of query_tokens"
FOLDS = 10
_KNOTS_TO_RIDGE = 4.0  # a smooth maximum's slope is then within 4 % of the last one, whatever its exponent
_KNOTS_PER_OCTAVE = (8, 4, 2, 1, 0)  # the most that the data holds; 0: a straight line
_LEAST_SHARE = 0.05  # of a term's column that no other one explains; 2 % scatter over 50 steps: its 20 %
_LEAST_VALUES = 2  # of a column that varies
_DIGITS = 6  # of a coefficient: the same on every machine
_OPTIONAL = (GAP, HEAD)


@dataclass(frozen=True)
class Facts:
    """What the form takes from model and GPU."""

    num_hidden_layers: int
    max_cudagraph_capture_tokens: int
    ridge_tokens: float  # where compute takes as long as reading the weights
    expert_share: float  # of the experts, that one token goes to; 0: no experts
    experts_on_gpu: float
    expert_routing_exponent: float  # cluster_sim/expert_tables.py
    prefill_attention: Callable[[], Table]  # of the roofline


@dataclass(frozen=True)
class StepFit:
    """Seconds per unit of each term, and what each step then takes."""

    knots: Longs
    coefficients: Mapping[str, float]
    prefill_attention: Table | None  # of the roofline, where there is no coefficient
    tokens: Longs  # [step] after padding
    full_graph: NDArray[np.bool_]  # [step]
    launched_s: (
        Floats  # [step] the terms of tokens, and gaps: what the engine never runs faster than launches
    )
    fitted_s: Floats  # [step]
    held_out_s: Floats  # [step] by the fit to other folds; step i is in fold i modulo FOLDS

    def dense_s(self, tokens: Longs) -> Floats:
        """The terms of tokens alone, without gaps and experts."""
        slopes = np.array([self.coefficients[f"{KNOT} {knot}"] for knot in self.knots])
        ramps = np.maximum(0, tokens[:, np.newaxis] - self.knots)
        return np.asarray(self.coefficients[FIXED] + ramps @ slopes)

    def read_s(self, query_tokens: int) -> float:
        """Reading a token of a context by so many queries."""
        lengths = {term: int(term.removeprefix(READ)) for term in self.coefficients if term.startswith(READ)}
        return sum(self.coefficients[term] for term, length in lengths.items() if length <= query_tokens)


def fit(steps: Steps, facts: Facts) -> StepFit:
    """Fit the form to `steps`.

    Raises:
        UserError: the steps cannot tell the terms apart; names the column that must vary more.
    """
    _check_varied(steps)
    tokens, full_graph = graph_tokens(steps, facts.max_cudagraph_capture_tokens)
    knots, columns = _told_apart(_columns(steps, facts, tokens, full_graph), steps, facts, tokens)
    table = None if PREFILL in columns else facts.prefill_attention()
    given = np.zeros(len(tokens)) if table is None else _prefill_s(table, steps) / steps.time_s
    design = np.stack(list(columns.values()), axis=1) / steps.time_s[:, np.newaxis]
    found = _solve(design, 1.0 - given)
    launched = [term in {FIXED, EXPERTS, GAP} or term.startswith(KNOT) for term in columns]
    return StepFit(
        knots=knots,
        coefficients=dict(zip(columns, found.tolist(), strict=True)),
        prefill_attention=table,
        tokens=tokens,
        full_graph=full_graph,
        launched_s=design[:, launched] @ found[launched] * steps.time_s,
        fitted_s=(given + design @ found) * steps.time_s,
        held_out_s=(given + _held_out(design, 1.0 - given)) * steps.time_s,
    )


def graph_tokens(steps: Steps, largest: int) -> tuple[Longs, NDArray[np.bool_]]:
    """Tokens of each step after padding, and whether it runs in a full graph: only decodes do.

    The engine is taken to have seats for all captured sizes, as vLLM's defaults have.
    """
    tokens = steps.batch * steps.query_tokens + steps.prefill_tokens
    sizes = capture_sizes(largest, 0, 2 * largest, largest)
    size = padded(sizes, tokens)
    decodes_only = steps.prefill_tokens == 0
    for query in np.unique(steps.query_tokens[decodes_only]):
        of_query = decodes_only & (steps.query_tokens == query)
        size[of_query] = padded(uniform_sizes(sizes, int(query)), tokens[of_query])
    return np.where(size < 0, tokens, size), decodes_only & (size >= 0)


def _columns(steps: Steps, facts: Facts, tokens: Longs, full_graph: NDArray[np.bool_]) -> dict[str, Floats]:
    """What each term but the knots counts, [step]; terms that are 0 throughout are not among them."""
    context = steps.batch * steps.kv_tokens
    chunk = steps.prefill_tokens.astype(np.float64)
    chosen = tokens.astype(np.float64) ** facts.expert_routing_exponent
    columns = {
        FIXED: np.ones(len(tokens)),
        **{
            f"{READ} {query}": np.where(steps.query_tokens >= query, context, 0.0)
            for query in np.unique(steps.query_tokens[steps.batch > 0])
        },
        PREFILL: chunk * (steps.prefill_history_tokens + 0.5 * chunk),
        EXPERTS: facts.experts_on_gpu * (1.0 - (1.0 - facts.expert_share) ** chosen),
        GAP: facts.num_hidden_layers * (~full_graph).astype(np.float64),
        HEAD: (steps.batch * steps.query_tokens).astype(np.float64),
    }
    return {term: column for term, column in columns.items() if column.any()}


def _check_varied(steps: Steps) -> None:
    """Refuse columns that hold one value only."""
    decodes = steps.batch > 0
    wanted = [
        ("batch", steps.batch[decodes], ""),
        *(
            (
                "kv_tokens",
                steps.kv_tokens[decodes & (steps.query_tokens == query)],
                f" with query_tokens {query}",
            )
            for query in np.unique(steps.query_tokens[decodes])
        ),
        ("prefill_tokens", steps.prefill_tokens[steps.prefill_tokens > 0], ""),
    ]
    for column, values, condition in wanted:
        different = np.unique(values)
        if len(different) < _LEAST_VALUES:
            got = f"{different[0]:g} throughout" if len(different) else "none"
            rule = f"{column}{condition} must have at least two different values above 0"
            remedy = "Measure steps that differ in it."
            raise UserError(rule, got, f"{steps.path}, column {column}", remedy)


def _told_apart(
    others: dict[str, Floats], steps: Steps, facts: Facts, tokens: Longs
) -> tuple[Longs, dict[str, Floats]]:
    """As many knots as the data holds, and all columns of the form with them."""
    knots, columns, blurred = _with_knots(others, steps, facts, tokens)
    if blurred == PREFILL:
        others = {term: column for term, column in others.items() if term != PREFILL}
        knots, columns, blurred = _with_knots(others, steps, facts, tokens)
    if blurred is not None:
        got = f"steps whose other columns explain {1 - _LEAST_SHARE:.0%} or more of its term ({blurred})"
        where, remedy = f"{steps.path}, column kv_tokens", "Measure steps that differ in kv_tokens only."
        raise UserError("kv_tokens must vary apart from the other columns", got, where, remedy)
    for term in _OPTIONAL:
        more = columns | {term: others[term]} if term in others else columns
        if len(more) < _different(steps) and _blurred(more, steps.time_s) is None:
            columns = more
    return knots, columns


def _with_knots(
    others: dict[str, Floats], steps: Steps, facts: Facts, tokens: Longs
) -> tuple[Longs, dict[str, Floats], str | None]:
    """The most knots, all terms but the optional ones, and one that is not told from others and gaps, if any.

    A line instead of knots is for few steps only: it would tell terms apart that the steps do not.
    """
    needed = {term: column for term, column in others.items() if term not in _OPTIONAL}
    numbers, points, gap = 0, _different(steps), {GAP: others[GAP]}
    for per_octave in _KNOTS_PER_OCTAVE:
        knots = _knots(tokens, per_octave, facts)
        columns = needed | {f"{KNOT} {knot}": np.maximum(0.0, tokens - knot) for knot in knots}
        numbers = len(columns)
        if numbers < points:
            blurred = _blurred(columns | gap, steps.time_s, GAP)
            if blurred is None or per_octave <= 1:
                return knots, columns, blurred
    rule = f"{numbers} numbers are fitted, which takes at least {numbers + 1} different steps"
    raise UserError(rule, points, str(steps.path), "Measure more steps.")


def _different(steps: Steps) -> int:
    """Steps that differ in more than their time."""
    counts = [steps.batch, steps.query_tokens, steps.kv_tokens, steps.prefill_tokens]
    return len(np.unique(np.stack([*counts, steps.prefill_history_tokens], axis=1), axis=0))


def _knots(tokens: Longs, per_octave: int, facts: Facts) -> Longs:
    """The least measured token count, and the first in each part of a doubling while dense may bend."""
    counts = np.unique(tokens)
    experts = facts.expert_share or 1.0  # each expert sees that share of the tokens
    inside = counts[:-1][counts[:-1] <= _KNOTS_TO_RIDGE * facts.ridge_tokens / experts]
    if per_octave == 0 or len(inside) == 0:
        return counts[:1]
    return inside[np.unique(np.floor(per_octave * np.log2(inside)), return_index=True)[1]]


def _blurred(columns: dict[str, Floats], time_s: Floats, aside: str = FIXED) -> str | None:
    """The first term, `aside` and those of tokens excepted, that has less than its share; None without.

    The share of a column that is its own is |its part orthogonal to all others| / |it|, in relative errors.
    """
    design = np.stack(list(columns.values()), axis=1) / time_s[:, np.newaxis]
    design /= np.linalg.norm(design, axis=0)
    for place, term in enumerate(columns):
        if term in {FIXED, EXPERTS, aside} or term.startswith(KNOT):
            continue
        rest = np.delete(design, place, axis=1)
        explained = rest @ np.linalg.lstsq(rest, design[:, place], rcond=None)[0]
        if np.linalg.norm(design[:, place] - explained) < _LEAST_SHARE:
            return term
    return None


def _prefill_s(table: Table, steps: Steps) -> Floats:
    """[step] the table at each step's chunk and history; 0 without a chunk."""
    chunks, histories = (axis.astype(np.float64) for axis in table.axes.values())
    row, along = _place(chunks, steps.prefill_tokens.astype(np.float64))
    column, across = _place(histories, steps.prefill_history_tokens)
    near = (1.0 - across) * table.time_s[row, column] + across * table.time_s[row, column + 1]
    far = (1.0 - across) * table.time_s[row + 1, column] + across * table.time_s[row + 1, column + 1]
    return np.where(steps.prefill_tokens > 0, (1.0 - along) * near + along * far, 0.0)


def _place(axis: Floats, at: Floats) -> tuple[Longs, Floats]:
    """The interval of each value and how far into it; clamped below the first point, on past the last."""
    low = np.clip(np.searchsorted(axis, at, side="right") - 1, 0, len(axis) - 2)
    return low.astype(np.int64), np.maximum(0.0, (at - axis[low]) / (axis[low + 1] - axis[low]))


def _solve(design: Floats, target: Floats) -> Floats:
    """Coefficients whose sums come nearest to `target`, rounded."""
    found = nonnegative_least_squares(design, target)
    return np.array([float(f"{value:.{_DIGITS - 1}e}") for value in found])


def _held_out(design: Floats, target: Floats) -> Floats:
    """[step] sums of the coefficients of all folds but the step's own."""
    fold, sums = np.arange(len(design)) % FOLDS, np.zeros(len(design))
    for own in range(min(FOLDS, len(design))):
        others = fold != own
        sums[~others] = design[~others] @ _solve(design[others], target[others])
    return sums
