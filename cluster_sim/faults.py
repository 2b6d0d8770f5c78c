"""Faults of a cluster on the simulated clock: what changes when, and what it does to instances and requests.

A fault holds for from_s <= t < until_s. At one moment, steps end; then faults end and others begin, in the
order of cluster.faults; then the router sends what it holds, in order of arrival; then requests arrive and
engine cores schedule. Inside a signal window the router looks at the instances then, and again at the first
arrival after.

    stop   the router knows at once (connections break). Requests there fail (engine/outage.py): under `retry`
           the router sends them again, under `lose` their clients get an error. The instance returns empty.
    drain  the instance gets no new requests and finishes those it has.
    slow   GPU and host time of every step launched meanwhile are multiplied.

While no instance that may serve a request takes any, `retry` holds it at the router until one does, and fails
it if none ever does; `lose` fails it on arrival. A held request and a retry keep their arrival: TTFT counts
from there to the first token of the attempt that completes.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cluster_sim.choices import FailedRequests, FaultKind
from cluster_sim.config import Config
from cluster_sim.engine import outage, router
from cluster_sim.engine.kinds import Outcome
from cluster_sim.engine.rules import Rules
from cluster_sim.engine.state import World
from cluster_sim.fault_config import FaultConfig


@dataclass(frozen=True)
class Plan:
    """The faults of a run, and what the router does with requests that fail."""

    faults: tuple[FaultConfig, ...] = ()
    loses: bool = False


@dataclass(frozen=True)
class Change:
    """A fault begins or ends."""

    fault: int  # into Plan.faults
    begins: bool


@dataclass(frozen=True)
class Happened:
    """A fault that came true: requests were unfinished when it began."""

    fault: int  # into Plan.faults
    failed_requests: int  # attempts that failed
    lost_tokens: int  # that these attempts had delivered


def plan_of(config: Config) -> Plan:
    """The faults that a configuration asks for."""
    loses = config.router.failed_requests is FailedRequests.lose
    return Plan(tuple(config.cluster.faults or ()), loses)


def moments(plan: Plan) -> Iterator[tuple[float, list[Change]]]:
    """When something changes, s, in order, and what: ends come first."""
    changes: dict[float, list[Change]] = {}
    for number, fault in enumerate(plan.faults):
        if fault.until_s is not None:
            changes.setdefault(fault.until_s, []).append(Change(number, False))
    for number, fault in enumerate(plan.faults):
        changes.setdefault(fault.from_s, []).append(Change(number, True))
    yield from sorted(changes.items())


def is_over(world: World) -> bool:
    """Whether every request has ended: what happens to the cluster later is no part of the run."""
    return not np.any(world.log["outcome"] == int(Outcome.pending))


def apply(
    world: World, rules: Rules, plan: Plan, changes: Sequence[Change], now_s: float
) -> tuple[Rules, list[Happened]]:
    """Let `changes` happen to a world that has run up to `now_s`; the rules from now on, and what began."""
    if plan.loses:
        fail_held(world)
    began = []
    for change in changes:
        if change.begins:
            rules, happened = begin(world, rules, plan, change.fault, now_s)
            began.append(happened)
        else:
            rules = end(world, rules, plan.faults[change.fault])
    with np.errstate(over="ignore"):  # streams.py multiplies modulo 2**64
        outage.send_held(world, rules, now_s)
    return rules, began


def begin(world: World, rules: Rules, plan: Plan, number: int, now_s: float) -> tuple[Rules, Happened]:
    """Begin a fault of the plan; the rules from now on, and what it cost at once."""
    fault = plan.faults[number]
    if fault.kind is FaultKind.slow:
        return with_slowdown(rules, fault.instances, float(fault.slowdown or 1.0)), Happened(number, 0, 0)
    for instance in fault.instances:
        router.take_out(world.scores, instance)
    if fault.kind is FaultKind.drain:
        return rules, Happened(number, 0, 0)
    lost_before = int(world.log["lost_tokens"].sum())
    failed = [one for instance in fault.instances for one in outage.stop(world, rules, instance, now_s)]
    for request in failed:
        if plan.loses:
            outage.fail(world, request)
        else:
            outage.take_back(world, request)
    return rules, Happened(number, len(failed), int(world.log["lost_tokens"].sum()) - lost_before)


def end(world: World, rules: Rules, fault: FaultConfig) -> Rules:
    """End a fault; the rules from now on."""
    if fault.kind is FaultKind.slow:
        return with_slowdown(rules, fault.instances, 1.0)
    for instance in fault.instances:
        router.take_in(world, rules, instance)
    return rules


def fail_held(world: World) -> None:
    """Requests that wait at the router for an instance fail."""
    for request in outage.held(world):
        outage.fail(world, request)


def finish(world: World, rules: Rules, plan: Plan) -> None:
    """No instance will come back any more: who still waits at the router gives up, or fails."""
    if not plan.loses:
        for request in outage.held(world):
            if rules.workload.requests[request].abort_s < math.inf:
                outage.give_up(world, request)
    fail_held(world)


def with_slowdown(rules: Rules, instances: Sequence[int], slowdown: float) -> Rules:
    """The same rules but for how long steps of all ranks of `instances` take."""
    slowdowns, ranks = rules.step_time.slowdown.copy(), rules.routing.ranks
    for instance in instances:
        slowdowns[instance * ranks : (instance + 1) * ranks] = slowdown
    return rules._replace(step_time=rules.step_time._replace(slowdown=slowdowns))
