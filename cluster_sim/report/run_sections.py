"""Sections of one simulation. Each returns nothing for a sweep, or where there is nothing to show."""

from collections.abc import Sequence

import numpy as np
import pyarrow.parquet as pq

from cluster_sim.files import REQUESTS
from cluster_sim.report import run_charts
from cluster_sim.report.section import Section, Table
from cluster_sim.report.stored import Stored
from cluster_sim.report.words import figures, percent, seconds

STATISTICS = ("mean", "p50", "p90", "p95", "p99")
NAMES = {
    "queue_s": "waits in the queue",
    "ttft_s": "first token (TTFT)",
    "tpot_s": "each further token (TPOT)",
    "itl_s": "between chunks (ITL)",
    "e2el_s": "whole answer (E2E)",
}


def latencies(stored: Stored) -> Sequence[Section]:
    """How long requests waited, and for what."""
    if stored.sweep is not None:
        return []
    columns = list(run_charts.LATENCIES)
    table = pq.read_table(stored.directory / REQUESTS, columns=columns)
    requests = {name: table[name].to_numpy().astype(np.float64) for name in columns}
    rows = [
        [words, *(seconds(stored.summary[name][statistic]) for statistic in STATISTICS)]
        for name, words in NAMES.items()
    ]
    shown = Table(("Latency", *STATISTICS), rows)
    drawn = run_charts.latency_curves(requests, stored.config["slo"])
    return [Section("latency", "Latency", figures=[drawn], tables=[shown])]


def batches(stored: Stored) -> Sequence[Section]:
    """The batch sizes visited, and the draft lengths there."""
    size = stored.summary.get("batch_size", {})
    if stored.sweep is not None or "histogram" not in size:
        return []
    optimum = stored.summary.get("optimum")
    words = [
        f"{figures(size['mean'])} requests a step on average (p50 {figures(size['p50'])}, p99 {figures(size['p99'])})."
    ]
    drawn = run_charts.batches(size["histogram"], optimum)
    shown = []
    if optimum is not None:
        gains = [
            [batch, figures(gain), figures(optimum["best_speedup"][batch])]
            for batch, gain in optimum["speedup"].items()
        ]
        words.append("By the step-time tables, decodes alone are so many times as fast as without a drafter:")
        shown = [Table(("Batch size", "as configured", "best schedule"), gains)]
    return [Section("batches", "Batch sizes and draft lengths", words, [drawn], shown)]


def acceptance(stored: Stored) -> Sequence[Section]:
    """What was accepted of the drafts."""
    summary = stored.summary
    if stored.sweep is not None or summary["acceptance_length"] is None:
        return []
    tokens = summary["tokens"]
    words = [
        f"Acceptance length {summary['acceptance_length']:.2f} tokens, rate {percent(summary['acceptance_rate'])}: "
        f"{tokens['drafted']:,} tokens drafted, {tokens['accepted']:,} accepted. {summary['acceptance_source']}"
    ]
    label = f"K={stored.config['speculation']['num_speculative_tokens']}"
    colours = run_charts.colours_of([int(stored.config["speculation"]["num_speculative_tokens"])])
    shares = summary["acceptance_by_position"]
    drawn = run_charts.acceptance({label: shares}, colours)
    rows = [[str(place + 1), percent(share)] for place, share in enumerate(shares)]
    return [Section("acceptance", "Acceptance", words, [drawn], data=[Table(("Position", "accepted"), rows)])]


def chunks(stored: Stored) -> Sequence[Section]:
    """What a client sees: tokens that come together, and the gaps between."""
    summary = stored.summary
    if stored.sweep is not None or not sum(summary["chunk_tokens"]["histogram"]):
        return []
    kinds = summary["itl_by_step"]
    rows = [
        [name.replace("_", " "), percent(kind["gap_share"]), *(seconds(kind[key]) for key in STATISTICS[1:])]
        for name, kind in kinds.items()
    ]
    counts = summary["chunk_tokens"]["histogram"]
    drawn = run_charts.chunks({"tokens": counts}, {"tokens": run_charts.OTHERS[0]})
    words = [
        f"{figures(summary['chunk_tokens']['mean'])} tokens come together on average, and then nothing for an "
        "inter-token latency: a stream with speculation stutters. Gaps that end with a prefill in the step:"
    ]
    table = Table(("Gap ends with", "share of gaps", *STATISTICS[1:]), rows)
    return [Section("chunks", "Tokens per chunk and the gaps between", words, [drawn], [table])]


def time(stored: Stored) -> Sequence[Section]:
    """Where the time of the GPUs went."""
    if stored.sweep is not None:
        return []
    shares = {part: 100 * share for part, share in stored.summary["time_share"].items()}
    drawn = run_charts.bars("time", "Where the time went", "Share of the time (%)", {"GPU": shares})
    rows = [[part, f"{share:.1f}%"] for part, share in shares.items()]
    return [Section("time", "Where the time went", figures=[drawn], data=[Table(("Part", "share"), rows)])]


def memory(stored: Stored) -> Sequence[Section]:
    """What a GPU holds."""
    if stored.sweep is not None:
        return []
    parts = run_charts.memory_parts(stored.summary["memory_bytes"])
    drawn = run_charts.bars("memory", "What a GPU holds", "GiB", {"GPU": parts})
    rows = [[part, figures(size)] for part, size in parts.items()]
    usage = stored.summary["kv_usage"]
    words = [
        f"KV memory: {percent(usage['mean'])} used on average, at most {percent(usage['max'])}; "
        f"{stored.summary['preemptions']:,} preemptions."
    ]
    return [Section("memory", "Memory", words, [drawn], data=[Table(("Part", "GiB"), rows)])]
