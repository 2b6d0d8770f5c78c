"""The classes of a workload on the terminal, a row each."""

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.table import Table

from cluster_sim.report.words import percent, seconds

LATENCIES = (("ttft_s", "p50"), ("ttft_s", "p99"), ("tpot_s", "p50"), ("tpot_s", "p99"))


def classes_table(classes: Mapping[str, Mapping[str, Any]]) -> Table:
    """What the requests of each class experienced (`classes` of summary.json)."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("class")
    for column in ("requests", "TTFT p50", "TTFT p99", "TPOT p50", "TPOT p99", "good"):
        table.add_column(column, justify="right", no_wrap=True)
    for name, one in classes.items():
        table.add_row(
            name,
            f"{one['requests']['offered']:,}",
            *(seconds(one[latency][quantile]) for latency, quantile in LATENCIES),
            percent(one["slo_attainment"]),
        )
    return table
