"""TensorRT-LLM's draft_len_schedule: its own lookup, both ways, and through the command line."""

import shlex
from bisect import bisect_left

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_sim.compose import Composer, compose
from cluster_sim.errors import UserError
from cluster_sim.speculation.schedule import dense_lookup
from cluster_sim.speculation.trtllm import from_trtllm, to_trtllm

KEY = "speculation.draft_len_schedule"


def oracle(mapping: dict[int, int], batch_size: int) -> int:
    """The rule of get_draft_len_for_batch_size (tensorrt_llm/_torch/speculative/interface.py)."""
    keys = sorted(mapping)
    index = bisect_left(keys, batch_size)
    return mapping[keys[index]] if index < len(keys) else 0


@st.composite
def mappings(draw: st.DrawFn) -> dict[int, int]:
    """Schedules that TensorRT-LLM takes: the smallest key has the longest drafts, others may rise again."""
    longest = draw(st.integers(1, 7))
    keys = sorted(draw(st.sets(st.integers(1, 60), min_size=1, max_size=6)))
    return {key: longest if key == keys[0] else draw(st.integers(0, longest)) for key in keys}


def test_the_example_of_the_documentation() -> None:
    """../shared/spec-decode-facts.md D10: 4 x 4, 4 x 2, 24 x 1, then 0."""
    ranges = from_trtllm({4: 4, 8: 2, 32: 1}, 512)
    assert ranges == [[1, 4, 4], [5, 8, 2], [9, 32, 1], [33, 512, 0]]
    assert dense_lookup(ranges, 40, 4)[1:].tolist() == [4] * 4 + [2] * 4 + [1] * 24 + [0] * 8


def test_a_schedule_that_covers_all_seats_needs_no_tail() -> None:
    assert from_trtllm({4: 4, 32: 1}, 32) == [[1, 4, 4], [5, 32, 1]]
    assert from_trtllm({4: 4, 32: 1}, 8) == [[1, 4, 4], [5, 32, 1]]


@given(mapping=mappings(), max_num_seqs=st.integers(1, 80))
def test_every_batch_size_drafts_as_in_tensorrt_llm(mapping: dict[int, int], max_num_seqs: int) -> None:
    longest = mapping[min(mapping)]
    dense = dense_lookup(from_trtllm(mapping, max_num_seqs), max_num_seqs, longest)
    assert dense[1:].tolist() == [oracle(mapping, size) for size in range(1, max_num_seqs + 1)]


@given(mapping=mappings(), max_num_seqs=st.integers(1, 80))
def test_there_and_back_is_the_same_dense_lookup(mapping: dict[int, int], max_num_seqs: int) -> None:
    longest = mapping[min(mapping)]
    dense = dense_lookup(from_trtllm(mapping, max_num_seqs), max_num_seqs, longest)
    back = to_trtllm(dense)
    assert dense_lookup(from_trtllm(back, max_num_seqs), max_num_seqs, longest).tolist() == dense.tolist()
    assert len(back) <= len(mapping)


def test_the_tail_of_vllm_becomes_a_key_and_its_zero_becomes_implicit() -> None:
    assert to_trtllm(dense_lookup([[1, 4, 3], [5, 8, 1]], 64, 3)) == {4: 3, 64: 1}
    assert to_trtllm(dense_lookup([[1, 4, 3], [5, 8, 0]], 64, 3)) == {4: 3}
    assert to_trtllm(dense_lookup([[1, 4, 3], [5, 8, 0], [9, 12, 2]], 64, 3)) == {4: 3, 8: 0, 64: 2}


def test_a_schedule_that_drafts_most_in_the_middle_has_no_form_in_tensorrt_llm() -> None:
    with pytest.raises(UserError) as caught:
        to_trtllm(dense_lookup([[1, 4, 1], [5, 8, 3]], 8, 3))
    assert str(caught.value) == (
        f"no draft length may exceed that of the smallest batches (1), but got 8: 3 ({KEY}). "
        "Use vLLM's num_speculative_tokens_per_batch_size."
    )
    with pytest.raises(UserError, match="the smallest batches must draft"):
        to_trtllm(np.zeros(9, np.int64))


@pytest.mark.parametrize("text", ["{4:4,8:2,32:1}", "{8:2,4:4,32:1}", '{"4": 4, "8": 2, "32": 1}'])
def test_a_user_may_write_it_as_tensorrt_llm_has_it(text: str) -> None:
    speculation = compose([f"{KEY}={text}", "engine.max_num_seqs=64"]).speculation
    assert speculation.num_speculative_tokens == 4
    assert speculation.num_speculative_tokens_per_batch_size == [
        [1, 4, 4],
        [5, 8, 2],
        [9, 32, 1],
        [33, 64, 0],
    ]
    assert speculation.draft_len_schedule is None


def test_an_arm_of_a_sweep_may_have_it() -> None:
    composer = Composer(["engine.max_num_seqs=16"])
    speculation = composer.variant({KEY: {4: 5, 8: 2}}).speculation
    assert speculation.num_speculative_tokens == 5
    assert speculation.num_speculative_tokens_per_batch_size == [[1, 4, 5], [5, 8, 2], [9, 16, 0]]


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (
            f"{KEY}=4",
            f"draft_len_schedule must map batch sizes to draft lengths, but got 4 ({KEY}). "
            "Give it as TensorRT-LLM has it, for example {4: 4, 8: 2, 32: 1}.",
        ),
        (
            f"'{KEY}={{}}'",
            f"draft_len_schedule must map batch sizes to draft lengths, but got {{}} ({KEY}). "
            "Give it as TensorRT-LLM has it, for example {4: 4, 8: 2, 32: 1}.",
        ),
        (
            f"{KEY}={{0:4}}",
            f"a batch size must be a whole number of 1 or more, but got 0: 4 ({KEY}). "
            "Count requests from 1, for example {4: 4, 8: 2, 32: 1}.",
        ),
        (
            f"{KEY}={{1-4:4}}",
            f"a batch size must be a whole number of 1 or more, but got 1-4: 4 ({KEY}). "
            "Count requests from 1, for example {4: 4, 8: 2, 32: 1}.",
        ),
        (
            f"{KEY}={{4:-1}}",
            f"a draft length must be a whole number of 0 or more, but got 4: -1 ({KEY}). "
            "Use 0 to draft nothing.",
        ),
        (
            f'\'{KEY}={{"4": 4, "04": 2}}\'',
            f"batch sizes must differ, but got {{'4': 4, '04': 2}} ({KEY}). Keep one of them.",
        ),
        (
            f"{KEY}={{4:0}}",
            f"the smallest batches must draft, but got 4: 0 ({KEY}). "
            "Choose speculation=none, or let the smallest batches draft.",
        ),
        (
            f"{KEY}={{4:2,8:3}}",
            f"no draft length may exceed that of the smallest batches (2), but got 8: 3 ({KEY}). "
            "Use vLLM's num_speculative_tokens_per_batch_size.",
        ),
        (
            f"{KEY}={{4:4,8:2}} speculation.num_speculative_tokens=3",
            "num_speculative_tokens must be the draft length of the smallest batches (4), but got 3 "
            "(speculation.num_speculative_tokens). Leave it out, or set it to 4.",
        ),
        (
            f"{KEY}={{4:4}} 'speculation.num_speculative_tokens_per_batch_size=[[1,4,4]]'",
            "a schedule is given once, but got draft_len_schedule and num_speculative_tokens_per_batch_size "
            f"({KEY}). Leave one of them out.",
        ),
        (
            f"speculation=none {KEY}={{4:4}}",
            f"draft_len_schedule has no effect with method none, but got {{4: 4}} ({KEY}). "
            "Write speculation=none without it, or choose a method: speculation=eagle3.",
        ),
    ],
)
def test_a_broken_rule_gets_its_one_line(command: str, text: str) -> None:
    with pytest.raises(UserError) as caught:
        compose(shlex.split(command))
    assert str(caught.value) == text


def test_broken_json_gets_its_one_line() -> None:
    with pytest.raises(UserError) as caught:
        compose([f'{KEY}={{"4": 4,}}'])
    text = str(caught.value)
    assert text.startswith(
        f"{KEY} must be JSON, but got '{{\"4\": 4,}}': "
    )  # then json's reason and its place
    assert text.endswith(
        f"({KEY}). Correct it: names and text in double quotes, no comma before a closing bracket."
    )


@given(
    mapping=st.dictionaries(
        st.integers(-2, 9) | st.text(max_size=3), st.integers(-2, 9) | st.floats() | st.none(), max_size=3
    )
)
def test_anything_is_a_schedule_or_one_line(mapping: dict[object, object]) -> None:
    try:
        outcome = str(dense_lookup(from_trtllm(mapping, 8), 8, 9).size)
    except UserError as error:
        outcome = str(error)
    assert outcome == "9" or ("but got" in outcome and "\n" not in outcome)
