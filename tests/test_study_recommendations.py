"""What a study recommends in cases that people reported: spec-decode-facts.md section E.

Seeds are fixed. A tie is one of verdict.compare: a difference within its 95 % interval, or below 1 %.
"""

from pathlib import Path
from typing import Any

import pytest
from studying import studied, summary_of

LIGHT = (
    "+study=draft_schedule",
    "study.objective=tpot",
    "study.bucket_lasts=[]",
    "study.seeds=[0]",
    "study.fresh_seeds=[10,11,12]",
    "study.window=4",
    "workload.requests=60",
)
ALONE = (*LIGHT, "study.axes.workload.request_rate=[0.2]")  # one request at a time


def outcome(directory: Path, *overrides: str) -> tuple[dict[str, Any], dict[str, float]]:
    """The verdict, and the value of every arm on fresh seeds."""
    assert studied(directory, *overrides) == 0
    summary = summary_of(directory)
    return summary["verdict"], {one["arm"]: one["value"]["value"] for one in summary["contenders"]}


@pytest.mark.parametrize(("method", "best"), [("eagle", 3), ("eagle3", 4)])
def test_case_9_the_best_static_draft_length_at_batch_size_1(method: str, best: int, tmp_path: Path) -> None:
    """vllm#20780: EAGLE is fastest with 3 drafts, EAGLE-3 with 4; they are at most 6 % apart."""
    given = (f"speculation={method}", "study.trials=8", "study.max_draft_length=7", "workload.requests=200")
    verdict, value = outcome(tmp_path, *ALONE, *given)
    assert abs(int(verdict["champion"].removeprefix("K=")) - best) <= 1
    assert value[f"K={best}"] <= 1.02 * min(value.values())
    assert value["K=3"] / value["K=4"] == pytest.approx(1.0, abs=0.06)


@pytest.mark.parametrize(("length", "drafts"), [(1.86, False), (2.9, True)])
def test_case_11_off_at_batch_size_1_where_acceptance_is_below_break_even(
    length: float, drafts: bool, tmp_path: Path
) -> None:
    """SpecForge#339: Qwen3-30B-A3B, K = 3, AL 1.86: 222 -> 160 tokens/s. Break-even AL is t(K) / t(0) = 2.6.

    The drafter's passes are given such that a step takes 2.6 times as long as without it.
    """
    verdict, value = outcome(
        tmp_path,
        *ALONE,
        "model=qwen3-30b-a3b",
        "cluster.tensor_parallel_size=2",
        f"speculation.acceptance={{policy: per_length, per_length: {{3: {length}}}}}",
        "speculation.draft_cost=given",
        "speculation.draft_pass_s=0.0016",
        "study.max_draft_length=3",
        "study.trials=4",
    )
    assert (verdict["recommended"] != "off") is drafts
    assert (value["K=3"] < value["off"]) is drafts


def test_case_1_a_tier_without_drafts_still_pays_for_the_drafter(tmp_path: Path) -> None:
    """vllm#49548: [[1, 4, 2], [5, 512, 0]] under some 20 requests at a time is slower than no speculation.

    By the price of the drafter's pass and of its graphs, though, and not by a factor of ten.
    """
    verdict, value = outcome(
        tmp_path,
        *LIGHT,
        "study.bucket_lasts=[4]",
        "study.axes.workload.request_rate=[24]",
        "study.max_draft_length=2",
        "study.trials=9",
        "study.stop_below=null",
        "engine.use_v2_model_runner=false",
        "speculation.acceptance={policy: geometric, rate: 0.05}",
        "workload.requests=200",
    )
    assert verdict["recommended"] == "off"
    tier = value["K=2 to 4, 0 beyond"] if "K=2 to 4, 0 beyond" in value else value["K=1 to 4, 0 beyond"]
    assert 1.01 < tier / value["off"] < 1.6


@pytest.mark.parametrize(("rate", "drafts"), [(2, True), (60, False)])
def test_case_20_speculation_pays_below_some_request_rate_only(
    rate: int, drafts: bool, tmp_path: Path
) -> None:
    """vllm#12755: a gain below 8 requests/s, none above; here with a drafter of 1 ms a pass."""
    verdict, _ = outcome(
        tmp_path,
        *LIGHT,
        f"study.axes.workload.request_rate=[{rate}]",
        "study.max_draft_length=3",
        "study.trials=4",
        "speculation.draft_cost=given",
        "speculation.draft_pass_s=0.001",
        "speculation.acceptance={policy: geometric, rate: 0.3}",
        "workload.requests=800",
    )
    assert (verdict["recommended"] != "off") is drafts


def test_case_31_the_draft_length_is_searched_together_with_the_topology(tmp_path: Path) -> None:
    """vllm#53906: one instance of two GPUs or two of one, each with its own best K: the best pair wins."""
    group = tmp_path / "conf" / "cluster"
    group.mkdir(parents=True)
    for name, instances, gpus in (("one_of_two", 1, 2), ("two_of_one", 2, 1)):
        (group / f"{name}.yaml").write_text(
            f"instances: {instances}\ntensor_parallel_size: {gpus}\ndata_parallel_size: 1\n"
            "enable_expert_parallel: false\nbundle: null\n"
        )
    code = studied(
        tmp_path / "out",
        *LIGHT,
        f"hydra.searchpath=[{tmp_path / 'conf'}]",
        "study.choices.cluster=[one_of_two,two_of_one]",
        "study.axes.workload.request_rate=[60]",
        "study.max_draft_length=3",
        "study.trials=8",
        "study.stop_below=null",
        "workload.requests=200",
    )
    assert code == 0
    summary = summary_of(tmp_path / "out")
    tried = {one["choices"]["cluster"] for one in summary["contenders"]}
    assert tried == {"one_of_two", "two_of_one"}
    best = min(summary["contenders"], key=lambda one: one["value"]["value"])
    assert best["vs_champion"]["verdict"] == "tie"
    assert summary["verdict"]["recommended"] == summary["verdict"]["champion"]


@pytest.mark.slow
def test_an_moe_model_gets_a_schedule_that_rises_with_the_batch(tmp_path: Path) -> None:
    """Small batches of few experts in use pay for each further one; larger batches use them all anyway."""
    verdict, value = outcome(
        tmp_path,
        *LIGHT,
        "model=qwen3-30b-a3b",
        "speculation.acceptance={policy: geometric, rate: 0.6}",
        "study.axes.workload.request_rate=[1,40]",
        "study.bucket_lasts=[4]",
        "study.max_draft_length=4",
        "study.trials=20",
        "workload.requests=300",
    )
    first, second = (int(words.removeprefix("K=").split()[0]) for words in verdict["champion"].split(", "))
    assert second > first
    assert value[verdict["champion"]] < min(value[f"K={length}"] for length in range(1, 5))
