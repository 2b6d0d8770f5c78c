"""What happened to requests, in the order in which they were sent: where nobody knew it beforehand.

Where no client waits, that is the order of their numbers, and the tables are those of the engine.
"""

from typing import Any, NamedTuple

import numpy as np

from cluster_sim.engine.kinds import Outcome
from cluster_sim.engine.rules import Request, Rules
from cluster_sim.engine.state import LogRow, World
from cluster_sim.engine.tables import Table
from cluster_sim.world import columns


class AsSent(NamedTuple):
    """The requests that were sent, in order of arrival; equals by their number."""

    requests: Table[Request]
    log: Table[LogRow]
    unsent: int  # turns that were never sent, since one before in their conversation had no answer


def as_sent(rules: Rules, world: World) -> AsSent:
    """Requests and log of a run at its end."""
    requests: Any = columns(rules.workload.requests)
    log: Any = columns(world.log)
    if rules.workload.clients == 0:
        return AsSent(requests, log, 0)
    arrival_s = world.sent["arrival_s"]
    order = np.argsort(arrival_s, kind="stable")[: np.count_nonzero(np.isfinite(arrival_s))]
    chosen = requests[order]
    for name in ("arrival_s", "abort_s"):
        chosen[name] = world.sent[name][order]
    return AsSent(chosen, log[order], _num_unsent(rules, world))


def _num_unsent(rules: Rules, world: World) -> int:
    """Turns that were not sent, of the conversations that ended with one that had no answer."""
    is_sent, session = np.isfinite(world.sent["arrival_s"]), rules.workload.requests["session"]
    broken = session[is_sent & (world.log["outcome"] != int(Outcome.completed))]
    return int(np.count_nonzero(~is_sent & np.isin(session, broken)))
