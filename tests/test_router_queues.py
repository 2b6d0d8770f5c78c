"""Routers against queueing theory: where Erlang C holds, and what holds instead where it does not.

Erlang C is the M/M/c queue: one line, and whoever is free takes the first. Three systems come near it.

- One instance with one slot is M/M/1: Erlang C holds, at c = 1.
- One instance with c slots has one line. It is M/M/c in steps: Erlang C holds but for up to a step of wait.
- c instances with one slot each under least_requests have c lines. A request joins the shortest one when it
  arrives and stays there, also when another instance becomes idle: that is JSQ, join the shortest queue, and
  *not* M/M/c. Its mean wait is above Erlang C's (in M/M/c nobody idles while anybody waits) and comes near it
  as the load goes to 1 (Foschini and Salz 1978, IEEE Trans. Commun. 26, 320-327); at c = 4 and a load of 0.8
  it is 28 % longer, though fewer requests wait at all. The oracle is the stationary law of its Markov chain.

Times are in mean service times. Intervals: batch means of 40 batches after one of warm-up, Student's t; each
assertion that a mean lies in its interval fails by chance for one seed in 10^6.
"""

import math
from itertools import combinations_with_replacement

import numpy as np
import pytest
from engine_worlds import Server, plain_workload, play, routing_of, rules_of
from test_closed_forms import BATCHES, T_39

from cluster_sim.engine.kinds import RouterPolicy
from cluster_sim.engine.tables import Floats

GRAIN = 1000  # prompt tokens in a mean service time
LONGEST = 16 * GRAIN  # exponential work is longer once in 10^7
STEP_S = 1 / 64  # of the instance with several slots: mean service takes 64 steps


def erlang_c(servers: int, load: float) -> float:
    """P(wait) in M/M/c, from the recursion of Erlang B, P(all busy) where nobody waits (Erlang 1917)."""
    blocked = 1.0
    for busy in range(1, servers + 1):
        blocked = servers * load * blocked / (busy + servers * load * blocked)
    return blocked / (1 - load * (1 - blocked))


def erlang_wait(servers: int, load: float) -> float:
    """Mean wait in M/M/c: C / (c (1 - load))."""
    return erlang_c(servers, load) / (servers * (1 - load))


def stationary(rates: Floats) -> Floats:
    """The law p with p Q = 0 and sum p = 1, Q being `rates` with its rows made to add up to 0."""
    size = len(rates)
    generator = rates - np.diag(rates.sum(1))
    equations = np.vstack([generator.T[:-1], np.ones(size)])
    return np.linalg.solve(equations, np.eye(size)[-1])


def shortest_queue(servers: int, load: float) -> tuple[float, float]:
    """Mean wait and P(wait) under JSQ: its chain over queue lengths in rising order, cut where few are.

    Arrivals join the first queue, with rate `servers * load`; each server that has work ends it with rate 1.
    """
    longest = {1: 120, 2: 50, 4: 12}[servers]
    states = list(combinations_with_replacement(range(longest + 1), servers))
    number = {state: index for index, state in enumerate(states)}
    rates = np.zeros((len(states), len(states)))
    for index, state in enumerate(states):
        moves = [(0, 1, servers * load)] + [(queue, -1, 1.0) for queue in range(servers) if state[queue]]
        for queue, change, rate in moves:
            after = sorted((*state[:queue], state[queue] + change, *state[queue + 1 :]))
            if after[-1] <= longest:
                rates[index, number[tuple(after)]] += rate
    law, lengths = stationary(rates), np.array(states)
    assert law[lengths[:, -1] == longest].sum() < 1e-4
    waiting = np.maximum(lengths - 1, 0).sum(1)
    return float(law @ waiting) / (servers * load), float(law @ (lengths[:, 0] > 0))


def slots_in_steps(slots: int, load: float) -> float:
    """Mean wait for one of `slots` in steps of STEP_S, in each of which a request ends with chance STEP_S.

    Chain of the requests at the start of a step. Those who come during it wait for its end; if all have left
    by then, the next arrival starts a step at once. Wait = waiting time per step / arrivals per step.
    """
    most, arrivals = 220, slots * load * STEP_S
    coming = [math.exp(-arrivals) * arrivals**k / math.factorial(k) for k in range(12)]
    chances = np.zeros((most + 1, most + 1))
    for here in range(1, most + 1):
        running = min(here, slots)
        for ended in range(running + 1):
            chance = math.comb(running, ended) * STEP_S**ended * (1 - STEP_S) ** (running - ended)
            for come, probability in enumerate(coming):
                chances[here, min(max(here - ended + come, 0), most)] += chance * probability
    empties = chances[1:, 0].copy()
    chances[1:, 1] += empties
    law = stationary(chances[1:, 1:])
    waiting = np.maximum(np.arange(1, most + 1) - slots, 0)
    return STEP_S * float(law @ waiting + arrivals / 2) / (arrivals + float(law @ empties))


def in_interval(values: Floats, expected: float, at_most: float) -> bool:
    """Whether `expected` lies in the interval of the mean, which is no wider than that share of it."""
    means = values.reshape(BATCHES + 1, -1)[1:].mean(1)
    half = T_39 * means.std(ddof=1) / math.sqrt(BATCHES)
    assert half < at_most * expected
    return bool(abs(means.mean() - expected) < half)


def waits(instances: int, load: float, policy: RouterPolicy, seed: int) -> Floats:
    """Seconds in the queue on instances of one slot; a prompt of exponential length takes one step."""
    rng, number = np.random.default_rng(seed), 10_000 * (BATCHES + 1)
    prompts = np.minimum(np.ceil(rng.exponential(GRAIN, number)), LONGEST)
    arrival_s = np.cumsum(rng.exponential(1 / (instances * load), number))
    workload = plain_workload(number, arrival_s=arrival_s, prompt_tokens=prompts, max_tokens=1)
    server = Server(
        max_num_seqs=1,
        step_s=0.0,
        token_s=1 / GRAIN,
        max_num_batched_tokens=LONGEST,
        max_model_len=2 * LONGEST,
        num_gpu_blocks=LONGEST,
    )
    routing = routing_of(policy, instances, seed=seed)
    waited_s: Floats = play(rules_of(workload, [server] * instances, None, routing)).log["scheduled_s"]
    return waited_s - arrival_s


@pytest.mark.parametrize(("instances", "load", "excess"), [(1, 0.8, 1.0), (2, 0.5, 1.28), (2, 0.8, 1.1)])
def test_least_requests_is_join_the_shortest_queue(instances: int, load: float, excess: float) -> None:
    """Mean wait and share of those who wait; `excess` is the mean wait over that of Erlang C."""
    wait, share = shortest_queue(instances, load)
    assert wait / erlang_wait(instances, load) == pytest.approx(excess, abs=0.005)
    waited_s = waits(instances, load, RouterPolicy.least_requests, 20250101)
    assert in_interval(waited_s, wait, 0.15)
    assert in_interval((waited_s > 1e-9).astype(float), share, 0.05)


def test_four_instances_of_one_slot_wait_longer_than_erlang_c_says() -> None:
    """JSQ at c = 4: fewer wait than in M/M/4, each for longer; the interval keeps Erlang C out."""
    wait, share = shortest_queue(4, 0.8)
    assert wait / erlang_wait(4, 0.8) == pytest.approx(1.278, abs=0.005)
    assert share / erlang_c(4, 0.8) == pytest.approx(0.919, abs=0.005)
    waited_s = waits(4, 0.8, RouterPolicy.least_requests, 20250102)
    assert in_interval(waited_s, wait, 0.12)
    assert not in_interval(waited_s, erlang_wait(4, 0.8), 0.16)
    assert in_interval((waited_s > 1e-9).astype(float), share, 0.05)
    assert not in_interval((waited_s > 1e-9).astype(float), erlang_c(4, 0.8), 0.05)


def test_random_routing_is_as_many_separate_m_m_1_queues() -> None:
    """A Poisson stream split at random gives Poisson streams: wait = load / (1 - load) on each instance."""
    assert in_interval(waits(4, 0.7, RouterPolicy.random, 20250103), 0.7 / 0.3, 0.1)


@pytest.mark.parametrize(("slots", "load"), [(4, 0.7), (8, 0.8)])
def test_one_instance_with_c_slots_is_m_m_c(slots: int, load: float) -> None:
    """Geometric numbers of steps: Erlang C's wait and up to a step more; the chain in steps says how much."""
    expected, number = slots_in_steps(slots, load), 8_000 * (BATCHES + 1)
    assert erlang_wait(slots, load) < expected < erlang_wait(slots, load) + STEP_S
    rng = np.random.default_rng(20250104)
    arrival_s = np.cumsum(rng.exponential(1 / (slots * load), number))
    outputs = rng.geometric(STEP_S, number)
    workload = plain_workload(number, arrival_s=arrival_s, prompt_tokens=1, max_tokens=outputs)
    server = Server(max_num_seqs=slots, step_s=STEP_S, token_s=0.0)
    waited_s = play(rules_of(workload, [server])).log["scheduled_s"] - arrival_s
    assert in_interval(waited_s, expected, 0.2)
