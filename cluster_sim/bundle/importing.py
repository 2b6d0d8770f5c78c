"""`import-bundle`: measurements that others made become bundles in bundles/.

A directory is taken for profiled tables (importers/profiled_tables.py), a file for a CSV of whole steps
(importers/whole_steps.py). The same measurements give the same bytes. Of a model with experts, sizes without
a table of them are left out, and a line says so.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cluster_sim.bundle import format as bundle_format
from cluster_sim.bundle.architecture import Parallel
from cluster_sim.bundle.format import Bundle
from cluster_sim.bundle.importers import mtp_table, profiled_tables, whole_steps
from cluster_sim.bundle.importers.fitted_tables import Origin
from cluster_sim.bundle.importers.profile import Profile, profiles
from cluster_sim.bundle.servers import servers
from cluster_sim.compose import compose
from cluster_sim.config import Config
from cluster_sim.errors import UserError
from cluster_sim.naming import hardware_option, model_option
from cluster_sim.paths import bundles_dir


@dataclass(frozen=True)
class Options:
    """What the measurements do not say themselves."""

    model: str | None = None  # of conf/model; None: as meta.yaml says
    hardware: str | None = None  # of conf/hardware; None: as meta.yaml says
    tensor_parallel_size: int | None = None  # None: 1 for steps; every one of the tables
    source: str | None = None  # of steps: who measured, with what
    licence: str | None = None


@dataclass(frozen=True)
class Imported:
    """What to tell the user: lines about what was read, and the name that cluster.bundle takes."""

    lines: list[str]
    name: str


def import_bundle(path: Path, options: Options) -> Imported:
    """Read the measurements at `path` and write their bundles.

    Raises:
        UserError: there is nothing there, it is damaged, or something must be said that is not.
    """
    if path.is_dir():
        return _import_tables(path, options)
    if path.is_file():
        return _import_steps(path, options)
    rule = "measurements must be a directory of profiled tables or a CSV of steps"
    raise UserError(rule, f"{path}, which is not there", "import-bundle PATH", "Name one that exists.")


def _import_tables(path: Path, options: Options) -> Imported:
    for name in ("source", "licence"):
        if getattr(options, name) is not None:
            rule = f"{name} of profiled tables is LLMServingSim's"
            raise UserError(rule, getattr(options, name), f"import-bundle --{name}", f"Leave --{name} out.")
    found = _of_size(profiles(path), options.tensor_parallel_size)
    config = _config(
        options.model or model_option(found[0].model, "--model OPTION"),
        options.hardware or hardware_option(found[0].hardware, "--hardware OPTION"),
    )
    server = servers().get(config.hardware.name)
    without = [profile for profile in found if profiled_tables.lacks_experts(profile, config.model)]
    chosen = [profile for profile in found if profile not in without] or found
    read = [profiled_tables.read_profile(one, config.model, config.hardware, server) for one in chosen]
    left_out = [f"{one.directory.name} left out: it has no moe.csv" for one in without]
    left_out += [
        f"{one.directory.name}/{mtp_table.FILE} left out: {config.model.name} has no MTP module"
        for one in chosen
        if mtp_table.is_of_no_use(one.directory, config.model)
    ]
    only = read[0].name
    name = only if len(read) == 1 else only.rpartition("-tp")[0]
    return Imported([*left_out, *(_written(bundle) for bundle in read)], name)


def _of_size(found: list[Profile], tensor_parallel_size: int | None) -> list[Profile]:
    """All profiles, or that of the wanted size."""
    if tensor_parallel_size is None:
        return found
    chosen = [profile for profile in found if profile.tensor_parallel_size == tensor_parallel_size]
    if not chosen:
        sizes = ", ".join(str(profile.tensor_parallel_size) for profile in found)
        where = "import-bundle --tensor-parallel-size"
        raise UserError(
            "tables must be profiled at the wanted size", tensor_parallel_size, where, f"Sizes: {sizes}."
        )
    return chosen


def _import_steps(path: Path, options: Options) -> Imported:
    for name in ("model", "hardware", "source", "licence"):
        if getattr(options, name) is None:
            rule = f"a CSV of steps does not say its {name}"
            raise UserError(rule, "none", f"import-bundle --{name}", f"Give --{name}.")
    gpus = 1 if options.tensor_parallel_size is None else options.tensor_parallel_size
    config = _config(str(options.model), str(options.hardware), f"cluster.tensor_parallel_size={gpus}")
    parallel = Parallel(gpus)
    origin = Origin(str(options.source), str(options.licence))
    fitted = whole_steps.read_steps(path, config.model, config.hardware, parallel, origin)
    name = f"{config.model.name}-{config.hardware.name}-measured-tp{parallel.tensor_parallel_size}"
    line = _written(replace(fitted.bundle, name=name))
    return Imported([*whole_steps.residual_table(fitted), line], name)


def _config(model: str, hardware: str, *overrides: str) -> Config:
    return compose([f"model={model}", f"hardware={hardware}", "speculation=none", *overrides])


def _written(bundle: Bundle) -> str:
    """Write a bundle whole or not at all, in the place of an earlier import; a line about it."""
    directory = bundles_dir() / bundle.name
    try:
        bundle_format.write_whole(bundle, directory)
    except OSError as error:
        rule, got = "an imported bundle must be written", error.strerror or str(error)
        raise UserError(rule, got, str(directory), "Make room or get permission there.") from error
    points: Sequence[str] = [f"{name} {table.time_s.size:,}" for name, table in bundle.tables.items()]
    return f"{bundle.name}: points {', '.join(points)}; digest {bundle_format.digest(directory)[:16]}"
