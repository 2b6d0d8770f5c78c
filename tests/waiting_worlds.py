"""Small worlds in which clients wait for their answers, drawn by hypothesis; and what their logs say."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from engine_strategies import GRAIN_S, scenarios
from engine_worlds import Scenario
from hypothesis import strategies as st

from cluster_sim.engine.kinds import Outcome
from cluster_sim.engine.rules import Rules
from cluster_sim.engine.state import World
from cluster_sim.engine.tables import Floats, Longs


@dataclass(frozen=True)
class Waiting:
    """A scenario whose requests are sent by clients. Its repr is a test case."""

    scenario: Scenario  # its arrivals and aborts do not hold
    clients: int  # of a closed loop; 0: each conversation has its own
    think_s: tuple[float, ...]  # after each request
    turns: tuple[int, ...]  # of each conversation
    timeout_s: float
    close_s: float = np.inf
    is_limited: bool = False  # requests have arrivals, and clients take them in their order

    def rules(self) -> Rules:
        rules = self.scenario.rules()
        requests: Any = rules.workload.requests.copy()
        requests["session"] = np.repeat(np.arange(len(self.turns)), self.turns)
        is_first = np.diff(requests["session"], prepend=-1) > 0
        is_known = is_first & (self.is_limited or self.clients == 0)
        requests["arrival_s"] = np.where(is_known, requests["arrival_s"], np.inf)
        requests["abort_s"] = np.inf
        requests["think_s"] = self.think_s
        workload = rules.workload._replace(
            requests=requests,
            any_abort=bool(np.isfinite(self.timeout_s)),
            clients=self.clients or len(self.turns),
            timeout_s=self.timeout_s,
            close_s=self.close_s,
        )
        return rules._replace(workload=workload)


@st.composite
def waiting(draw: st.DrawFn, talks: bool = False, is_closed: bool = True) -> Waiting:
    """Any small world of clients that wait; with `talks`, of conversations."""
    scenario = draw(scenarios(may_abort=False))
    number = len(scenario.requests)
    grains = st.sampled_from([0, 0, 1, 3, 40])
    turns = [1] * number
    if talks:
        turns, left = [], number
        while left:
            turns.append(draw(st.integers(1, min(4, left))))
            left -= turns[-1]
    return Waiting(
        scenario,
        draw(st.sampled_from([1, 2, 3, 8])) if is_closed else 0,
        tuple(GRAIN_S * draw(grains) for _ in range(number)),
        tuple(turns),
        draw(st.sampled_from([np.inf, np.inf, 2.0, 5.0])),
        draw(st.sampled_from([np.inf, np.inf, np.inf, 4.0])),
    )


@st.composite
def limited(draw: st.DrawFn) -> Waiting:
    """Any small world in which at most so many requests are under way, and no more than there are."""
    drawn = draw(waiting())
    number = len(drawn.turns)
    clients = min(drawn.clients, number)
    return replace(drawn, clients=clients, think_s=(0.0,) * number, close_s=np.inf, is_limited=True)


def ends_s(world: World) -> Floats:
    """When each request ended for its client; nan: it was not sent."""
    outcome, sent = world.log["outcome"], world.sent
    ended = np.where(outcome == int(Outcome.completed), world.log["last_token_s"], sent["abort_s"])
    ended = np.where(outcome == int(Outcome.rejected), sent["arrival_s"], ended)
    return np.where(np.isfinite(sent["arrival_s"]), ended, np.nan)


def in_order(world: World) -> Longs:
    """Requests that were sent, in the order in which they were."""
    order = np.lexsort((np.arange(len(world.sent)), world.sent["client"], world.sent["arrival_s"]))
    return order[: np.count_nonzero(np.isfinite(world.sent["arrival_s"]))]
