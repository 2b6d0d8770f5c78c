"""What speculation did, by vLLM's counters and honestly (../shared/spec-decode-facts.md F2)."""

import numpy as np
import pytest
from engine_worlds import Asked, Scenario, Server, play
from hypothesis import given
from hypothesis import strategies as st

from cluster_sim.compose import compose
from cluster_sim.counters import acceptance, acceptance_by_draft_length, vllm_counters
from cluster_sim.engine.tables import Longs
from cluster_sim.run import simulate
from cluster_sim.summary import chunk_tokens, summarise

MARGINALS = (0.8, 0.6, 0.4)
SIMULATED = ("workload.requests=400", "workload.request_rate=40", "engine.max_num_seqs=16")
PER_POSITION = (
    "speculation.acceptance.policy=per_position",
    "speculation.acceptance.rates=[0.8, 0.6, 0.4]",
    "speculation.acceptance.rates_are=marginal",
)


def events(drafts: int, *accepted: int) -> Longs:
    """[drafts, accepted] of verify events with so many drafts: how many accepted 0, 1, .."""
    table = np.zeros((4, 4), np.int64)
    table[drafts, : len(accepted)] = accepted
    return table


# 100 events of 3 drafts whose marginals are 0.8, 0.6 and 0.4
LONG = events(3, 20, 20, 20, 40)
# and 300 of one draft, of which 0.8 are accepted
SHORT = events(1, 60, 240)


def test_the_example_of_the_log_line_is_counted_as_vllm_does() -> None:
    """Accepted 180 of 300 drafted in 100 drafts: acceptance length 2.80, rate 60 % (F2)."""
    assert vllm_counters(LONG) == {
        "num_drafts": 100,
        "num_draft_tokens": 300,
        "num_accepted_tokens": 180,
        "num_accepted_tokens_per_pos": [80, 60, 40],
    }
    found = acceptance(LONG)
    assert (found["acceptance_length"], found["acceptance_rate"]) == pytest.approx((2.8, 0.6))


def test_for_one_draft_length_both_ways_agree() -> None:
    found = acceptance(LONG)
    assert found["acceptance_by_position"] == found["acceptance_by_position_vllm"] == pytest.approx(MARGINALS)


def test_under_a_mix_of_draft_lengths_vllm_s_late_positions_read_low() -> None:
    """Only 100 of the 400 drafts have the positions 2 and 3: a quarter of 0.6 and of 0.4."""
    found = acceptance(LONG + SHORT)
    assert found["acceptance_by_position"] == pytest.approx([0.8, 0.6, 0.4])
    assert found["acceptance_by_position_vllm"] == pytest.approx([0.8, 0.15, 0.1])


def test_each_draft_length_has_its_own_acceptance() -> None:
    found = acceptance_by_draft_length(LONG + SHORT)
    assert found["verifications"] == [0, 300, 0, 100]
    assert found["acceptance_length"] == [None, pytest.approx(1.8), None, pytest.approx(2.8)]
    assert found["acceptance_by_position"] == [None, [0.8], None, pytest.approx(MARGINALS)]


def test_steps_without_drafts_are_not_counted() -> None:
    nothing = np.zeros((4, 4), np.int64)
    nothing[0, 0] = 50
    assert vllm_counters(nothing)["num_drafts"] == 0
    assert acceptance_by_draft_length(nothing)["verifications"] == [0, 0, 0, 0]
    assert acceptance(LONG + nothing) == acceptance(LONG)


@given(st.lists(st.integers(0, 50), min_size=10, max_size=10))
def test_vllm_s_share_is_the_honest_one_times_the_drafts_that_had_the_position(counts: list[int]) -> None:
    """F2: multiply position i by drafts / (drafts with K >= i)."""
    verified = np.zeros((4, 4), np.int64)
    verified[np.tril_indices(4)] = counts
    drafts = verified[1:].sum()
    if not drafts:
        return
    found = acceptance(verified)
    for position in range(3):
        had_it = verified[position + 1 :].sum()
        honest = found["acceptance_by_position"][position] or 0.0
        assert found["acceptance_by_position_vllm"][position] == pytest.approx(honest * had_it / drafts)


# ---- in a simulation ----


def test_a_simulation_with_one_draft_length_agrees_with_vllm_s_way_but_for_cut_drafts() -> None:
    """max_num_seqs keeps the budget away, so that every verification has all three drafts."""
    summary = summarise(simulate(compose([*SIMULATED, *PER_POSITION])))
    assert np.flatnonzero(summary["acceptance_by_draft_length"]["verifications"]).tolist() == [3]
    assert summary["acceptance_by_position"] == summary["acceptance_by_position_vllm"]
    counters, tokens = summary["vllm_counters"], summary["tokens"]
    assert counters["num_draft_tokens"] == 3 * counters["num_drafts"] == tokens["drafted"]
    assert sum(counters["num_accepted_tokens_per_pos"]) == counters["num_accepted_tokens"]
    assert counters["num_accepted_tokens"] == tokens["accepted"]


def test_a_simulation_with_a_schedule_reads_low_in_vllm_s_way_alone() -> None:
    by_size = "speculation.num_speculative_tokens_per_batch_size=[[1, 8, 3], [9, 16, 1]]"
    summary = summarise(simulate(compose([*SIMULATED, *PER_POSITION, by_size])))
    counts = summary["acceptance_by_draft_length"]["verifications"]
    assert counts[1] > 0
    assert summary["acceptance_by_position"] == pytest.approx(MARGINALS, abs=0.03)
    with_third = counts[3] / sum(counts)
    honest, vllm = (summary[f"acceptance_by_position{way}"][2] for way in ("", "_vllm"))
    assert vllm == pytest.approx(honest * with_third)
    assert vllm < 0.95 * honest


# ---- chunks ----


def test_a_delivery_holds_up_to_one_token_more_than_the_drafts() -> None:
    """All accepted: the first token alone, then K + 1 at a time, and what is left at the end."""
    scenario = Scenario(
        (Asked(max_tokens=10),), (Server(num_speculative_tokens=3),), conditional=(1.0, 1.0, 1.0)
    )
    world = play(scenario.rules())
    assert world.tally.chunk_tokens[0].tolist() == [0, 2, 0, 0, 2]  # 1 + 4 + 4 + 1
    assert world.tally.chunk_tokens.sum() == world.log["chunks"].sum()


def test_the_histogram_of_chunks_has_the_mean_and_percentiles_of_its_sample() -> None:
    counts = np.array([0, 30, 20, 0, 50])
    sample = np.repeat(np.arange(5), counts)
    assert chunk_tokens(counts) == {
        "mean": pytest.approx(sample.mean()),
        "p50": pytest.approx(np.percentile(sample, 50)),
        "p99": pytest.approx(np.percentile(sample, 99)),
        "histogram": [30, 20, 0, 50],
    }
    assert chunk_tokens(np.zeros(2, np.int64)) == {"mean": None, "p50": None, "p99": None, "histogram": [0]}


def test_gaps_that_end_with_a_prefill_in_the_step_are_apart() -> None:
    """Steps take 0.5 s + tokens / 128: a decode beside a prompt of 32 waits 0.25 s longer."""
    scenario = Scenario(
        (Asked(max_tokens=20), Asked(arrival_s=4.0, prompt_tokens=32, max_tokens=2)), (Server(),)
    )
    world = play(scenario.rules())
    assert world.tally.totals[0].mixed_steps == 2  # the two prompts
    alone, mixed = world.tally.gap_bins[0]
    assert mixed.sum() == 1
    assert alone.sum() == world.log["chunks"].sum() - 2 - 1
    assert np.flatnonzero(mixed)[0] > np.flatnonzero(alone).max()


def test_the_two_humps_of_itl_add_up_to_all_of_it() -> None:
    summary = summarise(simulate(compose([*SIMULATED, *PER_POSITION])))
    kinds = summary["itl_by_step"]
    assert kinds["decode_only"]["step_share"] + kinds["mixed"]["step_share"] == pytest.approx(1.0)
    assert kinds["decode_only"]["gap_share"] + kinds["mixed"]["gap_share"] == pytest.approx(1.0)
    assert kinds["mixed"]["p50"] > 1.2 * kinds["decode_only"]["p50"]
    assert kinds["decode_only"]["p50"] <= summary["itl_s"]["p50"] <= kinds["mixed"]["p50"]
    tokens = summary["tokens"]["emitted"]
    assert summary["chunk_throughput_per_s"] * summary["chunk_tokens"]["mean"] == pytest.approx(
        summary["output_throughput_tok_s"]
    )
    histogram = np.array(summary["chunk_tokens"]["histogram"])
    assert histogram @ np.arange(1, len(histogram) + 1) == tokens
