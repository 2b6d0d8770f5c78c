"""The fleet over time: queue, running requests, KV in use and draft length of every engine core, sampled.

A run is cut at fixed moments of its arrivals' span, at starts of signal windows, where a cut changes no
result (loop.run_until), and the tables are looked at. The moments are those of the cluster, and instances run
by themselves in between: a host's samples of its instances are those of a world that holds all of them.
"""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from cluster_sim.engine import loop, router
from cluster_sim.engine.rules import Rules
from cluster_sim.engine.state import World
from cluster_sim.engine.tables import Floats, Longs

NUM_SAMPLES = 240
IDLE = -1  # draft length where no step is under way


class Samples(NamedTuple):
    """What was seen, as of the latest action before each moment."""

    at_s: Floats  # [sample]
    waiting: Longs  # [sample, engine core] in the queue of the scheduler
    running: Longs
    kv_blocks: Longs  # held by requests
    draft_length: Longs  # K behind the latest step; IDLE: none is under way


class Sampler:
    """Runs a world on, and looks at it on the way."""

    def __init__(self, rules: Rules) -> None:
        at_s, cores = moments(rules), rules.batching.shape[0]
        self.samples = Samples(at_s, *(np.zeros((len(at_s), cores), np.int64) for _ in range(4)))
        self._taken = 0

    def run_until(self, world: World, rules: Rules, request: int, until_s: float) -> tuple[int, int]:
        """As loop.run_until; samples before `until_s` are taken."""
        at_s = self.samples.at_s
        while self._taken < len(at_s) and at_s[self._taken] < until_s:
            request, _ = loop.run_until(world, rules, request, float(at_s[self._taken]))
            self._take(world, rules)
        return loop.run_until(world, rules, request, until_s)

    def _take(self, world: World, rules: Rules) -> None:
        seen, lanes, place = self.samples, world.lanes, self._taken
        seen.waiting[place] = world.queues["length"]
        seen.running[place] = lanes["num_running"]
        seen.kv_blocks[place] = rules.batching["num_gpu_blocks"] - 1 - world.kv.pools["num_free"]
        slots = (lanes["oldest_slot"] + lanes["in_flight"] - 1) % rules.batching["queue_depth"]
        grid: Any = world.steps
        steps = grid[np.arange(len(slots)), slots]
        drafts = np.where(steps["skips_drafts"], 0, steps["draft_length"])
        seen.draft_length[place] = np.where(lanes["in_flight"] > 0, drafts, IDLE)
        self._taken += 1


def moments(rules: Rules) -> Floats:
    """NUM_SAMPLES moments from the first to the last arrival, s; fewer where signal windows are longer.

    None where clients wait for their answers: nobody knows beforehand when they send their last.
    """
    arrivals_s, interval_s = rules.workload.requests["arrival_s"], rules.routing.signal_interval_s
    if len(arrivals_s) == 0 or rules.workload.clients:
        return np.zeros(0)
    first_s, last_s = float(arrivals_s[0]), float(arrivals_s[-1])
    evenly_s = np.linspace(first_s, last_s, NUM_SAMPLES + 1)[1:]
    starts_s = np.unique([router.window_start_s(interval_s, at_s) for at_s in evenly_s.tolist()])
    return np.asarray(starts_s[starts_s > first_s], np.float64)


def empty_samples(rules: Rules) -> Samples:
    """Those of a whole cluster, to be filled by its hosts."""
    return Sampler(rules).samples


def merge_samples(whole: Samples, cores: range, part: Samples) -> None:
    """Write what the host of `cores` saw into the samples of the whole cluster."""
    for mine, theirs in zip(whole[1:], part[1:], strict=True):
        mine[:, cores.start : cores.stop] = theirs


def fleet_table(samples: Samples, usable_blocks: Longs, ranks: int) -> pa.Table:
    """A row for each moment and engine core, in this order; draft_length is null where nothing runs."""
    num, cores = samples.waiting.shape
    core, drafts = np.tile(np.arange(cores), num), samples.draft_length.ravel()
    columns = {"at_s": pa.array(np.repeat(samples.at_s, cores)), "instance": pa.array(core // ranks)}
    if ranks > 1:
        columns["rank"] = pa.array(core % ranks)
    return pa.table(
        {
            **columns,
            "waiting": pa.array(samples.waiting.ravel()),
            "running": pa.array(samples.running.ravel()),
            "kv_usage": pa.array((samples.kv_blocks / usable_blocks).ravel()),
            "draft_length": pa.array(drafts, mask=drafts == IDLE),
        }
    )
