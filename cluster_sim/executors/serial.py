"""All work in this process, piece by piece."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Serial:
    """Runs pieces of work one after the other."""

    def run(self, work: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
        """What `work` returns for each of `items`, in their order."""
        queue = items if isinstance(items, deque) else deque(items)
        while queue:
            yield work(queue.popleft())
