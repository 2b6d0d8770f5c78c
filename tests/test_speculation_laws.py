"""Metamorphic laws of speculation: what must follow when one thing changes and all else stays.

Worlds of the engine tests have step times in powers of two, so equalities are exact; whole simulations go
through the configuration. Common random numbers: a text's tokens are as easy to draft in every arm.
"""

from dataclasses import replace

import numpy as np
import pytest
from engine_worlds import Asked, Scenario, Server, conditional_of, play
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_sim.compose import compose
from cluster_sim.engine.kinds import Outcome
from cluster_sim.engine.state import World
from cluster_sim.results import Run, latencies
from cluster_sim.run import simulate

SOME = settings(max_examples=60)
COMPLETED = int(Outcome.completed)


@st.composite
def crowds(draw: st.DrawFn) -> tuple[Asked, ...]:
    """Requests that come over a while; enough memory for all of them."""
    return tuple(
        Asked(
            arrival_s=draw(st.integers(0, 40)) * 0.25,
            prompt_tokens=draw(st.integers(2, 30)),
            max_tokens=draw(st.integers(1, 40)),
        )
        for _ in range(draw(st.integers(1, 12)))
    )


def in_order(requests: tuple[Asked, ...]) -> tuple[Asked, ...]:
    return tuple(sorted(requests, key=lambda asked: asked.arrival_s))


def server(drafts: int, draft_s: float = 0.0, **changes: object) -> Server:
    """Steps cost the same however many tokens they hold."""
    return replace(
        Server(max_num_seqs=16, max_num_batched_tokens=512, num_speculative_tokens=drafts, token_s=0.0),
        draft_s=draft_s,
        **changes,  # type: ignore[arg-type]
    )


def world(requests: tuple[Asked, ...], conditional: tuple[float, ...], one: Server) -> World:
    return play(Scenario(in_order(requests), (one,), conditional).rules())


def end_s(played: World) -> float:
    return float(played.log["last_token_s"].max())


# ---- in worlds of the engine ----


@pytest.mark.parametrize("drafts", [1, 2, 3, 7])
@pytest.mark.parametrize("tokens", [1, 2, 5, 16, 33])
def test_perfect_drafts_for_nothing_decode_k_plus_one_tokens_a_step(drafts: int, tokens: int) -> None:
    """The prompt's step emits one token, then ceil((OSL - 1) / (K + 1)) steps (facts D8)."""
    log = world((Asked(prompt_tokens=8, max_tokens=tokens),), (1.0,) * drafts, server(drafts)).log
    decode_steps = -(-(tokens - 1) // (drafts + 1))
    assert log["last_token_s"][0] - log["first_token_s"][0] == 0.5 * decode_steps
    assert log["emitted_tokens"][0] == tokens


@SOME
@given(requests=crowds(), drafts=st.integers(1, 4))
def test_luck_changes_when_tokens_come_and_never_how_many(requests: tuple[Asked, ...], drafts: int) -> None:
    good, bad = (world(requests, (rate,) * drafts, server(drafts)).log for rate in (1.0, 0.0))
    for log in (good, bad):
        assert (log["outcome"] == COMPLETED).all()
        assert log["emitted_tokens"].tolist() == [asked.max_tokens for asked in in_order(requests)]
    assert good["accepted_tokens"].sum() >= bad["accepted_tokens"].sum() == 0
    longer = np.array([asked.max_tokens for asked in in_order(requests)]) > drafts + 1
    assert (good["chunks"] <= bad["chunks"]).all()
    assert (good["chunks"] < bad["chunks"])[longer].all()


@SOME
@given(
    requests=crowds(),
    drafts=st.integers(1, 4),
    rates=st.lists(st.floats(0, 1), min_size=4, max_size=4),
    more=st.floats(0, 1),
)
def test_more_acceptance_at_equal_cost_never_takes_more_steps(
    requests: tuple[Asked, ...], drafts: int, rates: list[float], more: float
) -> None:
    """All come at once and steps cost the same: common random numbers make it hold on every path."""
    at_once = tuple(replace(asked, arrival_s=0.0) for asked in requests)
    worse = tuple(rates[:drafts])
    better = tuple(rate + more * (1.0 - rate) for rate in worse)
    logs = [world(at_once, conditional, server(drafts)).log for conditional in (worse, better)]
    assert (logs[1]["chunks"] <= logs[0]["chunks"]).all()
    assert (logs[1]["last_token_s"] <= logs[0]["last_token_s"]).all()


@SOME
@given(requests=crowds(), drafts=st.integers(1, 4), is_async=st.booleans())
def test_drafting_nothing_for_nothing_is_the_same_as_no_speculation(
    requests: tuple[Asked, ...], drafts: int, is_async: bool
) -> None:
    """K = 0 everywhere with a free drafter, and neither lookahead nor padding: the same bytes."""
    nothing = server(drafts, schedule=(0,) * 16, is_async=is_async)
    off = server(0, is_async=is_async)
    logs = [world(requests, (1.0,) * 4, one).log.tobytes() for one in (nothing, off)]
    assert logs[0] == logs[1]


@SOME
@given(requests=crowds(), drafts=st.integers(1, 3), pass_s=st.sampled_from([0.0, 0.125]))
def test_longer_drafts_of_the_same_acceptance_length_are_never_faster(
    requests: tuple[Asked, ...], drafts: int, pass_s: float
) -> None:
    """One more draft that is never accepted: the same tokens a step, and one pass more."""
    at_once = tuple(replace(asked, arrival_s=0.0) for asked in requests)
    rates = (0.8, 0.6, 0.5)[:drafts]
    short = world(at_once, rates, server(drafts, pass_s))
    long = world(at_once, (*rates, 0.0), server(drafts + 1, pass_s))
    assert end_s(long) >= end_s(short)
    assert long.log["chunks"].tolist() == short.log["chunks"].tolist()


def test_marginals_and_conditionals_are_two_views_of_one_profile() -> None:
    """Facts D1: m = [.85, .255] is c = [.85, .3]."""
    assert conditional_of([0.85, 0.255]) == pytest.approx([0.85, 0.3])


# ---- in whole simulations ----


def run(*overrides: str) -> Run:
    return simulate(compose(["workload.requests=300", "workload.request_rate=20", *overrides]))


def acceptance(*marginals: float) -> list[str]:
    return [
        "speculation.acceptance.policy=per_position",
        f"speculation.acceptance.rates=[{', '.join(map(str, marginals))}]",
        "speculation.acceptance.rates_are=marginal",
    ]


def throughput_tok_s(result: Run) -> float:
    log = result.log
    span_s = log["last_token_s"].max() - result.requests["arrival_s"].min()
    return float(log["emitted_tokens"].sum() / span_s)


def test_everything_or_nothing_accepted_changes_every_answer() -> None:
    all_of_it, nothing = (run(*acceptance(rate, rate, rate)) for rate in (1.0, 0.0))
    assert (latencies(all_of_it).tpot_s < latencies(nothing).tpot_s).all()
    assert np.array_equal(all_of_it.log["emitted_tokens"], nothing.log["emitted_tokens"])


def test_more_acceptance_never_lowers_throughput_or_raises_tpot() -> None:
    profiles = [(0.2, 0.05, 0.01), (0.5, 0.3, 0.2), (0.7, 0.5, 0.4), (0.9, 0.8, 0.7), (1.0, 1.0, 1.0)]
    runs = [run("workload.request_rate=80", *acceptance(*profile)) for profile in profiles]
    rates = [throughput_tok_s(result) for result in runs]
    tpots = [float(np.nanmean(latencies(result).tpot_s)) for result in runs]
    assert rates == sorted(rates)
    assert tpots == sorted(tpots, reverse=True)


def test_a_free_drafter_is_never_slower_than_the_same_one_at_its_price() -> None:
    free, paid = run("speculation.draft_cost=zero"), run()
    assert (latencies(free).e2el_s <= latencies(paid).e2el_s).all()
    assert free.draft_cost.startswith("zero")


def test_tokens_drafted_are_those_of_the_schedule() -> None:
    """Drafted = sum of K over steps with drafts (facts D8), for static K."""
    result = run("speculation.num_speculative_tokens=2")
    verified = result.tally.verified.sum(axis=(0, 1))
    assert verified[[0, 1]].sum() == 0
    assert result.log["drafted_tokens"].sum() == 2 * verified[2].sum()
