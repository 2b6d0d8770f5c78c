"""Where a run is cut to report its progress: where stopping changes no result (loop.run_until)."""

from collections.abc import Iterator

import numpy as np

from cluster_sim.engine import router
from cluster_sim.engine.kinds import Outcome
from cluster_sim.engine.rules import Rules
from cluster_sim.engine.state import World
from cluster_sim.engine.tables import Floats

FIRST_SLICE_S = 1.0  # of simulated time, where nobody knows how many requests it has


def slices_s(world: World, rules: Rules, request: int, until_s: float, size: int) -> Iterator[float]:
    """Ends of slices of about `size` requests each, from `request` on; the last is `until_s`."""
    if rules.workload.clients > 0:
        yield from _of_waiting_clients(world, until_s, size)
        return
    arrivals_s: Floats = rules.workload.requests["arrival_s"]
    for last in range(request + size, len(arrivals_s), size):
        end_s = router.window_start_s(rules.routing.signal_interval_s, float(arrivals_s[last]))
        if end_s >= until_s:
            break
        yield end_s
    yield until_s


def _of_waiting_clients(world: World, until_s: float, size: int) -> Iterator[float]:
    """Slices that get longer until they hold half of `size` requests; stopping changes nothing anywhere."""
    end_s, step_s = 0.0, FIRST_SLICE_S
    while not _is_over(world) and end_s + step_s < until_s:
        sent = _num_sent(world)
        end_s += step_s
        yield end_s
        if 2 * (_num_sent(world) - sent) < size:
            step_s *= 2
    yield until_s


def _num_sent(world: World) -> int:
    return int(np.count_nonzero(world.sent["client"] >= 0))


def _is_over(world: World) -> bool:
    """Nobody waits for an answer, and nobody sends anything more."""
    waits = (world.sent["client"] >= 0) & (world.log["outcome"] == int(Outcome.pending))
    return not (np.any(waits) or np.any(np.isfinite(world.clients["due_s"])))
