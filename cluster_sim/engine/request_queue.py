"""The waiting queue of an instance (vLLM: v1/core/sched/request_queue.py), fcfs or priority, and its inbox.

A queue is made of links between requests, so that every operation on the fcfs queue costs the same however
long it is. fcfs is a doubly linked list, head <-> .. <-> tail. priority is a pairing heap (Fredman,
Sedgewick, Sleator, Tarjan 1986): `child` is the first child, `next` the next sibling, `previous` the previous
sibling or, for a first child, the parent; the head is the smallest request.
"""

from cluster_sim.engine.client_state import Sent
from cluster_sim.engine.jit import rare, rule
from cluster_sim.engine.kinds import SchedulingPolicy
from cluster_sim.engine.state import Link, Queue
from cluster_sim.engine.tables import Table

PRIORITY = int(SchedulingPolicy.priority)


@rule
def comes_before(sent: Table[Sent], request: int, other: int) -> bool:
    """The order of vLLM's priority policy: priority, then arrival, then order of submission."""
    one, two = sent[request], sent[other]
    if one.priority != two.priority:
        return one.priority < two.priority
    if one.arrival_s != two.arrival_s:
        return one.arrival_s < two.arrival_s
    return request < other


@rule
def add(links: Table[Link], queue: Queue, sent: Table[Sent], policy: int, request: int) -> None:
    """A new request joins: at the end (fcfs) or at its place (priority)."""
    queue.length += 1
    if policy == PRIORITY:
        _push(links, queue, sent, request)
        return
    links[request].next = -1
    links[request].previous = queue.tail
    if queue.tail < 0:
        queue.head = request
    else:
        links[queue.tail].next = request
    queue.tail = request


@rare
def prepend(links: Table[Link], queue: Queue, sent: Table[Sent], policy: int, request: int) -> None:
    """A preempted request comes back: to the front (fcfs) or to its place (priority)."""
    queue.length += 1
    if policy == PRIORITY:
        _push(links, queue, sent, request)
        return
    links[request].next = queue.head
    links[request].previous = -1
    if queue.head < 0:
        queue.tail = request
    else:
        links[queue.head].previous = request
    queue.head = request


@rule
def remove(links: Table[Link], queue: Queue, sent: Table[Sent], policy: int, request: int) -> None:
    """Take `request` out of the waiting queue, wherever it stands."""
    queue.length -= 1
    if policy == PRIORITY:
        _cut(links, queue, sent, request)
        return
    before, behind = links[request].previous, links[request].next
    if before < 0:
        queue.head = behind
    else:
        links[before].next = behind
    if behind < 0:
        queue.tail = before
    else:
        links[behind].previous = before


@rare
def following(links: Table[Link], request: int) -> int:
    """The next request on a walk through the whole queue (fcfs: in order); -1: none."""
    if links[request].child >= 0:
        return links[request].child
    while links[request].next < 0:
        while links[request].previous >= 0 and links[links[request].previous].child != request:
            request = links[request].previous
        request = links[request].previous
        if request < 0:
            return -1
    return links[request].next


@rule
def put_in_inbox(links: Table[Link], queue: Queue, request: int) -> None:
    """The router hands `request` over; the engine core sees it when it next looks."""
    links[request].next = -1
    if queue.inbox_tail < 0:
        queue.inbox_head = request
    else:
        links[queue.inbox_tail].next = request
    queue.inbox_tail = request


@rule
def take_from_inbox(links: Table[Link], queue: Queue) -> int:
    """The request that was dispatched first; the inbox must not be empty."""
    request = queue.inbox_head
    queue.inbox_head = links[request].next
    if queue.inbox_head < 0:
        queue.inbox_tail = -1
    return request


@rare
def clear(links: Table[Link], queue: Queue, requests: list[int]) -> None:
    """Empty the queue and the inbox, of which `requests` come."""
    for request in requests:
        links[request].child = -1
    queue.head = -1
    queue.tail = -1
    queue.length = 0
    queue.inbox_head = -1
    queue.inbox_tail = -1


@rare
def _push(links: Table[Link], queue: Queue, sent: Table[Sent], request: int) -> None:
    links[request].child = -1
    links[request].next = -1
    links[request].previous = -1
    queue.head = request if queue.head < 0 else _meld(links, sent, queue.head, request)


@rare
def _meld(links: Table[Link], sent: Table[Sent], one: int, two: int) -> int:
    """Join two heaps: the larger root becomes the first child of the smaller, which is returned."""
    smaller, larger = (two, one) if comes_before(sent, two, one) else (one, two)
    elder = links[smaller].child
    links[larger].next = elder
    if elder >= 0:
        links[elder].previous = larger
    links[larger].previous = smaller
    links[smaller].child = larger
    links[smaller].next = -1
    links[smaller].previous = -1
    return smaller


@rare
def _merge_children(links: Table[Link], sent: Table[Sent], request: int) -> int:
    """The heap of all children of `request`: melded in pairs from the left, then from the right; -1: none."""
    pairs = -1  # linked through `next`, last pair first
    child = links[request].child
    while child >= 0:
        pair, following_child = child, links[child].next
        if following_child >= 0:
            sibling = following_child
            following_child = links[sibling].next
            pair = _meld(links, sent, child, sibling)
        links[pair].next = pairs
        pairs, child = pair, following_child
    heap = -1
    while pairs >= 0:
        rest = links[pairs].next
        if heap < 0:
            links[pairs].next = -1
            links[pairs].previous = -1
            heap = pairs
        else:
            heap = _meld(links, sent, heap, pairs)
        pairs = rest
    return heap


@rare
def _cut(links: Table[Link], queue: Queue, sent: Table[Sent], request: int) -> None:
    children = _merge_children(links, sent, request)
    if queue.head == request:
        queue.head = children
        return
    before, behind = links[request].previous, links[request].next
    if links[before].child == request:
        links[before].child = behind
    else:
        links[before].next = behind
    if behind >= 0:
        links[behind].previous = before
    if children >= 0:
        queue.head = _meld(links, sent, queue.head, children)
