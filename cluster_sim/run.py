"""One simulation: build, run, and word what a kernel reports."""

import hashlib
import math
import time
from collections.abc import Callable, Sequence

import numpy as np

from cluster_sim.build import build
from cluster_sim.config import Config
from cluster_sim.engine import loop, router
from cluster_sim.engine.kinds import Status
from cluster_sim.engine.rules import Rules
from cluster_sim.engine.state import World
from cluster_sim.instances import with_each
from cluster_sim.optimum import resolved
from cluster_sim.results import Run
from cluster_sim.run_kinds import of_all, run_kinds, with_vllm_limits
from cluster_sim.workload import Workload
from cluster_sim.world import columns, new_world

REQUESTS_PER_SLICE = 20_000  # between two reports of progress: about a tenth of a second
Progress = Callable[[int, int], None]  # (requests dispatched, all requests)
Drive = Callable[[Rules, Progress | None], tuple[World, float]]  # as drive_here


def drive_here(rules: Rules, report: Progress | None = None) -> tuple[World, float]:
    """Run to the end in this process: the world at the end, and seconds inside the compiled engine."""
    world = new_world(rules)
    return world, drive(world, rules, report)


def simulate(config: Config, report: Progress | None = None, run: Drive = drive_here) -> Run:
    """Build and run one simulation; `run` says where.

    Raises:
        UserError: the configuration, its bundle or its trace is wrong, or does not fit.
    """
    started = time.perf_counter()
    config = resolved(config)
    built = build(config)
    world, engine_wall_s = run(built.rules, report)
    kinds = run_kinds(built)
    return Run(
        config=with_each(config, with_vllm_limits),
        requests=columns(built.rules.workload.requests),
        log=columns(world.log),
        tally=world.tally._replace(totals=columns(world.tally.totals)),
        usable_blocks=built.rules.batching["num_gpu_blocks"] - 1,
        class_names=built.workload.class_names,
        traffic=kinds[0].traffic,
        memory_bytes=kinds[0].memory_bytes if len(kinds) == 1 else {},
        bundle_name="; ".join(dict.fromkeys(one.bundle_name for one in kinds)),
        bundle_digest=of_all_digests([one.bundle_digest for one in kinds]),
        workload_source=built.workload.source,
        workload_digest=digest_of(built.workload),
        acceptance_source=of_all((one.kind.words, one.acceptance_source) for one in kinds),
        draft_cost=of_all((one.kind.words, one.draft_cost) for one in kinds),
        warnings=built.warnings,
        engine_wall_s=engine_wall_s,
        wall_s=time.perf_counter() - started,
        kinds=kinds,
    )


def of_all_digests(digests: Sequence[str]) -> str:
    """The digest that all of `digests` are, else one of all of them."""
    return digests[0] if len(set(digests)) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def digest_of(workload: Workload) -> str:
    """Hex digest of what the clients ask for."""
    columns = (
        workload.arrival_s,
        workload.prompt_tokens,
        workload.output_tokens,
        workload.workload_class,
        workload.priority,
        workload.session,
        workload.content_start,
        workload.content_ids,
    )
    return hashlib.sha256(b"".join(np.ascontiguousarray(column).tobytes() for column in columns)).hexdigest()


def warm_up(config: Config) -> None:
    """Compile the engine, or load what an earlier process compiled, before workers need it all at once."""
    rules = build(config).rules
    loop.run_until(new_world(rules), rules, 0, 0.0)


def drive(world: World, rules: Rules, report: Progress | None = None) -> float:
    """Run to the end of the last request; seconds inside the compiled engine.

    The run is cut into slices at windows of the router, which changes no result (loop.run_until).
    """
    arrivals_s = rules.workload.requests["arrival_s"]
    interval_s = rules.routing.signal_interval_s
    request, engine_wall_s, status = 0, 0.0, int(Status.done)
    for last in range(REQUESTS_PER_SLICE, len(arrivals_s) + REQUESTS_PER_SLICE, REQUESTS_PER_SLICE):
        until_s = math.inf
        if last < len(arrivals_s):
            until_s = router.window_start_s(interval_s, float(arrivals_s[last]))
        started = time.perf_counter()
        request, status = loop.run_until(world, rules, request, until_s)
        engine_wall_s += time.perf_counter() - started
        if report is not None:
            report(request, len(arrivals_s))
    check_done(status)
    return engine_wall_s


def check_done(status: int) -> None:
    """Raise where the engine reports at the end of a run that a request is left.

    Raises:
        RuntimeError: build.py let a request pass that no instance can serve.
    """
    if status != Status.done:
        raise RuntimeError(
            "a request at the head of a queue can never be admitted, though build.py let it pass"
        )
