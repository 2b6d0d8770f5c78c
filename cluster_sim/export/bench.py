"""A result as `vllm bench serve --save-result` writes it, so that `vllm bench sweep plot` and others read it.

Keys, their order and their definitions are those of vLLM 0.33 (../shared/vllm-scheduler.md section 13), with
`--percentile-metrics ttft,tpot,itl,e2el --metric-percentiles 90,95,99`. What no result has is left out, never
made up: itls and max_output_tokens_per_s, which need the moment of each chunk, and generated_texts. Backend
and endpoint type are `cluster_sim`, so that nobody takes the file for a measurement.

Where a workload cuts a warm-up, latencies and goodput are those of the requests after it, as in summary.json.
ITL is of all requests that have chunks; it is known to 0.5 % (metrics.BIN_WIDTH), its mean exactly.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from cluster_sim.export.source import UNKNOWN, number_of, setting_of, value_of
from cluster_sim.files import MANIFEST
from cluster_sim.report.stored import Stored
from cluster_sim.trials import Row

FORMAT = "vllm-bench"
BACKEND = "cluster_sim"
LATENCIES = ("ttft", "tpot", "itl", "e2el")
PERCENTILES = (90, 95, 99)
REQUEST_COLUMNS = ("outcome", "arrival_s", "ttft_s", "e2el_s", "prompt_tokens", "emitted_tokens")
LEFT_OUT = ("max_output_tokens_per_s", "itls", "generated_texts")


def bench_result(
    stored: Stored, row: Row, requests: pa.Table | None = None, detailed: bool = False
) -> dict[str, Any]:
    """The JSON object of the trial `row`; latencies and queue_times only with its `requests`.

    Raises:
        UserError: the result lacks something: another version made it.
    """
    return {
        **_setup(stored, row),
        **_traffic(stored, row),
        **_counts(stored, row),
        **(_by_request(requests, detailed) if requests is not None else {}),
        "max_concurrent_requests": _number(stored, row, "bench_serve.max_concurrent_requests"),
        "rtfx": 0.0,
        **_speculation(stored, row),
        **_latencies(stored, row),
    }


def _number(stored: Stored, row: Row, path: str) -> float | int:
    """As vLLM does, 0 of nothing."""
    return number_of(stored, row, path) or 0


def _setup(stored: Stored, row: Row) -> dict[str, Any]:
    written = datetime.fromtimestamp((stored.directory / MANIFEST).stat().st_mtime, UTC)
    gpus = _gpus(stored, row)
    return {
        "date": written.strftime("%Y%m%d-%H%M%S"),
        "endpoint_type": BACKEND,
        "backend": BACKEND,
        "label": row["arm"],
        "model_id": setting_of(stored, row, "model.name"),
        "tokenizer_id": None,
        "num_prompts": _number(stored, row, "requests.offered"),
        **({} if gpus is None else {"gpu_count": gpus}),  # where --metadata goes
        "seed": row["seed"],
    }


def _gpus(stored: Stored, row: Row) -> int | None:
    """GPUs of the whole cluster; None where the sweep's options hide it."""
    names = ("instances", "tensor_parallel_size", "data_parallel_size", "overrides")
    instances, tensor, data, overrides = (setting_of(stored, row, f"cluster.{name}") for name in names)
    if any(value is UNKNOWN for value in (instances, tensor, data, overrides)):
        return None
    sizes = [int(tensor)] * int(instances)
    for override in overrides or ():
        for instance in override["instances"]:
            sizes[instance] = int(override["resolved"]["tensor_parallel_size"])
    return int(data) * sum(sizes)


def _traffic(stored: Stored, row: Row) -> dict[str, Any]:
    """`inf`, as with vLLM's --self-timed, where the clients follow times of their own and no rate."""
    rate, arrivals, shape, trace, clients = (
        setting_of(stored, row, f"workload.{name}")
        for name in ("request_rate", "arrivals", "burstiness", "trace", "max_concurrency")
    )
    drawn = {"poisson": 1.0, "gamma": shape, "constant": "inf", "closed_loop": 1.0}  # 1.0: not given
    known = trace is None and UNKNOWN not in (arrivals, shape)
    return {
        "request_rate": "inf" if rate in (None, UNKNOWN) else rate,
        "burstiness": drawn.get(arrivals) if known else None,
        "max_concurrency": None if clients is UNKNOWN else clients,
    }


def _counts(stored: Stored, row: Row) -> dict[str, Any]:
    duration_s, completed = (_number(stored, row, path) for path in ("simulated_s", "requests.completed"))
    prompt_tokens, output_tokens = (
        _number(stored, row, f"bench_serve.{name}_tokens") for name in ("input", "output")
    )

    def rate(count: float) -> float:
        return count / duration_s if duration_s else 0.0

    return {
        "duration": duration_s,
        "completed": completed,
        "failed": _number(stored, row, "requests.offered") - completed,
        "total_input_tokens": prompt_tokens,
        "total_output_tokens": output_tokens,
        "request_throughput": rate(completed),
        "request_goodput": number_of(stored, row, "slo_goodput_rps"),
        "output_throughput": rate(output_tokens),
        "total_token_throughput": rate(prompt_tokens + output_tokens),
    }


def _by_request(requests: pa.Table, detailed: bool) -> dict[str, Any]:
    """Lists in order of arrival; as in vLLM, a request that failed has zeros, and its error is a word."""
    columns = {name: requests[name].to_pylist() for name in REQUEST_COLUMNS}
    done = [outcome == "completed" for outcome in columns["outcome"]]

    def of_done(name: str, otherwise: float) -> list[Any]:
        return [value if good else otherwise for value, good in zip(columns[name], done, strict=True)]

    always = {"latencies": of_done("e2el_s", 0.0)}
    if not detailed:
        return {**always, "queue_times": [0.0] * len(done)}
    return {
        "input_lens": columns["prompt_tokens"],
        "output_lens": of_done("emitted_tokens", 0),
        "ttfts": of_done("ttft_s", 0.0),
        **always,
        "start_times": columns["arrival_s"],
        "queue_times": [0.0] * len(done),
        "errors": ["" if good else outcome for outcome, good in zip(columns["outcome"], done, strict=True)],
    }


def _speculation(stored: Stored, row: Row) -> dict[str, Any]:
    """Nothing where nothing was drafted, as in vLLM."""
    drafts, drafted, accepted = (
        _number(stored, row, f"vllm_counters.num_{name}")
        for name in ("drafts", "draft_tokens", "accepted_tokens")
    )
    if not drafted:
        return {}
    return {
        "spec_decode_acceptance_rate": 100 * accepted / drafted,
        "spec_decode_acceptance_length": 1 + accepted / drafts,
        "spec_decode_num_drafts": drafts,
        "spec_decode_draft_tokens": drafted,
        "spec_decode_accepted_tokens": accepted,
        "spec_decode_per_position_acceptance_rates": [
            kept / drafts for kept in value_of(stored, row, "vllm_counters.num_accepted_tokens_per_pos")
        ],
    }


def _latencies(stored: Stored, row: Row) -> Mapping[str, float]:
    found = {}
    for name in LATENCIES:
        paths = {"mean": f"{name}_s.mean", "median": f"{name}_s.p50", "std": f"bench_serve.{name}_std_s"}
        paths |= {f"p{percent}": f"{name}_s.p{percent}" for percent in PERCENTILES}
        for statistic, path in paths.items():
            found[f"{statistic}_{name}_ms"] = 1000.0 * _number(stored, row, path)
    return found
