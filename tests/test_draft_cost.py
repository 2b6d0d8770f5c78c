"""What K drafts take, put together by hand from a drafter's tables: the formulas of draft_cost.py."""

from dataclasses import replace

import numpy as np
import pytest
from example_bundle import BUNDLE, CONFIG

from cluster_sim.bundle.architecture import Parallel
from cluster_sim.compose import compose
from cluster_sim.config import DraftCost, Method, SpeculationConfig
from cluster_sim.draft_cost import DraftArrays, DraftTables, draft_arrays, of_bundle, of_roofline
from cluster_sim.speculation.proposer import Passes, passes_of

MODEL, H100, EAGLE3 = CONFIG.model, CONFIG.hardware, CONFIG.speculation
TOKENS, REQUESTS, DRAFTS = 64, 8, 4
NOT_CAPTURED = np.zeros(0, np.int64)
CAPTURED = np.array([1, 2, 4, 8, 16, 32])
PREPARE_S, LAUNCH_S = 100.0, 0.5
METHOD_OF = {
    Passes.sequential: Method.eagle,
    Passes.one: Method.parallel,
    Passes.heads: Method.medusa,
    Passes.host: Method.ngram,
}


def first_s(tokens: int) -> float:
    return 3.0 + 2.0 * tokens


def next_s(rows: int) -> float:
    return 1.0 + 0.25 * rows


def head_s(rows: int) -> float:
    return 0.5 + 0.125 * rows


def tables(passes: Passes, launch_s: float = LAUNCH_S, is_chain: bool = False) -> DraftTables:
    """Tables of the three lines above, and a microsecond a KV token."""
    axis = np.array([1, 2, 128])
    first, further, head = (np.array([line(int(at)) for at in axis]) for line in (first_s, next_s, head_s))
    if passes in (Passes.heads, Passes.host):
        first = np.zeros(3)
    parameters = {
        "prepare_s": PREPARE_S,
        "pass_launch_s": launch_s,
        "attention_s_per_kv_token": 1e-6,
        "num_hidden_layers": 1.0,
    }
    return DraftTables(passes, axis, first, further, head, parameters, is_chain)


def arrays(
    passes: Passes, captured: np.ndarray = NOT_CAPTURED, launch_s: float = LAUNCH_S, is_chain: bool = False
) -> DraftArrays:
    speculation = replace(EAGLE3, method=METHOD_OF[passes])
    counts = (TOKENS, REQUESTS, DRAFTS)
    return draft_arrays(tables(passes, launch_s, is_chain), speculation, counts, captured)


@pytest.mark.parametrize("drafts", range(1, DRAFTS + 1))
def test_sequential_drafts_are_a_pass_over_the_step_and_a_pass_of_a_token_for_each_further_one(drafts):
    """first(T) + head(n) + (K - 1) (next(n) + head(n))."""
    cost = arrays(Passes.sequential)
    assert cost.first_s[20] == PREPARE_S + first_s(20)
    assert cost.more_s[drafts, 5] == head_s(5) + (drafts - 1) * (next_s(5) + head_s(5))


@pytest.mark.parametrize("drafts", range(1, DRAFTS + 1))
def test_a_block_drafts_all_at_once(drafts):
    """first(T) + next(n (1 + K)) + head(n K)."""
    cost = arrays(Passes.one)
    assert cost.first_s[20] == PREPARE_S + first_s(20)
    assert cost.more_s[drafts, 5] == next_s(5 * (1 + drafts)) + head_s(5 * drafts)


@pytest.mark.parametrize("drafts", range(1, DRAFTS + 1))
def test_each_head_of_medusa_reads_its_own_weights(drafts):
    """K (next(n) + head(n)), after the same preparation; a step's other tokens cost it nothing."""
    cost = arrays(Passes.heads)
    assert (cost.first_s == 0).all()
    assert cost.more_s[drafts, 5] == PREPARE_S + drafts * (next_s(5) + head_s(5))
    assert (cost.kv_s == 0).all()


@pytest.mark.parametrize("drafts", range(1, DRAFTS + 1))
def test_several_modules_each_pass_over_the_tokens_of_the_decodes(drafts):
    """first(T) + head(n) + (K - 1) (first(n (1 + K)) + head(n)): each keeps KV of every token."""
    cost = arrays(Passes.sequential, is_chain=True)
    further_s = first_s(5 * (1 + drafts)) + head_s(5)
    assert cost.more_s[drafts, 5] == head_s(5) + (drafts - 1) * further_s


def test_a_look_up_on_the_host_costs_the_same_for_any_number_of_drafts():
    cost = arrays(Passes.host)
    assert (cost.first_s == 0).all()
    assert cost.more_s[1:, 5].tolist() == [PREPARE_S + head_s(5)] * DRAFTS


@pytest.mark.parametrize("passes", Passes)
def test_no_drafts_cost_the_first_pass_alone(passes):
    """K = 0 inside a schedule; what has no pass over the step's tokens costs nothing."""
    cost = arrays(passes)
    assert (cost.more_s[0] == 0).all()
    pays = passes in (Passes.sequential, Passes.one)
    assert cost.first_s[20] == (PREPARE_S + first_s(20) if pays else 0)


@pytest.mark.parametrize(
    ("passes", "reads"),
    [
        (Passes.sequential, [1, 1, 2, 3, 4]),  # the pass over the step's tokens attends too
        (Passes.one, [0, 1, 1, 1, 1]),  # writing KV reads none
        (Passes.heads, [0, 0, 0, 0, 0]),
        (Passes.host, [0, 1, 1, 1, 1]),  # a search of the text
    ],
)
def test_passes_read_the_kv_of_the_decodes(passes, reads):
    assert arrays(passes).kv_s == pytest.approx(1e-6 * np.array(reads))


def test_a_pass_takes_its_launches_at_least():
    """The head of the first pass hides in its launches as far as they wait."""
    slow_s = 30.0
    cost = arrays(Passes.sequential, launch_s=slow_s)
    assert cost.first_s[4] == PREPARE_S + slow_s  # kernels take 11 s
    assert cost.first_s[20] == PREPARE_S + first_s(20)
    # 2 requests, 2 drafts: 6 tokens, 15 s of kernels, 15 s of waiting, in which 0.75 s of head fit
    assert cost.more_s[2, 2] == slow_s
    # 5 requests, 2 drafts: 15 tokens take 33 s, no waiting
    assert cost.more_s[2, 5] == head_s(5) + slow_s
    assert arrays(Passes.one, launch_s=slow_s).first_s[4] == PREPARE_S + first_s(4)  # a few kernels, no pass
    assert arrays(Passes.one, launch_s=slow_s).more_s[1, 2] == slow_s
    assert arrays(Passes.heads, launch_s=slow_s).more_s[3, 2] == PREPARE_S + 3 * slow_s


def test_passes_are_padded_to_captured_sizes_and_heads_are_not():
    """20 tokens run as 32, 5 requests as 8; beyond the largest size there is no graph and no padding."""
    cost = arrays(Passes.sequential, CAPTURED)
    assert cost.first_s[20] == PREPARE_S + first_s(32)
    assert cost.first_s[33] == PREPARE_S + first_s(33)
    assert cost.more_s[2, 5] == head_s(5) + next_s(8) + head_s(5)
    assert arrays(Passes.one, CAPTURED).more_s[2, 5] == next_s(16) + head_s(10)


def test_beyond_the_tables_costs_grow_along_their_last_two_points():
    counts = (256, 4, 1)
    cost = draft_arrays(tables(Passes.sequential), replace(EAGLE3, method=Method.eagle), counts, NOT_CAPTURED)
    assert cost.first_s[256] == PREPARE_S + first_s(256)


def given(method: Method, pass_s: float = 0.25) -> SpeculationConfig:
    return replace(EAGLE3, method=method, draft_cost=DraftCost.given, draft_pass_s=pass_s)


@pytest.mark.parametrize(
    ("method", "first", "passes"),
    [
        (Method.eagle, 0.25, [0, 0, 1, 2, 3]),  # K passes in all, one at K = 0
        (Method.parallel, 0.25, [0, 1, 1, 1, 1]),
        (Method.medusa, 0.0, [0, 1, 2, 3, 4]),
        (Method.ngram, 0.0, [0, 1, 1, 1, 1]),
    ],
)
def test_a_given_time_is_that_of_each_pass(method, first, passes):
    cost = draft_arrays(None, given(method), (TOKENS, REQUESTS, DRAFTS), NOT_CAPTURED)
    assert (cost.first_s == first).all()
    assert cost.more_s.tolist() == [[0.25 * number] * (REQUESTS + 1) for number in passes]
    assert (cost.kv_s == 0).all()


@pytest.mark.parametrize("method", [Method.eagle, Method.medusa, Method.parallel, Method.ngram])
def test_zero_is_zero_everywhere(method):
    free = replace(EAGLE3, method=method, draft_cost=DraftCost.zero)
    cost = draft_arrays(tables(passes_of(method)), free, (TOKENS, REQUESTS, DRAFTS), NOT_CAPTURED)
    assert not any(array.any() for array in vars(cost).values())


def test_a_drafter_without_tables_is_never_free():
    with pytest.raises(ValueError, match="a drafter whose cost is not given needs tables"):
        draft_arrays(None, EAGLE3, (TOKENS, REQUESTS, DRAFTS), NOT_CAPTURED)


@pytest.mark.parametrize(
    "method", [Method.eagle, Method.eagle3, Method.ngram, Method.suffix, Method.parallel]
)
def test_the_roofline_of_a_drafter_is_what_a_roofline_bundle_holds_of_it(method):
    counts = (8192, 64, 3)
    held = of_bundle(BUNDLE, method)
    derived = of_roofline(method, MODEL, H100, Parallel(), None)
    assert held is not None
    for one, other in zip(
        vars(draft_arrays(held, replace(EAGLE3, method=method), counts, CAPTURED)).values(),
        vars(draft_arrays(derived, replace(EAGLE3, method=method), counts, CAPTURED)).values(),
        strict=True,
    ):
        assert one == pytest.approx(other, rel=1e-6)


def test_a_bundle_without_a_drafter_says_so():
    assert of_bundle(BUNDLE, Method.draft_model) is None
    assert of_bundle(BUNDLE, Method.medusa) is None


def test_a_larger_draft_model_takes_longer():
    small, large = (compose([f"model={name}"]).model for name in ("llama-3.2-1b", "llama-3.1-8b"))
    one, eight = (of_roofline(Method.draft_model, MODEL, H100, Parallel(), draft) for draft in (small, large))
    assert (eight.next_s > 4 * one.next_s).all()
    assert eight.parameters["pass_launch_s"] > one.parameters["pass_launch_s"]


def test_a_medusa_head_reads_its_block_and_its_vocabulary():
    """Matrices of hidden x hidden and hidden x vocabulary at the fitted bandwidth, 0.875 x 3.35 TB/s."""
    medusa = of_roofline(Method.medusa, MODEL, H100, Parallel(), None)
    block_s = 2 * 4096 * 4096 / (0.875 * 3.35e12)
    vocabulary_s = 2 * 4096 * 128_256 / (0.875 * 3.35e12)
    assert block_s < medusa.next_s[0] < block_s + 20e-6
    assert vocabulary_s < medusa.head_s[0] < vocabulary_s + 60e-6
    assert not medusa.first_s.any()
