"""What can be computed on paper: queues, acceptance, and the timeline of one request."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from engine_worlds import (
    Asked,
    Scenario,
    Server,
    conditional_of,
    luck_of,
    plain_workload,
    play,
    rules_of,
    same_for_every_length,
)
from numpy.typing import NDArray

from cluster_sim.engine.state import World

Z = 4.89164  # a standard normal is further out once in 10^6
T_39 = 5.81  # Student's t with 39 degrees of freedom is further out once in 10^6
BATCHES = 40


# ---- queues ----


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_one_slot_and_constant_steps_are_an_m_d_1_queue(load: float) -> None:
    """Mean wait Wq = rho S / (2 (1 - rho)) (Pollaczek and Khinchine; ../shared/spec-decode-facts.md D7).

    Batch means of 40 batches of 10,000 requests after one of warm-up; false alarms: one in 10^6.
    """
    service_s, number = 0.5, 10_000 * (BATCHES + 1)
    gaps_s = np.random.default_rng(20240607).exponential(service_s / load, number)
    workload = plain_workload(number, arrival_s=np.cumsum(gaps_s), prompt_tokens=4, max_tokens=1)
    log = play(rules_of(workload, [Server(max_num_seqs=1, step_s=service_s, token_s=0.0)])).log
    wait_s = log["scheduled_s"] - workload.requests["arrival_s"]
    means_s = wait_s.reshape(BATCHES + 1, -1)[1:].mean(1)
    error_s = means_s.std(ddof=1) / math.sqrt(BATCHES)
    expected_s = load * service_s / (2 * (1 - load))
    assert abs(means_s.mean() - expected_s) < T_39 * error_s
    assert T_39 * error_s < 0.1 * expected_s
    assert np.allclose(log["first_token_s"] - log["scheduled_s"], service_s)


def test_the_wait_of_every_request_follows_lindley() -> None:
    """One slot: W(n+1) = max(0, W(n) + S(n) - A(n)), service and gaps of any length (Lindley 1952).

    Output tokens take a step each; the engine looks for arrivals whenever a request has left.
    """
    rng, number = np.random.default_rng(7), 2000
    gaps_s = rng.integers(1, 40, number) / 8
    outputs = rng.integers(1, 12, number)
    workload = plain_workload(number, arrival_s=np.cumsum(gaps_s), prompt_tokens=4, max_tokens=outputs)
    log = play(rules_of(workload, [Server(max_num_seqs=1, step_s=0.25, token_s=0.0)])).log
    wait_s = [0.0]
    for before in range(number - 1):
        wait_s.append(max(0.0, wait_s[-1] + 0.25 * outputs[before] - gaps_s[before + 1]))
    assert (log["scheduled_s"] - workload.requests["arrival_s"]).tolist() == wait_s


def test_a_full_batch_delivers_seats_over_step_time() -> None:
    """Capacity = B AL / (t(B) OSL) (../shared/spec-decode-facts.md D7): 4 seats, AL 1, 16 steps of 0.5 s."""
    rules = rules_of(
        plain_workload(400, prompt_tokens=1, max_tokens=16),
        [Server(max_num_seqs=4, step_s=0.5, token_s=0.0)],
    )
    assert play(rules).log["last_token_s"].max() == 400 / 4 * 16 * 0.5


# ---- acceptance ----


def speculate(
    conditional: Sequence[float], drafts: int, requests: int = 1, outputs: int = 100, **server: Any
) -> World:
    """Requests of `outputs` tokens, all at time 0, with room for all."""
    settings = {"max_num_seqs": 64, "max_num_batched_tokens": 2048, "num_gpu_blocks": 20_000} | server
    workload = plain_workload(requests, prompt_tokens=8, max_tokens=outputs)
    servers = [Server(num_speculative_tokens=drafts, lookahead_tokens=drafts, **settings)]
    return play(rules_of(workload, servers, luck_of(workload, same_for_every_length(conditional, drafts))))


def verified(world: World, drafts: int) -> NDArray[np.int64]:
    """Verify events by the number of drafts accepted; all had `drafts`."""
    assert world.tally.verified.sum() == world.tally.verified[0, 0, drafts].sum()
    events: NDArray[np.int64] = world.tally.verified[0, 0, drafts, : drafts + 1]
    return events


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("drafts", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("outputs", [1, 2, 4, 9, 13, 100])
def test_all_accepted_takes_as_many_steps_as_runs_fit(drafts: int, outputs: int, is_async: bool) -> None:
    """ceil((OSL - 1) / (K + 1)): prefill emits the first token (../shared/spec-decode-facts.md D8)."""
    world = speculate([1.0] * drafts, drafts, outputs=outputs, is_async=is_async)
    expected = math.ceil((outputs - 1) / (drafts + 1))
    assert verified(world, drafts).tolist() == [0] * drafts + [expected]
    assert world.log["chunks"][0] == 1 + expected
    assert world.log["emitted_tokens"][0] == outputs
    assert world.log["accepted_tokens"][0] == expected * drafts


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("drafts", [1, 3, 8])
@pytest.mark.parametrize("outputs", [1, 2, 9, 100])
def test_none_accepted_takes_a_step_a_token(drafts: int, outputs: int, is_async: bool) -> None:
    world = speculate([0.0] * drafts, drafts, outputs=outputs, is_async=is_async)
    assert verified(world, drafts).tolist() == [outputs - 1] + [0] * drafts
    assert world.log["chunks"][0] == world.log["emitted_tokens"][0] == outputs


@pytest.mark.parametrize(
    ("marginals", "acceptance_length"),
    [
        ((0.85, 0.255), 2.105),
        ((0.76, 0.56, 0.43), 2.75),
        ((0.7617, 0.6158, 0.5125, 0.4243, 0.364, 0.3094, 0.2722, 0.2365), 4.496),
    ],
)
def test_a_profile_gives_its_marginals_and_their_sum(
    marginals: tuple[float, ...], acceptance_length: float
) -> None:
    """AL = 1 + sum of m_i, and P(first i accepted) = m_i (../shared/spec-decode-facts.md D1).

    Verify events are independent and alike; each figure is off its interval once in 10^6.
    """
    drafts = len(marginals)
    events = verified(speculate(conditional_of(marginals), drafts, requests=400, outputs=1000), drafts)
    number = events.sum()
    accepted = np.arange(drafts + 1)
    mean = (events * accepted).sum() / number
    deviation = math.sqrt((events * (accepted - mean) ** 2).sum() / number)
    assert abs(1 + mean - acceptance_length) < Z * deviation / math.sqrt(number) + 0.0005  # 4 digits given
    for position, m in enumerate(marginals, start=1):
        share = events[position:].sum() / number
        assert abs(share - m) < Z * math.sqrt(m * (1 - m) / number)


@pytest.mark.parametrize(
    ("alpha", "drafts", "acceptance_length"),
    [(0.6, 1, 1.6), (0.6, 5, 2.3834), (0.7, 3, 2.533), (0.8, 4, 3.3616), (0.9, 2, 2.71), (0.9, 10, 6.8619)],
)
def test_independent_drafts_give_the_geometric_length(
    alpha: float, drafts: int, acceptance_length: float
) -> None:
    """AL = (1 - alpha^(K+1)) / (1 - alpha) (Leviathan et al. 2023, equation 1; D1's table). One in 10^6."""
    assert (1 - alpha ** (drafts + 1)) / (1 - alpha) == pytest.approx(acceptance_length, abs=5e-5)
    events = verified(speculate([alpha] * drafts, drafts, requests=400, outputs=1000), drafts)
    number, accepted = events.sum(), np.arange(drafts + 1)
    mean = (events * accepted).sum() / number
    deviation = math.sqrt((events * (accepted - mean) ** 2).sum() / number)
    assert abs(1 + mean - acceptance_length) < Z * deviation / math.sqrt(number) + 5e-5


def test_tokens_are_conserved_through_verification() -> None:
    """Emitted = 1 + verifications + accepted - what overshoots the end (at most K a request)."""
    log = speculate([0.8] * 3, 3, requests=200, outputs=37).log
    verifications = log["chunks"] - 1
    overshoot = 1 + verifications + log["accepted_tokens"] - log["emitted_tokens"]
    assert np.all(log["drafted_tokens"] == 3 * verifications)
    assert overshoot.min() == 0
    assert overshoot.max() <= 3


# ---- one request on the clock ----

PROMPT, OUTPUTS, ARRIVAL_S = 8, 7, 3.0
PREFILL_S, DECODE_S = 1.0 + PROMPT / 8, 1.0 + 1 / 8  # step_s + tokens * token_s


def one_request(host_s: float, outputs: int = OUTPUTS, **server: Any) -> World:
    """One request at 3 s on a machine whose times are sums of powers of two."""
    settings = {"step_s": 1.0, "token_s": 0.125, "host_s": host_s} | server
    asked = Asked(ARRIVAL_S, PROMPT, outputs)
    return play(Scenario((asked,), (Server(**settings),)).rules())


def ttft_and_tpot_s(world: World) -> tuple[float, float]:
    row = world.log[0]
    tpot_s = (row.last_token_s - row.first_token_s) / (row.emitted_tokens - 1)
    return row.first_token_s - ARRIVAL_S, tpot_s


@pytest.mark.parametrize("host_s", [0.0, 0.5, 2.0])
def test_a_synchronous_step_takes_its_gpu_and_its_host_time(host_s: float) -> None:
    """S0 [host | GPU] U0 S1 [host | GPU] U1 .. (engine_core.py)."""
    world = one_request(host_s)
    assert world.log[0].scheduled_s == ARRIVAL_S
    assert ttft_and_tpot_s(world) == (host_s + PREFILL_S, host_s + DECODE_S)
    assert world.log[0].longest_gap_s == host_s + DECODE_S
    assert world.tally.totals[0].exposed_host_s == OUTPUTS * host_s


@pytest.mark.parametrize("host_s", [0.0, 0.5, DECODE_S])
def test_an_asynchronous_step_hides_its_host_time_behind_the_gpu(host_s: float) -> None:
    """Only the first step's host time is seen; it runs on its own."""
    world = one_request(host_s, is_async=True)
    assert ttft_and_tpot_s(world) == (host_s + PREFILL_S, DECODE_S)
    assert world.tally.totals[0].exposed_host_s == host_s


@pytest.mark.parametrize("host_s", [1.5, 4.0])
def test_an_asynchronous_step_is_never_shorter_than_its_host_time(host_s: float) -> None:
    """The host works on one step at a time: where it is slower than the GPU, a step takes host_s.

    Up to two steps at the ends of 100.
    """
    _, tpot_s = ttft_and_tpot_s(one_request(host_s, is_async=True, outputs=101))
    assert tpot_s == pytest.approx(host_s, rel=0.02)


def test_arrivals_are_seen_when_a_step_ends_and_wait_for_the_one_that_is_queued() -> None:
    """Under asynchronous scheduling the next step is queued by then: one step more."""
    requests = (Asked(0.0, 8, 20), Asked(3.25, 8, 1))
    for is_async, first_token_s in ((False, 5.0), (True, 6.0)):
        world = play(Scenario(requests, (Server(step_s=1.0, token_s=0.0, is_async=is_async),)).rules())
        assert world.log[1].scheduled_s == 4.0
        assert world.log[1].first_token_s == first_token_s


def test_a_drafter_costs_a_pass_for_the_step_and_one_for_each_further_draft() -> None:
    """K passes for K drafts, one for K = 0 inside a schedule (../shared/vllm-scheduler.md section 7)."""
    for drafts, schedule, passes in ((3, (), 3), (3, (0, 0, 0, 0), 1), (1, (), 1), (0, (), 0)):
        world = one_request(0.0, num_speculative_tokens=drafts, schedule=schedule, draft_s=0.25, token_s=0.0)
        assert world.tally.totals[0].draft_s == OUTPUTS * passes * 0.25
        assert ttft_and_tpot_s(world) == (1.0 + passes * 0.25, 1.0 + passes * 0.25)
