"""The budgets of ../shared/DESIGN.md section 12, measured on this machine: `make bench`.

Nothing here passes or fails: each line gives the figure, the budget and their ratio (above 1: better than the
budget). Standard load: Llama-3.1-8B on H100, Poisson at 40 requests/s per instance, prompt 512, output 128,
eagle3 with K = 3.
"""

import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from cluster_sim.build import build
from cluster_sim.compose import compose
from cluster_sim.config import RouterPolicy
from cluster_sim.run import drive
from cluster_sim.world import new_world

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    """Print every figure."""
    print(f"machine: {_processor()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    _commands()
    _engine()
    _growth()
    _sharing()
    _routing()


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
        one = ["executor=serial", "workload.requests=200"]
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
    took_s = drive(world, rules)
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


def _routing() -> None:
    """What a request costs the router of 256 instances: no instance does anything; a look every 0.1 s."""
    print("\nrouting, 256 instances, no prefix in any cache")
    every = list(range(256))
    own = {
        RouterPolicy.weighted: [f"router.weights={[1] * 256}"],
        RouterPolicy.class_aware: [f"router.classes={{default: {every}}}"],
    }
    load = ["cluster.instances=256", "workload.request_rate=10240", "workload.requests=200000"]
    for policy in RouterPolicy:
        if policy is RouterPolicy.session_hash:
            continue  # it needs a trace with sessions
        small = ["engine.num_gpu_blocks=2048", "speculation=none"]
        rules = build(compose([f"router={policy.name}", *load, *small, *own.get(policy, [])])).rules
        rules = rules._replace(lockstep=np.zeros_like(rules.lockstep))
        took_ns = 1e9 * min(drive(new_world(rules), rules) for _ in range(15)) / 200_000
        budget_ns = 2000 if policy is RouterPolicy.prefix_aware else 100
        _line(policy.name, f"{took_ns:.0f} ns/request", f"< {budget_ns} ns", budget_ns / took_ns)


if __name__ == "__main__":
    main()
