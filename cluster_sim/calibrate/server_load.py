"""What a server did between two scrapes of its /metrics, by the names of vLLM and of SGLang.

vLLM     0.33.0, vllm/v1/metrics/loggers.py: histograms of requests that ended; a client that hangs up is
         in none of them, though its first token is; gaps are between deliveries, of a token or several
SGLang   its metrics_collector.py: inter_token_latency_seconds counts tokens, not deliveries; histograms
         of lengths only in newer versions
"""

from collections.abc import Mapping
from dataclasses import dataclass

from cluster_sim.calibrate.growth import Growth, Histogram
from cluster_sim.calibrate.page import SGLANG, VLLM
from cluster_sim.calibrate.timed import LENGTHS, PER_TOKEN
from cluster_sim.traces.text import shortened

TTFT, E2EL, GAPS = "time_to_first_token_seconds", "e2e_request_latency_seconds", "inter_token_latency_seconds"
MOST_UNDER_WAY = 1_000_000
AGAIN = "Scrape after some traffic, or write --fit none."


@dataclass(frozen=True)
class Load:
    """What a server says that it did."""

    growth: Growth
    completed: int
    started: int  # requests that had a first token
    running: tuple[int, int]  # at the two scrapes
    waiting: tuple[int, int]
    mean_tokens: Mapping[str, float]  # by key of LENGTHS
    lengths: Mapping[str, Histogram | None]
    cached_share: float | None
    means_s: Mapping[str, float]  # by name of METRICS

    @property
    def under_way(self) -> tuple[int, int]:
        """Requests at the two scrapes."""
        return self.running[0] + self.waiting[0], self.running[1] + self.waiting[1]

    @property
    def arrived(self) -> int:
        """Requests that came between the scrapes."""
        before, after = self.under_way
        return self.completed + after - before


def load_of(growth: Growth) -> Load:
    """What the server says.

    Raises:
        UserError: numbers are missing or contradict each other.
    """
    return _load_of_vllm(growth) if growth.after.prefix == VLLM else _load_of_sglang(growth)


def _load_of_vllm(growth: Growth) -> Load:
    ttft, e2el = _observed(growth, TTFT), _observed(growth, E2EL)
    prompts, outputs = (_observed(growth, f"request_{kind}_tokens") for kind in ("prompt", "generation"))
    tpot, gaps = growth.histogram("request_time_per_output_token_seconds"), growth.histogram(GAPS)
    of_one_token = outputs.counts[0] if outputs.bounds[0] == 1 else 0  # vLLM observes a TPOT of 0
    means_s = {"ttft": ttft.total / ttft.count, "e2el": e2el.total / e2el.count}
    if tpot is not None and tpot.count > of_one_token:
        means_s["tpot"] = tpot.total / (tpot.count - of_one_token)
    after_first = growth.counted("generation_tokens") - ttft.count
    if gaps is not None and after_first > 0:
        means_s[PER_TOKEN] = gaps.total / after_first
    running, waiting = _gauge(growth, "num_requests_running"), _gauge(growth, "num_requests_waiting")
    if gaps is not None and gaps.count and not any((*running, *waiting)):
        means_s["itl"] = gaps.total / gaps.count
    queried = growth.counted("prefix_cache_queries")
    return Load(
        growth,
        completed=e2el.count,
        started=ttft.count,
        running=running,
        waiting=waiting,
        mean_tokens=_means(prompts.total / prompts.count, outputs.total / outputs.count),
        lengths={"prompt_tokens": prompts, "output_tokens": outputs},
        cached_share=growth.counted("prefix_cache_hits") / queried if queried else None,
        means_s=means_s,
    )


def _load_of_sglang(growth: Growth) -> Load:
    ttft, e2el = _observed(growth, TTFT), _observed(growth, E2EL)
    prompt_tokens, output_tokens = growth.counted("prompt_tokens"), growth.counted("generation_tokens")
    if not prompt_tokens or not output_tokens:
        rule = f"{SGLANG}prompt_tokens_total and {SGLANG}generation_tokens_total count tokens"
        growth.refuse(rule, f"{prompt_tokens} and {output_tokens}", AGAIN)
    means_s = {"ttft": ttft.total / ttft.count, "e2el": e2el.total / e2el.count}
    per_token = growth.histogram(GAPS)
    if per_token is not None and per_token.count:
        means_s[PER_TOKEN] = per_token.total / per_token.count
    return Load(
        growth,
        completed=e2el.count,
        started=ttft.count,
        running=_gauge(growth, "num_running_reqs"),
        waiting=_gauge(growth, "num_queue_reqs"),
        mean_tokens=_means(prompt_tokens / e2el.count, output_tokens / e2el.count),
        lengths={
            "prompt_tokens": growth.histogram("prompt_tokens_histogram"),
            "output_tokens": growth.histogram("generation_tokens_histogram"),
        },
        cached_share=growth.counted("cached_tokens") / prompt_tokens,
        means_s=means_s,
    )


def _observed(growth: Growth, name: str) -> Histogram:
    """A histogram with a value above 0."""
    found = growth.histogram(name)
    if found is None or not found.count or found.total <= 0:
        rule = f"times are fitted to a server that observes {growth.after.prefix}{name}"
        growth.refuse(rule, "none" if found is None else "no values", AGAIN)
    return found


def _gauge(growth: Growth, name: str) -> tuple[int, int]:
    """Its values at the two scrapes, all engines together."""
    values = []
    for page in (growth.before, growth.after):
        of_engines = page.of(name).values()
        if not of_engines or not all(0 <= value <= MOST_UNDER_WAY for value in of_engines):
            rule = f"{page.prefix}{name} says how many requests there are, up to {MOST_UNDER_WAY:,}"
            page.refuse(rule, shortened(", ".join(f"{value:g}" for value in of_engines) or "nothing"))
        values.append(round(sum(of_engines)))
    return values[0], values[1]


def _means(prompt_tokens: float, output_tokens: float) -> dict[str, float]:
    return dict(zip(LENGTHS, (prompt_tokens, output_tokens), strict=True))
