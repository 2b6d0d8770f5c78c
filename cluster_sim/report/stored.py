"""What a directory of results holds, read back: the page is made from it alone.

A sweep that has not ended is read from its journal: the trials that are there are compared.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Any

import yaml

from cluster_sim.compared import SHOWN
from cluster_sim.comparison import compare_arms
from cluster_sim.errors import UserError
from cluster_sim.files import MANIFEST, SUMMARY
from cluster_sim.trials import Row, read_kept

Tree = Mapping[str, Any]
WHERE = "a report is made from a directory of results"
NAME_ONE = "Name the output.dir of a simulation, a sweep or a study."


class Kind(Enum):
    """What was run."""

    run = auto()  # one simulation
    sweep = auto()  # arms compared at points
    capacity = auto()  # a sweep that searches for capacities
    study = auto()
    unfinished = auto()  # too little to compare: trials alone


@dataclass(frozen=True)
class Stored:
    """A simulation, sweep or study."""

    directory: Path
    kind: Kind
    manifest: Tree
    summary: Tree  # of an unfinished one: empty
    rows: list[Row]  # in the order of the trials
    planned: int | None = None  # trials that there will be, at least; None: it has ended

    @property
    def config(self) -> Tree:
        """The configuration, as the manifest has it."""
        config: Tree = self.manifest["config"]
        return config

    @property
    def sweep(self) -> Tree:
        """The sweep; empty where there is none."""
        return self.config.get("sweep") or {}

    @property
    def compared(self) -> Sequence[str]:
        """The names in compared.COMPARED that the sweep asks for."""
        return list(self.sweep.get("compare", SHOWN))

    @property
    def study(self) -> Tree:
        """The study; empty where there is none."""
        return self.config.get("study") or {}

    @property
    def baseline(self) -> str:
        """The arm that the ratios divide by; empty where there is none."""
        if self.kind is Kind.study:
            arms, compared = self.summary["arms"], self.summary["vs_baseline"]
            return next((arm for arm in arms if arm not in compared), "")
        return str(self.sweep.get("baseline", ""))


def read_results(directory: Path) -> Stored:
    """The results in `directory`.

    Raises:
        UserError: it is no directory of results, or holds nothing yet, or a file of it cannot be read.
    """
    if not (directory / MANIFEST).is_file():
        raise UserError(WHERE, "no manifest", str(directory), NAME_ONE)
    manifest = _parsed(directory / MANIFEST)
    config = manifest["config"]
    if not (directory / SUMMARY).is_file():
        return _unfinished(directory, manifest)
    summary = _parsed(directory / SUMMARY)
    kind = Kind.run
    if config.get("study"):
        kind = Kind.study
    elif config.get("sweep"):
        kind = Kind.capacity if "capacity" in summary else Kind.sweep
    return Stored(directory, kind, manifest, summary, read_kept(directory))


def _unfinished(directory: Path, manifest: Tree) -> Stored:
    """What there is of a run without a summary."""
    rows, sweep = read_kept(directory), manifest["config"].get("sweep")
    if not rows:
        remedy = "Run the same command again, with this output.dir: it goes on."
        raise UserError("a report needs results", "none yet", str(directory), remedy)
    if not sweep or sweep.get("search"):
        return Stored(directory, Kind.unfinished, manifest, {}, rows, planned=len(rows))
    planned = len(sweep["arms"]) * len(sweep["seeds"]) * math.prod(map(len, sweep["axes"].values()))
    summary = compare_arms(rows, sweep["baseline"], list(sweep["axes"]))
    kind = Kind.sweep if any(summary["vs_baseline"].values()) else Kind.unfinished
    return Stored(directory, kind, manifest, summary, rows, planned)


def _parsed(path: Path) -> Tree:
    """A file of YAML or JSON that holds a mapping."""
    try:
        text = path.read_text("utf-8")
        tree = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UserError(WHERE, f"an unreadable {path.name}", str(path.parent), NAME_ONE) from error
    if not isinstance(tree, dict):
        raise UserError(WHERE, f"an unreadable {path.name}", str(path.parent), NAME_ONE)
    return tree
