"""All of a calibration: files to counts and runs, counts to a profile, runs to a fit of the bundle."""

import hashlib
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster_sim.build import find_bundle
from cluster_sim.bundle.format import Bundle
from cluster_sim.calibrate import parts, sglang_times
from cluster_sim.calibrate.acceptance import Row
from cluster_sim.calibrate.entries import Entry
from cluster_sim.calibrate.least_squares import Report
from cluster_sim.calibrate.measured import Measured, read, timed_runs, timed_traffic, window_seconds
from cluster_sim.calibrate.points import Point, default_metrics, point_of
from cluster_sim.calibrate.profile import COMMAND, rows_of
from cluster_sim.calibrate.run_checks import of_several_tokens, other_models
from cluster_sim.calibrate.server_times import SECONDS, Window
from cluster_sim.calibrate.timed import METRICS, Timed
from cluster_sim.calibrate.timing import Fit, Problem, fit
from cluster_sim.compose import Composer
from cluster_sim.config import Config
from cluster_sim.drafting import draft_length
from cluster_sim.errors import UserError
from cluster_sim.overrides import parse_overrides, quoted

DEFAULT_FIT, NO_FIT = (parts.GPU,), ("none",)
FEWEST_RUNS = 2  # for one fitted number
DATE = re.compile(r"[0-9][0-9TZ:. +-]{0,39}")


@dataclass(frozen=True)
class Asked:
    """What the command line asks for."""

    files: tuple[Path, ...]
    scrapes: tuple[
        tuple[Path, ...], ...
    ]  # of each server run, in order of time: the first one and those after
    seconds: tuple[float, ...]  # from each scrape to its next; one: all of them; none: not said
    bundle: str | None  # None: that of the configuration
    names: tuple[str, ...] | None  # to fit; None: DEFAULT_FIT where there are runs for it
    metrics: (
        tuple[str, ...] | None
    )  # to fit to; None: the first of DEFAULT_METRICS that all measurements have
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
    measured = read(asked.files, asked.scrapes, draft_length(server.config))
    of_runs, of_traffic = measured.counts_of_runs, measured.counts_of_traffic
    rows = rows_of(of_traffic or of_runs, server.config, server.given)
    own_rows = rows_of(of_runs, server.config, server.given) if of_traffic and of_runs else rows
    with tempfile.TemporaryDirectory(prefix="calibrate-") as scratch:
        points, notes = _points(asked, measured, server, (own_rows, rows), Path(scratch))
        done, bundle = _fitted(asked, server, points, Path(scratch), report)
    if not rows and done is None:
        rule = f"calibrate finds a profile in counts of drafts, or times in {FEWEST_RUNS} runs or more"
        got = "--fit none" if asked.names == NO_FIT else "one run" if measured.runs else "no run"
        raise UserError(rule, f"no drafts, and {got}", COMMAND, "Add runs at other rates, or with drafts.")
    notes += other_models([entry for entry, _ in measured.runs], server.config.model.name)
    notes += of_several_tokens([point.timed for point in points])
    if rows:
        notes = [*notes, *_notes(rows, own_rows is not rows, points, measured)]
    sources = _sources(asked, measured.entries)
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
    return server


def _points(
    asked: Asked,
    measured: Measured,
    server: Server,
    rows: tuple[tuple[Row, ...], tuple[Row, ...]],
    scratch: Path,
) -> tuple[list[Point], list[str]]:
    """What to fit to, if anything, and what to say of it; `rows` are those of runs, and those of traffic."""
    _check_metrics(asked.metrics)
    if asked.names == NO_FIT:
        return [], []
    config = server.config
    seconds = window_seconds([growth for growth, _ in measured.windows], asked.seconds, SECONDS)
    runs = timed_runs(measured)
    engines = config.cluster.instances * config.cluster.data_parallel_size
    traffic = timed_traffic(measured, seconds, engines, draft_length(config))
    number = len(runs) + len(traffic)
    if asked.names is None and number < FEWEST_RUNS:
        return [], [
            f"times are not fitted: one number needs {FEWEST_RUNS} runs, and there are {number}",
            *_untimed(measured, seconds),
        ]
    if not number:
        rule = (
            "times are fitted to results of `vllm bench serve`, to scrapes and their seconds, or to responses"
        )
        remedy = f"Add some, give {SECONDS}, or write --fit none."
        raise UserError(rule, "; ".join(_untimed(measured, seconds)) or "none of them", "--fit", remedy)
    of_each = [(one, rows[0]) for one in runs] + [(one, rows[1]) for one in traffic]
    return [
        point_of(one, server.composer, server.given, found, scratch / f"traffic-{place}")
        for place, (one, found) in enumerate(of_each)
    ], [*_untimed(measured, seconds), *_assumed(traffic, measured, config)]


def _fitted(
    asked: Asked, server: Server, points: Sequence[Point], scratch: Path, report: Report
) -> tuple[Fit | None, Bundle | None]:
    """The fit, and the bundle that it scales; nothing without points."""
    if not points:
        return None, None
    config, names = server.config, asked.names or DEFAULT_FIT
    bundle = find_bundle(config)
    parts.check(names, config, bundle)
    metrics = asked.metrics or default_metrics(points)
    problem = Problem(bundle, points, names, metrics, config.seed)
    return fit(problem, scratch, report), bundle


def _check_metrics(metrics: tuple[str, ...] | None) -> None:
    wrong = [metric for metric in metrics or () if metric not in METRICS or (metrics or ()).count(metric) > 1]
    if wrong:
        rule = f"means to fit to are among {', '.join(METRICS)}, each once"
        raise UserError(rule, wrong[0] or "an empty name", "--fit-to", "Correct the list.")


def _untimed(measured: Measured, seconds: Sequence[float | None]) -> list[str]:
    """What of the server's traffic is not compared with."""
    notes = []
    if None in seconds:
        notes.append(
            f"times are not fitted to scrapes: {SECONDS} says how long the traffic between them lasted"
        )
    if measured.responses and not all(map(sglang_times.have_times, measured.responses_by_file)):
        notes.append(
            f"times are not fitted to responses without {sglang_times.RECEIVED} (SGLang's --enable-metrics)"
        )
    return notes


def _assumed(traffic: Sequence[Timed], measured: Measured, config: Config) -> list[str]:
    """What a fit to a server's own traffic takes for granted."""
    notes = []
    if any(isinstance(one.traffic, Window) for one in traffic):
        notes.append(
            f"a scrape does not say how requests arrive: {config.workload.arrivals.name} is assumed, and "
            "that lengths of prompts and outputs do not depend on each other"
        )
    if traffic and measured.is_of_sglang:
        notes.append(
            "SGLang's server is simulated with vLLM's scheduler: what theirs do differently goes into the fit"
        )
    return notes


def _notes(rows: Sequence[Row], has_own_rows: bool, points: Sequence[Point], measured: Measured) -> list[str]:
    """What a reader must know of the profile."""
    notes = []
    if has_own_rows:
        notes.append(
            "the profile is that of scrapes and responses; each run is simulated with its own counts"
        )
    undrafted = sum(point.timed.draft_length == 0 for point in points)
    if undrafted:
        notes.append(f"runs that counted no drafts are simulated without a drafter: {undrafted}")
    if any(row.is_mixed for row in rows):
        notes.append(
            "drafts were of several lengths: each position is divided by the drafts that had it, and all "
            "lengths are taken to be accepted alike"
        )
    if measured.responded:
        notes.append(
            "SGLang counts drafts as if all were of the longest: its server must not adapt their length"
        )
    return notes


def _sources(asked: Asked, entries: Sequence[Entry]) -> tuple[Source, ...]:
    paths = dict.fromkeys([*asked.files, *(path for each in asked.scrapes for path in each)])
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
