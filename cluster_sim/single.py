"""One simulation from a checked configuration to results on disk."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster_sim.anatomy import anatomy_of
from cluster_sim.batch_means import batch_means
from cluster_sim.config import Config
from cluster_sim.executors import drive_of
from cluster_sim.files import default_dir
from cluster_sim.optimum import optimum_of, summary_of
from cluster_sim.results import Run, write_run
from cluster_sim.run import Progress, simulate
from cluster_sim.run_kinds import RunKind
from cluster_sim.server_counts import server_counts
from cluster_sim.summary import summarise


@dataclass(frozen=True)
class Single:
    """A simulation that has been written down."""

    run: Run
    summary: Mapping[str, Any]
    directory: Path


def run_single(config: Config, report: Progress) -> Single:
    """Simulate `config` where its executor says, and write the results to output.dir.

    Raises:
        UserError: the configuration, its bundle or its trace is wrong, or the directory cannot be written.
    """
    run = simulate(config, report, drive_of(config.executor))
    summary = {
        **_with_tables(summarise(run), run.kinds),
        "batch_means": batch_means(run),
        "engines": server_counts(run),
    }
    directory = Path(config.output.dir) if config.output.dir else default_dir("single")
    write_run(run, summary, directory)
    return Single(run, summary, directory)


def _with_tables(summary: Mapping[str, Any], kinds: Sequence[RunKind]) -> dict[str, Any]:
    """`summary` with what the step-time tables say; where instances differ, of each kind by itself."""
    found = {one.kind.name: _of_tables(one) for one in kinds}
    if len(kinds) == 1:
        return {**summary, **found[kinds[0].kind.name]}
    parts = {name: {**part, **found[name]} for name, part in summary["by_instance_kind"].items()}
    return {**summary, "optimum": None, "anatomy": None, "by_instance_kind": parts}


def _of_tables(one: RunKind) -> dict[str, Any]:
    """The draft lengths that pay, and what a step is made of."""
    optimum = optimum_of(one.kind.config, one.traffic)
    return {
        "optimum": None if optimum is None else summary_of(optimum),
        "anatomy": anatomy_of(one.kind.config, one.traffic.kv_tokens),
    }
