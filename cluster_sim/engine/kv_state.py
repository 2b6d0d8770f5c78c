"""The state of KV memory: blocks, who holds them, and where the free and the cached ones are found."""

from typing import NamedTuple

from cluster_sim.engine.tables import Flag, Grid, Int32, Int64, Ints, Longs, Table


class Block:
    """One block of KV memory. Written by block_pool.py, kv_cache_manager.py, outage.py."""

    key: Int64  # content id; private content: below NO_KEY; NO_KEY: not registered
    place: Int64  # in the free ring; NOT_FREE: none
    references: Int32  # requests that hold it
    next_copy: Int32  # registered later under the same key; -1: none
    is_mapped: Flag  # can be found through the slots


class Pool:
    """KV memory of one instance. Written by block_pool.py, kv_cache_manager.py, outage.py."""

    num_free: Int64  # conserved: num_free + blocks with a reference = num_gpu_blocks - 1
    front: Int64  # places in the free ring: its first entry, and behind its last
    back: Int64
    num_free_rows: Int64


class KvCache(NamedTuple):
    """Blocks of KV memory. Written by block_pool.py, kv_cache_manager.py, outage.py."""

    pools: Table[Pool]  # [instance] without prefix caching the only part that is kept
    blocks: Grid[Block]  # [instance, block]
    free_ring: Ints  # [instance, place modulo length] block numbers
    slots: Ints  # [instance, slot] open addressing: first registered block of a key; -1: empty
    block_table: Ints  # [instance, row, index] blocks of a request
    free_rows: Ints  # [instance, row] stack
    holders: Longs  # [content id, word] bits of the instances that hold it; written by prefix_index.py
