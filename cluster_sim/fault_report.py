"""What the faults of a cluster did to a run, in numbers for the summary and in words for its reader."""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from cluster_sim.check_faults import end_s
from cluster_sim.choices import FaultKind
from cluster_sim.engine.kinds import Outcome
from cluster_sim.engine.tables import Floats
from cluster_sim.fault_config import FaultConfig
from cluster_sim.faults import Happened, Plan


def rows_of(plan: Plan, happened: Sequence[Happened]) -> list[dict[str, Any]]:
    """Each fault as it was asked for, whether it came true, and the requests and tokens that it cost."""
    true = {event.fault: event for event in happened}
    return [
        {
            "kind": fault.kind.name,
            "instances": list(fault.instances),
            "from_s": fault.from_s,
            "until_s": fault.until_s,
            "slowdown": fault.slowdown,
            "came_true": number in true,
            "failed_requests": true[number].failed_requests if number in true else 0,
            "lost_tokens": true[number].lost_tokens if number in true else 0,
        }
        for number, fault in enumerate(plan.faults)
    ]


def words_of(row: dict[str, Any]) -> str:
    """A row of rows_of in words."""
    instances = ", ".join(map(str, row["instances"]))
    plural = "s" if len(row["instances"]) > 1 else ""
    what = f"{row['kind']} of instance{plural} {instances}"
    if row["slowdown"] is not None:
        what += f", {row['slowdown']:g} times as long"
    until = "to the end" if row["until_s"] is None else f"to {row['until_s']:g} s"
    what += f", from {row['from_s']:g} s {until}"
    if row["kind"] == FaultKind.stop.name and row["came_true"]:
        what += f": {row['failed_requests']:,} requests failed there, {row['lost_tokens']:,} tokens lost"
    return what


def warnings_of(
    plan: Plan, happened: Sequence[Happened], instances: int, arrival_s: Floats, outcome: Any
) -> Iterator[str]:
    """What a reader of the results must know of the faults, from the columns `arrival_s` and `outcome`."""
    for row in rows_of(plan, happened):
        if not row["came_true"]:
            yield f"every request had ended before this fault: {words_of(row)}"
    failed = int((outcome == int(Outcome.failed)).sum())
    if failed:
        cause = (
            "they were lost with their instance, or none was there" if plan.loses else "no instance came back"
        )
        yield f"{failed:,} requests failed: {cause}"
    for start_s, until_s in nobody_there(plan.faults, instances):
        arrived = int(((arrival_s >= start_s) & (arrival_s < until_s)).sum())
        if arrived:
            until = "to the end" if math.isinf(until_s) else f"to {until_s:g} s"
            fate = "failed" if plan.loses else "waited at the router"
            yield f"no instance took requests from {start_s:g} s {until}: {arrived:,} that came then {fate}"
    if len(arrival_s) and _touches_second_half(plan.faults, happened, arrival_s):
        yield (
            "faults fall into the second half of the arrivals, in which the growth of the queue is measured: "
            "a queue that they leave counts as saturation"
        )


def nobody_there(faults: Sequence[FaultConfig], instances: int) -> list[tuple[float, float]]:
    """When no instance takes requests: [from, until), s, neighbours joined."""
    away = [fault for fault in faults if fault.kind is not FaultKind.slow]
    edges_s = sorted({fault.from_s for fault in away} | {end_s(fault) for fault in away})
    found: list[tuple[float, float]] = []
    for start_s, until_s in pairwise(edges_s):
        gone = {i for fault in away if fault.from_s <= start_s < end_s(fault) for i in fault.instances}
        if len(gone) == instances:
            is_longer = bool(found) and found[-1][1] == start_s
            found.append((found.pop()[0] if is_longer else start_s, until_s))
    return found


def _touches_second_half(
    faults: Sequence[FaultConfig], happened: Sequence[Happened], arrival_s: Floats
) -> bool:
    middle_s = float(arrival_s[0] + arrival_s[-1]) / 2
    return any(
        faults[event.fault].from_s <= arrival_s[-1] and end_s(faults[event.fault]) > middle_s
        for event in happened
    )
