"""Replayed traces: cuts, rates, and what a trace tells the prefix cache."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_sim.config import WorkloadConfig
from cluster_sim.errors import UserError
from cluster_sim.workload import Workload, build_workload


def lines(*requests: dict[str, Any]) -> str:
    start = {"arrival_s": 0, "prompt_tokens": 100, "output_tokens": 100}
    return "\n".join(json.dumps(start | request) for request in requests)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.jsonl"
    arrivals_s = (100.0, 101.0, 103.0, 104.0, 110.0)
    path.write_text(
        lines(
            *({"arrival_s": time_s, "prompt_tokens": number + 1} for number, time_s in enumerate(arrivals_s))
        )
    )
    return path


def replay(path: Path, block_size: int = 16, lookahead: int = 0, **values: Any) -> Workload:
    return build_workload(WorkloadConfig(trace=str(path), **values), 0, block_size, lookahead)


def test_a_trace_starts_at_zero(trace: Path) -> None:
    whole = replay(trace)
    assert whole.arrival_s.tolist() == [0, 1, 3, 4, 10]
    assert whole.prompt_tokens.tolist() == [1, 2, 3, 4, 5]
    assert (whole.may_reject, whole.source) == (True, f"{trace} (JSON lines)")


def test_a_trace_is_cut_to_its_first_requests_and_to_a_duration(trace: Path) -> None:
    assert replay(trace, requests=3).arrival_s.tolist() == [0, 1, 3]
    assert replay(trace, duration_s=4.0).arrival_s.tolist() == [0, 1, 3]
    assert replay(trace, duration_s=1e9).arrival_s.tolist() == [0, 1, 3, 4, 10]


@pytest.mark.parametrize(
    ("requests", "expected_s"), [(None, [0, 0.2, 0.6, 0.8, 2]), (4, [0, 0.375, 1.125, 1.5])]
)
def test_what_is_replayed_of_a_trace_gets_the_rate(
    trace: Path, requests: int | None, expected_s: list[float]
) -> None:
    """The mean rate is (requests - 1) / span, taken after workload.requests has cut the trace."""
    scaled = replay(trace, requests=requests, request_rate=2.0)
    assert scaled.arrival_s == pytest.approx(expected_s)
    assert scaled.source == f"{trace} (JSON lines), rescaled to 2 requests/s"


def test_a_duration_counts_rescaled_seconds(trace: Path) -> None:
    assert replay(trace, duration_s=0.7, request_rate=2.0).arrival_s == pytest.approx([0, 0.2, 0.6])


def test_a_trace_cannot_give_more_requests_than_it_has(trace: Path) -> None:
    with pytest.raises(UserError) as caught:
        replay(trace, requests=6)
    text = "a trace of 5 requests cannot give more, but got 6 (workload.requests). "
    text += "Set it to 5 or less, or to null."
    assert str(caught.value) == text


def test_a_burst_without_a_span_cannot_be_rescaled(trace: Path) -> None:
    with pytest.raises(UserError) as caught:
        replay(trace, requests=1, request_rate=2.0)
    assert str(caught.value) == (
        f"a trace must span some time to be rescaled to a rate, but got 1 requests at one moment ({trace}) "
        "(workload.request_rate). Set it to null, or use more of the trace."
    )


# Content: requests 0 and 1 share three blocks, 2 shares one with both; the last one's content is not known.
SHARED = lines({"block_ids": [0, 1, 2, 3]}, {"block_ids": [0, 1, 2, 9]}, {"block_ids": [0, 5]}, {})


def hits(made: Workload, request: int, other: int) -> int:
    """Leading blocks of `request` with the ids of `other`'s."""
    mine, theirs = (
        made.content_ids[made.content_start[row] : made.content_start[row + 1]] for row in (request, other)
    )
    shorter = min(len(mine), len(theirs))
    return int(np.cumprod(mine[:shorter] == theirs[:shorter]).sum())


@pytest.mark.parametrize(
    ("block_size", "lookahead", "known_blocks", "shared_blocks"),
    [
        (16, 0, [4, 4, 2, 0], (3, 1)),
        (16, 1, [3, 3, 1, 0], (2, 0)),  # the key of the last shared block reaches into what differs
        (16, 16, [3, 3, 1, 0], (2, 0)),
        (16, 17, [2, 2, 0, 0], (1, 0)),
        (32, 0, [2, 2, 1, 0], (1, 0)),
        (32, 1, [1, 1, 0, 0], (1, 0)),
        (8, 0, [8, 8, 4, 0], (6, 2)),
        (24, 0, [2, 2, 1, 0], (2, 0)),
    ],
)
def test_a_trace_tells_which_blocks_are_equal(
    tmp_path: Path, block_size: int, lookahead: int, known_blocks: list[int], shared_blocks: tuple[int, int]
) -> None:
    path = tmp_path / "shared.jsonl"
    path.write_text(SHARED)
    made = replay(path, block_size, lookahead)
    assert np.diff(made.content_start).tolist() == known_blocks
    assert (hits(made, 0, 1), hits(made, 0, 2)) == shared_blocks


@given(
    lengths=st.lists(st.tuples(st.integers(0, 150), st.integers(1, 150)), min_size=2, max_size=5),
    block_size=st.integers(1, 48),
    lookahead=st.integers(0, 20),
)
def test_equal_ids_are_certain_and_few_are_missed(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[tuple[int, int]], block_size: int, lookahead: int
) -> None:
    """Each request begins with some of a common text and goes on alone: what two share is known."""
    requests = []
    for number, (common, own) in enumerate(lengths):
        ends = range(16, common + own + 1, 16)
        ids = [end if end <= common else 1000 * (number + 1) + end for end in ends]
        requests.append({"prompt_tokens": common + 1, "output_tokens": own, "block_ids": ids})
    path = tmp_path_factory.getbasetemp() / "texts.jsonl"
    path.write_text(lines(*requests))
    made = replay(path, block_size, lookahead)
    for number in range(1, len(lengths)):
        equal_tokens = min(lengths[0][0], lengths[number][0])
        truth = max(0, equal_tokens - lookahead) // block_size
        found = hits(made, 0, number)
        assert found <= truth
        assert (truth - found) * block_size <= max(16, block_size)
        keys = [
            set(made.content_ids[made.content_start[row] : made.content_start[row + 1]])
            for row in (0, number)
        ]
        assert len(keys[0] & keys[1]) == found


@pytest.mark.shared
def test_the_azure_trace_runs_at_the_rate_asked_for(shared: Path) -> None:
    path = shared / "traces" / "azure-2023-conversation.csv"
    made = replay(path, requests=2000, request_rate=16.0)
    assert len(made.arrival_s) == 2000
    assert made.arrival_s[-1] == pytest.approx(1999 / 16.0)
    assert np.all(np.diff(made.arrival_s) >= 0)


@pytest.mark.shared
def test_ids_of_a_measured_run_come_through_unchanged_without_lookahead(shared: Path) -> None:
    path = shared / "measured-runs" / "rtx4090-llama-3.1-8b" / "workload.jsonl"
    given_ids = [json.loads(line)["block_ids"] for line in path.read_text().splitlines()]
    made = replay(path)
    flat = np.array([number for ids in given_ids for number in ids])
    assert np.diff(made.content_start).tolist() == [len(ids) for ids in given_ids]
    assert np.array_equal(
        np.unique(made.content_ids, return_inverse=True)[1], np.unique(flat, return_inverse=True)[1]
    )
