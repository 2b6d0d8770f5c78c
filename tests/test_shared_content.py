"""What requests have in common: system prompts, conversations, and the blocks of other tools' traces.

Statistical tests have fixed seeds; each states how often a right implementation would fail at others.
"""

import itertools
import math
from pathlib import Path
from typing import Any

import kolmogorov
import numpy as np
import pytest
import trace_examples as examples
from hypothesis import given
from hypothesis import strategies as st

from cluster_sim.compose import compose
from cluster_sim.config import Arrivals, SharedPrefixConfig, TurnsConfig, WorkloadConfig
from cluster_sim.run import simulate
from cluster_sim.workload import Workload, build_workload


def made(seed: int = 0, block_size: int = 16, lookahead: int = 0, **values: Any) -> Workload:
    settings = {"requests": 2000, "request_rate": 8.0, "prompt_tokens": 100, "output_tokens": 50}
    return build_workload(WorkloadConfig(**(settings | values)), seed, block_size, lookahead)


def ids_of(workload: Workload, request: int) -> list[int]:
    start = workload.content_start
    return workload.content_ids[start[request] : start[request + 1]].tolist()


# ---- system prompts ----


def test_a_system_prompt_comes_before_the_drawn_prompt_in_its_share_of_the_requests() -> None:
    """Shares of 4 groups in 60 %: each within 5 standard errors: false alarm 3e-6."""
    workload = made(shared_prefix=SharedPrefixConfig(tokens=64, groups=4, share=0.6))
    has_one = workload.prompt_tokens == 164
    assert set(workload.prompt_tokens.tolist()) == {100, 164}
    assert np.array_equal(np.diff(workload.content_start), np.where(has_one, 4, 0))
    firsts = [ids_of(workload, request)[0] for request in np.flatnonzero(has_one)]
    counts = np.unique(firsts, return_counts=True)[1]
    assert len(counts) == 4
    assert counts == pytest.approx(2000 * 0.15, abs=5 * math.sqrt(2000 * 0.15 * 0.85))


def test_blocks_are_shared_by_a_group_and_by_no_other() -> None:
    workload = made(shared_prefix=SharedPrefixConfig(tokens=64, groups=4))
    chains = {tuple(ids_of(workload, request)) for request in range(2000)}
    assert len(chains) == 4
    assert len({number for chain in chains for number in chain}) == 4 * 4


def test_a_key_that_reaches_out_of_the_system_prompt_is_private() -> None:
    """64 tokens: 4 blocks of 16; with one token of lookahead the fourth key needs a token behind them."""
    prefix = SharedPrefixConfig(tokens=64)
    assert len(ids_of(made(shared_prefix=prefix), 0)) == 4
    assert len(ids_of(made(shared_prefix=prefix, lookahead=1), 0)) == 3
    assert len(ids_of(made(shared_prefix=prefix, block_size=128), 0)) == 0


def test_lengths_and_arrivals_stay_when_a_system_prompt_is_added() -> None:
    drawn = {"distribution": "lognormal", "mean": 500.0, "cv": 1.5}
    plain, more = (
        made(prompt_tokens=drawn, shared_prefix=SharedPrefixConfig(tokens=tokens)) for tokens in (None, 64)
    )
    assert np.array_equal(plain.arrival_s, more.arrival_s)
    assert np.array_equal(plain.prompt_tokens + 64, more.prompt_tokens)


def test_the_cache_finds_the_system_prompt() -> None:
    """All but the first requests hit its 32 full blocks; EAGLE-3 is off, so no block is held back."""
    run = simulate(
        compose(
            [
                *("speculation=none", "workload.requests=200", "workload.request_rate=4"),
                *("workload.shared_prefix.tokens=512", "workload.prompt_tokens=100"),
            ]
        )
    )
    assert np.array_equal(run.log["cached_tokens"][2:], np.full(198, 512))


# ---- conversations ----


def talks(seed: int = 0, lookahead: int = 0, **values: Any) -> Workload:
    return made(seed, lookahead=lookahead, turns=TurnsConfig(mean=4.0, gap_s=5.0), **values)


def turns_of(workload: Workload) -> dict[int, list[int]]:
    """Conversation -> its requests in order."""
    found: dict[int, list[int]] = {}
    for request, session in enumerate(workload.session.tolist()):
        found.setdefault(session, []).append(request)
    return found


def test_a_prompt_holds_all_turns_before_it_and_their_answers() -> None:
    drawn = {"distribution": "lognormal", "mean": 100.0, "cv": 0.5}
    workload = talks(prompt_tokens=drawn)
    for requests in turns_of(workload).values():
        for one, following in itertools.pairwise(requests):
            before = workload.prompt_tokens[one] + workload.output_tokens[one]
            assert workload.prompt_tokens[following] > before
            assert ids_of(workload, following)[: before // 16] == ids_of(workload, one)[: before // 16]


def test_conversations_share_nothing_but_their_system_prompt() -> None:
    workload = talks(shared_prefix=SharedPrefixConfig(tokens=40), requests=300)
    seen: dict[int, set[int]] = {}
    for request, session in enumerate(workload.session.tolist()):
        chain = ids_of(workload, request)
        assert len(set(chain)) == len(chain)
        assert chain[:2] == ids_of(workload, 0)[:2]  # 40 tokens: two full blocks
        for number in chain[2:]:
            seen.setdefault(number, set()).add(session)
    assert all(len(sessions) == 1 for sessions in seen.values())


def test_a_key_that_reaches_out_of_the_system_prompt_is_the_conversations() -> None:
    """32 tokens: the key of the second block of 16 covers one token more, the user's own."""
    workload = talks(shared_prefix=SharedPrefixConfig(tokens=32), requests=50, lookahead=1)
    chains = [ids_of(workload, requests[0]) for requests in turns_of(workload).values()]
    assert len({chain[0] for chain in chains}) == 1
    assert len({chain[1] for chain in chains}) == len(chains)


def test_turns_are_geometric_and_their_gaps_exponential() -> None:
    """Conversations of the first half of the time, which are over by the end. KS: false alarm 1e-6.

    Mean turns 4, variance 12, within 6 standard errors: false alarm 2e-9.
    """
    workload = talks(requests=20_000)
    groups = [
        requests
        for requests in turns_of(workload).values()
        if workload.arrival_s[requests[0]] < workload.arrival_s[-1] / 2
    ]
    lengths = np.array([len(requests) for requests in groups])
    assert lengths.mean() == pytest.approx(4.0, abs=6 * math.sqrt(12 / len(lengths)))
    gaps_s = np.concatenate([np.diff(workload.arrival_s[requests]) for requests in groups])
    assert kolmogorov.distance(gaps_s, lambda gap_s: -math.expm1(-gap_s / 5.0)) < kolmogorov.LIMIT


@pytest.mark.parametrize("process", ["poisson", "gamma", "constant"])
def test_the_rate_counts_turns(process: str) -> None:
    """8 requests/s from 100 s on, when conversations (15 s on average) come and go.

    Counts vary by E[n^2] / E[n] = 7 of their mean, or less; 6 standard errors: false alarm 2e-9.
    """
    burstiness = 1.0 if process == "gamma" else None
    workload = talks(requests=None, duration_s=1100.0, arrivals=Arrivals[process], burstiness=burstiness)
    late = (workload.arrival_s >= 100.0).sum()
    assert late == pytest.approx(8000, abs=6 * math.sqrt(7 * 8000))


@given(requests=st.integers(1, 300))
def test_fewer_requests_of_conversations_are_the_first_of_more(requests: int) -> None:
    drawn = {"distribution": "lognormal", "mean": 100.0, "cv": 0.5}
    whole, part = (talks(requests=count, prompt_tokens=drawn) for count in (300, requests))
    for column in ("arrival_s", "prompt_tokens", "output_tokens", "session"):
        assert np.array_equal(getattr(part, column), getattr(whole, column)[:requests])


def test_what_a_conversation_outgrows_is_rejected_and_counted() -> None:
    run = simulate(
        compose(
            [
                *("speculation=none", "workload.requests=200", "engine.max_model_len=2048"),
                *("workload.turns={mean: 8, gap_s: 2}", "router=session_hash"),
            ]
        )
    )
    rejected = int((run.requests["prompt_tokens"] >= 2048).sum())
    assert rejected > 0
    assert f"{rejected} requests rejected: prompt of max_model_len=2048 tokens or more" in run.warnings


# ---- blocks of 512 tokens ----


@pytest.mark.parametrize("block_size", [16, 32, 512, 784, 1024])
@pytest.mark.parametrize("lookahead", [0, 1])
def test_ids_of_512_tokens_become_keys_of_any_block_size(
    tmp_path: Path, block_size: int, lookahead: int
) -> None:
    """Two prompts of 1030 and 1500 tokens agree in 1024: so many keys are equal, and no other."""
    trace = tmp_path / "trace"
    trace.write_text(examples.MOONCAKE)
    workload = build_workload(WorkloadConfig(trace=str(trace)), 0, block_size, lookahead)
    one, other = ids_of(workload, 0), ids_of(workload, 1)
    assert (len(one), len(other)) == ((1030 - lookahead) // block_size, (1500 - lookahead) // block_size)
    equal = sum(a == b for a, b in zip(one, other, strict=False))
    assert equal == (1024 - lookahead) // block_size
    assert len({*one, *other}) == len(one) + len(other) - equal
