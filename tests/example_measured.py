"""A measured run to validate against: simulated by this tool itself, so that every error must be zero."""

import json
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from cluster_sim.errors import UserError
from cluster_sim.measured_run import ENGINE, MEASURED, WORKLOAD, config_of
from cluster_sim.run import simulate
from cluster_sim.validate import validate

FLAGS: dict[str, Any] = {
    "model": "meta-llama/Llama-3.1-8B-Instruct",
    "hardware": "H100",
    "tensor_parallel_size": 1,
    "data_parallel_size": 1,
    "enable_expert_parallel": False,
    "max_num_seqs": 8,
    "max_num_batched_tokens": 2048,
    "max_model_len": None,
    "dtype": "bfloat16",
    "kv_cache_dtype": "auto",
    "seed": 0,
    "vllm_version": "0.19.0",
    "kv_cache": None,
}
REQUESTS = [(0.01 * request, 100 + 7 * request, 20 + request) for request in range(12)]
HEADER = "request,arrival_s,scheduled_s,first_token_s,last_token_s,prompt_tokens,output_tokens"
Row = list[float]


def write_engine(directory: Path, **changes: Any) -> None:
    """An engine.json, except for the `changes`; ... leaves a flag out."""
    flags = {name: value for name, value in (FLAGS | changes).items() if value is not ...}
    (directory / ENGINE).write_text(json.dumps(flags))


def write_workload(directory: Path, requests: Sequence[tuple[float, int, int]]) -> None:
    """A workload.jsonl of (arrival_s, prompt_tokens, output_tokens)."""
    names = ("arrival_s", "prompt_tokens", "output_tokens")
    lines = [json.dumps(dict(zip(names, request, strict=True))) for request in requests]
    (directory / WORKLOAD).write_text("".join(f"{line}\n" for line in lines))


def write_measured(directory: Path, rows: Sequence[Row]) -> None:
    """A measured.csv, all digits of every number."""
    lines = [",".join(repr(value) for value in row) for row in rows]
    (directory / MEASURED).write_text("\n".join([HEADER, *lines]) + "\n")


def simulated_rows(directory: Path) -> list[Row]:
    """The rows of a measured.csv as this tool simulates the workload; they arrive when they are picked up."""
    run = simulate(config_of(directory, None, []))
    columns = [run.log[name] for name in ("queued_s", "scheduled_s", "first_token_s", "last_token_s")]
    columns += [run.requests["prompt_tokens"], run.requests["max_tokens"]]
    return [
        [request, *row]
        for request, row in enumerate(zip(*(column.tolist() for column in columns), strict=True))
    ]


@cache
def sound_run() -> tuple[list[Row], dict[str, bytes]]:
    """The rows of the measured.csv of REQUESTS, and all files of the run by name.

    A real measurement's arrival is when the engine picked the request up, the end of a step. So the workload
    arrives when its first simulation picked it up, and the second one is what was measured.
    """
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        write_engine(directory)
        write_workload(directory, REQUESTS)
        write_workload(directory, [(row[1], int(row[5]), int(row[6])) for row in simulated_rows(directory)])
        rows = simulated_rows(directory)
        write_measured(directory, rows)
        return rows, {file.name: file.read_bytes() for file in directory.iterdir()}


def write_sound_run(directory: Path) -> Path:
    """Write that run; returns its directory."""
    directory.mkdir()
    for name, content in sound_run()[1].items():
        (directory / name).write_bytes(content)
    return directory


def sound_rows() -> list[Row]:
    """A copy of its rows, to change."""
    return [list(row) for row in sound_run()[0]]


def refused(directory: Path, *overrides: str) -> str:
    """The one line with which `validate` refuses a run."""
    with pytest.raises(UserError) as caught:
        validate(directory, None, overrides)
    assert "\n" not in str(caught.value)
    return str(caught.value)
