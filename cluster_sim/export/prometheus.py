"""A simulation as vLLM's /metrics shows it when all requests have ended.

Names, labels, help and buckets are vLLM's (vllm/v1/metrics/loggers.py, buckets.py, spec_decode/metrics.py;
../shared/vllm-scheduler.md section 12). The label `engine` is the number of a scheduler in the cluster, that
of rank r of instance i being i * ranks + r: one page stands for those of all servers. Conserved: the counters
of the engines add up to the run's.

What requests show is in request_metrics.py; those that no engine admitted are in no metric. Where instances
stop, requests show their latest attempt, drafts and gaps those of all. Left out: iteration_tokens_total, as
its buckets count steps and no result has them; and what is not simulated or is always the same.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from cluster_sim.errors import UserError
from cluster_sim.export.exposition import Histogram, Labels, family, histogram_family, observed
from cluster_sim.export.request_metrics import Requests, by_source, finished, histograms, sums
from cluster_sim.export.source import AGAIN, requests_of, setting_of
from cluster_sim.files import SUMMARY
from cluster_sim.report.stored import Stored
from cluster_sim.server_counts import ITL_BUCKETS_S

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

Counts = Mapping[str, Any]  # of one engine, as server_counts.py makes them


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
    for name, (words, of) in sums(caches).items():
        samples = [(each, of(columns).sum()) for each, columns in zip(labels, requests, strict=True)]
        yield family(f"vllm:{name}_total", "counter", words, samples)
    split: dict[str, tuple[str, str, Callable[[Requests], dict[str, float]]]] = {
        "prompt_tokens_by_source": ("Number of prompt tokens by source.", "source", by_source),
        "request_success": (
            "Count of successfully processed requests.",
            "finished_reason",
            lambda columns: finished(columns, _longest(stored)),
        ),
    }
    for name, (words, label, parts) in split.items():
        samples = [
            ({**each, label: part}, count)
            for each, columns in zip(labels, requests, strict=True)
            for part, count in parts(columns).items()
        ]
        yield family(f"vllm:{name}_total", "counter", words, samples)


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
    for name, (words, buckets, of) in histograms(_longest(stored)).items():
        samples = [
            (each, observed(of(columns), buckets)) for each, columns in zip(labels, requests, strict=True)
        ]
        yield histogram_family(f"vllm:{name}", words, samples)


def _gaps(labels: Sequence[Labels], counts: Sequence[Counts]) -> list[str]:
    samples = [
        (each, Histogram(ITL_BUCKETS_S, one["itl_at_most"], one["itl_count"], one["itl_sum_s"]))
        for each, one in zip(labels, counts, strict=True)
    ]
    words = "Histogram of inter-token latency in seconds."
    return histogram_family("vllm:inter_token_latency_seconds", words, samples)
