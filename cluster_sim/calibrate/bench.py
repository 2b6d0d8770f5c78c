"""Result files of `vllm bench serve`: one run, a list of runs (`vllm bench sweep`'s summary), or one a line.

Source of the names and their units: vLLM 0.33.0 (../shared/vllm-scheduler.md section 13;
../shared/spec-decode-facts.md F1). spec_decode_acceptance_rate is in percent, the rates by position are
fractions of all drafts.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from cluster_sim.calibrate.counts import Counts, check
from cluster_sim.calibrate.entries import LARGEST, Entry, said
from cluster_sim.traces.text import shortened

PREFIX = "spec_decode_"
POSITIONS = f"{PREFIX}per_position_acceptance_rates"
RATE_TOLERANCE = 1e-3  # of a share: files are rounded by hand
SHORTEST_TOKEN_MS = 0.05  # a token of one user in less is no GPU's time: 20,000 tokens/s for each
DETAILS = ("start_times", "input_lens", "output_lens")
TIMES = ("mean_ttft_ms", "mean_tpot_ms")
IDENTITY = ("date", "duration", *TIMES, f"{PREFIX}num_drafts", f"{PREFIX}accepted_tokens")
MOST_ITL_TO_TPOT = 1.4  # of a token a chunk: 1.0 but for how requests weigh; of one draft, near 1.8
CONCURRENCY_TOLERANCE = 1.02


@dataclass(frozen=True)
class Timed:
    """What one run asked for, and the latencies that it saw; seconds."""

    entry: Entry
    num_prompts: int
    request_rate: float  # requests/s; inf: all at once
    burstiness: float  # vLLM's shape of the gaps; inf: all alike
    max_concurrency: int | None
    duration_s: float
    mean_input_tokens: float
    mean_output_tokens: float
    mean_ttft_s: float
    mean_tpot_s: float
    mean_itl_s: float | None  # None: not in the file
    draft_length: int  # 0: no speculation
    requests: tuple["Sent", ...]  # in order of time; empty: not in the file (--save-detailed)


@dataclass(frozen=True)
class Sent:
    """One request, as --save-detailed keeps it."""

    arrival_s: float  # from the first one
    prompt_tokens: int
    output_tokens: int


def is_run(entry: Entry) -> bool:
    """Whether the entry is a run of `vllm bench serve`."""
    return "mean_tpot_ms" in entry or "num_prompts" in entry or POSITIONS in entry


def has_drafts(entry: Entry) -> bool:
    """Whether it counted drafts: vLLM leaves the keys out where there were none."""
    return any(name.startswith(PREFIX) and value is not None for name, value in entry.values.items())


def counts_of(entry: Entry) -> Counts:
    """What speculation did in a run.

    Raises:
        UserError: numbers are missing, damaged, or contradict each other.
    """
    rates = entry.numbers(POSITIONS, 0.0, 1.0)
    drafts, tokens = entry.whole(f"{PREFIX}num_drafts", 1), entry.whole(f"{PREFIX}draft_tokens", 1)
    accepted = entry.whole(f"{PREFIX}accepted_tokens")
    counts = Counts(entry.place, drafts, tokens, tuple(round(rate * drafts) for rate in rates))
    if abs(sum(rates) - accepted / drafts) > RATE_TOLERANCE * len(rates):
        rule = f"the sum of {POSITIONS} is accepted tokens per draft, {accepted / drafts:.4g}"
        entry.refuse(rule, f"{sum(rates):.4g}")
    check(counts)
    _check_said(
        entry,
        "acceptance_rate",
        100 * accepted / tokens,
        100 * RATE_TOLERANCE,
        "accepted of draft tokens in percent",
    )
    _check_said(
        entry,
        "acceptance_length",
        1 + accepted / drafts,
        len(rates) * RATE_TOLERANCE,
        "1 + accepted tokens per draft",
    )
    return counts


def check_once(runs: Sequence[Entry]) -> None:
    """See that no run is there twice: a sweep's summary.json holds the runs of the files beside it.

    Raises:
        UserError: one is.
    """
    places: dict[tuple[str, ...], str] = {}
    for entry in runs:
        known = tuple(said(entry.values.get(name)) for name in IDENTITY)
        if "duration" in entry and known in places:
            remedy = "Name it once: summary.json holds the runs of the files beside it."
            entry.refuse(f"the run of {places[known]} counts once", "it again", remedy)
        places[known] = entry.place


def timed(entry: Entry) -> Timed:
    """What a run's latencies are compared with.

    Raises:
        UserError: numbers are missing, damaged or in another unit; requests failed; or the rate rose.
    """
    if "num_prompts" not in entry:
        rule = "times are fitted to runs of num_prompts requests"
        entry.refuse(rule, "one that does not say them", "Leave it out, or write --fit none.")
    prompts, completed = entry.whole("num_prompts", 1), entry.whole("completed")
    if entry.values.get("failed") or completed < prompts:
        rule = f"all {prompts} requests of a run must complete: what failed has no latency, and made room"
        entry.refuse(rule, f"{completed} completed", "Leave the run out, or write --fit none.")
    if "ramp_up_strategy" in entry:
        got, remedy = (
            said(entry.values["ramp_up_strategy"]),
            "Measure each rate by itself, or write --fit none.",
        )
        entry.refuse("a run of one rate has one mean to compare", f"ramp_up_strategy {got}", remedy)
    run = Timed(
        entry,
        num_prompts=prompts,
        request_rate=_or_inf(entry, "request_rate", 1e-6),
        burstiness=_or_inf(entry, "burstiness", 1e-3) if "burstiness" in entry.values else 1.0,
        max_concurrency=entry.whole("max_concurrency", 1) if "max_concurrency" in entry else None,
        duration_s=entry.number("duration", 1e-3, 1e9),
        mean_input_tokens=entry.whole("total_input_tokens", 1) / completed,
        mean_output_tokens=entry.whole("total_output_tokens", 1) / completed,
        mean_ttft_s=entry.number("mean_ttft_ms", SHORTEST_TOKEN_MS, 1e9) / 1e3,
        mean_tpot_s=entry.number("mean_tpot_ms", SHORTEST_TOKEN_MS, 1e9) / 1e3,
        mean_itl_s=entry.number("mean_itl_ms", SHORTEST_TOKEN_MS, 1e9) / 1e3
        if "mean_itl_ms" in entry
        else None,
        draft_length=len(entry.numbers(POSITIONS, 0.0, 1.0)) if has_drafts(entry) else 0,
        requests=_requests(entry, prompts) if all(name in entry for name in DETAILS) else (),
    )
    _check_concurrency(run)
    return run


def is_limited(run: Timed) -> bool:
    """Whether requests may have waited at the client for max_concurrency."""
    if run.max_concurrency is None or run.max_concurrency >= run.num_prompts:
        return False
    most = run.entry.values.get("max_concurrent_requests")
    return not (isinstance(most, int | float) and most < run.max_concurrency)


def other_models(runs: Sequence[Entry], name: str) -> list[str]:
    """A note where runs name another model than `name`: a server may call it as it likes."""
    called = dict.fromkeys(said(run.values["model_id"]) for run in runs if "model_id" in run)
    others = shortened(", ".join(each for each in called if _letters(name) not in _letters(each)))
    words = f"measured with model_id {others}, calibrated as {name}: write model=NAME if they differ"
    return [words] if others else []


def of_several_tokens(runs: Sequence[Timed]) -> list[str]:
    """A note where chunks of runs without drafts hold several tokens, as ITL of chunks and TPOT tell."""
    ratios = [run.mean_itl_s / run.mean_tpot_s for run in runs if run.mean_itl_s and not run.draft_length]
    many = [ratio for ratio in ratios if ratio > MOST_ITL_TO_TPOT]
    if not many:
        return []
    return [
        f"mean ITL is up to {max(many):.1f} times mean TPOT in {len(many)} of {len(ratios)} runs without "
        "drafts: chunks hold several tokens, so the server drafts and its /metrics was not read, or it "
        "streams at an interval"
    ]


def _letters(name: str) -> str:
    return re.sub("[^a-z0-9]", "", name.lower())


def _requests(entry: Entry, number: int) -> tuple[Sent, ...]:
    """All requests by the time at which they were sent; clocks start anywhere."""
    start_s = entry.numbers(DETAILS[0], 0.0, LARGEST)
    lengths = [entry.wholes(name) for name in DETAILS[1:]]
    for name, values in zip(DETAILS, (start_s, *lengths), strict=True):
        if len(values) != number:
            entry.refuse(f"{name} has one value for each of {number} requests", len(values))
        if name != DETAILS[0] and min(values) < 1:
            entry.refuse(f"{name} are 1 or more, of requests that all completed", min(values))
    rows = sorted(zip(start_s, *lengths, strict=True))
    return tuple(Sent(at_s - rows[0][0], prompt, output) for at_s, prompt, output in rows)


def _or_inf(entry: Entry, name: str, low: float) -> float:
    """A number, or inf, which vLLM writes as text."""
    return math.inf if entry.values.get(name) == "inf" else entry.number(name, low, 1e6)


def _check_said(entry: Entry, name: str, counted: float, tolerance: float, meaning: str) -> None:
    if f"{PREFIX}{name}" not in entry:
        return
    said = entry.number(f"{PREFIX}{name}")
    if abs(said - counted) > tolerance:
        entry.refuse(f"{PREFIX}{name} is {meaning}, {counted:.4g}", f"{said:.4g}")


def _check_concurrency(run: Timed) -> None:
    """Little's law: as many requests are under way as their times say; no more than there are.

    Times in another unit break it.
    """
    each_s = run.mean_ttft_s + run.mean_tpot_s * (run.mean_output_tokens - 1)
    concurrency = run.num_prompts * each_s / run.duration_s
    most = min(run.num_prompts, run.max_concurrency or run.num_prompts)
    if concurrency > CONCURRENCY_TOLERANCE * most:
        rule = f"{' and '.join(TIMES)} are in ms, so that at most {most} requests are under way at a time"
        run.entry.refuse(rule, f"{concurrency:.4g} by Little's law")
