"""Early stopping: no trial that it ends would have won, over landscapes, draws of noise and loads.

The made-up goodput of an arm has what all arms share under a seed (10 %: the arrivals) and its own luck
(1 %), both drawn from fixed keys, so a failure is no chance of this test.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from made_up import MadeUp, goodput_row, journal_of, lengths_of, noise, planned, search_on

from cluster_sim.trial import Trial
from cluster_sim.trials import Row

SIZES = (4, 16, 64, 128)  # within each bucket
STUDY = (
    "+study=draft_schedule",
    "study.trials=30",
    "study.bucket_lasts=[8,32,96]",
    "study.max_draft_length=4",
    "study.monotone=false",
    "study.axes.workload.request_rate=[20,60]",
    "study.window=4",
)
Landscape = Callable[[Sequence[int], float], float]


def falling(lengths: Sequence[int], rate: float) -> float:
    """Longer drafts at small batches, none at large ones; the more so, the busier it is."""
    best = (4, 3, 1, 0) if rate < 40 else (3, 2, 1, 0)
    return rate * (1.0 - 0.03 * sum(abs(own - each) for own, each in zip(lengths, best, strict=True)))


def cliff(lengths: Sequence[int], rate: float) -> float:
    """Long drafts at large batches cost half of the goodput, and elsewhere next to nothing."""
    return rate * (0.5 if lengths[3] > 1 else 1.0) * (1.0 + 0.002 * sum(lengths[:3]))


def crossing(lengths: Sequence[int], rate: float) -> float:
    """What is best under one load is worst under the other: the mean decides."""
    return 50.0 + (1.0 if rate < 40 else -1.6) * sum(lengths) + 2.0 * (lengths[0] > lengths[3])


def rising(lengths: Sequence[int], rate: float) -> float:
    """Drafts grow with the batch, as with experts."""
    return rate * (
        1.0 - 0.02 * sum((own - each) ** 2 for own, each in zip(lengths, (0, 1, 2, 4), strict=True))
    )


def made_of(landscape: Landscape, draw: int) -> Callable[[Trial], Row]:
    def row_of(trial: Trial) -> Row:
        rate = float(str(trial.point["workload.request_rate"]))
        shared = 1.0 + 0.1 * noise("arrivals", draw, trial.seed, rate)
        own = 1.0 + 0.01 * noise("luck", draw, trial.arm, trial.seed, rate)
        return goodput_row(landscape(lengths_of(trial, SIZES), rate) * shared * own)

    return row_of


@pytest.mark.parametrize("draw", range(2))
@pytest.mark.parametrize("landscape", [falling, cliff, crossing, rising])
def test_no_trial_that_is_stopped_would_have_won(landscape: Landscape, draw: int, tmp_path: Path) -> None:
    """Its value under all seeds, which the study does not simulate, is below that of the winner."""
    plan, row_of = planned(*STUDY), made_of(landscape, draw)
    search = search_on(plan, MadeUp(row_of), tmp_path)
    winner = max(told.score.value for told in search.told)
    stopped = [trial for trial in journal_of(tmp_path) if trial.state.name == "PRUNED"]
    assert stopped
    for one in stopped:
        cells = plan.arms.cells(plan.arms.arm(plan.space.candidate(one.params)), plan.study.seeds)
        whole = np.mean([row_of(cell.trial())["slo_goodput_rps"] for cell in cells])
        assert whole < winner


def test_stopping_saves_simulations(tmp_path: Path) -> None:
    """As many trials, of which those that are stopped have one seed of three."""
    count = {}
    for name, stop in (("stopping", "0.95"), ("patient", "null")):
        executor = MadeUp(made_of(cliff, 0))
        (tmp_path / name).mkdir()
        search_on(planned(*STUDY, f"study.stop_below={stop}"), executor, tmp_path / name)
        count[name] = len(executor.trials)
    assert count["stopping"] < count["patient"]
