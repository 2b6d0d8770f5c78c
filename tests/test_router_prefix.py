"""prefix_aware on real conversations: the share of prompt tokens that the prefix caches already hold.

The first ten minutes of the Mooncake conversation trace (../shared/traces: FAST'25, Apache-2.0), whose hash
ids stand for 512 tokens each, replayed at its own pace on eight H100s with Llama-3.1-8B. Nothing is drawn.
"""

import json
from pathlib import Path

import pytest

from cluster_sim.compose import compose
from cluster_sim.results import Run
from cluster_sim.run import simulate

FIRST_MS = 600_000
TOKENS_PER_HASH, BLOCK_TOKENS = 512, 16


def as_json_lines(mooncake: Path, path: Path) -> Path:
    """The trace in this tool's own format: for a hash id, the ids of the full blocks of 16 tokens in it."""
    per_hash = TOKENS_PER_HASH // BLOCK_TOKENS
    with path.open("w") as lines:
        for line in mooncake.read_text().splitlines():
            row = json.loads(line)
            if row["timestamp"] >= FIRST_MS:
                break
            ids = [number * per_hash + part for number in row["hash_ids"] for part in range(per_hash)]
            request = {
                "arrival_s": row["timestamp"] / 1000,
                "prompt_tokens": row["input_length"],
                "output_tokens": row["output_length"],
                "block_ids": ids[: row["input_length"] // BLOCK_TOKENS],
            }
            lines.write(json.dumps(request) + "\n")
    return path


def replayed(trace: Path, router: str) -> Run:
    """The trace on eight instances behind `router`."""
    own = [f"workload.{key}=null" for key in ("request_rate", "prompt_tokens", "output_tokens", "requests")]
    settings = [f"router={router}", "cluster.instances=8", "speculation=none", f"workload.trace={trace}"]
    return simulate(compose([*own, *settings]))


def hit_rate(run: Run) -> float:
    return float(run.log["cached_tokens"].sum() / run.requests["prompt_tokens"].sum())


def mean_ttft_s(run: Run) -> float:
    return float((run.log["first_token_s"] - run.requests["arrival_s"]).mean())


@pytest.mark.shared
@pytest.mark.slow
def test_prefix_aware_finds_more_of_mooncake_s_prompts_in_the_caches(shared: Path, tmp_path: Path) -> None:
    """And so waits less for the first token than routers that look at load alone, or at nothing."""
    trace = as_json_lines(shared / "traces" / "mooncake-conversation.jsonl", tmp_path / "mooncake.jsonl")
    aware, least, turns = (
        replayed(trace, name) for name in ("prefix_aware", "least_requests", "round_robin")
    )
    assert hit_rate(aware) > 2.0 * hit_rate(least)
    assert hit_rate(aware) > 2.0 * hit_rate(turns)
    assert mean_ttft_s(aware) < 0.85 * min(mean_ttft_s(least), mean_ttft_s(turns))
