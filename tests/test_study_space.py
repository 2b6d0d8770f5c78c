"""The space of a study: parameters and schedules say the same, and every point is a schedule of vLLM."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from cluster_sim.speculation.schedule import dense_lookup
from cluster_sim.study.space import Candidate, Space

FREE = Space(lasts=(4, 16, 64), longest=3, most=256, is_monotone=False, searches_edges=True, choices=(2, 3))
FALLING = Space(lasts=(4, 16, 64), longest=3, most=256, is_monotone=True, searches_edges=False)


@st.composite
def points(draw: st.DrawFn, space: Space) -> dict[str, int]:
    return {name: draw(st.integers(low, high)) for name, (low, high) in space.bounds.items()}


@given(points(FREE))
def test_any_values_of_the_parameters_are_a_schedule_that_vllm_takes(parameters: dict[str, int]) -> None:
    candidate = FREE.candidate(parameters)
    ranges = candidate.ranges(256)
    if not ranges:
        ranges = ((1, 256, 0),)
    dense = dense_lookup([list(entry) for entry in ranges], 256, FREE.longest)
    firsts = np.array([1, *(last + 1 for last in candidate.lasts)])
    expected = [candidate.lengths[np.flatnonzero(firsts <= size)[-1]] for size in range(1, 257)]
    assert dense[1:].tolist() == expected


@given(points(FREE))
def test_a_candidates_parameters_mean_the_candidate(parameters: dict[str, int]) -> None:
    candidate = FREE.candidate(parameters)
    assert FREE.candidate(FREE.parameters(candidate)) == candidate


@given(points(FALLING))
def test_with_monotone_no_parameters_mean_drafts_that_rise(parameters: dict[str, int]) -> None:
    candidate = FALLING.candidate(parameters)
    assert list(candidate.lengths) == sorted(candidate.lengths, reverse=True)
    assert FALLING.candidate(FALLING.parameters(candidate)) == candidate


@given(points(FREE))
def test_neighbours_are_other_points_of_the_space(parameters: dict[str, int]) -> None:
    candidate = FREE.candidate(parameters)
    neighbours = list(FREE.neighbours(candidate))
    assert candidate not in neighbours
    for neighbour in neighbours:
        values = FREE.parameters(neighbour)
        assert all(low <= values[name] <= high for name, (low, high) in FREE.bounds.items())
        assert FREE.candidate(values) == neighbour


def test_neighbours_move_a_bucket_a_run_of_equal_buckets_an_edge_or_a_choice() -> None:
    small = Space((4,), longest=2, most=64, is_monotone=False, searches_edges=True, choices=(2,))
    found = list(small.neighbours(Candidate((1, 1), (4,), (0,))))
    assert found == [
        Candidate((2, 1), (4,), (0,)),
        Candidate((0, 1), (4,), (0,)),
        Candidate((1, 2), (4,), (0,)),
        Candidate((1, 0), (4,), (0,)),
        Candidate((2, 2), (4,), (0,)),
        Candidate((0, 0), (4,), (0,)),
        Candidate((1, 1), (2,), (0,)),
        Candidate((1, 1), (16,), (0,)),
        Candidate((1, 1), (4,), (1,)),
    ]


def test_with_monotone_no_neighbour_rises() -> None:
    found = FALLING.neighbours(Candidate((3, 2, 2, 0), (4, 16, 64)))
    assert [candidate.lengths for candidate in found] == [
        (2, 2, 2, 0),
        (3, 3, 2, 0),
        (3, 2, 1, 0),
        (3, 2, 2, 1),
        (3, 3, 3, 0),
        (3, 1, 1, 0),
    ]


@pytest.mark.parametrize(
    ("lengths", "seats", "ranges"),
    [
        ((3, 3, 1, 1), 256, ((1, 16, 3), (17, 256, 1))),
        ((3, 2, 1, 0), 16, ((1, 4, 3), (5, 16, 2))),
        ((2, 2, 2, 2), 256, ((1, 256, 2),)),
        ((0, 0, 1, 0), 256, ((1, 16, 0), (17, 64, 1), (65, 256, 0))),
        ((0, 0, 0, 3), 64, ()),
        ((0, 0, 0, 0), 256, ()),
    ],
)
def test_a_schedule_has_as_few_ranges_as_can_be_and_none_if_it_never_drafts(
    lengths: tuple[int, ...], seats: int, ranges: tuple[tuple[int, int, int], ...]
) -> None:
    assert Candidate(lengths, (4, 16, 64)).ranges(seats) == ranges


def test_the_nearest_candidate_has_in_each_bucket_the_draft_length_of_its_middle() -> None:
    """Middles of 1-4, 5-16, 17-64, 65-256 on a log scale: 2, 8, 32, 128."""
    schedule = [(1, 2, 3), (3, 31, 1), (32, 127, 2), (128, 256, 0)]
    free = Space((4, 16, 64), longest=3, most=256, is_monotone=False, searches_edges=False)
    assert free.nearest(schedule, ()).lengths == (3, 1, 2, 0)
    assert FALLING.nearest(schedule, ()).lengths == (3, 1, 1, 0)
