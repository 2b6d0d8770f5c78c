"""Instances of one simulation on Ray: the same bytes however they are placed, and after a host was killed."""

import os
import signal
import time
import uuid
from pathlib import Path

import pytest
from sweeping import Driver
from test_hosts import bytes_of, crowded

from cluster_sim.compose import compose
from cluster_sim.config import ExecutorConfig, ExecutorKind
from cluster_sim.drive_hosts import drive_hosts
from cluster_sim.engine.kinds import RouterPolicy
from cluster_sim.engine.rules import Rules
from cluster_sim.engine.tables import Ints
from cluster_sim.errors import UserError
from cluster_sim.executors import drive_of, ray_instances
from cluster_sim.executors.ray_instances import HostWorker, RayInstances, open_instances
from cluster_sim.hosts import Answer, Order
from cluster_sim.run import drive_here
from cluster_sim.single import run_single

ROOT = Path(__file__).resolve().parent.parent
HOST = "ray::HostWorker"


@pytest.fixture(autouse=True)
def mark(monkeypatch: pytest.MonkeyPatch) -> str:
    """What the environment of every process of the test holds; workers find this module and the package."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "tests")]))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    name = str(uuid.uuid4())
    monkeypatch.setenv("CLUSTER_SIM_TEST", name)
    return f"CLUSTER_SIM_TEST={name}"


def hosts_with(mark: str) -> list[int]:
    """Processes of hosts whose environment holds `mark`."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            is_host = HOST.encode() in (entry / "cmdline").read_bytes()
            if is_host and mark.encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except (OSError, ValueError):
            continue
    return found


class Dying(RayInstances):
    """Hosts of which the last is killed, with kill -9, when orders of these numbers are out."""

    mark = ""
    at: tuple[int, ...] = ()
    orders = 0

    def advance(self, sent_to: Ints, first: int, last: int, until_s: float) -> None:
        super().advance(sent_to, first, last, until_s)
        self.orders += 1
        if self.orders in self.at:
            os.kill(max(hosts_with(self.mark)), signal.SIGKILL)


@pytest.mark.ray
@pytest.mark.parametrize(
    ("per_host", "policy"),
    [(1, RouterPolicy.prefix_aware), (2, RouterPolicy.random), (5, RouterPolicy.least_kv)],
)
def test_every_placement_on_ray_gives_the_bytes_of_one_process(
    per_host: int, policy: RouterPolicy, capfd: pytest.CaptureFixture[str]
) -> None:
    """One instance in each of five workers, more than there are cores; some; all in one."""
    rules = crowded(policy, 0.5, 2)
    config = ExecutorConfig(ExecutorKind.ray, instances_per_host=per_host)
    expected = drive_here(rules).world
    found = drive_of(config)(rules, None).world
    assert bytes_of(found) == bytes_of(expected)
    assert capfd.readouterr() == ("", "")


@pytest.mark.ray
@pytest.mark.parametrize("policy", [RouterPolicy.prefix_aware, RouterPolicy.random])
def test_a_host_that_is_killed_does_its_work_again_and_nobody_talks_about_it(
    policy: RouterPolicy, mark: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    rules = crowded(policy, 0.5, 1)
    expected = drive_here(rules).world
    monkeypatch.setattr(ray_instances, "RayInstances", Dying)
    monkeypatch.setattr(Dying, "mark", mark)
    monkeypatch.setattr(Dying, "at", (1, 4) if policy is RouterPolicy.prefix_aware else (1,))
    with open_instances(ExecutorConfig(ExecutorKind.ray, workers=2), rules) as hosts:
        found = drive_hosts(rules, hosts).world
        assert hosts.orders >= max(hosts.at)
    assert bytes_of(found) == bytes_of(expected)
    assert capfd.readouterr() == ("", "")


class Fatal(HostWorker):
    """A host that its first order kills."""

    def begin(self, rules: Rules, cores: range, order: Order) -> Answer | None:
        os.kill(os.getpid(), signal.SIGKILL)
        return super().begin(rules, cores, order)


@pytest.mark.ray
def test_work_that_kills_its_host_again_and_again_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_instances, "HostWorker", Fatal)
    config = ExecutorConfig(ExecutorKind.ray, instances_per_host=5)
    with pytest.raises(UserError) as caught:
        drive_of(config)(crowded(RouterPolicy.least_requests, 0.5, 1), None)
    assert str(caught.value).startswith("work must not kill its worker 4 times, but got ")
    assert str(caught.value).endswith(
        "(executor). If memory is short, lower executor.workers; executor=serial shows what happens."
    )


@pytest.mark.ray
def test_a_simulation_on_two_hosts_leaves_the_same_files_and_reports_progress(tmp_path: Path) -> None:
    common = ["workload.requests=400", "cluster.instances=5", "workload.request_rate=40"]
    seen: list[tuple[int, int]] = []
    for name in ("serial", "ray"):
        seen.clear()
        workers = ["executor.workers=2"] if name == "ray" else []
        config = compose([*common, f"executor={name}", *workers, f"output.dir={tmp_path / name}"])
        run_single(config, lambda done, total: seen.append((done, total)))
        assert seen[-1] == (400, 400)
    for file in ("trials.parquet", "requests/trial-00000.parquet", "fleet.parquet"):
        assert (tmp_path / "serial" / file).read_bytes() == (tmp_path / "ray" / file).read_bytes()


@pytest.mark.ray
@pytest.mark.slow
def test_an_interruption_leaves_no_process(tmp_path: Path) -> None:
    """Thousands of windows: the hosts are at work when Ctrl-C comes."""
    long = ["workload.requests=100000", "workload.request_rate=40", "cluster.instances=4"]
    driver = Driver(*long, "executor=ray", "executor.workers=2", f"output.dir={tmp_path / 'out'}")
    try:
        deadline_s = time.monotonic() + 90
        while len(driver.processes(HOST)) < 2 and time.monotonic() < deadline_s:
            time.sleep(0.1)
        time.sleep(3)
        os.killpg(driver.process.pid, signal.SIGINT)
        code, out, err = driver.end()
        assert (code, out) == (130, "")
        assert err.endswith("cluster_sim: interrupted\n")
        assert "Traceback" not in err
        assert driver.is_gone(within_s=10)
    finally:
        driver.kill()
