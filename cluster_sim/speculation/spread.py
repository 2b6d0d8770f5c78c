"""Texts that draft well and texts that draft badly: levels of ease around one acceptance profile.

A level shifts the logit of every conditional of a verification by the same amount: logit c_i -> logit c_i + a
+ s. The shift s is that of one of NUM_LEVELS equally likely levels, midpoints of equal shares of a normal
distribution, scaled to the standard deviation asked for: request_spread between requests, run_spread between
the runs of run_tokens output tokens of each request, which add up. The offset a, one for each draft length,
is solved so that the mean of accepted drafts over the levels, each counted once, is the profile's.

Kept: the mean accepted at a verification whose text is of a level drawn with equal chances. Moved: what a
request or a run of some length accepts on average is now spread. And since hard texts need more verifications
for the same tokens, a run's accepted tokens over its verifications fall below the profile's mean.
"""

from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from cluster_sim.config import AcceptanceConfig
from cluster_sim.errors import UserError
from cluster_sim.speculation.acceptance import bisect

NUM_LEVELS = 9  # of each kind; the outermost lie 1.7 standard deviations out
Floats = NDArray[np.float64]


def shifts(config: AcceptanceConfig, request_levels: int, run_levels: int) -> Floats:
    """Shift of the logit at each level, shape [request_levels * run_levels], that of the run innermost."""
    of_request = config.request_spread * _standard_levels(request_levels)
    of_run = config.run_spread * _standard_levels(run_levels)
    return (of_request[:, np.newaxis] + of_run).ravel()


def spread_table(table: Floats, shift: Floats, key: str) -> Floats:
    """Conditionals [level, draft length, position] around those of `table`, [draft length, position].

    Raises:
        UserError: no draft of the profile is in doubt, so that no text could be easier than another.
    """
    spread = np.repeat(table[np.newaxis], len(shift), axis=0)
    if not shift.any():
        return spread
    if not np.any((table > 0) & (table < 1)):
        rule = "a spread needs drafts whose chance lies between 0 and 1"
        raise UserError(rule, "a profile without one", key, "Leave the spread out, or choose another policy.")
    for drafts in range(1, len(table)):
        spread[:, drafts, :drafts] = _levels(table[drafts, :drafts], shift)
    return spread


def _levels(conditional: Floats, shift: Floats) -> Floats:
    """Conditionals [level, position] whose mean of accepted drafts is that of `conditional`."""
    mean = float(np.cumprod(conditional).sum())
    reach = float(np.abs(shift).max())  # all levels are easier than the profile at +reach, none at -reach
    offset = bisect(
        lambda offset: float(np.cumprod(_shifted(conditional, shift + offset), axis=1).sum(axis=1).mean()),
        mean,
        -reach,
        reach,
    )
    return _shifted(conditional, shift + offset)


def _shifted(conditional: Floats, shift: Floats) -> Floats:
    """Odds times exp(shift), which leaves chances of 0 and 1 as they are; shape [shift, position]."""
    in_favour = conditional * np.exp(shift)[:, np.newaxis]
    shifted: Floats = in_favour / (1 - conditional + in_favour)
    return shifted


def _standard_levels(levels: int) -> Floats:
    """Midpoints of equal shares of a normal distribution, scaled to standard deviation 1; one level: 0."""
    if levels == 1:
        return np.zeros(1)
    midpoints = np.array([NormalDist().inv_cdf((level + 0.5) / levels) for level in range(levels)])
    standard: Floats = midpoints / midpoints.std()
    return standard
