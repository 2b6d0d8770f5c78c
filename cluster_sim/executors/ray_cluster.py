"""A Ray cluster: started here or joined, quiet, and left again; worker processes (actors) on its nodes.

The only import of Ray.

Without an address a cluster of our own is started, and stopped whatever happens. With one it is joined; its
nodes need the same cluster_sim installed, and traces and bundles given by path at the same paths.
"""

import hashlib
import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

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

MOST_DEATHS = 3  # of workers that had the same work, before it is given up
POLL_S = 0.2  # how long Ctrl-C may wait
START_S = 120.0  # for a worker that has a core to itself
WorkerError = RayError  # of a worker that has died, or could not start
OBJECT_STORE_BYTES = 100_000_000


class Worker:
    """A worker process."""

    def check(self, expected: str) -> str | None:
        """None if this process runs the code of digest `expected`, else the name of its machine."""
        return None if code_digest() == expected else socket.gethostname()


@contextmanager
def open_cluster(address: Address | None, workers: int, shared_bytes: int = 0) -> Iterator[None]:
    """Be in the cluster at `address`, or in one of our own with cores for `workers`.

    A cluster of our own has room for `shared_bytes` in its object store, beside what calls need.

    Raises:
        UserError: no cluster can be joined at `address`, or none be started.
    """
    found = None if address is None else _answering(address)
    try:
        if found is None:
            _start_cluster(workers, OBJECT_STORE_BYTES + shared_bytes)
        else:
            _join_cluster(found)
        yield
    finally:
        _leave()


def code_digest() -> str:
    """Hex digest of the sources of this package."""
    package = Path(__file__).resolve().parent.parent
    sources = sorted(package.rglob("*.py"))
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()


def nodes_by_core() -> list[str]:
    """A node for each core of the cluster, one after the other as long as they have cores."""
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    cores = {node["NodeID"]: int(node["Resources"].get("CPU", 0)) for node in nodes if node["Alive"]}
    rounds = range(max(cores.values(), default=0))
    places = [node for turn in rounds for node, count in sorted(cores.items()) if turn < count]
    if not places:
        rule = "a Ray cluster must have cores to work on"
        raise UserError(rule, "none", "executor.address", "Add a node to it: `ray start --address=...`.")
    return places


def start_worker(kind: type, node: str) -> Any:
    """A worker of class `kind` on `node`, or on another one when that is gone.

    It asks Ray for no core: a worker that waits for one would wait for ever. Its starter counts.
    """
    options: Mapping[str, Any] = {
        "num_cpus": 0,
        "max_restarts": -1,
        "max_task_retries": 0,
        "scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=True),
    }
    return ray.remote(kind).options(**options).remote()


def first_answer(worker: Any, digest: str) -> Any:
    """The answer that a worker gives when it has started, or started again; for check_welcome."""
    return worker.check.options(max_task_retries=-1).remote(digest)


def check_welcome(answer: Any) -> None:
    """Raise unless the worker that gave its first answer can do what this process could.

    Raises:
        UserError: it runs other code, or could not start.
    """
    try:
        other = value_of(answer)
    except WorkerError as error:  # for one, no cluster_sim there
        rule = "a worker must start on every node of the cluster"
        remedy = "Install this cluster_sim and what it needs there."
        raise UserError(rule, last_line(error), "executor.address", remedy) from error
    if other is not None:
        rule = "every worker must run the same cluster_sim as this process"
        remedy = "Install one version on all nodes, and leave it alone while work runs."
        raise UserError(rule, f"another one on {other}", "executor.address", remedy)


def not_started(within_s: float) -> UserError:
    """The error for workers that do not start in time."""
    remedy = "Look whether its nodes have memory and processes to spare, or use executor=serial."
    return UserError(f"a worker must start within {within_s:g} s", "none", "executor", remedy)


def too_many_deaths(got: str) -> UserError:
    """The error for work that has killed a worker once more than MOST_DEATHS times."""
    rule = f"work must not kill its worker {MOST_DEATHS + 1} times"
    remedy = "If memory is short, lower executor.workers; executor=serial shows what happens."
    return UserError(rule, got, "executor", remedy)


def in_store(value: Any) -> Any:
    """`value` in the object store, where every worker can read it: what to give them as an argument."""
    return ray.put(value)


def wait_for(answers: Sequence[Any], count: int) -> list[Any]:
    """Answers that have come: `count` of them, or after POLL_S fewer, perhaps none."""
    come, _ = ray.wait(list(answers), num_returns=count, timeout=POLL_S)
    return list(come)


def value_of(answer: Any) -> Any:
    """What a worker answered, or its work raised; RayError if the worker is gone."""
    try:
        return ray.get(answer)
    except RayTaskError as error:
        raise error.cause from error


def last_line(error: WorkerError) -> str:
    """What an error of Ray says at its end."""
    return str(error).strip().rpartition("\n")[2].strip()


def _start_cluster(workers: int, object_store_bytes: int) -> None:
    _init(
        address="local",
        num_cpus=workers,
        include_dashboard=False,
        object_store_memory=object_store_bytes,
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
