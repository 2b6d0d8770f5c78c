"""Router policies: what each looks at, and what all of them keep to.

False-alarm rates: chi-square tests pass by chance in 99.9 % of seeds; seeds are fixed.
"""

from dataclasses import replace

import numpy as np
import pytest
from engine_worlds import Asked, Scenario, Server, plain_workload, play, routing_of, rules_of
from hypothesis import given, settings
from hypothesis import strategies as st
from rejection_sampler import chi_square, chi_square_limit

from cluster_sim.engine import router, routers
from cluster_sim.engine.kinds import RouterPolicy
from cluster_sim.engine.rules import Rules
from cluster_sim.engine.tables import Longs
from cluster_sim.world import new_world

POLICIES = list(RouterPolicy)
BY_REQUESTS = [
    RouterPolicy.least_requests,
    RouterPolicy.vllm_dp,
    RouterPolicy.weighted,
    RouterPolicy.class_aware,
]
ALARM_999 = 3.09  # normal quantile of 0.999


def rules_for(
    policy: RouterPolicy, instances: int, requests: int = 1000, replicas: int = 1, **columns: object
) -> Rules:
    """Any traffic: session and class of a request are its number, unless given."""
    given_columns = {"session": np.arange(requests), "workload_class": 0, "prompt_tokens": 8, "max_tokens": 4}
    workload = plain_workload(requests, **{**given_columns, **columns})
    routing = routing_of(policy, instances, 1, 0.5)._replace(replicas=replicas)
    return rules_of(workload, (Server(),) * instances, None, routing)


def chosen(rules: Rules, scores: Longs, requests: int, hits: Longs | None = None) -> Longs:
    """The instance of each of the first requests, all at these scores."""
    known = np.zeros((1, len(scores)), np.int64) if hits is None else hits[np.newaxis]
    with np.errstate(over="ignore"):
        return np.array(
            [routers.choose(scores, rules, known, request, request) for request in range(requests)]
        )


def dispatched(rules: Rules, requests: int) -> Longs:
    """How many of the first requests, dispatched one after the other, each instance gets."""
    world = new_world(rules)
    with np.errstate(over="ignore"):
        for request in range(requests):
            router.dispatch(world, rules, request, request)
    counts: Longs = world.memory["dispatched"]
    return counts


# ---- what all of them keep to ----


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("policy", POLICIES)
class TestEveryPolicy:
    """The contract of a policy, in one router and in several side by side."""

    @pytest.mark.parametrize("instances", [1, 2, 3, 7, 64])
    def test_names_an_instance_there_is(self, policy: RouterPolicy, replicas: int, instances: int) -> None:
        scores = np.arange(instances)[::-1].copy()
        found = chosen(rules_for(policy, instances, replicas=replicas), scores, 200)
        assert found.min() >= 0
        assert found.max() < instances

    def test_names_the_same_instance_for_the_same_request_and_knowledge(
        self, policy: RouterPolicy, replicas: int
    ) -> None:
        rules, scores = rules_for(policy, 5, replicas=replicas), np.array([3, 1, 2, 1, 9])
        assert np.array_equal(chosen(rules, scores, 100), chosen(rules, scores, 100))

    def test_uses_all_instances_that_are_equal(self, policy: RouterPolicy, replicas: int) -> None:
        counts = dispatched(rules_for(policy, 4, replicas=replicas), 400)
        assert counts.sum() == 400
        assert counts.min() > 50

    def test_never_names_one_that_is_down_while_another_is_up(
        self, policy: RouterPolicy, replicas: int
    ) -> None:
        scores = np.array([routers.DOWN, 7, routers.DOWN, 9])
        assert set(chosen(rules_for(policy, 4, replicas=replicas), scores, 200).tolist()) <= {1, 3}

    @pytest.mark.parametrize("is_priority", [False, True])
    def test_serves_every_request_wherever_it_goes(
        self, policy: RouterPolicy, replicas: int, is_priority: bool
    ) -> None:
        requests = tuple(Asked(number * 0.125, 8, 6, priority=number % 3) for number in range(60))
        servers = (Server(is_priority=is_priority), Server(is_async=True), Server(step_s=0.25))
        log = play(Scenario(requests, servers, (), policy, 0.5, replicas=replicas).rules()).log
        assert log["emitted_tokens"].tolist() == [6] * 60
        assert set(log["instance"].tolist()) == {0, 1, 2}


# ---- each of them ----


def test_round_robin_takes_instances_in_turn() -> None:
    assert chosen(rules_for(RouterPolicy.round_robin, 3), np.zeros(3, np.int64), 7).tolist() == [
        0,
        1,
        2,
    ] * 2 + [0]


def test_random_is_uniform_and_looks_at_no_load() -> None:
    rules = rules_for(RouterPolicy.random, 5, 5000)
    found = chosen(rules, np.array([0, 9, 9, 9, 9]), 5000)
    counts = np.bincount(found, minlength=5)
    assert chi_square(counts, np.full(5, 1000.0)) < chi_square_limit(4, ALARM_999)
    assert np.array_equal(found, chosen(rules, np.zeros(5, np.int64), 5000))


@pytest.mark.parametrize("policy", BY_REQUESTS)
def test_a_burst_is_spread_evenly_between_two_signals(policy: RouterPolicy) -> None:
    """Own dispatches count at once: between two snapshots equals take turns."""
    assert dispatched(rules_for(policy, 4), 403).tolist() == [101, 101, 101, 100]


def test_weights_are_shares() -> None:
    rules = rules_for(RouterPolicy.weighted, 3)
    rules = rules._replace(routing=rules.routing._replace(weights=np.array([3.0, 1.0, 1.0])))
    assert dispatched(rules, 1000).tolist() == [600, 200, 200]


@given(scores=st.lists(st.integers(0, 5), min_size=1, max_size=9), request=st.integers(0, 99))
@settings(max_examples=100)
def test_the_lowest_score_wins_and_equals_take_turns(scores: list[int], request: int) -> None:
    """The first of the lowest, in a circle from the request's own number on."""
    known, count = np.array(scores, np.int64), len(scores)
    circle = [(request + step) % count for step in range(count)]
    expected = next(instance for instance in circle if scores[instance] == min(scores))
    rules = rules_for(RouterPolicy.least_requests, count)
    assert routers.choose(known, rules, known[np.newaxis], request, request) == expected


def test_power_of_two_takes_the_less_loaded_of_two_different_ones() -> None:
    """With scores 0 .. n-1 instance i wins draws whose other one lies above: 2 (n - 1 - i) / n (n - 1)."""
    instances, requests = 6, 6000
    found = chosen(rules_for(RouterPolicy.power_of_two, instances, requests), np.arange(instances), requests)
    counts = np.bincount(found, minlength=instances)
    expected = requests * 2.0 * (instances - 1 - np.arange(instances)) / (instances * (instances - 1))
    assert counts[-1] == 0
    assert chi_square(counts[:-1], expected[:-1]) < chi_square_limit(instances - 2, ALARM_999)


def test_least_kv_counts_the_prompts_that_it_has_sent_itself() -> None:
    rules = rules_for(RouterPolicy.least_kv, 2, prompt_tokens=np.where(np.arange(1000) == 0, 80, 8))
    world = new_world(rules)
    for request in range(11):
        router.dispatch(world, rules, request, request)
    assert world.memory["dispatched"].tolist() == [1, 10]


def test_a_session_stays_where_it_is_and_a_new_instance_takes_its_share_only() -> None:
    sessions = np.arange(2000) % 500
    few, more = (
        chosen(
            rules_for(RouterPolicy.session_hash, count, 2000, session=sessions),
            np.zeros(count, np.int64),
            2000,
        )
        for count in (7, 8)
    )
    for found in (few, more):
        assert all(len(set(found[sessions == session].tolist())) == 1 for session in range(0, 500, 7))
    moved = few != more
    assert set(more[moved].tolist()) == {7}
    assert moved.mean() == pytest.approx(1 / 8, abs=0.05)


def test_prefix_aware_trades_the_cached_prefix_against_kv_in_use() -> None:
    """Cost in tokens: weight * (prompt - hit) + in use."""
    rules = rules_for(RouterPolicy.prefix_aware, 2, prompt_tokens=100)
    hits = np.array([96, 0])
    assert chosen(rules, np.array([90, 0]), 4, hits).tolist() == [0] * 4
    assert chosen(rules, np.array([100, 0]), 4, hits).tolist() == [1] * 4
    heavy = rules._replace(routing=rules.routing._replace(overlap_weight=2.0))
    assert chosen(heavy, np.array([100, 0]), 4, hits).tolist() == [0] * 4


def test_prefix_aware_sends_a_conversation_where_its_blocks_are() -> None:
    one, other = (tuple(range(start, start + 8)) for start in (0, 100))
    requests = tuple(
        Asked(number * 4.0, 33, 4, content=(one if number % 2 else other)) for number in range(12)
    )
    servers = (Server(enable_prefix_caching=True),) * 2
    log = play(Scenario(requests, servers, (), RouterPolicy.prefix_aware, 0.5).rules()).log
    assert len(set(log["instance"][::2].tolist())) == 1
    assert (log["cached_tokens"][2:] == 32).all()


def test_class_aware_keeps_a_class_on_its_instances() -> None:
    classes = np.arange(600) % 2
    rules = rules_for(RouterPolicy.class_aware, 4, 600, workload_class=classes)
    routing = rules.routing._replace(class_start=np.array([0, 1, 4]), class_instances=np.array([2, 0, 1, 3]))
    found = chosen(rules._replace(routing=routing), np.array([5, 5, 50, 6]), 600)
    assert set(found[classes == 0].tolist()) == {2}
    assert set(found[classes == 1].tolist()) == {0, 1}


def test_signals_age_and_own_dispatches_do_not() -> None:
    """A request that ended since the snapshot still counts; one sent since then counts at once."""
    requests = (Asked(0.0, 8, 1), Asked(0.5, 8, 30), Asked(1.5, 8, 1))
    fast = Scenario(requests, (Server(token_s=0.0),) * 2, (), RouterPolicy.least_requests, 10.0)
    assert play(fast.rules()).log["instance"].tolist() == [0, 1, 0]
    fresh = replace(fast, signal_interval_s=0.0)
    assert play(fresh.rules()).log["instance"].tolist() == [0, 1, 0]


def test_replicas_look_at_their_own_dispatches_only() -> None:
    """Each of four replicas sends until it has made up for the difference it saw; one router does so once."""
    for replicas, first_instance in ((1, 25), (4, 40)):
        rules = rules_for(RouterPolicy.least_requests, 2, replicas=replicas)
        world = new_world(rules)
        world.scores[:] = [0, 10]
        for request in range(40):
            router.dispatch(world, rules, request, request)
        assert world.memory["dispatched"].tolist() == [first_instance, 40 - first_instance]


def test_replicas_see_one_another_s_dispatches_at_the_next_look() -> None:
    rules = rules_for(RouterPolicy.least_requests, 2, replicas=2)
    world = new_world(rules)
    world.scores[:] = [0, 10]
    for request in range(6):
        router.dispatch(world, rules, request, request)
    assert world.scores.tolist() == [[3, 10], [3, 10]]
    router.observe(world, rules)
    assert world.scores.tolist() == [[6, 0], [6, 0]]


def test_scans_of_replicas_start_apart() -> None:
    """Replica r of R on n instances starts at r n / R (vLLM: eng_start_index)."""
    found = chosen(rules_for(RouterPolicy.least_requests, 4, replicas=2), np.zeros(4, np.int64), 8)
    assert found.tolist() == [0, 2, 1, 3, 2, 0, 3, 1]
