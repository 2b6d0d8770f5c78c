"""One simulation from a checked configuration to results on disk."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from cluster_sim.batch_means import batch_means
from cluster_sim.config import Config, ExecutorKind
from cluster_sim.executors import chosen_kind, open_executor
from cluster_sim.files import default_dir
from cluster_sim.optimum import optimum_of, summary_of
from cluster_sim.results import Run, write_run
from cluster_sim.run import Progress, simulate
from cluster_sim.summary import summarise


@dataclass(frozen=True)
class Single:
    """A simulation that has been written down."""

    run: Run
    summary: Mapping[str, Any]
    directory: Path


def run_single(config: Config, report: Progress) -> Single:
    """Simulate `config` where its executor says, and write the results to output.dir.

    A worker on Ray reports no progress: it may be on another machine.

    Raises:
        UserError: the configuration, its bundle or its trace is wrong, or the directory cannot be written.
    """
    is_here = chosen_kind(config.executor, 1) is ExecutorKind.serial
    with open_executor(config.executor, 1) as executor:
        (run,) = executor.run(partial(simulate, report=report) if is_here else simulate, [config])
    optimum = optimum_of(replace(config, speculation=run.config.speculation), run.traffic)
    summary = {
        **summarise(run),
        "optimum": None if optimum is None else summary_of(optimum),
        "batch_means": batch_means(run),
    }
    directory = Path(config.output.dir) if config.output.dir else default_dir("single")
    write_run(run, summary, directory)
    return Single(run, summary, directory)
