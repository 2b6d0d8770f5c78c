"""A sweep: every arm at every point of the axes under every seed, compared with the baseline.

All trials are composed and checked before the first one runs. Each is kept as it ends, so that the same
command with the same output.dir goes on where an earlier one stopped, whatever stopped it.
"""

import hashlib
import itertools
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cluster_sim.build import build, bundle_directory
from cluster_sim.bundle import format as bundle_format
from cluster_sim.comparison import compare_arms
from cluster_sim.compose import Composer
from cluster_sim.config import Config, ExecutorConfig, SweepConfig
from cluster_sim.executors import open_executor
from cluster_sim.files import MANIFEST, SUMMARY, default_dir, open_directory, write_json, write_yaml
from cluster_sim.flips import flips_of, kind_of, optima_of
from cluster_sim.luck import acceptance_source
from cluster_sim.manifest import manifest, plain
from cluster_sim.optimum import AUTO, resolved
from cluster_sim.report.console import announce_compilation, say, show, width
from cluster_sim.report.crossover import sweep_view
from cluster_sim.report.progress import progress
from cluster_sim.run import digest_of, warm_up
from cluster_sim.trial import Ended, Trial, naming, place_of, run_trial
from cluster_sim.trials import Row, TrialWriter, open_trials


@dataclass
class Inputs:
    """What the trials of a sweep read: digests, and where it comes from, in words."""

    digests: dict[str, str] = field(default_factory=dict)  # kind and name -> hexadecimal
    sources: dict[str, set[str]] = field(default_factory=dict)  # kind -> each once


def run_sweep(config: Config, overrides: Sequence[str]) -> int:
    """Run the sweep of `config`, which `overrides` compose, or what is missing of it; returns the exit code.

    Leaves manifest.yaml, trials.parquet and summary.json in output.dir, and prints the comparison.

    Raises:
        UserError: a trial is wrong, the directory holds something else, or the executor cannot start.
        KeyboardInterrupt: the user had enough; the trials that have ended are kept.
    """
    sweep = config.sweep
    if sweep is None:
        raise ValueError("this configuration holds no sweep")
    started_s = time.perf_counter()
    trials = plan(Composer(overrides), sweep)
    inputs = check_inputs(trials)
    sources = {kind: "; ".join(sorted(each)) for kind, each in inputs.sources.items()}
    about = manifest(config, sweep.seeds, inputs.digests, sources)
    directory = default_dir(sweep.name) if config.output.dir is None else Path(config.output.dir)
    open_directory(directory, about["identity"])
    with open_trials(directory) as writer:
        if not (directory / MANIFEST).exists():
            write_yaml(directory / MANIFEST, about)
        machine = _run_missing(trials, config.executor, writer, directory)
        rows = writer.finish()
        comparison = compare_arms(rows, sweep.baseline, list(sweep.axes))
        optima = optima_of(trials, rows, sweep.baseline, comparison["crossover"]["axis"])
        comparison["flips"] = flips_of(comparison, sweep.baseline, optima)
        machine["wall_s"] = time.perf_counter() - started_s
        write_json(directory / SUMMARY, {**comparison, **machine})
    _print_results(comparison, rows, sweep.baseline, directory)
    return 0


def plan(composer: Composer, sweep: SweepConfig) -> list[Trial]:
    """All trials, composed and checked: point by point, seed by seed, so that those to compare run together.

    Raises:
        UserError: a trial's configuration is wrong; names its arm and its point.
    """
    trials: list[Trial] = []
    schedules: dict[str, Config] = {}  # those asked for as `auto`, once for all seeds and rates
    for values in itertools.product(*sweep.axes.values()):
        point = dict(zip(sweep.axes, values, strict=True))
        configs = {}
        for arm, changes in sweep.arms.items():
            with naming(place_of(arm, point)):
                config = with_whole_paths(composer.variant({**changes, **point}))
                configs[arm] = _with_schedule(config, schedules)
        for seed, (arm, config) in itertools.product(sweep.seeds, configs.items()):
            trials.append(Trial(len(trials), arm, point, seed, replace(config, seed=seed)))
    return trials


def check_inputs(trials: Sequence[Trial]) -> Inputs:
    """Build one trial of every kind, to see that it can run; seeds and request rates make no other kind.

    Raises:
        UserError: a bundle, schedule, profile, trace or memory is wrong; names the trial's arm and point.
    """
    kinds: dict[str, Trial] = {}
    for trial in trials:
        kinds.setdefault(repr(kind_of(trial.config)), trial)
    inputs = Inputs()
    workloads = set()
    for trial in kinds.values():
        with naming(place_of(trial.arm, trial.point)):
            built = build(trial.config)
        digest = bundle_format.digest(bundle_directory(trial.config))
        inputs.digests[f"bundle {built.bundle.name}"] = digest
        workloads.add(digest_of(built.workload))
        for kind, source in (
            ("bundle", built.bundle.name),
            ("workload", trial.config.workload.trace or "drawn"),
            ("acceptance", acceptance_source(trial.config)),
            ("draft_cost", trial.config.speculation.draft_cost.name),
        ):
            inputs.sources.setdefault(kind, set()).add(source)
        schedule = trial.config.speculation.num_speculative_tokens_per_batch_size
        if schedule is not None:
            inputs.sources.setdefault("schedule", set()).add(f"{trial.arm}: {plain(schedule)}")
    inputs.digests["workloads"] = hashlib.sha256("".join(sorted(workloads)).encode()).hexdigest()
    return inputs


def _with_schedule(config: Config, known: dict[str, Config]) -> Config:
    """`config` with the tables' own schedule where it asks for it; `known` keeps one for every kind."""
    if config.speculation.num_speculative_tokens_per_batch_size != AUTO:
        return config
    kind = kind_of(config)
    found = known.setdefault(repr(kind), kind)
    if found is kind:
        found = known[repr(kind)] = resolved(kind)
    return replace(config, speculation=found.speculation)


def with_whole_paths(config: Config) -> Config:
    """The same files named from the root: a worker process may have another working directory."""
    trace, bundle = config.workload.trace, config.cluster.bundle
    if trace is not None:
        whole = str(Path(trace).expanduser().absolute())
        config = replace(config, workload=replace(config.workload, trace=whole))
    if bundle is not None and not bundle_directory(config).is_absolute():
        whole = str(bundle_directory(config).absolute())
        config = replace(config, cluster=replace(config.cluster, bundle=whole))
    return config


def _run_missing(
    trials: Sequence[Trial], config: ExecutorConfig, writer: TrialWriter, directory: Path
) -> dict[str, Any]:
    """Run the trials that `writer` has no row of; what they took, under the names of MACHINE_KEYS."""
    missing = [trial for trial in trials if trial.number not in writer.finished]
    kept = f", {len(trials) - len(missing)} kept from before" if len(missing) < len(trials) else ""
    say(f"{len(trials)} trials{kept}; results in {directory}")
    ended: list[Ended] = []
    try:
        if missing:
            announce_compilation("loop")
            warm_up(missing[0].config)
            with (
                open_executor(config, len(missing)) as executor,
                progress("sweep", "trials", sys.stderr) as report,
            ):
                report(0, len(missing))
                for one in executor.run(run_trial, missing):
                    writer.append(one.row)
                    ended.append(one)
                    report(len(ended), len(missing))
    except KeyboardInterrupt:
        say(f"{len(writer.finished)} of {len(trials)} trials are kept; go on with output.dir={directory}")
        raise
    return {
        "engine_wall_s": sum(one.machine["engine_wall_s"] for one in ended),
        "peak_rss_bytes": max((one.machine["peak_rss_bytes"] for one in ended), default=None),
    }


def _print_results(comparison: dict[str, Any], rows: Sequence[Row], baseline: str, directory: Path) -> None:
    show(sweep_view(comparison, baseline, width()))
    for warning, count in Counter(text for row in rows for text in row["warnings"]).items():
        say(f"warning: {warning} ({count} of {len(rows)} trials)")
    say(f"results in {directory}")
