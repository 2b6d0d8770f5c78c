"""What one simulation leaves: its tables, their columns per request, and the files of its directory.

Latencies are those of `vllm bench serve`, seen by the client (../shared/vllm-scheduler.md section 13).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cluster_sim.config import Config
from cluster_sim.engine.kinds import Outcome
from cluster_sim.engine.rules import Request
from cluster_sim.engine.state import LogRow, Tally
from cluster_sim.engine.tables import Floats, Longs, Table
from cluster_sim.faults import Happened
from cluster_sim.files import (
    FLEET,
    MANIFEST,
    REQUESTS,
    SUMMARY,
    open_directory,
    write_json,
    write_parquet,
    write_yaml,
)
from cluster_sim.fleet import Samples, fleet_table
from cluster_sim.instances import kinds_of
from cluster_sim.manifest import manifest
from cluster_sim.run_kinds import RunKind
from cluster_sim.slo import limits_of
from cluster_sim.traffic import Traffic
from cluster_sim.trials import trial_row, write_trials

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Run:
    """One simulation: what was asked, what happened, and where the inputs came from."""

    config: Config  # resolved
    requests: Table[Request]  # [request] in order of arrival
    log: Table[LogRow]  # [request]
    tally: Tally
    usable_blocks: Longs  # [instance * ranks + rank] KV blocks that requests can hold, as the rows of tally
    class_names: tuple[str, ...]  # [workload class]
    traffic: Traffic  # as the first instance serves it
    memory_bytes: dict[str, int]  # part of device memory -> size; empty where instances differ
    bundle_name: str
    bundle_digest: str
    workload_source: str
    workload_digest: str
    acceptance_source: str
    draft_cost: str  # words of drafting.cost_words
    warnings: tuple[str, ...]
    engine_wall_s: float  # inside the compiled engine
    wall_s: float  # the whole simulation, building included
    kinds: tuple[RunKind, ...] = ()  # of instances, by their first one
    faults: tuple[Happened, ...] = ()  # those of config.cluster.faults that came true
    unsent: int = 0  # turns that were never sent, since one before in their conversation had no answer
    due_s: Floats | None = None  # [request] before its client may have waited; None: it is its arrival
    fleet: Samples | None = None  # over time; of trials there is none


@dataclass(frozen=True)
class Latencies:
    """Per request, in s; nan where the request has no such time."""

    queue_s: Floats  # arrival to first admission
    ttft_s: Floats  # arrival to first chunk
    tpot_s: Floats  # first to last chunk, per output token after the first; nan: one token or none
    e2el_s: Floats  # arrival to last chunk


def latencies(run: Run) -> Latencies:
    """The times of every request, shape [request]."""
    arrival_s, log = run.requests["arrival_s"], run.log
    later_tokens = log["emitted_tokens"].astype(np.float64) - 1.0
    later_tokens[later_tokens <= 0.0] = np.nan
    return Latencies(
        queue_s=log["scheduled_s"] - arrival_s,
        ttft_s=log["first_token_s"] - arrival_s,
        tpot_s=(log["last_token_s"] - log["first_token_s"]) / later_tokens,
        e2el_s=log["last_token_s"] - arrival_s,
    )


def has_slo(run: Run) -> Flags:
    """Which requests have a latency that is bounded, shape [request]."""
    flags: Flags = limits_of(run.config, run.class_names).exist[run.requests["workload_class"]]
    return flags


def meets_slo(run: Run, times: Latencies) -> Flags:
    """Which requests completed within every limit of theirs, shape [request]."""
    good: Flags = run.log["outcome"] == int(Outcome.completed)
    for met in meets_limits(run, times).values():
        good &= met
    return good


def meets_limits(run: Run, times: Latencies) -> dict[str, Flags]:
    """Which requests completed within each limit that any class has, [request]; a missing TPOT is 0."""
    limits, of_request = limits_of(run.config, run.class_names), run.requests["workload_class"]
    completed = run.log["outcome"] == int(Outcome.completed)
    given = {
        "ttft_s": (times.ttft_s, limits.ttft_s),
        "tpot_s": (np.nan_to_num(times.tpot_s, nan=0.0), limits.tpot_s),
        "e2el_s": (times.e2el_s, limits.e2el_s),
    }
    return {
        name: completed & (seconds <= limit_s[of_request])
        for name, (seconds, limit_s) in given.items()
        if np.isfinite(limit_s).any()
    }


def request_table(run: Run) -> pa.Table:
    """One row per request in order of arrival; null where there is no such value."""
    times, log, requests = latencies(run), run.log, run.requests
    later_chunks = np.where(log["chunks"] > 1, log["chunks"] - 1.0, np.nan)
    columns = {
        "request": pa.array(np.arange(len(log["outcome"]))),
        "workload_class": _words(requests["workload_class"], run.class_names),
        "outcome": _words(log["outcome"], tuple(outcome.name for outcome in Outcome)),
        **_place(log["instance"], run.config.cluster.data_parallel_size),
        "arrival_s": pa.array(requests["arrival_s"]),
        "pickup_s": _seconds(log["queued_s"] - requests["arrival_s"]),
        "queue_s": _seconds(times.queue_s),
        "ttft_s": _seconds(times.ttft_s),
        "tpot_s": _seconds(times.tpot_s),
        "e2el_s": _seconds(times.e2el_s),
        "itl_mean_s": _seconds((log["last_token_s"] - log["first_token_s"]) / later_chunks),
        "itl_max_s": pa.array(log["longest_gap_s"], mask=log["chunks"] < 2),  # noqa: PLR2004  a gap has two ends
        "prompt_tokens": pa.array(requests["prompt_tokens"]),
        "max_tokens": pa.array(requests["max_tokens"]),
        "emitted_tokens": pa.array(log["emitted_tokens"]),
        "drafted_tokens": pa.array(log["drafted_tokens"]),
        "accepted_tokens": pa.array(log["accepted_tokens"]),
        "rejected_tokens": pa.array(log["drafted_tokens"] - log["accepted_tokens"]),
        "cached_tokens": pa.array(log["cached_tokens"]),
        "chunks": pa.array(log["chunks"]),
        "preemptions": pa.array(log["preemptions"]),
        "retries": pa.array(log["retries"]),
        "lost_tokens": pa.array(log["lost_tokens"]),
    }
    if np.any(has_slo(run)):
        columns["slo_met"] = pa.array(meets_slo(run, times))
    return pa.table(columns)


def run_manifest(run: Run) -> dict[str, Any]:
    """The manifest of one simulation."""
    inputs = {"bundle": run.bundle_digest, "workload": run.workload_digest}
    if len(run.kinds) > 1:
        inputs |= {f"bundle {one.bundle_name}": one.bundle_digest for one in run.kinds}
    sources = {
        "bundle": run.bundle_name,
        "workload": run.workload_source,
        "acceptance": run.acceptance_source,
        "draft_cost": run.draft_cost,
    }
    return manifest(run.config, [run.config.seed], inputs, sources)


def write_run(run: Run, summary: Mapping[str, Any], directory: Path) -> None:
    """Write manifest.yaml, requests/, fleet.parquet, trials.parquet with its only trial, and summary.json.

    The manifest comes first: it says whose directory this is. Writing the same run again gives the same
    bytes, apart from trials.MACHINE_KEYS in summary.json.

    Raises:
        UserError: the directory cannot be written, or holds another run.
    """
    about = run_manifest(run)
    open_directory(directory, about["identity"])
    write_yaml(directory / MANIFEST, about)
    write_parquet(directory / REQUESTS / "trial-00000.parquet", request_table(run))
    if run.fleet is not None:
        ranks = run.config.cluster.data_parallel_size
        write_parquet(directory / FLEET, fleet_table(run.fleet, run.usable_blocks, ranks))
    methods = dict.fromkeys(kind.config.speculation.method.name for kind in kinds_of(run.config))
    write_trials(directory, [trial_row(0, " and ".join(methods), {}, run.config.seed, summary)])
    write_json(directory / SUMMARY, summary)


def _place(rows: NDArray[np.integer], ranks: int) -> dict[str, pa.Array]:
    """Which instance served each request and, where an instance has several, which of its ranks."""
    nowhere = rows < 0
    columns = {"instance": pa.array(rows // ranks, mask=nowhere)}
    if ranks > 1:
        columns["rank"] = pa.array(rows % ranks, mask=nowhere)
    return columns


def _seconds(values: Floats) -> pa.Array:
    return pa.array(values, mask=np.isnan(values))


def _words(numbers: NDArray[np.integer], words: tuple[str, ...]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(numbers.astype(np.int32)), pa.array(words))
