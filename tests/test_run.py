"""One simulation from configuration to log: what a user asks for is what runs."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster_sim import run as run_module
from cluster_sim.compose import compose, compose_file
from cluster_sim.engine.kinds import Outcome
from cluster_sim.errors import UserError
from cluster_sim.results import Run
from cluster_sim.run import simulate
from cluster_sim.single import run_single
from cluster_sim.summary import summarise

AZURE = Path(__file__).resolve().parents[2] / "shared" / "traces" / "azure-2023-conversation.csv"


def run(*overrides: str) -> Run:
    return simulate(compose(list(overrides)))


def summary(*overrides: str) -> dict[str, Any]:
    return summarise(run(*overrides))


def jsonl(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"workload.trace={path}"


def test_every_request_gets_the_tokens_it_asked_for() -> None:
    result = run("workload.requests=300")
    assert set(result.log["outcome"].tolist()) == {int(Outcome.completed)}
    assert set(result.log["emitted_tokens"].tolist()) == {128}


def test_speculation_makes_a_lone_users_tokens_faster_and_a_full_house_slower() -> None:
    """The mission: at low rate TPOT falls by a third; past the knee a static draft loses throughput."""
    quiet = [summary("workload.request_rate=1", "workload.requests=200", *arm) for arm in arms()]
    assert quiet[1]["tpot_s"]["mean"] < 0.67 * quiet[0]["tpot_s"]["mean"]
    busy = [summary("workload.request_rate=90", "workload.requests=2000", *arm) for arm in arms()]
    assert busy[1]["output_throughput_tok_s"] < 0.97 * busy[0]["output_throughput_tok_s"]


def arms() -> list[list[str]]:
    return [["speculation=none"], ["speculation.num_speculative_tokens=5"]]


def test_arms_see_the_same_requests() -> None:
    off, on = run("speculation=none", "workload.requests=50"), run("workload.requests=50")
    assert np.array_equal(off.requests["arrival_s"], on.requests["arrival_s"])
    assert off.workload_digest == on.workload_digest
    assert run("seed=1", "workload.requests=50").workload_digest != on.workload_digest


def test_the_same_seed_gives_the_same_bytes_and_reports_of_progress_change_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = run("workload.requests=500", "cluster.instances=3")
    monkeypatch.setattr(run_module, "REQUESTS_PER_SLICE", 60)
    seen: list[int] = []
    config = compose(["workload.requests=500", "cluster.instances=3"])
    sliced = simulate(config, lambda done, _: seen.append(done))
    assert seen[-1] == 500
    assert len(seen) > 5
    assert whole.log.tobytes() == sliced.log.tobytes()  # type: ignore[attr-defined]


def test_drafting_nothing_still_pays_the_drafters_first_pass() -> None:
    """K = 0 inside a schedule is not "off": the drafter keeps its KV in step."""
    off = summary("speculation=none", "workload.requests=200")
    nothing = summary(
        "speculation.num_speculative_tokens_per_batch_size=[[1,1024,0]]", "workload.requests=200"
    )
    assert nothing["tokens"]["drafted"] == 0
    assert nothing["tpot_s"]["mean"] > 1.02 * off["tpot_s"]["mean"]


def test_a_free_drafter_is_labelled_an_upper_bound() -> None:
    free = run("speculation.draft_cost=zero", "workload.requests=100")
    assert "upper bound" in free.draft_cost
    assert free.tally.totals["draft_s"].sum() == 0.0
    assert run("workload.requests=100").tally.totals["draft_s"].sum() > 0.0


def test_an_unforeseen_stop_token_costs_a_step_that_max_tokens_does_not() -> None:
    """Asynchronous scheduling notices a stop token one step late and discards that step's output."""
    known = run("speculation=none", "workload.requests=50", "workload.request_rate=1")
    unforeseen = run(
        "speculation=none", "workload.requests=50", "workload.request_rate=1", "workload.ignore_eos=false"
    )
    assert np.array_equal(known.log["emitted_tokens"], unforeseen.log["emitted_tokens"])
    extra = unforeseen.tally.totals["scheduled_tokens"].sum() - known.tally.totals["scheduled_tokens"].sum()
    assert extra == 50


def test_every_instance_takes_part() -> None:
    for router in ("round_robin", "least_requests"):
        result = run(
            f"router={router}", "cluster.instances=4", "workload.requests=400", "workload.request_rate=40"
        )
        shares = np.bincount(result.log["instance"], minlength=4) / 400
        assert np.all(shares > 0.2), router


def test_a_trace_request_that_can_never_fit_is_rejected_and_the_others_are_served(tmp_path: Path) -> None:
    rows = [{"arrival_s": float(number), "prompt_tokens": 100, "output_tokens": 20} for number in range(6)]
    rows[2]["prompt_tokens"] = 5000
    rows[4]["prompt_tokens"] = 200_000
    result = run(jsonl(tmp_path / "t.jsonl", rows), "engine.num_gpu_blocks=100")
    outcomes = [Outcome(outcome).name for outcome in result.log["outcome"]]
    assert outcomes == ["completed", "completed", "rejected", "completed", "rejected", "completed"]
    assert any("larger than the whole KV cache of 99 blocks" in warning for warning in result.warnings)
    assert any("prompt of max_model_len=131072 tokens or more" in warning for warning in result.warnings)


def test_a_synthetic_request_that_can_never_fit_is_refused() -> None:
    with pytest.raises(UserError) as error:
        run("engine.num_gpu_blocks=20", "workload.prompt_tokens=4000")
    assert str(error.value).startswith(
        "a request must fit into the KV cache of 19 blocks of 16 tokens alone (vLLM hangs"
    )


def test_answers_that_end_at_max_model_len_are_told_of() -> None:
    """A full answer of 128 tokens after 512 needs 640; where it ends before, latencies are of less work."""
    whole = run("engine.max_model_len=640", "workload.requests=20")
    cut = run("engine.max_model_len=520", "workload.requests=20")
    assert whole.log["emitted_tokens"].tolist() == [128] * 20
    assert cut.log["emitted_tokens"].tolist() == [8] * 20
    assert [warning for warning in whole.warnings if "short of" in warning] == []
    assert [warning for warning in cut.warnings if "short of" in warning] == [
        "20 requests would end at max_model_len=520, short of their output tokens; "
        "vLLM's API server refuses a max_tokens beyond it"
    ]


def test_tokens_of_answers_that_were_given_up_are_told_of() -> None:
    """Overload, and clients that leave after 2 s: most of what the server makes, nobody waits for."""
    overload = ("speculation=none", "workload.requests=400", "workload.request_rate=100")
    patient, others = summary(*overload), summary(*overload, "workload.timeout_s=2")
    assert patient["warnings"] == []
    assert others["bench_serve"]["output_tokens"] < 0.5 * others["tokens"]["emitted"]
    assert others["warnings"] == [
        "clients gave answers up before their end: latencies are of the completed requests alone, and the "
        "output throughput counts what the others had received too (token_goodput_tok_s does not)"
    ]


def test_the_manifest_of_a_run_makes_it_again(tmp_path: Path) -> None:
    """Also where instances differ; where it runs and where it is written are no part of it."""
    unlike = "cluster.overrides=[{instances: [1], set: {hardware: l40s, speculation: none}}]"
    asked = ("workload.requests=60", "cluster.instances=2", unlike, "seed=3", "executor=serial")
    done = run_single(compose([*asked, f"output.dir={tmp_path}"]), lambda *_: None)
    again = compose_file(tmp_path / "manifest.yaml", [])
    assert again.output.dir is None
    assert simulate(again).log.tobytes() == done.run.log.tobytes()  # type: ignore[attr-defined]


def test_the_manifest_of_a_sweep_is_not_one_simulation(tmp_path: Path) -> None:
    file = tmp_path / "manifest.yaml"
    file.write_text("{schema_version: 1, identity: x, config: {seed: 0, sweep: {name: a}}}")
    with pytest.raises(UserError) as error:
        compose_file(file, [])
    assert str(error.value) == (
        f"a file of --config is one simulation, but got a sweep ({file}). Give its command again with the "
        "same output.dir."
    )


def test_vllm_would_refuse_to_start_is_said_once() -> None:
    warnings = run("engine.num_gpu_blocks=200", "workload.requests=20").warnings
    assert [warning for warning in warnings if "vLLM would refuse to start" in warning]


def test_a_limit_that_looks_like_milliseconds_is_warned_of() -> None:
    given = ("slo.ttft_s=1000", "slo.tpot_s=30", "workload.requests=20")
    assert [warning for warning in run(*given).warnings if "in seconds" in warning] == [
        "slo.ttft_s=1000 is in seconds: for 1000 ms write 1",
        "slo.tpot_s=30 is in seconds: for 30 ms write 0.03",
    ]
    meant = run("slo.ttft_s=1", "slo.tpot_s=0.03", "workload.requests=20")
    assert not [warning for warning in meant.warnings if "in seconds" in warning]


def test_priorities_matter_under_the_priority_policy_and_are_warned_of_under_fcfs(tmp_path: Path) -> None:
    rows = [
        {"arrival_s": 0.0, "prompt_tokens": 200, "output_tokens": 50, "priority": number % 2}
        for number in range(60)
    ]
    trace = jsonl(tmp_path / "t.jsonl", rows)
    result = run(trace, "engine.scheduling_policy=priority", "engine.max_num_seqs=4")
    urgent, patient = (result.log["scheduled_s"][number::2].mean() for number in (0, 1))
    assert urgent < 0.7 * patient
    assert any("priorities of the trace do nothing" in warning for warning in run(trace).warnings)


def test_shared_prefixes_hit_the_cache(tmp_path: Path) -> None:
    rows = [
        {
            "arrival_s": float(number),
            "prompt_tokens": 160,
            "output_tokens": 16,
            "block_ids": [*range(8), *range(100 + 10 * number, 103 + 10 * number)],
        }
        for number in range(5)
    ]
    trace = jsonl(tmp_path / "t.jsonl", rows)
    cached = run(trace, "speculation=none").log["cached_tokens"].tolist()
    assert cached == [0, 128, 128, 128, 128]
    assert (
        run(trace, "speculation=none", "engine.enable_prefix_caching=false").log["cached_tokens"].sum() == 0
    )


@pytest.mark.ray
def test_a_single_simulation_on_ray_leaves_the_same_bytes(tmp_path: Path) -> None:
    for executor in ("serial", "ray"):
        overrides = ["workload.requests=40", f"executor={executor}", f"output.dir={tmp_path / executor}"]
        run_single(compose(overrides), lambda *_: None)
    for name in ("trials.parquet", "requests/trial-00000.parquet"):
        assert (tmp_path / "serial" / name).read_bytes() == (tmp_path / "ray" / name).read_bytes()


@pytest.mark.shared
@pytest.mark.skipif(not AZURE.exists(), reason="needs ../shared/traces")
def test_the_whole_azure_trace_is_accounted_for() -> None:
    result = summary(f"workload.trace={AZURE}", "cluster.instances=4")
    requests = result["requests"]
    assert requests["offered"] == 19_366
    assert sum(requests[outcome] for outcome in ("completed", "rejected", "cancelled", "timed_out")) == 19_366


def test_session_hash_keeps_a_session_on_its_instance_and_needs_sessions(tmp_path: Path) -> None:
    rows = [
        {"arrival_s": 0.1 * n, "prompt_tokens": 20, "output_tokens": 5, "session": n % 7} for n in range(70)
    ]
    trace = jsonl(tmp_path / "sessions.jsonl", rows)
    result = run(trace, "router=session_hash", "cluster.instances=4")
    instances = np.asarray(result.log["instance"])
    assert all(len(set(instances[session::7].tolist())) == 1 for session in range(7))
    assert len(set(instances.tolist())) > 1
    with pytest.raises(UserError, match="session_hash needs requests that belong to sessions"):
        run("router=session_hash", "workload.requests=10")
