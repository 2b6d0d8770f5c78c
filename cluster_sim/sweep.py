"""A sweep: every arm at every point of the axes under every seed, compared with the baseline.

All trials are composed and checked before the first one runs. Each is kept as it ends, so that the same
command with the same output.dir goes on where an earlier one stopped, whatever stopped it.
"""

import hashlib
import itertools
import sys
import time
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cluster_sim.anatomy import anatomies_of
from cluster_sim.bisection import bisections_of, ends, most_trials, rounds
from cluster_sim.build import build, bundle_directory
from cluster_sim.bundle import format as bundle_format
from cluster_sim.capacity import compare_capacities
from cluster_sim.comparison import compare_arms
from cluster_sim.compose import Composer
from cluster_sim.config import Config, ExecutorConfig, SweepConfig
from cluster_sim.errors import naming
from cluster_sim.executors import check_reachable, open_executor
from cluster_sim.files import MANIFEST, SUMMARY, default_dir, open_directory, write_json, write_yaml
from cluster_sim.flips import differing_in_drafts, flips_of, kind_of, optima_of, optima_tree
from cluster_sim.instances import with_each
from cluster_sim.length_files import with_whole_files
from cluster_sim.luck import acceptance_source
from cluster_sim.manifest import manifest, plain
from cluster_sim.optimum import resolved, wants_schedule
from cluster_sim.report.at_end import leave_page
from cluster_sim.report.capacity import capacity_view
from cluster_sim.report.console import announce_compilation, say, show, width
from cluster_sim.report.crossover import sweep_view
from cluster_sim.report.progress import progress
from cluster_sim.run import digest_of, warm_up
from cluster_sim.trial import Ended, Trial, place_of, run_trial
from cluster_sim.trials import Row, TrialWriter, open_trials


@dataclass
class Inputs:
    """What the trials of a sweep read: digests, and where it comes from, in words."""

    digests: dict[str, str] = field(default_factory=dict)  # kind and name -> hexadecimal
    sources: dict[str, set[str]] = field(default_factory=dict)  # kind -> each once

    def add(self, kind: str, source: str) -> None:
        """Name a source, if it is not yet."""
        self.sources.setdefault(kind, set()).add(source)


@dataclass(frozen=True)
class Work:
    """The trials of a sweep, round by round; a round may depend on the rows of those before it."""

    rounds: Iterator[Sequence[Trial]]
    most: int  # trials that there can be
    words: str  # how many, for a message

    def __str__(self) -> str:
        return self.words


def run_sweep(config: Config, overrides: Sequence[str]) -> int:
    """Run the sweep of `config`, which `overrides` compose, or what is missing of it; returns the exit code.

    Leaves manifest.yaml, trials.parquet, summary.json and the page in output.dir, and prints the comparison.

    Raises:
        UserError: a trial is wrong, the directory holds something else, or the executor cannot start.
        KeyboardInterrupt: the user had enough; the trials that have ended are kept.
    """
    sweep = config.sweep
    if sweep is None:
        raise ValueError("this configuration holds no sweep")
    started_s = time.perf_counter()
    check_reachable(config.executor)
    trials = plan(Composer(overrides), sweep)
    searches = [] if sweep.search is None else bisections_of(trials, sweep.search)
    inputs = check_inputs(trials)
    sources = {kind: "; ".join(sorted(each)) for kind, each in inputs.sources.items()}
    about = manifest(config, sweep.seeds, inputs.digests, sources)
    directory = default_dir(sweep.name) if config.output.dir is None else Path(config.output.dir)
    open_directory(directory, about["identity"])
    with open_trials(directory) as writer:
        if not (directory / MANIFEST).exists():
            write_yaml(directory / MANIFEST, about)
        work = Work(iter([trials]), len(trials), f"{len(trials)} trials")
        if sweep.search is not None:
            most = most_trials(searches, sweep.search)
            work = Work(
                rounds(trials, searches, sweep.search, writer.finished), most, f"at most {most} trials"
            )
        machine = _run_missing(work, config.executor, writer, directory)
        rows = writer.finish()
        comparison = compare_capacities(searches, sweep) if searches else _compared(sweep, trials, rows)
        axis = comparison["crossover"]["axis"] if sweep.search is None else sweep.search.key
        comparison["anatomies"] = anatomies_of(trials, axis)
        machine["wall_s"] = time.perf_counter() - started_s
        write_json(directory / SUMMARY, {**comparison, **machine})
    _print_results(comparison, rows, sweep, directory)
    leave_page(config.output, directory)
    return 0


def plan(composer: Composer, sweep: SweepConfig) -> list[Trial]:
    """All trials, composed and checked: point by point, seed by seed, so that those to compare run together.

    Of a search, those of its first round.

    Raises:
        UserError: a trial's configuration is wrong; names its arm and its point.
    """
    trials: list[Trial] = []
    schedules: dict[str, Config] = {}  # those asked for as `auto`, once for all seeds and rates
    axes = {**sweep.axes, **(ends(sweep.search) if sweep.search is not None else {})}
    for values in itertools.product(*axes.values()):
        point = dict(zip(axes, values, strict=True))
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
        workloads.add(digest_of(built.workload))
        inputs.add("workload", trial.config.workload.trace or "drawn")
        for one in built.kinds:
            _add_inputs(inputs, one.kind.config, one.bundle.name, trial.arm)
    inputs.digests["workloads"] = hashlib.sha256("".join(sorted(workloads)).encode()).hexdigest()
    return inputs


def _add_inputs(inputs: Inputs, config: Config, bundle: str, arm: str) -> None:
    """What the instances of one kind read, in a trial of `arm`."""
    inputs.digests[f"bundle {bundle}"] = bundle_format.digest(bundle_directory(config))
    inputs.add("bundle", bundle)
    inputs.add("acceptance", acceptance_source(config))
    inputs.add("draft_cost", config.speculation.draft_cost.name)
    schedule = config.speculation.num_speculative_tokens_per_batch_size
    if schedule is not None:
        inputs.add("schedule", f"{arm}: {plain(schedule)}")


def _with_schedule(config: Config, known: dict[str, Config]) -> Config:
    """`config` with the tables' own schedule where it asks for it; `known` keeps one for every kind."""
    if not wants_schedule(config):
        return config
    kind = kind_of(config)
    found = known.setdefault(repr(kind), kind)
    if found is kind:
        found = known[repr(kind)] = resolved(kind)
    return replace(config, speculation=found.speculation, cluster=found.cluster)


def with_whole_paths(config: Config) -> Config:
    """The same files named from the root: a worker process may have another working directory."""
    return with_each(replace(config, workload=with_whole_files(config.workload)), _with_whole_bundle)


def _with_whole_bundle(config: Config) -> Config:
    if config.cluster.bundle is None or bundle_directory(config).is_absolute():
        return config
    whole = str(bundle_directory(config).absolute())
    return replace(config, cluster=replace(config.cluster, bundle=whole))


def _run_missing(work: Work, config: ExecutorConfig, writer: TrialWriter, directory: Path) -> dict[str, Any]:
    """Run the trials that `writer` has no row of; what they took, under the names of MACHINE_KEYS."""
    before = len(writer.finished)
    say(f"{work}{f', {before} kept from before' if before else ''}; results in {directory}")
    ended: list[Ended] = []
    try:
        with (
            closing(_missing(work, config, writer)) as missing,
            progress("sweep", "trials", sys.stderr) as report,
        ):
            for one in missing:
                writer.append(one.row)
                ended.append(one)
                report(len(ended), work.most - before)
    except KeyboardInterrupt:
        say(f"{len(writer.finished)} of {work} are kept; go on with output.dir={directory}")
        raise
    return {
        "engine_wall_s": sum(one.machine["engine_wall_s"] for one in ended),
        "peak_rss_bytes": max((one.machine["peak_rss_bytes"] for one in ended), default=None),
    }


def _missing(work: Work, config: ExecutorConfig, writer: TrialWriter) -> Generator[Ended, None, None]:
    """What missing trials leave, round by round; one follows when `writer` has all rows of that before it."""
    rounds = ([trial for trial in trials if trial.number not in writer.finished] for trials in work.rounds)
    some = filter(None, rounds)
    first = next(some, None)
    if first is None:
        return
    announce_compilation("loop")
    warm_up(first[0].config)
    with open_executor(config, work.most - len(writer.finished)) as executor:
        for trials in itertools.chain([first], some):
            yield from executor.run(run_trial, trials)


def _compared(sweep: SweepConfig, trials: Sequence[Trial], rows: Sequence[Row]) -> dict[str, Any]:
    """The summary.json of a sweep that does not search."""
    comparison = compare_arms(rows, sweep.baseline, list(sweep.axes))
    optima = optima_of(trials, rows, sweep.baseline, comparison["crossover"]["axis"])
    arms = differing_in_drafts(trials, sweep.baseline)
    flips = flips_of(comparison, rows, sweep.baseline, optima, arms)
    return {**comparison, "flips": flips, "optima": optima_tree(optima, comparison["crossover"])}


def _print_results(
    comparison: dict[str, Any], rows: Sequence[Row], sweep: SweepConfig, directory: Path
) -> None:
    if "capacity" in comparison:
        show(capacity_view(comparison, sweep.baseline, width()))
    else:
        show(sweep_view(comparison, sweep.baseline, width(), sweep.compare))
    for warning, count in Counter(text for row in rows for text in row["warnings"]).items():
        say(f"warning: {warning} ({count} of {len(rows)} trials)")
    say(f"results in {directory}")
