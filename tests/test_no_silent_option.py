"""No speculation option is silently without effect: each changes a run, or is refused, or is a label.

A key that is added to the configuration needs a case here.
"""

import dataclasses
import json
from pathlib import Path

import pytest

from cluster_sim.compose import compose
from cluster_sim.config import AcceptanceConfig, SpeculationConfig
from cluster_sim.errors import UserError
from cluster_sim.results import Run
from cluster_sim.run import simulate

SMALL = ["workload.requests=60", "workload.request_rate=20"]
EAGLE3 = ["speculation=eagle3"]
RATE = ["speculation.acceptance={policy: decay, rate: 0.6}"]
RATES = ["speculation.acceptance={policy: per_position, rates: [0.8, 0.5, 0.4], rates_are: marginal}"]
PER_LENGTH = ["speculation.acceptance={policy: per_length, per_length: {3: 2.5}}"]
RUNS = ["speculation.acceptance={policy: decay, rate: 0.6, run_spread: 1.0, run_tokens: 16}"]
TRACE = ["speculation.acceptance={policy: trace, file: FILE}"]
CUSTOM = ["speculation.acceptance={policy: custom, function: verifying.falling, rates_are: marginal}"]

# key -> (a run, the same with the key changed): two different logs
CHANGES = {
    "method": (["speculation=eagle"], EAGLE3),
    "model": (
        ["speculation=draft_model", *RATE],
        ["speculation=draft_model", *RATE, "speculation.model=llama-3.1-8b"],
    ),
    "num_speculative_tokens": (EAGLE3, [*EAGLE3, "speculation.num_speculative_tokens=2"]),
    "num_speculative_tokens_per_batch_size": (
        EAGLE3,
        [*EAGLE3, "speculation.num_speculative_tokens_per_batch_size=[[1, 2, 3], [3, 1024, 1]]"],
    ),
    "draft_len_schedule": (EAGLE3, [*EAGLE3, "speculation.draft_len_schedule={2: 3, 4: 1}"]),
    "vllm_config": (
        EAGLE3,
        ['speculation.vllm_config={"method": "eagle3", "num_speculative_tokens": 2}'],
    ),
    "acceptance": (EAGLE3, [*EAGLE3, *RATE]),
    "acceptance_by_class": (
        EAGLE3,
        [*EAGLE3, "speculation.acceptance_by_class={default: {policy: decay, rate: 0.6}}"],
    ),
    "draft_cost": (EAGLE3, [*EAGLE3, "speculation.draft_cost=zero"]),
    "draft_pass_s": (
        [*EAGLE3, "speculation.draft_cost=given", "speculation.draft_pass_s=0.001"],
        [*EAGLE3, "speculation.draft_cost=given", "speculation.draft_pass_s=0.002"],
    ),
    "acceptance.published": (
        ["speculation=eagle"],
        ["speculation=eagle", "speculation.acceptance.published=llama-3.1-8b-eagle-gsm8k"],
    ),
    "acceptance.policy": (
        [*EAGLE3, *RATE],
        [*EAGLE3, "speculation.acceptance={policy: binomial, rate: 0.6}"],
    ),
    "acceptance.rate": ([*EAGLE3, *RATE], [*EAGLE3, *RATE, "speculation.acceptance.rate=0.5"]),
    "acceptance.measured_draft_length": (
        [*EAGLE3, *RATE],
        [*EAGLE3, *RATE, "speculation.acceptance.measured_draft_length=7"],
    ),
    "acceptance.rates": (
        [*EAGLE3, *RATES],
        [*EAGLE3, *RATES, "speculation.acceptance.rates=[0.9, 0.5, 0.4]"],
    ),
    "acceptance.rates_are": (
        [*EAGLE3, *RATES],
        [*EAGLE3, *RATES, "speculation.acceptance.rates_are=conditional"],
    ),
    "acceptance.per_length": (
        [*EAGLE3, *PER_LENGTH],
        [*EAGLE3, *PER_LENGTH, "speculation.acceptance.per_length={3: 2.9}"],
    ),
    "acceptance.file": ([*EAGLE3, *RATE], [*EAGLE3, *TRACE]),
    "acceptance.series": (
        [*EAGLE3, "speculation.acceptance={policy: trace, file: TWO, series: acc_one}"],
        [*EAGLE3, "speculation.acceptance={policy: trace, file: TWO, series: acc_two}"],
    ),
    "acceptance.function": (
        [*EAGLE3, *CUSTOM],
        [*EAGLE3, *CUSTOM, "speculation.acceptance.function=verifying.flat"],
    ),
    "acceptance.request_spread": (
        [*EAGLE3, *RATE],
        [*EAGLE3, *RATE, "speculation.acceptance.request_spread=1.0"],
    ),
    "acceptance.run_spread": ([*EAGLE3, *RUNS], [*EAGLE3, *RUNS, "speculation.acceptance.run_spread=0.3"]),
    "acceptance.run_tokens": ([*EAGLE3, *RUNS], [*EAGLE3, *RUNS, "speculation.acceptance.run_tokens=4"]),
}
LABELS = {"acceptance.source": [*EAGLE3, *RATE, "speculation.acceptance.source=my server"]}


@pytest.fixture(name="paths")
def fixture_paths(tmp_path: Path) -> dict[str, str]:
    """Recorded accepted lengths, in one series and in two."""
    found = {"FILE": tmp_path / "lengths.jsonl", "TWO": tmp_path / "two.jsonl"}
    found["FILE"].write_text(json.dumps({"accepted": [0, 3, 1]}) + "\n")
    series = {"acc_one": {"acc_len": [1, 2, 4]}, "acc_two": {"acc_len": [4, 1, 1]}}
    found["TWO"].write_text(json.dumps(series) + "\n")
    return {name: str(path) for name, path in found.items()}


def run(overrides: list[str], paths: dict[str, str]) -> Run:
    for name, path in paths.items():
        overrides = [override.replace(f"file: {name}", f"file: '{path}'") for override in overrides]
    return simulate(compose([*SMALL, *overrides]))


def test_every_key_has_a_case() -> None:
    keys = {field.name for field in dataclasses.fields(SpeculationConfig)}
    keys |= {f"acceptance.{field.name}" for field in dataclasses.fields(AcceptanceConfig)}
    assert keys == CHANGES.keys() | LABELS.keys()


@pytest.mark.parametrize("key", CHANGES)
def test_a_key_changes_the_run(key: str, paths: dict[str, str]) -> None:
    one, other = (run(overrides, paths) for overrides in CHANGES[key])
    assert one.log.tobytes() != other.log.tobytes()  # type: ignore[attr-defined]


def test_a_source_is_shown() -> None:
    assert "my server" in run(LABELS["acceptance.source"], {}).acceptance_source


@pytest.mark.parametrize(
    "overrides",
    [
        ["speculation.model=llama-3.2-1b"],
        ["speculation.draft_pass_s=0.001"],
        ["speculation.draft_cost=given"],
        ["speculation=none", "speculation.num_speculative_tokens=3"],
        ["speculation=none", "speculation.draft_cost=zero"],
        [*RATE, "speculation.acceptance.rates=[0.5, 0.4, 0.3]"],
        [*RATE, "speculation.acceptance.run_tokens=4"],
        [*RATE, "speculation.acceptance.series=one"],
        ["speculation.acceptance_by_class={code: {policy: decay, rate: 0.6}}"],
    ],
)
def test_an_option_that_would_do_nothing_is_refused(overrides: list[str]) -> None:
    with pytest.raises(UserError):
        run(overrides, {})
