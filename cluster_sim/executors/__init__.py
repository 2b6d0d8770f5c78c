"""Executors: the same work, spread differently. No result depends on which one runs it.

serial.py works in this process, ray_hosts.py on worker processes of Ray, here or on other machines;
ray_instances.py spreads the instances of one simulation over such processes.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar

from cluster_sim.config import ExecutorConfig, ExecutorKind
from cluster_sim.drive_hosts import drive_hosts
from cluster_sim.engine.rules import Rules
from cluster_sim.executors.address import AUTO, check_answers, given_address
from cluster_sim.executors.cores import cores_here, pays_on_ray
from cluster_sim.executors.serial import Serial
from cluster_sim.faults import Plan
from cluster_sim.fleet import Sampler
from cluster_sim.run import NO_FAULTS, Drive, Driven, Progress, drive_here

T = TypeVar("T")
R = TypeVar("R")


class Executor(Protocol):
    """Runs pieces of work."""

    def run(self, work: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
        """What `work` returns for each of `items`, once each, in the order in which they end.

        `work` is a function of a module, and a function of its item alone: a piece whose worker dies is done
        again elsewhere. Items and results can be pickled.

        `items` may be a deque: they leave it on the left as workers get free, and more may join it on the
        right while results are taken. The work ends when it is empty and no piece is under way.

        Raises:
            UserError: `work` raised it, or workers could not start or did not survive.
        """


def chosen_kind(config: ExecutorConfig, pieces: int) -> ExecutorKind:
    """Where `pieces` of work run: with `auto`, on Ray if there are several or Ray's settings are given."""
    if config.kind is not ExecutorKind.auto:
        return config.kind
    asks_for_ray = given_address(config) is not None or config.instances_per_host is not None
    return ExecutorKind.ray if pieces > 1 or asks_for_ray else ExecutorKind.serial


def check_reachable(config: ExecutorConfig) -> None:
    """Ask the Ray cluster at the given address whether it is there; one to be found (`auto`) is asked later.

    Raises:
        UserError: nothing answers there as Ray does.
    """
    address = given_address(config)
    if config.kind is not ExecutorKind.serial and address is not None and address.text != AUTO:
        check_answers(address)


def drive_of(config: ExecutorConfig) -> Drive:
    """How one simulation is run: here, or its instances on Ray if asked for or, with `auto`, if that pays.

    Either way its fleet is sampled. One with faults is run here: they change several instances and the router
    at one moment. So is one whose clients wait: an answer of one instance is an arrival at another, at once.
    """

    def drive(rules: Rules, report: Progress | None, plan: Plan = NO_FAULTS) -> Driven:
        is_auto, workers = config.kind is ExecutorKind.auto, config.workers or cores_here()
        is_spread = chosen_kind(config, 1) is ExecutorKind.ray or (is_auto and pays_on_ray(rules, workers))
        if plan.faults or rules.workload.clients or not is_spread:
            return drive_here(rules, report, plan, Sampler(rules))
        from cluster_sim.executors.ray_instances import open_instances  # noqa: PLC0415  as below

        with open_instances(config, rules) as hosts:
            return drive_hosts(rules, hosts, report)

    return drive


@contextmanager
def open_executor(config: ExecutorConfig, pieces: int) -> Iterator[Executor]:
    """The executor that `config` asks for, for about `pieces` of work; it leaves no process behind.

    Raises:
        UserError: Ray cannot be started, or not be joined at the address.
    """
    if chosen_kind(config, pieces) is ExecutorKind.serial:
        yield Serial()
        return
    from cluster_sim.executors.ray_hosts import open_hosts  # noqa: PLC0415  serial runs need no Ray

    with open_hosts(given_address(config), config.workers, pieces) as hosts:
        yield hosts
