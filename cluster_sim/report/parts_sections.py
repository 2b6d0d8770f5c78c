"""Sections about parts of the traffic or the cluster: classes of requests, and kinds of instances."""

from collections.abc import Mapping, Sequence

from cluster_sim.report.points import busiest, value, where, words
from cluster_sim.report.section import Section, Table
from cluster_sim.report.stored import Kind, Stored, Tree
from cluster_sim.report.words import NOTHING, figures, percent, seconds

COLUMNS = ("Requests", "TTFT p50", "TTFT p99", "TPOT mean", "TPOT p99", "E2E p99", "SLO met", "Tokens/s")
TIMES = (("ttft_s", "p50"), ("ttft_s", "p99"), ("tpot_s", "mean"), ("tpot_s", "p99"), ("e2el_s", "p99"))


def classes(stored: Stored) -> Sequence[Section]:
    """What the requests of each class experienced, beside all of them, with how many they are."""
    summaries = _summaries(stored)
    rows = [
        [*([arm] if arm else []), name, *_cells(part)]
        for arm, summary in summaries.items()
        if summary.get("classes")
        for name, part in (("all", summary), *summary["classes"].items())
    ]
    heads = ("Class", *COLUMNS) if stored.kind is Kind.run else ("Arm", "Class", *COLUMNS)
    said = [] if stored.kind is Kind.run else [where(stored)]
    return [Section("classes", "By class of request", said, tables=[Table(heads, rows)])] if rows else []


def kinds(stored: Stored) -> Sequence[Section]:
    """How each kind of instance fared, where they differ."""
    rows = [
        [*([arm] if arm else []), name, *_cells(part), *_of_kind(part)]
        for arm, summary in _summaries(stored).items()
        for name, part in (summary.get("by_instance_kind") or {}).items()
    ]
    columns = ("Instances", *COLUMNS, "Acceptance length", "Batch size", "KV use")
    heads = columns if stored.kind is Kind.run else ("Arm", *columns)
    said = [] if stored.kind is Kind.run else [where(stored)]
    return [Section("kinds", "By kind of instance", said, tables=[Table(heads, rows)])] if rows else []


def _summaries(stored: Stored) -> Mapping[str, Tree]:
    """Arm -> its summary at the busiest point; of one simulation, under no name."""
    return {"": stored.summary} if stored.kind is Kind.run else busiest(stored)


def _cells(part: Tree) -> list[str]:
    times = [part[name] and part[name][key] for name, key in TIMES]
    met = part["slo_attainment"]
    return [
        f"{value(part['requests']['offered']):,.0f}",
        *(NOTHING if one is None else seconds(value(one)) for one in times),
        NOTHING if met is None else percent(value(met)),
        figures(value(part["output_throughput_tok_s"])),
    ]


def _of_kind(part: Tree) -> list[str]:
    return [
        words(part["acceptance_length"]),
        words(part["batch_size"]["mean"]),
        percent(value(part["kv_usage"]["mean"])),
    ]
