"""The tables of a sweep: the baseline at each point, and every trial."""

from collections.abc import Mapping, Sequence
from typing import Any

from cluster_sim.files import TRIALS
from cluster_sim.report.section import Section, Table
from cluster_sim.report.stored import Kind, Stored, Tree
from cluster_sim.report.words import NOTHING

SHOWN = {  # key of a trial's row -> heading
    "ttft_s.mean": "TTFT mean (s)",
    "ttft_s.p99": "TTFT p99 (s)",
    "tpot_s.mean": "TPOT mean (s)",
    "tpot_s.p99": "TPOT p99 (s)",
    "e2el_s.mean": "E2E mean (s)",
    "output_throughput_tok_s": "output tokens/s",
    "slo_goodput_rps": "good requests/s",
    "slo_attainment": "SLO attainment",
    "acceptance_length": "acceptance length",
    "batch_size.mean": "batch size",
    "kv_usage.max": "KV use, most",
    "preemptions": "preemptions",
    "saturated": "saturated",
}


def baseline(stored: Stored) -> Sequence[Section]:
    """The baseline alone: what the ratios divide by."""
    if stored.kind not in (Kind.sweep, Kind.study):
        return []
    entries = stored.summary["arms"].get(stored.baseline, [])
    if not entries:
        return []
    axes = list(entries[0]["axes"])
    rows = [
        [*(_cell(entry["axes"][axis]) for axis in axes), *(_mean(entry, key) for key in SHOWN)]
        for entry in entries
    ]
    heads = (*(axis.rpartition(".")[2] for axis in axes), *SHOWN.values())
    words = [f"Means over seeds of {stored.baseline}, by which the ratios divide."]
    return [Section("baseline", f"The baseline, {stored.baseline}", words, tables=[Table(heads, rows)])]


def trials(stored: Stored) -> Sequence[Section]:
    """Every trial; trials.parquet has all of its numbers."""
    if stored.kind is Kind.run:
        return []
    axes = [key for key in stored.rows[0] if key in _axes(stored)]
    keys = ["trial", "arm", *axes, "seed", *SHOWN]
    heads = ["trial", "arm", *(axis.rpartition(".")[2] for axis in axes), "seed", *SHOWN.values()]
    rows = [[_cell(row.get(key)) for key in keys] for row in stored.rows]
    words = [f"All numbers of a trial are in {TRIALS}, beside this page."]
    return [Section("trials", "Every trial", words, tables=[Table(heads, rows, is_of_trials=True)])]


def _axes(stored: Stored) -> set[str]:
    """The keys of what differs between trials."""
    asked = stored.study or stored.sweep
    search = asked.get("search") or {}
    return {*asked["axes"], *([search["key"]] if "key" in search else [])}


def _mean(entry: Tree, key: str) -> str:
    """The mean over seeds of a number of `entry`, by its path."""
    found: Any = entry
    for part in key.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return _cell(found.get("value") if isinstance(found, Mapping) else found)


def _cell(value: object) -> str:
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
