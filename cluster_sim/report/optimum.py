"""Where drafting pays, in words: by the step-time tables, and as a sweep measured it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cluster_sim.report.words import figures

MOST_RUNS = 3  # of batch sizes at which drafting pays, and
MOST_RANGES = 6  # of a schedule that are listed one by one
FLIPS_TITLE = "batch size at which drafting stops paying, in output tokens of a busy second:"


def tables_words(optimum: Mapping[str, Any]) -> str:
    """Where drafting pays by the step-time tables alone: decodes without prefills, against no drafter."""
    lengths, schedule = optimum["draft_lengths"], optimum["schedule"]
    own = f"K={lengths[0][2]}" if len(lengths) == 1 else "the schedule"
    words = f"decodes alone, at {figures(optimum['kv_tokens'])} tokens of context: {own} "
    words += where_it_pays(optimum["pays_at"], lengths[-1][1])
    if optimum["pays_with_prefills_at"] != optimum["pays_at"]:
        loaded = where_it_pays(optimum["pays_with_prefills_at"], optimum["largest_with_prefills"])
        words += f", with the workload's prefills beside them it {loaded}"
    if schedule != lengths:
        words += f"; best K by batch: {ranges_words(schedule)}"
    if optimum["schedule_pays_at"] != optimum["pays_at"]:
        words += f", which {where_it_pays(optimum['schedule_pays_at'], lengths[-1][1])}"
    return words


def where_it_pays(runs: Sequence[Sequence[int]], largest: int) -> str:
    """The batch sizes at which a speed-up exceeds 1."""
    if not runs:
        return "pays at no batch size"
    if len(runs) == 1 and runs[0][0] == 1:
        last = runs[0][1]
        return f"pays at every batch size to {largest:,}" if last == largest else f"pays up to batch {last:,}"
    first, last = runs[0][0], runs[-1][1]
    if len(runs) > MOST_RUNS:
        return f"pays at batch {first:,} to {last:,} with gaps"
    listed = ", ".join(f"{one:,}" if one == other else f"{one:,} to {other:,}" for one, other in runs)
    return f"pays at batch {listed}"


def ranges_words(schedule: Sequence[Sequence[int]]) -> str:
    """K and the largest batch size of each of the first ranges."""
    listed = [f"{length} to {last:,}" for _, last, length in schedule[:MOST_RANGES]]
    return ", ".join(listed) + (", .." if len(schedule) > MOST_RANGES else "")


def flip_sentences(flips: Mapping[str, Sequence[Mapping[str, Any]]], baseline: str) -> Iterator[str]:
    """For every arm: the batch size from which on it serves less than the baseline, and by the tables."""
    for arm, groups in flips.items():
        for group in groups:
            where = "".join(f", {name}={value}" for name, value in group["axes"].items())
            yield f"{arm}{where}: {_measured(group, baseline)}; {_by_tables(group)}."


def _measured(group: Mapping[str, Any], baseline: str) -> str:
    measured = group["measured_batch_size"]
    if measured is not None:
        return f"as much as {baseline} at a mean batch of {figures(measured)}{_bounds(group)}"
    if group["pays_at_largest"] is None:
        return "no batch size was measured"
    low, high = (figures(size) for size in group["measured_range"])
    kind = "more" if group["pays_at_largest"] else "less"
    return f"{kind} than {baseline} at every mean batch measured ({low} to {high})"


def _bounds(group: Mapping[str, Any]) -> str:
    """The interval over seeds, or why there is none."""
    if group["measured_interval"]:
        low, high = (figures(bound) for bound in group["measured_interval"])
        return f" [{low}, {high}]"
    some, seeds = group["seeds_that_flip"]
    return "" if some == seeds else f" (in {some} of {seeds} seeds)"


def _by_tables(group: Mapping[str, Any]) -> str:
    if group["tables_pay_at"] is None:
        return "not compared with the tables"
    words = f"by the tables it {where_it_pays(group['tables_pay_at'], group['tables_largest'])}"
    if group["tables_gain_there"] is None:
        return words
    gain = f"their gain there is {group['tables_gain_there']:.3f}"
    if group["difference_percent"] is None:
        return f"{words} ({gain})"
    return f"{words} (measured {group['difference_percent']:+.0f}%; {gain})"
