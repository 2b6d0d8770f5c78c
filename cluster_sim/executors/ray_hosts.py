"""Work on Ray: a worker process (an actor) per core, on this machine or on a cluster. The only import of Ray.

Without an address a cluster of our own is started, and stopped whatever happens. With one it is joined; its
nodes need the same cluster_sim installed, and traces and bundles given by path at the same paths.

A worker holds no state: its work is done again if it dies.
"""

import hashlib
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from cluster_sim.errors import UserError
from cluster_sim.executors.address import AUTO, Address, check_answers, not_there

QUIET = {
    "RAY_AUTH_MODE": "token",  # unset, a warning locally, and a cluster with tokens refuses
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # unset, a warning
    "OMP_NUM_THREADS": "1",  # numpy in a worker: it has one core
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
os.environ.update({name: value for name, value in QUIET.items() if name not in os.environ})

import ray  # noqa: E402  reads its settings from the environment
from ray._private import services  # noqa: E402  no public way to ask where `auto` is
from ray._private import worker as ray_worker  # noqa: E402  no public way to silence its lines on stdout
from ray.exceptions import RayError, RayTaskError  # noqa: E402
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: E402

T = TypeVar("T")
R = TypeVar("R")

BATCH_S = 0.25  # work per call: a hundred times what a call costs, and little to lose
IN_FLIGHT = 2  # batches per worker: the next one is there when one ends
MOST_DEATHS = 3  # of workers that had a batch, before it is given up
POLL_S = 0.2  # how long Ctrl-C may wait
START_S = 120.0  # for the first worker
OBJECT_STORE_BYTES = 100_000_000


class Host:
    """A worker process."""

    def check(self, expected: str) -> str | None:
        """None if this process runs the code of digest `expected`, else the name of its machine."""
        return None if code_digest() == expected else socket.gethostname()

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
            self._expect(_start_host(node))

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
                    results, took_s = _value(answer)
                except RayError as error:
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
        come, _ = ray.wait(list(answers), num_returns=1, timeout=POLL_S)
        if not (come or self._ready) and time.monotonic() > self._deadline_s:
            remedy = "Look whether its nodes have memory and processes to spare, or use executor=serial."
            raise UserError(f"a worker must start within {START_S:g} s", "none", "executor", remedy)
        return list(come)

    def _expect(self, host: Any) -> None:
        """Wait for the first answer of a worker that starts, or starts again."""
        if host in self._ready:
            self._ready.remove(host)
        if host not in self._starting.values():
            self._starting[host.check.options(max_task_retries=-1).remote(self._digest)] = host
        if not self._ready:
            self._deadline_s = time.monotonic() + START_S

    def _welcome(self, answer: Any) -> None:
        """Take in the worker that has given its first answer."""
        host = self._starting.pop(answer)
        try:
            other = _value(answer)
        except RayError as error:  # for one, no cluster_sim there
            rule = "a worker must start on every node of the cluster"
            remedy = "Install this cluster_sim and what it needs there."
            raise UserError(rule, _last_line(error), "executor.address", remedy) from error
        if other is not None:
            rule = "every worker must run the same cluster_sim as this process"
            remedy = "Install one version on all nodes, and leave it alone while work runs."
            raise UserError(rule, f"another one on {other}", "executor.address", remedy)
        self._ready.append(host)


@contextmanager
def open_hosts(address: Address | None, workers: int | None, pieces: int) -> Iterator[RayHosts]:
    """Workers for `pieces` of work: `workers`, by default one per core, and no more than pieces.

    Raises:
        UserError: no cluster can be joined at `address`, or none be started.
    """
    found = None if address is None else _answering(address)
    try:
        if found is None:
            _start_cluster(min(workers or _cores(), pieces))
        else:
            _join_cluster(found)
        yield RayHosts(_placed(min(workers or sys.maxsize, pieces)))
    finally:
        _leave()


def code_digest() -> str:
    """Hex digest of the sources of this package."""
    package = Path(__file__).resolve().parent.parent
    sources = sorted(package.rglob("*.py"))
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()


def _cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _start_cluster(workers: int) -> None:
    _init(
        address="local",
        num_cpus=workers,
        include_dashboard=False,
        object_store_memory=OBJECT_STORE_BYTES,
    )


def _answering(address: Address) -> Address:
    """`address` as HOST:PORT, where something answers as Ray does."""
    if address.text == AUTO:
        try:
            address = replace(address, text=str(services.canonicalize_bootstrap_address(AUTO)))
        except ConnectionError as error:
            raise not_there(address, "no cluster that was started on this machine") from error
    check_answers(address)
    return address


def _join_cluster(address: Address) -> None:
    try:
        _init(address=address.text)
    except (ConnectionError, RuntimeError) as error:  # another token, another version of Ray or Python
        raise not_there(address, str(error).partition("\n")[0]) from error


def _init(**settings: Any) -> None:
    """ray.init, silent, and with the handler of SIGTERM that was there before."""
    is_main = threading.current_thread() is threading.main_thread()
    on_sigterm = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(log_to_driver=False, logging_level=logging.ERROR, **settings)
    except SystemExit as stop:  # Ray's own handler of SIGTERM, while it starts
        raise KeyboardInterrupt from stop
    finally:
        if is_main:
            signal.signal(signal.SIGTERM, on_sigterm)
    if hasattr(ray_worker, "_worker_logs_enabled"):
        ray_worker._worker_logs_enabled = False  # else it prints on stdout that a worker died


def _leave() -> None:
    """Stop what runs, to the end: a second Ctrl-C would leave processes behind."""
    if threading.current_thread() is not threading.main_thread():
        ray.shutdown()
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        ray.shutdown()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _placed(workers: int) -> list[str]:
    """A node for each of `workers`, one after the other as long as they have cores; no more than cores."""
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    cores = {node["NodeID"]: int(node["Resources"].get("CPU", 0)) for node in nodes if node["Alive"]}
    rounds = range(max(cores.values(), default=0))
    places = [node for turn in rounds for node, count in sorted(cores.items()) if turn < count]
    if not places:
        rule = "a Ray cluster must have cores to work on"
        raise UserError(rule, "none", "executor.address", "Add a node to it: `ray start --address=...`.")
    return places[:workers]


def _start_host(node: str) -> Any:
    """A worker on `node`, or on another one when that is gone.

    It asks Ray for no core: a worker that waits for one would wait for ever. One per core is all that run.
    """
    options: Mapping[str, Any] = {
        "num_cpus": 0,
        "max_restarts": -1,
        "max_task_retries": 0,
        "scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=True),
    }
    return ray.remote(Host).options(**options).remote()


def _once_more(batch: Batch[T], error: RayError) -> Batch[T]:
    """A batch whose worker died, to be done again unless it has killed too many."""
    if batch.deaths == MOST_DEATHS:
        rule = f"work must not kill its worker {MOST_DEATHS + 1} times"
        remedy = "If memory is short, lower executor.workers; executor=serial shows what happens."
        raise UserError(rule, _last_line(error), "executor", remedy) from error
    return Batch(batch.items, batch.deaths + 1)


def _value(answer: Any) -> Any:
    """What a worker answered, or its work raised; RayError if the worker is gone."""
    try:
        return ray.get(answer)
    except RayTaskError as error:
        raise error.cause from error


def _last_line(error: RayError) -> str:
    return str(error).strip().rpartition("\n")[2].strip()
