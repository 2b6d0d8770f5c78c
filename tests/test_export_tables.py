"""The requests of a run as CSV and JSON lines, and its traffic as vLLM's timed_trace, read back."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exporting import exported, requests_of, simulated

from cluster_sim.cli import main
from cluster_sim.traces import read_trace

SHARED_PROMPTS = (
    *(
        "workload.shared_prefix.tokens=96",
        "workload.shared_prefix.groups=3",
        "workload.shared_prefix.share=0.7",
    ),
    "workload.prompt_tokens={distribution: lognormal, mean: 200, cv: 1.0, min: 1, max: 2000}",
    "workload.output_tokens={distribution: lognormal, mean: 40, cv: 2.0, min: 1, max: 300}",
)
CONVERSATIONS = ("workload.turns.mean=3", "workload.turns.gap_s=0.5")
TIMES = ("queue_s", "ttft_s", "tpot_s", "e2el_s")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Requests with and without a TPOT, some given up, on instances that share prompts."""
    return simulated(
        tmp_path_factory.mktemp("run"), *SHARED_PROMPTS, "workload.timeout_s=0.5", "cluster.instances=2"
    )


def test_csv_reads_back_to_the_same_bits(run: Path) -> None:
    rows = requests_of(run)
    lines = list(csv.DictReader(io.StringIO(exported(run, "csv"), newline="")))
    assert list(lines[0]) == list(rows[0])
    assert [{name: as_csv_has(row[name]) for name in row} for row in rows] == [
        {name: float(text) if is_number(text) else text for name, text in line.items()} for line in lines
    ]
    assert {line["tpot_s"] == "" for line in lines} == {True, False}


def as_csv_has(value: object) -> object:
    if value is None or isinstance(value, bool):
        return {None: "", True: "true", False: "false"}[value]
    return value


def is_number(text: str) -> bool:
    return text.replace("e-", "").replace(".", "").isdigit()


def test_json_lines_read_back_to_the_same_values(run: Path) -> None:
    lines = exported(run, "jsonl").splitlines()
    assert [json.loads(line) for line in lines] == requests_of(run)


def sent_by_vllm(request: dict[str, Any]) -> list[object]:
    """The tokens that `vllm bench serve` makes of a line: of each id and size always the same."""
    tokens: list[object] = []
    left = request["input_length"]
    for one in request["hash_ids"]:
        size = min(16, left)
        tokens += [(one, size, place) for place in range(size)]
        left -= size
        if left <= 0:
            break
    return tokens


def common(one: list[object], other: list[object]) -> int:
    """How many tokens two prompts share from their start."""
    same = (mine == theirs for mine, theirs in zip(one, other, strict=False))
    return next((place for place, is_same in enumerate(same) if not is_same), min(len(one), len(other)))


def test_every_request_is_sent_when_it_arrived_and_as_long(run: Path) -> None:
    trace = [json.loads(line) for line in exported(run, "timed-trace").splitlines()]
    for request, row in zip(trace, requests_of(run), strict=True):
        assert list(request) == ["timestamp", "input_length", "output_length", "hash_ids"]
        assert request["timestamp"] == row["arrival_s"]
        assert len(sent_by_vllm(request)) == request["input_length"] == row["prompt_tokens"]
        assert request["output_length"] == row["max_tokens"]
        assert len(request["hash_ids"]) == -(-row["prompt_tokens"] // 16)


def test_prompts_share_their_system_prompt_and_nothing_else(run: Path) -> None:
    trace = [json.loads(line) for line in exported(run, "timed-trace").splitlines()[:120]]
    prompts = [sent_by_vllm(request) for request in trace]
    shared = {common(one, other) for number, one in enumerate(prompts) for other in prompts[:number]}
    assert shared == {0, 96}
    first_ids = [request["hash_ids"][0] for request in trace]
    alone = sum(first_ids.count(one) == 1 for one in first_ids)
    assert alone == pytest.approx(0.3 * 120, abs=20)  # share 0.7: off by 4 deviations once in 16,000


def test_a_turn_begins_with_the_prompts_of_the_turns_before_it(tmp_path: Path) -> None:
    directory = simulated(tmp_path, *CONVERSATIONS, "workload.requests=60")
    trace = [json.loads(line) for line in exported(directory, "timed-trace").splitlines()]
    prompts = [sent_by_vllm(request) for request in trace]
    longest = [
        max((common(one, other) for other in prompts[:number]), default=0)
        for number, one in enumerate(prompts)
    ]
    earlier = {len(prompt) // 16 * 16 for prompt in prompts}
    assert sum(length > 0 for length in longest) > 15
    assert {length for length in longest if length} <= earlier


def replayed(directory: Path, trace: Path, *overrides: str) -> list[dict[str, Any]]:
    """The requests of a run that this tool's own reader of `trace` makes."""
    return requests_of(
        simulated(
            *(directory, f"workload.trace={trace}", "workload.requests=null", "workload.request_rate=null"),
            *("workload.prompt_tokens=null", "workload.output_tokens=null", *overrides),
        )
    )


def test_traffic_that_came_from_a_trace_is_simulated_to_the_same_bytes(tmp_path: Path) -> None:
    first = tmp_path / "first.jsonl"
    generator = np.random.default_rng(5)
    lines = [
        {
            "timestamp": int(20 * number),
            "input_length": int(tokens := generator.integers(600, 2500)),
            "output_length": int(generator.integers(1, 60)),
            "hash_ids": [*range(depth := int(generator.integers(0, -(-tokens // 512) + 1)))]
            + [10_000 + 10 * number + place for place in range(-(-tokens // 512) - depth)],
        }
        for number in range(150)
    ]
    first.write_text("".join(json.dumps(line) + "\n" for line in lines))
    before = replayed(tmp_path / "before", first)
    (tmp_path / "again.jsonl").write_text(exported(tmp_path / "before", "timed-trace"))
    assert sum(row["cached_tokens"] for row in before) > 10_000
    assert replayed(tmp_path / "after", tmp_path / "again.jsonl") == before
    both = [tmp_path / name / "requests" / "trial-00000.parquet" for name in ("before", "after")]
    assert both[0].read_bytes() == both[1].read_bytes()


def test_drawn_traffic_is_simulated_the_same_but_for_the_start_of_its_clock(tmp_path: Path) -> None:
    directory = simulated(tmp_path / "drawn", *SHARED_PROMPTS)
    trace = tmp_path / "trace.jsonl"
    trace.write_text(exported(directory, "timed-trace"))
    before, after = requests_of(directory), replayed(tmp_path / "replayed", trace)
    exact = ("outcome", "prompt_tokens", "max_tokens", "emitted_tokens", "cached_tokens", "chunks")
    start_s = before[0]["arrival_s"]
    assert sum(row["cached_tokens"] for row in before) > 0
    for one, other in zip(before, after, strict=True):
        assert [one[name] for name in exact] == [other[name] for name in exact]
        assert other["arrival_s"] == pytest.approx(one["arrival_s"] - start_s, abs=1e-12)
        for name in TIMES:
            assert other[name] == pytest.approx(one[name], abs=1e-9)


def test_the_trace_is_read_as_vllms(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(exported(run, "timed-trace"))
    rows = read_trace(path)
    assert rows.format == "vLLM timed_trace, times in s"
    assert rows.warnings == ()


def test_ids_are_whole_numbers_from_zero_on(run: Path) -> None:
    ids = {one for line in exported(run, "timed-trace").splitlines() for one in json.loads(line)["hash_ids"]}
    assert ids == set(range(len(ids)))


def test_a_trace_that_has_changed_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "trace.jsonl"
    line = '{"arrival_s": %d, "prompt_tokens": 40, "output_tokens": 3}\n'
    trace.write_text(line % 0 + line % 1)
    replayed(tmp_path / "run", trace)
    trace.write_text(line % 0 + line % 2)
    capsys.readouterr()
    assert main(["export", str(tmp_path / "run"), "--format", "timed-trace"]) == 2
    assert capsys.readouterr().err == (
        "cluster_sim: error: the traffic of a run must be the same when it is made again, but got other "
        f"requests ({tmp_path / 'run'}). Its trace has changed, or another version drew it: run it again.\n"
    )
    trace.unlink()
    assert main(["export", str(tmp_path / "run"), "--format", "timed-trace"]) == 2
    assert str(trace) in capsys.readouterr().err


def test_prompts_of_one_chunk_are_told_from_mooncakes_by_their_times(tmp_path: Path) -> None:
    directory = simulated(tmp_path / "run", "workload.prompt_tokens=10", "workload.requests=20")
    path = tmp_path / "trace.jsonl"
    path.write_text(exported(directory, "timed-trace"))
    assert read_trace(path).arrival_s.tolist() == [row["arrival_s"] for row in requests_of(directory)]


def test_the_shipped_example_is_such_a_trace_and_shares_prompts() -> None:
    rows = read_trace(Path(__file__).parent.parent / "reports" / "examples" / "traffic.jsonl")
    assert (len(rows.arrival_s), rows.format) == (300, "vLLM timed_trace, times in s")
    assert len(np.unique(rows.block_ids)) < len(rows.block_ids)
