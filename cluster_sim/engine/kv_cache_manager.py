"""KV memory of requests: whole blocks (vLLM: v1/core/kv_cache_manager.py).

They are taken before a step and given back at the end. Conserved on every instance: free blocks + blocks with
a reference = num_gpu_blocks - 1. A call that does not fit changes nothing.

    | computed | hit | new | lookahead |    blocks held: ceil(all / block_size), at most max_model_len
    | registered in the prefix cache |      at once, up to what is known: the step has not run yet
"""

from cluster_sim.engine import block_pool
from cluster_sim.engine.block_pool import Cache
from cluster_sim.engine.jit import rare, rule
from cluster_sim.engine.kinds import RequestStatus
from cluster_sim.engine.rules import Batching, Workload
from cluster_sim.engine.state import Progress
from cluster_sim.engine.tables import Table

PREEMPTED = int(RequestStatus.preempted)


@rule
def ceil_blocks(tokens: int, block_size: int) -> int:
    """Blocks that `tokens` fill or begin."""
    return (tokens + block_size - 1) // block_size


@rule
def extend(
    cache: Cache, progress: Table[Progress], workload: Workload, batching: Batching, request: int, new: int
) -> bool:
    """Hold `new` tokens more, and the lookahead (vLLM: allocate_slots); False: memory is short."""
    row = progress[request]
    slots = min(row.computed_tokens + new + batching.lookahead_tokens, batching.max_model_len)
    if slots > row.blocks * batching.block_size:
        missing = ceil_blocks(slots, batching.block_size) - row.blocks
        if missing > cache.pools[cache.instance].num_free:
            return False
        _take_blocks(cache, row, batching, missing)
    if batching.enable_prefix_caching:
        register(cache, progress, workload, batching, request, row.computed_tokens + new)
    return True


@rare
def find_hit(
    cache: Cache, progress: Table[Progress], workload: Workload, batching: Batching, request: int
) -> int:
    """Tokens that the prefix cache holds (get_computed_blocks); their blocks wait in the next free row."""
    if not batching.enable_prefix_caching:
        return 0
    if workload.requests[request].content_blocks == 0 and progress[request].status != PREEMPTED:
        return 0
    known = progress[request].known_tokens
    longest = min(known - 1, known - batching.hash_lookahead_tokens) // batching.block_size
    row = cache.free_rows[cache.pools[cache.instance].num_free_rows - 1]
    hit = 0
    while hit < longest:
        block = block_pool.find(cache, _key(cache, workload, request, hit))
        if block < 0:
            break
        cache.block_table[row, hit] = block
        hit += 1
    if batching.drops_last_hit_block and hit > 0:
        hit -= 1
    return hit * batching.block_size


@rule
def admit(
    cache: Cache,
    progress: Table[Progress],
    workload: Workload,
    batching: Batching,
    request: int,
    hit: int,
    new: int,
    anything_runs: bool,
) -> bool:
    """Give a waiting request its first blocks (allocate_slots at admission); False: it does not fit.

    Hit blocks that nobody holds leave the free list too, so they count as needed.
    """
    hit_blocks = hit // batching.block_size
    pool = cache.pools[cache.instance]
    table_row = cache.free_rows[pool.num_free_rows - 1]
    available = pool.num_free
    for index in range(hit_blocks):
        if cache.blocks[cache.block_table[table_row, index]].references == 0:
            available -= 1
    if anything_runs:
        available -= batching.watermark_blocks
    row = progress[request]
    if batching.scheduler_reserve_full_isl:
        whole = min(row.known_tokens, batching.max_model_len)
        if max(0, ceil_blocks(whole, batching.block_size) - hit_blocks) > available:
            return False
    slots = min(hit + new + batching.lookahead_tokens, batching.max_model_len)
    missing = max(0, ceil_blocks(slots, batching.block_size) - hit_blocks)
    if missing > available:
        return False
    pool.num_free_rows -= 1
    row.block_row = table_row
    for index in range(hit_blocks):
        block_pool.touch(cache, cache.block_table[table_row, index])
    row.blocks = hit_blocks
    row.registered_blocks = hit_blocks
    _take_blocks(cache, row, batching, missing)
    if batching.enable_prefix_caching:
        register(cache, progress, workload, batching, request, hit + new)
    return True


@rule
def register(
    cache: Cache, progress: Table[Progress], workload: Workload, batching: Batching, request: int, tokens: int
) -> None:
    """Put the full blocks among the first `tokens` into the prefix cache (vLLM: cache_blocks)."""
    row = progress[request]
    keyed = min(tokens, row.known_tokens - batching.hash_lookahead_tokens)
    if keyed < (row.registered_blocks + 1) * batching.block_size:
        return
    full = keyed // batching.block_size
    shared = workload.requests[request].content_blocks
    for index in range(row.registered_blocks, full):
        block = cache.block_table[row.block_row, index]
        cache.blocks[block].key = _key(cache, workload, request, index)
        if index < shared:
            block_pool.map_block(cache, block)
    row.registered_blocks = full


@rare
def map_private_blocks(cache: Cache, progress: Table[Progress], workload: Workload, request: int) -> None:
    """Let a request that is about to be preempted find its own registered blocks again."""
    row = progress[request]
    for index in range(workload.requests[request].content_blocks, row.registered_blocks):
        block = cache.block_table[row.block_row, index]
        if not cache.blocks[block].is_mapped:
            block_pool.map_block(cache, block)


@rule
def free(cache: Cache, row: Progress, batching: Batching) -> None:
    """Give all blocks back, last one first, so that the tail of a prefix is evicted before its head."""
    if row.block_row < 0:
        return
    pool = cache.pools[cache.instance]
    if batching.enable_prefix_caching:
        for index in range(row.blocks - 1, -1, -1):
            block_pool.release(cache, cache.block_table[row.block_row, index])
    else:
        pool.num_free += row.blocks
    cache.free_rows[pool.num_free_rows] = row.block_row
    pool.num_free_rows += 1
    row.block_row = -1
    row.blocks = 0
    row.registered_blocks = 0


@rule
def _take_blocks(cache: Cache, row: Progress, batching: Batching, missing: int) -> None:
    held = row.blocks
    row.blocks = held + missing
    if batching.enable_prefix_caching:
        for index in range(held, held + missing):
            cache.block_table[row.block_row, index] = block_pool.take(cache)
    else:
        cache.pools[cache.instance].num_free -= missing


@rule
def _key(cache: Cache, workload: Workload, request: int, index: int) -> int:
    """The prefix-cache key of block `index`: its content id if the workload gives one, else a private key."""
    row = workload.requests[request]
    if index < row.content_blocks:
        return workload.content_ids[row.content_start + index]
    return block_pool.private_key(cache, request, index)
