"""Responses of SGLang as one measurement: when each request came, how long it was, and how long it took.

    request_received_ts   s of the wall clock; a server with --enable-metrics says it
    e2e_latency           s, from then to the last token
    prompt_tokens, completion_tokens, cached_tokens

Source of the names: tokenizer_manager and req_time_stats of github.com/sgl-project/sglang. The responses of
a file are the traffic of one load: all of it.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster_sim.calibrate.entries import LARGEST, Entry
from cluster_sim.calibrate.sglang import meta_info
from cluster_sim.calibrate.timed import LENGTHS, Sent, Timed, Traffic, as_trace

RECEIVED, LATENCY = "request_received_ts", "e2e_latency"
SHORTEST_S = 1e-4


@dataclass(frozen=True)
class Responses(Traffic):
    """The requests that were answered."""

    requests: tuple[Sent, ...]  # in order of time

    @property
    def own_keys(self) -> Collection[str]:
        """All of the traffic."""
        return (
            "requests",
            "duration_s",
            "request_rate",
            "arrivals",
            "burstiness",
            "trace",
            "max_concurrency",
            *LENGTHS,
        )

    def as_workload(self, given: Collection[str], scratch: Path) -> dict[str, object]:  # noqa: ARG002
        """A trace of the requests, which say their lengths themselves."""
        return as_trace(self.requests, scratch)


def have_times(entries: Sequence[Entry]) -> bool:
    """Whether all responses say when their requests came and how long they took."""
    return all(RECEIVED in one and LATENCY in one for one in map(meta_info, entries))


def timed(entries: Sequence[Entry], draft_length: int) -> Timed:
    """What the latencies of one file's responses are compared with; the server drafts `draft_length`.

    Raises:
        UserError: a number is missing or damaged.
    """
    found = [meta_info(entry) for entry in entries]
    came_s = [one.number(RECEIVED, 0.0, LARGEST) for one in found]
    prompts = [one.whole("prompt_tokens", 1) for one in found]
    outputs = [one.whole("completion_tokens", 1) for one in found]
    cached = sum(one.whole("cached_tokens") for one in found if "cached_tokens" in one)
    rows = sorted(zip(came_s, prompts, outputs, strict=True))
    sent = tuple(Sent(at_s - rows[0][0], prompt, output) for at_s, prompt, output in rows)
    latencies_s = [one.number(LATENCY, SHORTEST_S, 1e6) for one in found]
    return Timed(
        str(entries[0].path),
        len(found),
        {"prompt_tokens": sum(prompts) / len(found), "output_tokens": sum(outputs) / len(found)},
        cached_share=cached / sum(prompts),
        draft_length=draft_length,
        means_s={"e2el": sum(latencies_s) / len(found)},
        traffic=Responses(sent),
    )
