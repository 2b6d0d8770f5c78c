"""Busy time of an output token under load, against closed forms, and the steps that requests take part in."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_optimum import times

from cluster_sim.compose import compose
from cluster_sim.decode_time import Timing
from cluster_sim.load_time import Load, loaded_token_s, prompts_beside
from cluster_sim.optimum import without_drafter
from cluster_sim.run import simulate
from cluster_sim.traffic import Traffic

OUTPUTS, PROMPT, BATCHES = 4.0, 100.0, 8
WORK = Traffic(np.ones(1), 1.0, PROMPT, OUTPUTS, np.full(1, OUTPUTS - 1), np.zeros(1))


def timing(base_s: float, most_tokens: int) -> Timing:
    """Steps of `base_s` and 1 ms a token, prompt or output."""
    tokens = 1000
    step_times = times(lambda count: base_s + 1e-3 * count, np.zeros((1, tokens + 1)))
    wide = step_times._replace(
        dense_s=np.tile(base_s + 1e-3 * np.arange(tokens + 1), (1, 3, 1)),
        prefill_attention_s=np.zeros((1, 2, 2)),
    )
    return Timing(wide, False, False, 1, most_tokens)


def token_s(base_s: float, most_tokens: int, traffic: Traffic = WORK) -> list[float]:
    """For B = 1 .. BATCHES."""
    lengths = np.zeros(BATCHES + 1, np.int64)
    return loaded_token_s(timing(base_s, most_tokens), lengths, traffic).tolist()[1:]


def test_every_output_token_pays_for_its_part_of_the_prompt() -> None:
    """A request of 4 outputs computes 100 + 3 tokens in 4 steps, which B of them share."""
    expected = [103e-3 / 4 + 20e-3 / batch for batch in range(1, BATCHES + 1)]
    assert token_s(20e-3, 1000) == pytest.approx(expected, rel=1e-4)


def test_prompts_without_room_wait_and_cost_no_more() -> None:
    """7 requests bring 1.75 prompts and 5.25 decodes a step, 180.25 tokens of 200; 8 of them 206."""
    found = token_s(20e-3, 200)
    assert found[:7] == pytest.approx(token_s(20e-3, 1000)[:7], rel=0.003)
    assert np.isnan(found[7:]).all()


def test_a_prompt_longer_than_a_step_takes_several() -> None:
    """Room for 100 tokens: 400 take 4 steps. 4 + 3 steps and 403 tokens for 4 outputs."""
    long = replace(WORK, prompt_tokens=400.0)
    assert token_s(20e-3, 101, long)[0] == pytest.approx((7 * 20e-3 + 403e-3) / 4, rel=0.005)


def test_a_step_after_an_unforeseen_end_costs_only_under_async_scheduling() -> None:
    surplus = replace(WORK, unforeseen_ends=np.ones(1))
    lengths = np.zeros(2, np.int64)
    waits, ahead = (
        float(loaded_token_s(replace(timing(20e-3, 1000), is_async=is_async), lengths, surplus)[1])
        for is_async in (False, True)
    )
    assert waits == pytest.approx((103e-3 + 4 * 20e-3) / 4)
    assert ahead == pytest.approx((104e-3 + 5 * 20e-3) / 4)


@given(st.integers(1, 60), st.floats(1.01, 40.0), st.floats(1.01, 10.0))
def test_prompts_are_conserved_and_never_more_than_the_room(size: int, steps: float, slack: float) -> None:
    load = Load(size, 3, size / steps, size / steps * slack)
    counts, shares = prompts_beside(load)
    assert shares.sum() == pytest.approx(1.0)
    assert counts @ shares == pytest.approx(load.joining)
    assert counts.max() <= load.room
    assert (shares >= 0.0).all()


def test_prompts_join_as_independently_as_the_binomial_says() -> None:
    """2 requests of 4 steps each: P(0, 1, 2 prompts) = 9/16, 6/16, 1/16."""
    counts, shares = prompts_beside(Load(2, 0, 0.5, 50.0))
    assert counts[:3].tolist() == [0.0, 1.0, 2.0]
    assert shares[:3] == pytest.approx([9 / 16, 6 / 16, 1 / 16])


@pytest.mark.parametrize("drafts", [0, 1, 3, 5])
@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("engine.async_scheduling=false",),
        ("workload.ignore_eos=false",),
        ("workload.output_tokens=6",),
        ("workload.output_tokens={distribution: lognormal, mean: 60, cv: 1.5}",),
    ],
    ids=["async", "sync", "unforeseen stops", "short", "of many lengths"],
)
def test_simulated_requests_take_part_in_as_many_steps_as_counted(
    drafts: int, overrides: tuple[str, ...]
) -> None:
    """Steps of a request: its standard deviation is below 8 % of the mean, below 0.2 % for 2,000 of them.

    0.6 % is three of those or more: a false alarm in 1 of 300 for each fixed seed and case.
    """
    config = compose(
        [f"speculation.num_speculative_tokens={max(drafts, 1)}", "workload.request_rate=30", *overrides]
    )
    run = simulate(config if drafts else without_drafter(config))
    counted, traffic = run.tally.batch_size_steps.sum(axis=0), run.traffic
    entries = counted @ np.arange(len(counted)) / config.workload.requests
    surplus = float(traffic.unforeseen_ends[drafts]) if config.engine.async_scheduling else 0.0
    assert entries == pytest.approx(1.0 + traffic.verifications[drafts] + surplus, rel=0.006)
