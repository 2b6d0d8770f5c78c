"""bundles/servers.yaml: what a profile of kernels does not hold, of the servers that were profiled."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cluster_sim.bundle.format import LINK, MOE_PARAMETERS, PARAMETERS
from cluster_sim.bundle.sections import (
    Parameter,
    Section,
    number,
    only,
    read_parameters,
    read_yaml,
    refuse,
    section,
    text,
)
from cluster_sim.paths import bundles_dir

Floats = NDArray[np.float64]
KNOWN = PARAMETERS | MOE_PARAMETERS | set(LINK)


@dataclass(frozen=True)
class AllReduce:
    """Times of one all-reduce by its size."""

    size_bytes: Floats
    time_s: Floats
    source: str
    licence: str


@dataclass(frozen=True)
class Server:
    """Properties of one server; some depend on the tensor parallel size."""

    shared: dict[str, Parameter]
    by_size: dict[int, dict[str, Parameter]]
    all_reduce: dict[int, AllReduce]  # by the number of GPUs

    def parameters(self, tensor_parallel_size: int) -> dict[str, Parameter]:
        """Parameters of a bundle on this server."""
        return self.shared | self.by_size.get(tensor_parallel_size, {})


@cache
def servers() -> dict[str, Server]:
    """The known servers, by the name of their hardware in conf/hardware.

    Raises:
        UserError: the file is damaged.
    """
    return read_servers(bundles_dir() / "servers.yaml")


def read_servers(file: Path) -> dict[str, Server]:
    """The servers in `file`, by the name of their hardware.

    Raises:
        UserError: something is missing, unknown, damaged or without a source.
    """
    content = read_yaml(file)
    return {str(name): _read_server(str(name), section(content, name, file), file) for name in content}


def all_reduce_s(known: AllReduce, size_bytes: Floats) -> Floats:
    """Time of one all-reduce: linear between known sizes, along the last two beyond them."""
    slope = np.diff(known.time_s[-2:]) / np.diff(known.size_bytes[-2:])
    inside = np.interp(size_bytes, known.size_bytes, known.time_s)
    return np.asarray(inside + np.maximum(size_bytes - known.size_bytes[-1], 0.0) * slope)


def _read_server(name: str, content: Section, file: Path) -> Server:
    only(content, {"parameters", "by_tensor_parallel_size", "all_reduce"}, name, file)
    by_size = {
        size: _read_parameters(values, f"{name}.by_tensor_parallel_size.{size}", file)
        for size, values in _by_gpus(content, "by_tensor_parallel_size", name, file).items()
    }
    all_reduce = {
        gpus: _read_all_reduce(values, f"{name}.all_reduce.{gpus}", file)
        for gpus, values in _by_gpus(content, "all_reduce", name, file).items()
    }
    shared = _read_parameters(section(content, "parameters", file), f"{name}.parameters", file)
    return Server(shared, by_size, all_reduce)


def _read_parameters(content: Section, where: str, file: Path) -> dict[str, Parameter]:
    only(content, KNOWN, where, file)
    return read_parameters(content, where, file)


def _by_gpus(content: Section, key: str, where: str, file: Path) -> dict[int, Section]:
    """A section whose names are numbers of GPUs; it may be missing."""
    found = content.get(key, {})
    if not isinstance(found, dict) or not all(
        type(gpus) is int and gpus > 0 and isinstance(values, dict) for gpus, values in found.items()
    ):
        refuse(f"{where}.{key} must hold sections by number of GPUs", repr(found), file)
    return found


def _read_all_reduce(content: Section, where: str, file: Path) -> AllReduce:
    only(content, {"size_bytes", "time_us", "source", "licence"}, where, file)
    size_bytes, time_us = (_curve(content, key, where, file) for key in ("size_bytes", "time_us"))
    if len(size_bytes) != len(time_us) or np.any(np.diff(size_bytes) <= 0) or np.any(np.diff(time_us) < 0):
        got = f"{size_bytes.tolist()} and {time_us.tolist()}"
        refuse(f"{where} must hold as many time_us as size_bytes, both rising", got, file)
    source, licence = (text(content, key, where, file) for key in ("source", "licence"))
    return AllReduce(size_bytes, 1e-6 * time_us, source, licence)


def _curve(content: Section, key: str, where: str, file: Path) -> Floats:
    """A list of two or more numbers >= 0."""
    values = content.get(key)
    if not isinstance(values, list) or len(values) < 2:  # noqa: PLR2004  a line has two ends
        refuse(f"{where}.{key} must be a list of two or more numbers", repr(values), file)
    return np.array([number({key: value}, key, where, file) for value in values])
