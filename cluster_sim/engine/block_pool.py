"""Free blocks, their order, and which can be found again (vLLM: v1/core/block_pool.py).

The free list of one instance is a ring of block numbers, taken from the front. Freeing puts blocks without a
key in front and blocks with one at the back, so all without a key stand before all with one:

    front                                                        back
    [ no key ] [ no key ] .. [ key, freed first ] .. [ key, freed last ]

Taking a block forgets its key, so keys are evicted in the order in which their blocks were freed. A hit
takes a block out of the middle: its entry stays behind, stale, and is skipped later; `place` tells which
entry of a block counts. (In a linked list every step waits for memory; a ring is known beforehand.)

Keys are looked up by open addressing with linear probing; a slot holds the block that was registered
first under its key, later copies hang behind it. Blocks of private content (no other request can have it)
are registered by key but mapped only when their request is preempted, since nobody else asks for them:
traffic without sharing never touches the map.
"""

from typing import NamedTuple

import numpy as np

from cluster_sim.engine import prefix_index
from cluster_sim.engine.jit import rare, rule
from cluster_sim.engine.kv_state import Block, KvCache, Pool
from cluster_sim.engine.streams import mix
from cluster_sim.engine.tables import Ints, Longs, Table

NO_KEY = -1
NOT_FREE = np.iinfo(np.int64).min  # places count up from 0, and down from it


class Cache(NamedTuple):
    """KV memory of one instance: its rows of KvCache."""

    pools: Table[Pool]  # [instance]
    instance: int
    blocks: Table[Block]  # [block]
    free_ring: Ints  # [place modulo length]
    slots: Ints  # [slot]
    block_table: Ints  # [row, index]
    free_rows: Ints  # [row]
    holders: Longs  # [content id, word] of all instances


@rule
def cache_of(kv: KvCache, instance: int) -> Cache:
    """The KV memory of `instance`."""
    return Cache(
        kv.pools,
        instance,
        kv.blocks[instance],
        kv.free_ring[instance],
        kv.slots[instance],
        kv.block_table[instance],
        kv.free_rows[instance],
        kv.holders,
    )


@rule
def private_key(cache: Cache, request: int, index: int) -> int:
    """The key of block `index` of a request whose content nobody shares."""
    return NO_KEY - 1 - (request * cache.block_table.shape[1] + index)


@rule
def take(cache: Cache) -> int:
    """The block at the front of the free list, with one reference and no key; one must be free."""
    pool, last = cache.pools[cache.instance], cache.free_ring.shape[0] - 1
    number = cache.free_ring[pool.front & last]
    while cache.blocks[number].place != pool.front:
        pool.front += 1
        number = cache.free_ring[pool.front & last]
    pool.front += 1
    pool.num_free -= 1
    block = cache.blocks[number]
    if block.key != NO_KEY:
        if block.is_mapped:
            _unmap(cache, number)
        block.key = NO_KEY
    block.place = NOT_FREE
    block.references = 1
    return number


@rule
def touch(cache: Cache, number: int) -> None:
    """One more request holds the block; a free one leaves the free list with its key."""
    block = cache.blocks[number]
    if block.references == 0:
        cache.pools[cache.instance].num_free -= 1
        block.place = NOT_FREE
    block.references += 1


@rule
def release(cache: Cache, number: int) -> None:
    """One holder less; the last frees the block: to the front without a key, to the back with one."""
    block, pool = cache.blocks[number], cache.pools[cache.instance]
    last = cache.free_ring.shape[0] - 1
    block.references -= 1
    if block.references > 0:
        return
    if pool.back - pool.front > last:
        _drop_stale(cache)
    pool.num_free += 1
    if block.key == NO_KEY:
        pool.front -= 1
        block.place = pool.front
    else:
        block.place = pool.back
        pool.back += 1
    cache.free_ring[block.place & last] = number


@rare
def _drop_stale(cache: Cache) -> None:
    """Close up the ring, which stale entries have filled; rare, as each hit leaves one."""
    pool, last = cache.pools[cache.instance], cache.free_ring.shape[0] - 1
    back = pool.front
    for place in range(pool.front, pool.back):
        number = cache.free_ring[place & last]
        if cache.blocks[number].place == place:
            cache.free_ring[back & last] = number
            cache.blocks[number].place = back
            back += 1
    pool.back = back


@rule
def find(cache: Cache, key: int) -> int:
    """The block registered first under `key` that still exists; -1: none."""
    return cache.slots[_probe(cache, key)]


@rare
def map_block(cache: Cache, number: int) -> None:
    """Let `find` return the block for its key, after the copies that are there already."""
    block = cache.blocks[number]
    place = _probe(cache, block.key)
    block.is_mapped = True
    block.next_copy = -1
    copy = cache.slots[place]
    if copy < 0:
        cache.slots[place] = number
        prefix_index.add(cache.holders, block.key, cache.instance)
        return
    while cache.blocks[copy].next_copy >= 0:
        copy = cache.blocks[copy].next_copy
    cache.blocks[copy].next_copy = number


@rule
def _home(cache: Cache, key: int) -> int:
    """The slot at which the search for `key` starts."""
    place = mix(np.uint64(key)) & np.uint64(cache.slots.shape[0] - 1)
    return np.int64(place)  # type: ignore[return-value]  # numba keeps int(uint64) unsigned


@rule
def _probe(cache: Cache, key: int) -> int:
    """The slot that holds `key`, or the empty one where it would go."""
    last = cache.slots.shape[0] - 1
    place = _home(cache, key)
    while cache.slots[place] >= 0 and cache.blocks[cache.slots[place]].key != key:
        place = (place + 1) & last
    return place


@rare
def _unmap(cache: Cache, number: int) -> None:
    """Forget the block; the next copy of its key takes its place."""
    block = cache.blocks[number]
    block.is_mapped = False
    place = _probe(cache, block.key)
    copy = cache.slots[place]
    if copy != number:
        while cache.blocks[copy].next_copy != number:
            copy = cache.blocks[copy].next_copy
        cache.blocks[copy].next_copy = block.next_copy
    elif block.next_copy >= 0:
        cache.slots[place] = block.next_copy
    else:
        prefix_index.remove(cache.holders, block.key, cache.instance)
        _close_gap(cache, place)


@rare
def _close_gap(cache: Cache, gap: int) -> None:
    """Empty slot `gap`, and move back what was pushed past it (Knuth, TAOCP 3, 6.4, algorithm R)."""
    last = cache.slots.shape[0] - 1
    place = (gap + 1) & last
    while cache.slots[place] >= 0:
        home = _home(cache, cache.blocks[cache.slots[place]].key)
        if ((place - home) & last) >= ((place - gap) & last):
            cache.slots[gap] = cache.slots[place]
            gap = place
        place = (place + 1) & last
    cache.slots[gap] = -1
