"""Speculative sampling from two given distributions: where acceptance numbers come from.

Leviathan et al., ICML 2023 (arXiv 2211.17192), algorithm 1: a draft x ~ q is kept with probability
min(1, p(x) / q(x)); the first one that is not is replaced by a token from norm(max(p - q, 0)), and after K
kept drafts a bonus token comes from p. Every token that comes out is distributed as p, whatever q is.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]


@dataclass(frozen=True)
class Rounds:
    """Verifications of K drafts each, all of the same two distributions."""

    tokens: Longs  # [round, 1 + K] what came out; -1 past the end
    accepted: Longs  # [round] drafts kept


def acceptance(target: Floats, draft: Floats) -> float:
    """P(a draft is kept) = sum over tokens of min(p, q) (the paper's theorem 3.5)."""
    return float(np.minimum(target, draft).sum())


def verify(target: Floats, draft: Floats, drafts: int, rounds: int, seed: int) -> Rounds:
    """Sample `rounds` verifications of `drafts` drafts, with distributions [token]."""
    rng = np.random.default_rng(seed)
    proposed = rng.choice(len(draft), size=(rounds, drafts), p=draft)
    kept = rng.random((rounds, drafts)) < np.minimum(1.0, target / np.where(draft > 0, draft, 1.0))[proposed]
    accepted = np.cumprod(kept, axis=1).sum(axis=1)
    residual = np.maximum(target - draft, 0.0)
    corrected = rng.choice(
        len(target), size=rounds, p=target if residual.sum() == 0 else residual / residual.sum()
    )
    bonus = rng.choice(len(target), size=rounds, p=target)
    tokens = np.full((rounds, 1 + drafts), -1)
    for position in range(drafts):
        is_kept = accepted > position
        tokens[is_kept, position] = proposed[is_kept, position]
    tokens[np.arange(rounds), accepted] = np.where(accepted == drafts, bonus, corrected)
    return Rounds(tokens, accepted)


def chi_square(counts: Longs, expected: Floats) -> float:
    """Pearson's statistic of counts against their expectation."""
    return float((((counts - expected) ** 2) / expected).sum())


def chi_square_limit(degrees: int, normal_quantile: float) -> float:
    """The quantile of chi-square at that of the normal (Wilson and Hilferty, PNAS 1931; error below 2 %)."""
    spread = 2.0 / (9.0 * degrees)
    return float(degrees * (1.0 - spread + normal_quantile * np.sqrt(spread)) ** 3)
