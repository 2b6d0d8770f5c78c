"""`trace describe`: the facts of a trace by their definitions, on the terminal and as JSON."""

import json
from pathlib import Path

import numpy as np
import pytest
import trace_examples as examples

from cluster_sim import cli, usage
from cluster_sim.report.terminal import to_text
from cluster_sim.report.trace import trace_view
from cluster_sim.trace_facts import describe


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return tmp_path / "trace"


def test_rates_and_burstiness_are_those_of_the_arrivals(trace: Path) -> None:
    times_s = [0, 10, 20, 50, 61, 120]
    trace.write_text(
        examples.lines(*({"arrival_s": 5 + t, "prompt_tokens": 3, "output_tokens": 1 + t} for t in times_s))
    )
    facts = describe(trace)
    gaps_s = np.diff(times_s)
    assert (facts["requests"], facts["duration_s"]) == (6, 120.0)
    assert facts["rate_rps"] == pytest.approx(5 / 120)
    assert facts["busiest_minute_rps"] == pytest.approx(4 / 60)
    assert facts["gap_cv"] == pytest.approx(gaps_s.std() / gaps_s.mean())
    assert facts["output_tokens"]["p90"] == pytest.approx(np.percentile(np.array(times_s) + 1, 90))
    assert facts["output_tokens"]["max"] == 121
    assert facts["oddities"] == ["1 have one output token"]


def test_an_infinite_cache_finds_the_blocks_that_came_before(trace: Path) -> None:
    """MOONCAKE: of 1030 + 1500 tokens the second prompt's first two blocks of 512 were there."""
    trace.write_text(examples.MOONCAKE)
    content = describe(trace)["content"]
    assert content["block_tokens"] == 512
    assert content["best_hit_rate"] == pytest.approx(1024 / 2530)
    assert content["shared_start_share"] == 0.5


def test_answers_do_not_count_as_found(trace: Path) -> None:
    """The second prompt repeats the first prompt and answer of 32 tokens; its own answer is no prompt."""
    trace.write_text(
        examples.lines(
            {"arrival_s": 0, "prompt_tokens": 16, "output_tokens": 16, "block_ids": [1, 2]},
            {"arrival_s": 1, "prompt_tokens": 48, "output_tokens": 16, "block_ids": [1, 2, 3, 4]},
            {"arrival_s": 2, "prompt_tokens": 32, "output_tokens": 32, "block_ids": [1, 2, 3, 4]},
        )
    )
    assert describe(trace)["content"]["best_hit_rate"] == pytest.approx((32 + 32) / (16 + 48 + 32))


def test_one_moment_has_no_rate(trace: Path) -> None:
    trace.write_text(examples.lines({"arrival_s": 3, "prompt_tokens": 3, "output_tokens": 2}))
    facts = describe(trace)
    assert (facts["rate_rps"], facts["gap_cv"]) == (None, None)
    assert "requests/s" in to_text(trace_view(facts), 80, False)


@pytest.mark.parametrize("name", examples.EXAMPLES)
@pytest.mark.parametrize("columns", [80, 160])
def test_every_format_is_described_in_the_width_of_the_terminal(trace: Path, name: str, columns: int) -> None:
    trace.write_text(examples.EXAMPLES[name])
    text = to_text(trace_view(describe(trace)), columns, False)
    assert max(len(line) for line in text.splitlines()[1:]) <= columns
    assert name in text
    assert "…" not in text


def test_the_command_prints_and_writes_the_facts(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace.write_text(examples.BURSTGPT_NEW)
    assert cli.main(["trace", "describe", str(trace), "--json", str(tmp_path / "facts.json")]) == 0
    assert "classes     Conversation log 66.7%, API log 33.3%" in capsys.readouterr().out
    facts = json.loads((tmp_path / "facts.json").read_text())
    assert facts["sessions"] == {"number": 1, "requests": 2, "mean_turns": 2.0, "max_turns": 2}


def test_the_command_says_what_is_wrong_in_one_line(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace.write_bytes(b"\x89PNG\r\n")
    assert cli.main(["trace", "describe", str(trace)]) == 2
    assert capsys.readouterr().err == (
        f"cluster_sim: error: a trace must be UTF-8 text, but got the byte 0x89 ({trace}, line 1). "
        "Save the file as UTF-8.\n"
    )
    assert cli.main(["trace", "undo", str(trace)]) == 2
    assert "trace describe FILE" in usage.HELP
