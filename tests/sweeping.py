"""Sweeps for tests: in this process, or in one of their own that can be interrupted and killed."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path

import pytest

from cluster_sim.compose import Composer
from cluster_sim.sweep import run_sweep
from cluster_sim.trials import JOURNAL, MACHINE_KEYS

ROOT = Path(__file__).resolve().parent.parent
SMALL = (
    "+sweep=spec_grid",
    "output.page=false",
    "sweep.axes.workload.request_rate=[4,60]",
    "sweep.seeds=[0,1]",
    "workload.requests=150",
)
TRIALS_OF_SMALL = 20  # 5 arms, 2 rates, 2 seeds
LONGER = (*SMALL, "sweep.seeds=[" + ",".join(map(str, range(25))) + "]", "workload.requests=1000")
TRIALS_OF_LONGER = 250


def swept(directory: Path, *overrides: str) -> int:
    """Run a sweep, by default the small one, in this process; the exit code."""
    given = [*(overrides or SMALL), "executor=serial", f"output.dir={directory}"]
    return run_sweep(Composer(given).config, given)


def bytes_of(directory: Path) -> dict[str, object]:
    """What a sweep leaves, but for how long it took."""
    summary = json.loads((directory / "summary.json").read_text())
    for key in MACHINE_KEYS:
        summary.pop(key)
    return {
        "files": sorted(file.name for file in directory.iterdir()),
        "trials": (directory / "trials.parquet").read_bytes(),
        "summary": summary,
    }


class Driver:
    """A sweep in a process of its own, and all processes that come from it."""

    def __init__(self, *overrides: str, **environment: str) -> None:
        self._mark = f"CLUSTER_SIM_TEST={uuid.uuid4()}"
        name, _, value = self._mark.partition("=")
        settings = {key: text for key, text in os.environ.items() if key != "RAY_ADDRESS"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "cluster_sim", *overrides],
            cwd=ROOT,
            env={**settings, name: value, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def end(self) -> tuple[int, str, str]:
        """Exit code, stdout and stderr."""
        out, err = self.process.communicate(timeout=120)
        return self.process.returncode, out, err

    def processes(self, named: str = "") -> list[int]:
        """Those that live of this driver, itself too; Ray's `named` ones only."""
        return [int(entry.name) for entry in Path("/proc").iterdir() if self._is_mine(entry, named)]

    def _is_mine(self, entry: Path, named: str) -> bool:
        try:
            mine = self._mark.encode() in (entry / "environ").read_bytes().split(b"\0")
            return mine and named.encode() in (entry / "cmdline").read_bytes()
        except (OSError, ValueError):
            return False

    def wait_for_trials(self, directory: Path, count: int) -> None:
        deadline_s = time.monotonic() + 90
        while time.monotonic() < deadline_s and self.process.poll() is None:
            journal = directory / JOURNAL
            if journal.exists() and journal.read_bytes().count(b"\n") >= count:
                return
            time.sleep(0.02)
        pytest.fail(f"no {count} trials came: {self.end()}")

    def is_gone(self, within_s: float, named: str = "") -> bool:
        """Whether no process is left, in time."""
        deadline_s = time.monotonic() + within_s
        while self.processes(named) and time.monotonic() < deadline_s:
            time.sleep(0.1)
        return not self.processes(named)

    def kill(self) -> None:
        """Kill what is left."""
        for process in self.processes():
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self.process.communicate()
