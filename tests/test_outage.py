"""An instance stops, drains or slows down: small worlds worked by hand. Steps take 1 s, unless said."""

import math
from dataclasses import replace

import numpy as np
import pytest
from engine_worlds import Asked, Scenario, Server, columns_of, play
from faulty_worlds import drain, play_through, slow, stop

from cluster_sim.engine import loop, outage, router
from cluster_sim.engine.kinds import Outcome, RouterPolicy
from cluster_sim.engine.state import World
from cluster_sim.faults import Plan, moments
from cluster_sim.world import new_world

STEADY = Server(step_s=1.0, token_s=0.0)
ONE_SEAT = replace(STEADY, max_num_seqs=1)
ALONE = Scenario((Asked(0.0, 8, 4),), (STEADY,))  # tokens at 1, 2, 3, 4 s
PAIR = replace(ALONE, servers=(STEADY, STEADY))


def story(world: World, request: int = 0) -> tuple[str, float, float, float, int, int]:
    """Of a request: outcome, admission, first and last token, retries, lost tokens."""
    row = world.log[request]
    times_s = (float(row.scheduled_s), float(row.first_token_s), float(row.last_token_s))
    return Outcome(row.outcome).name, *times_s, int(row.retries), int(row.lost_tokens)


# ---- one request ----


def test_a_request_alone_starts_from_the_beginning_when_its_instance_returns() -> None:
    world, (happened,) = play_through(ALONE, stop([0], 2.5, 10.0))
    assert story(world) == ("completed", 10.0, 11.0, 14.0, 1, 2)
    assert (happened.failed_requests, happened.lost_tokens) == (1, 2)


def test_a_step_that_ends_with_the_stop_is_delivered_and_one_that_starts_there_is_not() -> None:
    world, _ = play_through(ALONE, stop([0], 3.0, 10.0))
    assert story(world) == ("completed", 10.0, 11.0, 14.0, 1, 3)
    assert world.tally.totals["steps"].tolist() == [3 + 4]


def test_a_request_goes_on_at_once_on_another_instance() -> None:
    world, _ = play_through(PAIR, stop([0], 2.5, 10.0))
    assert story(world) == ("completed", 2.5, 3.5, 6.5, 1, 2)
    assert world.log["instance"].tolist() == [1]
    assert world.lanes["finished"].tolist() == [1, 1]


def test_a_request_is_lost_where_the_router_does_not_try_again() -> None:
    world, (happened,) = play_through(PAIR, stop([0], 2.5, 10.0), loses=True)
    assert story(world)[0] == "failed"
    assert world.log[["emitted_tokens", "chunks", "retries", "lost_tokens"]].tolist() == [(0, 0, 0, 2)]
    assert happened.failed_requests == 1


def test_a_request_waits_for_ever_and_fails_where_no_instance_returns() -> None:
    world, _ = play_through(ALONE, stop([0], 2.5))
    assert (story(world)[0], story(world)[4:]) == ("failed", (1, 2))


def test_a_request_may_fail_more_than_once() -> None:
    world, _ = play_through(ALONE, stop([0], 1.5, 2.0), stop([0], 4.0, 5.0))
    assert story(world) == ("completed", 5.0, 6.0, 9.0, 2, 1 + 2)


@pytest.mark.parametrize("is_async", [False, True])
def test_an_answer_that_is_complete_does_not_fail(is_async: bool) -> None:
    server = replace(STEADY, is_async=is_async)
    world, _ = play_through(replace(PAIR, servers=(server, server)), stop([0], 4.0))
    assert story(world) == ("completed", 0.0, 1.0, 4.0, 0, 0)


def test_steps_in_flight_are_lost_under_asynchronous_scheduling() -> None:
    """At 2.5 s the third step runs and the fourth is scheduled behind it."""
    server = replace(STEADY, is_async=True)
    world, _ = play_through(replace(PAIR, servers=(server, server)), stop([0], 2.5, 10.0))
    assert story(world) == ("completed", 2.5, 3.5, 6.5, 1, 2)
    assert not world.progress["in_flight_tokens"].any()


def test_a_request_that_ended_has_nothing_in_flight_after_the_stop() -> None:
    """The first one's stop token comes at 2 s, when the step that ends at 3 s already has it."""
    server = replace(STEADY, is_async=True)
    scenario = Scenario((Asked(0.0, 8, 9, stop_at=2), Asked(0.0, 8, 9)), (server,))
    rules = scenario.rules()
    world = new_world(rules)
    loop.run_until(world, rules, 0, 2.5)
    assert world.progress["in_flight_tokens"][0] == 1
    assert outage.stop(world, rules, 0, 2.5) == [1]
    assert not world.progress["in_flight_tokens"].any()


# ---- who is served when ----


def test_retries_join_in_the_order_of_arrival_behind_who_waits_and_before_who_arrives() -> None:
    """Each instance serves one request at a time, for 2 s; requests take turns by their number.

    instance 0:  0 from 0 to 2 s, 2 from 2 s on; 4 on its way, since a step runs.     Stops at 2.5 s.
    instance 1:  1 from 0 to 2 s, 3 from 2 s on; then 2 and 4, which failed; then 5, which arrives at 2.5 s.
    """
    arrivals_s = (0.0, 0.0, 0.5, 0.5, 2.25, 2.5)
    requests = tuple(Asked(at_s, 8, 2) for at_s in arrivals_s)
    world, (happened,) = play_through(Scenario(requests, (ONE_SEAT, ONE_SEAT)), stop([0], 2.5))
    assert world.log["scheduled_s"].tolist() == [0.0, 0.0, 4.0, 2.0, 6.0, 8.0]
    assert world.log["instance"].tolist() == [0, 1, 1, 1, 1, 1]
    assert world.log["retries"].tolist() == [0, 0, 1, 0, 1, 0]
    assert happened.failed_requests == 2


def test_who_arrives_while_no_instance_is_there_waits_at_the_router() -> None:
    """One seat, answers of one token: after the return at 10 s they are served in order of arrival."""
    requests = tuple(Asked(at_s, 8, 1) for at_s in (0.0, 3.0, 4.0, 10.0))
    scenario = Scenario(requests, (ONE_SEAT,))
    world, _ = play_through(scenario, stop([0], 2.0, 10.0))
    assert world.log["scheduled_s"].tolist() == [0.0, 10.0, 11.0, 12.0]
    assert world.log["retries"].tolist() == [0, 0, 0, 0]
    lost, _ = play_through(scenario, stop([0], 2.0, 10.0), loses=True)
    assert [Outcome(outcome).name for outcome in lost.log["outcome"]] == [
        "completed",
        "failed",
        "failed",
        "completed",
    ]


def test_a_client_who_gives_up_before_the_stop_or_at_the_router_is_not_sent_again() -> None:
    """The first gives up during the step that is lost, the second at the router; the third waits."""
    requests = (Asked(0.0, 8, 9, abort_s=2.25), Asked(0.0, 8, 9, abort_s=5.0), Asked(0.0, 8, 1))
    world, (happened,) = play_through(Scenario(requests, (ONE_SEAT,)), stop([0], 2.5, 10.0))
    assert [Outcome(outcome).name for outcome in world.log["outcome"]] == [
        "timed_out",
        "timed_out",
        "completed",
    ]
    assert world.log["emitted_tokens"].tolist() == [2, 0, 1]
    assert world.log["first_token_s"][2] == 11.0
    assert happened.failed_requests == 2


def test_a_client_who_gives_up_while_no_instance_returns_has_given_up() -> None:
    requests = (Asked(0.0, 8, 9, abort_s=50.0), Asked(0.0, 8, 9))
    world, _ = play_through(Scenario(requests, (STEADY,)), stop([0], 2.5))
    assert [Outcome(outcome).name for outcome in world.log["outcome"]] == ["timed_out", "failed"]


# ---- drain and slow ----


def test_an_instance_that_drains_finishes_what_it_has_and_takes_nothing_new() -> None:
    requests = tuple(Asked(float(at_s), 8, 4) for at_s in range(8))
    world, (happened,) = play_through(Scenario(requests, (STEADY, STEADY)), drain([0], 1.5, 5.5))
    assert world.log["instance"].tolist() == [0, 1, 1, 1, 1, 1, 0, 1]
    assert story(world) == ("completed", 0.0, 1.0, 4.0, 0, 0)
    assert happened.failed_requests == 0


def test_steps_that_a_slow_instance_launches_take_longer() -> None:
    """Host 0.25 s and GPU 1 s, three times as long for the second and the third of four steps."""
    scenario = replace(ALONE, servers=(replace(STEADY, host_s=0.25),))
    world, _ = play_through(scenario, slow([0], 3.0, 1.0, 6.0))
    assert story(world) == ("completed", 0.0, 1.25, 1.25 + 2 * 3.75 + 1.25, 0, 0)
    assert world.tally.totals["target_s"].tolist() == [1.0 + 3.0 + 3.0 + 1.0]


def test_the_drafter_of_a_slow_instance_takes_longer_too() -> None:
    server = replace(STEADY, num_speculative_tokens=1, lookahead_tokens=1, draft_s=0.5)
    scenario = Scenario((Asked(0.0, 8, 2),), (server,), (0.0,))
    assert play(scenario.rules()).log["last_token_s"].tolist() == [3.0]
    world, _ = play_through(scenario, slow([0], 2.0))
    assert world.log["last_token_s"].tolist() == [6.0]


# ---- what an instance loses and keeps ----


def test_an_instance_returns_with_an_empty_prefix_cache() -> None:
    """The second request hits the first one's prompt, the third comes after a stop, the fourth hits again."""
    server = replace(STEADY, enable_prefix_caching=True)
    requests = tuple(Asked(at_s, 9, 1, content=(1, 2)) for at_s in (0.0, 2.0, 20.0, 22.0))
    world, _ = play_through(Scenario(requests, (server,)), stop([0], 10.0, 15.0))
    assert world.log["cached_tokens"].tolist() == [0, 8, 0, 8]


def test_a_stopped_instance_is_as_new() -> None:
    """Whatever it did before: all memory, queues and clocks but for the time and the count of who left."""
    server = replace(STEADY, enable_prefix_caching=True, is_async=True, is_priority=True, num_gpu_blocks=12)
    requests = tuple(Asked(0.25 * n, 9, 9, content=(1, n % 3), priority=n % 2) for n in range(9))
    rules = Scenario(requests, (server,)).rules()
    world, fresh = new_world(rules), new_world(rules)
    loop.run_until(world, rules, 0, 6.5)
    assert world.log["preemptions"].any()
    failed = outage.stop(world, rules, 0, 6.5)
    assert failed == sorted(failed)
    as_new = dict(columns_of(fresh.kv))
    for name, column in columns_of(world.kv):
        assert column == as_new[name] or name == "block_table", name  # rows that are free keep old contents
    assert world.queues.tobytes() == fresh.queues.tobytes()  # type: ignore[attr-defined]
    lane = world.lanes[0]
    assert (lane.num_running, lane.in_flight, lane.clock_s, lane.gpu_free_s) == (0, 0, 6.5, 6.5)
    assert world.memory["dispatched"][0] == lane.finished
    unfinished = world.log["outcome"] == Outcome.pending
    assert failed == np.flatnonzero(unfinished).tolist()


def test_a_retry_has_the_same_luck() -> None:
    """As many drafts of it are accepted as in a run without the stop, one step after the other."""
    server = replace(STEADY, num_speculative_tokens=3, lookahead_tokens=3)
    scenario = Scenario((Asked(0.0, 8, 40),), (server, server), (0.7, 0.7, 0.7))
    plain = play(scenario.rules()).log
    world, _ = play_through(scenario, stop([0], 5.5))
    again = world.log
    assert world.log["retries"].tolist() == [1]
    assert again["chunks"] == plain["chunks"]
    assert again["last_token_s"] - again["scheduled_s"] == plain["last_token_s"] - plain["scheduled_s"]
    before = again["drafted_tokens"] - plain["drafted_tokens"]
    assert before == 3 * 4  # four verifications were lost


def test_ranks_of_an_instance_stop_together() -> None:
    requests = tuple(Asked(0.0, 8, 4) for _ in range(4))
    scenario = Scenario(requests, (STEADY,) * 4, (), RouterPolicy.least_requests, ranks=2, in_lockstep=True)
    world, (happened,) = play_through(scenario, stop([0], 2.5, 3.0))
    assert happened.failed_requests == 2
    assert world.log["retries"].sum() == 2
    assert set((world.log["instance"] // 2).tolist()) == {1}


# ---- the router ----


@pytest.mark.parametrize("policy", list(RouterPolicy))
def test_no_policy_sends_anything_to_an_instance_that_is_down(policy: RouterPolicy) -> None:
    """Requests that arrive during the stop are served elsewhere, and some later ones here again."""
    requests = tuple(Asked(0.25 * n, 8, 8, workload_class=n % 3) for n in range(200))
    scenario = Scenario(requests, (replace(STEADY, max_num_seqs=32),) * 3, (), policy, 0.5)
    world, (happened,) = play_through(scenario, stop([1], 10.0, 20.0))
    arrival_s, instance = scenario.rules().workload.requests["arrival_s"], world.log["instance"]
    assert np.all(world.log["outcome"] == Outcome.completed)
    assert 1 not in instance[(arrival_s >= 10.0) & (arrival_s < 20.0)]
    assert 1 in instance[arrival_s >= 20.0]
    assert happened.failed_requests == world.log["retries"].sum() > 0


def test_the_router_looks_at_the_instances_before_it_sends_again() -> None:
    """By its snapshot of 0 s both others have a request; instance 2 has finished its own."""
    requests = (Asked(0.0, 8, 9), Asked(0.0, 8, 9), Asked(0.0, 8, 1))
    scenario = Scenario(requests, (STEADY,) * 3, (), RouterPolicy.least_requests, 10.0)
    world, _ = play_through(scenario, stop([0], 2.5))
    assert world.log["instance"].tolist() == [2, 1, 2]


def test_requests_of_a_priority_queue_wait_in_an_fcfs_queue_and_fail_there_once_more() -> None:
    requests = tuple(Asked(0.0, 8, 9) for _ in range(8))
    scenario = Scenario(requests, (replace(ONE_SEAT, is_priority=True), ONE_SEAT))
    world, happened = play_through(scenario, stop([0], 0.5, 3.0), stop([1], 1.5))
    assert [event.failed_requests for event in happened] == [4, 8]
    assert world.log["retries"].tolist() == [2, 1] * 4
    assert np.all(world.log["outcome"] == Outcome.completed)


def test_a_weighted_instance_does_not_make_up_for_what_it_missed() -> None:
    requests = tuple(Asked(0.25 * n, 8, 1) for n in range(120))
    scenario = Scenario(requests, (replace(STEADY, max_num_seqs=32),) * 2, (), RouterPolicy.weighted)
    world, _ = play_through(scenario, drain([0], 10.0, 20.0))
    assert world.log["instance"][80:].tolist().count(0) == 20


def test_a_class_whose_instances_are_down_waits_for_them() -> None:
    requests = tuple(Asked(float(n), 8, 1, workload_class=n % 2) for n in range(8))
    scenario = Scenario(requests, (STEADY, STEADY), (), RouterPolicy.class_aware)
    rules = scenario.rules()
    routing = rules.routing._replace(class_start=np.array([0, 1, 2]), class_instances=np.array([0, 1]))
    rules = rules._replace(routing=routing)
    world = new_world(rules)
    router.take_out(world.scores, 1)
    loop.run_until(world, rules, 0, math.inf)
    assert outage.held(world) == [1, 3, 5, 7]
    router.take_in(world, rules, 1)
    outage.send_held(world, rules, 20.0)
    loop.run_until(world, rules, len(requests), math.inf)
    assert world.log["scheduled_s"].tolist() == [0.0, 20.0, 2.0, 20.0, 4.0, 20.0, 6.0, 20.0]
    assert world.log["instance"].tolist() == [0, 1] * 4


def test_at_one_moment_faults_end_before_others_begin() -> None:
    """Instance 1 is back when instance 0 stops: the request goes there and waits for nobody."""
    faults = (stop([0], 2.5), stop([1], 1.0, 2.5))
    assert [[change.begins for change in changes] for _, changes in moments(Plan(faults))] == [
        [True],
        [False, True],
    ]
    world, _ = play_through(PAIR, *faults)
    assert story(world) == ("completed", 2.5, 3.5, 6.5, 1, 2)
