"""What a directory of results holds, read back: the page is made from it alone."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cluster_sim.errors import UserError
from cluster_sim.files import MANIFEST, SUMMARY
from cluster_sim.trials import Row, read_trials

Tree = Mapping[str, Any]


@dataclass(frozen=True)
class Stored:
    """A finished simulation or sweep."""

    directory: Path
    manifest: Tree
    summary: Tree
    rows: list[Row]  # in the order of the trials

    @property
    def config(self) -> Tree:
        """The configuration, as the manifest has it."""
        config: Tree = self.manifest["config"]
        return config

    @property
    def sweep(self) -> Tree | None:
        """The sweep; None: one simulation."""
        sweep: Tree | None = self.config.get("sweep")
        return sweep


def read_results(directory: Path) -> Stored:
    """The results in `directory`.

    Raises:
        UserError: it is no directory of results, or one whose run has not ended.
    """
    if not (directory / MANIFEST).is_file():
        remedy = "Name the output.dir of a simulation, a sweep or a study."
        raise UserError("a report is made from a directory of results", "no manifest", str(directory), remedy)
    if not (directory / SUMMARY).is_file():
        rule, remedy = (
            "a report is made of results that are complete",
            "Run the same command again: it goes on.",
        )
        raise UserError(rule, "a run that has not ended", str(directory), remedy)
    manifest = yaml.safe_load((directory / MANIFEST).read_text("utf-8"))
    summary = json.loads((directory / SUMMARY).read_text("utf-8"))
    return Stored(directory, manifest, summary, read_trials(directory))
