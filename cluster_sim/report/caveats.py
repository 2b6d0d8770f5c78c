"""What a careful reader would object, computed from the results: a function each, None where it is not so."""

from collections.abc import Callable, Iterator, Sequence

from cluster_sim.report.closed_loop import below_the_flip, run_below_the_flip
from cluster_sim.report.recommended import as_fast, is_saturated, is_unjudged, recommended
from cluster_sim.report.stored import Kind, Stored, Tree

FEWEST_FOR_P99 = 1000  # ten requests beyond it
LARGEST_DRAIN_SHARE = 0.05  # of a run's time
SMALLEST_CACHED_SHARE = 0.05  # of the prompt tokens; less does not show


def caveats(stored: Stored) -> list[str]:
    """All that hold, and the warnings that the runs themselves gave, each once."""
    found = [words for ask in ASKED if (words := ask(stored)) is not None]
    given = dict.fromkeys(words for row in stored.rows for words in row.get("warnings") or [])
    return [*found, *(f"{words[:1].upper()}{words[1:]}." for words in given)]


def unfinished(stored: Stored) -> str | None:
    """Trials are missing."""
    if stored.planned is None:
        return None
    if stored.kind is Kind.unfinished and not stored.sweep.get("axes"):
        return f"The run has not ended: {len(stored.rows):,} simulations are kept so far."
    return f"The sweep has not ended: this is what {len(stored.rows):,} of {stored.planned:,} trials say."


def saturation(stored: Stored) -> str | None:
    """Throughput is then the capacity, and latency is not steady."""
    entries = list(_entries(stored))
    number = sum(is_saturated(entry) for entry in entries)
    if not number:
        return None
    where = (
        "This run is" if stored.kind is Kind.run else f"{number} of {len(entries)} points (of any arm) are"
    )
    return (
        f"{where} saturated: throughput is the capacity there for runs of this length, and latencies grow "
        "with it."
    )


def closed_loop_below_the_crossover(stored: Stored) -> str | None:
    """Batches that a load would reach are larger than any that its clients made."""
    if stored.kind is Kind.run:
        found = [f"{words[:1].upper()}{words[1:]}." for words in run_below_the_flip(stored.summary)]
    else:
        found = list(below_the_flip(stored.summary))
    return found[0] if found else None


def drafter_without_cost(stored: Stored) -> str | None:
    """An upper bound."""
    if not any(str(row.get("draft_cost", "")).startswith("zero") for row in stored.rows):
        return None
    return "The drafter costs nothing in some runs: their gains are an upper bound."


def one_seed(stored: Stored) -> str | None:
    """Luck and effect cannot be told apart."""
    if stored.kind is not Kind.sweep or not is_unjudged(stored):
        return None
    return "There is one seed: what chance does cannot be told from what an arm does."


def winner_inside_the_noise(stored: Stored) -> str | None:
    """Other arms are as fast as the recommended one."""
    arm = recommended(stored)
    others = [] if arm is None else as_fast(stored, arm)
    if not others:
        return None
    return (
        f"{arm} is not surely the best: {', '.join(others)} took the same time per token, over the points "
        "without saturation, within 1% or the noise."
    )


def few_requests(stored: Stored) -> str | None:
    """A p99 needs requests beyond it."""
    key = "measured.requests"
    counts = [int(row[key] if key in row else row["requests.completed"]) for row in stored.rows]
    fewest = min(counts, default=FEWEST_FOR_P99)
    if fewest >= FEWEST_FOR_P99:
        return None
    which = "This run" if stored.kind is Kind.run else "The smallest run"
    return f"{which} measured {fewest:,} requests: a p99 of it rests on the slowest {max(fewest // 100, 1)}."


def long_drain(stored: Stored) -> str | None:
    """Throughputs divide by a time in which nothing arrives any more."""
    steady = [row for row in stored.rows if not row.get("saturated") and row.get("drain_s")]
    share = max((row["drain_s"] / row["simulated_s"] for row in steady), default=0.0)
    if share < LARGEST_DRAIN_SHARE:
        return None
    return (
        f"Up to {100 * share:.0f}% of a run's time comes after its last arrival and counts in throughputs "
        "and goodputs, which read low by as much, those of slower arms the most: simulate more requests."
    )


def no_slo(stored: Stored) -> str | None:
    """Goodput needs limits."""
    if any(row.get("slo_attainment") is not None for row in stored.rows):
        return None
    return "There is no SLO: fast and slow requests count alike."


def slo_of_ttft_alone(stored: Stored) -> str | None:
    """Speculation changes TPOT, not TTFT."""
    slo = stored.config["slo"]
    if slo["ttft_s"] is None or slo["tpot_s"] is not None or slo["e2el_s"] is not None:
        return None
    return "The SLO bounds TTFT alone: it does not see what speculation does to each further token."


def warm_prefix_cache(stored: Stored) -> str | None:
    """Cached prompts leave more of the GPU to decodes, where drafts gain, than cold ones would."""
    prompt = sum(int(row["tokens.prompt"]) for row in stored.rows)
    cached = sum(int(row["tokens.cached"]) for row in stored.rows)
    if prompt == 0 or cached / prompt < SMALLEST_CACHED_SHARE:
        return None
    return (
        f"{100 * cached / prompt:.0f}% of the prompt tokens came from the prefix cache: with a cold one more "
        "of the time goes to prefills, and speculation gains less."
    )


def acceptance_of_other_text(stored: Stored) -> str | None:
    """A published profile is of the text that it was measured on."""
    if not any(source.startswith("[published]") for source in _acceptance_sources(stored)):
        return None
    texts = sorted({text for row in stored.rows for text in row.get("acceptance_texts") or []})
    measured_on = " and ".join(texts) or "the text of a benchmark"
    return (
        f"The acceptance was measured on {measured_on}, not on your traffic, which may be accepted "
        "more or less: give your own (speculation.acceptance), or see how far the answer holds with "
        "+sweep=acceptance_sensitivity."
    )


def classes_of_one_profile(stored: Stored) -> str | None:
    """Texts of different kinds are accepted differently."""
    names = list(stored.config["workload"].get("classes") or {})
    own = stored.config["speculation"].get("acceptance_by_class") or {}
    others = [name for name in names if name not in own]
    drafts = any(source != "no speculation" for source in _acceptance_sources(stored))
    if not drafts or len(others) < 2:  # noqa: PLR2004  two have one profile
        return None
    return (
        f"The classes {', '.join(others)} share one acceptance profile, though kinds of text are accepted "
        "differently: give each its own with speculation.acceptance_by_class."
    )


def acceptance_without_source(stored: Stored) -> str | None:
    """Numbers of which nothing is known."""
    if not any("[given] by the user" in source for source in _acceptance_sources(stored)):
        return None
    return "The acceptance was given without a source: name one with speculation.acceptance.source."


def computed_step_times(stored: Stored) -> str | None:
    """A roofline is a model of kernels, not a measurement of this server."""
    if stored.config["cluster"]["bundle"] is not None:
        return None
    return (
        "Step times are computed from a roofline of this GPU, not measured on your server: check them with "
        "validate, or import profiled ones with import-bundle."
    )


def _entries(stored: Stored) -> Iterator[Tree]:
    if stored.kind is Kind.run:
        yield stored.summary
    elif stored.kind in (Kind.sweep, Kind.study):
        for entries in stored.summary["arms"].values():
            yield from entries


def _acceptance_sources(stored: Stored) -> set[str]:
    return {str(row.get("acceptance_source") or "") for row in stored.rows}


ASKED: Sequence[Callable[[Stored], str | None]] = (
    unfinished,
    one_seed,
    saturation,
    closed_loop_below_the_crossover,
    winner_inside_the_noise,
    drafter_without_cost,
    few_requests,
    long_drain,
    no_slo,
    slo_of_ttft_alone,
    warm_prefix_cache,
    acceptance_of_other_text,
    classes_of_one_profile,
    acceptance_without_source,
    computed_step_times,
)
