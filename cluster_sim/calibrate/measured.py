"""All that was measured: results of `vllm bench serve`, responses of SGLang, windows between scrapes.

Drafts are counted in windows and responses, which are of a server's own traffic, and in runs; times are
compared with all that have them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster_sim.calibrate import bench, bench_times, draft_counters, server_times, sglang, sglang_times
from cluster_sim.calibrate.counts import Counts
from cluster_sim.calibrate.entries import Entry, read_entries, said
from cluster_sim.calibrate.growth import Growth, growths
from cluster_sim.calibrate.page import SGLANG
from cluster_sim.calibrate.run_checks import check_once
from cluster_sim.calibrate.timed import Timed
from cluster_sim.errors import UserError


@dataclass(frozen=True)
class Measured:
    """What the files hold; counts are None where nothing was drafted."""

    runs: tuple[tuple[Entry, Counts | None], ...]
    windows: tuple[tuple[Growth, Counts | None], ...]
    responses: tuple[Entry, ...]
    responded: tuple[Counts, ...]  # of the responses that had a verification

    @property
    def entries(self) -> list[Entry]:
        """Those of the JSON files."""
        return [*(entry for entry, _ in self.runs), *self.responses]

    @property
    def counts_of_runs(self) -> list[Counts]:
        """Those of benchmarks."""
        return [counts for _, counts in self.runs if counts is not None]

    @property
    def counts_of_traffic(self) -> list[Counts]:
        """Those of a server's own traffic, which come before those of a benchmark."""
        return [*self.responded, *(counts for _, counts in self.windows if counts is not None)]

    @property
    def responses_by_file(self) -> list[list[Entry]]:
        """In their order."""
        by_file: dict[Path, list[Entry]] = {}
        for entry in self.responses:
            by_file.setdefault(entry.path, []).append(entry)
        return list(by_file.values())

    @property
    def is_of_sglang(self) -> bool:
        """Whether any of it is."""
        return bool(self.responses) or any(growth.after.prefix == SGLANG for growth, _ in self.windows)


def read(files: Sequence[Path], scrapes: Sequence[Sequence[Path]], draft_length: int) -> Measured:
    """Read all files; `scrapes` of each server run in order of time; `draft_length` is the configuration's.

    Raises:
        UserError: a file is damaged, contradicts itself, or is of none of these kinds.
    """
    runs, responses = _sorted([entry for file in files for entry in read_entries(file)])
    check_once(runs)
    windows = [growth for each in scrapes for growth in growths(each)]
    has_verified = draft_length > 0 or any(map(sglang.has_verified, responses))
    return Measured(
        tuple((entry, bench.counts_of(entry) if bench.has_drafts(entry) else None) for entry in runs),
        tuple(
            (growth, draft_counters.counts_of(growth) if draft_counters.has_drafts(growth) else None)
            for growth in windows
        ),
        tuple(responses),
        tuple(sglang.counts_of(responses, draft_length)) if responses and has_verified else (),
    )


def timed_runs(measured: Measured) -> list[Timed]:
    """The runs of `vllm bench serve`.

    Raises:
        UserError: numbers are missing, damaged or in another unit, or the run is of another kind.
    """
    return [bench_times.timed(entry) for entry, _ in measured.runs]


def timed_traffic(
    measured: Measured, seconds: Sequence[float | None], engines: int, draft_length: int
) -> list[Timed]:
    """Windows, of `seconds` each, those of None left out; and files of responses that say when they came.

    Raises:
        UserError: numbers are missing or damaged, or the load was not steady.
    """
    found = []
    for (growth, counts), length_s in zip(measured.windows, seconds, strict=True):
        if length_s is not None:
            drafts = (
                draft_length if growth.after.prefix == SGLANG else len(counts.accepted_at) if counts else 0
            )
            found.append(server_times.timed(growth, length_s, engines, drafts))
    timed = filter(sglang_times.have_times, measured.responses_by_file)
    return [*found, *(sglang_times.timed(of_file, draft_length) for of_file in timed)]


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


def window_seconds(windows: Sequence[Growth], given: Sequence[float], option: str) -> list[float | None]:
    """How long each window is: as its samples say, or as `given`, one value for all or one for each.

    Raises:
        UserError: values that nothing asks for, or neither one nor as many as windows; a second scrape that
            was not later.
    """
    timed = [growth for growth in windows if growth.seconds is not None]
    if given and (timed or not windows):
        rule = f"{option} is of scrapes that carry no times of their own"
        got = "scrapes that do" if timed else "no scrapes"
        raise UserError(rule, got, "command line", "Leave it out.")
    if len(given) > 1 and len(given) != len(windows):
        rule = f"{option} has one value, or one for each of {len(windows)} pairs of scrapes"
        raise UserError(rule, len(given), "command line", "Correct it.")
    one_for_all = given[0] if given else None
    each = given if len(given) > 1 else [one_for_all] * len(windows)
    found = [
        of_option if growth.seconds is None else growth.seconds
        for growth, of_option in zip(windows, each, strict=True)
    ]
    for growth, seconds in zip(windows, found, strict=True):
        if seconds is not None and seconds <= 0:
            growth.refuse(
                "the second scrape is later than the first", f"{seconds:g} s", "Give them in order."
            )
    return found
