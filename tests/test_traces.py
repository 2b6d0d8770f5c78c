"""Trace files: what is read, and the one line that names what cannot be."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_sim.errors import UserError
from cluster_sim.traces import KNOWN, TraceRows, read_trace

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:15:50.9951690,879,55
2023-11-17 00:00:00,91,16
"""
LINES = """{"arrival_s": 0, "prompt_tokens": 40, "output_tokens": 8, "block_ids": [7, 8, 9], "class": "chat"}
{"arrival_s": 1, "prompt_tokens": 33, "output_tokens": 15, "block_ids": [7, 8], "class": "c", "priority": -2}
{"output_tokens": 1, "prompt_tokens": 1, "arrival_s": 1.5}
"""
REQUEST = {"arrival_s": 0.5, "prompt_tokens": 40, "output_tokens": 8}
PARTS = (
    b"\n",
    b"\r\n",
    b",",
    b"{",
    b"}",
    b"[",
    b"-",
    b"1e9",
    b"NaN",
    b'"',
    b"\x00",
    b"\xff",
    b"2023-11-16 18:15:46.5",
)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return tmp_path / "trace"


def read(trace: Path, content: str | bytes) -> TraceRows:
    trace.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_trace(trace)


def error_of(trace: Path, content: str | bytes) -> str:
    """The error of a file with this content, with the file called FILE."""
    with pytest.raises(UserError) as caught:
        read(trace, content)
    return str(caught.value).replace(str(trace), "FILE")


def with_line(content: str, number: int, line: str) -> str:
    lines = content.splitlines()
    lines[number - 1] = line
    return "\n".join(lines) + "\n"


def request(**values: Any) -> str:
    return json.dumps(REQUEST | values)


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_azure_lines_become_columns(trace: Path, ending: str) -> None:
    rows = read(trace, AZURE.replace("\n", ending))
    assert rows.arrival_s.tolist() == [0.0, 4.314579, 4.314579, 20653.31941]
    assert rows.prompt_tokens.tolist() == [374, 396, 879, 91]
    assert rows.output_tokens.tolist() == [44, 109, 55, 16]
    assert rows.class_names == ("default",)
    assert (rows.block_ids.size, rows.warnings) == (0, ())


@pytest.mark.parametrize("content", [AZURE, LINES])
def test_a_byte_order_mark_and_blank_ends_are_ignored(trace: Path, content: str) -> None:
    plain = read(trace, content)
    decorated = read(trace, "\ufeff" + content.rstrip() + "\r\n\n \n")
    assert decorated.arrival_s.tolist() == plain.arrival_s.tolist()


def test_requests_out_of_order_are_sorted_with_a_warning_and_ties_stay(trace: Path) -> None:
    lines = [
        request(arrival_s=2, block_ids=[1, 2]),
        request(arrival_s=1, prompt_tokens=50, block_ids=[3]),
        request(arrival_s=2, prompt_tokens=60, block_ids=[1, 4]),
        request(arrival_s=1, prompt_tokens=70),
    ]
    rows = read(trace, "\n".join(lines))
    assert rows.arrival_s.tolist() == [1, 1, 2, 2]
    assert rows.prompt_tokens.tolist() == [50, 70, 40, 60]
    assert rows.block_ids.tolist() == [3, 1, 2, 1, 4]
    assert rows.block_start.tolist() == [0, 1, 1, 3, 5]
    assert rows.warnings == (f"{trace}: a request precedes the one before it 2 times; sorted by arrival",)


TIME = "TIMESTAMP must be a date and time like 2023-11-16 18:15:46.6805900"
CONTEXT = "ContextTokens must be a whole number from 0 to 2147483647"
GENERATED = "GeneratedTokens must be a whole number from 0 to 2147483647"
COLUMNS = "a line must have 3 columns, TIMESTAMP,ContextTokens,GeneratedTokens"


@pytest.mark.parametrize(
    ("line", "rule", "got"),
    [
        ("2023-11-16 18:15:50.99,396", COLUMNS, "'2023-11-16 18:15:50.99,396'"),
        ("2023-11-16 18:15:50.99,396,109,1", COLUMNS, "'2023-11-16 18:15:50.99,396,109,1'"),
        ("", TIME, "''"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens", TIME, "'TIMESTAMP'"),
        ("18:15:50.99,396,109", TIME, "'18:15:50.99'"),
        ("2023-02-30 18:15:50.99,396,109", TIME, "'2023-02-30 18:15:50.99'"),
        ("9999-11-16 18:15:50.99,396,109", TIME, "'9999-11-16 18:15:50.99'"),
        ("2023-11-16 18:15:50.99,x,109", CONTEXT, "'x'"),
        ("2023-11-16 18:15:50.99,-1,109", CONTEXT, "'-1'"),
        ("2023-11-16 18:15:50.99,1.5,109", CONTEXT, "'1.5'"),
        ("2023-11-16 18:15:50.99,,109", CONTEXT, "''"),
        ('2023-11-16 18:15:50.99,"396,109', CONTEXT, "'\"396'"),
        ("2023-11-16 18:15:50.99,396,2147483648", GENERATED, "2147483648"),
        (f"2023-11-16 18:15:50.99,396,{'9' * 99}", GENERATED, f"'{'9' * 59}..."),
    ],
)
def test_a_bad_azure_line_is_named(trace: Path, line: str, rule: str, got: str) -> None:
    expected = f"{rule}, but got {got} (FILE, line 3). Correct or remove the line."
    assert error_of(trace, with_line(AZURE, 3, line)) == expected


def test_a_file_cut_in_the_middle_of_a_line_is_refused(trace: Path) -> None:
    assert "(FILE, line 3)" in error_of(trace, LINES[:-20])
    assert "(FILE, line 5)" in error_of(trace, AZURE[:-5])


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b" \n\n", "a trace must hold at least one request, but got an empty file (FILE). Choose another."),
        (
            b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n",
            "a trace must hold at least one request, but got only a header (FILE, line 1). "
            "Add one line per request.",
        ),
        (
            b"Timestamp,Request tokens\n5,472\n",
            f"a trace must be in a known format, but got 'Timestamp,Request tokens' (FILE, line 1). {KNOWN}",
        ),
        (
            AZURE.encode().replace(b"879", b"87\xff"),
            "a trace must be UTF-8 text, but got the byte 0xff (FILE, line 4). Save the file as UTF-8.",
        ),
        (
            b"\x1f\x8b\x08\x00",
            "a trace must be a text file, but got gzip data (FILE). Unpack it first.",
        ),
        (
            b"PK\x03\x04\x14\x00",
            "a trace must be a text file, but got a zip archive (FILE). Unpack it first.",
        ),
        (
            b"PAR1\x15\x04\x15\x10PAR1",
            "a trace must be a text file, but got a parquet file (FILE). "
            "Write its rows as CSV or JSON lines.",
        ),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:44bf\nsize 144819209\n",
            "a trace must be a text file, but got a Git LFS pointer (FILE). "
            "Fetch what it points to with git lfs pull.",
        ),
        (
            b'[\n  {"id": "a_0", "conversations": [{"from": "human", "value": "Hello"}]}\n]\n',
            "a trace must be in a known format, but got ShareGPT texts, without arrivals and token counts "
            f"(FILE, line 1). {KNOWN}",
        ),
        (
            b'[{"arrival_s": 0, "prompt_tokens": 4, "output_tokens": 8}]\n',
            f"a trace must be in a known format, but got a JSON list (FILE, line 1). {KNOWN}",
        ),
        (
            b'{"request_id": 0, "type": "text", "input_length": 61, "output_length": 9, "duration": 14}\n',
            "a request must have timestamp, but got "
            '\'{"request_id": 0, "type": "text", "input_length": 61, "outp... (FILE, line 1). Add timestamp.',
        ),
        (
            LINES.encode().replace(b"33", b"3\x00"),
            "a trace must be UTF-8 text, but got the byte 0x00 (FILE, line 2). Save the file as UTF-8.",
        ),
    ],
)
def test_a_file_that_is_no_trace_gets_its_one_line(trace: Path, content: bytes, text: str) -> None:
    assert error_of(trace, content) == text


@pytest.mark.parametrize(("name", "found"), [("", "a directory"), ("none.csv", "no such file")])
def test_a_path_that_is_no_file_gets_its_one_line(tmp_path: Path, name: str, found: str) -> None:
    path = tmp_path / name
    with pytest.raises(UserError) as caught:
        read_trace(path)
    assert (
        str(caught.value) == f"a trace must be a file that can be read, but got {found} ({path}). "
        "Set workload.trace to one."
    )


def test_a_file_that_may_not_be_read_gets_its_one_line(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    text = "a trace must be a file that can be read, but got Permission denied (FILE). "
    text += "Set workload.trace to one."
    trace.touch()
    with pytest.raises(UserError) as caught:
        read_trace(trace)
    assert str(caught.value).replace(str(trace), "FILE") == text


@given(
    start=st.sampled_from([AZURE.encode(), LINES.encode()]),
    cuts=st.tuples(st.integers(0, 300), st.integers(0, 300)),
    middle=st.lists(st.sampled_from(PARTS) | st.binary(max_size=3), max_size=4),
)
def test_a_damaged_file_is_read_or_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, start: bytes, cuts: tuple[int, int], middle: list[bytes]
) -> None:
    trace = tmp_path_factory.getbasetemp() / "damaged.trace"
    trace.write_bytes(start[: cuts[0]] + b"".join(middle) + start[cuts[1] :])
    try:
        outcome: TraceRows | str = read_trace(trace)
    except UserError as error:
        outcome = str(error)
    if isinstance(outcome, str):
        assert "but got" in outcome
        assert "\n" not in outcome
    else:
        assert np.all(np.diff(outcome.arrival_s) >= 0)
        assert min(outcome.prompt_tokens.min(), outcome.output_tokens.min()) >= 1


@pytest.mark.shared
def test_the_azure_conversation_trace_is_read_whole(shared: Path) -> None:
    rows = read_trace(shared / "traces" / "azure-2023-conversation.csv")
    assert len(rows.arrival_s) == 19366
    assert rows.arrival_s[-1] == pytest.approx(3501.721937, abs=1e-9)
    assert rows.prompt_tokens.sum() == 22361870
    assert (rows.prompt_tokens.max(), rows.output_tokens.max()) == (14050, 1000)
    assert rows.warnings == ()


@pytest.mark.shared
@pytest.mark.parametrize(
    "name", ["rtx4090-llama-3.1-8b", "rtxpro6000-qwen3-32b", "rtxpro6000-qwen3-30b-a3b-instruct-2507"]
)
def test_the_measured_workloads_are_read_whole(shared: Path, name: str) -> None:
    rows = read_trace(shared / "measured-runs" / name / "workload.jsonl")
    assert len(rows.arrival_s) == 300
    assert np.array_equal(np.diff(rows.block_start), (rows.prompt_tokens + rows.output_tokens) // 16)
