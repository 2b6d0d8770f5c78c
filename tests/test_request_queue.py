"""The waiting queue against a plain list: every operation, in any order."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_sim.engine import request_queue
from cluster_sim.engine.kinds import SchedulingPolicy
from cluster_sim.engine.rules import Request
from cluster_sim.engine.state import Link, Queue
from cluster_sim.engine.tables import Table
from cluster_sim.world import empty_table

FCFS, PRIORITY = int(SchedulingPolicy.fcfs), int(SchedulingPolicy.priority)
NUM_REQUESTS = 9
# (priority, arrival) of each request: many of them equal
KEYS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=NUM_REQUESTS, max_size=NUM_REQUESTS)
# (operation, which request: an index into those that it applies to)
OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["add", "add", "prepend", "remove", "take head"]), st.integers(0, 1000)),
    max_size=40,
)


class Pair:
    """A queue of the engine and a list that must always agree with it."""

    def __init__(self, keys: list[tuple[int, int]], policy: int) -> None:
        self.keys, self.policy = keys, policy
        self.links: Table[Link] = empty_table(Link, len(keys), next=-1, previous=-1, child=-1)
        self.queue: Queue = empty_table(Queue, 1, head=-1, tail=-1, inbox_head=-1, inbox_tail=-1)[0]
        priority, arrival_s = zip(*keys, strict=True)
        self.requests: Table[Request] = empty_table(
            Request, len(keys), priority=priority, arrival_s=arrival_s
        )
        self.model: list[int] = []

    def do(self, operation: str, choice: int) -> None:
        """Apply an operation to both, where it is possible."""
        outside = [request for request in range(len(self.keys)) if request not in self.model]
        if operation in ("add", "prepend") and outside:
            request = outside[choice % len(outside)]
            self._call(request_queue.add if operation == "add" else request_queue.prepend, request)
            self.model.insert(len(self.model) if operation == "add" else 0, request)
        elif operation in ("remove", "take head") and self.model:
            request = self.head() if operation == "take head" else self.model[choice % len(self.model)]
            self._call(request_queue.remove, request)
            self.model.remove(request)

    def _call(self, what: Callable[..., None], request: int) -> None:
        what(self.links, self.queue, self.requests, self.policy, request)

    def head(self) -> int:
        """Who must be at the head."""
        if self.policy == PRIORITY:
            return min(self.model, key=lambda request: (*self.keys[request], request))
        return self.model[0]

    def walk(self) -> list[int]:
        """All requests that a walk meets."""
        met, request = [], int(self.queue.head)
        while request >= 0:
            met.append(request)
            assert len(met) <= len(self.keys)
            request = int(request_queue.following(self.links, request))
        return met

    def check(self) -> None:
        """Same length, same head, same members; in fcfs the same order."""
        assert self.queue.length == len(self.model)
        assert self.queue.head == (self.head() if self.model else -1)
        met = self.walk()
        assert (sorted(met), met[:1]) == (sorted(self.model), [self.head()] if self.model else [])
        if self.policy == FCFS:
            assert met == self.model
            assert self.queue.tail == (self.model[-1] if self.model else -1)


@settings(max_examples=200)
@given(keys=KEYS, operations=OPERATIONS, policy=st.sampled_from([FCFS, PRIORITY]))
def test_any_operations_agree_with_a_list(
    keys: list[tuple[int, int]], operations: list[tuple[str, int]], policy: int
) -> None:
    pair = Pair(keys, policy)
    for operation, choice in operations:
        pair.do(operation, choice)
        pair.check()


@settings(max_examples=100)
@given(keys=KEYS, order=st.permutations(range(NUM_REQUESTS)))
def test_priority_leaves_in_order_of_priority_arrival_and_submission(
    keys: list[tuple[int, int]], order: list[int]
) -> None:
    pair = Pair(keys, PRIORITY)
    for request in order:
        pair.do("add", sorted(set(range(NUM_REQUESTS)) - set(pair.model)).index(request))
    left = []
    while pair.model:
        left.append(int(pair.queue.head))
        pair.do("take head", 0)
    assert left == sorted(range(NUM_REQUESTS), key=lambda request: (*keys[request], request))


def test_preempted_requests_stand_in_front_the_last_one_first() -> None:
    """Of several victims the last one is first (../shared/vllm-scheduler.md section 4)."""
    pair = Pair([(0, number) for number in range(4)], FCFS)
    for operation, choice in (("add", 0), ("add", 0), ("prepend", 1), ("prepend", 0)):
        pair.do(operation, choice)
    assert pair.walk() == [2, 3, 0, 1]


@pytest.mark.parametrize("policy", [FCFS, PRIORITY])
def test_an_empty_queue_can_be_filled_again(policy: int) -> None:
    pair = Pair([(0, 0)] * 2, policy)
    for operation in ("add", "take head", "prepend", "add", "take head", "take head", "add"):
        pair.do(operation, 0)
        pair.check()


@given(puts=st.lists(st.booleans(), max_size=30))
def test_the_inbox_is_first_in_first_out(puts: list[bool]) -> None:
    links: Any = empty_table(Link, len(puts) + 1, next=-1, previous=-1, child=-1)
    queue: Queue = empty_table(Queue, 1, head=-1, tail=-1, inbox_head=-1, inbox_tail=-1)[0]
    model: list[int] = []
    for request, is_put in enumerate(puts):
        if is_put:
            request_queue.put_in_inbox(links, queue, request)
            model.append(request)
        elif model:
            assert request_queue.take_from_inbox(links, queue) == model.pop(0)
        assert queue.inbox_head == (model[0] if model else -1)
        assert queue.inbox_tail == (model[-1] if model else -1)


def test_a_long_queue_is_walked_without_getting_lost() -> None:
    """A heap of 500 with its inner requests removed at random: every survivor is met once."""
    rng = np.random.default_rng(5)
    pair = Pair([(int(p), int(a)) for p, a in rng.integers(0, 50, (500, 2))], PRIORITY)
    for choice in rng.integers(0, 1000, 500):
        pair.do("add", int(choice))
    for choice in rng.integers(0, 1000, 300):
        pair.do("remove", int(choice))
    pair.check()
    assert len(pair.model) == 200
