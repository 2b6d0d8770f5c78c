"""Measured runs of vLLM: a directory of three files (format: ../shared/measured-runs/README.md).

    engine.json     arguments of vLLM's engine
    workload.jsonl  arrival_s, prompt_tokens, output_tokens, block_ids: a trace of this tool's own form
    measured.csv    request, arrival_s, scheduled_s, first_token_s, last_token_s, prompt_tokens, output_tokens

All of its times are taken inside the engine core; arrival_s is when its loop picked the request up.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from cluster_sim.bundle.importers.csv_table import COUNT, Numbers, read_csv
from cluster_sim.compose import compose
from cluster_sim.config import Config
from cluster_sim.errors import UserError
from cluster_sim.naming import hardware_option, model_option
from cluster_sim.overrides import quoted

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]
ENGINE, WORKLOAD, MEASURED = "engine.json", "workload.jsonl", "measured.csv"
TIME_S = Numbers(0.0, 1e9)
TIMES = ("arrival_s", "scheduled_s", "first_token_s", "last_token_s")
LENGTHS = ("prompt_tokens", "output_tokens")
FLAGS = {  # engine.json -> configuration
    "tensor_parallel_size": "cluster.tensor_parallel_size",
    "data_parallel_size": "cluster.data_parallel_size",
    "enable_expert_parallel": "cluster.enable_expert_parallel",
    "max_num_seqs": "engine.max_num_seqs",
    "max_num_batched_tokens": "engine.max_num_batched_tokens",
    "max_model_len": "engine.max_model_len",
}
CACHE_FLAGS = {  # engine.json, kv_cache -> configuration
    "num_gpu_blocks": "engine.num_gpu_blocks",
    "block_size": "engine.block_size",
    "gpu_memory_utilization": "engine.gpu_memory_utilization",
    "enable_prefix_caching": "engine.enable_prefix_caching",
}
ONLY = {"dtype": "bfloat16", "kv_cache_dtype": "auto"}  # what else would need costs of its own
WITHOUT_EFFECT = ("model", "hardware", "seed", "vllm_version", "kv_cache")
CACHE_WITHOUT_EFFECT = ("num_cpu_blocks", "kv_cache_memory_bytes", "num_kv_tokens")
UTILIZATION_KEY = CACHE_FLAGS["gpu_memory_utilization"]
OLD_UTILIZATION = 0.9  # vLLM's default up to 0.19, before that of conf/engine: ../shared/hardware/README.md
OLD_VERSION = (0, 19)


@dataclass(frozen=True)
class Measured:
    """What was measured of each request, in order of arrival; times in s from the first arrival."""

    arrival_s: Floats  # [request]
    first_token_s: Floats  # [request]
    last_token_s: Floats  # [request]
    prompt_tokens: Longs  # [request]
    output_tokens: Longs  # [request]


def read_measured(file: Path) -> Measured:
    """The rows of a measured.csv.

    Raises:
        UserError: the file is missing or damaged, or the times of a request are out of order.
    """
    rows = read_csv(file, dict.fromkeys(TIMES, TIME_S) | dict.fromkeys(LENGTHS, COUNT))
    arrival_s, scheduled_s, first_s, last_s = (rows[name] for name in TIMES)
    is_ordered = (arrival_s <= scheduled_s) & (scheduled_s <= first_s) & (arrival_s < first_s)
    is_ordered &= np.where(rows["output_tokens"] > 1, first_s < last_s, first_s == last_s)
    if not np.all(is_ordered):
        row = int(np.argmin(is_ordered))
        rule = f"{' <= '.join(TIMES)} must hold, and a second token come after the first"
        got = ", ".join(f"{rows[name][row]:g}" for name in TIMES)
        refuse(file, rule, f"{got} for {rows['output_tokens'][row]} tokens", int(rows.line[row]))
    if not np.any(rows["output_tokens"] > 1):
        refuse(file, "a request must have two or more output_tokens: TPOT is the time between them", "none")
    order = np.argsort(arrival_s, kind="stable")
    times = [values[order] - arrival_s[order[0]] for values in (arrival_s, first_s, last_s)]
    return Measured(*times, *(rows[name][order] for name in LENGTHS))


def config_of(directory: Path, bundle: str | None, overrides: Sequence[str]) -> Config:
    """The configuration of a measured run; `overrides` come last, and choose groups in the run's stead.

    Raises:
        UserError: a file is missing or damaged, a flag unknown, or a model or GPU without an option in conf/.
    """
    file = directory / ENGINE
    flags, chosen = _checked(file), {override.partition("=")[0] for override in overrides}
    groups = {"speculation": "none"}
    for group, option_of in (("model", model_option), ("hardware", hardware_option)):
        if group not in chosen:
            groups[group] = option_of(flags[group], f"--set {group}=OPTION")
    values = _values(file, flags, chosen)
    paths = {"workload.trace": str(directory / WORKLOAD)} | (
        {} if bundle is None else {"cluster.bundle": bundle}
    )
    config = compose(
        [
            *(f"{group}={option}" for group, option in groups.items() if group not in chosen),
            *(f"{key}={value}" for key, value in values.items()),
            *(f"{key}={quoted(path)}" for key, path in paths.items()),
            *overrides,
        ]
    )
    if config.sweep is not None:
        raise UserError("one run is validated, not a sweep", config.sweep.name, "--set", "Leave +sweep out.")
    return config


def refuse(file: Path, rule: str, got: object, line: int | None = None) -> NoReturn:
    """Raise what is wrong with a measured run."""
    where = str(file) if line is None else f"{file} line {line}"
    raise UserError(rule, got, where, "README.md, Measured runs, has the format.")


def _values(file: Path, flags: Mapping[str, Any], chosen: set[str]) -> dict[str, object]:
    """What engine.json says, by key of the configuration; null is vLLM's default."""
    cache = flags.get("kv_cache") or {}
    of_engine = {key: flags.get(flag) for flag, key in FLAGS.items()}
    of_cache = {key: cache.get(flag) for flag, key in CACHE_FLAGS.items()}
    given = {key: value for key, value in (of_engine | of_cache).items() if value is not None}
    if UTILIZATION_KEY not in chosen | given.keys() and _is_old(file, flags):
        given[UTILIZATION_KEY] = OLD_UTILIZATION
    return given


def _is_old(file: Path, flags: Mapping[str, Any]) -> bool:
    """Whether the run's vLLM had the default of OLD_VERSION."""
    version = flags.get("vllm_version")
    digits = re.match(r"(\d{1,9})\.(\d{1,9})", version) if isinstance(version, str) else None
    if digits is None:
        refuse(file, "vllm_version must be a version such as 0.19.0", json.dumps(version))
    return (int(digits[1]), int(digits[2])) <= OLD_VERSION


def _checked(file: Path) -> dict[str, Any]:
    """The flags of an engine.json, each known and of a kind that a flag has."""
    flags = _read_json(file)
    cache = flags.get("kv_cache") or {}
    for named, known in (
        (flags, (*FLAGS, *ONLY, *WITHOUT_EFFECT)),
        (cache, (*CACHE_FLAGS, *CACHE_WITHOUT_EFFECT)),
    ):
        unknown = sorted(set(named) - set(known))
        if unknown:
            refuse(file, f"flags must be among {', '.join(sorted(known))}", repr(unknown[0]))
    for flag, only in ONLY.items():
        if flags.get(flag, only) != only:
            refuse(file, f"{flag} must be {only}, which is what has costs", json.dumps(flags[flag]))
    for flag in ("model", "hardware"):
        if not isinstance(flags.get(flag), str):
            refuse(file, f"{flag} must be named", json.dumps(flags.get(flag)))
    for flag in (*FLAGS, *CACHE_FLAGS):
        value = flags.get(flag, cache.get(flag))
        if not isinstance(value, bool | int | float | None):
            refuse(file, f"{flag} must be a number, true, false or null", json.dumps(value))
    return flags


def _read_json(file: Path) -> dict[str, Any]:
    rule = f"{ENGINE} must hold the arguments of vLLM's engine as JSON"
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        refuse(file, rule, "no such file")
    except OSError as error:
        refuse(file, rule, error.strerror)
    except (ValueError, RecursionError) as error:
        refuse(file, rule, str(error).splitlines()[0])
    if not isinstance(content, dict) or not isinstance(content.get("kv_cache", {}), dict | None):
        refuse(
            file, f"{ENGINE} must be an object of flags, and kv_cache one or null", json.dumps(content)[:60]
        )
    return content
