"""What may befall a sweep on Ray: a killed worker, driver or node, Ctrl-C, a dead address."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sweeping import LONGER, ROOT, SMALL, TRIALS_OF_LONGER, Driver, bytes_of, swept

from cluster_sim.trials import JOURNAL


@pytest.fixture
def drive() -> Iterator[Callable[..., Driver]]:
    """Start a Driver; all that is left of it is killed after the test."""
    drivers: list[Driver] = []

    def start(*overrides: str, **environment: str) -> Driver:
        drivers.append(Driver(*overrides, **environment))
        return drivers[-1]

    yield start
    for driver in drivers:
        driver.kill()


@pytest.fixture(scope="module")
def longer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep of some seconds, run in this process without a break."""
    directory = tmp_path_factory.mktemp("longer")
    assert swept(directory, *LONGER) == 0
    return directory


@pytest.mark.ray
def test_ray_leaves_the_same_bytes_and_a_clean_stdout_although_a_worker_was_killed(
    tmp_path: Path, longer: Path, drive: Callable[..., Driver]
) -> None:
    driver = drive(*LONGER, "executor=ray", "executor.workers=2", f"output.dir={tmp_path}")
    driver.wait_for_trials(tmp_path, 20)
    (first, *others) = driver.processes("ray::Host")
    os.kill(first, signal.SIGKILL)
    code, out, err = driver.end()
    assert (code, len(others)) == (0, 1)
    assert out.lstrip().startswith("output throughput")
    assert all(line.startswith(("cluster_sim: ", "sweep: ")) for line in err.splitlines())
    assert bytes_of(tmp_path) == bytes_of(longer)
    assert driver.is_gone(within_s=10)


@pytest.mark.ray
@pytest.mark.slow
def test_after_kill_9_of_the_driver_only_what_is_missing_runs(
    tmp_path: Path, longer: Path, drive: Callable[..., Driver]
) -> None:
    """Two processes of Ray that do no work end by themselves only after a minute."""
    killed = drive(*LONGER, "executor=ray", "executor.workers=2", f"output.dir={tmp_path}")
    killed.wait_for_trials(tmp_path, 20)
    os.kill(killed.process.pid, signal.SIGKILL)
    killed.process.wait()
    assert killed.is_gone(within_s=20, named="ray::Host")
    kept = (tmp_path / JOURNAL).read_bytes().count(b"\n")
    assert 20 <= kept < TRIALS_OF_LONGER
    code, _, err = drive(*LONGER, "executor=ray", "executor.workers=2", f"output.dir={tmp_path}").end()
    assert code == 0
    assert f"{TRIALS_OF_LONGER} trials, {kept} kept from before" in err
    assert bytes_of(tmp_path) == bytes_of(longer)


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_leaves_no_process_and_says_how_to_go_on(
    sent: signal.Signals, tmp_path: Path, drive: Callable[..., Driver]
) -> None:
    driver = drive(*LONGER, "executor=ray", "executor.workers=2", f"output.dir={tmp_path}")
    driver.wait_for_trials(tmp_path, 20)
    os.killpg(driver.process.pid, sent) if sent is signal.SIGINT else driver.process.send_signal(sent)
    code, out, err = driver.end()
    assert (code, out) == (130, "")
    assert f"go on with output.dir={tmp_path}\ncluster_sim: interrupted\n" in err
    assert "Traceback" not in err
    assert driver.is_gone(within_s=5)


@pytest.fixture
def two_nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A cluster of two nodes of one core each, both on this machine; their workers find the package."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    token = [str(Path(sys.executable).with_name("ray")), "get-auth-token", "--generate"]
    subprocess.run(token, check=True, capture_output=True)  # on a new machine there is none
    from ray.cluster_utils import Cluster  # noqa: PLC0415  only here is a Ray in this process

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        cluster.add_node(num_cpus=1)
        yield cluster
    finally:
        cluster.shutdown()


@pytest.mark.ray
@pytest.mark.slow
def test_a_cluster_of_two_nodes_leaves_the_same_bytes(
    tmp_path: Path, longer: Path, drive: Callable[..., Driver], two_nodes: Any
) -> None:
    driver = drive(*LONGER, f"executor.address={two_nodes.address}", f"output.dir={tmp_path}")
    code, _, err = driver.end()
    assert code == 0, err
    assert bytes_of(tmp_path) == bytes_of(longer)


@pytest.mark.ray
@pytest.mark.slow
def test_a_cluster_that_loses_a_node_leaves_the_same_bytes(
    tmp_path: Path, longer: Path, drive: Callable[..., Driver], two_nodes: Any
) -> None:
    driver = drive(*LONGER, f"executor.address={two_nodes.address}", f"output.dir={tmp_path}")
    driver.wait_for_trials(tmp_path, 20)
    two_nodes.remove_node(two_nodes.worker_nodes.copy().pop(), allow_graceful=False)
    assert driver.end()[0] == 0
    assert bytes_of(tmp_path) == bytes_of(longer)


@pytest.mark.parametrize("setting", ["executor.address", "RAY_ADDRESS"])
def test_a_dead_address_is_refused_within_five_seconds(
    setting: str, tmp_path: Path, drive: Callable[..., Driver]
) -> None:
    """Five seconds of waiting: the start of Python comes on top."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    given = ([f"executor.address={address}"], {}) if "." in setting else ([], {setting: address})
    started_s = time.monotonic()
    code, _, err = drive(*SMALL, *given[0], f"output.dir={tmp_path}", **given[1]).end()
    assert time.monotonic() - started_s < 10.0
    assert code == 2
    assert f"Connection refused at {address} ({setting})" in err
    assert list(tmp_path.iterdir()) == []
