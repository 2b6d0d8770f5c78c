"""The fleet over time: samples change nothing, are alike on every placement, and are what the engine does."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from engine_worlds import Asked, Scenario, Server
from local_hosts import hosts_of
from paging import tables_of
from test_hosts import INTERVALS_S, PLACEMENTS, bytes_of, crowded

from cluster_sim.compose import compose
from cluster_sim.drive_hosts import drive_hosts
from cluster_sim.engine.kinds import RouterPolicy
from cluster_sim.fleet import IDLE, NUM_SAMPLES, Sampler, Samples, fleet_table, moments
from cluster_sim.report.fleet_sections import read_fleet
from cluster_sim.report.page import write_page
from cluster_sim.run import drive_here
from cluster_sim.single import run_single

POLICIES = (RouterPolicy.round_robin, RouterPolicy.least_requests, RouterPolicy.prefix_aware)


def sampled(scenario: Scenario) -> Samples:
    rules = scenario.rules()
    found = drive_here(rules, sampler=Sampler(rules)).fleet
    assert found is not None
    return found


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("interval_s", INTERVALS_S)
@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_samples_change_no_byte_and_are_the_same_on_every_placement(
    policy: RouterPolicy, interval_s: float, ranks: int
) -> None:
    rules = crowded(policy, interval_s, ranks)
    plain, whole = drive_here(rules), drive_here(rules, sampler=Sampler(rules))
    assert plain.fleet is None
    assert whole.fleet is not None
    assert bytes_of(whole.world) == bytes_of(plain.world)
    assert whole.fleet.running.max() > 1
    assert whole.fleet.waiting.max() > 0
    assert len(np.unique(whole.fleet.draft_length)) > 1
    for placement in PLACEMENTS:
        found = drive_hosts(rules, hosts_of(rules, placement)).fleet
        assert found is not None
        for name, mine, theirs in zip(Samples._fields, found, whole.fleet, strict=True):
            assert np.array_equal(mine, theirs), (name, placement)


def test_moments_are_starts_of_signal_windows_within_the_arrivals() -> None:
    at_s = moments(crowded(RouterPolicy.least_requests, 0.5, 1))
    assert at_s.tolist() == [0.5 * number for number in range(1, len(at_s) + 1)]
    assert at_s[-1] <= 11 * 1.25 + 0.5
    assert len(moments(crowded(RouterPolicy.least_requests, 0.0, 1))) == NUM_SAMPLES


def test_a_lone_request_is_seen_running_with_its_drafts_and_then_gone() -> None:
    """Steps of 0.5 s and 2**-7 a token: a prefill, and 3 tokens of one draft each; the next comes at 24 s."""
    requests = (Asked(0.0, 8, 4), Asked(24.0, 8, 4))
    found = sampled(Scenario(requests, (Server(num_speculative_tokens=1),)))
    busy = found.running[:, 0] == 1
    ends_s = found.at_s[busy].max()
    assert 0.5 < ends_s < 4 * 0.6
    assert busy.tolist() == [at_s <= ends_s for at_s in found.at_s.tolist()]
    assert set(found.draft_length[busy].ravel()) == {1}
    assert set(found.draft_length[~busy].ravel()) == {IDLE}
    assert found.kv_blocks[busy].min() >= 2  # of 4 tokens each, for the prompt
    assert found.kv_blocks[~busy].max() == 0
    assert found.waiting.max() == 0


def test_those_without_a_seat_wait() -> None:
    requests = (*(Asked(0.0, 8, 40),) * 6, Asked(2.0, 8, 4))
    found = sampled(Scenario(requests, (Server(max_num_seqs=4),)))
    late = found.at_s > 1.0
    assert set(found.running[late].ravel()) == {4}
    assert set(found.waiting[late].ravel()) == {2}


def test_the_ranks_of_an_instance_are_one_on_the_page() -> None:
    at_s, shape = np.array([1.0, 2.0]), (2, 4)
    waiting = np.arange(8).reshape(shape)
    kv_blocks, drafts = 10 * waiting, np.array([[IDLE, 3, IDLE, IDLE], [1, 2, 0, IDLE]])
    table = fleet_table(Samples(at_s, waiting, waiting, kv_blocks, drafts), np.full(4, 100), ranks=2)
    assert table["rank"].to_pylist() == [0, 1, 0, 1] * 2
    assert table["draft_length"].to_pylist() == [None, 3, None, None, 1, 2, 0, None]
    times_s, panels = read_fleet(table)
    found = {title: values.tolist() for title, values in panels}
    assert times_s.tolist() == [1.0, 2.0]
    assert found["Waiting requests"] == [[1.0, 5.0], [9.0, 13.0]]
    assert np.allclose(found["KV memory in use (%)"], [[5.0, 25.0], [45.0, 65.0]])
    assert found["Draft length K"][0][0] == 3.0
    assert np.isnan(found["Draft length K"][0][1])
    assert found["Draft length K"][1] == [2.0, 0.0]


def test_a_simulation_leaves_its_fleet_and_shows_it(tmp_path: Path) -> None:
    common = ["executor=serial", "cluster.instances=9", "workload.requests=300", "workload.request_rate=90"]
    run_single(compose([*common, f"output.dir={tmp_path}"]), lambda *_: None)
    table = pq.read_table(tmp_path / "fleet.parquet")
    names = ["at_s", "instance", "waiting", "running", "kv_usage", "draft_length"]
    assert table.column_names == names
    assert table.num_rows % 9 == 0
    ((head, *rows),) = tables_of(write_page(tmp_path))["fleet"]
    assert head[3:5] == ["Running requests, mean", "Running requests, most"]
    for instance, cells in enumerate(rows):
        own = table.filter(np.equal(table["instance"], instance))["running"].to_numpy()
        assert (cells[0], cells[4]) == (
            str(instance),
            f"{own.max():.2f}" if own.max() < 10 else str(own.max()),
        )
    (tmp_path / "fleet.parquet").unlink()
    assert "fleet" not in tables_of(write_page(tmp_path))
