"""The tables of a sweep: the baseline at each point, and every trial."""

from collections.abc import Sequence

from cluster_sim.report.section import Section, Table
from cluster_sim.report.stored import Stored
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
    if stored.sweep is None:
        return []
    name = stored.sweep["baseline"]
    entries = stored.summary["arms"].get(name, [])
    rows = []
    for entry in entries:
        cells = [_cell(value) for value in entry["axes"].values()]
        for key in SHOWN:
            value = entry
            for part in key.split("."):
                value = value[part] if isinstance(value, dict) and part in value else None
            cells.append(_cell(value["value"] if isinstance(value, dict) else value))
        rows.append(cells)
    axes = [axis.rpartition(".")[2] for axis in stored.sweep["axes"]]
    words = [f"Means over seeds of {name}, by which the ratios divide."]
    return [Section("baseline", "The baseline", words, tables=[Table((*axes, *SHOWN.values()), rows)])]


def trials(stored: Stored) -> Sequence[Section]:
    """Every trial; trials.parquet has all of its numbers."""
    if stored.sweep is None:
        return []
    axes = list(stored.sweep["axes"])
    keys = ["trial", "arm", *axes, "seed", *SHOWN]
    heads = ["trial", "arm", *(axis.rpartition(".")[2] for axis in axes), "seed", *SHOWN.values()]
    rows = [[_cell(row.get(key)) for key in keys] for row in stored.rows]
    return [Section("trials", "Every trial", tables=[Table(heads, rows, is_of_trials=True)])]


def _cell(value: object) -> str:
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
