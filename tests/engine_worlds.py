"""Worlds for tests of the engine: a few words in, Rules out."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import accumulate
from typing import Any

import numpy as np

from cluster_sim.engine import loop, streams
from cluster_sim.engine.kinds import LuckKind, Part, Purpose, RouterPolicy, SchedulingPolicy, Status
from cluster_sim.engine.rules import (
    Batching,
    Drafting,
    Fate,
    Luck,
    Request,
    Routing,
    Rules,
    StepTime,
    Workload,
)
from cluster_sim.engine.state import World
from cluster_sim.engine.tables import Floats, Longs, Table
from cluster_sim.world import empty_table, new_world


@dataclass(frozen=True)
class Asked:
    """One request."""

    arrival_s: float = 0.0
    prompt_tokens: int = 8
    max_tokens: int = 4
    stop_at: int = 0
    priority: int = 0
    workload_class: int = 0
    abort_s: float = math.inf
    content: tuple[int, ...] = ()  # a word for each block; equal words from the start on: equal content
    proposals: tuple[int, ...] = ()
    is_rejected: bool = False


@dataclass(frozen=True)
class Server:
    """One instance: vLLM's settings, its speculation, and how long its steps take."""

    max_num_seqs: int = 4
    max_num_active_seqs: int | None = None
    max_num_batched_tokens: int = 64
    max_num_scheduled_tokens: int | None = None
    max_model_len: int = 4096
    block_size: int = 4
    num_gpu_blocks: int = 1000
    watermark_blocks: int = 0
    lookahead_tokens: int = 0
    hash_lookahead_tokens: int = 0
    prefill_lookahead_tokens: int = 0
    long_prefill_token_threshold: int = 0
    prefill_schedule_interval: int = 1
    is_async: bool = False
    is_priority: bool = False
    long_prefill_token_threshold_adaptive: bool = False
    enable_chunked_prefill: bool = True
    enable_prefix_caching: bool = False
    drops_last_hit_block: bool = False
    scheduler_reserve_full_isl: bool = True
    num_speculative_tokens: int = 0
    slots_per_request: int = 0
    may_skip: bool = False
    schedule: tuple[int, ...] = ()  # draft length at 1, 2, .. requests; none: always num_speculative_tokens
    step_s: float = 0.5
    token_s: float = 2.0**-7
    host_s: float = 0.0
    draft_s: float = 0.0  # each pass of the drafter


SAME_NAME = {field.name for field in fields(Server) if field.default is not None} & set(
    Batching.__annotations__
)


@dataclass(frozen=True)
class Scenario:
    """A whole world in words; `rules` makes the tables. Its repr is a test case."""

    requests: tuple[Asked, ...]
    servers: tuple[Server, ...] = (Server(),)
    conditional: tuple[float, ...] = ()  # of each position; whatever the draft length
    policy: RouterPolicy = RouterPolicy.round_robin
    signal_interval_s: float = 0.0
    seed: int = 1
    ranks: int = 1  # servers in an instance
    in_lockstep: bool = False
    replicas: int = 1  # of the router

    def rules(self) -> Rules:
        workload, drafts = workload_of(self.requests), longest_draft(self.servers)
        luck = luck_of(workload, same_for_every_length(self.conditional, drafts), self.seed)
        proposals = [length for asked in self.requests for length in asked.proposals]
        servers, interval_s = len(self.servers), self.signal_interval_s
        routing = routing_of(self.policy, servers, self.ranks, interval_s, self.seed)
        rules = rules_of(
            workload,
            self.servers,
            luck._replace(fates=fates_of(self.requests), proposals=np.array(proposals, np.int32)),
            routing._replace(replicas=self.replicas),
        )
        return (
            rules._replace(lockstep=lockstep_of(len(self.servers), self.ranks)) if self.in_lockstep else rules
        )


def routing_of(
    policy: RouterPolicy, servers: int, ranks: int = 1, signal_interval_s: float = 0.0, seed: int = 1
) -> Routing:
    """One router, equal weights, and every instance for every one of three classes."""
    instances = servers // ranks
    return Routing(
        int(policy),
        ranks,
        1,
        float(signal_interval_s),
        np.uint64(seed),
        1.0,
        np.ones(instances),
        np.arange(4) * instances,
        np.tile(np.arange(instances), 3),
        int(Part.whole),
    )


def lockstep_of(servers: int, ranks: int) -> Longs:
    """Every `ranks` neighbours step together."""
    together = np.zeros(servers, np.int64)
    together[::ranks] = ranks
    return together


def longest_draft(servers: Iterable[Server]) -> int:
    """The largest num_speculative_tokens."""
    return max(server.num_speculative_tokens for server in servers)


def same_for_every_length(conditional: Sequence[float], drafts: int) -> Floats:
    """Conditional acceptance [class, draft length, position] of one class, the same at every draft length."""
    table = np.zeros((1, drafts + 1, max(drafts, 1)))
    for length in range(1, drafts + 1):
        table[0, length, :length] = (*conditional, *[0.0] * drafts)[:length]
    return table


def conditional_of(marginals: Sequence[float]) -> list[float]:
    """c_i = m_i / m_(i-1) (../shared/spec-decode-facts.md section D1)."""
    before = [1.0, *marginals[:-1]]
    return [m / b for m, b in zip(marginals, before, strict=True)]


def workload_of(requests: Sequence[Asked]) -> Workload:
    """The columns of requests, and one content id for each different beginning of `content`."""
    known: dict[tuple[int, ...], int] = {}
    ids = [
        known.setdefault(beginning, len(known))
        for asked in requests
        for beginning in accumulate(((word,) for word in asked.content), lambda one, two: one + two)
    ]
    lengths = [len(asked.content) for asked in requests]
    names = (
        "arrival_s",
        "abort_s",
        "prompt_tokens",
        "max_tokens",
        "priority",
        "workload_class",
        "is_rejected",
    )
    table: Table[Request] = empty_table(
        Request,
        len(requests),
        content_start=np.cumsum(lengths) - lengths,
        content_blocks=lengths,
        session=np.arange(len(requests)),
        **{name: [getattr(asked, name) for asked in requests] for name in names},
    )
    return Workload(table, np.array(ids, np.int64), any(math.isfinite(asked.abort_s) for asked in requests))


def fates_of(requests: Sequence[Asked]) -> Table[Fate]:
    """Stop tokens and the numbers of drafts proposed."""
    counts = [len(asked.proposals) for asked in requests]
    table: Table[Fate] = empty_table(
        Fate,
        len(requests),
        proposal_start=np.cumsum(counts) - counts,
        num_proposals=counts,
        stop_at=[asked.stop_at for asked in requests],
    )
    return table


def plain_workload(num_requests: int, **columns: Any) -> Workload:
    """Many requests from columns; nobody gives up or shares anything."""
    return Workload(
        empty_table(Request, num_requests, **{"abort_s": np.inf} | columns), np.zeros(0, np.int64), False
    )


def luck_of(workload: Workload, conditional: Floats, seed: int = 1) -> Luck:
    """Acceptance from a profile; nobody stops early, and K drafts are proposed wherever K are wanted."""
    with np.errstate(over="ignore"):
        key = streams.of_purpose(np.uint64(seed), int(Purpose.acceptance))
    fates, none = empty_table(Fate, workload.requests.shape[0]), np.zeros(0, np.int32)
    return Luck(fates, int(LuckKind.profile), key, key, 1, 1, 1, conditional[:, np.newaxis], none, none)


def rules_of(
    workload: Workload,
    servers: Sequence[Server] = (Server(),),
    luck: Luck | None = None,
    routing: Routing | None = None,
) -> Rules:
    """Tables of the given parts; without luck no draft is accepted."""
    seats = max(server.max_num_seqs for server in servers)
    return Rules(
        workload=workload,
        luck=luck or luck_of(workload, same_for_every_length((), longest_draft(servers))),
        batching=_batching(servers),
        drafting=_drafting(servers),
        draft_length_at=np.array([_draft_length_at(server, seats) for server in servers], np.int64),
        lockstep=np.ones(len(servers), np.int64),
        step_time=_step_time(servers, seats),
        routing=routing or routing_of(RouterPolicy.round_robin, len(servers)),
    )


def _batching(servers: Sequence[Server]) -> Table[Batching]:
    policies = (SchedulingPolicy.fcfs, SchedulingPolicy.priority)
    table: Table[Batching] = empty_table(
        Batching,
        len(servers),
        max_num_active_seqs=[server.max_num_active_seqs or server.max_num_seqs for server in servers],
        max_num_scheduled_tokens=[
            server.max_num_scheduled_tokens or server.max_num_batched_tokens for server in servers
        ],
        queue_depth=[2 if server.is_async else 1 for server in servers],
        scheduling_policy=[int(policies[server.is_priority]) for server in servers],
        **{name: [getattr(server, name) for server in servers] for name in SAME_NAME},
    )
    return table


def _drafting(servers: Sequence[Server]) -> Table[Drafting]:
    table: Table[Drafting] = empty_table(
        Drafting,
        len(servers),
        is_dynamic=[bool(server.schedule) for server in servers],
        **{
            name: [getattr(server, name) for server in servers]
            for name in ("num_speculative_tokens", "slots_per_request", "may_skip")
        },
    )
    return table


def _draft_length_at(server: Server, seats: int) -> list[int]:
    always = [server.num_speculative_tokens] * (seats + 1)
    return [server.num_speculative_tokens, *server.schedule, *always][: seats + 1]


def _step_time(servers: Sequence[Server], seats: int) -> StepTime:
    """Affine in the tokens of the step; a bundle for each instance."""
    num_servers, tokens = len(servers), max(server.max_num_batched_tokens for server in servers)
    axis = np.tile([0.0, 1.0], (num_servers, 1))
    step_s, token_s, host_s, draft_s = (
        np.array([getattr(server, name) for server in servers], np.float64)
        for name in ("step_s", "token_s", "host_s", "draft_s")
    )
    dense_s = step_s[:, np.newaxis] + token_s[:, np.newaxis] * np.arange(tokens + 1)
    return StepTime(
        bundle_of=np.arange(num_servers),
        host_s=host_s,
        slowdown=np.ones(num_servers),
        captured_tokens=np.zeros(num_servers, np.int64),
        dense_s=np.repeat(dense_s[:, np.newaxis, :], 2, axis=1),
        experts_s=np.zeros((num_servers, num_servers * tokens + 1)),
        head_s=np.zeros((num_servers, 2 * tokens + 1)),
        prefill_chunk_tokens=axis,
        prefill_history_tokens=axis.copy(),
        prefill_attention_s=np.zeros((num_servers, 2, 2)),
        decode_chunk_tokens=axis.copy(),
        decode_requests=axis.copy(),
        decode_kv_tokens=axis.copy(),
        decode_attention_s=np.zeros((num_servers, 2, 2, 2, 2)),
        decode_skew=np.zeros((num_servers, seats + 1)),
        draft_first_s=np.repeat(draft_s[:, np.newaxis], tokens + 1, axis=1),
        draft_more_s=_draft_more_s(servers, draft_s, seats),
        draft_kv_s=np.zeros((num_servers, longest_draft(servers) + 1)),
    )


def _draft_more_s(servers: Sequence[Server], draft_s: Floats, seats: int) -> Floats:
    """[server, draft length, requests]: every pass after the first."""
    passes = np.maximum(np.arange(longest_draft(servers) + 1) - 1, 0)
    return np.repeat((draft_s[:, np.newaxis] * passes)[:, :, np.newaxis], seats + 1, axis=2)


# ---- running them ----


def play(rules: Rules, stops_s: Iterable[float] = ()) -> World:
    """A world run to its end, in slices that end at `stops_s`."""
    world = new_world(rules)
    for _ in slices(world, rules, stops_s):
        pass
    return world


def slices(world: World, rules: Rules, stops_s: Iterable[float]) -> Iterator[float]:
    """Run to each of `stops_s`, then to the end; yields the time reached after each slice."""
    request = 0
    for until_s in (*stops_s, math.inf):
        request, status = loop.run_until(world, rules, request, float(until_s))
        assert status == Status.done
        yield float(until_s)


def columns_of(table: Any, path: str = "") -> Iterator[tuple[str, bytes]]:
    """Every column of a World, by name, as bytes."""
    if isinstance(table, tuple):
        for name, part in zip(type(table)._fields, table, strict=True):
            yield from columns_of(part, f"{path}{name}.")
    elif table.dtype.names:
        for name in table.dtype.names:
            yield path + name, np.asarray(table[name]).tobytes()
    else:
        yield path.rstrip("."), table.tobytes()
