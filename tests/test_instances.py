"""Clusters whose instances differ: each serves as it does among its like, and results tell them apart."""

from pathlib import Path

import numpy as np
import pytest
from mixing import (
    ROUND_ROBIN,
    SCHEDULE,
    code_and_chat,
    error_of,
    overrides,
    plain,
    run,
    same_rows,
    trace,
    without_machine,
)

from cluster_sim.compose import compose
from cluster_sim.engine.kinds import Outcome
from cluster_sim.instances import kinds_of
from cluster_sim.optimum import resolved
from cluster_sim.report.terminal import cluster_of, run_view, to_text
from cluster_sim.single import run_single
from cluster_sim.summary import summarise

GIVEN = "speculation.acceptance: {policy: decay, rate: 0.6, request_spread: 1.0}"
OWN = {  # what one of two instances has of its own
    "no speculation": "speculation: none",
    "another draft length": "speculation.num_speculative_tokens: 6",
    "a schedule": SCHEDULE,
    "another proposer": "speculation: ngram",
    "another profile": f"{GIVEN}",
    "other GPUs": "hardware: a100",
    "more GPUs": "cluster.tensor_parallel_size: 2",
    "few seats": "engine.max_num_seqs: 3",
    "few blocks": "engine.num_gpu_blocks: 120, speculation: none",
    "synchronous scheduling": "engine.async_scheduling: false",
    "no graphs": "engine.cudagraph_mode: NONE",
    "no prefix cache": "engine.enable_prefix_caching: false, engine.num_gpu_blocks: 100",
}


# ---- laws ----


@pytest.mark.parametrize("what", ["speculation: eagle3", "hardware: a100, speculation: none", SCHEDULE])
def test_overrides_of_all_instances_are_the_cluster_itself_byte_for_byte(what: str) -> None:
    one, other = run(*ROUND_ROBIN, *plain(what)), run(*ROUND_ROBIN, overrides(f"[0, 1] {what}"))
    assert one.log.tobytes() == other.log.tobytes()  # type: ignore[attr-defined]
    assert all(np.array_equal(*pair) for pair in zip(one.tally, other.tally, strict=True))
    assert without_machine(summarise(one)) == without_machine(summarise(other))
    assert one.bundle_digest == other.bundle_digest
    assert cluster_of(one) == cluster_of(other)


@pytest.mark.parametrize("what", OWN.values(), ids=OWN)
def test_an_instance_serves_its_requests_as_among_its_like(what: str) -> None:
    """Under a router that looks at no load each instance gets the same requests, and its luck is theirs."""
    mixed = run(*ROUND_ROBIN, overrides(f"[1] {what}"))
    alike = [run(*ROUND_ROBIN), run(*ROUND_ROBIN, *plain(what))]
    for instance, homogeneous in enumerate(alike):
        served = mixed.log["instance"] == instance
        assert served.sum() == 150
        assert same_rows(mixed.log, homogeneous.log, served)
        assert mixed.tally.totals[instance] == homogeneous.tally.totals[instance]
        assert mixed.usable_blocks[instance] == homogeneous.usable_blocks[instance]
    assert not same_rows(*(homogeneous.log for homogeneous in alike), np.ones(300, np.bool_))


def test_ranks_in_lockstep_keep_the_step_times_of_their_own_instance() -> None:
    experts = (
        "model=qwen3-30b-a3b",
        "speculation=none",
        "cluster.data_parallel_size=2",
        "cluster.enable_expert_parallel=true",
    )
    mixed = run(*ROUND_ROBIN, *experts, overrides("[1] hardware: h200"))
    for instance, hardware in enumerate(("h100", "h200")):
        homogeneous = run(*ROUND_ROBIN, *experts, f"hardware={hardware}")
        served = mixed.log["instance"] // 2 == instance
        assert served.sum() == 150
        assert same_rows(mixed.log, homogeneous.log, served)


def test_the_parts_of_a_mixed_cluster_make_up_the_whole() -> None:
    found = summarise(run(*ROUND_ROBIN, "cluster.instances=3", overrides("[1] speculation: none")))
    parts = found["by_instance_kind"]
    assert list(parts) == ["0,2", "1"]
    assert [part["requests"]["offered"] for part in parts.values()] == [200, 100]
    assert sum(part["steps"] for part in parts.values()) == found["steps"]
    assert sum(part["output_throughput_tok_s"] for part in parts.values()) == pytest.approx(
        found["output_throughput_tok_s"], rel=1e-12
    )
    for share, whole in found["time_share"].items():
        of_parts = sum(part["instances"] * part["time_share"][share] for part in parts.values()) / 3
        assert of_parts == pytest.approx(whole, abs=1e-12)
    assert parts["1"]["acceptance_length"] is None
    assert parts["0,2"]["acceptance_length"] == found["acceptance_length"]
    assert parts["1"]["num_gpu_blocks"] > parts["0,2"]["num_gpu_blocks"]
    assert (
        parts["0,2"]["memory_bytes"]["drafter_weights_bytes"]
        > 0
        == parts["1"]["memory_bytes"]["drafter_weights_bytes"]
    )
    assert found["memory_bytes"] == {}
    assert "by_instance_kind" not in summarise(run(*ROUND_ROBIN))


# ---- the use: a class to the instances whose schedule suits it ----


def test_code_is_drafted_on_its_own_instance_and_chat_is_not(tmp_path: Path) -> None:
    arguments = [
        code_and_chat(tmp_path / "t.jsonl"),
        "cluster.instances=3",
        "router=class_aware",
        "router.classes={code: [0], chat: [1, 2]}",
        "speculation.num_speculative_tokens=5",
        overrides("[1, 2] speculation: none"),
        f"output.dir={tmp_path / 'out'}",
        "executor=serial",
    ]
    done = run_single(compose(arguments), lambda *_: None)
    is_code = np.arange(150) % 3 == 0
    assert (done.run.log["drafted_tokens"][is_code] > 0).all()
    assert (done.run.log["drafted_tokens"][~is_code] == 0).all()
    assert (
        cluster_of(done.run)
        == "llama-3.1-8b, 3 instances: 0 of h100, eagle3 K=5; 1-2 of h100, no speculation"
    )
    parts = done.summary["by_instance_kind"]
    assert done.summary["optimum"] is None
    assert parts["0"]["optimum"]["draft_lengths"] == [[1, 1024, 5]]
    assert parts["1-2"]["optimum"] is None
    assert done.summary["draft_cost"] == "instance 0: bundle; instances 1-2: no speculation"
    text = to_text(run_view(done.summary, cluster_of(done.run), done.run.config.slo), 80, False)
    assert max(map(len, text.splitlines())) <= 80
    for words in ("tables of 0 ", "GPU memory of 0 ", "GPU memory of 1-2 "):
        assert words in text


def test_the_header_tells_the_flags_in_which_instances_differ() -> None:
    mixed = run(*ROUND_ROBIN, "workload.requests=4", overrides("[1] engine.max_num_seqs: 8, hardware: a100"))
    assert cluster_of(mixed) == (
        "llama-3.1-8b, 2 instances: 0 of h100, eagle3 K=3, max_num_seqs=1024, max_num_batched_tokens=8192; "
        "1 of a100, eagle3 K=3, max_num_seqs=8, max_num_batched_tokens=2048"
    )


def test_each_kind_has_the_schedule_that_its_own_tables_find_best() -> None:
    auto = "speculation.num_speculative_tokens_per_batch_size: auto"
    config = resolved(
        compose([*ROUND_ROBIN, "workload.requests=50", overrides(f"[1] {auto}, hardware: a100")])
    )
    alone = resolved(compose([*ROUND_ROBIN, "workload.requests=50", "hardware=a100", *plain(auto)]))
    static, scheduled = (kind.config.speculation for kind in kinds_of(config))
    assert static.num_speculative_tokens_per_batch_size is None
    assert scheduled == alone.speculation
    assert isinstance(scheduled.num_speculative_tokens_per_batch_size, list)


# ---- requests that not all instances can serve ----


def test_a_request_is_rejected_where_any_instance_that_may_get_it_could_not_serve_it(tmp_path: Path) -> None:
    rows = [
        {"arrival_s": float(n), "prompt_tokens": 3000 if n == 2 else 100, "output_tokens": 20}
        for n in range(6)
    ]
    arguments = (trace(tmp_path / "t.jsonl", rows), "cluster.instances=2")
    short = overrides("[1] engine.max_model_len: 2048")
    mixed = run(*arguments, short)
    outcomes = [Outcome(outcome).name for outcome in mixed.log["outcome"]]
    assert outcomes == ["completed", "completed", "rejected", "completed", "completed", "completed"]
    assert mixed.warnings == ("instance 1: 1 requests rejected: prompt of max_model_len=2048 tokens or more",)
    assert set(run(*arguments).log["outcome"].tolist()) == {int(Outcome.completed)}


def test_limits_of_instances_that_never_get_a_class_do_not_matter_to_it(tmp_path: Path) -> None:
    arguments = (
        code_and_chat(tmp_path / "t.jsonl", code_tokens=3000),
        "cluster.instances=2",
        "router=class_aware",
        overrides("[1] engine.max_model_len: 2048"),
    )
    apart = run(*arguments, "router.classes={code: [0], chat: [1]}")
    assert set(apart.log["outcome"].tolist()) == {int(Outcome.completed)}
    shared = run(*arguments, "router.classes={code: [0, 1], chat: [1]}")
    assert ((shared.log["outcome"] == int(Outcome.rejected)) == (np.arange(150) % 3 == 0)).all()


def test_a_length_of_the_users_own_that_an_instance_cannot_serve_is_refused_with_its_name() -> None:
    few = overrides("[1] engine.num_gpu_blocks: 20, speculation: none")
    assert error_of(*ROUND_ROBIN, few) == (
        "a request must fit into the KV cache of 19 blocks of 16 tokens alone (vLLM hangs with it at the "
        "head of the queue), but got 512 prompt and 128 output tokens (request 0; instance 1). Shorten it, "
        "or give more memory: engine.num_gpu_blocks, engine.gpu_memory_utilization."
    )
