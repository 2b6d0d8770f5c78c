"""Pieces of work on Ray: a worker process (an actor) per core, on this machine or on a cluster.

A worker holds no state: its work is done again if it dies.
"""

import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from cluster_sim.executors.address import Address
from cluster_sim.executors.cores import cores_here
from cluster_sim.executors.ray_cluster import (
    MOST_DEATHS,
    START_S,
    Worker,
    WorkerError,
    check_welcome,
    code_digest,
    first_answer,
    last_line,
    nodes_by_core,
    not_started,
    open_cluster,
    start_worker,
    too_many_deaths,
    value_of,
    wait_for,
)

T = TypeVar("T")
R = TypeVar("R")

BATCH_S = 0.25  # work per call: a hundred times what a call costs, and little to lose
IN_FLIGHT = 2  # batches per worker: the next one is there when one ends


class Host(Worker):
    """A worker process that does batches."""

    def run(self, work: Callable[[T], R], items: Sequence[T]) -> tuple[list[R], float]:
        """The results of `work` for `items`, in their order, and the seconds that they took."""
        started = time.perf_counter()
        results = [work(item) for item in items]
        return results, time.perf_counter() - started


@dataclass(frozen=True)
class Batch(Generic[T]):
    """Items that a worker does in one call."""

    items: list[T]
    deaths: int = 0  # of workers that had it


class RayHosts:
    """Spreads work over the workers of the cluster that this process has joined. Made by open_hosts.

    A worker is starting until it has answered a first time, then ready. One that dies is starting again: Ray
    gives it a new process, on another node if its own is gone.
    """

    def __init__(self, nodes: Sequence[str]) -> None:
        """Start a worker on each of `nodes`; a node may be named several times."""
        self._digest = code_digest()
        self._ready: list[Any] = []
        self._starting: dict[Any, Any] = {}  # answer that will come -> host
        for node in nodes:
            self._expect(start_worker(Host, node))

    def run(self, work: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
        """What `work` returns for each of `items`, in the order in which batches of them end."""
        queue = items if isinstance(items, deque) else deque(items)
        again: list[Batch[T]] = []
        running: dict[Any, tuple[Any, Batch[T]]] = {}  # answer that will come -> host, batch
        pace_s = BATCH_S  # per item, in the batch that ended last
        while queue or again or running:
            load = Counter(host for host, _ in running.values())
            for host in self._ready * IN_FLIGHT:
                if (queue or again) and load[host] < IN_FLIGHT:
                    batch = again.pop() if again else self._next_batch(queue, pace_s)
                    running[host.run.remote(work, batch.items)] = host, batch
                    load[host] += 1
            for answer in self._wait([*running, *self._starting]):
                if answer in self._starting:
                    self._welcome(answer)
                    continue
                host, batch = running.pop(answer)
                try:
                    results, took_s = value_of(answer)
                except WorkerError as error:
                    again.append(_once_more(batch, error))
                    self._expect(host)
                else:
                    pace_s = took_s / len(results)
                    yield from results

    def _next_batch(self, queue: deque[T], pace_s: float) -> Batch[T]:
        """Items for BATCH_S of work, but towards the end fewer, so that all workers end together."""
        share = len(queue) // (2 * IN_FLIGHT * len(self._ready))
        count = max(1, min(share, int(BATCH_S / max(pace_s, 1e-6))))
        return Batch([queue.popleft() for _ in range(count)])

    def _wait(self, answers: Sequence[Any]) -> list[Any]:
        """Answers that have come; after POLL_S perhaps none."""
        come = wait_for(answers, 1)
        if not (come or self._ready) and time.monotonic() > self._deadline_s:
            raise not_started(START_S)
        return come

    def _expect(self, host: Any) -> None:
        """Wait for the first answer of a worker that starts, or starts again."""
        if host in self._ready:
            self._ready.remove(host)
        if host not in self._starting.values():
            self._starting[first_answer(host, self._digest)] = host
        if not self._ready:
            self._deadline_s = time.monotonic() + START_S

    def _welcome(self, answer: Any) -> None:
        """Take in the worker that has given its first answer."""
        host = self._starting.pop(answer)
        check_welcome(answer)
        self._ready.append(host)


@contextmanager
def open_hosts(address: Address | None, workers: int | None, pieces: int) -> Iterator[RayHosts]:
    """Workers for `pieces` of work: `workers`, by default one per core, and no more than pieces or cores.

    Raises:
        UserError: no cluster can be joined at `address`, or none be started.
    """
    with open_cluster(address, min(workers or cores_here(), pieces)):
        yield RayHosts(nodes_by_core()[: min(workers or sys.maxsize, pieces)])


def _once_more(batch: Batch[T], error: WorkerError) -> Batch[T]:
    """A batch whose worker died, to be done again unless it has killed too many."""
    if batch.deaths == MOST_DEATHS:
        raise too_many_deaths(last_line(error)) from error
    return Batch(batch.items, batch.deaths + 1)
