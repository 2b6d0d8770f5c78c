"""Conversations in open loop: turns that come at drawn gaps, each with all that was said before it.

    turn 0 |--own--|==answer==|
    turn 1 |--own--|==answer==|--own--|==answer==|          the prompt ends where its own answer begins
    turn 2 |--own--|==answer==|--own--|==answer==|--own--|==answer==|

workload.request_rate counts turns: conversations start as often as workload.arrivals says, divided by their
mean number of turns, which is geometric. The next turn arrives an exponential time after this one did,
answered or not. Nothing is under way at time 0: the rate of requests grows to its mean over the length of a
conversation. A conversation's draws are a function of its number and the turn. Turns that wait for the answer
to the one before are drawn in waiting.py.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cluster_sim import draws
from cluster_sim.arrivals import draw_arrivals, first_arrivals, those_let_in
from cluster_sim.config import WorkloadConfig
from cluster_sim.engine.kinds import Purpose
from cluster_sim.lengths import Streams

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]


class Schedule(NamedTuple):
    """Requests in order of arrival."""

    arrival_s: Floats
    streams: Streams  # whose draws they take: those of their number, or of their conversation and turn
    session: Longs  # number of its conversation; -1: none
    think_s: Floats  # from its end to the next request of its client, if that waits
    clients: int  # that wait for answers; 0: none


def draw_schedule(config: WorkloadConfig, seed: int) -> Schedule:
    """When requests arrive, and to which conversations they belong.

    Raises:
        UserError: their number is not bounded, or none arrives.
    """
    if config.turns.mean is None:
        arrival_s = draw_arrivals(config, seed)
        alone = np.arange(len(arrival_s))
        return _open(arrival_s, Streams(alone, np.zeros_like(alone)), np.full(len(alone), -1))
    arrival_s = those_let_in(lambda count: _first_turns(config, count, seed).arrival_s, config)
    return _first_turns(config, len(arrival_s), seed)


def _open(arrival_s: Floats, streams: Streams, session: Longs) -> Schedule:
    """Nobody waits for an answer."""
    return Schedule(arrival_s, streams, session, np.zeros(len(arrival_s)), 0)


def grown(session: Longs, turn: Longs, own_tokens: Longs, output_tokens: Longs) -> Longs:
    """Prompt tokens, with those of all earlier turns of the conversation and their answers.

    A conversation is there from its first turn on.
    """
    order = np.lexsort((turn, session))
    added = (own_tokens + output_tokens)[order]
    before = np.cumsum(added) - added
    is_first = turn[order] == 0
    of_first = before[is_first][np.cumsum(is_first) - 1]
    prompts = np.empty_like(own_tokens)
    prompts[order] = own_tokens[order] + before - of_first
    return prompts


def _first_turns(config: WorkloadConfig, count: int, seed: int) -> Schedule:
    """The `count` turns that arrive first, of as many conversations as can have one of them."""
    mean, gap_s = config.turns.mean or 1.0, config.turns.gap_s or 0.0
    sessions = int(count / mean) + 16
    while True:
        start_s = first_arrivals(config, sessions, seed, mean)
        turns = numbers_of_turns(sessions, mean, seed)
        session = np.repeat(np.arange(sessions), turns)
        first = np.cumsum(turns) - turns
        turn = np.arange(len(session)) - first[session]
        waits = -np.log1p(-draws.uniforms_of(seed, Purpose.turn_gap, session, turn))
        since_s = np.cumsum(np.where(turn > 0, gap_s * waits, 0.0))
        arrival_s = start_s[session] + since_s - since_s[first][session]
        order = np.lexsort((turn, session, arrival_s))[:count]
        if len(order) == count and arrival_s[order[-1]] <= start_s[-1]:
            return _open(arrival_s[order], Streams(session[order], turn[order]), session[order])
        sessions *= 2


def numbers_of_turns(sessions: int, mean: float, seed: int) -> Longs:
    """Turns of each conversation: geometric numbers from 1 on, by inversion."""
    if mean == 1.0:
        return np.ones(sessions, np.int64)
    uniforms = draws.uniforms(seed, Purpose.turns, sessions, 0)
    return np.asarray(1 + np.floor(np.log1p(-uniforms) / np.log1p(-1.0 / mean)), np.int64)
