"""Drafts of several lengths: to how many of them each position was offered.

vLLM exports for each position how often it was accepted, but not how often it was there; it divides by all
drafts, so that late positions read low when the length varies (../shared/spec-decode-facts.md F2). It does
export the drafts N and their tokens T: with n_k drafts of k tokens, for lengths k that the server may use,

    sum n_k = N,    sum k n_k = T,    offered at position j = sum of n_k over k > j.

Two lengths are told exactly. Of more, the largest and the smallest number offered at a position are those of
mixes of two lengths (the vertices of that simplex), so that all pairs give the bounds. With one length, fewer
tokens than N K mean drafts that were cut short, by a token budget or max_model_len: of any length up to K.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from cluster_sim.calibrate.counts import Counts
from cluster_sim.errors import UserError

KEY = "speculation.num_speculative_tokens"
ROUNDING = 0.5


@dataclass(frozen=True)
class Offered:
    """Between how many drafts had each position; low = high where the counters tell."""

    low: tuple[float, ...]
    high: tuple[float, ...]

    @property
    def is_exact(self) -> bool:
        """Whether the counters tell all of it."""
        return self.low == self.high


def offered(counts: Counts, lengths: Sequence[int]) -> Offered:
    """To how many drafts each position was offered; the server drafts `lengths`, ascending, none of them 0.

    Raises:
        UserError: no drafts of these lengths make such counts.
    """
    if counts.offered_at is not None:
        exact = tuple(map(float, counts.offered_at))
        return Offered(exact, exact)
    mean = counts.draft_tokens / counts.drafts
    if mean > lengths[-1]:
        _refuse_mean(counts, lengths)
    if len(lengths) == 1 or mean < lengths[0]:
        lengths = range(1, lengths[-1] + 1)
    mixes = _mixes(counts, lengths)
    positions = range(len(counts.accepted_at))
    each = [[mix.get(position, 0.0) for position in positions] for mix in mixes]
    low, high = (tuple(map(best, zip(*each, strict=True))) for best in (min, max))
    accepted_at = counts.accepted_at
    for position, (most, accepted) in enumerate(zip(high, accepted_at, strict=True)):
        if accepted > most + ROUNDING:
            rule = f"position {position} can have been offered to at most {most:.0f} of the drafts"
            got, remedy = f"{accepted} acceptances", f"Correct {KEY} or its schedule."
            raise UserError(rule, got, counts.place, remedy)
    return Offered(tuple(map(max, low, accepted_at)), tuple(map(max, high, accepted_at)))


def _mixes(counts: Counts, lengths: Sequence[int]) -> list[dict[int, float]]:
    """Offered at each position, for every mix of two lengths (or of one) that the counters allow."""
    drafts, mean = counts.drafts, counts.draft_tokens / counts.drafts
    mixes = []
    for short in lengths:
        for long in lengths:
            if short <= mean <= long and (short < long or short == mean):
                share = (mean - short) / (long - short) if long > short else 0.0
                mixes.append(
                    {position: drafts * (1.0 if position < short else share) for position in range(long)}
                )
    return mixes


def _refuse_mean(counts: Counts, lengths: Sequence[int]) -> NoReturn:
    mean = counts.draft_tokens / counts.drafts
    rule = f"drafts have at most {lengths[-1]} tokens ({KEY})"
    raise UserError(rule, f"{mean:.3g} on average", counts.place, f"Correct {KEY} or its schedule.")
