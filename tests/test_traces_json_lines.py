"""Traces in JSON lines: what is read, and the one line that names what cannot be."""

import json
from pathlib import Path
from typing import Any

import pytest

from cluster_sim.errors import UserError
from cluster_sim.traces import TraceRows, read_trace

LINES = """{"arrival_s": 0, "prompt_tokens": 40, "output_tokens": 8, "block_ids": [7, 8, 9], "class": "chat"}
{"arrival_s": 1, "prompt_tokens": 33, "output_tokens": 15, "block_ids": [7, 8], "class": "c", "priority": -2}
{"output_tokens": 1, "prompt_tokens": 1, "arrival_s": 1.5}
"""
REQUEST = {"arrival_s": 0.5, "prompt_tokens": 40, "output_tokens": 8}


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


def test_json_lines_become_columns(trace: Path) -> None:
    rows = read(trace, LINES)
    assert rows.arrival_s.tolist() == [0, 1, 1.5]
    assert rows.prompt_tokens.tolist() == [40, 33, 1]
    assert rows.output_tokens.tolist() == [8, 15, 1]
    assert rows.priority.tolist() == [0, -2, 0]
    assert [rows.class_names[number] for number in rows.workload_class] == ["chat", "c", "default"]
    assert rows.block_ids.tolist() == [7, 8, 9, 7, 8]
    assert rows.block_start.tolist() == [0, 3, 5, 5]
    assert rows.warnings == ()


def test_requests_of_one_session_have_one_number_and_others_none(trace: Path) -> None:
    names = ["a", 7, None, "a", 7]
    rows = read(trace, "\n".join(request(session=name) for name in names))
    assert rows.session.tolist() == [0, 1, -1, 0, 1]
    assert rows.warnings == ()


def test_null_stands_for_what_may_be_left_out(trace: Path) -> None:
    rows = read(
        trace, request(priority=None, session=None, block_ids=None) + "\n" + request(**{"class": None})
    )
    assert (rows.class_names, rows.priority.tolist(), rows.warnings) == (("default",), [0, 0], ())


COUNT = "must be a whole number from 1 to 2147483647"
OBJECT = "a line must be one JSON object"
IDS = "block_ids must be a list of whole numbers from 0 to 9223372036854775807"
FIX = "Correct or remove the line."


@pytest.mark.parametrize(
    ("line", "rule", "got", "remedy"),
    [
        ("", OBJECT, "''", f"{FIX[:-1]}: Expecting value at column 1."),
        ("[1]", OBJECT, "'[1]'", FIX),
        ("{} {}", OBJECT, "'{} {}'", f"{FIX[:-1]}: Extra data at column 4."),
        ('{"arrival_s": NaN}', OBJECT, "'{\"arrival_s\": NaN}'", f"{FIX[:-1]}: NaN is not a JSON number."),
        (
            '{"arrival_s": 1}',
            "a request must have prompt_tokens",
            "'{\"arrival_s\": 1}'",
            "Add prompt_tokens.",
        ),
        (
            request(timestamp=3),
            "a request must have no unknown keys",
            "'timestamp'",
            "Leave it out; the keys are arrival_s, prompt_tokens, output_tokens, class, priority, session, "
            "block_ids.",
        ),
        (request(arrival_s="1"), "arrival_s must be a number of seconds from 0 to 1e+11", '"1"', FIX),
        (request(arrival_s=-1), "arrival_s must be a number of seconds from 0 to 1e+11", "-1", FIX),
        (
            request(arrival_s=1.7e12),
            "arrival_s must be a number of seconds from 0 to 1e+11",
            "1700000000000.0",
            FIX,
        ),
        (request(prompt_tokens=0), f"prompt_tokens {COUNT}", "0", FIX),
        (request(prompt_tokens=True), f"prompt_tokens {COUNT}", "true", FIX),
        (request(prompt_tokens=1.0), f"prompt_tokens {COUNT}", "1.0", FIX),
        (request(output_tokens=0), f"output_tokens {COUNT}", "0", FIX),
        (request(output_tokens=2**31), f"output_tokens {COUNT}", "2147483648", FIX),
        (request(output_tokens=None), f"output_tokens {COUNT}", "null", FIX),
        (request(priority=0.5), "priority must be a whole number within +-2147483647", "0.5", FIX),
        (request(**{"class": ""}), "class must be a name", '""', FIX),
        (request(**{"class": "\ud800"}), "class must be a name", '"\\ud800"', FIX),
        (request(session=[1]), "session must be text or a whole number", "[1]", FIX),
        (request(block_ids="1"), IDS, '"1"', FIX),
        (request(block_ids=[1, -1]), IDS, "[1, -1]", FIX),
        (request(block_ids=[2**63]), IDS, "[9223372036854775808]", FIX),
        (
            request(block_ids=[7, 8, 9, 10]),
            "block_ids must be at most one per full block of 16 tokens, here 3",
            "4",
            "Leave out the ids of blocks that are not full.",
        ),
        (
            request(block_ids=[7, 9]),
            "equal block_ids must mean equal content from the start, so follow the same id",
            "9 after 7",
            "Number the blocks anew.",
        ),
        (
            request(block_ids=[8]),
            "equal block_ids must mean equal content from the start, so follow the same id",
            "8 after nothing",
            "Number the blocks anew.",
        ),
    ],
)
def test_a_bad_json_line_is_named(trace: Path, line: str, rule: str, got: str, remedy: str) -> None:
    assert error_of(trace, with_line(LINES, 2, line)) == f"{rule}, but got {got} (FILE, line 2). {remedy}"


def test_deep_nesting_and_endless_numbers_are_malformed_lines(trace: Path) -> None:
    assert error_of(trace, '{"class": ' + "[" * 100_000).startswith(f"{OBJECT}, but got '")
    assert error_of(trace, f'{{"arrival_s": {"9" * 5000}}}').startswith(f"{OBJECT}, but got '")
