"""Every reader on damaged files: a trace is read, or refused in one line; nothing else happens."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_examples import EXAMPLES

from cluster_sim.errors import UserError
from cluster_sim.traces import TraceRows, read_trace

PARTS = (
    *(b"\n", b"\r\n", b"\r", b",", b";", b"{", b"}", b"[", b"]", b":", b'"', b"'", b"-", b".", b" "),
    *(b"0", b"1e9", b"1e400", b"NaN", b"null", b"true", b"{}", b"[]", b"9" * 30, b"-1", b"0.5", b"1.0"),
    *(b"\x00", b"\xff", b"\xef\xbb\xbf", "é".encode(), b"\\ud800", b"hash_ids", b"benchmarks", b"TIMESTAMP,"),
)
CHANGES = st.lists(
    st.tuples(
        st.integers(0, 600),  # where
        st.integers(0, 40),  # bytes taken out
        st.lists(st.sampled_from(PARTS) | st.binary(max_size=3), max_size=3),  # put in
    ),
    max_size=4,
)


def outcome(trace: Path) -> TraceRows | str:
    """What reading the file gives: its requests, or the text of the error."""
    try:
        return read_trace(trace)
    except UserError as error:
        return str(error)


def check(read: TraceRows | str) -> None:
    if isinstance(read, str):
        assert "but got" in read
        assert "\n" not in read
        return
    assert np.all(np.isfinite(read.arrival_s))
    assert np.all(np.diff(read.arrival_s) >= 0)
    assert min(read.prompt_tokens.min(), read.output_tokens.min()) >= 1
    assert read.block_start[-1] == len(read.block_ids)
    assert len(set(read.class_names)) == len(read.class_names)


@pytest.mark.parametrize("name", EXAMPLES)
@settings(max_examples=150, deadline=None)
@given(changes=CHANGES)
def test_a_damaged_file_is_read_or_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, name: str, changes: list[tuple[int, int, list[bytes]]]
) -> None:
    data = EXAMPLES[name].encode()
    for place, taken, parts in changes:
        data = data[:place] + b"".join(parts) + data[place + taken :]
    trace = tmp_path_factory.getbasetemp() / "damaged.trace"
    trace.write_bytes(data)
    check(outcome(trace))


@pytest.mark.parametrize("name", EXAMPLES)
@settings(max_examples=40, deadline=None)
@given(cut=st.integers(0, 700))
def test_a_file_cut_anywhere_is_read_or_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, name: str, cut: int
) -> None:
    trace = tmp_path_factory.getbasetemp() / "cut.trace"
    trace.write_bytes(EXAMPLES[name].encode()[:cut])
    check(outcome(trace))
