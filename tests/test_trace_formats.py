"""Formats of traces: how each is recognised, what of it is read, and what is said of its oddities."""

import json
from pathlib import Path

import numpy as np
import pytest
import trace_examples as examples
from trace_examples import error_of, read, warnings_of

from cluster_sim.traces import read_trace


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return tmp_path / "trace"


@pytest.mark.parametrize("name", examples.EXAMPLES)
@pytest.mark.parametrize("start", ["", "\ufeff"])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_the_content_tells_the_format(trace: Path, name: str, start: str, ending: str) -> None:
    content = examples.EXAMPLES[name].replace("\n", ending)
    trace.write_bytes((start + content).encode())
    rows = read_trace(trace)
    assert (rows.format, rows.warnings) == (name, ())
    assert len(rows.arrival_s) >= 2


def test_azure_of_2024_names_its_zone(trace: Path) -> None:
    rows = read(trace, examples.AZURE_2024)
    assert rows.arrival_s.tolist() == pytest.approx([0.0, 0.99007], abs=1e-9)
    assert (rows.prompt_tokens.tolist(), rows.output_tokens.tolist()) == ([2162, 2399], [5, 6])


def test_azure_of_2025_counts_the_requests_that_have_images(trace: Path) -> None:
    rows = read(trace, examples.AZURE_2025.replace("819Z,0", "819Z,16"))
    assert rows.arrival_s.tolist() == pytest.approx([0.0, 5.55], abs=1e-9)
    assert rows.prompt_tokens.tolist() == [770, 949]
    assert warnings_of(rows, trace) == ["FILE: images of 1 of 2 requests, whose encoding takes no time here"]


def test_columns_may_stand_in_any_order(trace: Path) -> None:
    rows = read(trace, "Extra,GeneratedTokens,TIMESTAMP,ContextTokens\nx,5,2023-11-16 18:15:46,7\n")
    assert (rows.prompt_tokens.tolist(), rows.output_tokens.tolist()) == ([7], [5])


def test_burstgpt_has_classes_and_sessions(trace: Path) -> None:
    rows = read(trace, examples.BURSTGPT_NEW)
    assert rows.arrival_s.tolist() == [5.0, 6.0, 9.0]
    assert [rows.class_names[number] for number in rows.workload_class] == [
        "Conversation log",
        "API log",
        "Conversation log",
    ]
    assert rows.session.tolist() == [0, -1, 0]
    assert read(trace, examples.BURSTGPT_OLD).session.tolist() == [-1, -1]


def test_aiperf_leaves_out_its_warm_up_and_what_failed(trace: Path) -> None:
    content = (
        examples.lines(examples.record(10**18, 9, 9, benchmark_phase="warmup"))
        + examples.lines(examples.record(10**18 + 10**9, 550, None))
        + examples.lines(examples.record(10**18 + 3 * 10**9, 550, 7))
    )
    rows = read(trace, content)
    assert rows.prompt_tokens.tolist() == [550]
    assert warnings_of(rows, trace) == [
        "FILE: left out 1 of 3 records, of aiperf's warm-up phase",
        "FILE: left out 1 without output tokens, of 2 requests",
    ]


def test_records_that_failed_have_neither_prompt_nor_output(trace: Path) -> None:
    content = examples.lines(examples.record(10**18, None, None), examples.record(10**18 + 1, 550, 7))
    assert warnings_of(read(trace, content), trace) == [
        "FILE: left out 1 without prompt and output tokens, of 2 requests"
    ]


def test_aiperf_sessions_are_runs_of_a_conversation_and_not_entries_of_its_data_set(trace: Path) -> None:
    content = examples.lines(
        *(
            examples.record(10**18 + turn, 9, 9, conversation_id="x", x_correlation_id=run)
            for turn, run in enumerate(["a", "b", "a", None])
        )
    )
    assert read(trace, content).session.tolist() == [0, 1, 0, 2]


def test_aiperfs_first_releases_name_start_and_phase_otherwise(trace: Path) -> None:
    rows = read(trace, examples.AIPERF_FIRST)
    assert (rows.arrival_s.tolist(), rows.prompt_tokens.tolist()) == ([0.0, 1.0], [550, 551])
    assert warnings_of(rows, trace) == ["FILE: left out 1 of 3 records, of aiperf's warm-up phase"]


def test_guidellm_reports_of_either_version_are_read(trace: Path) -> None:
    rows = read(trace, examples.GUIDELLM_V2)
    assert (rows.arrival_s.tolist(), rows.prompt_tokens.tolist()) == ([0.0, 1.5], [128, 64])
    older = read(trace, examples.GUIDELLM_V1)
    assert older.arrival_s.tolist() == [0.0, 2.0]
    assert warnings_of(older, trace) == ["FILE: 2 benchmarks, one after another"]


def test_a_wrong_value_in_a_report_is_found(trace: Path) -> None:
    content = examples.GUIDELLM_V2.replace("1000.5", "1000500000000.5")
    assert error_of(trace, content) == (
        "benchmarks[0].requests.successful[0].request_start_time must be a number of seconds from 0 to "
        "1e+11, but got 1000500000000.5 (FILE). Correct the report."
    )


def test_a_report_of_means_alone_is_told_what_it_lacks(trace: Path) -> None:
    assert error_of(trace, '{"benchmarks": [{"metrics": {}}]}') == (
        "benchmarks[0].requests must be lists of requests under successful, incomplete, errored, but got "
        "null (FILE). Let guidellm write its requests too."
    )


def test_requests_without_tokens_are_left_out_and_counted(trace: Path) -> None:
    content = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
        f"2023-11-16 18:15:4{second},{prompt},{output}\n"
        for second, (prompt, output) in enumerate([(5, 0), (0, 5), (0, 0), (6, 7), (8, 0)])
    )
    rows = read(trace, content)
    assert (rows.prompt_tokens.tolist(), rows.arrival_s.tolist()) == ([6], [3.0])
    assert warnings_of(rows, trace) == [
        "FILE: left out 1 without prompt tokens, 2 without output tokens, 1 without either, of 5 requests"
    ]
    nothing = "\n".join(line for line in content.splitlines() if not line.endswith(",7"))
    assert error_of(trace, nothing) == (
        "a trace must hold at least one request with prompt and output tokens, but got 1 without prompt "
        "tokens, 2 without output tokens, 1 without either, of 4 requests (FILE). Choose another."
    )


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (
            examples.BURSTGPT_OLD.replace("45.5", "45500000000000"),
            "Timestamp must be a number of seconds from 0 to 1e+11, but got 4.55e+13 (FILE, line 3). "
            "Correct or remove the line.",
        ),
        (
            examples.AZURE_2023.replace("ContextTokens,", "ContextTokens,ContextTokens,"),
            "a header must name each column once, but got 'ContextTokens' twice (FILE, line 1). "
            "Rename or remove one of them.",
        ),
        (
            examples.MOONCAKE.replace("1500,", '"1500",', 1),
            'timestamp must be a number from 0 to 1e+14, but got "1500" (FILE, line 2). '
            "Correct or remove the line.",
        ),
        (
            examples.TIMED_TRACE.replace("13.0", "1.7e12"),
            "timestamp must be a number of seconds from 0 to 1e+11 beside blocks of 16 tokens, but got "
            "1.7e+12 (FILE, line 2). Correct or remove the line.",
        ),
        (
            examples.BAILIAN.replace("[1089, 7]", "[1089, 7, 8]"),
            "hash_ids must be at most one per block of 16 tokens of input_length, here 2, but got 3 "
            "(FILE, line 2). Correct or remove the line.",
        ),
        (
            examples.AZURE_2025.replace("269Z,0", "269Z,x"),
            "NumImages must be a whole number from 0 to 2147483647, but got 'x' (FILE, line 2). "
            "Correct or remove the line.",
        ),
        (
            examples.AIPERF.replace("40.0", "40.5"),
            "metrics.output_sequence_length.value must be a whole number of tokens from 0 to 2147483647, "
            "but got 40.5 (FILE, line 1). Correct or remove the line.",
        ),
        (
            examples.OWN.replace('"session": "a"', '"session": "a", "session": "b"'),
            "a line must be one JSON object, but got "
            '\'{"arrival_s": 1, "prompt_tokens": 33, "output_tokens": 15, ... (FILE, line 2). '
            "Correct or remove the line: the key 'session' stands twice.",
        ),
        (
            examples.GUIDELLM_V1[:-3],
            "a guidellm report must be JSON, but got Expecting ',' delimiter at column 4 (FILE, line 24). "
            "Correct the file.",
        ),
    ],
)
def test_damage_gets_its_one_line(trace: Path, content: str, text: str) -> None:
    assert error_of(trace, content) == text


def test_a_file_of_no_known_format_names_those_that_are(trace: Path) -> None:
    text = error_of(trace, '{"when": 3}\n')
    assert text.startswith(
        "a trace must be in a known format, but got '{\"when\": 3}' (FILE, line 1). Known: CSV"
    )
    summary = error_of(trace, '{\n  "ttft": 3\n}\n')
    assert "a JSON object over many lines (FILE, line 1). Known: CSV" in summary
    for name in ("Azure", "BurstGPT", "Mooncake", "timed_trace", "aiperf", "arrival_s", "guidellm"):
        assert name in text


def test_files_that_pyarrow_cannot_read_give_the_same_columns(trace: Path) -> None:
    """A blank before a line is enough to have them read one by one."""
    requests = [{**json.loads(line), "session": "s"} for line in examples.OWN.splitlines()]
    content = examples.lines(*requests)
    fast, slow = read(trace, content), read(trace, " " + content)
    for name in ("arrival_s", "prompt_tokens", "priority", "session", "block_ids", "block_start"):
        assert np.array_equal(getattr(fast, name), getattr(slow, name)), name
    assert fast.class_names == slow.class_names
