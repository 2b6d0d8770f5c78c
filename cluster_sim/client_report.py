"""What clients did: requests in flight of those that wait, turns that never came, answers given up."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from cluster_sim.engine.kinds import Outcome
from cluster_sim.engine.tables import Floats
from cluster_sim.percentiles import distribution
from cluster_sim.report.words import figures, seconds
from cluster_sim.results import Run
from cluster_sim.saturation import leaves_s
from cluster_sim.waiting import clients_wait, is_closed_loop, is_limited

SMALLEST_GIVEN_UP_SHARE = 0.01  # of the output tokens; less does not show


def of_clients(run: Run, duration_s: float) -> dict[str, Any]:
    """The entry `clients` of summary.json; nothing where no client waits for an answer.

    `number`: clients of a closed loop; None without one, where each conversation has its own. `limit`: most
    requests under way where there are arrivals; `held_s`: how long those due waited for it, which no latency
    holds (vLLM's client_queue_time).
    """
    workload = run.config.workload
    if not clients_wait(workload):
        return {}
    arrival_s, ended_s = run.requests["arrival_s"], ends_s(run)
    return {
        "clients": {
            "number": workload.max_concurrency if is_closed_loop(workload) else None,
            "limit": workload.max_concurrency if is_limited(workload) else None,
            "held_s": distribution(held_s(run)) if is_limited(workload) else None,
            "in_flight": {
                "mean": float((ended_s - arrival_s).sum()) / duration_s if duration_s > 0.0 else None,
                "max": most_in_flight(arrival_s, ended_s),
            },
            "largest_batch": largest_batch(run),
            "unsent_turns": run.unsent,
        }
    }


def held_s(run: Run) -> Floats:
    """How long each request waited at its client after it was due, s, [request]."""
    arrival_s: Floats = run.requests["arrival_s"]
    return np.zeros(len(arrival_s)) if run.due_s is None else arrival_s - run.due_s


def warnings_of_given_up(run: Run) -> Iterator[str]:
    """What to say where a share of the output tokens went to clients that had gone before their end."""
    emitted, completed = run.log["emitted_tokens"], run.log["outcome"] == int(Outcome.completed)
    if emitted[~completed].sum() > SMALLEST_GIVEN_UP_SHARE * emitted.sum():
        yield (
            "clients gave answers up before their end: latencies are of the completed requests alone, and "
            "the output throughput counts what the others had received too (token_goodput_tok_s does not)"
        )


def ends_s(run: Run) -> Floats:
    """When each request has ended for its client, s, [request]."""
    rejected = run.log["outcome"] == int(Outcome.rejected)
    ended_s: Floats = np.where(rejected, run.requests["arrival_s"], leaves_s(run))
    return ended_s


def most_in_flight(arrival_s: Floats, ended_s: Floats) -> int:
    """The largest number of requests under way at once; one that ends makes room at that moment."""
    inside = np.arange(1, len(arrival_s) + 1) - np.searchsorted(np.sort(ended_s), arrival_s, side="right")
    return int(inside.max(initial=0))


def largest_batch(run: Run) -> int:
    """Most requests of one step of one rank."""
    visited = np.flatnonzero(run.tally.batch_size_steps.sum(axis=0))
    return int(visited.max(initial=0))


def is_of_closed_loop(summary: Mapping[str, Any]) -> bool:
    """Whether a run was a closed loop, whose queue cannot grow: saturation is no question there."""
    return "clients" in summary and summary["clients"]["number"] is not None


def words_of(summary: Mapping[str, Any]) -> Iterator[str]:
    """The clients of a run in words; nothing where none waits."""
    clients = summary.get("clients")
    if clients is None:
        return
    in_flight = clients["in_flight"]
    words = f"{figures(in_flight['mean'])} requests in flight on average, at most {in_flight['max']:,}"
    if clients["limit"] is not None:
        yield (
            f"at most {clients['limit']:,} under way: {words}; those due waited "
            f"{seconds(clients['held_s']['mean'])} at the client on average, which is in no latency"
        )
    elif clients["number"] is None:
        yield f"turns wait for the answer before: {words}"
    else:
        yield f"closed loop of {clients['number']:,} clients: {words}; the queue cannot grow beyond them"
