"""A measured run beside its simulation on the terminal."""

from pathlib import Path
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cluster_sim.report.terminal import cluster_of
from cluster_sim.report.words import figures, seconds
from cluster_sim.validate import STATISTICS, Validation

METRICS = {"ttft_s": "TTFT", "tpot_s": "TPOT", "e2el_s": "E2E"}


def validation_view(validation: Validation) -> RenderableType:
    """Errors in percent of what was measured, by metric."""
    found, run = validation.as_dict(), validation.run
    throughput = found["metrics"]["output_throughput_tok_s"]
    blocks = int(run.usable_blocks.min()) + 1
    return Group(
        Text(f"{cluster_of(run)}; {run.log.shape[0]:,} requests", style="bold"),
        Text(f"measured run {Path(run.workload_source).parent}"),
        Text(f"bundle {run.bundle_name}, {run.bundle_digest[:16]}; {blocks:,} KV blocks"),
        _table(found["metrics"], found["mape_percent"]),
        Text(
            f"output throughput: measured {figures(throughput['measured'])}, simulated "
            f"{figures(throughput['simulated'])} tokens/s, {throughput['error_percent']:+.2f}%"
        ),
        *[Text(f"warning: {line}", style="yellow") for line in run.warnings],
    )


def _table(metrics: dict[str, Any], mape_percent: dict[str, float]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("", *STATISTICS, "MAPE"):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    for name, words in METRICS.items():
        of = metrics[name]
        for row in ("measured", "simulated"):
            table.add_row(f"{words} {row}", *(seconds(of[statistic][row]) for statistic in STATISTICS), "")
        errors = [f"{of[statistic]['error_percent']:+.2f}%" for statistic in STATISTICS]
        table.add_row("  error", *errors, f"{mape_percent[name]:.2f}%", style="bold")
    return table
