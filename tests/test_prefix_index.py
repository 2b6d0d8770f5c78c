"""The router's index of prefix caches, against sets; invariants.py compares it with the caches of worlds."""

import numpy as np
import pytest
from engine_worlds import Asked, Scenario, Server, play
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_sim.content import numbered
from cluster_sim.engine import outage, prefix_index
from cluster_sim.engine.invariants import prefix_index_is_exact
from cluster_sim.engine.kinds import RouterPolicy
from cluster_sim.world import new_world

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")  # hashes wrap around

KEYS = 5


def leading(keys: list[int], held: set[int]) -> int:
    """How many of the first keys are held."""
    return next((place for place, key in enumerate(keys) if key not in held), len(keys))


@settings(max_examples=200)
@given(st.data())
def test_a_look_finds_what_each_instance_holds_from_the_first_key_on(data: st.DataObject) -> None:
    """Of an instance with several ranks, the rank that holds most."""
    ranks, instances = (
        data.draw(st.sampled_from([1, 2, 3])),
        data.draw(st.sampled_from([1, 2, 62, 63, 64, 130])),
    )
    cores = ranks * instances
    words = prefix_index.words_for(cores)
    holders = np.zeros((KEYS, words), np.int64)
    held: list[set[int]] = [set() for _ in range(cores)]
    changes = st.tuples(st.booleans(), st.integers(0, KEYS - 1), st.integers(0, cores - 1))
    for is_added, key, core in data.draw(st.lists(changes, max_size=60)):
        (prefix_index.add if is_added else prefix_index.remove)(holders, key, core)
        (held[core].add if is_added else held[core].discard)(key)
    keys = data.draw(st.lists(st.integers(0, KEYS - 1), max_size=8, unique=True))
    found = np.full(instances, -7)
    prefix_index.look(holders, np.array(keys, np.int64), ranks, found)
    by_core = [leading(keys, of_core) for of_core in held]
    assert found.tolist() == [max(by_core[at : at + ranks]) for at in range(0, cores, ranks)]


def test_private_content_is_in_no_index() -> None:
    holders = np.zeros((KEYS, 1), np.int64)
    prefix_index.add(holders, -3, 0)
    assert not holders.any()


def test_contents_are_numbered_from_0_and_stay_equal_where_they_were() -> None:
    assert numbered(np.array([900, -4, 900, 7])).tolist() == [2, 0, 2, 1]


def sharing(policy: RouterPolicy) -> Scenario:
    """Three prompts of the same content on two instances whose memory holds it."""
    requests = tuple(Asked(4.0 * number, 33, 4, content=tuple(range(8))) for number in range(3))
    return Scenario(requests, (Server(enable_prefix_caching=True),) * 2, (), policy, 0.5)


def test_only_prefix_aware_keeps_an_index() -> None:
    assert new_world(sharing(RouterPolicy.least_requests).rules()).kv.holders.shape[0] == 0
    assert new_world(sharing(RouterPolicy.prefix_aware).rules()).kv.holders.shape[0] == 8


def test_an_instance_that_stopped_is_in_no_index() -> None:
    rules = sharing(RouterPolicy.prefix_aware).rules()
    world = play(rules)
    assert world.kv.holders.any()
    for instance in range(2):
        outage.stop(world, rules, instance, 100.0)
        assert prefix_index_is_exact(world, instance) == []
    assert not world.kv.holders.any()


def test_the_invariant_sees_an_index_that_is_wrong() -> None:
    world = play(sharing(RouterPolicy.prefix_aware).rules())
    world.kv.holders[3] = 0
    assert any(
        "the router's index names" in found
        for core in range(2)
        for found in prefix_index_is_exact(world, core)
    )
