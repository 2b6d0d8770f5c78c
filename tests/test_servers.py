"""bundles/servers.yaml: properties of servers around profiled GPUs, each with a source, read strictly."""

from pathlib import Path

import numpy as np
import pytest
import yaml

from cluster_sim.bundle.servers import AllReduce, all_reduce_s, read_servers, servers
from cluster_sim.errors import UserError
from cluster_sim.paths import conf_dir, group_options

PARAMETER = {"value": 1e-3, "meaning": "m", "source": "s", "licence": "l"}
REDUCE = {"size_bytes": [1024, 2048, 4096], "time_us": [5.0, 6.0, 8.0], "source": "s", "licence": "l"}
SERVER = {
    "parameters": {"eager_overhead_s": PARAMETER},
    "by_tensor_parallel_size": {2: {"eager_overhead_s": PARAMETER | {"value": 2e-3}}},
    "all_reduce": {2: REDUCE},
}


def written(path: Path, **changes: object) -> Path:
    """A file of one server with changes; None removes a key."""
    server = {key: value for key, value in {**SERVER, **changes}.items() if value is not None}
    path.write_text(yaml.safe_dump({"mine": server}))
    return path


def test_a_size_of_its_own_wins_over_what_all_sizes_share(tmp_path):
    server = read_servers(written(tmp_path / "servers.yaml"))["mine"]
    found = [server.parameters(size)["eager_overhead_s"].value for size in (1, 2, 4)]
    assert found == [1e-3, 2e-3, 1e-3]


def test_only_parameters_are_needed(tmp_path):
    file = written(tmp_path / "servers.yaml", by_tensor_parallel_size=None, all_reduce=None)
    assert read_servers(file)["mine"].all_reduce == {}


def test_an_all_reduce_is_linear_between_sizes_and_goes_on_along_the_last_two():
    known = AllReduce(np.array([1024.0, 2048.0, 4096.0]), np.array([5.0, 6.0, 8.0]), "s", "l")
    sizes = np.array([1.0, 1024.0, 1536.0, 3072.0, 4096.0, 8192.0])
    assert all_reduce_s(known, sizes).tolist() == [5.0, 5.0, 5.5, 7.0, 8.0, 12.0]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"colour": "red"},
            "mine may hold only all_reduce, by_tensor_parallel_size, parameters, but got colour",
        ),
        ({"parameters": None}, "section parameters must be a mapping of names, but got nothing"),
        (
            {"parameters": {"eager_overhed_s": PARAMETER}},
            "mine.parameters may hold only eager_layer_launch_s, ",
        ),
        (
            {"parameters": {"eager_overhead_s": {**PARAMETER, "source": ""}}},
            "mine.parameters.eager_overhead_s needs a source in words",
        ),
        ({"by_tensor_parallel_size": {"two": {}}}, "must hold sections by number of GPUs"),
        ({"by_tensor_parallel_size": [2]}, "must hold sections by number of GPUs, but got [2]"),
        ({"all_reduce": {2: 5.0}}, "mine.all_reduce must hold sections by number of GPUs"),
        ({"all_reduce": {0: REDUCE}}, "mine.all_reduce must hold sections by number of GPUs"),
        ({"all_reduce": {2: REDUCE | {"unit": "us"}}}, "mine.all_reduce.2 may hold only licence, "),
        ({"all_reduce": {2: REDUCE | {"licence": None}}}, "mine.all_reduce.2 needs a licence in words"),
        (
            {"all_reduce": {2: REDUCE | {"time_us": [5.0, 6.0]}}},
            "must hold as many time_us as size_bytes, both rising",
        ),
        (
            {"all_reduce": {2: REDUCE | {"time_us": [5.0, 6.0, 4.0]}}},
            "both rising, but got [1024.0, 2048.0, 4096.0]",
        ),
        ({"all_reduce": {2: REDUCE | {"size_bytes": [1, 1, 2]}}}, "both rising, but got [1.0, 1.0, 2.0]"),
        (
            {"all_reduce": {2: REDUCE | {"size_bytes": [1]}}},
            "must be a list of two or more numbers, but got [1]",
        ),
        (
            {"all_reduce": {2: REDUCE | {"size_bytes": None}}},
            "must be a list of two or more numbers, but got None",
        ),
        ({"all_reduce": {2: REDUCE | {"time_us": [1, "2", 3]}}}, "needs a time_us that is a number >= 0"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, changes, said):
    file = written(tmp_path / "servers.yaml", **changes)
    with pytest.raises(UserError) as caught:
        read_servers(file)
    assert said in str(caught.value)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_shipped_servers_are_of_known_hardware():
    assert set(servers()) <= set(group_options("hardware", [conf_dir()]))
    for server in servers().values():
        assert "eager_overhead_s" in server.shared
