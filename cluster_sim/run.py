"""One simulation: build, run, and word what a kernel reports."""

import hashlib
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cluster_sim.as_sent import as_sent
from cluster_sim.build import build
from cluster_sim.config import Config
from cluster_sim.engine import loop
from cluster_sim.engine.kinds import Status
from cluster_sim.engine.rules import Rules
from cluster_sim.engine.state import World
from cluster_sim.fault_report import warnings_of
from cluster_sim.faults import Happened, Plan, apply, finish, is_over, moments, plan_of
from cluster_sim.fleet import Sampler, Samples
from cluster_sim.instances import with_each
from cluster_sim.optimum import resolved
from cluster_sim.results import Run
from cluster_sim.run_kinds import of_all, run_kinds, with_vllm_limits
from cluster_sim.slices import slices_s
from cluster_sim.workload import Workload
from cluster_sim.world import columns, new_world

REQUESTS_PER_SLICE = 20_000  # between two reports of progress: about a tenth of a second
Progress = Callable[[int, int], None]  # (requests dispatched, all requests)
NO_FAULTS = Plan()


class Driven(NamedTuple):
    """A run at its end."""

    world: World
    engine_wall_s: float  # inside the compiled engine
    faults: tuple[Happened, ...] = ()  # those that came true
    fleet: Samples | None = None  # where it was asked for


RunUntil = Callable[[World, Rules, int, float], tuple[int, int]]  # as loop.run_until
Drive = Callable[[Rules, Progress | None, Plan], Driven]  # as drive_here


def drive_here(
    rules: Rules, report: Progress | None = None, plan: Plan = NO_FAULTS, sampler: Sampler | None = None
) -> Driven:
    """Run to the end in this process."""
    return drive(new_world(rules), rules, report, plan, sampler)


def simulate(config: Config, report: Progress | None = None, run: Drive = drive_here) -> Run:
    """Build and run one simulation; `run` says where.

    Raises:
        UserError: the configuration, its bundle or its trace is wrong, or does not fit.
    """
    started = time.perf_counter()
    config = resolved(config)
    built = build(config)
    plan = plan_of(config)
    world, engine_wall_s, faults, fleet = run(built.rules, report, plan)
    asked, log, due_s, unsent = as_sent(built.rules, world)
    met = warnings_of(plan, faults, config.cluster.instances, asked["arrival_s"], log["outcome"])
    kinds = run_kinds(built)
    return Run(
        config=with_each(config, with_vllm_limits),
        requests=asked,
        log=log,
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
        warnings=(*built.warnings, *met),
        engine_wall_s=engine_wall_s,
        wall_s=time.perf_counter() - started,
        kinds=kinds,
        faults=faults,
        unsent=unsent,
        due_s=due_s,
        fleet=fleet,
    )


def of_all_digests(digests: Sequence[str]) -> str:
    """The digest that all of `digests` are, else one of all of them."""
    return digests[0] if len(set(digests)) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def digest_of(workload: Workload) -> str:
    """Hex digest of what the clients ask for."""
    columns: tuple[NDArray[Any], ...] = (
        workload.arrival_s,
        workload.prompt_tokens,
        workload.output_tokens,
        workload.workload_class,
        workload.priority,
        workload.session,
        workload.content_start,
        workload.content_ids,
    )
    if workload.clients:
        columns = (*columns, workload.think_s, np.array(workload.clients))
    return hashlib.sha256(b"".join(np.ascontiguousarray(column).tobytes() for column in columns)).hexdigest()


def warm_up(config: Config) -> None:
    """Compile the engine, or load what an earlier process compiled, before workers need it all at once."""
    rules = build(config).rules
    loop.run_until(new_world(rules), rules, 0, 0.0)


def drive(
    world: World,
    rules: Rules,
    report: Progress | None = None,
    plan: Plan = NO_FAULTS,
    sampler: Sampler | None = None,
) -> Driven:
    """Run to the end of the last request, through the faults of `plan`; `sampler` looks at it on the way."""
    request, engine_wall_s, happened = 0, 0.0, list[Happened]()
    run_until = loop.run_until if sampler is None else sampler.run_until
    for at_s, changes in (*moments(plan), (math.inf, [])):
        request, status, took_s = _run_up_to(world, rules, request, at_s, report, run_until)
        engine_wall_s += took_s
        if changes and not is_over(world):
            rules, events = apply(world, rules, plan, changes, at_s)
            happened += events
    finish(world, rules, plan)
    check_done(status)
    return Driven(world, engine_wall_s, tuple(happened), None if sampler is None else sampler.samples)


def check_done(status: int) -> None:
    """Raise where the engine reports at the end of a run that a request is left.

    Raises:
        RuntimeError: build.py let a request pass that no instance can serve.
    """
    if status != Status.done:
        raise RuntimeError(
            "a request at the head of a queue can never be admitted, though build.py let it pass"
        )


def _run_up_to(  # noqa: PLR0913, PLR0917  where it is, how far it goes, and by what
    world: World,
    rules: Rules,
    request: int,
    until_s: float,
    report: Progress | None,
    run_until: RunUntil,
) -> tuple[int, int, float]:
    """Run from `request` on up to `until_s`: next request, Status, seconds inside the compiled engine.

    It is cut into slices (slices.py).
    """
    requests = rules.workload.requests.shape[0]
    engine_wall_s = 0.0
    for end_s in slices_s(world, rules, request, until_s, REQUESTS_PER_SLICE):
        started = time.perf_counter()
        request, status = run_until(world, rules, request, end_s)
        engine_wall_s += time.perf_counter() - started
        if report is not None:
            report(request, requests)
    return request, status, engine_wall_s
