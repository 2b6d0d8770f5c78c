"""The free list, the prefix-cache map and the blocks of requests, against lists and dictionaries."""

from typing import Any

import numpy as np
import pytest
from engine_worlds import Asked, Scenario, Server, columns_of, play
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_sim.engine import block_pool, kv_cache_manager
from cluster_sim.engine.block_pool import NO_KEY, Cache, cache_of
from cluster_sim.engine.invariants import blocks_are_conserved, free_list_is_sound
from cluster_sim.world import new_world

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")  # hashes wrap around

NUM_BLOCKS = 9  # block 0 is never used
BLOCK_SIZE = 4


class Memory:
    """The memory of one instance, 8 usable blocks of 4 tokens, and what the scheduler does with it."""

    def __init__(self, *requests: Asked, **server: Any) -> None:
        settings = {"num_gpu_blocks": NUM_BLOCKS, "block_size": BLOCK_SIZE, "enable_prefix_caching": True}
        self.rules = Scenario(requests or (Asked(),), (Server(**settings | server),)).rules()
        self.world = new_world(self.rules)
        self.cache = cache_of(self.world.kv, 0)
        self.row = self.world.progress

    @property
    def num_free(self) -> int:
        return int(self.cache.pools[0].num_free)

    def admit(self, number: int, tokens: int, anything_runs: bool = False) -> bool:
        """Hold the first `tokens` of a waiting request; False: no room."""
        request = np.int64(number)  # private keys are negative: Python's own int would not wrap around
        tables = (self.cache, self.row, self.rules.workload, self.rules.batching[0], request)
        hit = kv_cache_manager.find_hit(*tables)
        fits = kv_cache_manager.admit(*tables, hit, tokens - hit, anything_runs)
        if fits:
            self.row[request].hit_tokens = hit
            lane = self.world.lanes[0]
            self.world.running[0, lane.num_running] = request
            lane.num_running += 1
        return bool(fits)

    def extend(self, number: int, new: int) -> bool:
        """Hold `new` tokens more than are computed."""
        tables = (self.cache, self.row, self.rules.workload, self.rules.batching[0])
        return bool(kv_cache_manager.extend(*tables, np.int64(number), new))

    def leave(self, request: int) -> None:
        """End a running request."""
        kv_cache_manager.free(self.cache, self.row[request], self.rules.batching[0])
        lane, running = self.world.lanes[0], self.world.running[0]
        kept = [int(other) for other in running[: lane.num_running] if other != request]
        running[: len(kept)] = kept
        lane.num_running = len(kept)

    def held(self, request: int) -> list[int]:
        row = self.row[request]
        return [int(number) for number in self.cache.block_table[row.block_row, : row.blocks]]

    def violations(self) -> list[str]:
        found = blocks_are_conserved(self.world, self.rules, 0)
        return found + free_list_is_sound(self.world, self.rules, 0)


class Model:
    """vLLM's BlockPool in plain Python: a free list, and for each key its copies in order of registration."""

    def __init__(self) -> None:
        self.free = list(range(1, NUM_BLOCKS))
        self.holders = [0] * NUM_BLOCKS
        self.key_of = [NO_KEY] * NUM_BLOCKS
        self.copies: dict[int, list[int]] = {}

    def take(self) -> int:
        number = self.free.pop(0)
        key, self.key_of[number] = self.key_of[number], NO_KEY
        if number in self.copies.get(key, []):
            self.copies[key].remove(number)
        self.holders[number] = 1
        return number

    def touch(self, number: int) -> None:
        if self.holders[number] == 0:
            self.free.remove(number)
        self.holders[number] += 1

    def release(self, number: int) -> None:
        self.holders[number] -= 1
        if self.holders[number] == 0:
            self.free.insert(0 if self.key_of[number] == NO_KEY else len(self.free), number)

    def register(self, number: int, key: int) -> None:
        self.key_of[number] = key
        self.copies.setdefault(key, []).append(number)

    def find(self, key: int) -> int:
        return (self.copies.get(key) or [-1])[0]


def free_list(cache: Cache) -> list[int]:
    """The ring without its stale entries."""
    pool, length = cache.pools[0], len(cache.free_ring)
    ring = [(place, int(cache.free_ring[place % length])) for place in range(pool.front, pool.back)]
    return [number for place, number in ring if cache.blocks[number].place == place]


@settings(max_examples=200)
@given(
    operations=st.lists(
        st.tuples(
            st.sampled_from(["take", "take", "touch", "release", "release", "register"]), st.integers(0, 1000)
        ),
        max_size=80,
    )
)
def test_any_operations_agree_with_a_list_and_a_dictionary(operations: list[tuple[str, int]]) -> None:
    """Keys are few, so that there are copies; the map has 32 slots, so that searches run into each other."""
    cache = Memory().cache
    model, keys = Model(), [np.int64(key) for key in (0, 1, 2, -2, -3, 10**12)]
    for operation, choice in operations:
        held = [number for number in range(1, NUM_BLOCKS) if model.holders[number]]
        known = [number for number in range(1, NUM_BLOCKS) if model.key_of[number] != NO_KEY]
        unkeyed = [number for number in held if model.key_of[number] == NO_KEY]
        if operation == "take" and model.free:
            assert block_pool.take(cache) == model.take()
        elif operation == "touch" and known:
            number = known[choice % len(known)]
            block_pool.touch(cache, number)
            model.touch(number)
        elif operation == "release" and held:
            number = held[choice % len(held)]
            block_pool.release(cache, number)
            model.release(number)
        elif operation == "register" and unkeyed:
            number, key = unkeyed[choice % len(unkeyed)], keys[choice % len(keys)]
            cache.blocks[number].key = key
            block_pool.map_block(cache, number)
            model.register(number, int(key))
        assert free_list(cache) == model.free
        assert cache.pools[0].num_free == len(model.free)
        assert [block_pool.find(cache, key) for key in keys] == [model.find(int(key)) for key in keys]


@settings(max_examples=50)
@given(keys=st.lists(st.integers(0, 10**15), unique=True, min_size=8, max_size=8), out=st.integers(0, 7))
def test_forgetting_one_key_loses_no_other(keys: list[int], out: int) -> None:
    """Keys that collide are moved back into the gap (Knuth, TAOCP 3, 6.4, algorithm R)."""
    cache = Memory().cache
    blocks = [int(block_pool.take(cache)) for _ in keys]
    for number, key in zip(blocks, keys, strict=True):
        cache.blocks[number].key = key
        block_pool.map_block(cache, number)
    block_pool.release(cache, blocks[out])
    assert block_pool.find(cache, np.int64(keys[out])) == blocks[out]
    assert block_pool.take(cache) == blocks[out]
    found = [int(block_pool.find(cache, np.int64(key))) for key in keys]
    assert found == [*blocks[:out], -1, *blocks[out + 1 :]]
    assert np.count_nonzero(cache.slots >= 0) == len(keys) - 1


def test_keys_are_evicted_in_the_order_in_which_their_blocks_were_freed() -> None:
    cache = Memory().cache
    blocks = [int(block_pool.take(cache)) for _ in range(8)]
    for number in blocks[:4]:
        cache.blocks[number].key = number
        block_pool.map_block(cache, number)
    for number in (blocks[2], blocks[5], blocks[0], blocks[4], blocks[3], blocks[1]):
        block_pool.release(cache, number)
    assert free_list(cache) == [blocks[4], blocks[5], blocks[2], blocks[0], blocks[3], blocks[1]]


def test_stale_entries_of_hits_never_fill_the_free_list() -> None:
    """One cached block, hit and freed again many times over, moves to the back each time."""
    cache = Memory().cache
    for key in (1, 2):
        cache.blocks[block_pool.take(cache)].key = key
    for number in (1, 2, *[1, 2, 2, 1] * 50):
        if cache.blocks[number].references == 0:
            block_pool.touch(cache, number)
        block_pool.release(cache, number)
        assert free_list(cache)[-1] == number
        assert sorted(free_list(cache))[-6:] == [3, 4, 5, 6, 7, 8]
    assert [int(block_pool.take(cache)) for _ in range(8)] == [3, 4, 5, 6, 7, 8, 2, 1]


# ---- the blocks of a request ----


@pytest.mark.parametrize("caching", [False, True])
def test_memory_short_changes_nothing(caching: bool) -> None:
    """Neither for a request that runs nor at admission, hit or no hit."""
    shared = (7, 7, 7)
    memory = Memory(
        Asked(prompt_tokens=13, content=shared),
        Asked(prompt_tokens=29, content=shared),
        enable_prefix_caching=caching,
    )
    assert memory.admit(0, 13)
    before = dict(columns_of(memory.world))
    assert not memory.admit(1, 29 + 16)
    assert not memory.extend(0, 33)
    after = dict(columns_of(memory.world))
    changed = {name for name in before if after[name] != before[name]}
    assert changed <= {"kv.block_table"}  # the hit was noted in a row that nobody holds


def test_a_request_holds_whole_blocks_for_its_tokens_and_the_lookahead() -> None:
    memory = Memory(Asked(prompt_tokens=9), num_speculative_tokens=3, lookahead_tokens=3)
    assert memory.admit(0, 9)
    assert memory.row[0].blocks == 3  # ceil((9 + 3) / 4)
    memory.row[0].computed_tokens = 9
    assert memory.extend(0, 1)
    assert memory.row[0].blocks == 4  # ceil((9 + 1 + 3) / 4)
    assert memory.violations() == []


def test_a_request_never_holds_more_than_max_model_len() -> None:
    memory = Memory(Asked(prompt_tokens=9), num_speculative_tokens=8, lookahead_tokens=8, max_model_len=12)
    assert memory.admit(0, 9)
    assert memory.row[0].blocks == 3


def test_an_equal_prompt_hits_all_full_blocks_but_computes_one_token() -> None:
    """At most floor((n - 1) / block_size) blocks (../shared/vllm-scheduler.md section 5)."""
    shared = (1, 1, 1, 1)
    memory = Memory(*[Asked(prompt_tokens=12, content=shared)] * 2)
    assert memory.admit(0, 12)
    assert memory.admit(1, 12)
    assert [int(row.hit_tokens) for row in memory.row] == [0, 8]
    assert memory.held(0)[:2] == memory.held(1)[:2]
    assert memory.held(0)[2] != memory.held(1)[2]
    assert memory.violations() == []


def test_the_tail_of_a_prefix_is_evicted_before_its_head() -> None:
    shared = Asked(prompt_tokens=17, content=(1, 1, 1, 1))
    memory = Memory(shared, Asked(prompt_tokens=21), shared)
    assert memory.admit(0, 17)
    memory.leave(0)
    assert memory.admit(1, 21)  # 6 of 8 blocks: 4 free ones without a key, 2 with
    memory.leave(1)
    assert memory.violations() == []
    assert memory.admit(2, 17)
    assert memory.row[2].hit_tokens == 8


def test_a_hit_block_that_nobody_holds_counts_as_needed() -> None:
    first, second = (Asked(prompt_tokens=tokens, content=(1, 1)) for tokens in (8, 12))
    memory = Memory(first, Asked(prompt_tokens=20), second)
    assert memory.admit(0, 8)
    memory.leave(0)
    assert memory.admit(1, 20)
    assert memory.num_free == 3  # two of them are the hit
    assert memory.admit(2, 12)
    assert memory.num_free == 0
    assert memory.violations() == []


def test_the_watermark_stays_free_only_while_something_runs() -> None:
    for anything_runs, fits in ((True, False), (False, True)):
        memory = Memory(Asked(prompt_tokens=28), watermark_blocks=2)
        assert memory.admit(0, 28, anything_runs) is fits


@pytest.mark.parametrize(("reserves", "fits"), [(True, False), (False, True)])
def test_the_whole_prompt_must_fit_at_admission_if_so_configured(reserves: bool, fits: bool) -> None:
    memory = Memory(Asked(prompt_tokens=20), Asked(prompt_tokens=20), scheduler_reserve_full_isl=reserves)
    assert memory.admit(0, 20)
    assert memory.admit(1, 8, anything_runs=True) is fits


def test_without_caching_only_the_number_of_free_blocks_is_kept() -> None:
    memory = Memory(Asked(prompt_tokens=13), enable_prefix_caching=False)
    assert memory.admit(0, 13)
    assert memory.num_free == 4
    memory.leave(0)
    assert memory.num_free == 8


@pytest.mark.parametrize("chance", [0.0, 1.0])
def test_the_last_token_of_a_request_has_no_kv_to_be_found(chance: float) -> None:
    """8 tokens known at the end, 7 computed, however many drafts overshoot: one block of 4 can be hit.

    ../shared/vllm-scheduler.md sections 5 and 6: on a trimmed finish computed = n - 1.
    """
    server = Server(block_size=4, enable_prefix_caching=True, num_speculative_tokens=3, lookahead_tokens=3)
    first = Asked(0.0, prompt_tokens=6, max_tokens=2, content=(1, 1))
    second = Asked(9.0, prompt_tokens=11, max_tokens=1, content=(1, 1))
    log = play(Scenario((first, second), (server,), conditional=(chance,) * 3).rules()).log
    assert log["emitted_tokens"].tolist() == [2, 1]
    assert log["accepted_tokens"][0] == 3 * chance
    assert log["cached_tokens"].tolist() == [0, 4]
