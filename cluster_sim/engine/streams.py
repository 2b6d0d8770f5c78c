"""Randomness as a function of (seed, purpose, request, n), never of call order.

A draw is the SplitMix64 finaliser (Steele, Lea, Flood: "Fast splittable pseudorandom number generators",
OOPSLA 2014) over a key of the request plus n times the golden gamma. The same request therefore has the same
luck whatever the schedule, router, batch or machine.
"""

import numpy as np

from cluster_sim.engine.jit import rule

GOLDEN_GAMMA = np.uint64(0x9E3779B97F4A7C15)
MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
MIX_2 = np.uint64(0x94D049BB133111EB)
TO_UNIT = 2.0**-53


@rule
def mix(z: np.uint64) -> np.uint64:
    """SplitMix64's finaliser: a bijection of 64 bits in which every input bit moves every output bit."""
    z = (z ^ (z >> np.uint64(30))) * MIX_1
    z = (z ^ (z >> np.uint64(27))) * MIX_2
    return z ^ (z >> np.uint64(31))


@rule
def of_purpose(seed: np.uint64, purpose: int) -> np.uint64:
    """The key of all streams for one purpose."""
    return mix(seed + GOLDEN_GAMMA * np.uint64(purpose))


@rule
def of_request(key: np.uint64, request: int) -> np.uint64:
    """The key of one request's stream, from that of its purpose."""
    return mix(key + GOLDEN_GAMMA * np.uint64(request + 1))


@rule
def uniform(key: np.uint64, n: int) -> float:
    """Draw n of a request's stream: uniform on [0, 1), in steps of 2**-53."""
    return (mix(key + GOLDEN_GAMMA * np.uint64(n + 1)) >> np.uint64(11)) * TO_UNIT
