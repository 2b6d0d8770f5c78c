"""What vLLM's metrics observe of requests: name -> help, and the values of the requests of one engine.

Sources: vllm/v1/metrics/loggers.py, stats.py and buckets.py of 0.33. Observed at a request's end is that of
completed requests: a client that gives up is in none of it, and `abort` stays 0
(github.com/vllm-project/vllm/issues/31503). At its first token: that of all with one. At its admission: that
of all whose queue ended. The queue starts when the engine core picks the request up.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cluster_sim.server_counts import ITL_BUCKETS_S

REQUEST_BUCKETS_S = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0),
    *(960.0, 1920.0, 7680.0),
)
TTFT_BUCKETS_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0),
    *(80.0, 160.0, 640.0, 2560.0),
)
PREEMPTIONS_BUCKETS = (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0)

Column = NDArray[Any]
Requests = Mapping[str, Column]  # of one engine
Of = Callable[[Requests], Column]


def token_buckets(most: int) -> list[float]:
    """1, 2, 5, 10, .. up to `most`: vLLM's buckets of numbers of tokens, `most` being max_model_len."""
    bounds = (digit * 10**exponent for exponent in range(len(str(most))) for digit in (1, 2, 5))
    return [float(bound) for bound in bounds if bound <= most]


def sums(caches: bool) -> dict[str, tuple[str, Of]]:
    """Counters that are sums over requests; `caches`: whether prefixes are cached."""
    return {
        "prefix_cache_queries": (
            "Prefix cache queries, in terms of number of queried tokens.",
            lambda columns: columns["prompt_tokens"] * caches * ~np.isnan(columns["queue_s"]),
        ),
        "prefix_cache_hits": (
            "Prefix cache hits, in terms of number of cached tokens.",
            lambda columns: columns["cached_tokens"],
        ),
        "num_preemptions": (
            "Cumulative number of preemption from the engine.",
            lambda columns: columns["preemptions"],
        ),
        "prompt_tokens": ("Number of prefill tokens processed.", _with_a_token("prompt_tokens")),
        "prompt_tokens_cached": (
            "Number of cached prompt tokens (local + external).",
            _with_a_token("cached_tokens"),
        ),
        "generation_tokens": (
            "Number of generation tokens processed.",
            lambda columns: columns["emitted_tokens"],
        ),
    }


def by_source(columns: Requests) -> dict[str, float]:
    """Prompt tokens of requests with a first token, by where their KV came from."""
    prompt, cached = (float(_with_a_token(f"{name}_tokens")(columns).sum()) for name in ("prompt", "cached"))
    return {"local_compute": prompt - cached, "local_cache_hit": cached, "external_kv_transfer": 0.0}


def finished(columns: Requests, longest: int) -> dict[str, float]:
    """Requests by vLLM's finish reason; `longest` is max_model_len."""
    outcome, emitted = columns["outcome"], columns["emitted_tokens"]
    capped = (emitted >= columns["max_tokens"]) | (columns["prompt_tokens"] + emitted >= longest)
    return {
        "stop": int(((outcome == "completed") & ~capped).sum()),
        "length": int(((outcome == "completed") & capped).sum()),
        "abort": 0,
        "error": int((outcome == "failed").sum()),
        "repetition": 0,
    }


def histograms(longest: int) -> dict[str, tuple[str, Sequence[float], Of]]:
    """Histograms over requests, their buckets after their help; `longest` is max_model_len."""
    return {**_token_histograms(token_buckets(longest)), **_time_histograms()}


def _token_histograms(tokens: Sequence[float]) -> dict[str, tuple[str, Sequence[float], Of]]:
    return {
        "request_prompt_tokens": ("Number of prefill tokens processed.", tokens, _at_end("prompt_tokens")),
        "request_generation_tokens": (
            "Number of generation tokens processed.",
            tokens,
            _at_end("emitted_tokens"),
        ),
        "request_max_num_generation_tokens": (
            "Histogram of maximum number of requested generation tokens.",
            tokens,
            _at_end("emitted_tokens"),  # the longest of its n answers, of which there is one
        ),
        "request_params_max_tokens": (
            "Histogram of the max_tokens request parameter.",
            tokens,
            _at_end("max_tokens"),
        ),
        "request_prefill_kv_computed_tokens": (
            "Histogram of new KV tokens computed during prefill (excluding cached tokens).",
            tokens,
            _at_end("prompt_tokens", "cached_tokens"),
        ),
        "request_num_preemptions": (
            "Histogram of the number of times a request was preempted.",
            PREEMPTIONS_BUCKETS,
            _at_end("preemptions"),
        ),
    }


def _time_histograms() -> dict[str, tuple[str, Sequence[float], Of]]:
    at_end = {
        "e2e_request_latency": ("e2e request latency in seconds", _at_end("e2el_s")),
        "request_queue_time": ("time spent in WAITING phase for request", _at_end("queue_s", "pickup_s")),
        "request_inference_time": ("time spent in RUNNING phase for request", _at_end("e2el_s", "queue_s")),
        "request_prefill_time": ("time spent in PREFILL phase for request", _at_end("ttft_s", "queue_s")),
        "request_decode_time": ("time spent in DECODE phase for request", _at_end("e2el_s", "ttft_s")),
    }
    return {
        "time_to_first_token_seconds": (
            "Histogram of time to first token in seconds.",
            TTFT_BUCKETS_S,
            _with_a_token("ttft_s"),
        ),
        "request_time_per_output_token_seconds": (
            "Histogram of time_per_output_token_seconds per request.",
            ITL_BUCKETS_S,
            lambda columns: np.nan_to_num(_at_end("tpot_s")(columns)),  # of one token, vLLM observes 0
        ),
        **{
            f"{name}_seconds": (f"Histogram of {words}.", REQUEST_BUCKETS_S, of)
            for name, (words, of) in at_end.items()
        },
    }


def _with_a_token(name: str) -> Of:
    """A column of the requests that have a first token."""
    return lambda columns: columns[name][columns["chunks"] > 0]


def _at_end(name: str, less: str | None = None) -> Of:
    """A column of the completed requests, `less` another."""

    def of(columns: Requests) -> Column:
        values = columns[name] if less is None else columns[name] - columns[less]
        chosen: Column = values[columns["outcome"] == "completed"]
        return chosen

    return of
