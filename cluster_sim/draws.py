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
Longs = NDArray[np.int64]

_of_request: Any = streams.of_request  # from Python they are numpy expressions, so they take columns as well
_uniform: Any = streams.uniform


def uniforms(seed: int, purpose: Purpose, requests: int, n: int) -> Floats:
    """Draw n of the streams of requests 0 .. requests - 1: uniform on [0, 1), in steps of 2**-53."""
    return uniforms_of(seed, purpose, np.arange(requests), n)


def uniforms_of(seed: int, purpose: Purpose, requests: Longs, n: int | Longs) -> Floats:
    """Draw n of the streams of the given `requests`; n may be one for each."""
    with np.errstate(over="ignore"):  # arithmetic is modulo 2**64
        keys = _of_request(streams.of_purpose(np.uint64(seed), int(purpose)), requests)
        drawn: Floats = _uniform(keys, n)
    return drawn


def exponentials(seed: int, purpose: Purpose, requests: int) -> Floats:
    """Exponential numbers with mean 1, one a request, by inversion: -ln(1 - u)."""
    return -np.log1p(-uniforms(seed, purpose, requests, 0))


def normals_of(seed: int, purpose: Purpose, requests: Longs, n: int | Longs) -> Floats:
    """Standard normal numbers, from draws n and n + 1 of each request's stream (Box and Muller, 1958)."""
    radius = np.sqrt(2 * -np.log1p(-uniforms_of(seed, purpose, requests, n)))
    return np.asarray(radius * np.cos(2 * np.pi * uniforms_of(seed, purpose, requests, n + 1)))


def gammas(seed: int, purpose: Purpose, requests: int, shape: float) -> Floats:
    """Gamma numbers with this shape and scale 1, one a request (Marsaglia and Tsang, TOMS 26, 2000).

    Of each proposal the normal number takes two draws and its trial one, from draw 1 on. A shape below 1 is
    raised by 1, and the result multiplied by draw 0 to the power 1 / shape.
    """
    raised = shape if shape >= 1.0 else shape + 1.0
    offset = raised - 1.0 / 3.0
    drawn, missing, n = np.empty(requests), np.arange(requests), 1
    while len(missing):
        normal, trial = normals_of(seed, purpose, missing, n), uniforms_of(seed, purpose, missing, n + 2)
        cube = (1.0 + normal / np.sqrt(9.0 * offset)) ** 3
        positive = np.where(cube > 0.0, cube, 1.0)
        limit = 0.5 * normal**2 + offset * (1.0 - positive + np.log(positive))
        accepted = (cube > 0.0) & (np.log1p(-trial) < limit)
        drawn[missing[accepted]] = offset * cube[accepted]
        missing, n = missing[~accepted], n + 3
    if shape >= 1.0:
        return drawn
    return np.asarray(drawn * (1.0 - uniforms(seed, purpose, requests, 0)) ** (1.0 / shape))
