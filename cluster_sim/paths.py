"""Where conf/ and bundles/ lie: inside an installed package, or beside the package in a checkout."""

import os
from collections.abc import Sequence
from pathlib import Path


def conf_dir() -> Path:
    """The directory of the Hydra configuration (config.yaml and the groups)."""
    return _beside_package("conf")


def bundles_dir() -> Path:
    """The directory of the shipped step-time bundles."""
    return _beside_package("bundles")


def bundle_names() -> list[str]:
    """The bundles in bundles/, shipped or imported, sorted."""
    return sorted(file.parent.name for file in bundles_dir().glob("*/bundle.yaml"))


def cache_home() -> Path:
    """Where what can be made again is kept for the user."""
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "cluster_sim"


def group_names() -> list[str]:
    """The configuration's groups, sorted: the directories of conf/."""
    return sorted(path.name for path in conf_dir().iterdir() if path.is_dir())


def group_options(group: str, directories: Sequence[Path]) -> list[str]:
    """Options of a configuration group, sorted: the names of DIRECTORY/group/*.yaml without the suffix."""
    return sorted({file.stem for directory in directories for file in (directory / group).glob("*.yaml")})


def _beside_package(name: str) -> Path:
    package = Path(__file__).resolve().parent
    for directory in (package / name, package.parent / name):
        if directory.is_dir():
            return directory
    raise FileNotFoundError(
        f"no {name}/ inside the package cluster_sim or beside it: the installation is damaged"
    )
