"""A sweep as `vllm bench sweep serve` leaves one: a directory per combination, a run per seed.

    DIR/SERVE--arm=K=3-BENCH--workload.request_rate=4/run=0.json   a seed, in the order of the sweep
                                                      summary.json  the runs of the combination, as a list

Every run is a result of bench.py, then `run_number`, `arm` and the value of every axis, where vLLM merges its
parameters; an axis with a null is written in words, since vLLM's figures drop what is null. The tree is
written beside its place and takes its name when it is whole.
"""

import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cluster_sim.errors import UserError
from cluster_sim.export.bench import bench_result
from cluster_sim.export.source import as_text, axes_of
from cluster_sim.files import worded
from cluster_sim.report.stored import Stored
from cluster_sim.trials import Row

OPTION = "--output"


def write_tree(stored: Stored, directory: Path) -> None:
    """Write the tree of all trials; `directory` must not exist, or be empty.

    Raises:
        UserError: there is something, or it cannot be written.
    """
    combinations = _combinations(stored)
    with worded(directory, OPTION):
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            rule = "a tree of runs is written into a directory of its own"
            remedy = f"Remove it, or choose another one with {OPTION}=PATH."
            raise UserError(rule, "one that exists", str(directory), remedy)
        directory.parent.mkdir(parents=True, exist_ok=True)
        beside = directory.with_name(f".{directory.name}.{os.getpid()}")
        try:
            for name, runs in combinations.items():
                _write_runs(beside / name, runs)
            beside.replace(directory)
        finally:
            shutil.rmtree(beside, ignore_errors=True)


def drawn_with(stored: Stored, directory: Path) -> list[str]:
    """How vLLM draws the tree: a curve for each arm over the first axis of numbers, and the Pareto frontier.

    Without --gpu-count-var, plot_pareto takes a run for one of a single GPU.
    """
    axes = axes_of(stored)
    numbers = [axis for axis in axes if all(isinstance(row[axis], int | float) for row in stored.rows)]
    over = f" --var-x {numbers[0]}" if numbers else ""
    curves = ",".join(["arm", *(axis for axis in axes if axis not in numbers[:1])])
    return [
        f"to draw it: vllm bench sweep plot {directory}{over} --curve-by {curves}",
        f"or: vllm bench sweep plot_pareto {directory} --gpu-count-var gpu_count --label-by {curves}",
    ]


def _combinations(stored: Stored) -> dict[str, list[dict[str, Any]]]:
    """The name of the directory of each combination -> its runs."""
    found: dict[str, list[dict[str, Any]]] = {}
    names: dict[str, str] = {}
    for row in stored.rows:
        parameters = _parameters(stored, row)
        place = json.dumps(parameters)
        if place not in names:
            name = _name(stored, row)
            names[place] = name if name not in found else f"{name}-{len(found)}"
        runs = found.setdefault(names[place], [])
        runs.append({**bench_result(stored, row), "run_number": len(runs), **parameters})
    return found


def _write_runs(directory: Path, runs: list[dict[str, Any]]) -> None:
    directory.mkdir(parents=True)
    for number, run in enumerate(runs):
        (directory / f"run={number}.json").write_text(text_of(run), "utf-8")
    (directory / "summary.json").write_text(text_of(runs), "utf-8")


def text_of(value: Mapping[str, Any] | list[dict[str, Any]]) -> str:
    """JSON as `vllm bench sweep` indents it."""
    return json.dumps(value, indent=4, allow_nan=False, ensure_ascii=False) + "\n"


def _parameters(stored: Stored, row: Row) -> dict[str, Any]:
    axes = axes_of(stored)
    worded = {axis for axis in axes if any(other[axis] is None for other in stored.rows)}
    return {
        "arm": row["arm"],
        **{axis: as_text(row[axis]) if axis in worded else row[axis] for axis in axes},
    }


def _name(stored: Stored, row: Row) -> str:
    """The directory of a combination; as vLLM's, without what file systems do not take."""
    axes = "-".join(f"{axis}={as_text(row[axis])}" for axis in axes_of(stored))
    name = f"SERVE--arm={row['arm']}" + (f"-BENCH--{axes}" if axes else "")
    return re.sub(r"[^\w.=,+-]", "_", name)
