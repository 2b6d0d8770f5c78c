"""Hosts in this process, behind what drive_hosts needs of them; and one that forgets everything."""

import pickle
from collections.abc import Iterator
from typing import Any

from cluster_sim.engine.rules import Rules
from cluster_sim.engine.tables import Ints
from cluster_sim.hosts import Answer, InstanceHost, order_for, packed, unpacked


class LocalHosts:
    """Carries out orders when its answers are asked for. What goes there and back is pickled on the way."""

    def __init__(self, rules: Rules, cores: list[range]) -> None:
        self.cores = cores
        self.calls = 0
        rules = unpacked(pickle.loads(pickle.dumps(packed(rules))))
        self._hosts = {here: InstanceHost(rules, here) for here in cores}
        self._orders: list[tuple[range, Any]] = []

    def advance(self, sent_to: Ints, first: int, last: int, until_s: float) -> None:
        for cores in self.cores:
            self._orders.append((cores, order_for(cores, sent_to, first, last, until_s)))

    def answers(self) -> Iterator[tuple[range, Answer]]:
        for cores, order in self._orders:
            self.calls += 1
            answer = self._hosts[cores].advance(pickle.loads(pickle.dumps(order)))
            assert answer is not None
            yield cores, pickle.loads(pickle.dumps(answer))
        self._orders = []


def hosts_of(rules: Rules, instances_per_host: tuple[int, ...]) -> LocalHosts:
    """Hosts of so many instances each."""
    ranks, cores, start = rules.routing.ranks, [], 0
    for instances in instances_per_host:
        cores.append(range(start, start + instances * ranks))
        start += instances * ranks
    assert start == rules.batching.shape[0]
    return LocalHosts(rules, cores)
