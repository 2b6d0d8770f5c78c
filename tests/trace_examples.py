"""A small file of every format that traces/ reads, and what becomes of a file: rows, warnings, an error."""

import json
from pathlib import Path
from typing import Any

import pytest

from cluster_sim.errors import UserError
from cluster_sim.traces import TraceRows, read_trace

AZURE_2023 = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50,9,1\n"
)
AZURE_2024 = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2024-05-10 00:00:00.009930+00:00,2162,5\n2024-05-10 00:00:01+00:00,2399,6\n"
)
AZURE_2025 = (
    "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n"
    "2024-10-15T12:00:00.269Z,0,770,491\n2024-10-15T12:00:05.819Z,0,949,126\n"
)
BURSTGPT_OLD = (
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,ChatGPT,472,18,490,Conversation log\n45.5,GPT-4,1087,230,1317,API log\n"
)
BURSTGPT_NEW = (
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,a-1,3.2,ChatGPT,472,18,490,Conversation log\n6,,1.0,GPT-4,100,7,107,API log\n"
    "9.0,a-1,2.0,ChatGPT,600,20,620,Conversation log\n"
)


def lines(*requests: dict[str, Any]) -> str:
    return "".join(json.dumps(request) + "\n" for request in requests)


MOONCAKE = lines(
    {"timestamp": 0, "input_length": 1030, "output_length": 20, "hash_ids": [0, 1, 2]},
    {"timestamp": 1500, "input_length": 1500, "output_length": 7, "hash_ids": [0, 1, 9]},
)
MOONCAKE_64 = lines(
    {
        "timestamp": 0,
        "input_length": 640,
        "output_length": 15,
        "hash_ids": list(range(10)),
        "session_id": "a",
    },
    {"timestamp": 100.5, "input_length": 650, "output_length": 15, "hash_ids": [*range(10), 77]},
)
BAILIAN = lines(
    {
        **{"chat_id": 55, "parent_chat_id": -1, "timestamp": 10.5, "input_length": 33, "output_length": 132},
        **{"type": "text", "turn": 1, "hash_ids": [1089, 1090, 1091]},
    },
    {
        **{"chat_id": 56, "parent_chat_id": -1, "timestamp": 11, "input_length": 32, "output_length": 12},
        **{"type": "search", "turn": 1, "hash_ids": [1089, 7]},
    },
    {
        **{"chat_id": 159, "parent_chat_id": 55, "timestamp": 61.25, "input_length": 60, "output_length": 13},
        **{"type": "text", "turn": 2, "hash_ids": [1089, 1090, 1091, 9]},
    },
    {
        **{"chat_id": 3, "parent_chat_id": 159, "timestamp": 70.0, "input_length": 80, "output_length": 9},
        **{"type": "text", "turn": 3, "hash_ids": [1089, 1090, 1091, 9, 10]},
    },
)
TIMED_TRACE = lines(
    {"timestamp": 12.5, "input_length": 42, "output_length": 8, "hash_ids": [981, 4412, 7]},
    {"timestamp": 13.0, "input_length": 32, "output_length": 3, "hash_ids": [4412, 7], "chat_id": 3},
)


def record(start_ns: int, prompt: float | None, output: float | None, **metadata: Any) -> dict[str, Any]:
    """One line of aiperf's profile_export.jsonl."""
    metrics: dict[str, Any] = {"time_to_first_token": {"value": 41.0, "unit": "ms"}}
    if prompt is not None:
        metrics["input_sequence_length"] = {"value": prompt, "unit": "tokens"}
    if output is not None:
        metrics["output_sequence_length"] = {"value": output, "unit": "tokens"}
    about = {"session_num": 0, "request_start_ns": start_ns, "benchmark_phase": "profiling"} | metadata
    return {"metadata": about, "metrics": metrics, "error": None}


AIPERF = lines(
    record(1_700_000_000_000_000_000, 550, 40.0, conversation_id="x"),
    record(1_700_000_000_250_000_000, 560, 41, conversation_id="x", turn_index=1),
)
AIPERF_FIRST = lines(
    *(
        {
            "metadata": {
                "conversation_id": "x",
                "timestamp_ns": 1_759_522_419_159_192_408 + second * 10**9,
                "credit_phase": phase,
            },
            "metrics": record(0, prompt, 193)["metrics"],
        }
        for second, (phase, prompt) in enumerate([("warmup", 9), ("profiling", 550), ("profiling", 551)])
    )
)
GUIDELLM_V2 = json.dumps(
    {
        "metadata": {"version": 2},
        "benchmarks": [
            {
                "type_": "generative_benchmark",
                "requests": {
                    "successful": [
                        {"request_start_time": 1000.5, "prompt_tokens": 128, "output_tokens": 16},
                        {
                            "info": {"timings": {"request_start": 1002.0}},
                            "input_metrics": {"text_tokens": 64},
                            "output_metrics": {"text_tokens": 8},
                        },
                    ],
                    "incomplete": [],
                    "errored": [],
                },
            }
        ],
    }
)
GUIDELLM_V1 = json.dumps(
    {
        "benchmarks": [
            {"requests": {"successful": [{"start_time": 7.0, "prompt_tokens": 5, "output_tokens": 6}]}},
            {"requests": {"successful": [{"start_time": 9.0, "prompt_tokens": 5, "output_tokens": 6}]}},
        ]
    },
    indent=1,
)
OWN = lines(
    {"arrival_s": 0, "prompt_tokens": 40, "output_tokens": 8, "block_ids": [7, 8], "class": "chat"},
    {"arrival_s": 1, "prompt_tokens": 33, "output_tokens": 15, "session": "a", "priority": -2},
)
EXAMPLES = {
    "Azure CSV of 2023": AZURE_2023,
    "Azure CSV of 2024": AZURE_2024,
    "Azure CSV of 2025": AZURE_2025,
    "BurstGPT CSV without sessions": BURSTGPT_OLD,
    "BurstGPT CSV with sessions": BURSTGPT_NEW,
    "Mooncake JSON lines, times in ms": MOONCAKE,
    "Mooncake JSON lines in blocks of 64, times in ms": MOONCAKE_64,
    "Qwen-Bailian JSON lines, times in s": BAILIAN,
    "vLLM timed_trace, times in s": TIMED_TRACE,
    "aiperf records": AIPERF,
    "guidellm report": GUIDELLM_V2,
    "JSON lines": OWN,
}


def read(trace: Path, content: str) -> TraceRows:
    trace.write_text(content, encoding="utf-8")
    return read_trace(trace)


def error_of(trace: Path, content: str) -> str:
    with pytest.raises(UserError) as caught:
        read(trace, content)
    return str(caught.value).replace(str(trace), "FILE")


def warnings_of(rows: TraceRows, trace: Path) -> list[str]:
    return [warning.replace(str(trace), "FILE") for warning in rows.warnings]
