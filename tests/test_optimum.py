"""The best draft length at each batch size, against closed forms (../shared/spec-decode-facts.md D3, D6)."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from engine_worlds import Asked, Scenario, Server
from hypothesis import given
from hypothesis import strategies as st

from cluster_sim.build import build
from cluster_sim.compose import compose
from cluster_sim.config import Config
from cluster_sim.decode_time import Timing, decode_steps_s
from cluster_sim.engine.kinds import LuckKind
from cluster_sim.engine.rules import Fate, Request, StepTime
from cluster_sim.engine.tables import Floats
from cluster_sim.optimum import (
    NEAR,
    Optimum,
    fewest_ranges,
    optimum_of,
    paying,
    resolved,
    traffic_of,
    without_drafter,
)
from cluster_sim.run import simulate
from cluster_sim.speculation.schedule import dense_lookup, describe
from cluster_sim.summary import summarise
from cluster_sim.traffic import acceptance_lengths, mean_kv_tokens
from cluster_sim.world import empty_table

Seconds = Callable[[Any], Any]  # tokens, an array, to s


def times(
    target_s: Seconds, more_s: Floats, kv_s: Sequence[float] = (0.0, 0.0), host_s: float = 0.0
) -> StepTime:
    """Target of `target_s` [tokens], drafter of `more_s` [K, B], and what both take for a KV token.

    The drafter reads KV in proportion to K.
    """
    most, batches = more_s.shape[0] - 1, more_s.shape[1] - 1
    tokens = batches * (1 + most)
    blank = Scenario((Asked(),), (replace(Server(), max_num_batched_tokens=tokens),)).rules().step_time
    axis = np.array([[0.0, 1.0]])
    attention_s = np.zeros((1, 2 + most, 2, 2, 2))
    attention_s[..., 1, 1] = kv_s[0]
    return blank._replace(
        host_s=np.array([host_s]),
        dense_s=np.tile(target_s(np.arange(tokens + 1)), (1, 3 + most, 1)),
        decode_requests=axis,
        decode_kv_tokens=axis,
        decode_attention_s=attention_s,
        decode_skew=np.zeros((1, batches + 1)),
        draft_first_s=np.zeros((1, tokens + 1)),
        draft_more_s=more_s[np.newaxis],
        draft_kv_s=kv_s[1] * np.arange(most + 1.0)[np.newaxis],
    )


def speedup(
    step_times: StepTime, lengths: Sequence[float] | Floats, batches: int, kv_tokens: float
) -> Floats:
    """[K, B]: AL(K) / t(B, K) over 1 / t(B, off)."""
    most = len(lengths) - 1
    on = Timing(step_times, True, False, 1, batches * (1 + most))
    off_s = decode_steps_s(replace(on, has_drafter=False), np.zeros(batches + 1, np.int64), kv_tokens)
    return np.stack(
        [
            length * off_s / decode_steps_s(on, np.full(batches + 1, drafts), kv_tokens)
            for drafts, length in enumerate(lengths)
        ]
    )


# ---- D6: a fitted linear model of Llama-3.1-8B on H100 ----

C1_ACCEPTANCE_LENGTHS = (1.0, 1.699, 2.134, 2.391, 2.558, 2.666, np.nan, 2.765)  # GSM8K, EAGLE (B1)
D6 = {  # batch size -> speed-up at K = 1, 2, 3, 4, 5, 7
    1: (1.540, 1.769, 1.826, 1.811, 1.759, 1.605),
    16: (1.491, 1.666, 1.680, 1.633, 1.558, 1.380),
    32: (1.446, 1.578, 1.561, 1.493, 1.405, 1.217),
    64: (1.376, 1.449, 1.394, 1.304, 1.205, 1.015),
    128: (1.284, 1.291, 1.201, 1.096, 0.993, 0.812),
    256: (1.185, 1.136, 1.025, 0.915, 0.815, 0.651),
    512: (1.100, 1.015, 0.894, 0.785, 0.692, 0.543),
}
D6_LENGTHS = (1, 2, 3, 4, 5, 7)


@pytest.fixture(scope="module")
def linear_model() -> Floats:
    """C1: target 5.886 ms + 21.01 us a token + 39.26 ns a KV token; 1.207 ms of the engine.

    The drafter, fitted at K = 3, is scaled as K / 3: 2.135 ms + 0.84 us a token + 2.378 ns a KV token.
    """
    batches, most = 512, 7
    drafts, requests = np.arange(most + 1.0), np.arange(batches + 1.0)
    more_s = drafts[:, np.newaxis] / 3 * (2.135e-3 + 8.4e-7 * drafts[:, np.newaxis] * requests)
    c1 = times(lambda tokens: 5.886e-3 + 2.101e-5 * tokens, more_s, (3.926e-8, 2.378e-9 / 3), 1.207e-3)
    return speedup(c1, C1_ACCEPTANCE_LENGTHS, batches, 180.0)


@pytest.mark.parametrize("batch", sorted(D6))
def test_the_linear_model_gives_the_speed_ups_of_d6(linear_model: Floats, batch: int) -> None:
    assert linear_model[list(D6_LENGTHS), batch] == pytest.approx(D6[batch], abs=0.002)


def test_the_best_draft_length_falls_with_the_batch_size_as_in_d6(linear_model: Floats) -> None:
    known = linear_model[list(D6_LENGTHS)]
    best = [D6_LENGTHS[int(known[:, batch].argmax())] for batch in sorted(D6)]
    assert best == [3, 3, 2, 2, 2, 1, 1]


def test_a_batch_of_128_gains_a_fifth_as_measured(linear_model: Floats) -> None:
    """1.21 measured (A1 row 3), 1.201 from C1."""
    assert linear_model[3, 128] == pytest.approx(1.21, abs=0.02)


# ---- D3: verification for nothing ----


@pytest.mark.parametrize(
    ("alpha", "cost", "best", "gain"),
    [
        *((0.6, 0.05, 4, 1.921), (0.6, 0.1, 3, 1.674), (0.6, 0.2, 2, 1.400), (0.6, 0.4, 1, 1.143)),
        *((0.7, 0.05, 6, 2.353), (0.7, 0.1, 4, 1.981), (0.7, 0.2, 3, 1.583), (0.7, 0.4, 2, 1.217)),
        *((0.8, 0.05, 8, 3.092), (0.8, 0.1, 6, 2.470), (0.8, 0.2, 4, 1.868), (0.8, 0.4, 2, 1.356)),
        *((0.9, 0.05, 13, 4.674), (0.9, 0.1, 10, 3.431), (0.9, 0.2, 7, 2.373), (0.9, 0.4, 4, 1.575)),
    ],
)
def test_with_free_verification_the_best_draft_length_is_that_of_the_cost_ratio(
    alpha: float, cost: float, best: int, gain: float
) -> None:
    """S(K) = AL / (1 + c K), AL = (1 - alpha^(K + 1)) / (1 - alpha)."""
    most = 15
    drafts = np.arange(most + 1.0)
    more_s = cost * np.tile(drafts[:, np.newaxis], (1, 3))
    free = times(lambda tokens: np.ones(len(tokens)), more_s)
    found = speedup(free, (1 - alpha ** (drafts + 1)) / (1 - alpha), 2, 100.0)
    assert found[:, 1].argmax() == best
    assert found[best, 1] == pytest.approx(gain, abs=0.0006)
    assert found[:, 2] == pytest.approx(found[:, 1])


def test_the_marginal_rule_stops_where_the_best_draft_length_is(linear_model: Floats) -> None:
    """Drafting goes on while m_(K+1) / AL(K) > dt / t(K) (D3): the same K as the largest AL / t."""
    for batch in sorted(D6):
        rising = np.diff(linear_model[:6, batch]) > 0
        first_fall = int(np.argmin(rising)) if not rising.all() else 5
        assert first_fall == linear_model[:6, batch].argmax()


# ---- host time ----


def test_host_time_hides_behind_the_gpu_only_under_async_scheduling() -> None:
    host = times(lambda tokens: np.ones(len(tokens)), np.zeros((1, 3)), host_s=0.25)
    none = np.zeros(2, np.int64)
    timing = Timing(host, False, False, 1, 2)
    assert decode_steps_s(timing, none, 1.0)[1] == 1.25
    assert decode_steps_s(replace(timing, is_async=True), none, 1.0)[1] == 1.0
    slow = host._replace(host_s=np.array([3.0]))
    assert decode_steps_s(replace(timing, times=slow, is_async=True), none, 1.0)[1] == 3.0


def test_requests_without_room_in_a_step_take_turns() -> None:
    affine = times(lambda tokens: 1.0 + tokens, np.zeros((2, 5)))
    whole = Timing(affine, True, False, 1, 8)
    four_s = decode_steps_s(whole, np.ones(5, np.int64), 1.0)[4]
    halves_s = decode_steps_s(replace(whole, most_tokens=4), np.ones(5, np.int64), 1.0)[4]
    assert (four_s, halves_s) == (1.0 + 8, 2 * (1.0 + 4))


# ---- ranges ----


def curves(*rows: Sequence[float]) -> Floats:
    """[K, B] with nan for batch size 0."""
    return np.array([(np.nan, *row) for row in rows])


def flip(speedups: Floats) -> int | None:
    """The smallest batch size from which on [B] never exceeds 1 again; None: it still does at the largest."""
    runs = paying(speedups)
    if not runs:
        return 1
    return runs[-1][1] + 1 if runs[-1][1] < len(speedups) - 1 else None


def test_where_speculation_pays_may_have_a_hole() -> None:
    hump = curves((1.1, 0.9, 0.95, 1.2, 1.3, 0.8))[0]
    assert paying(hump) == [(1, 1), (4, 5)]
    assert flip(hump) == 6
    assert flip(curves((1.1, 1.2))[0]) is None
    assert flip(curves((0.9, 0.8))[0]) == 1
    assert paying(curves((1.0, 1.0))[0]) == []


def test_a_best_draft_length_that_rises_again_is_kept() -> None:
    """An MoE model loads more experts for each draft of a few requests, and none beyond for many."""
    assert fewest_ranges(curves((1.0, 0.9, 0.9, 1.0), (0.8, 1.2, 1.0, 0.7), (0.7, 1.0, 1.5, 0.6))) == [
        [1, 1, 0],
        [2, 2, 1],
        [3, 3, 2],
        [4, 4, 0],
    ]


def test_draft_lengths_within_a_percent_share_a_range() -> None:
    assert fewest_ranges(curves((1.0, 1.0, 1.0), (1.5, 1.495, 1.0), (1.49, 1.5, 2.0))) == [[1, 3, 2]]


@given(st.lists(st.lists(st.floats(0.5, 2.0), min_size=3, max_size=3), min_size=1, max_size=30))
def test_every_range_is_within_a_percent_of_the_best_and_vllm_reads_it(columns: list[list[float]]) -> None:
    speedups = curves(*np.array(columns).T)
    dense = dense_lookup(fewest_ranges(speedups), len(columns), 2)
    chosen = speedups[dense[1:], np.arange(1, len(columns) + 1)]
    assert (chosen >= (1 - NEAR) * speedups[:, 1:].max(axis=0)).all()
    assert len(fewest_ranges(speedups)) <= len(describe(np.array([0, *speedups[:, 1:].argmax(axis=0)])))


# ---- acceptance and context of a workload ----


def test_classes_are_weighed_by_the_verifications_that_their_tokens_take() -> None:
    """600 tokens at AL 2 and 600 at AL 3 take 300 + 200 verifications: 2.4, not 2.5."""
    scenario = Scenario(
        (Asked(max_tokens=600), Asked(max_tokens=600, workload_class=1)),
        (replace(Server(), num_speculative_tokens=2),),
    )
    rules = scenario.rules()
    conditional = np.zeros((2, 1, 3, 2))
    conditional[0, 0, 2], conditional[1, 0, 2] = (1.0, 0.0), (1.0, 1.0)
    requests = rules.workload.requests
    found = acceptance_lengths(
        rules.luck._replace(conditional=conditional), requests, requests["max_tokens"], 2
    )
    assert found == pytest.approx([1.0, 1.0, 2.4])


def test_a_walk_counts_only_the_lengths_that_it_stops_at() -> None:
    """3 0 0 0 1 0 at K = 2: 3 tokens, then 1, then 2: 6 tokens in 3 verifications."""
    luck = Scenario((Asked(),), (replace(Server(), num_speculative_tokens=2),)).rules().luck
    walked = luck._replace(
        kind=int(LuckKind.walked),
        draws=np.array([3, 0, 0, 0, 1, 0], np.int32),
        fates=empty_table(Fate, 1, num_draws=6),
    )
    requests = empty_table(Request, 1)
    assert acceptance_lengths(walked, requests, np.array([6]), 2) == pytest.approx([1.0, 6 / 4, 6 / 3])


def test_the_context_of_a_decode_is_weighed_by_decode_steps() -> None:
    """10 steps at about 105 tokens and 30 at about 215."""
    found = mean_kv_tokens(np.array([100, 200]), np.array([10, 30]))
    assert found == pytest.approx((10 * 105 + 30 * 215) / 40)


# ---- whole configurations ----

EAGLE3 = (
    "speculation.acceptance.policy=geometric",
    "speculation.acceptance.rate=0.7",
    "workload.requests=20",
    "engine.max_num_seqs=256",
)
MOE = ("model=qwen3-30b-a3b", "speculation.draft_cost=zero")


def found_for(*overrides: str) -> Optimum:
    optimum = optimum_of(compose([*EAGLE3, *overrides]))
    assert optimum is not None
    return optimum


def test_at_batch_size_1_a_static_draft_length_gains_the_most_and_k_0_costs() -> None:
    optimum = found_for()
    assert optimum.own[1] > 1.4
    assert optimum.own[1] > optimum.own[256]
    assert optimum.by_length is not None
    assert (optimum.by_length[0, 1:] < 1.0).all()  # the drafter's first pass
    assert optimum.schedule[0][2] == 3


def test_off_has_no_gain_and_no_optimum() -> None:
    assert optimum_of(without_drafter(compose([*EAGLE3]))) is None


def test_with_a_free_drafter_k_0_is_as_good_as_off_where_host_and_graphs_are_the_same() -> None:
    optimum = found_for("speculation.draft_cost=zero")
    assert optimum.by_length is not None
    assert optimum.by_length[0, [1, 2, 4, 8, 16]] == pytest.approx(1.0)


def test_an_moe_model_gains_more_at_a_medium_batch_than_at_a_small_one() -> None:
    """MoESD (../shared/spec-decode-facts.md A2 row 32): few requests load more experts for each draft."""
    own = found_for(*MOE).own
    medium = int(np.nanargmax(own))
    assert medium > 16
    assert own[medium] > own[4]


def test_without_schedules_in_vllm_the_only_draft_length_is_the_best() -> None:
    optimum = found_for(*MOE, "cluster.data_parallel_size=2", "cluster.enable_expert_parallel=true")
    assert optimum.by_length is None
    assert optimum.schedule == [[1, 256, 3]]
    assert optimum.best is optimum.own


def test_auto_becomes_the_schedule_of_the_tables() -> None:
    asked = compose([*EAGLE3, "speculation.num_speculative_tokens_per_batch_size=auto"])
    config = resolved(asked)
    ranges = config.speculation.num_speculative_tokens_per_batch_size
    assert ranges == found_for().schedule
    assert resolved(config) is config
    run = simulate(asked)
    assert run.config.speculation.num_speculative_tokens_per_batch_size == ranges
    dense = build(config).rules.draft_length_at[0]
    assert dense.tolist() == dense_lookup(ranges, 256, 3).tolist()


def closed_batch(batch: int, *overrides: str) -> Config:
    """`batch` requests at once, which decode side by side to their common end."""
    return compose(
        [
            *("workload.request_rate=1e9", f"workload.requests={batch}", "workload.prompt_tokens=16"),
            *("workload.output_tokens=1500", "engine.max_num_seqs=256", "engine.async_scheduling=false"),
            *overrides,
        ]
    )


@pytest.mark.parametrize("batch", [1, 32])
def test_a_simulated_batch_gains_what_the_tables_say(batch: int) -> None:
    """Throughput of a closed batch, on over off; its tail and prefill are not in the tables: 3 %."""
    acceptance = ("speculation.acceptance.policy=geometric", "speculation.acceptance.rate=0.7")
    on = closed_batch(batch, *acceptance)
    traffic = traffic_of(on)
    optimum = optimum_of(on, traffic)
    assert optimum is not None
    tpot_s = [summarise(simulate(config))["tpot_s"]["mean"] for config in (on, without_drafter(on))]
    assert tpot_s[1] / tpot_s[0] == pytest.approx(float(optimum.own[batch]), rel=0.03)
    assert traffic.kv_tokens == pytest.approx(16 + 750)
