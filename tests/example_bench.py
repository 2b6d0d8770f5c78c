"""Files as a vLLM server and `vllm bench serve` leave them, from simulated runs: what calibrate must undo."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster_sim.compose import compose
from cluster_sim.results import Run
from cluster_sim.run import simulate
from cluster_sim.summary import summarise

MODEL = 'model_name="m"'


@dataclass(frozen=True)
class Served:
    """A simulated run and its summary."""

    run: Run
    summary: Mapping[str, Any]


def serve(overrides: Sequence[str]) -> Served:
    """Simulate what `vllm bench serve` would do: arrivals that end on time."""
    gamma = ("workload.arrivals=gamma", "workload.burstiness=1.0", "workload.ends_on_time=true")
    return _served([*gamma, *overrides])


def serve_clients(number: int, overrides: Sequence[str]) -> Served:
    """The same with --max-concurrency and no rate."""
    return _served(["workload=closed_loop", f"workload.max_concurrency={number}", *overrides])


def _served(overrides: Sequence[str]) -> Served:
    run = simulate(compose(list(overrides)))
    return Served(run, summarise(run))


def bench_json(served: Served) -> dict[str, Any]:
    """The keys of a result file that calibrate reads, in vLLM's order."""
    run, summary = served.run, served.summary
    requests = summary["requests"]["offered"]
    result: dict[str, Any] = {
        "date": "20251130-101010",
        "backend": "vllm",
        "model_id": "meta-llama/Llama-3.1-8B-Instruct",
        "num_prompts": requests,
        "request_rate": run.config.workload.request_rate or "inf",
        "burstiness": 1.0,
        "max_concurrency": run.config.workload.max_concurrency,
        "duration": summary["simulated_s"],
        "completed": summary["requests"]["completed"],
        "failed": 0,
        "total_input_tokens": summary["tokens"]["prompt"],
        "total_output_tokens": summary["tokens"]["emitted"],
        **{f"mean_{name}_ms": 1e3 * summary[f"{name}_s"]["mean"] for name in ("ttft", "tpot", "itl")},
    }
    counted = summary["vllm_counters"]
    if counted["num_drafts"]:
        drafts, tokens, accepted = (
            counted[f"num_{name}"] for name in ("drafts", "draft_tokens", "accepted_tokens")
        )
        result |= {
            "spec_decode_acceptance_rate": 100 * accepted / tokens,
            "spec_decode_acceptance_length": 1 + accepted / drafts,
            "spec_decode_num_drafts": drafts,
            "spec_decode_draft_tokens": tokens,
            "spec_decode_accepted_tokens": accepted,
            "spec_decode_per_position_acceptance_rates": [
                there / drafts for there in counted["num_accepted_tokens_per_pos"]
            ],
        }
    return result


def write_bench(file: Path, results: Sequence[Mapping[str, Any]]) -> Path:
    """One result as --save-result writes it, several as --append-result does."""
    file.write_text("\n".join(json.dumps(result) for result in results) + "\n", "utf-8")
    return file


def scrape_text(counters: Sequence[Mapping[str, Any]]) -> str:
    """/metrics of a server; one entry of `counters` (summary.json's vllm_counters) for each engine."""
    lines = ["# HELP vllm:num_requests_running Number of requests in model execution batches.", "#"]
    lines += [
        "# TYPE vllm:num_requests_running gauge",
        f'vllm:num_requests_running{{engine="0",{MODEL}}} 3.0',
    ]
    for name in ("num_drafts", "num_draft_tokens", "num_accepted_tokens"):
        lines += [
            f"# HELP vllm:spec_decode_{name}_total Number of such.",
            f"# TYPE vllm:spec_decode_{name} counter",
        ]
        for engine, counted in enumerate(counters):
            labels = f'engine="{engine}",{MODEL}'
            lines.append(f"vllm:spec_decode_{name}_total{{{labels}}} {float(counted[name])}")
            lines.append(f"vllm:spec_decode_{name}_created{{{labels}}} 1.7643e+09")
    for engine, counted in enumerate(counters):
        for position, accepted in enumerate(counted["num_accepted_tokens_per_pos"]):
            labels = f'engine="{engine}",{MODEL},position="{position}"'
            lines.append(f"vllm:spec_decode_num_accepted_tokens_per_pos_total{{{labels}}} {float(accepted)}")
    return "\n".join(lines) + "\n"
