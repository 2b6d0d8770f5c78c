"""What a careful reader would object, computed from the results: one function each, None where it does not hold."""

from collections.abc import Callable, Iterator, Sequence

from cluster_sim.report.answer import recommended
from cluster_sim.report.stored import Stored, Tree
from cluster_sim.saturation import MOST_SEEDS

FEWEST_FOR_P99 = 1000  # ten requests beyond it


def caveats(stored: Stored) -> list[str]:
    """All that hold, and the warnings that the runs themselves gave, each once."""
    found = [words for ask in ASKED if (words := ask(stored)) is not None]
    given = list(dict.fromkeys(words for row in stored.rows for words in row.get("warnings") or []))
    return [*found, *given]


def saturation(stored: Stored) -> str | None:
    """Throughput is then the capacity, and latency is not steady."""
    saturated = [entry for entry in _entries(stored) if (entry["saturated"] or 0.0) >= MOST_SEEDS]
    if not saturated:
        return None
    where = (
        "This run is"
        if stored.sweep is None
        else f"{len(saturated)} points of {len(list(_entries(stored)))} are"
    )
    return f"{where} saturated: there the throughput is the capacity, and latencies grow with the length of the run."


def drafter_without_cost(stored: Stored) -> str | None:
    """An upper bound."""
    if not any(str(row.get("draft_cost", "")).startswith("zero") for row in stored.rows):
        return None
    return "The drafter costs nothing in some runs: their gains are an upper bound."


def few_requests(stored: Stored) -> str | None:
    """A p99 needs requests beyond it."""
    fewest = min((int(row["requests.completed"]) for row in stored.rows), default=FEWEST_FOR_P99)
    if fewest >= FEWEST_FOR_P99:
        return None
    return f"As few as {fewest:,} requests completed in a run: its p99 rests on {fewest // 100} of them."


def slo_of_ttft_alone(stored: Stored) -> str | None:
    """Speculation changes TPOT, not TTFT."""
    slo = stored.config["slo"]
    if slo["ttft_s"] is None or slo["tpot_s"] is not None or slo["e2el_s"] is not None:
        return None
    return "The SLO bounds TTFT alone: it does not see what speculation does to each further token."


def winner_inside_the_noise(stored: Stored) -> str | None:
    """A recommendation that no interval at the busiest point supports."""
    if stored.sweep is None or (arm := recommended(stored)) is None:
        return None
    ties = [
        other
        for other, entries in stored.summary["vs_baseline"].items()
        if other != arm and all((entry["tpot_s"] or {}).get("verdict") == "win" for entry in entries)
    ]
    return (
        f"{', '.join(ties)}: surely faster than the baseline as well; compare them with {arm} by their intervals."
        if ties
        else None
    )


def warm_prefix_cache(stored: Stored) -> str | None:
    """Cached prompts leave more of the GPU to drafts than cold ones would."""
    prompt = sum(int(row["tokens.prompt"]) for row in stored.rows)
    cached = sum(int(row["tokens.cached"]) for row in stored.rows)
    if prompt == 0 or cached / prompt < 0.05:  # noqa: PLR2004  less does not show
        return None
    return f"{100 * cached / prompt:.0f}% of the prompt tokens came from the prefix cache: with a cold one speculation would gain less."


ASKED: Sequence[Callable[[Stored], str | None]] = (
    saturation,
    drafter_without_cost,
    winner_inside_the_noise,
    few_requests,
    slo_of_ttft_alone,
    warm_prefix_cache,
)


def _entries(stored: Stored) -> Iterator[Tree]:
    if stored.sweep is None:
        yield stored.summary
        return
    for entries in stored.summary["arms"].values():
        yield from entries
