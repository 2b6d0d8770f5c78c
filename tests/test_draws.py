"""Random columns: SplitMix64, the same as in the engine, uniform and independent.

Statistical tests have fixed seeds; each states how often a right implementation would fail at others.
"""

import math

import kolmogorov
import numpy as np

from cluster_sim import draws
from cluster_sim.engine import streams
from cluster_sim.engine.kinds import Purpose


def test_draws_are_those_of_splitmix64() -> None:
    """The first outputs of the reference generator with seed 1234567 (prng.di.unimi.it/splitmix64.c)."""
    states = np.uint64(1234567) + streams.GOLDEN_GAMMA * np.arange(1, 6, dtype=np.uint64)
    assert streams.mix(states).tolist() == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


def test_columns_are_the_draws_of_the_engine() -> None:
    with np.errstate(over="ignore"):
        key = streams.of_purpose(np.uint64(2**63 - 1), int(Purpose.prompt_tokens))
        one_by_one = [streams.uniform(streams.of_request(key, request), 5) for request in range(4)]
    assert draws.uniforms(2**63 - 1, Purpose.prompt_tokens, 4, 5).tolist() == one_by_one


def test_uniforms_are_uniform_and_independent_of_one_another() -> None:
    """KS: false alarm 1e-6 each. Correlations of 3 pairs within 5 standard errors: false alarm 2e-6."""
    requests = 20_000
    first = draws.uniforms(3, Purpose.arrivals, requests, 0)
    others = [
        draws.uniforms(3, Purpose.arrivals, requests, 1),
        draws.uniforms(3, Purpose.prompt_tokens, requests, 0),
        draws.uniforms(4, Purpose.arrivals, requests, 0),
    ]
    for sample in (first, *others):
        assert kolmogorov.distance(sample, lambda value: value) < kolmogorov.LIMIT
    for other in others:
        assert abs(np.corrcoef(first, other)[0, 1]) < 5 / math.sqrt(requests)
