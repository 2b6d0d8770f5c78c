"""Executors: the same work, spread differently. No result depends on which one runs it.

serial.py works in this process, ray_hosts.py on worker processes of Ray, here or on other machines.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar

from cluster_sim.config import ExecutorConfig, ExecutorKind
from cluster_sim.executors.address import given_address
from cluster_sim.executors.serial import Serial

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
    """Where `pieces` of work run: with `auto`, on Ray if there are several or an address is given."""
    if config.kind is not ExecutorKind.auto:
        return config.kind
    return ExecutorKind.ray if pieces > 1 or given_address(config) is not None else ExecutorKind.serial


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
