"""Lengths of drawn requests: what workload.prompt_tokens and workload.output_tokens may say.

    512                                                                every request the same
    {distribution: fixed, mean: 512}                                   the same in words
    {distribution: uniform, min: 64, max: 1024}                        each whole number as likely
    {distribution: lognormal, mean: 512, cv: 1.0, min: 16, max: 8192}  min and max may be left out
    {distribution: file, path: lengths.txt}                            drawn from a file, with replacement

Lognormal lengths are rounded to whole tokens and clipped to [min, max]; mean and cv (standard deviation /
mean) are those before that. A file is described in length_files.py.
"""

import difflib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cluster_sim import draws
from cluster_sim.bounds import LARGEST_COUNT, Bound
from cluster_sim.engine.kinds import Purpose
from cluster_sim.errors import UserError
from cluster_sim.length_files import read_lengths
from cluster_sim.schema import shown

Longs = NDArray[np.int64]


class Distribution(Enum):
    """Shapes of lengths, as the YAML says them."""

    fixed = "fixed"
    uniform = "uniform"
    lognormal = "lognormal"
    file = "file"


KEYS = {
    Distribution.fixed: ("distribution", "mean"),
    Distribution.uniform: ("distribution", "min", "max"),
    Distribution.lognormal: ("distribution", "mean", "cv", "min", "max"),
    Distribution.file: ("distribution", "path"),
}
MEAN = Bound("a mean length in tokens", low=1, high=LARGEST_COUNT)
LENGTH = Bound("a length in tokens", low=1, high=LARGEST_COUNT)
CV = Bound("the coefficient of variation", high=100)
EXAMPLE = "Write 512, or {distribution: lognormal, mean: 512, cv: 1.0}."


class Streams(NamedTuple):
    """Whose draws requests take: each those of a request, or of a turn of a conversation."""

    request: Longs
    turn: Longs


@dataclass(frozen=True)
class Lengths:
    """A distribution of lengths in tokens; cv 0 is a fixed length."""

    key: str  # where the user gave it
    distribution: Distribution
    mean_tokens: float = 1.0
    cv: float = 0.0
    min_tokens: int = 1
    max_tokens: int | None = None  # None: unbounded
    path: str = ""


def parse_lengths(value: object, key: str) -> Lengths:
    """The distribution that `value`, found at `key` of the configuration, describes.

    Raises:
        UserError: neither a whole number nor a mapping of the keys above, or out of bounds.
    """
    if isinstance(value, Mapping):
        return _parse_mapping(value, key)
    return Lengths(key, Distribution.fixed, _whole(value, key))


def draw_lengths(lengths: Lengths, seed: int, purpose: Purpose, streams: Streams) -> Longs:
    """Lengths in tokens, each a function of (seed, purpose, request, turn).

    Raises:
        UserError: a length is drawn that is too large to count, and no maximum is set; or its file is wrong.
    """
    return _DRAWN[lengths.distribution](lengths, seed, purpose, streams)


def _draw_fixed(lengths: Lengths, _seed: int, _purpose: Purpose, streams: Streams) -> Longs:
    return np.full(len(streams.request), round(lengths.mean_tokens), np.int64)


def _draw_uniform(lengths: Lengths, seed: int, purpose: Purpose, streams: Streams) -> Longs:
    width = (lengths.max_tokens or 1) - lengths.min_tokens + 1
    uniforms = draws.uniforms_of(seed, purpose, streams.request, 2 * streams.turn)
    return lengths.min_tokens + np.floor(uniforms * width).astype(np.int64)


def _draw_lognormal(lengths: Lengths, seed: int, purpose: Purpose, streams: Streams) -> Longs:
    if lengths.cv == 0:
        return _draw_fixed(lengths, seed, purpose, streams)
    variance = math.log1p(lengths.cv**2)
    location = math.log(lengths.mean_tokens) - variance / 2
    normals = draws.normals_of(seed, purpose, streams.request, 2 * streams.turn)
    drawn = np.rint(np.exp(location + math.sqrt(variance) * normals))
    if lengths.max_tokens is None and drawn.max(initial=0) > LARGEST_COUNT:
        rule = f"drawn lengths must be at most {LARGEST_COUNT} tokens"
        raise UserError(rule, f"{drawn.max():.0f}", lengths.key, f"Set {lengths.key}.max.")
    return np.clip(drawn, lengths.min_tokens, lengths.max_tokens).astype(np.int64)


def _draw_from_file(lengths: Lengths, seed: int, purpose: Purpose, streams: Streams) -> Longs:
    """Rows with replacement; prompts and outputs that stand in one row stay together."""
    table = read_lengths(lengths.path, lengths.key)
    of_row = Purpose.length_row if table.has_pairs else purpose
    uniforms = draws.uniforms_of(seed, of_row, streams.request, 2 * streams.turn)
    return table.tokens[np.floor(uniforms * len(table.tokens)).astype(np.int64)]


_DRAWN: dict[Distribution, Callable[[Lengths, int, Purpose, Streams], Longs]] = {
    Distribution.fixed: _draw_fixed,
    Distribution.uniform: _draw_uniform,
    Distribution.lognormal: _draw_lognormal,
    Distribution.file: _draw_from_file,
}


def _parse_mapping(value: Mapping[object, object], key: str) -> Lengths:
    distribution = _distribution(value.get("distribution"), f"{key}.distribution")
    known = KEYS[distribution]
    for name in value:
        if name not in known:
            rule = f"a {distribution.name} length has the keys {', '.join(known)}"
            raise UserError(rule, shown(name), key, f"Leave {name} out.")
    if distribution is Distribution.fixed:
        return Lengths(key, distribution, _whole(value.get("mean"), f"{key}.mean"))
    if distribution is Distribution.file:
        return Lengths(key, distribution, path=_path(value.get("path"), f"{key}.path"))
    if distribution is Distribution.uniform:
        low, high = _whole(value.get("min"), f"{key}.min"), _whole(value.get("max"), f"{key}.max")
        if low > high:
            raise UserError("min <= max must hold", f"min {low}, max {high}", key, "Swap them.")
        return Lengths(key, distribution, min_tokens=low, max_tokens=high)
    return _parse_lognormal(value, key)


def _parse_lognormal(value: Mapping[object, object], key: str) -> Lengths:
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
    return Lengths(key, Distribution.lognormal, mean, cv, low, high)


def _distribution(word: object, where: str) -> Distribution:
    names = [member.name for member in Distribution]
    if isinstance(word, str) and word in names:
        return Distribution[word]
    meant = difflib.get_close_matches(str(word), names, n=1)
    remedy = f"Did you mean {meant[0]}?" if meant else "Name one of them."
    listed = f"{', '.join(names[:-1])} or {names[-1]}"
    raise UserError(f"the distribution of a length must be {listed}", shown(word), where, remedy)


def _whole(value: object, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise UserError("a length must be a whole number of tokens", shown(value), where, EXAMPLE)
    _check(value, LENGTH, where)
    return value


def _path(value: object, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise UserError("lengths of a file need its path", shown(value), where, f"Set {where}.")
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
