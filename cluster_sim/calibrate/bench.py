"""Result files of `vllm bench serve`: one run, a list of runs (`vllm bench sweep`'s summary), or one a line.

Source of the names and their units: vLLM 0.33.0 (../shared/vllm-scheduler.md section 13;
../shared/spec-decode-facts.md F1). spec_decode_acceptance_rate is in percent, the rates by position are
fractions of all drafts.
"""

from cluster_sim.calibrate.counts import Counts, check
from cluster_sim.calibrate.entries import Entry

PREFIX = "spec_decode_"
POSITIONS = f"{PREFIX}per_position_acceptance_rates"
RATE_TOLERANCE = 1e-3  # of a share: files are rounded by hand


def is_run(entry: Entry) -> bool:
    """Whether the entry is a run of `vllm bench serve`."""
    return "mean_tpot_ms" in entry or "num_prompts" in entry or POSITIONS in entry


def has_drafts(entry: Entry) -> bool:
    """Whether it counted drafts: vLLM leaves the keys out where there were none."""
    return any(name.startswith(PREFIX) and value is not None for name, value in entry.values.items())


def counts_of(entry: Entry) -> Counts:
    """What speculation did in a run.

    Raises:
        UserError: numbers are missing, damaged, or contradict each other.
    """
    rates = entry.numbers(POSITIONS, 0.0, 1.0)
    drafts, tokens = entry.whole(f"{PREFIX}num_drafts", 1), entry.whole(f"{PREFIX}draft_tokens", 1)
    accepted = entry.whole(f"{PREFIX}accepted_tokens")
    counts = Counts(entry.place, drafts, tokens, tuple(round(rate * drafts) for rate in rates))
    if abs(sum(rates) - accepted / drafts) > RATE_TOLERANCE * len(rates):
        rule = f"the sum of {POSITIONS} is accepted tokens per draft, {accepted / drafts:.4g}"
        entry.refuse(rule, f"{sum(rates):.4g}")
    check(counts)
    _check_said(
        entry,
        "acceptance_rate",
        100 * accepted / tokens,
        100 * RATE_TOLERANCE,
        "accepted of draft tokens in percent",
    )
    _check_said(
        entry,
        "acceptance_length",
        1 + accepted / drafts,
        len(rates) * RATE_TOLERANCE,
        "1 + accepted tokens per draft",
    )
    return counts


def _check_said(entry: Entry, name: str, counted: float, tolerance: float, meaning: str) -> None:
    if f"{PREFIX}{name}" not in entry:
        return
    said = entry.number(f"{PREFIX}{name}")
    if abs(said - counted) > tolerance:
        entry.refuse(f"{PREFIX}{name} is {meaning}, {counted:.4g}", f"{said:.4g}")
