"""One simulation on several hosts: a router here, the instances there, window by window.

The windows are those of loop.run_until; one without arrivals is no call. A policy that looks at nothing needs
no windows: every host gets its orders at once. A host of all instances routes by itself, in one world.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from cluster_sim.engine import loop, router
from cluster_sim.engine.rules import Rules
from cluster_sim.engine.tables import Floats, Ints
from cluster_sim.fleet import empty_samples, merge_samples
from cluster_sim.hosts import Answer, hear, merge, rules_of_router, window_last
from cluster_sim.run import REQUESTS_PER_SLICE, Driven, Progress
from cluster_sim.world import new_world

REPORT_EVERY_S = 0.1


class Hosts(Protocol):
    """The hosts of a cluster."""

    cores: Sequence[range]  # of each: neighbours, all of them together the cluster

    def advance(self, sent_to: Ints, first: int, last: int, until_s: float) -> None:
        """Order every host on, from request `first` up to `last` and `until_s`."""

    def answers(self) -> Iterator[tuple[range, Answer]]:
        """Cores and answer of a host, as answers come, until all have carried out all their orders.

        Raises:
            UserError: hosts could not start or did not survive.
        """


def drive_hosts(rules: Rules, hosts: Hosts, report: Progress | None = None) -> Driven:
    """Run to the end of the last request; of the world at the end, log and tally are whole.

    Raises:
        UserError: hosts could not start or did not survive.
    """
    routing_rules, is_routed = rules_of_router(rules), len(hosts.cores) > 1
    world, engine_wall_s, fleet = new_world(routing_rules), 0.0, empty_samples(rules)
    is_watched = is_routed and router.needs_signals(rules.routing)
    arrivals_s: Floats = rules.workload.requests["arrival_s"]
    say = _now_and_then(report or (lambda *_: None), len(arrivals_s))
    reached = dict.fromkeys(hosts.cores, 0)

    def listen() -> None:
        nonlocal engine_wall_s
        for cores, answer in hosts.answers():
            engine_wall_s += answer.engine_wall_s
            reached[cores] = answer.last
            hear(world, cores, rules.routing.ranks, answer)
            if answer.share is not None:
                merge(world, cores, answer.share)
                merge_samples(fleet, cores, answer.share.fleet)
            say(min(reached.values()))

    for first, last, until_s in _orders(arrivals_s, rules.routing.signal_interval_s, is_watched):
        if is_routed:
            started = time.perf_counter()
            loop.run_until(world, routing_rules, first, until_s)
            engine_wall_s += time.perf_counter() - started
        hosts.advance(world.sent_to, first, last, until_s)
        if is_watched:
            listen()
    listen()
    return Driven(world, engine_wall_s, fleet=fleet)


def _orders(arrivals_s: Floats, interval_s: float, in_windows: bool) -> Iterator[tuple[int, int, float]]:
    """Requests first .. last - 1 and the time up to which they are run: a window, or about a slice."""
    first, requests = 0, len(arrivals_s)
    while first < requests:
        within = first if in_windows else min(first + REQUESTS_PER_SLICE, requests) - 1
        last, until_s = window_last(arrivals_s, interval_s, within), math.inf
        if last < requests:
            until_s = router.window_start_s(interval_s, float(arrivals_s[last]))
        yield first, last, until_s
        first = last


def _now_and_then(report: Progress, requests: int) -> Callable[[int], None]:
    """Report how many requests are done, not for every window."""
    last_s = -math.inf

    def say(done: int) -> None:
        nonlocal last_s
        if done == requests or time.monotonic() - last_s >= REPORT_EVERY_S:
            last_s = time.monotonic()
            report(done, requests)

    return say
