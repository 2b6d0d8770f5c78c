"""Routing to instances of several ranks: the router picks the instance, vLLM's own balancer the rank."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from engine_worlds import Asked, Scenario, Server, play
from hypothesis import given
from hypothesis import strategies as st

from cluster_sim.engine import balancer, router
from cluster_sim.engine.kinds import RouterPolicy
from cluster_sim.engine.rules import Rules
from cluster_sim.engine.state import World
from cluster_sim.world import new_world

BLOCKS = 100  # usable on each rank: a block is a percent of its KV
COUNTS = st.lists(st.integers(0, 30), min_size=3, max_size=3)
PERCENT = st.lists(st.integers(0, 100), min_size=3, max_size=3)


def knowing(ranks: int = 3, instances: int = 1, requests: int = 12, **known: Any) -> tuple[World, Rules]:
    """A world of ranks in which the router knows so much."""
    servers = (Server(num_gpu_blocks=BLOCKS + 1),) * (ranks * instances)
    scenario = Scenario(tuple(Asked() for _ in range(requests)), servers, ranks=ranks, signal_interval_s=0.5)
    rules = scenario.rules()
    world = new_world(rules)
    for column, values in known.items():
        world.memory[column] = values
    return world, rules


def rank_of(**known: Any) -> int:
    """The rank of an only instance that the balancer chooses."""
    world, rules = knowing(ranks=len(known["in_flight"]), **known)
    return balancer.least_loaded_rank(world.memory, rules, 0)


def test_the_rank_with_the_fewest_requests_gets_the_next() -> None:
    assert rank_of(in_flight=[5, 3, 4]) == 1


@pytest.mark.parametrize(("kv_blocks", "chosen"), [(50, 0), (75, 1), (100, 1)])
def test_waiting_requests_count_more_where_kv_is_scarce(kv_blocks: int, chosen: int) -> None:
    """Score = in flight + 6 waiting (KV usage - 0.5): 10, 10 + 4 * 1.5, 10 + 4 * 3 against 11."""
    assert rank_of(in_flight=[10, 11], waiting=[4, 0], kv_blocks=[kv_blocks, 100]) == chosen


@given(in_flight=COUNTS, waiting=COUNTS, kv_percent=PERCENT)
def test_the_lowest_score_wins(in_flight: list[int], waiting: list[int], kv_percent: list[int]) -> None:
    """The score of ../shared/vllm-scheduler.md section 10, with one API server and a fresh snapshot."""
    scores = [
        number + queued * 6.0 * max(0.0, percent / 100 - 0.5)
        for number, queued, percent in zip(in_flight, waiting, kv_percent, strict=True)
    ]
    found = rank_of(in_flight=in_flight, waiting=waiting, kv_blocks=kv_percent)
    assert scores[found] == min(scores)


def test_equal_ranks_take_turns() -> None:
    """The scan starts one rank further after each choice, also when all have emptied in between."""
    for dispatched in range(7):
        assert rank_of(in_flight=[0, 0, 0], dispatched=[dispatched, 0, 0]) == dispatched % 3


def test_own_dispatches_count_at_once() -> None:
    """They are added to the snapshot, which may be 100 ms old: 5, 3 and 4 fill up to 6 each."""
    world, rules = knowing(in_flight=[5, 3, 4])
    for request in range(6):
        router.dispatch(world, rules, request, request)
    assert world.memory["dispatched"].tolist() == [1, 3, 2]


def test_own_dispatches_wait_where_kv_is_scarce() -> None:
    """They count as waiting: on a rank with all of its KV in use each weighs 1 + 6 (1 - 0.5) = 4."""
    world, rules = knowing(ranks=2, requests=16, kv_blocks=[100, 0])
    for request in range(15):
        router.dispatch(world, rules, request, request)
    assert world.memory["dispatched"].tolist() == [3, 12]


def test_each_instance_has_a_balancer_of_its_own() -> None:
    """Round robin over two instances: in each, its own turns and its own load."""
    world, rules = knowing(ranks=2, instances=2, in_flight=[0, 2, 1, 0])
    for request in range(6):
        router.dispatch(world, rules, request, request)
    assert world.memory["dispatched"].tolist() == [3, 0, 1, 2]
    assert world.memory["in_flight"].tolist() == [3, 2, 2, 2]


def test_ranks_need_signals_whatever_the_policy() -> None:
    _, rules = knowing()
    for policy in RouterPolicy:
        assert router.needs_signals(rules.routing._replace(policy=int(policy)))
    assert not router.needs_signals(rules.routing._replace(ranks=1))


def test_the_load_of_an_instance_is_that_of_all_its_ranks() -> None:
    """Three busy requests on the first instance's two ranks, two on the second's: the next goes there."""
    requests = (*(Asked(0.0, 8, 60) for _ in range(5)), Asked(8.0, 8, 1))
    scenario = Scenario(requests, (Server(),) * 4, (), RouterPolicy.least_requests, ranks=2)
    rows = play(scenario.rules()).log["instance"]
    assert np.bincount(rows[:5] // 2).tolist() == [3, 2]
    assert rows[5] // 2 == 1


def test_requests_at_one_moment_are_spread_evenly() -> None:
    """12 at once on 2 instances of 3 ranks: two each, though no snapshot shows the others."""
    scenario = Scenario(tuple(Asked() for _ in range(12)), (Server(),) * 6, ranks=3, signal_interval_s=0.5)
    for in_lockstep in (False, True):
        rows = play(replace(scenario, in_lockstep=in_lockstep).rules()).log["instance"]
        assert np.bincount(rows).tolist() == [2] * 6
        assert (rows // 3).tolist() == [0, 1] * 6


def test_a_snapshot_shows_who_is_still_busy() -> None:
    """Rank 0 has a long answer to give: with fresh signals the next three go to rank 1, one by one."""
    requests = (Asked(0.0, 8, 60), *(Asked(number * 5.0, 8, 1) for number in (1, 2, 3)))
    scenario = Scenario(requests, (Server(),) * 2, ranks=2)
    assert play(scenario.rules()).log["instance"].tolist() == [0, 1, 1, 1]


def test_weights_stay_shares_when_the_balancer_looks_at_the_ranks() -> None:
    """What each instance was sent is no snapshot: 3 to 1 over 40 requests and as many looks at idle ranks."""
    requests = tuple(Asked(float(number), 8, 1) for number in range(40))
    rules = Scenario(requests, (Server(),) * 4, (), RouterPolicy.weighted, ranks=2).rules()
    rules = rules._replace(routing=rules.routing._replace(weights=np.array([3.0, 1.0])))
    assert np.bincount(play(rules).log["instance"] // 2).tolist() == [30, 10]
