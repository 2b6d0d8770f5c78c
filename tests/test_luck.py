"""Acceptance belongs to the text: the same in every schedule, batch, router and mode of scheduling."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from engine_strategies import scenarios
from engine_worlds import Asked, Scenario, Server, play
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_sim.engine import by_hand
from cluster_sim.engine.kinds import Action, Command, Purpose, RouterPolicy
from cluster_sim.engine.rules import Rules
from cluster_sim.world import new_world

SOME = settings(max_examples=80)
MASK = 2**64 - 1


@SOME
@given(scenario=scenarios(may_abort=False))
def test_what_is_accepted_depends_on_seed_request_position_and_drafts_alone(scenario: Scenario) -> None:
    """Every verification, in every schedule, accepts what the stream of its text says and nothing else."""
    rules = replace(scenario, servers=scenario.servers[:1]).rules()
    for request, outputs, drafts, accepted in verifications(rules):
        assert accepted == accepted_by_the_text(scenario, request, outputs, drafts)


@SOME
@given(scenario=scenarios(may_abort=False), data=st.data())
def test_luck_does_not_depend_on_the_company(scenario: Scenario, data: st.DataObject) -> None:
    """Wherever drafts are neither cut nor lost, a request has the same chunks and drafts accepted.

    Batch size, chunks of the prompt, instances, router, step times, and sync or async may all differ.
    """
    requests = tuple(
        replace(asked, prompt_tokens=asked.prompt_tokens + 1, content=(), proposals=(), is_rejected=False)
        for asked in scenario.requests
    )
    drafts = data.draw(st.integers(1, 4))
    servers = [free_server(data, requests, drafts) for _ in range(2)]
    policy = data.draw(st.sampled_from(RouterPolicy))
    crowd = Scenario(requests, tuple(servers), scenario.conditional, policy, 0.0, scenario.seed)
    alone = replace(crowd, servers=(Server(max_num_seqs=1, num_speculative_tokens=drafts),))
    names = ["emitted_tokens", "chunks", "drafted_tokens", "accepted_tokens", "outcome"]
    assert play(crowd.rules()).log[names].tolist() == play(alone.rules()).log[names].tolist()


def free_server(data: st.DataObject, requests: tuple[Asked, ...], drafts: int) -> Server:
    """Budgets that never cut drafts: a decode always gets its 1 + K tokens."""
    seats = data.draw(st.integers(1, len(requests)))
    return Server(
        max_num_seqs=seats,
        max_num_batched_tokens=seats * (1 + drafts) + data.draw(st.integers(0, 20)),
        num_speculative_tokens=drafts,
        is_async=data.draw(st.booleans()),
        enable_prefix_caching=data.draw(st.booleans()),
        step_s=data.draw(st.sampled_from([0.25, 1.0])),
    )


def verifications(rules: Rules) -> Iterator[tuple[int, int, int, int]]:
    """Drive one instance by hand: (request, outputs before, drafts, accepted) of every verification."""
    world, now_s = new_world(rules), 0.0
    requests, lane = rules.workload.requests, world.lanes[0]
    for request in np.flatnonzero(~requests["is_rejected"]):
        by_hand.command(world, rules, 0, int(Command.accept), int(request), now_s)
    while lane.num_running or world.queues[0].length or lane.in_flight:
        if lane.action != Action.update:
            by_hand.command(world, rules, 0, int(Command.schedule), 0, now_s)
            continue
        slot, now_s = int(lane.oldest_slot), now_s + 1.0
        known = world.progress["known_tokens"].copy()
        by_hand.command(world, rules, 0, int(Command.update), 0, now_s)
        for entry in world.entries[0, slot][: world.steps[0, slot].num_entries]:
            if entry.drafts and not entry.is_padding:
                outputs = known[entry.request] - requests[entry.request].prompt_tokens
                yield int(entry.request), int(outputs), int(entry.drafts), int(entry.accepted)


def accepted_by_the_text(scenario: Scenario, request: int, outputs: int, drafts: int) -> int:
    """The stream again, in whole numbers of any size: draft i is output token `outputs` + i."""
    key = mix(mix(scenario.seed + GAMMA * Purpose.acceptance) + GAMMA * (request + 1))
    draws = (mix(key + GAMMA * (outputs + i + 1)) >> 11 for i in range(drafts))
    accepted = 0
    for draw, chance in zip(draws, (*scenario.conditional, *[0.0] * drafts), strict=False):
        if draw * 2.0**-53 >= chance:
            break
        accepted += 1
    return accepted


GAMMA = 0x9E3779B97F4A7C15


def mix(z: int) -> int:
    """SplitMix64's finaliser (Steele, Lea, Flood 2014)."""
    z &= MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def test_the_stream_is_splitmix64() -> None:
    """First outputs of SplitMix64 from state 1234567 (Vigna, splitmix64.c; the Java SplittableRandom)."""
    outputs = [mix(1234567 + GAMMA * n) for n in range(1, 4)]
    assert outputs == [6457827717110365317, 3203168211198807973, 9817491932198370423]
