"""What output tokens cost: hardware.price_per_hour over the run's time."""

import pytest

from cluster_sim.compose import compose
from cluster_sim.errors import UserError
from cluster_sim.report.terminal import header_of, run_view, to_text
from cluster_sim.results import Run
from cluster_sim.run import simulate
from cluster_sim.summary import summarise

SMALL = ("workload.requests=60", "workload.request_rate=20")
MIXED = "cluster.overrides=[{instances: [1], set: {hardware: a100, hardware.price_per_hour: 1.5}}]"


def run_of(*overrides: str) -> Run:
    return simulate(compose([*SMALL, *overrides]))


def text_of(run: Run) -> str:
    return " ".join(to_text(run_view(summarise(run), header_of(run), run.config.slo), 160, False).split())


def test_every_gpu_is_paid_for_the_whole_run() -> None:
    run = run_of("hardware.price_per_hour=2.5", "cluster.instances=2", "cluster.tensor_parallel_size=2")
    summary = summarise(run)
    assert summary["cost"]["per_hour"] == 2.5 * 4
    tokens, hours = summary["tokens"]["emitted"], summary["simulated_s"] / 3600
    assert summary["cost"]["per_million_output_tokens"] == pytest.approx(10.0 * hours / (tokens / 1e6))
    shown = f"{summary['cost']['per_million_output_tokens']:,.3g} per million output tokens, at 10.0 an hour"
    assert shown in text_of(run)


def test_instances_that_differ_are_paid_each_by_its_own_price() -> None:
    both = summarise(run_of("hardware.price_per_hour=2.5", "cluster.instances=3", MIXED))
    assert both["cost"]["per_hour"] == 2 * 2.5 + 1.5
    one_unknown = summarise(run_of("cluster.instances=3", MIXED))
    assert one_unknown["cost"] == {"per_hour": None, "per_million_output_tokens": None}


def test_without_a_price_nothing_is_said_of_cost_and_with_one_nothing_else_changes() -> None:
    free, paid = run_of(), run_of("hardware.price_per_hour=2.5")
    assert "per million output tokens" not in text_of(free)
    assert free.bundle_digest == paid.bundle_digest
    assert free.log.tobytes() == paid.log.tobytes()  # type: ignore[attr-defined]


def test_a_price_is_above_0() -> None:
    with pytest.raises(UserError) as raised:
        compose(["hardware.price_per_hour=0"])
    assert str(raised.value) == (
        "the price of a GPU and hour must be above 0, but got 0.0 (hardware.price_per_hour). "
        "Set hardware.price_per_hour to a number above 0."
    )
