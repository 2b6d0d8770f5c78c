"""Executors: the same work with the same results in this process, on Ray's workers, and when those die."""

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster_sim.config import ExecutorConfig, ExecutorKind
from cluster_sim.errors import UserError
from cluster_sim.executors import Executor, chosen_kind, open_executor
from cluster_sim.executors.address import Address, check_answers, given_address
from cluster_sim.executors.serial import Serial

ROOT = Path(__file__).resolve().parent.parent
AUTO, SERIAL, RAY = ExecutorKind.auto, ExecutorKind.serial, ExecutorKind.ray


def doubled(number: int) -> int:
    return 2 * number


def refused(number: int) -> int:
    raise UserError("a number must be even", number, "here", "Double it.")


def broken(number: int) -> float:
    return 1 / (number - number)


def doubled_by_a_worker_that_dies_once(task: tuple[int, str]) -> int:
    number, marker = task
    with contextlib.suppress(FileExistsError):
        Path(marker).touch(exist_ok=False)
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * number


def fatal(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def process_of(number: int) -> tuple[int, str, str]:
    time.sleep(0.1 * number)
    return os.getpid(), os.environ["OMP_NUM_THREADS"], os.getcwd()


class ExecutorContract:
    """What every executor keeps."""

    @pytest.fixture
    def executor(self) -> Executor:
        pytest.fail("a suite of this contract names its executor")

    def test_every_piece_is_done_once(self, executor: Executor) -> None:
        assert sorted(executor.run(doubled, range(100))) == list(range(0, 200, 2))

    def test_no_work_gives_no_results(self, executor: Executor) -> None:
        assert list(executor.run(doubled, [])) == []

    def test_it_can_be_given_work_again(self, executor: Executor) -> None:
        assert [list(executor.run(doubled, [number])) for number in (1, 2)] == [[2], [4]]

    def test_an_error_of_the_user_comes_back_as_it_was(self, executor: Executor) -> None:
        with pytest.raises(UserError) as caught:
            list(executor.run(refused, [3]))
        assert type(caught.value) is UserError
        assert str(caught.value) == "a number must be even, but got 3 (here). Double it."

    def test_a_defect_of_the_work_is_no_error_of_the_user(self, executor: Executor) -> None:
        with pytest.raises(ZeroDivisionError):
            list(executor.run(broken, [1]))

    def test_work_may_grow_while_results_are_taken(self, executor: Executor) -> None:
        work = deque([1, 2, 3])
        results = []
        for result in executor.run(doubled, work):
            results.append(result)
            if result < 40:
                work.append(10 * result)
        assert sorted(results) == sorted([2, 4, 6, 40, 80, 120])
        assert not work

    def test_work_that_grows_as_the_last_result_is_taken_is_done_too(self, executor: Executor) -> None:
        work = deque([1])
        results = []
        for result in executor.run(doubled, work):
            results.append(result)
            if len(results) < 5:
                work.append(result)
        assert results == [2, 4, 8, 16, 32]

    def test_work_may_be_left_half_done(self, executor: Executor) -> None:
        assert next(executor.run(doubled, range(100))) % 2 == 0
        assert sorted(executor.run(doubled, [5, 6])) == [10, 12]


class TestSerial(ExecutorContract):
    """In this process."""

    @pytest.fixture
    def executor(self) -> Executor:
        return Serial()


@pytest.fixture(scope="class")
def cluster() -> Iterator[Executor]:
    """A local Ray of two workers, which find this module and the package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "tests")]))
        patch.delenv("RAY_ADDRESS", raising=False)
        with open_executor(ExecutorConfig(RAY, workers=2), pieces=100) as executor:
            yield executor


@pytest.mark.ray
class TestRay(ExecutorContract):
    """On worker processes."""

    @pytest.fixture
    def executor(self, cluster: Executor) -> Executor:
        return cluster

    def test_workers_are_other_processes_of_one_thread_in_the_same_directory(
        self, executor: Executor
    ) -> None:
        seen = list(executor.run(process_of, [1, 2, 3, 4]))
        processes, threads, directories = ({one[place] for one in seen} for place in range(3))
        assert len(processes) == 2
        assert os.getpid() not in processes
        assert threads == {"1"}
        assert directories == {os.getcwd()}

    def test_the_work_of_a_worker_that_dies_is_done_again_and_nobody_talks_about_it(
        self, executor: Executor, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        tasks = [(number, str(tmp_path / "died")) for number in range(50)]
        assert sorted(executor.run(doubled_by_a_worker_that_dies_once, tasks)) == list(range(0, 100, 2))
        assert (tmp_path / "died").exists()
        assert capfd.readouterr() == ("", "")

    def test_work_that_kills_every_worker_is_given_up(self, executor: Executor) -> None:
        with pytest.raises(UserError, match=r"^work must not kill its worker 4 times, but got "):
            list(executor.run(fatal, [1]))


@pytest.mark.parametrize(
    ("config", "pieces", "kind"),
    [
        (ExecutorConfig(AUTO), 1, SERIAL),
        (ExecutorConfig(AUTO), 2, RAY),
        (ExecutorConfig(AUTO, address="host:1"), 1, RAY),
        (ExecutorConfig(AUTO, address="local"), 1, SERIAL),
        (ExecutorConfig(SERIAL), 1000, SERIAL),
        (ExecutorConfig(RAY), 1, RAY),
        (ExecutorConfig(AUTO, instances_per_host=4), 1, RAY),
    ],
)
def test_auto_takes_ray_for_several_pieces_or_a_given_address(
    config: ExecutorConfig, pieces: int, kind: ExecutorKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert chosen_kind(config, pieces) is kind


def test_the_address_of_the_configuration_goes_before_that_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "there:2")
    assert given_address(ExecutorConfig(RAY)) == Address("there:2", "RAY_ADDRESS")
    assert given_address(ExecutorConfig(RAY, address="here:1")) == Address("here:1", "executor.address")
    assert given_address(ExecutorConfig(RAY, address="local")) is None
    assert chosen_kind(ExecutorConfig(AUTO), 1) is RAY


@pytest.mark.parametrize("text", ["host", "host:port", ":6379", "ray://host:10001", "http://host:8265"])
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UserError) as caught:
        check_answers(Address(text, "executor.address"))
    assert str(caught.value) == (
        f"the address of a Ray cluster must be HOST:PORT, auto or local, but got '{text}' "
        "(executor.address). Give the address that `ray start` printed."
    )


def test_an_address_where_nothing_listens_is_refused_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    assert refusal_of(address) == (
        f"a Ray cluster must answer at its address, but got [Errno 111] Connection refused at {address} "
        "(executor.address). Start it (`ray start --head`), correct the address, or unset executor.address "
        "for a local Ray."
    )


def test_an_address_where_nobody_answers_is_refused_within_five_seconds() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        started_s = time.monotonic()
        assert "but got timed out at 127.0.0.1" in refusal_of(f"127.0.0.1:{silent.getsockname()[1]}")
    assert time.monotonic() - started_s < 5.0


def test_an_address_where_something_else_answers_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        answering = threading.Thread(target=answer_as_a_web_server, args=(server,))
        answering.start()
        reason = refusal_of(f"127.0.0.1:{server.getsockname()[1]}")
        answering.join()
    assert "but got something else listens there at 127.0.0.1" in reason


def answer_as_a_web_server(server: socket.socket) -> None:
    connection, _ = server.accept()
    with connection:
        connection.recv(100)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def refusal_of(address: str) -> str:
    with pytest.raises(UserError) as caught, open_executor(ExecutorConfig(RAY, address=address), pieces=1):
        pytest.fail("it was joined")
    return str(caught.value)


def test_serial_work_needs_no_ray() -> None:
    code = "import cluster_sim.executors, cluster_sim.sweep, sys; sys.exit('ray' in sys.modules)"
    assert os.spawnve(os.P_WAIT, sys.executable, [sys.executable, "-c", code], {"PYTHONPATH": str(ROOT)}) == 0
