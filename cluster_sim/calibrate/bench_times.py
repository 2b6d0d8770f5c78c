"""A run of `vllm bench serve`: how it sent its requests, and the mean latencies that its clients saw.

Times of the file are in ms, and those of --save-detailed in s (../shared/vllm-scheduler.md section 13).
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from cluster_sim.calibrate.bench import POSITIONS, has_drafts
from cluster_sim.calibrate.entries import LARGEST, Entry, said
from cluster_sim.calibrate.timed import LENGTHS, METRICS, Sent, Timed, Traffic, as_trace, fixed_lengths

ALL_AT_ONCE = 1e6  # requests/s, for a rate of inf
SHORTEST_TOKEN_MS = 0.05  # a token of one user in less is no GPU's time: 20,000 tokens/s for each
DETAILS = ("start_times", "input_lens", "output_lens")
TIMES = ("mean_ttft_ms", "mean_tpot_ms")
CONCURRENCY_TOLERANCE = 1.02


@dataclass(frozen=True)
class Sending(Traffic):
    """How a run sent its requests.

    vLLM ends the arrivals at num_prompts / request_rate exactly (../shared/vllm-scheduler.md section 13). A
    run that was kept with --save-detailed says when each request was sent and how long it was: those requests
    are simulated, as a trace. With --max-concurrency they wait at the client, as vLLM's do, for a place or,
    with a rate of inf, for the answer before (closed_loop). Lengths that nobody says have their mean.
    """

    entry: Entry
    num_prompts: int
    request_rate: float  # requests/s; inf: all at once
    burstiness: float  # vLLM's shape of the gaps; inf: all alike
    max_concurrency: int | None
    mean_tokens: Mapping[str, float]  # by key of LENGTHS
    requests: tuple[Sent, ...]  # in order of time; empty: not in the file (--save-detailed)

    @property
    def own_keys(self) -> Collection[str]:
        """All but the lengths."""
        return (
            *("requests", "duration_s", "request_rate", "arrivals", "burstiness", "ends_on_time", "trace"),
            "max_concurrency",
        )

    @property
    def is_limited(self) -> bool:
        """Whether requests may have waited at the client for max_concurrency."""
        if self.max_concurrency is None or self.max_concurrency >= self.num_prompts:
            return False
        most = self.entry.values.get("max_concurrent_requests")
        return not (isinstance(most, int | float) and most < self.max_concurrency)

    def as_workload(self, given: Collection[str], scratch: Path) -> dict[str, object]:
        """The requests themselves, or arrivals of the same kind."""
        keys: dict[str, object] = {"workload.requests": self.num_prompts}
        lengths = fixed_lengths(self.mean_tokens, given)
        if self.requests and len(lengths) == len(LENGTHS) and not self.is_limited:
            return keys | as_trace(self.requests, scratch)
        return keys | lengths | (self._limited() if self.is_limited else self._arrivals())

    def _limited(self) -> dict[str, object]:
        """Requests are sent when others end; where there is a rate, not before they are due."""
        limit = {"workload.max_concurrency": self.max_concurrency}
        if math.isfinite(self.request_rate):
            return self._arrivals() | limit
        clients = {"workload.arrivals": "closed_loop", "workload.request_rate": None}
        return {**clients, "workload.think_time_s": 0.0, **limit}

    def _arrivals(self) -> dict[str, object]:
        if math.isinf(self.request_rate):
            return {"workload.arrivals": "constant", "workload.request_rate": ALL_AT_ONCE}
        if math.isinf(self.burstiness):
            return {"workload.arrivals": "constant", "workload.request_rate": self.request_rate}
        return {
            "workload.arrivals": "gamma",
            "workload.burstiness": self.burstiness,
            "workload.ends_on_time": True,
            "workload.request_rate": self.request_rate,
        }


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
    lengths = {
        "prompt_tokens": entry.whole("total_input_tokens", 1) / completed,
        "output_tokens": entry.whole("total_output_tokens", 1) / completed,
    }
    sending = _sending(entry, prompts, lengths)
    run = Timed(
        entry.place,
        completed,
        lengths,
        cached_share=None,
        draft_length=len(entry.numbers(POSITIONS, 0.0, 1.0)) if has_drafts(entry) else 0,
        means_s=_means_s(entry),
        traffic=sending,
    )
    _check_concurrency(run, entry.number("duration", 1e-3, 1e9), sending.max_concurrency or completed)
    return run


def _means_s(entry: Entry) -> dict[str, float]:
    """The means by name of METRICS; those of TIMES must be there."""
    found = {}
    for metric in METRICS:
        name = f"mean_{metric}_ms"
        if name in TIMES or name in entry:
            found[metric] = entry.number(name, SHORTEST_TOKEN_MS, 1e9) / 1e3
    return found


def _sending(entry: Entry, prompts: int, lengths: Mapping[str, float]) -> Sending:
    return Sending(
        entry,
        prompts,
        request_rate=_or_inf(entry, "request_rate", 1e-6),
        burstiness=_or_inf(entry, "burstiness", 1e-3) if "burstiness" in entry.values else 1.0,
        max_concurrency=entry.whole("max_concurrency", 1) if "max_concurrency" in entry else None,
        mean_tokens=lengths,
        requests=_requests(entry, prompts) if all(name in entry for name in DETAILS) else (),
    )


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


def _check_concurrency(run: Timed, duration_s: float, limit: int) -> None:
    """Little's law: as many requests are under way as their times say; no more than there are.

    Times in another unit break it.
    """
    each_s = run.means_s["ttft"] + run.means_s["tpot"] * (run.mean_tokens["output_tokens"] - 1)
    concurrency = run.requests * each_s / duration_s
    most = min(run.requests, limit)
    if concurrency > CONCURRENCY_TOLERANCE * most:
        rule = f"{' and '.join(TIMES)} are in ms, so that at most {most} requests are under way at a time"
        run.refuse(rule, f"{concurrency:.4g} by Little's law")
