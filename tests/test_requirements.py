"""What vLLM 0.33 keeps and changes for each proposer: config/vllm.py and config/speculative.py, read."""

from dataclasses import replace

import numpy as np
import pytest
from engine_worlds import Asked, Scenario, Server, play
from example_bundle import CONFIG, engine

from cluster_sim.config import CudagraphMode, EngineConfig, Method, SpeculationConfig
from cluster_sim.speculation.requirements import (
    Requirements,
    changes,
    cudagraph_mode,
    requirements,
    runs_async,
    schedules,
    uses_v2_runner,
)

MODEL = CONFIG.model
MODULES = {1: replace(MODEL, num_nextn_predict_layers=1), 3: replace(MODEL, num_nextn_predict_layers=3)}
K = 4
SCHEDULE = [[1, 4, 3], [5, 64, 0]]


def speculation(method: Method, **changes: object) -> SpeculationConfig:
    return replace(CONFIG.speculation, method=method, **changes)


def needs(method: Method, modules: int = 1, drafts: int = K, **flags: object) -> Requirements:
    return requirements(speculation(method), drafts, engine(**flags), MODULES[modules])


@pytest.mark.parametrize(
    ("method", "kept"),
    [
        (Method.ngram, Requirements(0, 0, 0, 0, False, False)),
        (Method.suffix, Requirements(0, 0, 0, 0, False, False)),
        (Method.medusa, Requirements(0, 0, 0, 0, False, False)),
        (Method.draft_model, Requirements(K, 1, 0, 0, False, True)),
        (Method.eagle, Requirements(K, 0, 1, 1, False, True)),
        (Method.eagle3, Requirements(K, 0, 1, 1, False, True)),
        (Method.mtp, Requirements(K, 0, 1, 1, False, True)),
        (
            Method.parallel,
            Requirements(K + 1, 0, 0, 1, False, True),
        ),  # use_eagle() holds of dflash, needs_eagle_block_drop() not
    ],
)
def test_each_method_keeps_what_vllm_keeps(method, kept):
    assert needs(method) == kept


def test_no_speculation_keeps_nothing():
    assert needs(Method.none, drafts=0) == Requirements()


def test_several_modules_read_as_far_ahead_as_they_draft():
    """use_multi_module_mtp: min(modules, K) > 1; then K tokens, not the number of modules."""
    assert needs(Method.mtp, modules=3).prefill_lookahead_tokens == K
    assert needs(Method.mtp, modules=3).hash_lookahead_tokens == K
    assert needs(Method.mtp, modules=3, drafts=1).prefill_lookahead_tokens == 1
    assert needs(Method.eagle3, modules=3).prefill_lookahead_tokens == 1


@pytest.mark.parametrize("method", [Method.eagle, Method.eagle3, Method.mtp])
def test_plain_keys_of_the_prefix_cache_cost_the_last_block_unless_that_is_waived(method):
    plain = needs(method, disable_lookahead_block_hashes=True)
    assert (plain.hash_lookahead_tokens, plain.drops_last_hit_block) == (0, True)
    waived = needs(method, disable_eagle_block_drop=True)
    assert (waived.hash_lookahead_tokens, waived.drops_last_hit_block) == (0, False)
    off = needs(method, enable_prefix_caching=False)
    assert off.hash_lookahead_tokens == 0


def test_the_v1_runner_never_skips_drafts():
    assert not needs(Method.eagle, use_v2_model_runner=False).may_skip


@pytest.mark.parametrize("method", [method for method in Method if method is not Method.none])
def test_the_runner_decides_what_can_follow_a_schedule_and_run_ahead(method):
    """_get_v2_model_runner_unsupported_features, _maybe_disable_dynamic_sd_for_v1, async too."""
    v1, v2 = engine(use_v2_model_runner=False), engine()
    assert uses_v2_runner(v2, method) is (method not in (Method.suffix, Method.medusa))
    assert not uses_v2_runner(v1, method)
    assert schedules(v1, method) is (method not in (Method.suffix, Method.medusa))
    assert schedules(v2, method) is (method not in (Method.suffix, Method.medusa))
    assert runs_async(v1, method) is (method not in (Method.ngram, Method.suffix, Method.medusa))
    assert runs_async(v2, method) is (method not in (Method.suffix, Method.medusa))
    assert not runs_async(engine(async_scheduling=False), method)


def told(method: Method, limits: EngineConfig, schedule: object = None) -> list[str]:
    return list(changes(limits, speculation(method, num_speculative_tokens_per_batch_size=schedule)))


def test_what_vllm_changes_is_told():
    v1, v2 = engine(use_v2_model_runner=False), engine()
    is_off = "as in vLLM, async_scheduling is off: the V1 model runner has none with method "
    assert told(Method.eagle3, v2, SCHEDULE) == []
    assert told(Method.ngram, v2) == []
    assert told(Method.ngram, v1) == [f"{is_off}ngram"]
    assert told(Method.suffix, v2) == [
        "as in vLLM, method suffix runs on the V1 model runner, V2 does not have it",
        f"{is_off}suffix",
    ]
    assert told(Method.suffix, replace(v1, async_scheduling=False)) == []
    assert told(Method.medusa, v1) == [
        "vLLM 0.33 has no medusa: it runs here as in 0.10, on the V1 model runner",
        f"{is_off}medusa",
    ]
    assert told(Method.eagle3, v1, SCHEDULE) == [
        "as in vLLM, cudagraph_mode FULL_AND_PIECEWISE becomes PIECEWISE: under "
        "num_speculative_tokens_per_batch_size the V1 model runner has no full graphs"
    ]


def test_only_the_v1_runner_under_a_schedule_loses_its_full_graphs():
    by_size = speculation(Method.eagle3, num_speculative_tokens_per_batch_size=SCHEDULE)
    static, v1 = speculation(Method.eagle3), engine(use_v2_model_runner=False)
    assert cudagraph_mode(v1, by_size) is CudagraphMode.PIECEWISE
    assert cudagraph_mode(engine(), by_size) is CudagraphMode.FULL_AND_PIECEWISE
    assert cudagraph_mode(v1, static) is CudagraphMode.FULL_AND_PIECEWISE
    eager = replace(v1, cudagraph_mode=CudagraphMode.NONE)
    assert cudagraph_mode(eager, by_size) is CudagraphMode.NONE


def reserve_prefill_lookahead(num_tokens: int, computed: int, new: int, lookahead: int) -> int:
    """Scheduler._reserve_prefill_lookahead of vLLM 0.33.0, as it stands."""
    remaining = num_tokens - computed - new
    if 0 < remaining < lookahead:
        new -= lookahead - remaining
    return max(new, 0)


@pytest.mark.parametrize("prompt", range(9, 41))
@pytest.mark.parametrize("lookahead", [1, 3, 5])
def test_no_chunk_ends_within_reach_of_several_modules_before_the_end_of_the_prompt(prompt, lookahead):
    budget = 8
    server = Server(
        max_num_batched_tokens=budget,
        max_num_scheduled_tokens=budget,
        prefill_lookahead_tokens=lookahead,
        num_speculative_tokens=lookahead,
        lookahead_tokens=lookahead,
    )
    world = play(Scenario((Asked(prompt_tokens=prompt, max_tokens=1),), (server,)).rules())
    computed, steps = 0, 0
    while computed < prompt:
        chunk = reserve_prefill_lookahead(prompt, computed, min(budget, prompt - computed), lookahead)
        computed, steps = computed + chunk, steps + 1
        assert prompt - computed == 0 or prompt - computed >= lookahead
    assert int(np.sum(world.tally.totals["steps"])) == steps
