"""Requests of the warm-up and the cool-down are served, counted, and not measured."""

import numpy as np
import pytest
from example_run import example_run

from cluster_sim.summary import of_requests, simulated_s, summarise
from cluster_sim.warmup import measured_of

CUT = ("workload.warmup=0.4", "slo.ttft_s=1.0", "slo.tpot_s=0.6")  # arrivals at 1, 2 and 3 s: 0.8 s are cut


def test_nothing_is_cut_unless_it_is_asked_for() -> None:
    assert summarise(example_run())["measured"] == {"warmup_s": 0.0, "cooldown_s": 0.0, "requests": 3}


def test_a_share_of_the_time_of_arrivals_is_cut_at_each_end() -> None:
    asked = ("workload.warmup=0.4", "workload.cooldown=0.25")
    measured = measured_of(example_run(asked))
    assert measured.as_dict() == {
        "warmup_s": pytest.approx(0.8),
        "cooldown_s": pytest.approx(0.5),
        "requests": 1,
    }
    assert measured.chosen.tolist() == [False, True, False]


def test_a_request_that_arrives_as_the_warm_up_ends_or_the_cool_down_begins_is_measured() -> None:
    asked = ("workload.warmup=0.5", "workload.cooldown=0")
    assert measured_of(example_run(asked)).chosen.tolist() == [False, True, True]
    assert measured_of(example_run(("workload.cooldown=0.5",))).chosen.tolist() == [True, True, False]


def test_latencies_attainment_and_goodput_are_of_measured_requests_and_the_time_left() -> None:
    """Requests 1 and 2 are measured: TTFT 1.0 and 0.5 s, TPOT none and 0.5 s; the run takes 4 s."""
    summary = summarise(example_run(CUT))
    assert summary["ttft_s"]["mean"] == pytest.approx(np.mean([1.0, 0.5]))
    assert summary["tpot_s"]["mean"] == pytest.approx(0.5)
    assert summary["queue_s"]["mean"] == pytest.approx(0.25)
    assert summary["slo_attainment"] == 1.0
    assert summary["slo_goodput_rps"] == pytest.approx(2 / (4.0 - 0.8))
    assert summary["token_goodput_tok_s"] == pytest.approx((1 + 4) / (4.0 - 0.8))
    assert summary["token_attainment"] == 1.0


def test_counts_and_throughputs_are_of_the_whole_run() -> None:
    whole, cut = summarise(example_run()), summarise(example_run(CUT))
    for name in ("requests", "tokens", "request_throughput_rps", "output_throughput_tok_s", "queue_growth"):
        assert cut[name] == whole[name]


def test_the_parts_of_a_run_with_a_warm_up_add_up_to_the_whole() -> None:
    run = example_run(CUT)
    first = np.array([True, True, False])
    whole, one, other = (
        of_requests(run, chosen, simulated_s(run)) for chosen in (first | ~first, first, ~first)
    )
    for name in ("slo_goodput_rps", "token_goodput_tok_s", "output_throughput_tok_s"):
        assert one[name] + other[name] == pytest.approx(whole[name])


def test_where_nothing_is_left_to_measure_there_are_no_latencies_and_no_attainment() -> None:
    summary = summarise(example_run(("workload.warmup=0.6", "workload.cooldown=0.3")))
    assert summary["measured"]["requests"] == 0
    assert summary["ttft_s"]["mean"] is None
    assert summary["slo_attainment"] is summary["slo_attainment_interval"] is None
    assert summary["slo_goodput_rps"] == 0.0
    assert summary["requests"]["completed"] == 3


def test_the_attainment_of_each_limit_is_at_least_that_of_all() -> None:
    """TTFT 0.25, 1.0 and 0.5 s; TPOT 0.1 s, none and 0.5 s."""
    summary = summarise(example_run(("slo.ttft_s=0.5", "slo.tpot_s=0.2")))
    assert summary["slo_attainment_by_limit"] == {
        "ttft_s": pytest.approx(2 / 3),
        "tpot_s": pytest.approx(2 / 3),
        "e2el_s": None,
    }
    assert summary["slo_attainment"] == pytest.approx(1 / 3)
