"""Prometheus' text format 0.0.4: families of counters, gauges and histograms.

Conserved: buckets are cumulative and the last one, +Inf, is the count.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from cluster_sim.engine.tables import Floats

Labels = Mapping[str, str]


class Histogram(NamedTuple):
    """Observations of one engine, counted at most each bound; +Inf is the count."""

    bounds: Sequence[float]
    at_most: Sequence[int]
    observations: int
    total: float


def observed(values: Floats, bounds: Sequence[float]) -> Histogram:
    """The histogram of `values`."""
    at_most = np.searchsorted(np.sort(values), bounds, side="right")
    return Histogram(bounds, at_most.tolist(), len(values), float(values.sum()))


def family(name: str, kind: str, words: str, samples: Sequence[tuple[Labels, float]]) -> list[str]:
    """The lines of a counter or a gauge; `name` is that of its samples."""
    return [*_head(name, kind, words), *(_sample(name, labels, value) for labels, value in samples)]


def histogram_family(name: str, words: str, samples: Sequence[tuple[Labels, Histogram]]) -> list[str]:
    """The lines of a histogram."""
    lines = _head(name, "histogram", words)
    for labels, one in samples:
        bounds = [*(repr(float(bound)) for bound in one.bounds), "+Inf"]
        for bound, count in zip(bounds, [*one.at_most, one.observations], strict=True):
            lines.append(_sample(f"{name}_bucket", {**labels, "le": bound}, count))
        lines.append(_sample(f"{name}_count", labels, one.observations))
        lines.append(_sample(f"{name}_sum", labels, one.total))
    return lines


def _head(name: str, kind: str, words: str) -> list[str]:
    return [f"# HELP {name} {words}", f"# TYPE {name} {kind}"]


def _sample(name: str, labels: Labels, value: float) -> str:
    pairs = ",".join(f'{key}="{_escaped(labels[key])}"' for key in sorted(labels))
    return f"{name}{{{pairs}}} {float(value)!r}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
