"""Clients that wait for answers: laws of a closed loop and of conversations in small random worlds.

The strongest oracle is the open loop: a run whose arrivals are those that clients made is the same run.
"""

import heapq
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
from engine_strategies import in_four_ways
from engine_worlds import Asked, Scenario, Server, columns_of, play
from hypothesis import given, settings
from hypothesis import strategies as st
from waiting_worlds import Waiting, ends_s, in_order, limited, waiting

from cluster_sim.engine.kinds import Outcome, RouterPolicy
from cluster_sim.engine.rules import Rules
from cluster_sim.engine.state import World

MANY = settings(max_examples=30)  # each in four ways
SOME = settings(max_examples=20)
LOOK = settings(max_examples=250)
MAY_DIFFER = {  # the tables of clients, and what the router saw when nothing arrived
    *("clients.due_s", "clients.next", "soonest", "source.untaken", "source.window_end_s", "sent.client"),
    *("memory.in_flight", "memory.waiting", "memory.kv_blocks", "scores"),
}
BY_NUMBER = (RouterPolicy.random, RouterPolicy.power_of_two)  # draws of a request's own stream


def variants(drawn: Waiting) -> list[Waiting]:
    return [replace(drawn, scenario=scenario) for scenario in in_four_ways(drawn.scenario)]


def open_loop(rules: Rules, world: World, order: Any) -> Rules:
    """The same requests, numbered in `order`, with the arrivals that `world` gave them."""
    requests: Any = rules.workload.requests.copy()
    for name in ("arrival_s", "abort_s"):
        requests[name] = world.sent[name]
    fates: Any = rules.luck.fates
    workload = rules.workload._replace(requests=requests[order], clients=0)
    return rules._replace(workload=workload, luck=rules.luck._replace(fates=fates[order]))


# ---- the closed loop ----


@MANY
@given(drawn=waiting())
def test_a_replay_of_the_arrivals_that_clients_made_is_the_same_run(drawn: Waiting) -> None:
    """Byte for byte: clients only set arrivals, and no instance runs ahead of an arrival."""
    for variant in variants(replace(drawn, close_s=np.inf)):
        rules = variant.rules()
        world = play(rules)
        order = in_order(world)
        assert order.tolist() == list(range(len(order)))
        again = play(open_loop(rules, world, order))
        for (name, mine), (_, theirs) in zip(columns_of(world), columns_of(again), strict=True):
            assert mine == theirs or name in MAY_DIFFER, name


@MANY
@given(drawn=waiting())
def test_a_client_sends_exactly_when_it_has_thought(drawn: Waiting) -> None:
    for variant in variants(drawn):
        world = play(variant.rules())
        assert_clients_wait(world, variant, [0.0] * variant.clients)


def assert_clients_wait(world: World, drawn: Waiting, starts_s: Any) -> None:
    """Each client's first request at its start; each later one its think time after the one before."""
    ended_s, order = ends_s(world), in_order(world)
    for client, start_s in enumerate(starts_s):
        mine = order[world.sent["client"][order] == client]
        expected = np.concatenate(([start_s], ended_s[mine] + np.array(drawn.think_s)[mine]))
        assert world.sent["arrival_s"][mine].tolist() == expected[: len(mine)].tolist()


@MANY
@given(drawn=waiting())
def test_never_more_requests_are_in_flight_than_there_are_clients(drawn: Waiting) -> None:
    for variant in variants(drawn):
        world = play(variant.rules())
        ended_s, arrival_s = ends_s(world), world.sent["arrival_s"]
        for at_s in arrival_s[np.isfinite(arrival_s)]:
            assert np.count_nonzero((arrival_s <= at_s) & (ended_s > at_s)) <= variant.clients


@MANY
@given(drawn=waiting())
def test_every_request_is_sent_once_and_ends(drawn: Waiting) -> None:
    """Unless the loop closes: then none is sent from that moment on, and none that was due before is left."""
    for variant in variants(drawn):
        world = play(variant.rules())
        is_sent = np.isfinite(world.sent["arrival_s"])
        refused = np.array([asked.is_rejected for asked in variant.scenario.requests])
        assert np.all((world.log["outcome"] == Outcome.rejected) == refused)
        ended = np.isin(world.log["outcome"], (Outcome.completed, Outcome.timed_out))
        assert np.array_equal(ended | (refused & is_sent), is_sent)
        assert np.all(world.sent["arrival_s"][is_sent] < variant.close_s)
        assert np.all(np.diff(world.sent["arrival_s"][is_sent]) >= 0.0)
        assert is_sent.all() or np.isfinite(variant.close_s)
        assert np.all(world.memory["dispatched"] == world.lanes["finished"])


@MANY
@given(drawn=limited())
def test_under_a_limit_requests_are_sent_when_due_or_when_a_place_is_free(drawn: Waiting) -> None:
    """First come, first served: a queue before so many places, each free again when its request ends."""
    for variant in variants(drawn):
        rules = variant.rules()
        world = play(rules)
        free_s, ended_s = [0.0] * variant.clients, ends_s(world)
        for request, due_s in enumerate(rules.workload.requests["arrival_s"].tolist()):
            assert world.sent["arrival_s"][request] == max(due_s, heapq.heappop(free_s))
            heapq.heappush(free_s, ended_s[request])


@MANY
@given(drawn=limited())
def test_a_limit_that_nobody_reaches_is_none(drawn: Waiting) -> None:
    """Byte for byte, but for who sent what."""
    for variant in variants(replace(drawn, clients=len(drawn.turns))):
        rules = variant.rules()
        world = play(rules)
        requests: Any = rules.workload.requests.copy()
        requests["abort_s"] = requests["arrival_s"] + variant.timeout_s
        without = play(rules._replace(workload=rules.workload._replace(requests=requests, clients=0)))
        for (name, mine), (_, theirs) in zip(columns_of(world), columns_of(without), strict=True):
            assert mine == theirs or name in MAY_DIFFER, name


@SOME
@given(data=st.data(), drawn=st.one_of(waiting(talks=True), limited()))
def test_stopping_a_run_anywhere_changes_nothing(data: st.DataObject, drawn: Waiting) -> None:
    stops_s = sorted(data.draw(st.lists(st.floats(0.0, 30.0), max_size=6)))
    for variant in variants(drawn):
        assert list(columns_of(play(variant.rules()))) == list(columns_of(play(variant.rules(), stops_s)))


@SOME
@given(drawn=waiting())
def test_one_client_has_the_server_to_itself(drawn: Waiting) -> None:
    """Whole answers take as long as in an empty world, one request after the other."""
    plain = {"num_speculative_tokens": 0, "lookahead_tokens": 0, "schedule": (), "hash_lookahead_tokens": 0}
    server = replace(
        drawn.scenario.servers[0],
        is_async=False,
        enable_prefix_caching=False,
        drops_last_hit_block=False,
        prefill_schedule_interval=1,
        **plain,
    )
    scenario = replace(drawn.scenario, servers=(server,))
    world = play(replace(drawn, scenario=scenario, clients=1, timeout_s=np.inf, close_s=np.inf).rules())
    for number, asked in enumerate(scenario.requests):
        alone = play(replace(scenario, requests=(replace(asked, arrival_s=0.0),)).rules())
        took_s = world.log["last_token_s"][number] - world.sent["arrival_s"][number]
        assert np.array_equal(took_s, alone.log["last_token_s"][0], equal_nan=True)


def test_a_client_that_gives_up_goes_on_at_that_moment() -> None:
    """Not when the engine notices, at the end of the step: 0.75 s, think 0.25 s, in a step of 1 s."""
    scenario = Scenario((Asked(max_tokens=9),) * 2, (Server(step_s=1.0, token_s=0.0),))
    world = play(Waiting(scenario, 1, (0.25, 0.0), (1, 1), 0.75).rules())
    assert world.sent["arrival_s"].tolist() == [0.0, 1.0]
    assert world.log["outcome"].tolist() == [Outcome.timed_out] * 2


def test_a_looser_loop_takes_requests_in_their_order() -> None:
    """Two clients, steps of 1 s; request 0 takes three of them, the others one each."""
    asked = [Asked(max_tokens=tokens) for tokens in (3, 1, 1, 1)]
    scenario = Scenario(tuple(asked), (Server(step_s=1.0, token_s=0.0),))
    world = play(Waiting(scenario, 2, (0.0,) * 4, (1,) * 4, np.inf).rules())
    assert world.sent["arrival_s"].tolist() == [0.0, 0.0, 1.0, 2.0]
    assert world.sent["client"].tolist() == [0, 1, 1, 1]


# ---- conversations ----


@MANY
@given(drawn=waiting(talks=True, is_closed=False))
def test_a_turn_follows_the_answer_before_it(drawn: Waiting) -> None:
    for variant in variants(drawn):
        rules = variant.rules()
        world, first = play(rules), np.cumsum(variant.turns) - variant.turns
        assert_clients_wait(world, variant, rules.workload.requests["arrival_s"][first])
        assert_conversations_end_with_a_failure(world, variant)


@MANY
@given(drawn=waiting(talks=True))
def test_clients_of_a_closed_loop_take_conversations_in_their_order(drawn: Waiting) -> None:
    for variant in variants(drawn):
        world, first = play(variant.rules()), np.cumsum(variant.turns) - variant.turns
        assert_clients_wait(world, variant, [0.0] * variant.clients)
        assert_conversations_end_with_a_failure(world, variant)
        starts_s = world.sent["arrival_s"][first]
        assert np.all(np.diff(starts_s[np.isfinite(starts_s)]) >= 0.0)


def assert_conversations_end_with_a_failure(world: World, drawn: Waiting) -> None:
    """A turn is sent if and only if all before it were answered, by the client of its conversation."""
    is_sent, answered = np.isfinite(world.sent["arrival_s"]), world.log["outcome"] == Outcome.completed
    session = np.repeat(np.arange(len(drawn.turns)), drawn.turns)
    follows = np.diff(session, prepend=-1) == 0
    before = np.roll(answered, 1)
    assert not np.any(is_sent & follows & ~before)
    if np.isinf(drawn.close_s):
        assert np.all(is_sent[follows] == before[follows])
        assert np.all(is_sent[~follows])
    same = is_sent & follows
    assert np.all(world.sent["client"][same] == np.roll(world.sent["client"], 1)[same])


@SOME
@given(drawn=waiting(talks=True), is_closed=st.booleans())
def test_conversations_replayed_with_their_arrivals_are_the_same_run(drawn: Waiting, is_closed: bool) -> None:
    """Renumbered in order of arrival; where nothing is drawn from the stream of a request's number."""
    policy = drawn.scenario.policy
    certain = tuple(float(round(chance)) for chance in drawn.scenario.conditional)
    scenario = replace(
        drawn.scenario,
        conditional=certain,
        policy=RouterPolicy.least_requests if policy in BY_NUMBER else policy,
    )
    for variant in variants(replace(drawn, scenario=scenario, clients=drawn.clients if is_closed else 0)):
        rules = variant.rules()
        world = play(rules)
        order = in_order(world)
        again = play(open_loop(rules, world, order))
        for name in world.log.dtype.names:
            assert world.log[name][order].tobytes() == again.log[name].tobytes(), name
        assert np.array_equal(world.sent_to[order], again.sent_to)
        assert np.array_equal(world.tally.totals, again.tally.totals)


# ---- that the laws are about something ----


def test_the_worlds_drawn_reach_what_the_laws_are_about() -> None:
    seen: Counter[str] = Counter()

    @LOOK
    @given(drawn=waiting(talks=True))
    def look(drawn: Waiting) -> None:
        world = play(drawn.rules())
        arrival_s, outcome = world.sent["arrival_s"], world.log["outcome"]
        is_sent = np.isfinite(arrival_s)
        seen["given up, and then another request"] += bool(np.any(outcome[:-1] == Outcome.timed_out))
        later_s = np.sort(arrival_s[is_sent & (arrival_s > 0.0)])
        seen["arrivals at one moment, after the start"] += bool(np.any(np.diff(later_s) == 0.0))
        seen["turns that are never sent"] += bool(not is_sent.all() and np.isinf(drawn.close_s))
        seen["a loop that ends early"] += bool(not is_sent.all() and np.isfinite(drawn.close_s))
        seen["a request queued behind another"] += bool(np.any(world.log["scheduled_s"] > arrival_s))
        seen["several instances"] += len(world.lanes) > 1
        seen["preemptions"] += bool(np.any(world.log["preemptions"]))

    look()
    assert min(seen.values()) >= 3, seen
