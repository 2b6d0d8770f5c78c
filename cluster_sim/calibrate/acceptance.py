"""From counts to an acceptance profile: the chance of each position, with an interval, and what it misses.

At position j, of n drafts that had it a were accepted up to it: marginal m_j = a / n; conditional c_j = m_j /
m_(j-1). Intervals (95 %) are Wilson's for independent verifications. From MIN_PARTS parts on (runs, or the
requests of SGLang) the parts themselves say how far they differ, by the variance of a ratio of totals,

    var(m) = parts / (parts - 1) * sum over parts of (a_g - m n_g)^2 / n^2,      with Student's t,

and the wider of the two holds. Where the counters leave open how many drafts had a position (mixed.py), the
interval reaches from the lower end at the most to the upper end at the fewest; where that leaves a marginal
open by more than WIDEST, the profile is refused. That drafts of all lengths are accepted alike, position by
position, is an assumption: measure each length by itself where it matters (spec-decode-facts.md, fact 1).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cluster_sim.calibrate.counts import Counts, pooled
from cluster_sim.calibrate.mixed import Offered, offered
from cluster_sim.errors import UserError
from cluster_sim.speculation.isotonic import non_increasing
from cluster_sim.statistics import Interval, student_t_quantile, wilson_interval

MIN_PARTS = 5  # of which to tell how far they differ
WIDEST = 0.02  # of a marginal: how far it may stay open


@dataclass(frozen=True)
class HeldOut:
    """The acceptance length of one part, and what the others say it is."""

    place: str
    measured: float
    predicted: float

    @property
    def error_percent(self) -> float:
        """Of the measured value."""
        return 100.0 * (self.predicted / self.measured - 1.0)


@dataclass(frozen=True)
class Row:
    """The profile of drafts of one length."""

    draft_length: int
    counts: Counts  # of all parts
    marginals: tuple[Interval, ...]
    conditionals: tuple[Interval, ...]
    is_mixed: bool  # drafts were of several lengths
    held_out: tuple[HeldOut, ...]  # by part; empty where there is one

    @property
    def rates(self) -> list[float]:
        """The marginals' values, which do not increase."""
        return non_increasing([one.value for one in self.marginals])

    @property
    def acceptance_length(self) -> Interval:
        """Mean tokens of a verification of the whole length, bonus included: 1 + the sum of the marginals.

        Its interval is the sum of theirs, which is what it would be if they all erred together: some percent
        wider than it need be.
        """
        low, high = (sum(getattr(one, end) for one in self.marginals) for end in ("low", "high"))
        return Interval(1.0 + sum(self.rates), 1.0 + low, 1.0 + high)


def row_of(parts: Sequence[Counts], lengths: Sequence[int]) -> Row:
    """The profile of `parts`, all with as many positions; the server drafts `lengths`.

    Raises:
        UserError: they contradict the lengths, or leave a marginal open.
    """
    had = [offered(part, lengths) for part in parts]
    total = pooled(list(parts))
    whole = Offered(
        tuple(map(sum, zip(*(each.low for each in had), strict=True))),
        tuple(map(sum, zip(*(each.high for each in had), strict=True))),
    )
    marginals = tuple(_marginal(parts, had, whole, place) for place in range(len(total.accepted_at)))
    return Row(
        len(total.accepted_at),
        total,
        marginals,
        tuple(_conditional(total, whole, place) for place in range(len(marginals))),
        total.draft_tokens < total.drafts * len(marginals),
        _held_out(parts, had),
    )


def _marginal(parts: Sequence[Counts], had: Sequence[Offered], whole: Offered, position: int) -> Interval:
    accepted = sum(part.accepted_at[position] for part in parts)
    fewest, most = whole.low[position], whole.high[position]
    if round(fewest) == 0:
        rule = f"a profile needs drafts that have position {position}"
        raise UserError(rule, "none", parts[0].place, "Measure with drafts of that length.")
    least, largest = wilson_interval(accepted, round(most)), wilson_interval(accepted, round(fewest))
    if largest.value - least.value > WIDEST:
        rule = f"counters of drafts of several lengths must tell the share accepted at position {position}"
        got = f"anything from {least.value:.3f} to {largest.value:.3f}"
        raise UserError(rule, got, parts[0].place, "Measure each draft length by itself.")
    value = 2 * accepted / (fewest + most)
    spread = _spread(parts, had, position, value)
    return Interval(
        value, max(0.0, min(least.low, value - spread)), min(1.0, max(largest.high, value + spread))
    )


def _spread(parts: Sequence[Counts], had: Sequence[Offered], position: int, value: float) -> float:
    """Half the interval that the parts' own differences give; 0 where they are too few."""
    number = len(parts)
    if number < MIN_PARTS:
        return 0.0
    offered_to = [(each.low[position] + each.high[position]) / 2 for each in had]
    squares = sum(
        (part.accepted_at[position] - value * there) ** 2
        for part, there in zip(parts, offered_to, strict=True)
    )
    variance = number / (number - 1) * squares / sum(offered_to) ** 2
    return student_t_quantile(number - 1) * math.sqrt(variance)


def _conditional(total: Counts, whole: Offered, position: int) -> Interval:
    """Of those that had the position and were accepted so far, for verifications that are independent."""
    accepted = total.accepted_at[position]
    if position == 0:
        return wilson_interval(accepted, round((whole.low[0] + whole.high[0]) / 2))
    had, before = ((whole.low[place] + whole.high[place]) / 2 for place in (position, position - 1))
    reached = round(total.accepted_at[position - 1] * had / before)
    if reached == 0:
        return Interval(0.0, 0.0, 1.0)
    return wilson_interval(min(accepted, reached), reached)


def _held_out(parts: Sequence[Counts], had: Sequence[Offered]) -> tuple[HeldOut, ...]:
    """Each part against the profile of all others, at its own mix of lengths."""
    if len(parts) == 1:
        return ()
    positions = range(len(parts[0].accepted_at))
    shares = [[(low + high) / 2 for low, high in zip(each.low, each.high, strict=True)] for each in had]
    accepted = [sum(part.accepted_at[place] for part in parts) for place in positions]
    offered_to = [sum(share[place] for share in shares) for place in positions]
    found = []
    for part, share in zip(parts, shares, strict=True):
        others = [
            (accepted[place] - part.accepted_at[place]) / max(offered_to[place] - share[place], 1.0)
            for place in positions
        ]
        predicted = 1 + sum(rate * there for rate, there in zip(others, share, strict=True)) / part.drafts
        found.append(HeldOut(part.place, part.acceptance_length, predicted))
    return tuple(found)
