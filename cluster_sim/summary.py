"""Numbers of one simulation: what summary.json holds.

Definitions are those of `vllm bench serve` and of vLLM's counters (../shared/vllm-scheduler.md sections 12
and 13). The duration that throughputs divide by runs from the first arrival to the last delivered token. A
value that does not exist, such as the TPOT of no request, is None (null in JSON).

Where instances stop, requests show their latest attempt, whose tokens alone count as emitted; drafts, steps,
chunks and ITL are those of all attempts, and an instance that is down is idle.
"""

import resource
import sys
from dataclasses import replace
from typing import Any

import numpy as np

from cluster_sim.bench_serve import bench_serve
from cluster_sim.beyond_bundle import warnings_beyond
from cluster_sim.client_report import of_clients, warnings_of_given_up
from cluster_sim.cost import cost_of
from cluster_sim.counters import acceptance, acceptance_by_draft_length, vllm_counters
from cluster_sim.engine.kinds import Outcome
from cluster_sim.engine.metrics import BIN_WIDTH, gap_edges_s
from cluster_sim.engine.tables import Longs
from cluster_sim.fault_report import rows_of
from cluster_sim.faults import plan_of
from cluster_sim.percentiles import PERCENTILES, counted_percentile, distribution, histogram_percentile
from cluster_sim.results import Flags, Latencies, Run, has_slo, latencies, meets_limits, meets_slo
from cluster_sim.saturation import growth_of_queue, warnings_of_growth
from cluster_sim.statistics import wilson_interval
from cluster_sim.warmup import measured_of


def summarise(run: Run) -> dict[str, Any]:
    """All of summary.json for one simulation: plain numbers, lists and dictionaries."""
    duration_s = simulated_s(run)
    span_s = max(duration_s, float(run.tally.totals["clock_s"].max() - run.requests["arrival_s"].min()))
    everyone = np.ones(len(run.log["outcome"]), np.bool_)
    growth = growth_of_queue(run)
    verified = run.tally.verified.sum(axis=(0, 1))
    return {
        **of_requests(run, everyone, duration_s),
        "measured": measured_of(run).as_dict(),
        **_of_classes(run, duration_s),
        "itl_s": _gaps(run.tally.gap_bins.sum(axis=(0, 1)), float(run.tally.totals["gap_sum_s"].sum())),
        "itl_by_step": _gaps_by_step(run),
        "itl_resolution_percent": 100 * BIN_WIDTH,
        "chunk_tokens": chunk_tokens(run.tally.chunk_tokens.sum(axis=0)),
        "chunk_throughput_per_s": _rate(run.log["chunks"].sum(), duration_s),
        **acceptance(verified),
        "acceptance_by_draft_length": acceptance_by_draft_length(verified),
        "vllm_counters": vllm_counters(verified),
        "bench_serve": bench_serve(run),
        **_steps(run),
        **_use_of_instances(run, span_s),
        **_by_instance_kind(run, duration_s, span_s),
        "memory_bytes": dict(run.memory_bytes),
        "saturated": growth.is_saturated,
        "queue_growth": {"requests": growth.requests, "share_of_arrivals": growth.share_of_arrivals},
        **of_clients(run, duration_s),
        "cost": cost_of(run.config, int(run.log["emitted_tokens"].sum()), duration_s),
        "faults": rows_of(plan_of(run.config), run.faults),
        "acceptance_source": run.acceptance_source,
        "draft_cost": run.draft_cost,
        "acceptance_texts": list(dict.fromkeys(text for kind in run.kinds for text in kind.acceptance_texts)),
        "warnings": [
            *run.warnings,
            *warnings_beyond(run),
            *warnings_of_growth(run, growth),
            *warnings_of_given_up(run),
        ],
        "simulated_s": duration_s,
        "drain_s": _drain_s(run, duration_s),
        "engine_wall_s": run.engine_wall_s,
        "wall_s": run.wall_s,
        "peak_rss_bytes": _peak_rss_bytes(),
    }


def simulated_s(run: Run) -> float:
    """From the first arrival to the last delivered token, s; 0 when nothing was delivered."""
    delivered_s = run.log["last_token_s"][run.log["chunks"] > 0]
    return float(delivered_s.max() - run.requests["arrival_s"].min()) if len(delivered_s) else 0.0


def _drain_s(run: Run, duration_s: float) -> float:
    """The part of `duration_s` that comes after the last arrival, s."""
    return max(0.0, duration_s - float(np.ptp(run.requests["arrival_s"])))


def of_requests(run: Run, chosen: Flags, duration_s: float) -> dict[str, Any]:
    """What the `chosen` requests (flags, shape [request]) experienced; latencies of the completed ones.

    Rates divide by `duration_s`, that of the whole run: those of a partition of the requests add up.
    Latencies, attainment and goodput are those of the measured requests (warmup.py).
    """
    times, log, measured = latencies(run), run.log, measured_of(run)
    completed = chosen & (log["outcome"] == int(Outcome.completed))
    timed = completed & measured.chosen
    emitted_tokens = log["emitted_tokens"]
    return {
        "ttft_s": distribution(times.ttft_s[timed]),
        "tpot_s": distribution(times.tpot_s[timed & (emitted_tokens > 1)]),
        "e2el_s": distribution(times.e2el_s[timed]),
        "queue_s": distribution(times.queue_s[timed]),
        "requests": {
            "offered": int(chosen.sum()),
            **{
                outcome.name: int((chosen & (log["outcome"] == int(outcome))).sum())
                for outcome in Outcome
                if outcome is not Outcome.pending
            },
        },
        "request_throughput_rps": _rate(completed.sum(), duration_s),
        "output_throughput_tok_s": _rate(emitted_tokens[chosen].sum(), duration_s),
        **_within_slo(run, times, chosen, duration_s - measured.cut_s),
        "tokens": {
            "prompt": int(run.requests["prompt_tokens"][chosen].sum()),
            "cached": int(log["cached_tokens"][chosen].sum()),
            "drafted": int(log["drafted_tokens"][chosen].sum()),
            "accepted": int(log["accepted_tokens"][chosen].sum()),
            "rejected": int((log["drafted_tokens"] - log["accepted_tokens"])[chosen].sum()),
            "emitted": int(emitted_tokens[chosen].sum()),
            "lost": int(log["lost_tokens"][chosen].sum()),
        },
        "tokens_per_chunk": _ratio(emitted_tokens[chosen].sum(), log["chunks"][chosen].sum()),
        "preemptions": int(log["preemptions"][chosen].sum()),
        "retries": int(log["retries"][chosen].sum()),
    }


def _within_slo(run: Run, times: Latencies, chosen: Flags, duration_s: float) -> dict[str, Any]:
    """Attainment and goodput of the measured ones of the `chosen` over `duration_s`; None without limits."""
    asked, chosen = bool(np.any(has_slo(run)[chosen])), chosen & measured_of(run).chosen
    good, limits, offered = chosen & meets_slo(run, times), meets_limits(run, times), int(chosen.sum())
    emitted = run.log["emitted_tokens"]
    return {
        "slo_goodput_rps": _rate(good.sum(), duration_s) if asked else None,
        "slo_attainment": int(good.sum()) / offered if asked and offered else None,
        "slo_attainment_interval": _bounds(int(good.sum()), offered) if asked and offered else None,
        "slo_attainment_by_limit": {
            name: _ratio((chosen & limits[name]).sum(), offered) if name in limits else None
            for name in ("ttft_s", "tpot_s", "e2el_s")
        },
        "token_goodput_tok_s": _rate(emitted[good].sum(), duration_s) if asked else None,
        "token_attainment": _ratio(emitted[good].sum(), emitted[chosen].sum()) if asked else None,
    }


def _of_classes(run: Run, duration_s: float) -> dict[str, Any]:
    """The same of each class apart, where there are several."""
    if len(run.class_names) == 1:
        return {}
    members = {name: run.requests["workload_class"] == number for number, name in enumerate(run.class_names)}
    return {"classes": {name: of_requests(run, chosen, duration_s) for name, chosen in members.items()}}


def chunk_tokens(counts: Longs) -> dict[str, Any]:
    """Tokens per delivery from `counts` [tokens]; entry i of the histogram counts those of i + 1 tokens.

    The first token of an answer comes alone; a verification of K drafts delivers 1 to K + 1.
    """
    some = bool(counts.sum())
    return {
        "mean": _ratio(counts @ np.arange(len(counts)), counts.sum()),
        "p50": counted_percentile(counts, 50) if some else None,
        "p99": counted_percentile(counts, 99) if some else None,
        "histogram": counts[1:].tolist(),
    }


def _gaps(bins: Longs, sum_s: float) -> dict[str, float | None]:
    count = int(bins.sum())
    if count == 0:
        return distribution(np.zeros(0))
    return {"mean": sum_s / count, **_gap_percentiles(bins)}


def _gap_percentiles(bins: Longs) -> dict[str, float | None]:
    some, edges = bool(bins.sum()), gap_edges_s()
    return {
        f"p{percent}": histogram_percentile(bins, edges, percent) if some else None for percent in PERCENTILES
    }


def _gaps_by_step(run: Run) -> dict[str, Any]:
    """ITL apart for gaps that end with a step of decodes alone and with a mixed one, which has a prefill.

    Each kind's share of the steps and of the gaps, and percentiles of its gaps.
    """
    bins, steps = run.tally.gap_bins.sum(axis=0), int(run.tally.totals["steps"].sum())
    mixed = int(run.tally.totals["mixed_steps"].sum())
    return {
        name: {
            "step_share": _ratio(num_steps, steps),
            "gap_share": _ratio(bins[kind].sum(), bins.sum()),
            **_gap_percentiles(bins[kind]),
        }
        for kind, (name, num_steps) in enumerate((("decode_only", steps - mixed), ("mixed", mixed)))
    }


def _steps(run: Run) -> dict[str, Any]:
    """Steps of all ranks of all instances; entry i of the histogram counts those of i requests."""
    sizes = run.tally.batch_size_steps.sum(axis=0)
    some = bool(sizes.sum())
    return {
        "steps": int(run.tally.totals["steps"].sum()),
        "steps_by_draft_length": run.tally.draft_length_steps.sum(axis=0).tolist(),
        "batch_size": {
            "mean": _ratio(sizes @ np.arange(len(sizes)), sizes.sum()),
            "p50": counted_percentile(sizes, 50) if some else None,
            "p99": counted_percentile(sizes, 99) if some else None,
            "histogram": np.trim_zeros(sizes, "b").tolist(),
        },
        "tokens_per_step": _ratio(run.tally.totals["scheduled_tokens"].sum(), sizes.sum()),
    }


def _by_instance_kind(run: Run, duration_s: float, span_s: float) -> dict[str, Any]:
    """Where instances differ, the same for each kind, by its instances; nothing where all are alike.

    Requests are those that an instance of the kind admitted: those that none did are in no part.
    """
    ranks, parts = run.config.cluster.data_parallel_size, {}
    for one in run.kinds if len(run.kinds) > 1 else ():
        rows = np.add.outer(np.multiply(one.kind.instances, ranks), np.arange(ranks)).ravel()
        tally = run.tally._replace(**{name: table[rows] for name, table in run.tally._asdict().items()})
        part = replace(run, tally=tally, usable_blocks=run.usable_blocks[rows])
        parts[one.kind.name] = {
            "instances": len(one.kind.instances),
            **of_requests(run, np.isin(run.log["instance"], rows), duration_s),
            **acceptance(tally.verified.sum(axis=(0, 1))),
            **_steps(part),
            **_use_of_instances(part, span_s),
            "num_gpu_blocks": one.num_gpu_blocks,
            "memory_bytes": dict(one.memory_bytes),
            "bundle": one.bundle_name,
            "acceptance_source": one.acceptance_source,
            "draft_cost": one.draft_cost,
        }
    return {"by_instance_kind": parts} if parts else {}


def _use_of_instances(run: Run, span_s: float) -> dict[str, Any]:
    """Shares of KV memory and of time, over all ranks of all instances, until the last step has ended.

    A rank that keeps another one company in lockstep, without work of its own, is idle. The output tokens of
    a busy second are those of one rank.
    """
    totals = run.tally.totals
    if span_s <= 0.0:
        return {
            "kv_usage": {"mean": 0.0, "max": 0.0},
            "time_share": {"target": 0.0, "draft": 0.0, "host": 0.0, "idle": 1.0},
            "output_tokens_per_busy_s": None,
        }
    whole_s = span_s * len(run.usable_blocks)
    busy = {
        "target": float(totals["target_s"].sum()) / whole_s,
        "draft": float(totals["draft_s"].sum()) / whole_s,
        "host": float(totals["exposed_host_s"].sum()) / whole_s,
    }
    return {
        "kv_usage": {
            "mean": float(totals["kv_block_s"].sum() / (run.usable_blocks.sum() * span_s)),
            "max": float((totals["kv_blocks_max"] / run.usable_blocks).max()),
        },
        "time_share": {**busy, "idle": max(0.0, 1.0 - sum(busy.values()))},
        "output_tokens_per_busy_s": _ratio(run.log["emitted_tokens"].sum(), sum(busy.values()) * whole_s),
    }


def _bounds(successes: int, trials: int) -> list[float]:
    """Wilson's interval, as if requests met their SLO independently: too narrow where they queue together."""
    interval = wilson_interval(successes, trials)
    return [interval.low, interval.high]


def _rate(count: Any, duration_s: float) -> float:
    return float(count) / duration_s if duration_s > 0.0 else 0.0


def _ratio(part: Any, whole: Any) -> float | None:
    return float(part) / float(whole) if whole else None


def _peak_rss_bytes() -> int:
    """Most memory that this process ever held; getrusage counts KiB on Linux and bytes on macOS."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
