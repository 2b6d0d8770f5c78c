"""Verifications and what they accepted: all that a profile is made of, whoever counted it.

Conserved: the first position has been offered to every verification; a later one to no more; what was
accepted at a position was offered there, and accepted at the one before.
"""

from dataclasses import dataclass
from itertools import pairwise

from cluster_sim.errors import UserError

REMEDY = "Correct the file, or measure again."
MOST_POSITIONS = 256  # of a draft


@dataclass(frozen=True)
class Counts:
    """Verify events with at least one draft, of one server under one load."""

    place: str  # the file, and where in it
    drafts: int  # verify events
    draft_tokens: int  # drafts verified
    accepted_at: tuple[int, ...]  # [position] events whose drafts up to this one were all accepted
    offered_at: tuple[int, ...] | None = None  # [position] events that had it; None: not counted

    @property
    def accepted(self) -> int:
        """Drafts accepted."""
        return sum(self.accepted_at)

    @property
    def acceptance_length(self) -> float:
        """Mean tokens per verification, bonus included, as vLLM counts it."""
        return 1.0 + self.accepted / self.drafts


def check(counts: Counts) -> None:
    """Refuse counts that no server can have.

    Raises:
        UserError: naming the first two that contradict each other.
    """
    if counts.drafts < 1:
        _refuse("there must be verifications to count", counts.drafts, counts)
    if len(counts.accepted_at) > MOST_POSITIONS:
        _refuse(f"a draft has at most {MOST_POSITIONS} positions", len(counts.accepted_at), counts)
    before = [counts.drafts, *counts.accepted_at]
    for position, (most, accepted) in enumerate(pairwise(before)):
        if accepted > most:
            rule = f"position {position} is accepted no more often than {_before(position)}, {most} times"
            _refuse(rule, accepted, counts)
    fewest, positions = max(counts.drafts, counts.accepted), len(counts.accepted_at)
    if not fewest <= counts.draft_tokens <= positions * counts.drafts:
        rule = (
            f"{counts.drafts} drafts of 1 to {positions} tokens, {counts.accepted} of them accepted, have "
            f"{fewest} to {positions * counts.drafts} tokens"
        )
        _refuse(rule, counts.draft_tokens, counts)


def pooled(parts: list[Counts]) -> Counts:
    """The sum of counts that have as many positions each."""
    offered = [part.offered_at for part in parts]
    return Counts(
        "; ".join(dict.fromkeys(part.place for part in parts)),
        sum(part.drafts for part in parts),
        sum(part.draft_tokens for part in parts),
        tuple(map(sum, zip(*(part.accepted_at for part in parts), strict=True))),
        None
        if None in offered
        else tuple(map(sum, zip(*(each for each in offered if each is not None), strict=True))),
    )


def _before(position: int) -> str:
    return f"position {position - 1}" if position else "there are drafts"


def _refuse(rule: str, got: object, counts: Counts) -> None:
    raise UserError(rule, got, counts.place, REMEDY)
