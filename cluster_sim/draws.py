"""Random columns of a workload: the draws of engine/streams.py, a whole column at a time.

A draw is a function of (seed, purpose, request, n) and of nothing else. A request therefore keeps its
lengths and its gap whatever the number of requests, the rate, or what else is drawn. A generator with a
state could not promise that.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cluster_sim.engine import streams
from cluster_sim.engine.kinds import Purpose

Floats = NDArray[np.float64]

_of_request: Any = streams.of_request  # from Python they are numpy expressions, so they take columns as well
_uniform: Any = streams.uniform


def uniforms(seed: int, purpose: Purpose, requests: int, n: int) -> Floats:
    """Draw n of the streams of requests 0 .. requests - 1: uniform on [0, 1), in steps of 2**-53."""
    with np.errstate(over="ignore"):  # arithmetic is modulo 2**64
        keys = _of_request(streams.of_purpose(np.uint64(seed), int(purpose)), np.arange(requests))
        drawn: Floats = _uniform(keys, n)
    return drawn


def exponentials(seed: int, purpose: Purpose, requests: int) -> Floats:
    """Exponential numbers with mean 1, one a request, by inversion: -ln(1 - u)."""
    return -np.log1p(-uniforms(seed, purpose, requests, 0))


def normals(seed: int, purpose: Purpose, requests: int) -> Floats:
    """Standard normal numbers, one a request, from two uniforms each (Box and Muller, 1958)."""
    radius = np.sqrt(2 * exponentials(seed, purpose, requests))
    return radius * np.cos(2 * np.pi * uniforms(seed, purpose, requests, 1))
