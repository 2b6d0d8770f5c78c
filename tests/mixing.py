"""Clusters whose instances differ, for tests: a few words in, a run out."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster_sim.compose import compose
from cluster_sim.engine.state import LogRow
from cluster_sim.engine.tables import Table
from cluster_sim.errors import UserError
from cluster_sim.results import Flags, Run
from cluster_sim.run import simulate
from cluster_sim.trials import MACHINE_KEYS

TWO = ("cluster.instances=2", "router=round_robin")
ROUND_ROBIN = (*TWO, "workload.requests=300", "workload.request_rate=50")
SCHEDULE = "speculation.num_speculative_tokens_per_batch_size: [[1, 2, 3], [3, 1024, 1]]"


def overrides(*entries: str) -> str:
    """cluster.overrides from (instances, what they set), written as `[0] KEY: VALUE`."""
    written = (entry.partition("] ") for entry in entries)
    listed = ", ".join(f"{{instances: {who}], set: {{{what}}}}}" for who, _, what in written)
    return f"cluster.overrides=[{listed}]"


def run(*arguments: str) -> Run:
    return simulate(compose(arguments))


def error_of(*arguments: str) -> str:
    with pytest.raises(UserError) as caught:
        run(*arguments)
    return str(caught.value)


def plain(what: str) -> list[str]:
    """The same for a whole cluster, on the command line."""
    return [
        f"{key}={json.dumps(value)}".replace('"', "") for key, value in yaml.safe_load(f"{{{what}}}").items()
    ]


def same_rows(one: Table[LogRow], other: Table[LogRow], chosen: Flags) -> bool:
    """Whether the `chosen` rows are alike to the last bit."""
    return all(
        one[name][chosen].tobytes() == other[name][chosen].tobytes() for name in LogRow.__annotations__
    )


def without_machine(summary: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in summary.items() if key not in MACHINE_KEYS}


def trace(path: Path, rows: Sequence[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"workload.trace={path}"


def code_and_chat(path: Path, code_tokens: int = 900) -> str:
    """Every third request writes code."""
    rows = [
        {
            "arrival_s": 0.03 * number,
            "prompt_tokens": 200 if number % 3 else code_tokens,
            "output_tokens": 60 if number % 3 else 150,
            "class": "chat" if number % 3 else "code",
        }
        for number in range(150)
    ]
    return trace(path, rows)
