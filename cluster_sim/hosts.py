"""Instance hosts: some neighbouring instances of a cluster in a world of their own, routed to from elsewhere.

    router's world           order: which requests, up to when          host's world
    policy, sent_to   ------------------------------------------->   queues, lanes, KV
    snapshot          <-------------------------------------------   answer: what the policy looks at

Requests keep their numbers and instances their streams, so a host does what the same instances do in the
world of the whole cluster, byte for byte. Conserved: every request sent is in the log of one host.
"""

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from cluster_sim.engine import router
from cluster_sim.engine.kinds import Part, RouterPolicy
from cluster_sim.engine.rules import Rules
from cluster_sim.engine.state import LogRow, Tally, World
from cluster_sim.engine.tables import Floats, Ints, Longs, Table, row_dtype
from cluster_sim.fleet import Sampler, Samples
from cluster_sim.run import check_done
from cluster_sim.world import columns, new_world

PER_CORE = ("batching", "drafting", "draft_length_at", "lockstep")  # of Rules: a row for each engine core
STEP_TIME_PER_CORE = ("bundle_of", "host_s", "slowdown")  # of StepTime, likewise


@dataclass(frozen=True)
class Order:
    """Take those of the requests first .. last - 1 that are sent to this host, and run up to until_s."""

    first: int  # 0: from the start, whatever was before
    last: int
    until_s: float  # inf: to the end
    requests: Longs  # sent to this host
    cores: Ints  # the engine core of each, counted from the host's first


@dataclass(frozen=True)
class Share:
    """What a host leaves at the end."""

    requests: Longs  # sent to it
    log: Table[LogRow]  # their rows
    tally: Tally
    fleet: Samples  # of its engine cores


@dataclass(frozen=True)
class Answer:
    """What a host's instances are like after an order."""

    last: int  # requests before it are dispatched
    finished: Longs  # [engine core]
    waiting: Longs  # [engine core]
    free_blocks: Longs  # [engine core]
    hits: Longs  # [request of the window that comes, instance] for prefix_aware; else no rows
    engine_wall_s: float  # for this order
    share: Share | None  # after an order to the end


class InstanceHost:
    """The world of the engine cores `cores` of a cluster; all of them: its router too."""

    def __init__(self, rules: Rules, cores: range) -> None:
        self._rules = rules_of_host(rules, cores)
        self._last = 0
        self._world: World | None = None
        self._sampler = Sampler(self._rules)

    def advance(self, order: Order) -> Answer | None:
        """Carry out `order`; None: this host does not remember what came before it."""
        if order.first == 0:
            self._world, self._last, self._sampler = new_world(self._rules), 0, Sampler(self._rules)
        world = self._world
        if world is None or order.first != self._last:
            return None
        world.sent_to[order.requests] = order.cores
        started = time.perf_counter()
        self._last, status = self._sampler.run_until(world, self._rules, order.first, order.until_s)
        engine_wall_s = time.perf_counter() - started
        share = None
        if math.isinf(order.until_s):
            check_done(status)
            share = _share(world, self._sampler.samples)
        return Answer(
            self._last,
            world.lanes["finished"].copy(),
            world.queues["length"].copy(),
            world.kv.pools["num_free"].copy(),
            _coming_hits(world, self._rules, self._last),
            engine_wall_s,
            share,
        )


def order_for(cores: range, sent_to: Ints, first: int, last: int, until_s: float) -> Order:
    """The order for the host of `cores`, from what the router has chosen."""
    sent = sent_to[first:last]
    here = np.flatnonzero((sent >= cores.start) & (sent < cores.stop))
    return Order(first, last, until_s, here + first, sent[here] - np.int32(cores.start))


def cores_of_hosts(rules: Rules, hosts: int | None, instances_per_host: int | None) -> list[range]:
    """The engine cores of each host: instances spread evenly over `hosts`, or so many to each."""
    ranks = rules.routing.ranks
    instances = rules.batching.shape[0] // ranks
    if instances_per_host is not None:
        bounds = [*range(0, instances, instances_per_host), instances]
    else:
        count = min(hosts or 1, instances)
        bounds = [instances * place // count for place in range(count + 1)]
    return [range(bounds[at] * ranks, bounds[at + 1] * ranks) for at in range(len(bounds) - 1)]


def rules_of_host(rules: Rules, cores: range) -> Rules:
    """The rules of some engine cores: their rows of every table, and no router; of all: the same rules."""
    if len(cores) == rules.batching.shape[0]:
        return rules
    here = slice(cores.start, cores.stop)
    rows = {name: getattr(rules, name)[here] for name in PER_CORE}
    times = {name: getattr(rules.step_time, name)[here] for name in STEP_TIME_PER_CORE}
    return rules._replace(
        **rows,
        step_time=rules.step_time._replace(**times),
        routing=rules.routing._replace(part=int(Part.instances)),
    )


def rules_of_router(rules: Rules) -> Rules:
    """The rules of a cluster's router alone: its world has no blocks of KV memory, only their numbers."""
    batching: Any = rules.batching
    batching = batching.copy()
    batching["enable_prefix_caching"] = False
    return rules._replace(batching=batching, routing=rules.routing._replace(part=int(Part.router)))


def window_last(arrivals_s: Floats, interval_s: float, request: int) -> int:
    """The first request after the signal window that holds `request` (as loop.run_until cuts them)."""
    start_s = router.window_start_s(interval_s, float(arrivals_s[request]))
    before_end = np.searchsorted(arrivals_s, router.window_end_s(interval_s, start_s), side="left")
    at_start = np.searchsorted(arrivals_s, start_s, side="right")  # an instant window: all of its moment
    return int(max(before_end, at_start))


def packed(tables: Any) -> Any:
    """Tables as plain arrays, which other processes can be sent; unpacked() makes them tables again."""
    if isinstance(tables, tuple):
        return type(tables)(*map(packed, tables))
    return tables.view(np.ndarray) if isinstance(tables, np.ndarray) else tables


def unpacked(tables: Any) -> Any:
    """Tables for the engine: arrays of another process can only be read, which compiles as another type."""
    if isinstance(tables, tuple):
        return type(tables)(*map(unpacked, tables))
    if not isinstance(tables, np.ndarray):
        return tables
    own = tables.copy()
    return own.view(np.recarray) if own.dtype.names else own


def _share(world: World, fleet: Samples) -> Share:
    requests = np.flatnonzero(world.sent_to >= 0)
    log: Any = columns(world.log)
    return Share(requests, log[requests], packed(world.tally), fleet)


def _coming_hits(world: World, rules: Rules, request: int) -> Longs:
    """What router.look_ahead has found for the requests of the window that `request` opens."""
    arrivals_s: Floats = rules.workload.requests["arrival_s"]
    routing, rows = rules.routing, np.zeros(0, np.int64)
    is_asked = routing.part == Part.instances and routing.policy == RouterPolicy.prefix_aware
    if is_asked and request < len(arrivals_s):
        rows = np.arange(request, window_last(arrivals_s, routing.signal_interval_s, request))
    hits: Longs = world.hits[rows % world.hits.shape[0]]
    return hits


def merge(world: World, cores: range, share: Share) -> None:
    """Write what the host of `cores` leaves into the log and the tally of the whole cluster."""
    for name in row_dtype(LogRow).names or ():
        values = share.log[name]
        if name == "instance":
            values = np.where(values >= 0, values + np.int32(cores.start), values)
        world.log[name][share.requests] = values
    for whole, part in zip(packed(world.tally), packed(share.tally), strict=True):
        whole[(slice(cores.start, cores.stop), *map(slice, part.shape[1:]))] = part


def hear(world: World, cores: range, ranks: int, answer: Answer) -> None:
    """Write what the host of `cores` answered where the router looks."""
    here = slice(cores.start, cores.stop)
    world.lanes["finished"][here] = answer.finished
    world.queues["length"][here] = answer.waiting
    world.kv.pools["num_free"][here] = answer.free_blocks
    rows = np.arange(answer.last, answer.last + len(answer.hits)) % world.hits.shape[0]
    world.hits[rows, cores.start // ranks : cores.stop // ranks] = answer.hits
