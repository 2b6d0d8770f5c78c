"""The batch size at which drafting stops paying in a sweep, beside that of the tables."""

import json
from pathlib import Path
from typing import Any

import pytest
from sweeping import swept

ENOUGH = 10.0  # %, between batch sizes, or
NEAR = 0.01  # of 1, the tables' gain at the measured one
LLAMA_ON_H100 = ("sweep.axes.workload.request_rate=[30,44,50,54,57,60]", "workload.requests=3000")
QWEN_ON_L40S = (
    *("model=qwen3-8b", "hardware=l40s", "speculation.acceptance={policy: decay, rate: 0.35}"),
    *("sweep.axes.workload.request_rate=[8,12,14,15,16,17]", "workload.requests=2000"),
    "engine.max_num_batched_tokens=8192",  # by default room for drafts ends where they stop paying
)
LONGER_OUTPUT = (
    *("sweep.axes.workload.request_rate=[20,28,34,38,41,44]", "workload.requests=2000"),
    "workload.output_tokens=256",
)


def flips(directory: Path, *overrides: str) -> dict[str, dict[str, Any]]:
    """Arm -> its flip in a sweep of three seeds."""
    assert swept(directory, "+sweep=spec_grid", "sweep.seeds=[0,1,2]", *overrides) == 0
    found = json.loads((directory / "summary.json").read_text())["flips"]
    return {arm: group for arm, (group,) in found.items()}


def is_near(flip: dict[str, Any]) -> bool:
    return bool(abs(flip["difference_percent"]) <= ENOUGH or abs(flip["tables_gain_there"] - 1.0) <= NEAR)


@pytest.mark.slow
@pytest.mark.parametrize("load", [LLAMA_ON_H100, QWEN_ON_L40S], ids=["llama on h100", "qwen on l40s"])
def test_measured_flips_are_those_of_the_tables(tmp_path: Path, load: tuple[str, ...]) -> None:
    """Seeds are fixed; over others K=5 flips within 5 %, K=3, whose gain is flat, within 20 %."""
    found = flips(tmp_path, *load)
    assert is_near(found["K=3"])
    assert is_near(found["K=5"])
    assert abs(found["K=5"]["difference_percent"]) <= ENOUGH


@pytest.mark.slow
def test_arms_without_a_flip_by_the_tables_have_none_in_a_sweep_either(tmp_path: Path) -> None:
    """Longer outputs, with less prefill beside them, move the flip of K=5 and take away the others'."""
    found = flips(tmp_path, *LONGER_OUTPUT)
    assert is_near(found["K=5"])
    for arm in ("K=1", "K=3", "schedule"):
        measured_to = found[arm]["measured_range"][1]
        assert found[arm]["measured_batch_size"] is None
        assert found[arm]["pays_at_largest"]
        assert found[arm]["tables_pay_at"][0][0] == 1
        assert found[arm]["tables_pay_at"][0][1] >= measured_to
