"""Clients that wait for an answer before they send more: who sends what, and when.

A client has one request under way. It ends with the delivery of its last token or, before that, when the
client gives up; a request that is refused ends as it arrives. From then on the client thinks for think_s of
this request. Next it sends the following turn of the same conversation (one session, numbered in a row);
where there is none, or this turn was not answered, the first request that nobody has taken. So `vllm bench
serve --max-concurrency` takes prompts in their order, and vLLM's benchmarks/multi_turn drops a conversation
of which a turn failed. Clients that are due at the same time send in the order of their numbers. Where
requests have arrivals of their own, a client that is free takes the next one, and sends it when it is due, or
at once.

            soonest[1]             the client that is due first; a node holds the sooner of its two children
         [2]          [3]
       [4] [5]      [6] [7]        client c of C is leaf C + c

Conserved: every client is due, or waits for an answer, or has nothing left to send.
"""

import math

from cluster_sim.engine.client_state import Client
from cluster_sim.engine.jit import rare, rule
from cluster_sim.engine.rules import Rules
from cluster_sim.engine.state import World
from cluster_sim.engine.tables import Table


@rule
def are_waiting(rules: Rules) -> bool:
    """Whether requests are sent by clients that wait; otherwise all arrivals are known."""
    return rules.workload.clients > 0


@rule
def first_due_s(world: World) -> float:
    """When the next request is sent, unless an answer comes before; inf: never."""
    return world.clients[world.soonest[1]].due_s


@rare
def send(world: World, rules: Rules) -> int:
    """The client that is due first sends its request, which is returned; -1: it has none, or none yet."""
    number = world.soonest[1]
    client = world.clients[number]
    request = client.next if client.next >= 0 else take(world, rules)
    if request < 0:
        client.due_s = math.inf
        climb(world, number)
        return -1
    own_s = rules.workload.requests[request].arrival_s
    if client.due_s < own_s < math.inf:
        client.next = request
        client.due_s = own_s
        climb(world, number)
        return -1
    sent = world.sent[request]
    sent.arrival_s = client.due_s
    sent.abort_s = client.due_s + rules.workload.timeout_s
    sent.client = number
    client.next = -1
    is_refused = rules.workload.requests[request].is_rejected
    think(world, rules, request, sent.arrival_s if is_refused else sent.abort_s)
    return request


@rare
def answered(world: World, rules: Rules, request: int, now_s: float) -> None:
    """The client has its whole answer."""
    if is_followed(rules, request):
        world.clients[world.sent[request].client].next = request + 1
    think(world, rules, request, now_s)


@rare
def think(world: World, rules: Rules, request: int, end_s: float) -> None:
    """Note when the client of `request`, which ends at `end_s`, sends its next one."""
    number = world.sent[request].client
    client, requests = world.clients[number], rules.workload.requests
    client.due_s = end_s + requests[request].think_s
    has_none = client.next < 0 and world.source[0].untaken == requests.shape[0]
    if has_none or client.due_s >= rules.workload.close_s:
        client.due_s = math.inf
    climb(world, number)


@rule
def is_followed(rules: Rules, request: int) -> bool:
    """Whether the next request is the next turn of the same conversation."""
    requests = rules.workload.requests
    return request + 1 < requests.shape[0] and requests[request + 1].session == requests[request].session


@rule
def take(world: World, rules: Rules) -> int:
    """Take the first conversation that nobody has taken; its first request, or -1: none is left."""
    source = world.source[0]
    request = source.untaken
    if request == rules.workload.requests.shape[0]:
        return -1
    while is_followed(rules, source.untaken):
        source.untaken += 1
    source.untaken += 1
    return request


@rule
def climb(world: World, number: int) -> None:
    """Let the tree know that a client is due at another time."""
    soonest = world.soonest
    node = (number + world.clients.shape[0]) // 2
    while node > 0:
        soonest[node] = sooner(world.clients, soonest[2 * node], soonest[2 * node + 1])
        node //= 2


@rule
def sooner(clients: Table[Client], one: int, other: int) -> int:
    """The client that is due first; of equals the smaller number."""
    one_s, other_s = clients[one].due_s, clients[other].due_s
    is_one = one_s < other_s or (one_s == other_s and one < other)
    return one if is_one else other
