"""What a closed loop cannot show: batch sizes beyond its clients, where drafting would stop paying."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from cluster_sim.client_report import is_of_closed_loop

REMEDY = "raise workload.max_concurrency, or offer requests at a rate (workload=poisson)"


def below_the_flip(comparison: Mapping[str, Any]) -> Iterator[str]:
    """A sentence where the tables' flip of some arm lies beyond every batch that the closed loop visited."""
    found = [
        (arm, group["axes"], visited, group["tables_pay_at"][-1][1])
        for arm, groups in comparison.get("flips", {}).items()
        for group in groups
        if (visited := _largest_batch(comparison, arm, group["axes"]))
        and group["tables_pay_at"]
        and visited < group["tables_pay_at"][-1][1] < group["tables_largest"]
    ]
    if not found:
        return
    largest = max(visited for _, _, visited, _ in found)
    arms = ", ".join(
        f"{arm}{''.join(f', {name}={value}' for name, value in axes.items())} pays up to batch {last:,}"
        for arm, axes, _, last in found
    )
    yield (
        f"The closed loop never visits the crossover: its largest batch was {largest:,}, "
        f"and by the tables {arms}: {REMEDY}."
    )


def run_below_the_flip(summary: Mapping[str, Any]) -> Iterator[str]:
    """The same of one simulation."""
    optimum = summary.get("optimum")
    if not is_of_closed_loop(summary) or not optimum or not optimum["pays_with_prefills_at"]:
        return
    visited, last = summary["clients"]["largest_batch"], optimum["pays_with_prefills_at"][-1][1]
    if visited < last < optimum["largest_with_prefills"]:
        yield (
            f"the closed loop never visits the crossover: its largest batch was {visited:,}, and by the "
            f"tables drafting pays up to batch {last:,}: {REMEDY}"
        )


def _largest_batch(comparison: Mapping[str, Any], arm: str, axes: Mapping[str, Any]) -> int:
    """Of an arm and the other axes, over all points; 0: some point is no closed loop."""
    entries = [entry for entry in comparison["arms"][arm] if entry["axes"].items() >= axes.items()]
    if not entries or not all(is_of_closed_loop(entry) for entry in entries):
        return 0
    largest = (float(entry["clients"]["largest_batch"]["value"]) for entry in entries)
    return math.ceil(max(largest))
