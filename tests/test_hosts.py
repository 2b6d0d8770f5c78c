"""Hosts: one cluster in several worlds, with the bytes of one; windows, shares and what is refused."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from engine_strategies import groups, scenarios
from engine_worlds import (
    Asked,
    Scenario,
    Server,
    columns_of,
    plain_workload,
    play,
    routing_of,
    rules_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from local_hosts import hosts_of
from test_lockstep import with_experts
from test_run import jsonl

from cluster_sim import drive_hosts as driving
from cluster_sim.build import build
from cluster_sim.compose import compose
from cluster_sim.drive_hosts import drive_hosts
from cluster_sim.engine import loop, router
from cluster_sim.engine.kinds import Outcome, Part, RouterPolicy
from cluster_sim.engine.rules import Rules
from cluster_sim.engine.state import World
from cluster_sim.errors import UserError
from cluster_sim.executors.cores import pays_on_ray
from cluster_sim.hosts import (
    PER_CORE,
    STEP_TIME_PER_CORE,
    InstanceHost,
    cores_of_hosts,
    order_for,
    rules_of_host,
    rules_of_router,
    window_last,
)
from cluster_sim.results import request_table
from cluster_sim.run import Drive, simulate
from cluster_sim.summary import summarise
from cluster_sim.trials import MACHINE_KEYS
from cluster_sim.world import new_world

PLACEMENTS = ((1, 1, 1, 1, 1), (2, 3), (1, 3, 1), (5,))  # instances of each host
INTERVALS_S = (0.0, 0.5, 2.0)
BLIND = (RouterPolicy.round_robin, RouterPolicy.random, RouterPolicy.weighted, RouterPolicy.session_hash)
TIGHT = Server(
    max_num_seqs=6,
    max_num_batched_tokens=24,
    max_model_len=34,
    num_gpu_blocks=13,
    lookahead_tokens=3,
    hash_lookahead_tokens=1,
    enable_prefix_caching=True,
    num_speculative_tokens=3,
    may_skip=True,
    host_s=0.125,
    draft_s=0.0625,
)
CROWD = tuple(
    Asked(
        arrival_s=number // 5 * 1.25 + number % 5 * 0.125,
        prompt_tokens=5 + 7 * number % 20,
        max_tokens=6 + 5 * number % 23,
        stop_at=9 if number % 5 == 0 else 0,
        priority=number % 3,
        abort_s=number * 0.25 + 2.5 if number % 7 == 3 else 1e9,
        content=(number % 2, 0, number % 2, number % 3) if number % 4 else (),
        proposals=(2, 0, 3) if number % 6 == 1 else (),
        is_rejected=number in (0, 8, 31, 59),
    )
    for number in range(60)
)


def crowded(policy: RouterPolicy, interval_s: float, ranks: int) -> Rules:
    """Five unlike instances of so many ranks; little memory, some share beginnings, give up, are refused."""
    unlike = (TIGHT, TIGHT, replace(TIGHT, is_async=True, max_num_seqs=4), TIGHT, replace(TIGHT, step_s=0.25))
    servers = tuple(server for server in unlike for _ in range(ranks))
    acceptance = (0.8, 0.5, 0.9)
    scenario = Scenario(CROWD, servers, acceptance, policy, interval_s, ranks=ranks, in_lockstep=ranks > 1)
    rules = scenario.rules()
    rules.workload.requests["session"] = np.arange(len(CROWD)) % 13
    return rules


def bytes_of(world: World) -> dict[str, bytes]:
    """What a run leaves: every column of its log and its tally."""
    return {**dict(columns_of(world.log, "log.")), **dict(columns_of(world.tally, "tally."))}


def on_hosts(rules: Rules, instances_per_host: tuple[int, ...]) -> World:
    """The world that drive_hosts leaves with hosts of so many instances in this process."""
    world = drive_hosts(rules, hosts_of(rules, instances_per_host)).world
    return world


# ---- the same bytes ----


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("interval_s", INTERVALS_S)
@pytest.mark.parametrize("policy", list(RouterPolicy), ids=lambda policy: policy.name)
def test_every_placement_gives_the_bytes_of_one_world(
    policy: RouterPolicy, interval_s: float, ranks: int
) -> None:
    rules = crowded(policy, interval_s, ranks)
    whole = play(rules)
    expected = bytes_of(whole)
    for placement in PLACEMENTS:
        found = on_hosts(rules, placement)
        assert bytes_of(found) == expected, placement
        assert found.log.tobytes() == whole.log.tobytes()  # type: ignore[attr-defined]


def test_the_crowd_is_not_trivial() -> None:
    """It preempts, hits, gives up and is refused; instances differ; prefix_aware looks where blocks are."""
    log = play(crowded(RouterPolicy.prefix_aware, 0.5, 1)).log
    assert {int(outcome) for outcome in log["outcome"]} == {
        int(Outcome.completed),
        int(Outcome.rejected),
        int(Outcome.timed_out),
    }
    assert log["preemptions"].sum() > 3
    assert log["cached_tokens"].sum() > 50
    assert set(log["instance"].tolist()) == {-1, 0, 1, 2, 3, 4}
    elsewhere = play(crowded(RouterPolicy.least_kv, 0.5, 1)).log
    assert log["instance"].tolist() != elsewhere["instance"].tolist()


@settings(max_examples=60)
@given(data=st.data(), scenario=st.one_of(scenarios(), groups()))
def test_any_small_world_may_be_cut_into_hosts(data: st.DataObject, scenario: Scenario) -> None:
    rules = with_experts(scenario) if scenario.in_lockstep else scenario.rules()
    instances = len(scenario.servers) // scenario.ranks
    edges = sorted(data.draw(st.sets(st.integers(1, instances)))) if instances > 1 else []
    bounds = [0, *(edge for edge in edges if edge < instances), instances]
    placement = tuple(after - before for before, after in pairwise(bounds))
    assert bytes_of(on_hosts(rules, placement)) == bytes_of(play(rules))


@pytest.mark.parametrize(
    "overrides",
    [
        ["router=round_robin"],
        ["router=session_hash", "cluster.data_parallel_size=2"],
        ["router=prefix_aware", "router.signal_interval_s=0.2"],
        ["router=least_requests", "cluster.data_parallel_size=2", "router.signal_interval_s=0.05"],
    ],
)
def test_requests_and_summary_of_a_trace_are_the_same_on_hosts(tmp_path: Path, overrides: list[str]) -> None:
    """Sessions with shared beginnings, on instances with little memory; some requests do not fit."""
    rows = [
        {
            "arrival_s": 0.01 * number,
            "prompt_tokens": 5000 if number == 70 else 64 + 16 * (number % 5),
            "output_tokens": 20 + number % 9,
            "session": number % 23,
            "block_ids": [number % 23 * 100 + block for block in range(4)],
            "class": "chat" if number % 3 else "code",
        }
        for number in range(200)
    ]
    trace = jsonl(tmp_path / "trace.jsonl", rows)
    config = compose([trace, "cluster.instances=4", "engine.num_gpu_blocks=300", *overrides])
    expected = simulate(config)
    assert expected.log["cached_tokens"].sum() > 0
    for placement in ((1, 3), (1, 1, 1, 1), (4,)):
        found = simulate(config, run=local(placement))
        assert request_table(found).equals(request_table(expected))
        assert without_machine(summarise(found)) == without_machine(summarise(expected))
        assert found.workload_digest == expected.workload_digest


def local(instances_per_host: tuple[int, ...]) -> Drive:
    return lambda rules, report, _plan: drive_hosts(rules, hosts_of(rules, instances_per_host), report)


def without_machine(summary: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in summary.items() if key not in MACHINE_KEYS}


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled with NUMBA_DISABLE_JIT")
def test_router_and_hosts_run_in_the_one_compiled_signature() -> None:
    """Tables that have been sent, and rows of them, have the types of whole ones."""
    on_hosts(crowded(RouterPolicy.prefix_aware, 0.5, 2), (2, 3))
    assert len(loop.run_until.signatures) == 1  # type: ignore[attr-defined]


# ---- orders ----


def calls(policy: RouterPolicy, interval_s: float, placement: tuple[int, ...], *arrivals_s: float) -> int:
    requests = tuple(Asked(arrival_s, 8, 4) for arrival_s in arrivals_s)
    rules = Scenario(requests, (Server(),) * sum(placement), (), policy, interval_s).rules()
    hosts = hosts_of(rules, placement)
    drive_hosts(rules, hosts)
    return hosts.calls


def test_a_window_without_arrivals_is_no_call() -> None:
    """Windows of 1 s: arrivals in three of them; two hosts each are called once for each."""
    assert calls(RouterPolicy.least_requests, 1.0, (1, 2), 0.0, 0.5, 7.25, 7.5, 100.0) == 2 * 3


def test_without_an_interval_every_moment_with_arrivals_is_a_window() -> None:
    assert calls(RouterPolicy.least_requests, 0.0, (1, 2), 0.0, 0.5, 0.5, 7.25, 7.5) == 2 * 4


@pytest.mark.parametrize("policy", BLIND)
def test_a_policy_that_looks_at_nothing_costs_one_call_a_host(policy: RouterPolicy) -> None:
    assert calls(policy, 0.0, (1, 2, 1), *range(50)) == 3


def test_a_host_of_the_whole_cluster_routes_by_itself() -> None:
    assert calls(RouterPolicy.least_requests, 0.5, (3,), *range(50)) == 1


@pytest.mark.parametrize("policy", [RouterPolicy.random, RouterPolicy.least_requests])
@pytest.mark.parametrize("placement", [(3,), (1, 2)])
def test_progress_is_reported_to_the_end_and_slices_change_nothing(
    monkeypatch: pytest.MonkeyPatch, policy: RouterPolicy, placement: tuple[int, ...]
) -> None:
    requests = tuple(Asked(0.25 * number, 8, 4) for number in range(60))
    rules = Scenario(requests, (Server(),) * 3, (), policy, 2.0).rules()
    monkeypatch.setattr(driving, "REQUESTS_PER_SLICE", 7)
    monkeypatch.setattr(driving, "REPORT_EVERY_S", 0.0)
    seen: list[tuple[int, int]] = []
    hosts = hosts_of(rules, placement)
    world = drive_hosts(rules, hosts, lambda done, total: seen.append((done, total))).world
    assert bytes_of(world) == bytes_of(play(rules))
    assert seen == sorted(seen)
    assert seen[-1] == (60, 60)
    assert len(set(seen)) > 5


def test_a_host_that_does_not_remember_says_so_and_does_all_again_in_one_order() -> None:
    """As after the death of its process: a new host gets the first half and its windows as one order."""
    rules = crowded(RouterPolicy.least_requests, 0.5, 1)
    world = play(rules)
    cores, middle = range(1, 3), window_last(rules.workload.requests["arrival_s"], 0.5, 30)
    until_s = router.window_start_s(0.5, float(rules.workload.requests["arrival_s"][middle]))
    first = order_for(cores, world.sent_to, 0, middle, until_s)
    rest = order_for(cores, world.sent_to, middle, len(CROWD), np.inf)
    forgetful = InstanceHost(rules, cores)
    assert forgetful.advance(rest) is None
    before = forgetful.advance(first)
    assert before is not None
    assert before.share is None
    in_two, at_once = (
        forgetful.advance(rest),
        forgetful.advance(order_for(cores, world.sent_to, 0, 60, np.inf)),
    )
    assert in_two is not None
    assert at_once is not None
    assert in_two.share is not None
    assert at_once.share is not None
    assert dict(columns_of(in_two.share.log)) == dict(columns_of(at_once.share.log))
    assert dict(columns_of(in_two.share.tally)) == dict(columns_of(at_once.share.tally))
    assert forgetful.advance(rest) is None


@given(
    gaps_s=st.lists(st.sampled_from([0.0, 0.01, 0.1, 0.3, 1.7]), min_size=1, max_size=40),
    interval_s=st.sampled_from([0.0, 0.1, 0.3, 1.0]),
)
def test_a_world_keeps_the_hits_of_a_whole_window(gaps_s: list[float], interval_s: float) -> None:
    arrivals_s = np.cumsum(gaps_s)
    requests = tuple(Asked(float(arrival_s)) for arrival_s in arrivals_s)
    rules = Scenario(requests, (Server(),) * 2, (), RouterPolicy.prefix_aware, interval_s).rules()
    rows, request = new_world(rules_of_router(rules)).hits.shape[0], 0
    while request < len(requests):
        last = window_last(arrivals_s, interval_s, request)
        assert request < last <= request + rows
        request = last
    assert new_world(rules).hits.shape[0] == 1


# ---- shares ----


@pytest.mark.parametrize(
    ("hosts", "per_host", "ranks", "expected"),
    [
        (1, None, 1, [range(7)]),
        (2, None, 1, [range(3), range(3, 7)]),
        (9, None, 1, [range(number, number + 1) for number in range(7)]),
        (3, None, 2, [range(4), range(4, 8), range(8, 14)]),
        (2, 1, 1, [range(number, number + 1) for number in range(7)]),
        (2, 3, 2, [range(6), range(6, 12), range(12, 14)]),
        (2, 7, 1, [range(7)]),
    ],
)
def test_instances_are_shared_out_evenly_or_so_many_to_a_host(
    hosts: int, per_host: int | None, ranks: int, expected: list[range]
) -> None:
    rules = Scenario((Asked(),), (Server(),) * 7 * ranks, ranks=ranks).rules()
    assert cores_of_hosts(rules, hosts, per_host) == expected


def test_a_host_has_its_rows_of_every_table_of_instances() -> None:
    """Seven engine cores of one bundle: whatever has seven rows is cut, but for what the router reads."""
    rules = build(compose(["cluster.instances=7", "workload.requests=20"])).rules
    cut = rules_of_host(rules, range(2, 4))
    for whole, part, names in (
        (rules, cut, PER_CORE),
        (rules.step_time, cut.step_time, STEP_TIME_PER_CORE),
    ):
        tables = {name: table for name, table in whole._asdict().items() if hasattr(table, "shape")}
        assert {name for name, table in tables.items() if table.shape[0] == 7} == set(names)
        for name in names:
            assert getattr(part, name).tobytes() == tables[name][2:4].tobytes()
    assert cut.routing.part == Part.instances
    assert rules_of_host(rules, range(7)) is rules


# ---- settings ----


@pytest.mark.parametrize(
    ("instances", "requests", "workers", "overrides", "pays"),
    [
        (256, 2_000_000, 2, {}, True),
        (256, 900_000, 2, {}, False),
        (256, 900_000, 16, {}, True),
        (256, 2_000_000, 1, {}, False),
        (1, 2_000_000, 16, {}, False),
        (256, 2_000_000, 2, {"signal_interval_s": 0.0}, False),
        (256, 2_000_000, 2, {"signal_interval_s": 0.0, "policy": int(RouterPolicy.random)}, True),
    ],
)
def test_a_big_cluster_is_spread_where_that_saves_more_than_ray_costs(
    instances: int, requests: int, workers: int, overrides: dict[str, Any], pays: bool
) -> None:
    """Two million requests cost 16 s, of which two workers save 8; Ray costs 4 s and 2 ms a window."""
    workload = plain_workload(requests, arrival_s=np.arange(requests) / 10_000)
    routing = routing_of(RouterPolicy.least_requests, instances, 1, 0.25)._replace(**overrides)
    rules = rules_of(workload, (Server(),) * instances, None, routing)
    assert pays_on_ray(rules, workers) is pays


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        (
            ["executor=serial", "executor.instances_per_host=1"],
            "instances_per_host has no effect with kind serial, but got 1 (executor.instances_per_host). "
            "Choose executor=ray.",
        ),
        (
            ["+sweep=spec_grid", "executor.instances_per_host=1"],
            "instances_per_host has no effect in a sweep, whose trials run whole in a worker each, but got 1 "
            "(executor.instances_per_host). Leave it out.",
        ),
        (
            ["+study=draft_schedule", "executor.instances_per_host=1"],
            "instances_per_host has no effect in a study, whose trials run whole in a worker each, but got 1 "
            "(executor.instances_per_host). Leave it out.",
        ),
        (
            [
                "executor=ray",
                "executor.instances_per_host=1",
                "cluster.faults=[{instances: [0], kind: stop, from_s: 1}]",
            ],
            "instances_per_host has no effect with cluster.faults, which are simulated in one process, but "
            "got 1 (executor.instances_per_host). Leave it out.",
        ),
        (
            ["executor=ray", "executor.instances_per_host=1", "executor.workers=2"],
            "workers has no effect with instances_per_host, which says how many there are, but got 2 "
            "(executor.workers). Leave one of them out.",
        ),
        (
            ["executor=ray", "cluster.instances=3", "executor.instances_per_host=4"],
            "instances_per_host must be at most cluster.instances (3), but got 4 "
            "(executor.instances_per_host). Set it to 3 or less.",
        ),
        (
            ["executor=ray", "executor.instances_per_host=0"],
            "the number of instances of a host must be at least 1, but got 0 (executor.instances_per_host). "
            "Set executor.instances_per_host to 1 or more.",
        ),
    ],
)
def test_a_number_of_instances_that_would_do_nothing_is_refused(overrides: list[str], text: str) -> None:
    with pytest.raises(UserError) as caught:
        compose(overrides)
    assert str(caught.value) == text
