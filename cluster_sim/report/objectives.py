"""Objectives of studies in words, by their names."""

from collections.abc import Mapping
from typing import Any

from cluster_sim.report.words import NOTHING, figures, seconds

TIMES = ("tpot", "tpot_p99", "ttft_p99")  # in s
WHOLE = "gpus"
WORDS = {"slo": "SLO", "tpot": "TPOT", "ttft": "TTFT", "gpus": "GPUs"}


def objective_words(name: str) -> str:
    """An objective by its name: `SLO goodput`, `TPOT p99`."""
    return " ".join(WORDS.get(part, part) for part in name.split("_"))


def objective_number(objective: str, value: float | None) -> str:
    """A value of an objective."""
    if objective == WHOLE and value is not None:
        return f"{value:g}"
    return seconds(value) if objective in TIMES else figures(value)


def interval_words(objective: str, value: Mapping[str, Any] | None) -> str:
    """A value of an objective and its 95 % interval, where it has a width."""
    if value is None:
        return NOTHING
    mean, low, high = (objective_number(objective, value[name]) for name in ("value", "low", "high"))
    return mean if value["low"] in (None, value["value"]) else f"{mean} [{low}, {high}]"
