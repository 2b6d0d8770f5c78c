"""Lengths of synthetic requests: what workload.prompt_tokens and workload.output_tokens may say.

    512                                                                every request the same
    {distribution: fixed, mean: 512}                                   the same in words
    {distribution: lognormal, mean: 512, cv: 1.0, min: 16, max: 8192}  min and max may be left out

Lognormal lengths are rounded to whole tokens and clipped to [min, max]; mean and cv (standard deviation /
mean) are those before that.
"""

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from cluster_sim import draws
from cluster_sim.bounds import LARGEST_COUNT, Bound
from cluster_sim.engine.kinds import Purpose
from cluster_sim.errors import UserError
from cluster_sim.schema import shown

Longs = NDArray[np.int64]


class Distribution(Enum):
    """Shapes of lengths, as the YAML says them."""

    fixed = "fixed"
    lognormal = "lognormal"


KEYS = {
    Distribution.fixed: ("distribution", "mean"),
    Distribution.lognormal: ("distribution", "mean", "cv", "min", "max"),
}
MEAN = Bound("a mean length in tokens", low=1, high=LARGEST_COUNT)
LENGTH = Bound("a length in tokens", low=1, high=LARGEST_COUNT)
CV = Bound("the coefficient of variation", high=100)


@dataclass(frozen=True)
class Lengths:
    """A distribution of lengths in tokens; cv 0 is a fixed length."""

    key: str  # where the user gave it
    mean_tokens: float
    cv: float = 0.0
    min_tokens: int = 1
    max_tokens: int | None = None  # None: unbounded


def parse_lengths(value: object, key: str) -> Lengths:
    """The distribution that `value`, found at `key` of the configuration, describes.

    Raises:
        UserError: neither a whole number nor a mapping of the keys above, or out of bounds.
    """
    if isinstance(value, Mapping):
        return _parse_mapping(value, key)
    return Lengths(key, _whole(value, key))


def draw_lengths(lengths: Lengths, seed: int, purpose: Purpose, requests: int) -> Longs:
    """Lengths in tokens of requests 0 .. requests - 1, each a function of (seed, purpose, request).

    Raises:
        UserError: a length is drawn that is too large to count, and no maximum is set.
    """
    if lengths.cv == 0:
        return np.full(requests, round(lengths.mean_tokens), np.int64)
    variance = math.log1p(lengths.cv**2)
    location = math.log(lengths.mean_tokens) - variance / 2
    drawn = np.rint(np.exp(location + math.sqrt(variance) * draws.normals(seed, purpose, requests)))
    if lengths.max_tokens is None and drawn.max(initial=0) > LARGEST_COUNT:
        rule = f"drawn lengths must be at most {LARGEST_COUNT} tokens"
        raise UserError(rule, f"{drawn.max():.0f}", lengths.key, f"Set {lengths.key}.max.")
    return np.clip(drawn, lengths.min_tokens, lengths.max_tokens).astype(np.int64)


def _parse_mapping(value: Mapping[object, object], key: str) -> Lengths:
    distribution = _distribution(value.get("distribution"), f"{key}.distribution")
    known = KEYS[distribution]
    for name in value:
        if name not in known:
            rule = f"a {distribution.name} length has the keys {', '.join(known)}"
            raise UserError(rule, shown(name), key, f"Leave {name} out.")
    if distribution is Distribution.fixed:
        return Lengths(key, _whole(value.get("mean"), f"{key}.mean"))
    mean, cv = (
        _number(value.get(name), bound, f"{key}.{name}") for name, bound in (("mean", MEAN), ("cv", CV))
    )
    smallest = value.get("min")
    largest = value.get("max")
    low = 1 if smallest is None else _whole(smallest, f"{key}.min")
    high = None if largest is None else _whole(largest, f"{key}.max")
    if not low <= mean <= (LARGEST_COUNT if high is None else high):
        limits = f"mean {mean:g}, min {low}, max {'none' if high is None else high}"
        raise UserError("min <= mean <= max must hold", limits, key, "Move the limits or the mean.")
    return Lengths(key, mean, cv, low, high)


def _distribution(word: object, where: str) -> Distribution:
    names = [member.name for member in Distribution]
    if isinstance(word, str) and word in names:
        return Distribution[word]
    meant = difflib.get_close_matches(str(word), names, n=1)
    remedy = f"Did you mean {meant[0]}?" if meant else "Name one of them."
    raise UserError(f"the distribution of a length must be {' or '.join(names)}", shown(word), where, remedy)


def _whole(value: object, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        remedy = "Write 512, or {distribution: lognormal, mean: 512, cv: 1.0}."
        raise UserError("a length must be a whole number of tokens", shown(value), where, remedy)
    _check(value, LENGTH, where)
    return value


def _number(value: object, bound: Bound, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UserError(f"{bound.quantity} must be a number", shown(value), where, f"Set {where}.")
    _check(value, bound, where)
    return float(value)


def _check(value: float, bound: Bound, where: str) -> None:
    broken = bound.broken(value)
    if broken is not None:
        must_be, instead = broken
        raise UserError(f"{bound.quantity} must be {must_be}", value, where, f"Set {where} to {instead}.")
