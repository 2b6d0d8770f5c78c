"""All of a calibration: files to counts and runs, counts to a profile, runs to a fit of the bundle."""

import hashlib
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster_sim.build import find_bundle
from cluster_sim.bundle.format import Bundle
from cluster_sim.calibrate import bench, parts, sglang
from cluster_sim.calibrate.acceptance import Row, row_of
from cluster_sim.calibrate.counts import Counts
from cluster_sim.calibrate.entries import Entry, read_entries, said
from cluster_sim.calibrate.least_squares import Report
from cluster_sim.calibrate.points import METRICS, Point, check_given, point_of
from cluster_sim.calibrate.scrapes import growth
from cluster_sim.calibrate.timing import Fit, Problem, fit
from cluster_sim.compose import Composer
from cluster_sim.config import Config, Method
from cluster_sim.drafting import as_vllm_runs_it, draft_length
from cluster_sim.errors import UserError
from cluster_sim.overrides import parse_overrides, quoted
from cluster_sim.speculation.schedule import dense_lookup

DEFAULT_FIT, NO_FIT = (parts.GPU,), ("none",)
FEWEST_RUNS = 2  # for one fitted number
KEY = "speculation.num_speculative_tokens"
COMMAND = "calibrate"
DATE = re.compile(r"[0-9][0-9TZ:. +-]{0,39}")


@dataclass(frozen=True)
class Asked:
    """What the command line asks for."""

    files: tuple[Path, ...]
    scrapes: tuple[Path, Path] | None  # before and after
    bundle: str | None  # None: that of the configuration
    names: tuple[str, ...] | None  # to fit; None: DEFAULT_FIT where there are runs for it
    metrics: tuple[str, ...]  # to fit to
    overrides: tuple[str, ...]
    name: str  # of the bundle and of the option of speculation


@dataclass(frozen=True)
class Server:
    """What was measured, as the command line says."""

    composer: Composer
    given: Mapping[str, object]  # keys of the command line

    @property
    def config(self) -> Config:
        """Its configuration."""
        return self.composer.config


@dataclass(frozen=True)
class Source:
    """A file that was read."""

    path: Path
    sha256: str
    dates: tuple[str, ...]  # as its runs say

    def __str__(self) -> str:
        dates = f", {self.dates[0]}" if self.dates else ""
        return f"{self.path.name} (sha256 {self.sha256[:16]}{dates})"


@dataclass(frozen=True)
class Calibration:
    """What was found, and from what."""

    config: Config
    sources: tuple[Source, ...]
    rows: tuple[Row, ...]  # by draft length, ascending
    bundle: Bundle | None  # scaled; None: nothing was fitted
    fit: Fit | None
    notes: tuple[str, ...]

    @property
    def words(self) -> str:
        """Where its numbers come from, in a line."""
        return _words(self.sources)


def calibrate(asked: Asked, report: Report) -> Calibration:
    """Read, check and fit.

    Raises:
        UserError: a file is damaged, contradicts itself or the configuration, or does not hold what is asked.
    """
    server = _server(asked)
    entries = [entry for file in asked.files for entry in read_entries(file)]
    runs, responses = _sorted(entries)
    bench.check_once(runs)
    of_runs = [bench.counts_of(entry) for entry in runs if bench.has_drafts(entry)]
    of_traffic = _counts_of_traffic(responses, asked.scrapes, server.config)
    rows = _rows(of_traffic or of_runs, server)
    own_rows = _rows(of_runs, server) if of_traffic and of_runs else rows
    with tempfile.TemporaryDirectory(prefix="calibrate-") as scratch:
        points, notes = _points(asked, runs, server, own_rows, Path(scratch))
        done, bundle = _fitted(asked, server, points, Path(scratch), report)
    if not rows and done is None:
        rule = f"calibrate finds a profile in counts of drafts, or times in {FEWEST_RUNS} runs or more"
        got = "--fit none" if asked.names == NO_FIT else "one run" if runs else "no run"
        raise UserError(rule, f"no drafts, and {got}", COMMAND, "Add runs at other rates, or with drafts.")
    notes += bench.other_models(runs, server.config.model.name)
    notes += bench.of_several_tokens([point.run for point in points])
    if rows:
        undrafted = sum(point.run.draft_length == 0 for point in points)
        notes = [*notes, *_notes(rows, own_rows is not rows, undrafted, bool(responses))]
    sources = _sources(asked, entries)
    if done is not None and bundle is not None:
        note = f"{_words(sources)}: {_fitted_words(done)}"
        bundle = parts.scaled(bundle, done.factors, asked.name, note)
    return Calibration(server.config, sources, rows, bundle, done, tuple(notes))


def _server(asked: Asked) -> Server:
    arguments = list(asked.overrides)
    if asked.bundle is not None:
        arguments.append(f"cluster.bundle={quoted(asked.bundle)}")
    server = Server(Composer(arguments), parse_overrides(arguments).values)
    if server.config.sweep is not None or server.config.study is not None:
        raise UserError("one server is calibrated", "a sweep or a study", COMMAND, "Leave it out.")
    check_given(server.given)
    return server


def _fitted(
    asked: Asked, server: Server, points: Sequence[Point], scratch: Path, report: Report
) -> tuple[Fit | None, Bundle | None]:
    """The fit, and the bundle that it scales; nothing without points."""
    if not points:
        return None, None
    config, names = server.config, asked.names or DEFAULT_FIT
    bundle = find_bundle(config)
    parts.check(names, config, bundle)
    problem = Problem(bundle, points, names, asked.metrics, config.seed)
    return fit(problem, scratch, report), bundle


def _sorted(entries: Sequence[Entry]) -> tuple[list[Entry], list[Entry]]:
    """Runs of vLLM and responses of SGLang."""
    runs, responses = [], []
    for entry in entries:
        if sglang.is_response(entry):
            responses.append(entry)
        elif bench.is_run(entry):
            runs.append(entry)
        else:
            rule = "a measurement is a result of `vllm bench serve` or a response of SGLang with meta_info"
            names = ", ".join(map(said, list(entry.values)[:4]))
            entry.refuse(rule, f"an object of {names}", "Give such a file, or scrapes with --metrics-before.")
    return runs, responses


def _counts_of_traffic(
    responses: Sequence[Entry], scrapes: tuple[Path, Path] | None, config: Config
) -> list[Counts]:
    """Counts of a server's own traffic, which come before those of a benchmark."""
    counts = sglang.counts_of(responses, draft_length(config)) if responses else []
    return counts if scrapes is None else [*counts, growth(*scrapes)]


def _rows(counts: Sequence[Counts], server: Server) -> tuple[Row, ...]:
    """A profile for each draft length that was measured."""
    config = server.config
    if config.speculation.method is Method.none:
        if counts:
            rule, remedy = "drafts were counted, so that there is a drafter", "Choose it: speculation=eagle3."
            raise UserError(rule, "speculation=none", counts[0].place, remedy)
        return ()
    if not counts:
        rule = "a profile needs counts of drafts: spec_decode_* of vLLM's result, two scrapes, or meta_info"
        remedy = "Add such a file, or write speculation=none to fit the target alone."
        raise UserError(rule, "none in any file", COMMAND, remedy)
    own = [key for key in server.given if key.startswith("speculation.acceptance")]
    if own:
        rule = "acceptance is what calibrate finds"
        raise UserError(rule, "a value of your own", own[0], "Leave it out.")
    longest = max(counts, key=lambda one: len(one.accepted_at))
    measured, asked = len(longest.accepted_at), draft_length(config)
    if measured != asked:
        rule = f"{KEY} must be {measured}, as the counts have {measured} positions"
        raise UserError(
            rule, asked, longest.place, f"Set {KEY}={measured}, or give the files of other drafts."
        )
    by_length: dict[int, list[Counts]] = {}
    for one in counts:
        by_length.setdefault(len(one.accepted_at), []).append(one)
    scheduled = _lengths(config)
    return tuple(
        row_of(by_length[length], scheduled if length == asked else (length,)) for length in sorted(by_length)
    )


def _lengths(config: Config) -> tuple[int, ...]:
    """Draft lengths that the server may use, ascending, 0 left out."""
    setting = as_vllm_runs_it(config)
    ranges, longest = setting.config.speculation.num_speculative_tokens_per_batch_size, draft_length(config)
    if ranges is None:
        return (longest,)
    lookup = dense_lookup(ranges, int(setting.engine.max_num_seqs or 0), longest)
    return tuple(sorted({int(drafts) for drafts in lookup[1:]} - {0}))


def _points(
    asked: Asked, runs: Sequence[Entry], server: Server, rows: Sequence[Row], scratch: Path
) -> tuple[list[Point], list[str]]:
    """The runs to fit to, none where there is nothing to fit; and what to say of that."""
    wrong = [metric for metric in asked.metrics if metric not in METRICS or asked.metrics.count(metric) > 1]
    if wrong:
        rule = f"means to fit to are among {', '.join(METRICS)}, each once"
        raise UserError(rule, wrong[0] or "an empty name", "--fit-to", "Correct the list.")
    if asked.names == NO_FIT:
        return [], []
    if asked.names is None and len(runs) < FEWEST_RUNS:
        return [], [f"times are not fitted: one number needs {FEWEST_RUNS} runs, and there are {len(runs)}"]
    if not runs:
        rule, remedy = "times are fitted to results of `vllm bench serve`", "Add some, or write --fit none."
        raise UserError(rule, "none of them", "--fit", remedy)
    traces = [scratch / f"run-{number}.jsonl" for number in range(len(runs))]
    timed = [bench.timed(entry) for entry in runs]
    return [
        point_of(run, server.composer, server.given, rows, trace)
        for run, trace in zip(timed, traces, strict=True)
    ], []


def _notes(rows: Sequence[Row], has_own_rows: bool, undrafted: int, is_of_sglang: bool) -> list[str]:
    """What a reader must know of the profile."""
    notes = []
    if has_own_rows:
        notes.append(
            "the profile is that of scrapes and responses; each run is simulated with its own counts"
        )
    if undrafted:
        notes.append(f"runs that counted no drafts are simulated without a drafter: {undrafted}")
    if any(row.is_mixed for row in rows):
        notes.append(
            "drafts were of several lengths: each position is divided by the drafts that had it, and all "
            "lengths are taken to be accepted alike"
        )
    if is_of_sglang:
        notes.append(
            "SGLang counts drafts as if all were of the longest: its server must not adapt their length"
        )
    return notes


def _sources(asked: Asked, entries: Sequence[Entry]) -> tuple[Source, ...]:
    paths = dict.fromkeys([*asked.files, *(asked.scrapes or ())])
    return tuple(
        Source(
            path,
            hashlib.sha256(path.read_bytes()).hexdigest(),
            tuple(
                date
                for entry in entries
                if entry.path == path
                and isinstance(date := entry.values.get("date"), str)
                and DATE.fullmatch(date)
            ),
        )
        for path in paths
    )


def _words(sources: Sequence[Source]) -> str:
    return "calibrated on " + ", ".join(map(str, sources))


def _fitted_words(done: Fit) -> str:
    values = [
        f"{name} {one.value:.4g} ({one.low:.4g} to {one.high:.4g})" for name, one in done.values.items()
    ]
    runs = len({residual.place for residual in done.residuals})
    return f"{', '.join(values)} by mean {' and '.join(done.metrics)} of {runs} runs"
