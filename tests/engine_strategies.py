"""Hypothesis strategies that draw small worlds, and how to vary and cut them.

Times are multiples of powers of two, so that sums of them are exact and ties happen.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

from engine_worlds import Asked, Scenario, Server
from hypothesis import strategies as st

from cluster_sim.engine.kinds import RouterPolicy

GRAIN_S = 0.25  # of arrivals and aborts


@st.composite
def servers_for(draw: st.DrawFn, requests: Sequence[Asked], drafts: int) -> Server:
    """Any server on which each of `requests` can run alone, with memory for little more than that."""
    longest = max(asked.prompt_tokens + asked.max_tokens for asked in requests)
    slots = draw(st.sampled_from([0, 0, 0, 1, drafts]))
    seats = draw(st.sampled_from([8, 4, 4, 2, 1]))
    chunked = draw(st.sampled_from([True, True, False]))
    whole = slots + (1 if chunked else longest) + drafts
    scheduled = whole + draw(st.sampled_from([60, 60, 20, 5, 0]))
    caches = draw(st.booleans())
    lookahead = draw(st.sampled_from([drafts, drafts, 0, drafts + 1])) if drafts else 0
    keys, drops = (
        draw(st.sampled_from([(0, False), (1, False), (0, True)])) if drafts and caches else (0, False)
    )
    block_size = draw(st.sampled_from([4, 2, 1, 8]))
    alone = -(-(longest + 2 * (drafts + 1) + lookahead) // block_size)
    return Server(
        max_num_seqs=seats,
        max_num_active_seqs=draw(st.sampled_from([seats, seats, max(1, seats // 2)])),
        max_num_batched_tokens=max(seats, scheduled + draw(st.sampled_from([0, 0, 8]))),
        max_num_scheduled_tokens=scheduled,
        max_model_len=max(asked.prompt_tokens for asked in requests) + draw(st.integers(1, 40)),
        block_size=block_size,
        num_gpu_blocks=1 + alone + draw(st.sampled_from([3, 0, 8, 1, 30])),
        watermark_blocks=draw(st.integers(0, 2)),
        lookahead_tokens=lookahead,
        hash_lookahead_tokens=keys,
        long_prefill_token_threshold=draw(st.sampled_from([0, 0, 2, 5])),
        prefill_schedule_interval=draw(st.sampled_from([1, 1, 2, 4])),
        is_async=draw(st.sampled_from([True, False])),
        is_priority=draw(st.booleans()),
        long_prefill_token_threshold_adaptive=draw(st.booleans()),
        enable_chunked_prefill=chunked,
        enable_prefix_caching=caches,
        drops_last_hit_block=drops,
        scheduler_reserve_full_isl=draw(st.booleans()),
        num_speculative_tokens=drafts,
        slots_per_request=slots,
        may_skip=draw(st.booleans()),
        schedule=draw(st.one_of(st.just(()), st.tuples(*[st.integers(0, drafts)] * seats))) if drafts else (),
        step_s=draw(st.sampled_from([0.25, 0.5, 1.0])),
        token_s=draw(st.sampled_from([0.0, 2.0**-7])),
        host_s=draw(st.sampled_from([0.0, 0.125, 0.75])),
        draft_s=draw(st.sampled_from([0.0, 0.125])),
    )


@st.composite
def requests_of(draw: st.DrawFn, may_abort: bool = True) -> tuple[Asked, ...]:
    """Up to ten requests; some share beginnings, stop early, give up or were refused."""
    last_grain = draw(st.sampled_from([2, 8, 32]))
    asked = st.builds(
        Asked,
        arrival_s=st.integers(0, last_grain).map(lambda grains: grains * GRAIN_S),
        prompt_tokens=st.integers(1, 24),
        max_tokens=st.integers(1, 16).map(lambda tokens: 17 - tokens),
        stop_at=st.sampled_from([0, 0, 0, 1, 3, 9]),
        priority=st.integers(0, 2),
        content=st.sampled_from([0, 1, 3, 10]).flatmap(
            lambda blocks: st.tuples(*[st.sampled_from([0, 0, 1])] * blocks)
        ),
        proposals=st.one_of(st.just(()), st.lists(st.integers(0, 4), min_size=1, max_size=3).map(tuple)),
        is_rejected=st.sampled_from([False] * 9 + [True]),
    )
    number = draw(st.sampled_from([10, 6, 3, 1]))
    requests = draw(st.lists(asked, min_size=number, max_size=number))
    if may_abort and draw(st.booleans()):
        patience_s = draw(st.lists(st.integers(0, 40), min_size=len(requests), max_size=len(requests)))
        requests = [
            replace(one, abort_s=one.arrival_s + grains * GRAIN_S)
            for one, grains in zip(requests, patience_s, strict=True)
        ]
    return tuple(sorted(requests, key=lambda one: one.arrival_s))


@st.composite
def scenarios(draw: st.DrawFn, may_abort: bool = True) -> Scenario:
    """Any small world."""
    requests = draw(requests_of(may_abort))
    drafts = st.sampled_from([0, 1, 3])
    return Scenario(
        requests,
        tuple(draw(servers_for(requests, draw(drafts))) for _ in range(draw(st.sampled_from([1, 1, 3])))),
        conditional=draw(st.tuples(*[st.sampled_from([0.0, 0.5, 0.8, 1.0])] * 3)),
        policy=draw(st.sampled_from(RouterPolicy)),
        signal_interval_s=draw(st.sampled_from([0.0, 0.5, 2.0])),
        seed=draw(st.integers(0, 2**32)),
        replicas=draw(st.sampled_from([1, 1, 2, 3])),
    )


@st.composite
def groups(draw: st.DrawFn, may_abort: bool = True) -> Scenario:
    """Any small world of instances whose ranks step together."""
    alone = draw(scenarios(may_abort))
    ranks, instances = draw(st.sampled_from([2, 2, 3, 1])), draw(st.sampled_from([1, 1, 2]))
    return replace(alone, servers=alone.servers[:1] * ranks * instances, ranks=ranks, in_lockstep=True)


def in_four_ways(scenario: Scenario) -> Iterator[Scenario]:
    """As drawn, with the other scheduling policy, with the other queue depth, and with both."""
    for flips_policy, flips_depth in product((False, True), repeat=2):
        servers = (
            replace(
                server,
                is_priority=server.is_priority != flips_policy,
                is_async=server.is_async != flips_depth,
            )
            for server in scenario.servers
        )
        yield replace(scenario, servers=tuple(servers))


def stops_of(scenario: Scenario) -> st.SearchStrategy[list[float]]:
    """Moments at which a run may be cut without changing it (loop.run_until)."""
    needs_signals = scenario.policy != RouterPolicy.round_robin or scenario.ranks > 1
    grain_s = scenario.signal_interval_s if needs_signals else 0.0
    most = int(60 / grain_s) if grain_s else 240
    unit_s = grain_s or GRAIN_S
    return st.lists(st.integers(0, most), max_size=8).map(lambda grains: [g * unit_s for g in sorted(grains)])
