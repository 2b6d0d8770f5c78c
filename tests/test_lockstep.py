"""Ranks of an instance: in lockstep they share one clock and their experts, without it they share nothing."""

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from engine_strategies import groups, in_four_ways, stops_of
from engine_worlds import Asked, Scenario, Server, columns_of, play, slices
from hypothesis import given, settings
from hypothesis import strategies as st
from test_laws import assert_nothing_is_left, in_system

from cluster_sim.engine.invariants import violations
from cluster_sim.engine.kinds import Outcome, RouterPolicy
from cluster_sim.engine.rules import Rules
from cluster_sim.engine.state import LogRow, World
from cluster_sim.engine.tables import Table
from cluster_sim.results import Flags
from cluster_sim.world import new_world

SOME = settings(max_examples=50)
EXPERT_S = 2.0**-9  # a token through the experts of all ranks
SHARED_CLOCK = ("clock_s", "in_flight", "oldest_slot", "action")
TIMES = ("queued_s", "scheduled_s", "first_token_s", "last_token_s", "longest_gap_s")
COUNTS = (
    "emitted_tokens",
    "chunks",
    "drafted_tokens",
    "accepted_tokens",
    "preemptions",
    "cached_tokens",
    "outcome",
)


def with_experts(scenario: Scenario) -> Rules:
    """Rules in which the experts take EXPERT_S for every token of an instance."""
    rules = scenario.rules()
    experts_s = np.zeros_like(rules.step_time.experts_s)
    experts_s[:] = EXPERT_S * np.arange(experts_s.shape[1])
    return rules._replace(step_time=rules.step_time._replace(experts_s=experts_s))


def groups_of(rules: Rules) -> Iterator[slice]:
    """The rows of each group."""
    for first in np.flatnonzero(rules.lockstep):
        yield slice(int(first), int(first + rules.lockstep[first]))


def only(scenario: Scenario, here: Flags) -> tuple[Asked, ...]:
    """The same requests, in their places, of which all others are refused."""
    return tuple(
        replace(asked, is_rejected=not is_here)
        for asked, is_here in zip(scenario.requests, here, strict=True)
    )


def assert_same(expected: Table[LogRow], found: Table[LogRow], here: Flags) -> None:
    """The requests `here` had the same times and counts in both logs."""
    for column in TIMES + COUNTS:
        assert np.array_equal(expected[column][here], found[column][here], equal_nan=column in TIMES)


def everyone(log: Table[LogRow]) -> Flags:
    """All requests of a log."""
    return np.ones(len(log["outcome"]), np.bool_)


# ---- one clock ----


@SOME
@given(data=st.data(), scenario=groups())
def test_ranks_in_lockstep_end_their_steps_at_the_same_times(data: st.DataObject, scenario: Scenario) -> None:
    stops_s = data.draw(stops_of(scenario))
    for variant in in_four_ways(scenario):
        rules = with_experts(variant)
        world = new_world(rules)
        for _ in slices(world, rules, stops_s):
            for ranks in groups_of(rules):
                assert np.ptp(world.steps["end_s"][ranks], axis=0).max() == 0.0
                for column in SHARED_CLOCK:
                    assert len(set(world.lanes[column][ranks].tolist())) == 1


def test_a_decode_waits_for_the_prefill_of_the_other_rank() -> None:
    """Steps of 0.5 s and 2^-7 s a token: rank 0's first token comes with that of rank 1's 32-token prompt."""
    scenario = Scenario((Asked(0.0, 8, 3), Asked(0.0, 32, 1)), (Server(),) * 2, ranks=2, in_lockstep=True)
    log = play(scenario.rules()).log
    assert log["instance"].tolist() == [0, 1]
    assert log["first_token_s"].tolist() == [0.5 + 32 / 128] * 2
    assert log["last_token_s"][0] == 0.75 + 2 * (0.5 + 1 / 128)  # and on, with rank 1 idle


def test_a_rank_sees_arrivals_when_the_step_of_its_group_ends() -> None:
    """Rank 1 is idle at 0.1 s, but its next schedule call is that of the group, at 0.5 s + 8 tokens."""
    scenario = Scenario((Asked(0.0, 8, 9), Asked(0.1, 8, 1)), (Server(),) * 2, ranks=2, in_lockstep=True)
    log = play(scenario.rules()).log
    assert log["instance"].tolist() == [0, 1]
    assert log["scheduled_s"][1] == 0.5 + 8 / 128
    on_its_own = play(replace(scenario, in_lockstep=False).rules()).log
    assert on_its_own["scheduled_s"][1] == 0.1


# ---- one rank, equal ranks, idle ranks ----


@SOME
@given(scenario=groups())
def test_a_group_of_one_rank_is_an_instance_byte_for_byte(scenario: Scenario) -> None:
    """Its experts are part of its dense times: experts_s is not looked at."""
    for variant in in_four_ways(replace(scenario, ranks=1)):
        alone = replace(variant, in_lockstep=False)
        assert dict(columns_of(play(with_experts(variant)))) == dict(columns_of(play(alone.rules())))


@SOME
@given(scenario=groups(), ranks=st.sampled_from([2, 3]))
def test_with_equal_requests_each_rank_runs_as_on_its_own_plus_the_experts(
    scenario: Scenario, ranks: int
) -> None:
    """A step of n tokens on each of r ranks takes the n tokens of one, and the experts of r n."""
    certain = tuple(float(chance >= 0.5) for chance in scenario.conditional)  # twins have luck of their own
    scenario = replace(scenario, conditional=certain, policy=RouterPolicy.round_robin, signal_interval_s=0.0)
    requests = tuple(asked for asked in scenario.requests for _ in range(ranks))
    for variant in in_four_ways(replace(scenario, servers=scenario.servers[:1], ranks=1)):
        server = variant.servers[0]
        together = play(
            with_experts(replace(variant, requests=requests, servers=(server,) * ranks, ranks=ranks))
        ).log
        slower = replace(server, token_s=server.token_s + ranks * EXPERT_S)
        alone = play(replace(variant, servers=(slower,)).rules()).log
        for rank in range(ranks):
            served = together["instance"][rank::ranks]
            assert set(served.tolist()) <= {-1, rank}
            assert_same(alone, together[rank::ranks], everyone(alone))


@SOME
@given(scenario=groups(may_abort=False), ranks=st.sampled_from([2, 3]))
def test_an_idle_rank_costs_a_token_of_the_experts_and_no_more(scenario: Scenario, ranks: int) -> None:
    """Requests one after another take turns on the ranks, each as alone plus experts of n + r - 1 tokens."""
    spaced = tuple(replace(asked, arrival_s=64.0 * number) for number, asked in enumerate(scenario.requests))
    server = replace(scenario.servers[0], enable_prefix_caching=False, drops_last_hit_block=False)
    alone = replace(
        scenario, requests=spaced, policy=RouterPolicy.round_robin, ranks=1, signal_interval_s=0.0
    )
    for variant in in_four_ways(replace(alone, servers=(server,))):
        (one,) = variant.servers
        together = play(with_experts(replace(variant, servers=(one,) * ranks, ranks=ranks)))
        slower = replace(one, token_s=one.token_s + EXPERT_S, step_s=one.step_s + (ranks - 1) * EXPERT_S)
        expected = play(replace(variant, servers=(slower,)).rules()).log
        assert_same(expected, together.log, everyone(expected))


def test_a_step_without_work_is_not_counted() -> None:
    """One request: rank 1 keeps rank 0 company, and its time is idle."""
    scenario = Scenario((Asked(0.0, 8, 9),), (Server(),) * 2, ranks=2, in_lockstep=True)
    totals = play(scenario.rules()).tally.totals
    assert totals["steps"].tolist() == [9, 0]
    assert totals["target_s"].tolist() == [9 * 0.5 + (8 + 8) / 128, 0.0]


# ---- without lockstep, and between instances ----


@SOME
@given(scenario=groups(may_abort=False))
def test_ranks_without_lockstep_share_nothing(scenario: Scenario) -> None:
    """What a rank gives its requests is what an instance would that had only them."""
    for variant in in_four_ways(replace(scenario, in_lockstep=False, ranks=len(scenario.servers))):
        log = play(variant.rules()).log
        for rank, server in enumerate(variant.servers):
            here = log["instance"] == rank
            alone = replace(variant, requests=only(variant, here), servers=(server,), ranks=1)
            assert_same(play(alone.rules()).log, log, here)


@SOME
@given(scenario=groups(may_abort=False))
def test_instances_of_ranks_share_nothing(scenario: Scenario) -> None:
    """Round robin: what an instance does with its requests, routing to its ranks included, is its own."""
    two = replace(
        scenario, servers=scenario.servers[:1] * 2 * scenario.ranks, policy=RouterPolicy.round_robin
    )
    for variant in in_four_ways(two):
        log = play(with_experts(variant)).log
        for instance in (0, 1):
            here = log["instance"] // variant.ranks == instance
            alone = play(with_experts(replace(variant, requests=only(variant, here)))).log
            assert_same(alone, log, here)
            assert np.array_equal(alone["instance"][here], log["instance"][here])


# ---- laws ----


@SOME
@given(data=st.data(), scenario=groups())
def test_invariants_hold_whenever_a_group_is_stopped(data: st.DataObject, scenario: Scenario) -> None:
    stops_s = data.draw(stops_of(scenario))
    for variant in in_four_ways(scenario):
        rules = with_experts(variant)
        world = new_world(rules)
        for reached_s in slices(world, rules, stops_s):
            assert violations(world, rules) == []
            assert not any(idles_with_work(world, rules, ranks, reached_s) for ranks in groups_of(rules))


def idles_with_work(world: World, rules: Rules, ranks: slice, until_s: float) -> bool:
    """No rank of a group has tokens in flight, and some rank has a request that arrived before `until_s`."""
    lanes, queues = world.lanes[ranks], world.queues[ranks]
    if lanes["clock_s"][0] >= until_s:
        return False
    for slot in range(lanes["in_flight"][0]):
        place = (lanes["oldest_slot"][0] + slot) % rules.batching["queue_depth"][ranks.start]
        if world.steps["num_tokens"][ranks, place].any():
            return False
    arrivals_s = rules.workload.requests["arrival_s"][queues["inbox_head"]]
    has_arrived = (queues["inbox_head"] >= 0) & (arrivals_s < until_s)
    return bool(np.any(lanes["num_running"] > 0) or np.any(queues["length"] > 0) or np.any(has_arrived))


@SOME
@given(scenario=groups())
def test_no_request_of_a_group_is_lost_and_all_memory_comes_back(scenario: Scenario) -> None:
    for variant in in_four_ways(scenario):
        assert_nothing_is_left(with_experts(variant))


@SOME
@given(data=st.data(), scenario=groups())
def test_where_the_run_of_a_group_is_cut_changes_no_byte(data: st.DataObject, scenario: Scenario) -> None:
    stops_s = data.draw(stops_of(scenario))
    for variant in in_four_ways(scenario):
        rules = with_experts(variant)
        assert dict(columns_of(play(rules, stops_s))) == dict(columns_of(play(rules)))


@SOME
@given(scenario=groups(may_abort=False))
def test_littles_law_holds_in_a_group(scenario: Scenario) -> None:
    """Integral of the requests in the system = sum of their times in it (Little 1961)."""
    rules = with_experts(replace(scenario, signal_interval_s=0.0))
    log, arrival_s = play(rules).log, rules.workload.requests["arrival_s"]
    served = log["outcome"] == Outcome.completed
    sojourn_s = (log["last_token_s"] - arrival_s)[served].sum()
    moments_s = np.unique(np.concatenate([arrival_s[served], log["last_token_s"][served]]))
    world = new_world(rules)
    inside = [in_system(world) for _ in slices(world, rules, np.nextafter(moments_s, math.inf))]
    spans_s = [end_s - start_s for start_s, end_s in pairwise(moments_s)]
    integral = sum(number * span_s for number, span_s in zip(inside, spans_s, strict=False))
    assert integral == pytest.approx(sojourn_s, rel=1e-12)


@SOME
@given(scenario=groups(may_abort=False))
def test_no_rank_is_busier_than_its_clock(scenario: Scenario) -> None:
    """All requests at time 0: each step of a group is the work of some of its ranks, at most of all."""
    at_once = tuple(replace(asked, arrival_s=0.0) for asked in scenario.requests)
    rules = with_experts(replace(scenario, requests=at_once))
    world = play(rules)
    totals = world.tally.totals
    busy_s = totals["target_s"] + totals["draft_s"] + totals["exposed_host_s"]
    for ranks in groups_of(rules):
        assert np.all(busy_s[ranks] <= world.lanes["gpu_free_s"][ranks.start] + 1e-9)
        assert busy_s[ranks].sum() >= world.lanes["gpu_free_s"][ranks.start] - 1e-9
