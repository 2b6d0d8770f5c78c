"""Laws that hold in any world: nothing is lost or made, time runs one way, a run can be repeated."""

import math
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from engine_strategies import in_four_ways, scenarios, stops_of
from engine_worlds import Asked, Scenario, Server, columns_of, play, slices
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cluster_sim.engine.invariants import idle_instances_have_no_work, violations
from cluster_sim.engine.kinds import Outcome, RouterPolicy
from cluster_sim.engine.rules import Rules
from cluster_sim.engine.state import World
from cluster_sim.world import new_world

MANY = settings(max_examples=80)  # each in four ways
SOME = settings(max_examples=80)


# ---- conservation ----


@MANY
@given(data=st.data(), scenario=scenarios())
def test_invariants_hold_whenever_the_run_is_stopped(data: st.DataObject, scenario: Scenario) -> None:
    stops_s = data.draw(stops_of(scenario))
    for variant in in_four_ways(scenario):
        rules = variant.rules()
        world = new_world(rules)
        for reached_s in slices(world, rules, stops_s):
            assert violations(world, rules) == []
            assert idle_instances_have_no_work(world, rules, reached_s) == []


@MANY
@given(scenario=scenarios())
def test_no_request_is_lost_and_all_memory_comes_back(scenario: Scenario) -> None:
    for variant in in_four_ways(scenario):
        assert_nothing_is_left(variant.rules())


def assert_nothing_is_left(rules: Rules) -> None:
    """Every request has its outcome, every queue is empty, every block is free."""
    world = play(rules)
    outcomes, refused = world.log["outcome"], rules.workload.requests["is_rejected"]
    assert np.all((outcomes == Outcome.rejected) == refused)
    assert np.all(np.isin(outcomes[~refused], (Outcome.completed, Outcome.timed_out)))
    assert np.all(world.memory["dispatched"] == world.lanes["finished"])
    assert world.memory["dispatched"].sum() == np.count_nonzero(~refused)
    assert np.all(world.kv.pools["num_free"] == rules.batching["num_gpu_blocks"] - 1)
    assert np.all(world.kv.pools["num_free_rows"] == world.running.shape[1])
    for table, column in ((world.lanes, "num_running"), (world.lanes, "in_flight"), (world.queues, "length")):
        assert not np.any(table[column])
    assert np.all(world.queues["inbox_head"] < 0)
    for column in ("in_flight_tokens", "stale_tokens", "blocks"):
        assert not np.any(world.progress[column])


@MANY
@given(scenario=scenarios())
def test_every_completed_request_got_the_tokens_it_asked_for(scenario: Scenario) -> None:
    """Emitted = min(max_tokens, max_model_len - prompt, stop token)."""
    for variant in in_four_ways(scenario):
        for asked, row in zip(scenario.requests, play(variant.rules()).log, strict=True):
            room = scenario.servers[max(0, row.instance)].max_model_len - asked.prompt_tokens
            whole = min(asked.max_tokens, room, asked.stop_at or math.inf)
            if row.outcome == Outcome.completed:
                assert row.emitted_tokens == whole
            else:
                assert row.emitted_tokens < whole


@MANY
@given(scenario=scenarios())
def test_the_tallies_agree_with_the_log(scenario: Scenario) -> None:
    world = play(scenario.rules())
    log, tally = world.log, world.tally
    assert tally.gap_bins.sum() == np.maximum(log["chunks"] - 1, 0).sum()
    assert np.isclose(tally.totals["gap_sum_s"].sum(), np.nansum(log["last_token_s"] - log["first_token_s"]))
    drafts, accepted = np.indices(tally.verified.shape[2:])
    assert (tally.verified.sum((0, 1)) * drafts).sum() == log["drafted_tokens"].sum()
    assert (tally.verified.sum((0, 1)) * accepted).sum() == log["accepted_tokens"].sum()
    assert np.all(tally.verified[:, :, accepted > drafts] == 0)
    assert np.all(log["accepted_tokens"] <= log["drafted_tokens"])
    assert np.all(tally.batch_size_steps.sum(1) == tally.totals["steps"])
    assert np.all(tally.draft_length_steps.sum(1) == tally.totals["steps"])


@MANY
@given(scenario=scenarios(may_abort=False))
def test_every_scheduled_token_has_a_cause(scenario: Scenario) -> None:
    """Synchronous, no speculation, nobody preempted: prompt + output - 1 - prefix-cache hit a request."""
    plain = (replace(server, is_async=False, **NO_SPECULATION) for server in scenario.servers)
    scenario = replace(scenario, servers=tuple(plain))
    world = play(scenario.rules())
    served = world.log["outcome"] == Outcome.completed
    assume(not np.any(world.log["preemptions"]))
    needed = [
        asked.prompt_tokens + row.emitted_tokens - 1 - row.cached_tokens
        for asked, row in zip(scenario.requests, world.log, strict=True)
    ]
    assert world.tally.totals["scheduled_tokens"].sum() == np.array(needed)[served].sum()
    assert np.all(world.log["chunks"] == world.log["emitted_tokens"])


NO_SPECULATION = {
    "num_speculative_tokens": 0,
    "lookahead_tokens": 0,
    "hash_lookahead_tokens": 0,
    "drops_last_hit_block": False,
    "schedule": (),
}


def test_the_worlds_drawn_reach_what_the_laws_are_about() -> None:
    """A law that holds because nothing ever happens proves nothing."""
    worlds: Counter[str] = Counter()

    @MANY
    @given(scenario=scenarios())
    def look(scenario: Scenario) -> None:
        for variant in in_four_ways(scenario):
            worlds.update({kind: int(is_there) for kind, is_there in kinds_of_events(variant).items()})

    look()
    assert min(worlds.values()) >= 3, worlds


def kinds_of_events(scenario: Scenario) -> dict[str, bool]:
    """What happens in a world."""
    world = play(scenario.rules())
    log = world.log
    servers = [scenario.servers[max(0, instance)] for instance in log["instance"]]
    preempted, given_up = log["preemptions"] > 0, log["outcome"] == Outcome.timed_out
    by_priority = np.array([server.is_priority for server in servers])
    kinds = {
        "full batches": world.tally.batch_size_steps[:, 3:] > 0,
        "preemption, fcfs": preempted & ~by_priority,
        "preemption, priority": preempted & by_priority,
        "preemption, asynchronous": preempted & [server.is_async for server in servers],
        "preemption and speculation": preempted & (log["drafted_tokens"] > 0),
        "hits": log["cached_tokens"] > 0,
        "drafts accepted": log["accepted_tokens"] > 0,
        "drafts rejected": log["accepted_tokens"] < log["drafted_tokens"],
        "given up midway": given_up & (log["chunks"] > 0),
        "several instances": log["instance"] > 1,
    }
    return {kind: bool(np.any(where)) for kind, where in kinds.items()}


# ---- time ----


@MANY
@given(scenario=scenarios())
def test_time_never_runs_back(scenario: Scenario) -> None:
    log = play(scenario.rules()).log
    for asked, row in zip(scenario.requests, log, strict=True):
        moments_s = (asked.arrival_s, row.scheduled_s, row.first_token_s, row.last_token_s)
        assert not any(later < earlier for earlier, later in pairwise(moments_s))
        if row.chunks > 0:
            step_s = scenario.servers[row.instance].step_s
            assert row.first_token_s >= row.scheduled_s + step_s
            assert row.last_token_s >= row.first_token_s + (row.chunks - 1) * step_s
            assert row.longest_gap_s <= row.last_token_s - row.first_token_s


@MANY
@given(scenario=scenarios())
def test_nothing_is_delivered_to_a_client_who_has_given_up(scenario: Scenario) -> None:
    log = play(scenario.rules()).log
    for asked, row in zip(scenario.requests, log, strict=True):
        assert not row.last_token_s >= asked.abort_s
        if row.outcome == Outcome.timed_out:
            assert math.isfinite(asked.abort_s)


@SOME
@given(scenario=scenarios(may_abort=False))
def test_the_gpu_never_waits_while_there_is_work(scenario: Scenario) -> None:
    """All requests at time 0: the last step ends after the sum of all steps and of exposed host time."""
    at_once = tuple(replace(asked, arrival_s=0.0) for asked in scenario.requests)
    world = play(replace(scenario, requests=at_once).rules())
    totals = world.tally.totals
    assert np.allclose(
        world.lanes["gpu_free_s"], totals["target_s"] + totals["draft_s"] + totals["exposed_host_s"]
    )


@SOME
@given(scenario=scenarios(may_abort=False))
def test_littles_law_holds_exactly(scenario: Scenario) -> None:
    """Integral of the requests in the system = sum of their times in it (Little 1961), counted in two ways.

    The left side is read from the queues at every arrival and departure, the right side from the log.
    """
    scenario = replace(scenario, signal_interval_s=0.0)
    rules = scenario.rules()
    log, arrival_s = play(rules).log, rules.workload.requests["arrival_s"]
    served = log["outcome"] == Outcome.completed
    sojourn_s = (log["last_token_s"] - arrival_s)[served].sum()
    moments_s = np.unique(np.concatenate([arrival_s[served], log["last_token_s"][served]]))
    world, integral, inside = new_world(rules), 0.0, []
    for _ in slices(world, rules, np.nextafter(moments_s, math.inf)):
        inside.append(in_system(world))
    for (start_s, end_s), number in zip(pairwise(moments_s), inside, strict=False):
        integral += number * (end_s - start_s)
    assert integral == pytest.approx(sojourn_s, rel=1e-12)
    assert inside[-2:] == [0, 0] or not served.any()


def in_system(world: World) -> int:
    """Requests in an inbox, waiting or running."""
    inbox = 0
    for queue in world.queues:
        request = queue.inbox_head
        while request >= 0:
            inbox += 1
            request = world.links[request].next
    return inbox + int(world.queues["length"].sum() + world.lanes["num_running"].sum())


# ---- repeatability ----


@MANY
@given(data=st.data(), scenario=scenarios())
def test_where_a_run_is_cut_changes_no_byte(data: st.DataObject, scenario: Scenario) -> None:
    stops_s = data.draw(stops_of(scenario))
    for variant in in_four_ways(scenario):
        rules = variant.rules()
        assert dict(columns_of(play(rules, stops_s))) == dict(columns_of(play(rules)))


@pytest.mark.parametrize("stops_s", [[], [4.0], [3.0, 4.0, 5.0]])
def test_at_one_moment_steps_end_requests_arrive_and_the_engine_schedules(stops_s: list[float]) -> None:
    """Steps of 1 s and an arrival at 4 s: the step that starts then has it, also where the run is cut."""
    scenario = Scenario((Asked(0.0, 8, 20), Asked(4.0, 8, 1)), (Server(step_s=1.0, token_s=0.0),))
    log = play(scenario.rules(), stops_s).log
    assert (log["scheduled_s"][1], log["first_token_s"][1]) == (4.0, 5.0)


@pytest.mark.parametrize("interval_s", [0.1, 0.3, 1 / 3, 1e-3])
def test_arrivals_on_the_edge_of_a_router_window_belong_to_one_side_of_a_cut(interval_s: float) -> None:
    """Edges are k * interval: floating-point sums of the interval would land a hair beside some of them."""
    edges_s = [k * interval_s for k in range(200)]
    requests = tuple(Asked(at_s, prompt_tokens=2 + k % 3) for k, at_s in enumerate(sorted(edges_s * 2)))
    servers = (Server(step_s=interval_s / 4), Server(step_s=interval_s))
    rules = Scenario(requests, servers, (), RouterPolicy.least_requests, interval_s).rules()
    assert dict(columns_of(play(rules, edges_s))) == dict(columns_of(play(rules)))


@SOME
@given(scenario=scenarios())
def test_the_same_seed_gives_the_same_bytes(scenario: Scenario) -> None:
    assert dict(columns_of(play(scenario.rules()))) == dict(columns_of(play(scenario.rules())))


@SOME
@given(scenario=scenarios())
def test_one_instance_needs_no_router(scenario: Scenario) -> None:
    """With a single instance every policy and every age of signals gives the same log."""
    alone = replace(scenario, servers=scenario.servers[:1])
    logs = {
        play(replace(alone, policy=policy, signal_interval_s=interval_s).rules()).log.tobytes()
        for policy in RouterPolicy
        for interval_s in (0.0, 0.5)
    }
    assert len(logs) == 1
