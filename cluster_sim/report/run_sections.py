"""Sections of one simulation. Each returns nothing for a sweep, or where there is nothing to show."""

from collections.abc import Sequence

import numpy as np
import pyarrow.parquet as pq

from cluster_sim.files import REQUESTS
from cluster_sim.report import run_charts
from cluster_sim.report.arms import Look
from cluster_sim.report.figures import OTHERS
from cluster_sim.report.points import values
from cluster_sim.report.section import Section, Table
from cluster_sim.report.stored import Kind, Stored, Tree
from cluster_sim.report.words import NOTHING, cached_words, figures, percent, seconds

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
    if stored.kind is not Kind.run:
        return []
    columns = list(run_charts.LATENCIES)
    table = pq.read_table(stored.directory / REQUESTS, columns=columns)
    requests = {name: table[name].to_numpy().astype(np.float64) for name in columns}
    means = stored.summary.get("batch_means", {}).get("means") or {}
    rows = [
        [words, *(seconds(stored.summary[name][key]) for key in STATISTICS), _bounds(means.get(name))]
        for name, words in NAMES.items()
    ]
    shown = Table(("Latency", *STATISTICS, "Mean, 95% interval"), rows)
    drawn = run_charts.latency_curves(requests, stored.config["slo"])
    return [Section("latency", "Latency", figures=[drawn], tables=[shown])]


def acceptance(stored: Stored) -> Sequence[Section]:
    """What was accepted of the drafts."""
    summary = stored.summary
    if stored.kind is not Kind.run or summary["acceptance_length"] is None:
        return []
    tokens = summary["tokens"]
    words = [
        f"Acceptance length {summary['acceptance_length']:.2f} tokens, rate "
        f"{percent(summary['acceptance_rate'])}: {tokens['drafted']:,} tokens drafted, "
        f"{tokens['accepted']:,} accepted.",
        f"Source: {summary['acceptance_source']}.",
    ]
    shares = values(summary["acceptance_by_position"])
    if not shares:
        return [Section("acceptance", "Acceptance", words)]
    looks = {"drafts": Look(OTHERS[0], "-", "o")}
    drawn = run_charts.acceptance({"drafts": shares}, looks)
    rows = [[str(place + 1), percent(share)] for place, share in enumerate(shares)]
    return [Section("acceptance", "Acceptance", words, [drawn], data=[Table(("Position", "accepted"), rows)])]


def chunks(stored: Stored) -> Sequence[Section]:
    """What a client sees: tokens that come together, and the gaps between."""
    summary = stored.summary
    if stored.kind is not Kind.run or not sum(summary["chunk_tokens"]["histogram"]):
        return []
    kinds = summary["itl_by_step"]
    rows = [
        [name.replace("_", " "), percent(kind["gap_share"]), *(seconds(kind[key]) for key in STATISTICS[1:])]
        for name, kind in kinds.items()
    ]
    counts = summary["chunk_tokens"]["histogram"]
    drawn = run_charts.chunks({"tokens": counts}, {"tokens": OTHERS[0]})
    words = [
        f"{figures(summary['chunk_tokens']['mean'])} tokens come together on average, and then nothing for "
        "an inter-token latency (ITL): a stream with speculation stutters. A gap that ends with a step that "
        "prefills too (mixed) is longer:"
    ]
    numbers = [[str(tokens + 1), percent(count / sum(counts))] for tokens, count in enumerate(counts)]
    table = Table(("Gap ends with", "Share of gaps", *STATISTICS[1:]), rows)
    data = [Table(("Tokens that come together", "Share of the chunks"), numbers)]
    return [Section("chunks", "Tokens per chunk and the gaps between", words, [drawn], [table], data)]


def time(stored: Stored) -> Sequence[Section]:
    """Where the time of the GPUs went."""
    if stored.kind is not Kind.run:
        return []
    shares = {part: 100 * share for part, share in stored.summary["time_share"].items()}
    drawn = run_charts.bars("time", "Share of the time of all GPUs", "Share of the time (%)", {"GPU": shares})
    rows = [[part, f"{share:.1f}%"] for part, share in shares.items()]
    return [Section("time", "Where the time went", figures=[drawn], data=[Table(("Part", "share"), rows)])]


def memory(stored: Stored) -> Sequence[Section]:
    """What a GPU holds."""
    if stored.kind is not Kind.run:
        return []
    parts = run_charts.memory_parts(stored.summary["memory_bytes"])
    if not parts:
        return []
    drawn = run_charts.bars("memory", "What a GPU holds", "GiB", {"GPU": parts})
    rows = [[part, figures(size)] for part, size in parts.items()]
    usage = stored.summary["kv_usage"]
    words = [
        f"KV memory: {percent(usage['mean'])} used on average, at most {percent(usage['max'])}; "
        f"{stored.summary['preemptions']:,} preemptions{cached_words(stored.summary['tokens'])}."
    ]
    return [Section("memory", "Memory", words, [drawn], data=[Table(("Part", "GiB"), rows)])]


def _bounds(mean: Tree | None) -> str:
    """The interval of a mean within this run, by batch means; why there is none, in words."""
    if mean is None:
        return NOTHING
    if mean["low"] is None or mean["high"] is None:
        return str(mean["reason"] or NOTHING)
    return f"{seconds(mean['low'])} to {seconds(mean['high'])}"
