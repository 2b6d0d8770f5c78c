"""Clients that wait for answers: a closed loop, a limit on what is under way, and turns after the answer.

Who sends what and when is decided as the run goes (engine/clients.py). Drawn beforehand are the order of
requests, when conversations start, and for each request how long its client pauses after its end:

    closed loop      workload.max_concurrency clients take requests, or conversations, in their order; after
                     each, an exponential time of mean think_time_s
    limit            requests are due as workload.arrivals says, and sent when fewer than max_concurrency are
                     under way, first come, first served: vLLM's --max-concurrency beside --request-rate
    turns            after each but the last of a conversation, an exponential time of mean turns.gap_s: the
                     draw that is the whole gap between two turns where turns do not wait (conversations.py)

Without a closed loop, conversations start as workload.arrivals says (a partly open system: Schroeder, Wierman
and Harchol-Balter, NSDI 2006). Requests are numbered conversation by conversation; workload.requests cuts the
last one. A turn that is rejected, or that its client gives up, is the last of its conversation.
"""

import numpy as np

from cluster_sim import draws
from cluster_sim.arrivals import Floats, first_arrivals, those_let_in
from cluster_sim.choices import Arrivals
from cluster_sim.config import WorkloadConfig
from cluster_sim.conversations import Longs, Schedule, numbers_of_turns
from cluster_sim.engine.kinds import Purpose
from cluster_sim.lengths import Streams


def is_closed_loop(config: WorkloadConfig) -> bool:
    """Whether clients send their next request only after the one before has ended."""
    return config.arrivals is Arrivals.closed_loop


def is_limited(config: WorkloadConfig) -> bool:
    """Whether requests that are due may wait at the client until others have ended."""
    return config.max_concurrency is not None and not is_closed_loop(config)


def clients_wait(config: WorkloadConfig) -> bool:
    """Whether some requests are sent when others have ended, so that arrivals are not known beforehand."""
    return is_closed_loop(config) or is_limited(config) or config.turns.after_answer


def draw_waiting(config: WorkloadConfig, seed: int) -> Schedule:
    """Requests by conversation and turn, as far as they are known: only first turns may have an arrival.

    Raises:
        UserError: their number is not bounded, or none arrives.
    """
    start_s = _starts_s(config, seed)
    turns = numbers_of_turns(len(start_s), config.turns.mean or 1.0, seed)
    session = np.repeat(np.arange(len(turns)), turns)[: config.requests]
    turn = np.arange(len(session)) - (np.cumsum(turns) - turns)[session]
    conversations = int(session[-1]) + 1
    return Schedule(
        arrival_s=np.where(turn == 0, start_s[session], np.inf),
        streams=Streams(session, turn),
        session=session if config.turns.mean is not None else np.full(len(session), -1),
        think_s=_pauses_s(config, seed, Streams(session, turn), turn == turns[session] - 1),
        clients=min(config.max_concurrency or conversations, conversations),
    )


def _starts_s(config: WorkloadConfig, seed: int) -> Floats:
    """When each conversation starts; inf: when a client takes it."""
    if is_closed_loop(config):
        return np.full(config.requests or 0, np.inf)
    mean = config.turns.mean or 1.0
    return those_let_in(lambda count: first_arrivals(config, count, seed, mean), config)


def _pauses_s(config: WorkloadConfig, seed: int, turns: Streams, is_last: Longs) -> Floats:
    """From the end of each request to the next one of its client."""
    gap = -np.log1p(-draws.uniforms_of(seed, Purpose.turn_gap, turns.request, turns.turn + 1))
    think = -np.log1p(-draws.uniforms_of(seed, Purpose.think_time, turns.request, turns.turn))
    return np.where(is_last, think * (config.think_time_s or 0.0), gap * (config.turns.gap_s or 0.0))
