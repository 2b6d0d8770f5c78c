"""Instance hosts on Ray: one big cluster on several worker processes, which carry out orders of the router.

The rules go to the object store once. A host that dies is started again and sent everything that the router
has sent it so far, in one order: it ends where it was, since no result depends on where a run is cut.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from cluster_sim.config import ExecutorConfig
from cluster_sim.engine.rules import Rules
from cluster_sim.engine.state import LogRow
from cluster_sim.engine.tables import Ints, row_dtype
from cluster_sim.executors.address import given_address
from cluster_sim.executors.cores import cores_here
from cluster_sim.executors.ray_cluster import (
    MOST_DEATHS,
    START_S,
    Worker,
    WorkerError,
    check_welcome,
    code_digest,
    first_answer,
    in_store,
    last_line,
    nodes_by_core,
    not_started,
    open_cluster,
    start_worker,
    too_many_deaths,
    value_of,
    wait_for,
)
from cluster_sim.hosts import Answer, InstanceHost, Order, cores_of_hosts, order_for, packed, unpacked


class HostWorker(Worker):
    """A worker process that holds instances."""

    def __init__(self) -> None:
        self._host: InstanceHost | None = None

    def begin(self, rules: Rules, cores: range, order: Order) -> Answer | None:
        """Hold the instances of `cores`, and answer to their first order."""
        self._host = InstanceHost(unpacked(rules), cores)
        return self._host.advance(order)

    def advance(self, order: Order) -> Answer | None:
        """The answer to a later order; None: this process is not the one that had those before."""
        return None if self._host is None else self._host.advance(order)


@dataclass(eq=False)
class Place:
    """A worker, and how far it was ordered to go."""

    worker: Any
    cores: range
    is_ready: bool = False
    deaths: int = 0
    last: int = 0
    until_s: float = 0.0


class RayInstances:
    """The hosts of a cluster, for drive_hosts. Made by open_instances."""

    def __init__(self, rules: Rules, cores: Sequence[range], nodes: Sequence[str]) -> None:
        """Start a worker for each of `cores` on `nodes`, one for each core, in turns."""
        self.cores = cores
        self._digest = code_digest()
        self._patience_s = START_S * -(-len(cores) // len(nodes))  # they start at once, on as many cores
        self._sent_to: Ints = np.zeros(0, np.int32)
        self._pending: dict[Any, Place] = {}  # answer that will come -> whose
        self._shared = in_store(packed(rules))
        for number, here in enumerate(cores):
            self._expect(Place(start_worker(HostWorker, nodes[number % len(nodes)]), here))
        self._places = list(self._pending.values())

    def wait_until_ready(self) -> None:
        """Return when all workers have started; nothing must have been ordered before."""
        for cores, _ in self.answers():
            raise AssertionError(f"the host of {cores} answers without an order")

    def advance(self, sent_to: Ints, first: int, last: int, until_s: float) -> None:
        """Order every host on; those that start are sent it all when they have."""
        self._sent_to = sent_to
        for place in self._places:
            place.last, place.until_s = last, until_s
            if place.is_ready:
                self._send(place, first)

    def answers(self) -> Iterator[tuple[range, Answer]]:
        """Cores and answer of a host, until none is to come; one that died gives one for all its orders."""
        while self._pending:
            for coming in self._wait():
                place = self._pending.pop(coming, None)
                if place is None:  # of a host that has died meanwhile
                    continue
                if not place.is_ready:
                    self._welcome(place, coming)
                    continue
                try:
                    answer, got = value_of(coming), "one that had been started again"
                except WorkerError as error:
                    answer, got = None, last_line(error)
                if answer is None:
                    self._start_again(place, got)
                else:
                    yield place.cores, answer

    def _send(self, place: Place, first: int) -> None:
        order = order_for(place.cores, self._sent_to, first, place.last, place.until_s)
        if first == 0:
            answer = place.worker.begin.remote(self._shared, place.cores, order)
        else:
            answer = place.worker.advance.remote(order)
        self._pending[answer] = place

    def _expect(self, place: Place) -> None:
        """Wait for the first answer of a worker that starts, or starts again."""
        place.is_ready = False
        self._pending[first_answer(place.worker, self._digest)] = place
        self._deadline_s = time.monotonic() + self._patience_s

    def _welcome(self, place: Place, answer: Any) -> None:
        check_welcome(answer)
        place.is_ready = True
        self._deadline_s = time.monotonic() + self._patience_s
        if place.last > 0:
            self._send(place, 0)

    def _start_again(self, place: Place, got: str) -> None:
        """Ray starts another process for a worker that died; what it was asked before is asked anew."""
        if place.deaths == MOST_DEATHS:
            raise too_many_deaths(got)
        place.deaths += 1
        self._pending = {answer: other for answer, other in self._pending.items() if other is not place}
        self._expect(place)

    def _wait(self) -> list[Any]:
        come = wait_for(list(self._pending), len(self._pending))
        is_starting = not all(place.is_ready for place in self._pending.values())
        if not come and is_starting and time.monotonic() > self._deadline_s:
            raise not_started(self._patience_s)
        return come


@contextmanager
def open_instances(config: ExecutorConfig, rules: Rules) -> Iterator[RayInstances]:
    """Hosts for the instances of a cluster, ready: instances_per_host, else spread over workers, else cores.

    Raises:
        UserError: Ray cannot be started, or not be joined at the address; a host does not start.
    """
    workers = config.workers or cores_here()
    with open_cluster(given_address(config), workers, _shared_bytes(rules)):
        nodes = nodes_by_core()
        count = min(config.workers or len(nodes), len(nodes))
        hosts = RayInstances(rules, cores_of_hosts(rules, count, config.instances_per_host), nodes)
        hosts.wait_until_ready()
        yield hosts


def _shared_bytes(rules: Rules) -> int:
    """Room for the rules, and for the log rows that come back."""
    row_bytes = row_dtype(LogRow).itemsize + np.dtype(np.int64).itemsize
    return _bytes_of(rules) + row_bytes * rules.workload.requests.shape[0]


def _bytes_of(tables: Any) -> int:
    if isinstance(tables, tuple):
        return sum(map(_bytes_of, tables))
    return int(tables.nbytes) if isinstance(tables, np.ndarray) else 0
