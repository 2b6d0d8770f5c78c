"""A simulation as vLLM's /metrics shows it when all requests have ended.

Names, labels, help and buckets are vLLM's (vllm/v1/metrics/loggers.py, buckets.py, spec_decode/metrics.py;
../shared/vllm-scheduler.md section 12). The label `engine` is the number of a scheduler in the cluster, that
of rank r of instance i being i * ranks + r: one page stands for those of all servers. Conserved: the counters
of the engines add up to the run's.

What vLLM observes at a request's end is that of completed requests; at its first token, that of all with one.
The queue starts when the engine core picks the request up. Requests that no engine admitted are in no metric.
Where instances stop, requests show their latest attempt, drafts and gaps those of all. Left out, since no
result has it: iteration_tokens_total, whose buckets count steps.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cluster_sim.errors import UserError
from cluster_sim.export.exposition import Histogram, Labels, family, histogram_family, observed
from cluster_sim.export.source import AGAIN, requests_of, setting_of
from cluster_sim.files import SUMMARY
from cluster_sim.report.stored import Stored
from cluster_sim.server_counts import ITL_BUCKETS_S

REQUEST_BUCKETS_S = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0),
    *(960.0, 1920.0, 7680.0),
)
TTFT_BUCKETS_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0),
    *(80.0, 160.0, 640.0, 2560.0),
)
GAUGES = {  # at the end nothing is left
    "num_requests_running": "Number of requests in model execution batches.",
    "num_requests_waiting": "Number of requests waiting to be processed.",
    "kv_cache_usage_perc": "KV-cache usage. 1 means 100 percent usage.",
}
DRAFTS = {
    "num_drafts": "Number of spec decoding drafts.",
    "num_draft_tokens": "Number of draft tokens.",
    "num_accepted_tokens": "Number of accepted tokens.",
}
NUMBERS = (
    *("pickup_s", "queue_s", "ttft_s", "tpot_s", "e2el_s", "prompt_tokens", "max_tokens", "emitted_tokens"),
    *("cached_tokens", "chunks", "preemptions"),
)
ENGINE_KEYS = {*("engine", "itl_count", "itl_sum_s", "itl_at_most", "num_accepted_tokens_per_pos"), *DRAFTS}

Column = NDArray[Any]
Requests = Mapping[str, Column]  # of one engine
Counts = Mapping[str, Any]  # of one engine, as server_counts.py makes them
Of = Callable[[Requests], Column]


def prometheus_text(stored: Stored) -> str:
    """All metrics of the simulation: help, type, and the samples of every engine.

    Raises:
        UserError: the requests or the counts of the engines are not there, or another version made them.
    """
    counts, columns = _engine_counts(stored), _columns(stored)
    requests = [_of_engine(columns, one["engine"]) for one in counts]
    model = str(setting_of(stored, stored.rows[0], "model.name"))
    labels = [{"engine": str(one["engine"]), "model_name": model} for one in counts]
    families = [
        *(
            family(f"vllm:{name}", "gauge", words, [(each, 0.0) for each in labels])
            for name, words in GAUGES.items()
        ),
        *_counters(stored, labels, requests),
        *(_drafts(labels, counts) if _speculates(stored) else ()),
        *_histograms(stored, labels, requests),
        _gaps(labels, counts),
    ]
    return "".join(f"{line}\n" for lines in families for line in lines)


def token_buckets(most: int) -> list[float]:
    """1, 2, 5, 10, .. up to `most`: vLLM's buckets of numbers of tokens, `most` being max_model_len."""
    bounds = (digit * 10**exponent for exponent in range(len(str(most))) for digit in (1, 2, 5))
    return [float(bound) for bound in bounds if bound <= most]


def _speculates(stored: Stored) -> bool:
    return bool(setting_of(stored, stored.rows[0], "speculation.method") != "none")


def _engine_counts(stored: Stored) -> list[Counts]:
    found = stored.summary.get("engines")
    if not isinstance(found, list) or not all(map(_is_engine, found)):
        raise UserError(
            f"this export needs engines of {SUMMARY}", "a result without", str(stored.directory), AGAIN
        )
    return found


def _is_engine(found: object) -> bool:
    """Whether these are the counts of an engine: numbers, one list of them as long as the buckets."""
    if not isinstance(found, dict) or not found.keys() >= ENGINE_KEYS:
        return False
    lists = [found[name] for name in ("itl_at_most", "num_accepted_tokens_per_pos")]
    if not all(isinstance(each, list) for each in lists) or len(lists[0]) != len(ITL_BUCKETS_S):
        return False
    numbers = [found[name] for name in ("engine", "itl_count", "itl_sum_s", *DRAFTS)]
    return all(isinstance(value, int | float) for value in [*numbers, *lists[0], *lists[1]])


def _columns(stored: Stored) -> Requests:
    """The stored columns, nan for null, and `engine`: -1 for none."""
    table = requests_of(stored, ("outcome", "instance", *NUMBERS))
    ranks = int(setting_of(stored, stored.rows[0], "cluster.data_parallel_size"))
    columns = {name: table[name].to_numpy().astype(np.float64) for name in NUMBERS}
    engine = table["instance"].fill_null(-1).to_numpy() * ranks
    if "rank" in table.column_names:
        engine = engine + table["rank"].fill_null(0).to_numpy()
    return {**columns, "outcome": np.array(table["outcome"].to_pylist()), "engine": engine}


def _of_engine(columns: Requests, engine: int) -> Requests:
    chosen = columns["engine"] == engine
    return {name: column[chosen] for name, column in columns.items()}


def _counters(stored: Stored, labels: Sequence[Labels], requests: Sequence[Requests]) -> Iterator[list[str]]:
    caches = bool(setting_of(stored, stored.rows[0], "engine.enable_prefix_caching"))
    counters: dict[str, tuple[str, Of]] = {
        "prefix_cache_queries": (
            "Prefix cache queries, in terms of number of queried tokens.",
            lambda columns: columns["prompt_tokens"] * caches,
        ),
        "prefix_cache_hits": (
            "Prefix cache hits, in terms of number of cached tokens.",
            lambda columns: columns["cached_tokens"],
        ),
        "num_preemptions": (
            "Cumulative number of preemption from the engine.",
            lambda columns: columns["preemptions"],
        ),
        "prompt_tokens": (
            "Number of prefill tokens processed.",
            lambda columns: columns["prompt_tokens"][columns["chunks"] > 0],
        ),
        "generation_tokens": (
            "Number of generation tokens processed.",
            lambda columns: columns["emitted_tokens"],
        ),
    }
    for name, (words, of) in counters.items():
        samples = [(each, of(columns).sum()) for each, columns in zip(labels, requests, strict=True)]
        yield family(f"vllm:{name}_total", "counter", words, samples)
    samples = [
        ({**each, "finished_reason": reason}, count)
        for each, columns in zip(labels, requests, strict=True)
        for reason, count in _finished(columns, _longest(stored)).items()
    ]
    yield family(
        "vllm:request_success_total", "counter", "Count of successfully processed requests.", samples
    )


def _finished(columns: Requests, longest: int) -> dict[str, int]:
    """Requests by vLLM's finish reason; `longest` is max_model_len."""
    outcome, emitted = columns["outcome"], columns["emitted_tokens"]
    capped = (emitted >= columns["max_tokens"]) | (columns["prompt_tokens"] + emitted >= longest)
    return {
        "stop": int(((outcome == "completed") & ~capped).sum()),
        "length": int(((outcome == "completed") & capped).sum()),
        "abort": int(np.isin(outcome, ("cancelled", "timed_out")).sum()),
        "error": int((outcome == "failed").sum()),
    }


def _longest(stored: Stored) -> int:
    row = stored.rows[0]
    return int(
        setting_of(stored, row, "engine.max_model_len")
        or setting_of(stored, row, "model.max_position_embeddings")
    )


def _drafts(labels: Sequence[Labels], counts: Sequence[Counts]) -> Iterator[list[str]]:
    for name, words in DRAFTS.items():
        samples = [(each, one[name]) for each, one in zip(labels, counts, strict=True)]
        yield family(f"vllm:spec_decode_{name}_total", "counter", words, samples)
    samples = [
        ({**each, "position": str(position)}, count)
        for each, one in zip(labels, counts, strict=True)
        for position, count in enumerate(one["num_accepted_tokens_per_pos"])
    ]
    name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
    yield family(name, "counter", "Accepted tokens per draft position.", samples)


def _histograms(
    stored: Stored, labels: Sequence[Labels], requests: Sequence[Requests]
) -> Iterator[list[str]]:
    tokens = token_buckets(_longest(stored))
    for name, (words, buckets, of) in {**_token_histograms(tokens), **_time_histograms()}.items():
        samples = [
            (each, observed(of(columns), buckets)) for each, columns in zip(labels, requests, strict=True)
        ]
        yield histogram_family(f"vllm:{name}", words, samples)


def _token_histograms(tokens: Sequence[float]) -> dict[str, tuple[str, Sequence[float], Of]]:
    return {
        "request_prompt_tokens": ("Number of prefill tokens processed.", tokens, _at_end("prompt_tokens")),
        "request_generation_tokens": (
            "Number of generation tokens processed.",
            tokens,
            _at_end("emitted_tokens"),
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
            lambda columns: columns["ttft_s"][columns["chunks"] > 0],
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


def _at_end(name: str, less: str | None = None) -> Of:
    """A column of the completed requests, `less` another."""

    def of(columns: Requests) -> Column:
        values = columns[name] if less is None else columns[name] - columns[less]
        chosen: Column = values[columns["outcome"] == "completed"]
        return chosen

    return of


def _gaps(labels: Sequence[Labels], counts: Sequence[Counts]) -> list[str]:
    samples = [
        (each, Histogram(ITL_BUCKETS_S, one["itl_at_most"], one["itl_count"], one["itl_sum_s"]))
        for each, one in zip(labels, counts, strict=True)
    ]
    words = "Histogram of inter-token latency in seconds."
    return histogram_family("vllm:inter_token_latency_seconds", words, samples)
