"""Draft schedules: vLLM's own expansions, laws, and the text of every error."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_sim.build import build
from cluster_sim.compose import compose
from cluster_sim.errors import UserError
from cluster_sim.speculation.schedule import dense_lookup, describe

KEY = "speculation.num_speculative_tokens_per_batch_size"


# From vLLM 0.33.0's own function (../shared/spec-decode-facts.md section D10, vllm-scheduler.md section 7).
@pytest.mark.parametrize(
    ("ranges", "max_num_seqs", "num_speculative_tokens", "expected"),
    [
        ([[1, 4, 2], [5, 512, 0]], 8, 2, [2] * 4 + [0] * 4),
        ([[1, 2, 3], [10, 12, 1]], 16, 3, [3] * 9 + [1] * 7),
        ([[1, 16, 3], [32, 128, 2]], 40, 2, [2] * 40),
        ([[1, 8, 5]], 10, 7, [5] * 10),
        ([[5, 8, 0], [1, 4, 3]], 8, 3, [3] * 4 + [0] * 4),
        ([["1", "4", 2]], 5, 4, [2] * 5),
        ([[1, 1, 5], [4, 5, 1]], 8, 3, [3, 3, 3, 1, 1, 1, 1, 1]),
    ],
)
def test_ranges_expand_as_in_vllm(
    ranges: list[Any], max_num_seqs: int, num_speculative_tokens: int, expected: list[int]
) -> None:
    dense = dense_lookup(ranges, max_num_seqs, num_speculative_tokens)
    assert dense.tolist() == [num_speculative_tokens, *expected]
    assert dense.dtype == np.int64


def test_tuples_digits_and_whole_floats_are_numbers_as_for_vllm() -> None:
    assert dense_lookup(((" 1 ", "2", "3"), (3.0, 4, 1)), 4, 3).tolist() == [3, 3, 3, 1, 1]


def test_huge_numbers_do_no_harm() -> None:
    assert dense_lookup([[1, 2, 10**17], [10**17, 10**18, 0]], 3, 4).tolist() == [4, 4, 4, 4]


@given(lengths=st.lists(st.integers(0, 7), min_size=1, max_size=40))
def test_describing_and_expanding_are_inverse(lengths: list[int]) -> None:
    dense = np.array([7, *lengths])
    ranges = describe(dense)
    assert dense_lookup(ranges, len(lengths), 7).tolist() == dense.tolist()
    assert all(before[2] != after[2] for before, after in pairwise(ranges))


@st.composite
def schedules(draw: st.DrawFn) -> list[list[int]]:
    """Sound schedules: ranges in any order, with gaps, and K above the limit too."""
    firsts = sorted(draw(st.sets(st.integers(2, 60), max_size=6)) | {1})
    ranges = []
    for first, following in zip(firsts, [*firsts[1:], 80], strict=True):
        last = draw(st.integers(first, following - 1))
        ranges.append([first, last, draw(st.integers(0, 9))])
    return draw(st.permutations(ranges))


@given(ranges=schedules(), max_num_seqs=st.integers(1, 80), num_speculative_tokens=st.integers(1, 7))
def test_a_schedule_and_its_description_expand_alike(
    ranges: list[list[int]], max_num_seqs: int, num_speculative_tokens: int
) -> None:
    """Describing writes gaps, clamps and the tail out; expanding it again changes nothing."""
    dense = dense_lookup(ranges, max_num_seqs, num_speculative_tokens)
    described = describe(dense)
    assert dense_lookup(described, max_num_seqs, num_speculative_tokens).tolist() == dense.tolist()
    assert described[0][0] == 1
    assert described[-1][1] == max_num_seqs
    assert all(after[0] == before[1] + 1 for before, after in pairwise(described))
    assert dense.max() <= num_speculative_tokens


@given(ranges=schedules(), size=st.integers(1, 80))
def test_a_batch_size_has_the_k_of_the_last_range_that_starts_at_or_below_it(
    ranges: list[list[int]], size: int
) -> None:
    expected = max(entry for entry in ranges if entry[0] <= size)[2]
    assert dense_lookup(ranges, size, 9)[size] == expected


def test_data_parallel_ranks_set_a_schedule_aside_and_say_so() -> None:
    """As vLLM does (../shared/vllm-scheduler.md section 7): every step drafts num_speculative_tokens."""
    schedule = "speculation.num_speculative_tokens_per_batch_size=[[1, 2, 3], [3, 8, 0]]"
    built = build(compose([schedule, "cluster.data_parallel_size=2", "workload.requests=4"]))
    assert [line for line in built.warnings if "set aside" in line] == [
        "as in vLLM, num_speculative_tokens_per_batch_size is set aside with data_parallel_size 2: "
        "every step drafts num_speculative_tokens=3"
    ]
    assert set(built.rules.draft_length_at.ravel()) == {3}
    alone = build(compose([schedule, "cluster.instances=2", "workload.requests=4"]))
    assert not [line for line in alone.warnings if "set aside" in line]
    assert alone.rules.draft_length_at[1, 1:9].tolist() == [3, 3, 0, 0, 0, 0, 0, 0]


def test_a_schedule_is_cut_to_num_speculative_tokens_and_says_so() -> None:
    """As vLLM does, without a word."""
    schedule = "speculation.num_speculative_tokens_per_batch_size=[[1, 16, 5], [17, 64, 1]]"
    built = build(compose([schedule, "speculation.num_speculative_tokens=3", "workload.requests=4"]))
    assert [line for line in built.warnings if "is cut to" in line] == [
        "as in vLLM, the schedule's K=5 is cut to num_speculative_tokens=3: "
        "set speculation.num_speculative_tokens=5 to draft as many"
    ]
    assert built.rules.draft_length_at.max() == 3
    whole = build(compose([schedule, "speculation.num_speculative_tokens=5", "workload.requests=4"]))
    assert not [line for line in whole.warnings if "is cut to" in line]


@given(order=st.permutations([[1, 4, 5], [5, 9, 3], [12, 20, 2], [30, 64, 0]]))
def test_the_order_of_ranges_does_not_matter(order: list[list[int]]) -> None:
    assert dense_lookup(order, 64, 5).tolist() == dense_lookup(sorted(order), 64, 5).tolist()


@pytest.mark.parametrize(
    ("ranges", "text"),
    [
        (
            None,
            f"a draft schedule must be given, but got null ({KEY}). "
            "Give one, for example [[1, 16, 3], [17, 64, 1], [65, 512, 0]].",
        ),
        (
            {"1-4": 3, "5": 1, " 6 - 512 ": 0},
            "a draft schedule must be a list of [first, last, K]: vLLM dropped the mapping, "
            f"but got {{'1-4': 3, '5': 1, ' 6 - 512 ': 0}} ({KEY}). "
            "Write [[1, 4, 3], [5, 5, 1], [6, 512, 0]].",
        ),
        (
            {"small": 3},
            "a draft schedule must be a list of [first, last, K]: vLLM dropped the mapping, "
            f"but got {{'small': 3}} ({KEY}). "
            "Write a list, for example [[1, 16, 3], [17, 64, 1], [65, 512, 0]].",
        ),
        (
            "[[1, 4, 3]]",
            f"a draft schedule must be a list of [first, last, K], but got '[[1, 4, 3]]' ({KEY}). "
            "Give one, for example [[1, 16, 3], [17, 64, 1], [65, 512, 0]].",
        ),
        (
            [],
            f"a draft schedule must have at least one range, but got [] ({KEY}). "
            "Give one, for example [[1, 16, 3], [17, 64, 1], [65, 512, 0]].",
        ),
        (
            [[1, 64, 0, 32768, 3]],
            "a range must be [first, last, K]: vLLM 0.33 has no context axis (vllm#48627), "
            f"but got [1, 64, 0, 32768, 3] ({KEY}[0]). Write [1, 64, 3], for every context length.",
        ),
        (
            [[1, 64, 3], [65, 256, 0, "all", 3]],
            f"ctx_last of a range must be a whole number, but got 'all' ({KEY}[1]). "
            "Write each range as three whole numbers, for example [1, 16, 3].",
        ),
        (
            [[1, 4, 3], [5, 8]],
            f"each range must be [first, last, K], but got [5, 8] ({KEY}[1]). "
            "Write it as three whole numbers, for example [1, 16, 3].",
        ),
        (
            ["1-4"],
            f"each range must be [first, last, K], but got '1-4' ({KEY}[0]). "
            "Write it as three whole numbers, for example [1, 16, 3].",
        ),
        (
            [["1", "4", 2.9]],
            f"K of a range must be a whole number, but got 2.9 ({KEY}[0]). "
            "Write each range as three whole numbers, for example [1, 16, 3].",
        ),
        (
            [[True, 4, 2]],
            f"first of a range must be a whole number, but got true ({KEY}[0]). "
            "Write each range as three whole numbers, for example [1, 16, 3].",
        ),
        (
            [[0, 4, 3]],
            f"a range must start and end at batch size 1 or more, but got [0, 4, 3] ({KEY}[0]). "
            "Count requests from 1.",
        ),
        (
            [[1, 4, 3], [8, 5, 1]],
            f"first <= last must hold, but got [8, 5, 1] ({KEY}[1]). Swap them: [5, 8, 1].",
        ),
        ([[1, 4, -1]], f"K must be at least 0, but got [1, 4, -1] ({KEY}[0]). Use 0 to draft nothing."),
        (
            [[4, 8, 0], [1, 4, 1]],
            f"ranges must not overlap, but got [4, 8, 0] beside [1, 4, 1] ({KEY}[0]). "
            "Let it start at 5, or the other end at 3.",
        ),
        (
            [[2, 4, 1]],
            f"the first range must start at batch size 1, but got [2, 4, 1] ({KEY}[0]). "
            "Add a range for 1 to 1, or let this one start at 1.",
        ),
    ],
)
def test_a_broken_rule_gets_its_one_line(ranges: object, text: str) -> None:
    with pytest.raises(UserError) as caught:
        dense_lookup(ranges, 8, 3)
    assert str(caught.value) == text


def test_rules_are_checked_in_the_order_of_vllm() -> None:
    """Each entry for itself first, then overlap, then the start at 1."""
    with pytest.raises(UserError, match="K must be at least 0"):
        dense_lookup([[2, 4, 1], [3, 5, -1]], 8, 3)
    with pytest.raises(UserError, match="must not overlap"):
        dense_lookup([[2, 4, 1], [3, 5, 1]], 8, 3)


@pytest.mark.parametrize(
    ("limits", "key"), [((0, 3), "engine.max_num_seqs"), ((8, 0), "speculation.num_speculative_tokens")]
)
def test_limits_must_be_positive(limits: tuple[int, int], key: str) -> None:
    with pytest.raises(UserError) as caught:
        dense_lookup([[1, 4, 3]], *limits)
    assert (
        str(caught.value)
        == f"a draft schedule needs a limit of 1 or more, but got 0 ({key}). Set {key} to 1 or more."
    )


@given(
    ranges=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
        max_leaves=8,
    )
)
def test_anything_is_a_schedule_or_one_line(ranges: object) -> None:
    try:
        outcome = str(dense_lookup(ranges, 8, 3).size)
    except UserError as error:
        outcome = str(error)
    assert outcome == "9" or ("but got" in outcome and "\n" not in outcome)
