"""Where bundles are found: shipped or imported in bundles/, at a path, or built on first use and kept.

A roofline bundle is built when no shipped one of its name fits, and kept in the user's cache. The name there
holds the digest of all that it is made from: facts, assumptions and the sources of the roofline.
"""

import hashlib
import json
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

from cluster_sim.bundle import format as bundle_format
from cluster_sim.bundle import roofline
from cluster_sim.bundle.architecture import Parallel
from cluster_sim.bundle.format import Bundle
from cluster_sim.config import HardwareConfig, ModelConfig
from cluster_sim.errors import UserError
from cluster_sim.manifest import plain
from cluster_sim.paths import bundle_names, bundles_dir, cache_home

SOURCES = (
    *("architecture.py", "assumptions.py", "draft_tables.py", "format.py", "grids.py", "kernels.py"),
    *("linear_attention.py", "roofline.py", "sections.py", "../speculation/proposer.py"),
)


def directory_of(name_or_path: str, tensor_parallel_size: int) -> Path:
    """The directory of a bundle in bundles/ or at a path; a name may leave out its -tpN.

    Raises:
        UserError: there is none; lists those in bundles/.
    """
    for name in (name_or_path, f"{name_or_path}-tp{tensor_parallel_size}"):
        for directory in (bundles_dir() / name, Path(name)):
            if _is_bundle(directory):
                return directory
    rule = "a bundle must be one of bundles/ or a directory with a bundle.yaml"
    existing = ", ".join(bundle_names()) or "none"
    raise UserError(rule, name_or_path, "cluster.bundle", f"Bundles: {existing}.")


def directory_for(
    model: ModelConfig, hardware: HardwareConfig, parallel: Parallel, verify_attention: float | None = None
) -> Path:
    """The roofline bundle of a model on a GPU: the shipped one of these facts, else a kept or a new one.

    With a `verify_attention` in place of the assumed one it is never the shipped one.

    Raises:
        UserError: costs are missing (roofline.py), or nothing can be written.
    """
    name = roofline.bundle_name(model, hardware, parallel)
    shipped = bundles_dir() / name
    is_assumed = verify_attention is None
    if is_assumed and _is_bundle(shipped) and _has_facts(read(shipped), model, hardware):
        return shipped
    mark = "" if is_assumed else f"-verify{verify_attention:g}"
    kept = cache_home() / "bundles" / f"{name}{mark}-{_digest(model, hardware, parallel)}"
    if not _is_bundle(kept):
        _keep(roofline.build(model, hardware, parallel, verify_attention), kept)
    return kept


@cache
def read(directory: Path) -> Bundle:
    """Trials of a sweep share it: a bundle does not change while a process runs."""
    return bundle_format.read(directory)


def _is_bundle(directory: Path) -> bool:
    try:
        return (directory / "bundle.yaml").is_file()
    except OSError:  # a name that no file can have, or a directory that may not be read
        return False


def _has_facts(bundle: Bundle, model: ModelConfig, hardware: HardwareConfig) -> bool:
    facts = bundle_format.facts_of(model), bundle_format.facts_of(hardware)
    return (bundle.model, bundle.hardware) == facts


def _digest(model: ModelConfig, hardware: HardwareConfig, parallel: Parallel) -> str:
    files = [Path(__file__).parent / source for source in SOURCES]
    files.append(bundles_dir() / "assumptions.yaml")
    gpu = plain(replace(hardware, price_per_hour=None))
    facts = json.dumps([plain(model), gpu, vars(parallel)], sort_keys=True)
    return hashlib.sha256(facts.encode() + b"".join(file.read_bytes() for file in files)).hexdigest()[:16]


def _keep(bundle: Bundle, directory: Path) -> None:
    """Write a bundle whole or not at all; another process may do the same at the same time."""
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory.parent) as unfinished:
            whole = Path(unfinished) / "bundle"
            bundle_format.write(bundle, whole)
            try:
                whole.rename(directory)
            except OSError:
                if not _is_bundle(directory):
                    raise
    except OSError as error:
        rule, got = "a bundle that is built on first use must be kept", error.strerror or str(error)
        remedy = "Set XDG_CACHE_HOME to a writable directory."
        raise UserError(rule, got, str(directory.parent), remedy) from error
