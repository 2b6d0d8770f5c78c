"""Laws that hold in any world, whatever stops, drains or slows down meanwhile."""

import math
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from engine_strategies import GRAIN_S, groups, in_four_ways, scenarios
from engine_worlds import Scenario, columns_of, play
from faulty_worlds import cuts, plans_for, stop
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from test_laws import in_system

from cluster_sim.choices import FaultKind
from cluster_sim.engine import outage
from cluster_sim.engine.invariants import idle_instances_have_no_work, violations
from cluster_sim.engine.kinds import Outcome
from cluster_sim.engine.rules import Rules
from cluster_sim.engine.state import World
from cluster_sim.faults import Plan
from cluster_sim.run import drive
from cluster_sim.world import new_world

MANY = settings(max_examples=30)  # each in four ways
SOME = settings(max_examples=40)
WORLDS = st.one_of(scenarios(), groups())


def end_of(rules: Rules, plan: Plan) -> World:
    """The world at the end of a run."""
    world = new_world(rules)
    drive(world, rules, None, plan)
    return world


@MANY
@given(data=st.data(), scenario=WORLDS)
def test_invariants_hold_before_and_after_every_change(data: st.DataObject, scenario: Scenario) -> None:
    plan = data.draw(plans_for(scenario))
    stops_s = data.draw(st.lists(st.integers(0, 80).map(lambda grains: grains * GRAIN_S), max_size=4))
    for variant in in_four_ways(scenario):
        rules = variant.rules()
        world = new_world(rules)
        for reached_s in cuts(world, rules, plan, stops_s):
            assert violations(world, rules) == []
            assert idle_instances_have_no_work(world, rules, reached_s) == []


@MANY
@given(data=st.data(), scenario=WORLDS)
def test_every_request_ends_and_all_memory_comes_back(data: st.DataObject, scenario: Scenario) -> None:
    plan = data.draw(plans_for(scenario))
    for variant in in_four_ways(scenario):
        rules = variant.rules()
        world = end_of(rules, plan)
        outcomes, refused = world.log["outcome"], rules.workload.requests["is_rejected"]
        assert np.all((outcomes == Outcome.rejected) == refused)
        assert np.all(np.isin(outcomes[~refused], (Outcome.completed, Outcome.timed_out, Outcome.failed)))
        assert np.all(world.memory["dispatched"] == world.lanes["finished"])
        assert np.all(world.kv.pools["num_free"] == rules.batching["num_gpu_blocks"] - 1)
        assert np.all(world.kv.pools["num_free_rows"] == world.running.shape[1])
        assert in_system(world) == 0
        assert outage.held(world) == []
        for column in ("in_flight_tokens", "stale_tokens", "blocks"):
            assert not np.any(world.progress[column])


@MANY
@given(data=st.data(), scenario=WORLDS)
def test_a_completed_request_has_its_tokens_of_one_attempt_outside_of_every_stop(
    data: st.DataObject, scenario: Scenario
) -> None:
    """Emitted = min(max_tokens, max_model_len - prompt, stop token), however many attempts it took."""
    plan = data.draw(plans_for(scenario))
    for variant in in_four_ways(scenario):
        log = end_of(variant.rules(), plan).log
        for asked, row in zip(scenario.requests, log, strict=True):
            if row.outcome == Outcome.failed:
                assert (row.emitted_tokens, row.chunks) == (0, 0)
            if row.outcome != Outcome.completed:
                continue
            room = scenario.servers[row.instance].max_model_len - asked.prompt_tokens
            assert row.emitted_tokens == min(asked.max_tokens, room, asked.stop_at or math.inf)
            moments_s = (asked.arrival_s, row.queued_s, row.scheduled_s, row.first_token_s, row.last_token_s)
            assert all(earlier <= later for earlier, later in pairwise(moments_s))
            for fault in plan.faults:
                if fault.kind is FaultKind.stop and row.instance // scenario.ranks in fault.instances:
                    is_after = fault.until_s is not None and row.scheduled_s >= fault.until_s
                    assert row.last_token_s <= fault.from_s or is_after


@SOME
@given(data=st.data(), scenario=WORLDS)
def test_the_tallies_count_all_attempts_and_the_log_knows_what_they_lost(
    data: st.DataObject, scenario: Scenario
) -> None:
    world = end_of(scenario.rules(), data.draw(plans_for(scenario)))
    log, tally = world.log, world.tally
    delivered = tally.chunk_tokens.sum(axis=0) @ np.arange(tally.chunk_tokens.shape[1])
    assert delivered == log["emitted_tokens"].sum() + log["lost_tokens"].sum()
    drafts, accepted = np.indices(tally.verified.shape[2:])
    assert (tally.verified.sum((0, 1)) * drafts).sum() == log["drafted_tokens"].sum()
    assert (tally.verified.sum((0, 1)) * accepted).sum() == log["accepted_tokens"].sum()


@SOME
@given(data=st.data(), scenario=scenarios(may_abort=False))
def test_littles_law_holds_exactly_with_those_that_wait_at_the_router(
    data: st.DataObject, scenario: Scenario
) -> None:
    """Integral of the requests in the system = sum of their times in it, counted in two ways."""
    rules = replace(scenario, signal_interval_s=0.0).rules()
    plan = Plan(data.draw(plans_for(scenario)).faults)
    log, arrival_s = end_of(rules, plan).log, rules.workload.requests["arrival_s"]
    entered = ~rules.workload.requests["is_rejected"]
    assume(not np.any(log["outcome"] == Outcome.failed))
    sojourn_s = (log["last_token_s"] - arrival_s)[entered].sum()
    moments_s = np.unique(np.concatenate([arrival_s[entered], log["last_token_s"][entered]]))
    after_s = np.nextafter(moments_s, math.inf)
    world, inside = new_world(rules), dict[float, int]()
    for reached_s in cuts(world, rules, plan, after_s.tolist()):
        inside[reached_s] = in_system(world) + len(outage.held(world))
    numbers = [inside[moment_s] for moment_s in after_s.tolist()]
    integral = sum(
        number * (end_s - start_s)
        for (start_s, end_s), number in zip(pairwise(moments_s), numbers, strict=False)
    )
    assert integral == pytest.approx(sojourn_s, rel=1e-12)


@SOME
@given(data=st.data(), scenario=WORLDS)
def test_the_same_faults_give_the_same_bytes(data: st.DataObject, scenario: Scenario) -> None:
    plan, rules = data.draw(plans_for(scenario)), scenario.rules()
    assert dict(columns_of(end_of(rules, plan))) == dict(columns_of(end_of(rules, plan)))


@SOME
@given(data=st.data(), scenario=WORLDS)
def test_faults_after_the_end_change_no_byte(data: st.DataObject, scenario: Scenario) -> None:
    rules = scenario.rules()
    plain = play(rules)
    end_s = float(np.nanmax([0.0, *plain.log["last_token_s"], *rules.workload.requests["arrival_s"]]))
    late_s = end_s + data.draw(st.integers(1, 8)) * GRAIN_S
    assume(not rules.workload.any_abort)
    everyone = list(range(len(scenario.servers) // scenario.ranks))
    late = end_of(rules, Plan((stop(everyone, late_s, late_s + 1.0),)))
    assert dict(columns_of(late)) == dict(columns_of(plain))


@pytest.mark.slow
def test_the_worlds_drawn_reach_what_the_laws_are_about() -> None:
    """A law that holds because nothing ever happens proves nothing."""
    worlds: Counter[str] = Counter()

    @settings(max_examples=500)
    @given(data=st.data(), scenario=WORLDS)
    def look(data: st.DataObject, scenario: Scenario) -> None:
        plan = data.draw(plans_for(scenario))
        log = end_of(scenario.rules(), plan).log
        completed, retried = log["outcome"] == Outcome.completed, log["retries"] > 0
        kinds = {
            "retried": completed & retried,
            "retried twice": completed & (log["retries"] > 1),
            "retried after delivery": completed & (log["lost_tokens"] > 0),
            "retried with drafts": completed & retried & (log["drafted_tokens"] > 0),
            "lost": (log["outcome"] == Outcome.failed) & (log["lost_tokens"] > 0),
            "never served": (log["outcome"] == Outcome.failed) & (log["lost_tokens"] == 0),
            "given up": (log["outcome"] == Outcome.timed_out) & retried,
            "ranks": retried & (scenario.ranks > 1),
        }
        worlds.update({kind: int(np.any(where)) for kind, where in kinds.items()})

    look()
    assert min(worlds.values()) >= 2, worlds
