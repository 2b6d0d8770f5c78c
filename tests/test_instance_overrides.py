"""cluster.overrides: what they mean, what does not go together, and how results tell to make them again."""

import json
from pathlib import Path
from typing import cast

import pytest
import yaml
from example_bundle import written
from mixing import (
    ROUND_ROBIN,
    SCHEDULE,
    TWO,
    error_of,
    overrides,
    plain,
    run,
    trace,
)
from omegaconf import OmegaConf
from sweeping import swept
from test_sweep import planned

from cluster_sim.compose import Composer, compose, to_yaml
from cluster_sim.config import Config, Method
from cluster_sim.errors import UserError
from cluster_sim.instances import kinds_of, own_of
from cluster_sim.results import run_manifest
from cluster_sim.run import simulate
from cluster_sim.trials import read_trials

# ---- what does not go together ----


def test_blocks_that_a_trace_tells_need_the_same_keys_on_all_instances(tmp_path: Path) -> None:
    rows = [
        {"arrival_s": n / 8, "prompt_tokens": 100, "output_tokens": 20, "block_ids": [1, 2, 3, 4, 5, 6]}
        for n in range(12)
    ]
    arguments = (trace(tmp_path / "t.jsonl", rows), *TWO)
    assert error_of(*arguments, overrides("[1] speculation: none")) == (
        "where a trace tells which blocks are the same, a block's key must cover as much on all instances, "
        "but got 0 and 1 tokens after it (cluster.overrides). Set engine.disable_lookahead_block_hashes=true "
        "where EAGLE or MTP drafts."
    )
    plain_keys = overrides("[0] engine.disable_lookahead_block_hashes: true", "[1] speculation: none")
    cached = run(*arguments, plain_keys).log["cached_tokens"]
    assert cached[2::2].tolist() == [80] * 5  # EAGLE without look-ahead keys drops the last of six blocks
    assert cached[3::2].tolist() == [96] * 5
    no_cache = overrides("[1] speculation: none, engine.enable_prefix_caching: false")
    assert run(*arguments, no_cache).log["cached_tokens"][3::2].tolist() == [0] * 5


def test_an_output_that_max_model_len_bounds_has_one_bound() -> None:
    text = error_of(*ROUND_ROBIN, "workload.ignore_eos=false", overrides("[1] engine.max_model_len: 2048"))
    assert text == (
        "max_model_len must be the same on all instances where it bounds the output (ignore_eos=false), but "
        "got 2048 and 131072 (engine.max_model_len). Set it once, or workload.ignore_eos=true."
    )


def test_recorded_lengths_are_walked_by_all_instances_that_draft(tmp_path: Path) -> None:
    (tmp_path / "lengths.jsonl").write_text(json.dumps({"accepted": [0, 3, 1]}) + "\n")
    walk = f"speculation.acceptance: {{policy: trace, file: {tmp_path / 'lengths.jsonl'}}}"
    assert error_of(*ROUND_ROBIN, overrides(f"[1] {walk}")) == (
        "with policy trace, all instances that draft walk the same recorded lengths, but got different "
        "acceptance (speculation.acceptance). Give them one speculation.acceptance, or profiles of another "
        "policy."
    )
    mixed = run(*ROUND_ROBIN, overrides(f"[0] {walk}", "[1] speculation: none"))
    assert mixed.log["drafted_tokens"][::2].all()
    assert not mixed.log["drafted_tokens"][1::2].any()


def test_a_profile_reaches_as_far_as_its_own_instances_draft() -> None:
    rates = "speculation.acceptance={policy: per_position, rates: [0.8, 0.5, 0.4], rates_are: marginal}"
    decay = "speculation.acceptance: {policy: decay, rate: 0.6}"
    deeper = "speculation.num_speculative_tokens: 6"
    mixed = run(*ROUND_ROBIN, rates, overrides(f"[1] {deeper}, {decay}"))
    assert mixed.log["drafted_tokens"].all()
    assert error_of(*ROUND_ROBIN, rates, overrides(f"[1] {deeper}")) == (
        "a draft of 4 tokens needs 4 rates, one per position, but got 3 (speculation.acceptance.rates; "
        "instance 1). Add 1 more, or draft at most 3 tokens."
    )


def test_runs_of_ease_are_equally_long_on_all_instances() -> None:
    spread = "speculation.acceptance: {{policy: decay, rate: 0.6, run_spread: 1.0, run_tokens: {}}}"
    mixed = overrides(f"[0] {spread.format(8)}", f"[1] {spread.format(16)}")
    assert error_of(*ROUND_ROBIN, mixed) == (
        "runs must be equally long in all classes and on all instances, but got 8 and 16 "
        "(speculation.acceptance.run_tokens). Set one run_tokens."
    )


def test_an_error_of_one_kind_names_its_instances() -> None:
    text = error_of(*ROUND_ROBIN, overrides("[1] engine.gpu_memory_utilization: 0.1"))
    assert "; instance 1)" in text


# ---- the configuration ----


def test_keys_and_options_mean_what_they_mean_for_a_whole_cluster() -> None:
    config = compose([*ROUND_ROBIN, overrides(f"[1] {SCHEDULE}, hardware: a100, speculation: eagle")])
    own = config.cluster.overrides[0].resolved if config.cluster.overrides else None
    schedule = plain(SCHEDULE)
    assert own == own_of(compose([*ROUND_ROBIN, "hardware=a100", "speculation=eagle", *schedule]))
    (shared, other) = kinds_of(config)
    assert shared.config == compose(ROUND_ROBIN)
    assert other.instances == (1,)


def test_a_sweeps_changes_lie_below_the_overrides() -> None:
    """An arm's draft length holds for those who draft; a drafter turned off takes none of it."""
    composer = Composer([*ROUND_ROBIN, "engine.max_num_seqs=64"])
    mix = [
        {"instances": [0], "set": {"speculation": "none"}},
        {"instances": [1], "set": {"engine.max_num_batched_tokens": 4096}},
    ]
    variant = composer.variant({"speculation.num_speculative_tokens": 7, "cluster.overrides": mix})
    off, on = (kind.config for kind in kinds_of(variant))
    assert off.speculation.method is Method.none
    assert (on.speculation.num_speculative_tokens, on.engine.max_num_batched_tokens) == (7, 4096)
    assert off.engine.max_num_seqs == on.engine.max_num_seqs == 64
    assert composer.variant({}).cluster.overrides is None


def test_a_sweep_compares_a_mixed_cluster_with_others(tmp_path: Path) -> None:
    arms = (
        "mixed: {cluster.overrides: [{instances: [1], set: {speculation: none, hardware: a100}}]}, "
        "off: {speculation: none}"
    )
    sweep = (
        "+sweep=spec_grid",
        "sweep.baseline=off",
        "sweep.axes={workload.request_rate: [20]}",
        "sweep.seeds=[0]",
        "cluster.instances=2",
        "workload.requests=60",
    )
    assert swept(tmp_path, *sweep, f"sweep.arms={{{arms}}}") == 0
    rows = {row["arm"]: row for row in read_trials(tmp_path)}
    assert rows["mixed"]["by_instance_kind.0.tokens.drafted"] == rows["mixed"]["tokens.drafted"] > 0
    assert rows["mixed"]["by_instance_kind.1.bundle"] == "llama-3.1-8b-a100-tp1"
    assert rows["off"].get("by_instance_kind.0.tokens.drafted") is None
    manifest = yaml.safe_load((tmp_path / "manifest.yaml").read_text())
    assert {"bundle llama-3.1-8b-h100-tp1", "bundle llama-3.1-8b-a100-tp1"} <= manifest["digests"].keys()
    flips = json.loads((tmp_path / "summary.json").read_text())["flips"]
    assert "mixed" not in flips, "its instances differ in more than their drafts"


def test_trials_carry_whole_paths_and_schedules_of_every_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker process has another working directory, and finds no schedule by itself."""
    monkeypatch.chdir(written(tmp_path / "mine").parent)
    auto = "speculation.num_speculative_tokens_per_batch_size: auto"
    trials = planned(
        "+sweep=rate_curve",
        "cluster.instances=2",
        "workload.requests=20",
        "sweep.seeds=[0]",
        "sweep.axes.workload.request_rate=[4, 40]",
        overrides(f"[1] speculation: eagle3, cluster.bundle: ./mine, {auto}"),
    )
    assert len(trials) == 4
    for trial in trials:
        shared, own = (kind.config for kind in kinds_of(trial.config))
        assert own.cluster.bundle == str(tmp_path / "mine")
        assert shared.cluster.bundle is None
        assert isinstance(own.speculation.num_speculative_tokens_per_batch_size, list)


def test_a_file_of_conf_can_hold_them(tmp_path: Path) -> None:
    (tmp_path / "cluster").mkdir()
    (tmp_path / "cluster" / "mixed.yaml").write_text(
        "instances: 2\ntensor_parallel_size: 1\ndata_parallel_size: 1\nenable_expert_parallel: false\n"
        "overrides:\n- instances: [1]\n  set: {hardware: a100}\n"
    )
    config = compose([f"hydra.searchpath=[{tmp_path}]", "cluster=mixed"])
    assert [kind.config.hardware.name for kind in kinds_of(config)] == ["h100", "a100"]
    (tmp_path / "cluster" / "wrong.yaml").write_text("instances: 2\noverrides:\n- instances: 1\n")
    with pytest.raises(UserError) as caught:
        compose([f"hydra.searchpath=[{tmp_path}]", "cluster=wrong"])
    assert str(caught.value) == (
        "the files of the configuration must compose, but got In 'cluster/wrong': ValidationError raised "
        "while composing config: Invalid value assigned: AnyNode is not a ListConfig, list or tuple. "
        "(cluster/wrong.yaml). Correct it."
    )


def test_what_is_printed_and_what_the_manifest_holds_make_the_same_run() -> None:
    config = compose([*ROUND_ROBIN, overrides("[1] speculation: none, hardware: a100")])
    first = simulate(config)
    printed = OmegaConf.merge(OmegaConf.structured(Config), OmegaConf.create(to_yaml(config)))
    assert OmegaConf.to_object(printed) == config
    manifest = yaml.safe_load(yaml.safe_dump(run_manifest(first)))
    read = OmegaConf.merge(OmegaConf.structured(Config), manifest["config"])
    again = cast(Config, OmegaConf.to_object(read))
    second = simulate(again)
    assert first.log.tobytes() == second.log.tobytes()  # type: ignore[attr-defined]
    assert run_manifest(second)["identity"] == manifest["identity"]
    names = ["bundle llama-3.1-8b-h100-tp1", "bundle llama-3.1-8b-a100-tp1"]
    assert len({manifest["digests"][name] for name in names}) == 2
