"""One trial of a sweep: a simulation and its place in the sweep; any process makes the same row of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cluster_sim.config import Config
from cluster_sim.errors import naming
from cluster_sim.run import simulate
from cluster_sim.summary import summarise
from cluster_sim.trials import MACHINE_KEYS, Row, trial_row


@dataclass(frozen=True)
class Trial:
    """What to simulate. Trials of one seed at one point of the axes, one per arm, serve the same arrivals."""

    number: int  # from 0, in the order of the sweep
    arm: str
    point: Mapping[str, object]  # axis -> value
    seed: int
    config: Config  # checked, without a sweep


@dataclass(frozen=True)
class Ended:
    """What a trial leaves: its row, and beside it what depends on the machine."""

    row: Row
    machine: dict[str, Any]  # the values of MACHINE_KEYS


def run_trial(trial: Trial) -> Ended:
    """Simulate `trial`; its row is a function of the trial alone.

    Raises:
        UserError: its bundle or its trace is wrong, or does not fit; names the trial.
    """
    with naming(f"{place_of(trial.arm, trial.point)}, seed {trial.seed}"):
        summary = summarise(simulate(trial.config))
    row = trial_row(trial.number, trial.arm, trial.point, trial.seed, summary)
    return Ended(row, {key: summary[key] for key in MACHINE_KEYS})


def place_of(arm: str, point: Mapping[str, object]) -> str:
    """An arm at a point of the axes, in words."""
    return ", ".join([f"arm {arm}", *(f"{axis}={value}" for axis, value in point.items())])
