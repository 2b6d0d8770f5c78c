"""Classes of drawn requests: which request is of which, and its lengths.

A request's class is a draw of its own stream (of a conversation's, whose turns are all alike). Its lengths
come from the same draws whatever its class: two classes differ by their distributions alone. Classes are
numbered in the order of their names, so that nothing depends on the order in which they are written.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cluster_sim import draws
from cluster_sim.config import ClassConfig, WorkloadConfig
from cluster_sim.engine.kinds import Purpose
from cluster_sim.errors import UserError
from cluster_sim.lengths import Streams, draw_lengths, parse_lengths
from cluster_sim.traces.rows import DEFAULT_CLASS

Longs = NDArray[np.int64]


@dataclass(frozen=True)
class Asked:
    """What each request is and wants; lengths without what its conversation or a system prompt adds."""

    names: tuple[str, ...]
    workload_class: Longs  # [request] index into names
    priority: Longs  # [request] lower first
    prompt_tokens: Longs  # [request]
    output_tokens: Longs  # [request]


def draw_classes(config: WorkloadConfig, seed: int, streams: Streams) -> Asked:
    """Class, priority and lengths of every request.

    Raises:
        UserError: a length is missing or not sound.
    """
    classes = config.classes or {}
    names = tuple(sorted(classes)) or (DEFAULT_CLASS,)
    numbers = _numbers([classes[name].share or 0.0 for name in names if name in classes], seed, streams)
    priorities = np.array([classes[name].priority if name in classes else 0 for name in names])
    return Asked(
        names=names,
        workload_class=numbers,
        priority=priorities[numbers].astype(np.int64),
        prompt_tokens=_lengths(config, "prompt_tokens", Purpose.prompt_tokens, seed, streams, numbers),
        output_tokens=_lengths(config, "output_tokens", Purpose.output_tokens, seed, streams, numbers),
    )


def _numbers(shares: list[float], seed: int, streams: Streams) -> Longs:
    """Classes by their shares, which add up to 1 but for rounding."""
    if len(shares) < 2:  # noqa: PLR2004  there is no choice
        return np.zeros(len(streams.request), np.int64)
    uniforms = draws.uniforms_of(seed, Purpose.workload_class, streams.request, 0)
    edges = np.cumsum(shares) / sum(shares)
    return np.minimum(np.searchsorted(edges, uniforms, side="right"), len(shares) - 1)


def _lengths(  # noqa: PLR0913, PLR0917  which lengths, whose draws, of which classes
    config: WorkloadConfig, name: str, purpose: Purpose, seed: int, streams: Streams, numbers: Longs
) -> Longs:
    tokens = np.empty(len(numbers), np.int64)
    for number, (key, value) in enumerate(_wanted(config, name)):
        members = np.flatnonzero(numbers == number)
        mine = Streams(streams.request[members], streams.turn[members])
        tokens[members] = draw_lengths(parse_lengths(value, key), seed, purpose, mine)
    return tokens


def _wanted(config: WorkloadConfig, name: str) -> list[tuple[str, Any]]:
    """Where the lengths of each class are given, and what stands there."""
    common = (f"workload.{name}", getattr(config, name))
    classes = config.classes or {DEFAULT_CLASS: ClassConfig()}
    wanted = []
    for label in sorted(classes):
        own = getattr(classes[label], name)
        key, value = common if own is None else (f"workload.classes.{label}.{name}", own)
        if value is None:
            remedy = "Set it, or give workload.trace."
            raise UserError("traffic without a trace needs this value", "null", key, remedy)
        wanted.append((key, value))
    return wanted
