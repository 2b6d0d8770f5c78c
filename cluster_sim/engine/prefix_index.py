"""Which engine cores hold a content in their prefix cache: one look for all of them, for the router.

A bit for each engine core, in words of BITS, for each content id. Kept by block_pool.py wherever a content
is found for the first time or no longer: the bit of a core is set exactly while block_pool.find finds the id
there. Content ids count from 0 where there is an index. Without one (any policy but prefix_aware) it has no
rows.
"""

from cluster_sim.engine.jit import rare, rule
from cluster_sim.engine.tables import Longs

BITS = 63  # so that a word is never negative


@rule
def words_for(cores: int) -> int:
    """Words that have a bit for each of `cores` engine cores."""
    return (cores + BITS - 1) // BITS


@rare
def add(holders: Longs, key: int, core: int) -> None:
    """`core` holds the content `key` now; private content (below 0) is in no index."""
    if 0 <= key < holders.shape[0]:
        holders[key, core // BITS] |= 1 << (core % BITS)


@rare
def remove(holders: Longs, key: int, core: int) -> None:
    """`core` holds the content `key` no longer."""
    if 0 <= key < holders.shape[0]:
        holders[key, core // BITS] &= ~(1 << (core % BITS))


@rare
def forget(holders: Longs, core: int) -> None:
    """`core` holds nothing any more."""
    holders[:, core // BITS] &= ~(1 << (core % BITS))


@rare
def look(holders: Longs, keys: Longs, ranks: int, found: Longs) -> None:
    """Set `found` to the leading `keys` that each instance holds; of its `ranks` the one that holds most."""
    found[:] = 0
    for word in range(holders.shape[1]):
        left, place = -1, 0
        while left != 0 and place < keys.shape[0]:
            still = left & holders[keys[place], word]
            if place > 0 and still != left:
                give(left & ~still, word * BITS, ranks, place, found)
            left = still
            place += 1
        give(left, word * BITS, ranks, place, found)


@rule
def give(cores: int, first: int, ranks: int, hit: int, found: Longs) -> None:
    """`cores`, as bits from `first` on, hold the first `hit` keys."""
    core = first
    while cores > 0:
        if cores & 1 == 1:
            found[core // ranks] = max(found[core // ranks], hit)
        cores >>= 1
        core += 1
