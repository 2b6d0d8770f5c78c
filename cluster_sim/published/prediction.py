"""What this tool's tables say of a published row, as a speed-up over the row's reference."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from cluster_sim.compose import compose
from cluster_sim.config import Config
from cluster_sim.decode_time import decode_steps_s
from cluster_sim.optimum import without_drafter
from cluster_sim.published.rows import OFF, Row
from cluster_sim.published.timing import timing_of
from cluster_sim.run import simulate

Floats = NDArray[np.float64]
Predicted = dict[int, dict[int, float]]  # load -> draft length -> speed-up, or what the row's quantity is
FARTHEST = 512  # batch size up to which a draft length is looked for that still pays


def predicted(row: Row) -> Predicted:
    """For every value of the row.

    Raises:
        UserError: a setup that this tool cannot configure or time.
    """
    if row.quantity == "last_batch_size":
        return _last_batch_sizes(row)
    return _by_request_rate(row) if row.load == "request_rate" else _by_batch_size(row)


def config_of(row: Row, drafts: int, rate: int | None = None) -> Config:
    """The row's setup with `drafts` drafts, or without a drafter where they are OFF."""
    asked = list(row.overrides)
    if rate is not None:
        asked.append(f"workload.request_rate={rate}")
    if drafts == OFF:
        return compose([*asked, "speculation=none"])
    share = (row.acceptance_lengths[drafts] - 1.0) / drafts
    asked += [
        f"speculation={row.method}",
        f"speculation.num_speculative_tokens={drafts}",
        f"speculation.acceptance={{policy: decay, rate: {share}}}",
    ]
    if row.draft_model is not None:
        asked.append(f"speculation.model={row.draft_model}")
    return compose(asked)


def _by_batch_size(row: Row) -> Predicted:
    """[B][K]: tokens/s over those of the row's reference."""
    per_s = {k: row.acceptance_lengths[k] / _steps_s(row, k) for k in row.acceptance_lengths}
    base_per_s = per_s[row.reference] if row.reference != OFF else _base_per_s(row)
    speedups = {k: per_s[k] / base_per_s for k in per_s}
    of_one = {k: values[1] if row.quantity == "kept" else 1.0 for k, values in speedups.items()}
    return {
        load: {k: float(speedups[k][load] / of_one[k]) for k in by_length}
        for load, by_length in row.values.items()
    }


def _base_per_s(row: Row) -> Floats:
    """[B]: of no drafter, or of the other one."""
    if row.over is None:
        return 1.0 / _steps_s(row, OFF)
    drafts, length = row.over.draft_length, row.over.acceptance_length
    other = replace(row, method=row.over.method, acceptance_lengths={drafts: length})
    return length / _steps_s(other, drafts)


def _steps_s(row: Row, drafts: int) -> Floats:
    """[B]: seconds of a step of decodes alone, up to the row's largest batch size."""
    largest = max(row.values) if row.quantity != "last_batch_size" else FARTHEST
    timing = timing_of(config_of(row, drafts), in_graph=row.drafter_in_graph)
    return decode_steps_s(timing, np.full(largest + 1, drafts), row.kv_tokens)


def _last_batch_sizes(row: Row) -> Predicted:
    """[0][K]: the largest batch size at which a draft length of K or more pays most."""
    off_s = _steps_s(row, OFF)
    speedups = np.stack(
        [np.ones(len(off_s))]
        + [row.acceptance_lengths[k] * off_s / _steps_s(row, k) for k in row.acceptance_lengths]
    )
    lengths = np.array([OFF, *row.acceptance_lengths])
    best = lengths[np.argmax(speedups[:, 1:], axis=0)]
    (load,) = row.values
    last = {k: np.flatnonzero(best >= k) for k in row.values[load]}
    return {load: {k: float(sizes[-1] + 1) if len(sizes) else 0.0 for k, sizes in last.items()}}


def _by_request_rate(row: Row) -> Predicted:
    """[requests/s][K]: mean TPOT without the drafter over that with it, on the same arrivals."""
    found: Predicted = {}
    for rate, by_length in row.values.items():
        off_s = _tpot_s(without_drafter(config_of(row, OFF, rate)))
        found[rate] = {k: off_s / _tpot_s(config_of(row, k, rate)) for k in by_length}
    return found


def _tpot_s(config: Config) -> float:
    """Mean over requests of the time of an output token after the first."""
    run = simulate(config)
    later = run.requests["max_tokens"] - 1
    spans_s = run.log["last_token_s"] - run.log["first_token_s"]
    return float(np.nanmean(np.asarray(spans_s) / np.asarray(later)))
