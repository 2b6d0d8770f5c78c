"""Worlds with faults for tests: plans in a few words, runs through them, and strategies that draw them."""

import math
from collections.abc import Iterator, Sequence

from engine_strategies import GRAIN_S
from engine_worlds import Scenario
from hypothesis import strategies as st

from cluster_sim.choices import FaultKind
from cluster_sim.engine import loop
from cluster_sim.engine.kinds import Status
from cluster_sim.engine.rules import Rules
from cluster_sim.engine.state import World
from cluster_sim.fault_config import FaultConfig
from cluster_sim.faults import Happened, Plan, apply, finish, is_over, moments
from cluster_sim.run import drive
from cluster_sim.world import new_world


def stop(instances: list[int], from_s: float, until_s: float | None = None) -> FaultConfig:
    return FaultConfig(instances, FaultKind.stop, from_s, until_s)


def drain(instances: list[int], from_s: float, until_s: float | None = None) -> FaultConfig:
    return FaultConfig(instances, FaultKind.drain, from_s, until_s)


def slow(
    instances: list[int], slowdown: float, from_s: float = 0.0, until_s: float | None = None
) -> FaultConfig:
    return FaultConfig(instances, FaultKind.slow, from_s, until_s, slowdown)


def play_through(
    scenario: Scenario, *faults: FaultConfig, loses: bool = False
) -> tuple[World, tuple[Happened, ...]]:
    """A scenario run to its end through faults."""
    rules = scenario.rules()
    world = new_world(rules)
    return world, drive(world, rules, None, Plan(faults, loses)).faults


def cuts(world: World, rules: Rules, plan: Plan, stops_s: Sequence[float] = ()) -> Iterator[float]:
    """The same, also cut at `stops_s`; yields the time before and after each change, and at each cut."""
    changes = dict(moments(plan))
    request = 0
    for at_s in (*sorted({*changes, *stops_s}), math.inf):
        request, status = loop.run_until(world, rules, request, at_s)
        assert status == Status.done
        yield at_s
        if at_s in changes and not is_over(world):
            rules, _ = apply(world, rules, plan, changes[at_s], at_s)
            yield at_s
    finish(world, rules, plan)
    yield math.inf


@st.composite
def plans_for(draw: st.DrawFn, scenario: Scenario) -> Plan:
    """Faults of any kind, one after the other on each instance; now and then on all at once."""
    faults, instances = [], len(scenario.servers) // scenario.ranks
    for instance in range(instances):
        edges = sorted(draw(st.sets(st.integers(1, 24), min_size=0, max_size=8)))
        for start, end in zip(edges[::2], [*edges[1::2], None], strict=False):
            kind = draw(st.sampled_from([*[FaultKind.stop] * 4, FaultKind.drain, FaultKind.slow]))
            slowdown = draw(st.sampled_from([1.5, 4.0])) if kind is FaultKind.slow else None
            until_s = None if end is None else end * GRAIN_S
            faults.append(FaultConfig([instance], kind, start * GRAIN_S, until_s, slowdown))
    if draw(st.sampled_from([False, False, True])):
        start = draw(st.integers(1, 12))
        faults = [stop(list(range(instances)), start * GRAIN_S, (start + draw(st.integers(1, 30))) * GRAIN_S)]
    return Plan(tuple(faults), draw(st.sampled_from([False, False, True])))
