"""How far the tables of a bundle reach; beyond their last points they go on in a straight line."""

from typing import NamedTuple

from cluster_sim.bundle.format import Bundle


class Extent(NamedTuple):
    """The largest points at which the target was timed."""

    requests: int
    tokens: int  # of a step
    kv_tokens: int


def extent_of(bundle: Bundle) -> Extent:
    """That of a bundle."""
    decode, dense = bundle.tables["decode_attention"].axes, bundle.tables["dense"].axes
    return Extent(int(decode["requests"][-1]), int(dense["tokens"][-1]), int(decode["kv_tokens"][-1]))
