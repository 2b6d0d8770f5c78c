"""The manifest of a result: everything that it takes to make it again.

Two results with the same identity are the same run: the same settings (where it runs and where it is written
left out), inputs, engine and version of this package.
"""

import dataclasses
import hashlib
import json
import platform
import subprocess
from collections.abc import Mapping, Sequence
from enum import Enum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from cluster_sim import __version__
from cluster_sim.config import Config
from cluster_sim.engine.jit import digest

SCHEMA_VERSION = 1
PACKAGES = ("numpy", "numba", "pyarrow", "ray", "optuna")
_NO_RESULT_DEPENDS_ON = ("executor", "output")


def manifest(
    config: Config, seeds: Sequence[int], digests: Mapping[str, str], sources: Mapping[str, str]
) -> dict[str, Any]:
    """The manifest of a run or a sweep, in plain values.

    `digests` are those of the inputs (bundle, workload), `sources` say in words where they come from.
    """
    all_digests = {**digests, "engine": digest()}
    tree = plain(config)
    return {
        "schema_version": SCHEMA_VERSION,
        "identity": identity_of(tree, seeds, all_digests),
        "config": tree,
        "seeds": list(seeds),
        "digests": all_digests,
        "sources": dict(sources),
        "versions": _versions(),
        "git": _git(Path(__file__).resolve().parent),
    }


def is_as_written(about: Mapping[str, Any]) -> bool:
    """Whether a manifest, read back, is what this version wrote: its identity is that of the rest."""
    try:
        identity = identity_of(about["config"], about["seeds"], about["digests"])
    except (KeyError, TypeError, ValueError, AttributeError):
        return False
    return bool(about.get("identity") == identity)


def plain(value: Any) -> Any:
    """A configuration as dictionaries, lists and scalars: its enums are their members' names."""
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def identity_of(tree: Mapping[str, Any], seeds: Sequence[int], digests: Mapping[str, str]) -> str:
    """What names the run of these settings, seeds and inputs: the same for the same run."""
    settings = {key: value for key, value in tree.items() if key not in _NO_RESULT_DEPENDS_ON}
    if tree.get("sweep"):
        settings["sweep"] = {key: value for key, value in tree["sweep"].items() if key != "compare"}
    what = [SCHEMA_VERSION, __version__, settings, list(seeds), dict(digests)]
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()


def _versions() -> dict[str, str | None]:
    """None: not installed."""
    versions: dict[str, str | None] = {"cluster_sim": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = None
    return versions


def _git(package: Path) -> dict[str, Any] | None:
    """Commit of the checkout that this package runs from, and whether it was changed; None: no checkout."""
    try:
        _ask_git(package, "ls-files", "--error-unmatch", "__init__.py")
        commit = _ask_git(package, "rev-parse", "HEAD")
        return {"commit": commit, "changed": bool(_ask_git(package, "status", "--porcelain"))}
    except (OSError, subprocess.SubprocessError):
        return None


def _ask_git(directory: Path, *words: str) -> str:
    command = ["git", "-C", str(directory), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=10).stdout.strip()
