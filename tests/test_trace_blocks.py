"""Formats that tell the content of prompts in blocks: Mooncake, vLLM's timed_trace, Qwen-Bailian."""

from pathlib import Path

import numpy as np
import pytest
import trace_examples as examples
from trace_examples import error_of, read, warnings_of

from cluster_sim.traces import read_trace
from cluster_sim.traces.chains import chained


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return tmp_path / "trace"


def test_mooncake_is_in_ms_and_its_last_block_may_be_cut(trace: Path) -> None:
    rows = read(trace, examples.MOONCAKE)
    assert (rows.arrival_s.tolist(), rows.block_tokens) == ([0.0, 1.5], 512)
    assert rows.block_start.tolist() == [0, 3, 6]
    assert rows.block_ids.tolist()[:2] == rows.block_ids.tolist()[3:5]
    assert rows.block_ids[2] != rows.block_ids[5]
    assert rows.known_tokens.tolist() == [1030, 1500]


def test_ids_of_a_block_alone_count_only_behind_the_same_blocks(trace: Path) -> None:
    """VLLM's timed_trace: 4412, 7 at the start is other content than 4412, 7 behind 981."""
    rows = read(trace, examples.TIMED_TRACE)
    assert (rows.arrival_s.tolist(), rows.block_tokens) == ([12.5, 13.0], 16)
    assert len(set(rows.block_ids.tolist())) == 5


def test_times_without_ids_are_ms_only_if_whole(trace: Path) -> None:
    plain = {"input_length": 5, "output_length": 5}
    assert read(trace, examples.lines({"timestamp": 2000, **plain})).arrival_s.tolist() == [2.0]
    assert read(trace, examples.lines({"timestamp": 2.5, **plain})).arrival_s.tolist() == [2.5]


def test_a_wrong_number_of_ids_is_named(trace: Path) -> None:
    content = examples.MOONCAKE + examples.lines(
        {"timestamp": 1, "input_length": 1030, "output_length": 1, "hash_ids": [0, 1]}
    )
    assert error_of(trace, content) == (
        "hash_ids must be one per block of input_length, of 512 tokens (Mooncake), 16 (vLLM timed_trace) or "
        "another power of two, here 3 of 512, but got 2 (FILE, line 3). Correct or remove the line."
    )


def test_the_number_of_ids_tells_other_blocks_than_mooncakes(trace: Path) -> None:
    rows = read(trace, examples.MOONCAKE_64)
    assert (rows.arrival_s.tolist(), rows.block_tokens) == ([0.0, pytest.approx(0.1005)], 64)
    assert rows.known_tokens.tolist() == [640, 650]
    assert (rows.session.tolist(), rows.warnings) == ([0, -1], ())
    longer = examples.lines({"timestamp": 0, "input_length": 900, "output_length": 1, "hash_ids": [4]})
    assert read(trace, longer).block_tokens == 1024


def test_times_that_are_hardly_in_their_unit_are_questioned(trace: Path) -> None:
    in_ms = examples.TIMED_TRACE.replace("12.5", "12500").replace("13.0", "30000")
    assert warnings_of(read(trace, in_ms), trace) == [
        "FILE: times read as s leave 1.75e+04 s between requests; if they are ms, divide them by 1000"
    ]
    plain = [{"timestamp": second, "input_length": 5, "output_length": 5} for second in range(3)]
    assert warnings_of(read(trace, examples.lines(*plain)), trace) == [
        "FILE: times read as ms leave 0.001 s between requests; if they are s, multiply them by 1000"
    ]


def test_bailian_has_classes_and_conversations(trace: Path) -> None:
    rows = read(trace, examples.BAILIAN)
    assert (rows.arrival_s.tolist(), rows.block_tokens) == ([10.5, 11.0, 61.25, 70.0], 16)
    assert [rows.class_names[number] for number in rows.workload_class] == ["text", "search", "text", "text"]
    assert rows.session.tolist() == [0, 1, 0, 0]
    assert rows.known_tokens.tolist() == [33, 32, 60, 80]
    assert rows.block_ids[:3].tolist() == rows.block_ids[5:8].tolist()


@pytest.mark.parametrize(
    ("parents", "sessions"),
    [
        ((-1, 0, 1, 2), (0, 0, 0, 0)),
        ((7, 7, -1, 2), (0, 1, 2, 2)),  # the first turns are not in the file
        ((0, 1, 2, 3), (0, 1, 2, 3)),
    ],
)
def test_a_bailian_conversation_begins_where_no_parent_is_found(
    trace: Path, parents: tuple[int, ...], sessions: tuple[int, ...]
) -> None:
    plain = {"timestamp": 0.5, "input_length": 5, "output_length": 5}
    requests = [{"chat_id": chat, "parent_chat_id": parent, **plain} for chat, parent in enumerate(parents)]
    assert read(trace, examples.lines(*requests)).session.tolist() == list(sessions)


@pytest.mark.parametrize("step", [1, 2**60])
def test_chains_are_equal_exactly_where_all_ids_so_far_are(step: int) -> None:
    generator = np.random.default_rng(5)
    lengths = generator.integers(0, 6, 60)
    start = np.concatenate(([0], np.cumsum(lengths)))
    ids = step * generator.integers(0, 3, start[-1])
    numbers = chained(start, ids)
    prefixes = [
        tuple(ids[first : first + depth + 1])
        for first, length in zip(start[:-1], lengths, strict=True)
        for depth in range(length)
    ]
    for one in range(len(prefixes)):
        for other in range(one):
            assert (numbers[one] == numbers[other]) == (prefixes[one] == prefixes[other])


def test_ids_that_stand_for_whole_chains_are_kept() -> None:
    """Each follows the same id wherever it stands: to renumber them would take a sort for every depth."""
    start = np.array([0, 3, 3, 5, 8])
    ids = np.array([0, 1, 2, 0, 1, 0, 1, 5])
    assert chained(start, ids) is ids
    ids[3] = 2  # follows 1 before, and starts a request here
    assert chained(start, ids) is not ids


@pytest.mark.shared
def test_the_mooncake_conversation_trace_is_read_whole(shared: Path) -> None:
    rows = read_trace(shared / "traces" / "mooncake-conversation.jsonl")
    assert (len(rows.arrival_s), rows.format) == (12031, "Mooncake JSON lines, times in ms")
    assert rows.prompt_tokens.sum() == 144793823
    assert rows.warnings == ()
