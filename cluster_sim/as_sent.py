"""What happened to requests, in the order in which they were sent: where nobody knew it beforehand.

Where no client waits, that is the order of their numbers, and the tables are those of the engine.
"""

from typing import Any, NamedTuple

import numpy as np

from cluster_sim.engine.kinds import Outcome
from cluster_sim.engine.rules import Request, Rules
from cluster_sim.engine.state import LogRow, World
from cluster_sim.engine.tables import Floats, Longs, Table
from cluster_sim.world import columns


class AsSent(NamedTuple):
    """The requests that were sent, in order of arrival; equals by their number."""

    requests: Table[Request]
    log: Table[LogRow]
    due_s: Floats | None  # when each was due, where its client may have waited to send it
    unsent: int  # turns that were never sent, since one before in their conversation had no answer


def as_sent(rules: Rules, world: World) -> AsSent:
    """Requests and log of a run at its end."""
    requests: Any = columns(rules.workload.requests)
    log: Any = columns(world.log)
    if rules.workload.clients == 0:
        return AsSent(requests, log, None, 0)
    arrival_s = world.sent["arrival_s"]
    order = np.argsort(arrival_s, kind="stable")[: np.count_nonzero(np.isfinite(arrival_s))]
    chosen, due_s = _rows(requests, order), requests["arrival_s"][order]
    for name in ("arrival_s", "abort_s"):
        chosen[name] = world.sent[name][order]
    known = due_s if np.isfinite(due_s).all() else None
    return AsSent(chosen, _rows(log, order), known, _num_unsent(rules, world))


def _rows(table: Any, order: Longs) -> Any:
    """Some rows of a table; bytes between its columns are zero: the same rows are the same bytes."""
    chosen = np.zeros(len(order), table.dtype)
    for name in table.dtype.names:
        chosen[name] = table[name][order]
    return chosen


def _num_unsent(rules: Rules, world: World) -> int:
    """Turns that were not sent, of the conversations that ended with one that had no answer."""
    is_sent, session = np.isfinite(world.sent["arrival_s"]), rules.workload.requests["session"]
    broken = session[is_sent & (world.log["outcome"] != int(Outcome.completed))]
    return int(np.count_nonzero(~is_sent & np.isin(session, broken)))
