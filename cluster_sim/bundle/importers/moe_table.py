"""moe.csv: the routed experts of one layer, by tokens and by distinct experts that they wake.

A newer profiler also times smaller models in place of an expert-parallel rank (column ep above 1): those rows
are left out, since the engine asks for a share of the tokens and of the experts instead.

Corners: a count of experts that few tokens cannot wake costs what the fewest tokens that can do, and goes on
along its last two points. No expert costs nothing, fewer than were profiled their share of weights.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cluster_sim.bundle.architecture import Parallel, experts
from cluster_sim.bundle.importers.csv_table import COUNT, TIME_US, Floats, Longs, read_csv, refuse
from cluster_sim.bundle.importers.curves import along
from cluster_sim.bundle.kernels import active_experts
from cluster_sim.config import ModelConfig

Grid = tuple[Longs, Longs, NDArray[np.float64]]


def read(file: Path, model: ModelConfig) -> Grid:
    """Tokens, active experts from 0, and seconds of one layer at [tokens, experts].

    Raises:
        UserError: the file is damaged, lacks points, or has more experts than the model.
    """
    columns = {"tokens": COUNT, "activated_experts": COUNT, "time_us": TIME_US}
    rows = read_csv(file, columns, optional={"ep": (COUNT, 1)})
    rows.check_once("ep", "tokens", "activated_experts")
    whole = rows.where(rows["ep"] == 1)
    if not len(whole.line):
        refuse(file, "experts must be profiled whole, on one GPU", "no row with ep 1")
    tokens, active = np.unique(whole["tokens"]), np.unique(whole["activated_experts"])
    if active[0] < 1 or active[-1] > model.num_experts:
        rule = f"column activated_experts must hold 1 to {model.num_experts}, the experts of {model.name}"
        refuse(file, rule, f"{active[0]} to {active[-1]}")
    if len(tokens) < 2 or tokens[0] < 1:  # noqa: PLR2004  a line has two ends
        refuse(file, "column tokens must hold two or more different counts >= 1", tokens.tolist()[:2])
    grid = np.zeros((len(tokens), 1 + len(active)))
    for column, count in enumerate(active.tolist(), start=1):
        some = whole.where(whole["activated_experts"] == count)
        known, time_us = some["tokens"], some["time_us"]
        grid[:, column] = along(known, time_us, tokens) if len(known) > 1 else time_us[0]
    return tokens, np.insert(active, 0, 0), 1e-6 * grid


def expected_s(grid: Grid, model: ModelConfig, parallel: Parallel, tokens: Longs) -> Floats:
    """Seconds of one layer for `tokens` that choose their experts independently."""
    known, active, time_s = grid
    wanted = active_experts(tokens, experts(model, parallel), 1.0)
    by_tokens = np.stack([np.interp(wanted, active, row) for row in time_s])
    columns = [along(known, by_tokens[:, at], tokens[at : at + 1])[0] for at in range(len(tokens))]
    return np.array(columns)
