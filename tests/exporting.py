"""Results on disk for tests of exports, and what they hold."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from cluster_sim import cli
from cluster_sim.compose import compose
from cluster_sim.single import run_single

SMALL = ("workload.requests=300", "workload.request_rate=60", "output.page=false", "executor=serial")


def simulated(directory: Path, *overrides: str) -> Path:
    """Run a small simulation, changed by `overrides`, into `directory`."""
    run_single(compose([*SMALL, *overrides, f"output.dir={directory}"]), lambda _done, _all: None)
    return directory


def exported(directory: Path, format: str, *options: str) -> str:
    """The text that the command writes, in a file of its own."""
    path = directory / f"exported-{format}"
    assert cli.main(["export", str(directory), "--format", format, "--output", str(path), *options]) == 0
    return path.read_text("utf-8")


def bench_of(directory: Path, *options: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(exported(directory, "vllm-bench", *options))
    return found


def requests_of(directory: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(directory / "requests" / "trial-00000.parquet").to_pylist()
    return rows


def summary_of(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / "summary.json").read_text("utf-8"))
    return found
