"""The budgets of ../shared/DESIGN.md section 12, measured on this machine: `make bench`.

Nothing here passes or fails: each line gives the figure, the budget and their ratio (above 1: better than the
budget). Standard load: Llama-3.1-8B on H100, Poisson at 40 requests/s per instance, prompt 512, output 128,
eagle3 with K = 3.
"""

import json
import math
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numba
import numpy as np

from cluster_sim.build import build
from cluster_sim.compose import Composer, compose
from cluster_sim.config import ExecutorConfig, ExecutorKind
from cluster_sim.engine import loop, router
from cluster_sim.engine.kinds import RouterPolicy
from cluster_sim.engine.rules import Rules
from cluster_sim.engine.state import World
from cluster_sim.executors import drive_of, open_executor
from cluster_sim.hosts import rules_of_router
from cluster_sim.run import drive
from cluster_sim.sweep import plan
from cluster_sim.trial import run_trial
from cluster_sim.world import new_world

ROOT = Path(__file__).resolve().parent.parent
BIG = ("cluster.instances=256", "workload.request_rate=10240")


def main() -> None:
    """Print every figure."""
    print(f"machine: {_processor()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    _commands()
    _engine()
    _growth()
    _sharing()
    _sweep()
    _study()
    _big_cluster()
    _routing()
    _reading()


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _line(what: str, figure: str, budget: str, ratio: float | None = None) -> None:
    better = "" if ratio is None else f"   {ratio:5.2f}x the budget"
    print(f"{what:<58} {figure:>22}   budget {budget:<18}{better}", flush=True)


def _seconds(arguments: list[str], **environment: str) -> float:
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "cluster_sim", *arguments],
        check=True,
        capture_output=True,
        cwd=ROOT,
        env={**os.environ, **environment},
    )
    return time.perf_counter() - started


def _commands() -> None:
    """Start-up of the command line: help, first compilation, and with compiled code at hand."""
    print("\ncommand line")
    with tempfile.TemporaryDirectory() as scratch:
        one = ["executor=serial", "workload.requests=200", "output.page=false"]
        took_s = _seconds(["--help"])
        _line("--help", f"{took_s:.2f} s", "< 1 s", 1 / took_s)
        cold_s = _seconds([*one, f"output.dir={scratch}/cold"], XDG_CACHE_HOME=scratch)
        _line("first result, nothing compiled", f"{cold_s:.1f} s", "< 25 s", 25 / cold_s)
        warm_s = _seconds([*one, f"output.dir={scratch}/warm"], XDG_CACHE_HOME=scratch)
        _line("first result, compiled before", f"{warm_s:.2f} s", "< 3 s", 3 / warm_s)


def _measure(*overrides: str) -> tuple[float, int, int, int]:
    """Simulate: seconds in the engine, requests, steps, scheduled requests summed over steps."""
    rules = build(compose(overrides)).rules
    world = new_world(rules)
    took_s = drive(world, rules).engine_wall_s
    by_size = world.tally.batch_size_steps.sum(axis=0)
    entries = int(by_size @ np.arange(len(by_size)))
    return took_s, rules.workload.requests.shape[0], int(by_size.sum()), entries


def _engine() -> None:
    """Speed of the compiled engine on one core."""
    print("\nengine, one core")
    _measure("workload.requests=10")  # loads the compiled code
    for instances in (1, 16):
        rate, count = 40 * instances, 100_000
        took_s, requests, steps, entries = _measure(
            f"cluster.instances={instances}", f"workload.request_rate={rate}", f"workload.requests={count}"
        )
        per_s = requests / took_s
        what = f"standard load, {instances} instance(s), batch {entries / steps:.0f}"
        _line(what, f"{per_s:,.0f} requests/s", ">= 150,000", per_s / 150_000)
    for seats in (8, 64, 256):
        took_s, _, steps, entries = _measure(
            f"engine.max_num_seqs={seats}", "workload.request_rate=100", "workload.requests=50000"
        )
        allowed_ns = 1500 * steps + 40 * entries
        what = f"batch {entries / steps:.0f}: {1e9 * took_s / steps:,.0f} ns/step"
        figure = f"{1e9 * took_s / entries:.1f} ns/request"
        _line(what, figure, "1500 + 40/request", allowed_ns / (1e9 * took_s))


def _growth() -> None:
    """Requests on 16 instances from ten thousand to a million, and the memory of the largest."""
    print("\ngrowth, 16 instances")
    for count in (10_000, 100_000, 1_000_000):
        took_s, *_ = _measure(
            "cluster.instances=16", "workload.request_rate=640", f"workload.requests={count}"
        )
        budget = 10 * count / 1_000_000
        _line(f"{count:,} requests", f"{took_s:.2f} s", f"< {budget:g} s", budget / took_s)
    peak_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    _line("peak memory of this process", f"{peak_gib:.2f} GiB", "< 1 GiB", 1 / peak_gib)


def _sharing() -> None:
    """Prefix caching on against off, on the standard load."""
    print("\nprefix caching, one instance, no sharing")
    on_s, *_ = _measure("workload.request_rate=40", "workload.requests=100000")
    off_s, *_ = _measure(
        "workload.request_rate=40", "workload.requests=100000", "engine.enable_prefix_caching=false"
    )
    _line("time with caching / without", f"{on_s / off_s:.2f}x", "< 2x", 2 * off_s / on_s)


def _sweep() -> None:
    """A sweep of 1,000 trials on Ray, from the command line: its start, composition and report included."""
    print("\nsweep, 1,000 trials x 2,000 requests")
    took_s = {}
    with tempfile.TemporaryDirectory() as scratch:
        for workers in (1, 2):
            took_s[workers] = _seconds(
                [
                    "+sweep=spec_grid",
                    f"sweep.seeds={list(range(20))}".replace(" ", ""),
                    "executor=ray",
                    f"executor.workers={workers}",
                    f"output.dir={scratch}/{workers}",
                ]
            )
    _line("two workers", f"{took_s[2]:.1f} s", "< 40 s", 40 / took_s[2])
    faster = took_s[1] / took_s[2]
    _line("two workers against one, all included", f"{faster:.2f}x", "-")
    faster = _trials_s(1) / _trials_s(2)
    _line("two workers against one, while trials run", f"{faster:.2f}x", ">= 1.7x", faster / 1.7)


def _trials_s(workers: int) -> float:
    """Time of the sweep's trials on workers that have started and loaded the compiled code."""
    composer = Composer(["+sweep=spec_grid", f"sweep.seeds={list(range(10))}".replace(" ", "")])
    assert composer.config.sweep is not None
    trials = plan(composer, composer.config.sweep)
    with open_executor(ExecutorConfig(ExecutorKind.ray, workers=workers), len(trials)) as executor:
        list(executor.run(run_trial, trials[: 8 * workers]))
        started = time.perf_counter()
        list(executor.run(run_trial, trials))
        return time.perf_counter() - started


def _study() -> None:
    """A study on Ray, from the command line: its verdict, its sensitivity and its page included."""
    print("\nstudy, 300 trials x 3 loads x 3 seeds x 2,000 requests, two workers")
    with tempfile.TemporaryDirectory() as scratch:
        asked = ["+study=draft_schedule", "study.trials=300", "executor=ray", "executor.workers=2"]
        took_s = _seconds([*asked, f"output.dir={scratch}/study"])
        summary = json.loads(Path(scratch, "study", "summary.json").read_text())
    _line("all included", f"{took_s:.1f} s", "< 90 s", 90 / took_s)
    share = summary["optimiser_wall_s"] / took_s
    _line("of it the optimiser", f"{100 * share:.1f} %", "< 20 %", 0.2 / share)


def _big_cluster() -> None:
    """A million requests on 256 instances, in this process and on two workers of Ray."""
    print("\n256 instances, 1,000,000 requests")
    rules = build(compose([*BIG, "workload.requests=1000000"])).rules
    for name, config in (
        ("in this process", ExecutorConfig(ExecutorKind.serial)),
        ("on two workers, Ray start included", ExecutorConfig(ExecutorKind.ray, workers=2)),
    ):
        started = time.perf_counter()
        drive_of(config)(rules, None)
        took_s = time.perf_counter() - started
        _line(name, f"{took_s:.1f} s, {1_000_000 / took_s:,.0f} requests/s", "it runs")
    peak_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    _line("peak memory of this process", f"{peak_gib:.2f} GiB", "< 24 GiB", 24 / peak_gib)


def _routing() -> None:
    """The router alone: its instances are elsewhere and never busy."""
    print("\nrouting, 256 instances")
    rules = build(compose([*BIG, "workload.requests=100000"])).rules
    for policy in RouterPolicy:
        alone = rules_of_router(rules._replace(routing=rules.routing._replace(policy=int(policy))))
        world = new_world(alone)
        loop.run_until(world, alone, 0, 0.0)  # loads the compiled code
        started = time.process_time()
        loop.run_until(world, alone, 0, math.inf)
        took_ns = 1e9 * (time.process_time() - started) / 100_000
        budget_ns = 2000 if policy == RouterPolicy.prefix_aware else 100
        _line(policy.name, f"{took_ns:.0f} ns/request", f"< {budget_ns:,} ns", budget_ns / took_ns)
    _looking_for_prefixes()


def _looking_for_prefixes() -> None:
    """What prefix_aware takes beyond that where prompts are cached: conversations behind a system prompt."""
    shared = ("workload.shared_prefix.tokens=1024", "workload.turns={mean: 4, gap_s: 5}")
    count = 20_000
    rules = build(compose([*BIG, *shared, f"workload.requests={count}", "router=prefix_aware"])).rules
    world = new_world(rules)
    loop.run_until(world, rules, 0, math.inf)  # fills the caches
    look_for_all = numba.njit(_look_for_all)
    look_for_all(world, rules, 1)  # compiles
    started = time.process_time()
    blocks = look_for_all(world, rules, count)
    took_ns = 1e9 * (time.process_time() - started) / count
    what = f"prefix_aware: its look for prompts ({blocks / count:.0f} blocks found)"
    _line(what, f"{took_ns:.0f} ns/request", "< 2,000 ns", 2000 / took_ns)


def _look_for_all(world: World, rules: Rules, count: int) -> int:
    blocks = 0
    for request in range(count):
        router.look_for_prefix(world, rules, request)
        blocks += world.hits[0].max() // rules.batching[0].block_size
    return blocks


READ = """
import sys, time
from pathlib import Path
from cluster_sim.traces import read_trace
started = time.perf_counter()
read_trace(Path(sys.argv[1]))
took_s = time.perf_counter() - started
(peak,) = (line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(took_s, int(peak) / 2**20)  # getrusage's peak is that of the parent too
"""


def _reading() -> None:
    """A million rows as Azure's CSV and as Mooncake's JSON lines, ten hash ids in each."""
    print("\ntraces, 1,000,000 rows")
    count = 1_000_000
    with tempfile.TemporaryDirectory() as scratch:
        for name in ("azure.csv", "mooncake.jsonl"):
            path = Path(scratch) / name
            with path.open("w") as lines:
                if name == "azure.csv":
                    lines.write("TIMESTAMP,ContextTokens,GeneratedTokens\n")
                for at in range(count):
                    lines.write(_azure_row(at) if name == "azure.csv" else _mooncake_row(at, count))
            command = [sys.executable, "-c", READ, str(path)]
            done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
            took_s, peak_gib = map(float, done.stdout.split())
            _line(name, f"{took_s:.1f} s, {peak_gib:.2f} GiB", "< 5 s, < 1 GiB", 5 / took_s)


def _azure_row(at: int) -> str:
    hour, minute, second = at // 36000 % 24, at // 600 % 60, at // 10 % 60
    return f"2023-11-16 {hour:02}:{minute:02}:{second:02}.{at % 10},{at % 4000 + 1},128\n"


def _mooncake_row(at: int, count: int) -> str:
    ids = [10 * count + at // 50, *range(9 * at, 9 * at + 9)]
    return f'{{"timestamp": {at}, "input_length": 5000, "output_length": 128, "hash_ids": {ids}}}\n'


if __name__ == "__main__":
    main()
