"""A window between two scrapes as one measurement: its traffic, and the mean latencies of its requests.

A scrape does not say how requests arrived: by the workload's arrivals, Poisson unless the user says so.
Lengths are those of the histograms, spread within their buckets (length_buckets.py), prompts and outputs
independent of each other; where a server has none, all have the mean.

A server that is idle at a scrape starts there, or gives its last answer. One under way is simulated from
SETTLES mean latencies before the first scrape to as many after the second, which are cut off again
(warmup.py); at most MOST_REQUESTS are measured, as a part of steady traffic has the same means.
"""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from cluster_sim.calibrate.growth import Growth
from cluster_sim.calibrate.length_buckets import lengths_of
from cluster_sim.calibrate.server_load import AGAIN, Load, load_of
from cluster_sim.calibrate.timed import Timed, Traffic, fixed_lengths

SETTLES = 3.0  # mean latencies
MOST_REQUESTS = 5000
CHANCE = 10  # requests: fewer are no sign of anything
MOST_LEFT = 0.05  # of requests, whose clients hung up
MOST_QUEUED = 0.1  # of requests, that came and were not served, or the other way round
SECONDS = "--metrics-seconds"
LITTLE = 4.0  # times more or fewer under way than Little's law says


@dataclass(frozen=True)
class Window(Traffic):
    """Requests between two scrapes."""

    load: Load
    seconds: float  # in which they arrived

    @property
    def own_keys(self) -> Collection[str]:
        """All but how requests arrive, how long they are and what they share."""
        return ("requests", "duration_s", "request_rate", "trace", "max_concurrency", "warmup", "cooldown")

    def as_workload(self, given: Collection[str], scratch: Path) -> dict[str, object]:
        """Requests at the mean rate, before and after the window too where the server was under way."""
        load = self.load
        before, after = load.under_way
        rate = load.arrived / self.seconds
        settles_s = SETTLES * load.means_s["e2el"]
        warmup_s, cooldown_s = (settles_s if there else 0.0 for there in (before, after))
        measured_s = min(self.seconds, MOST_REQUESTS / rate) if before and after else self.seconds
        span_s = warmup_s + measured_s + cooldown_s
        return {
            "workload.requests": max(1, round(rate * span_s)),
            "workload.request_rate": rate,
            "workload.warmup": warmup_s / span_s,
            "workload.cooldown": cooldown_s / span_s,
            **self._lengths(given, scratch),
        }

    def _lengths(self, given: Collection[str], scratch: Path) -> dict[str, object]:
        keys = fixed_lengths(self.load.mean_tokens, given)
        for key, histogram in self.load.lengths.items():
            if histogram is not None and f"workload.{key}" in keys:
                path = scratch.with_suffix(f".{key}")
                lengths = lengths_of(histogram, key, self.load.growth)
                path.write_text("".join(f"{length}\n" for length in lengths), "utf-8")
                keys[f"workload.{key}"] = {"distribution": "file", "path": str(path)}
        return keys


def timed(growth: Growth, seconds: float, engines: int, draft_length: int) -> Timed:
    """What a server of `engines` schedulers is compared with, `seconds` having passed between the scrapes.

    Raises:
        UserError: numbers are missing or contradict each other, or the load was not steady.
    """
    if growth.engines is not None and growth.engines != engines:
        rule = f"scrapes of {growth.engines} engines are of as many in the configuration"
        remedy = "Set cluster.instances or cluster.data_parallel_size, or write --fit none."
        growth.refuse(rule, engines, remedy)
    load = load_of(growth)
    _check_steady(load)
    return Timed(
        growth.place,
        load.completed,
        load.mean_tokens,
        cached_share=load.cached_share,
        draft_length=draft_length,
        means_s=load.means_s,
        traffic=Window(load, _arriving_s(load, seconds)),
    )


def _check_steady(load: Load) -> None:
    """Refuse a load that the server did not serve, or that clients left."""
    before, after = load.under_way
    if abs(after - before) > max(MOST_QUEUED * load.completed, CHANCE):
        most = f"{100 * MOST_QUEUED:.0f}%"
        rule = f"between two scrapes as many requests come as end, {load.completed}, but for {most}"
        remedy = "Scrape under a steady load, below saturation, or write --fit none."
        load.growth.refuse(rule, f"{before} under way at the first and {after} at the second", remedy)
    if load.arrived < 1:
        load.growth.refuse("requests must come between two scrapes", load.arrived, AGAIN)
    left = load.started - load.completed - (load.running[1] - load.running[0])
    if left > max(MOST_LEFT * load.started, CHANCE):
        most = f"{100 * MOST_LEFT:.0f}%"
        rule = f"all but {most} of {load.started} requests end: those whose clients hang up make room"
        load.growth.refuse(
            rule, f"{left} that did not", "Scrape while clients wait for their answers, or write --fit none."
        )


def _arriving_s(load: Load, seconds: float) -> float:
    """The time in which requests arrived: less than that between scrapes where the second saw none under way.

    Little's law: where the server was under way, as many requests are there as their latency and rate say.
    """
    before, after = load.under_way
    e2el_s = load.means_s["e2el"]
    arriving_s = seconds if after else seconds - e2el_s
    if arriving_s <= 0:
        rule = f"the time between scrapes holds more than one latency, {e2el_s:.3g} s"
        load.growth.refuse(rule, f"{seconds:g} s", f"Correct {SECONDS}, or scrape less often.")
    counted, expected = (before + after) / 2, load.completed * e2el_s / seconds
    low, high = min(counted, expected), max(counted, expected)
    if before and after and high > LITTLE * low and high - low > CHANCE:
        rate = f"{load.completed / seconds:.3g} requests/s"
        rule = f"at {rate} of {e2el_s:.3g} s each there are {expected:.0f} under way"
        load.growth.refuse(rule, f"{before} and {after} at the scrapes", f"Correct {SECONDS}, in seconds.")
    return arriving_s
