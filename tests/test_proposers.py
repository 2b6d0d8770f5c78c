"""Proposers from the command line's words to the engine: what is refused, what is told, what they cost."""

import re

import pytest

from cluster_sim.build import build
from cluster_sim.compose import compose
from cluster_sim.errors import UserError
from cluster_sim.results import Run
from cluster_sim.run import simulate

GEOMETRIC = "speculation.acceptance={policy: geometric, rate: 0.6}"
SMALL = ("workload.requests=40", "workload.request_rate=4", "workload.prompt_tokens=1024")
SCHEDULE = "speculation.num_speculative_tokens_per_batch_size=[[1, 4, 3], [5, 64, 0]]"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("speculation=none", "speculation.draft_pass_s=0.001"),
            "draft_pass_s has no effect with method none, but got 0.001 (speculation.draft_pass_s). Write "
            "speculation=none without it, or choose a method: speculation=eagle3.",
        ),
        (
            ("speculation=none", "speculation.model=llama-3.2-1b"),
            "model has no effect with method none, but got llama-3.2-1b (speculation.model). Write "
            "speculation=none without it, or choose a method: speculation=eagle3.",
        ),
        (
            ("speculation=none", "engine.use_v2_model_runner=false"),
            "the model runner has an effect only with speculation, but got false "
            "(engine.use_v2_model_runner). Leave engine.use_v2_model_runner out.",
        ),
        (
            ("speculation=eagle", "speculation.model=llama-3.2-1b"),
            "model has no effect with method eagle, but got llama-3.2-1b (speculation.model). Leave it out, "
            "or choose speculation=draft_model.",
        ),
        (
            ("speculation=draft_model", GEOMETRIC, "speculation.model=null"),
            "method draft_model needs a model that drafts, but got null (speculation.model). Name a small "
            "model of the target's family: speculation.model=llama-3.2-1b.",
        ),
        (
            ("speculation=eagle", "speculation.draft_cost=given"),
            "draft_cost given needs the time, but got null (speculation.draft_pass_s). Give the time of one "
            "of its passes in s: speculation.draft_pass_s=0.0007.",
        ),
        (
            ("speculation=eagle", "speculation.draft_pass_s=0.001"),
            "draft_pass_s has no effect with draft_cost bundle, but got 0.001 (speculation.draft_pass_s). "
            "Leave it out, or set speculation.draft_cost=given.",
        ),
        (
            ("speculation=eagle", "speculation.draft_cost=given", "speculation.draft_pass_s=0"),
            "the time of a drafter's pass in s must be above 0, but got 0.0 (speculation.draft_pass_s). Set "
            "speculation.draft_pass_s to a number above 0.",
        ),
        (
            ("speculation=mtp",),
            "speculation.method=mtp needs a model with an MTP module, but got llama-3.1-8b, whose "
            "num_nextn_predict_layers is 0 (speculation.method). Use eagle, eagle3, ngram, parallel, suffix, "
            "or a model that was trained with one.",
        ),
        (
            ("speculation=draft_model", GEOMETRIC, "speculation.model=qwen3-0.6b"),
            "a draft model must have the 128256 tokens of llama-3.1-8b's vocabulary, but got 151936 of "
            "qwen3-0.6b (speculation.model). Name a model of conf/model, of the same family as the target.",
        ),
    ],
)
def test_options_that_are_missing_or_do_nothing_are_refused(arguments, said):
    with pytest.raises(UserError) as refused:
        build(compose([*arguments, *SMALL]))
    assert str(refused.value) == said


def test_a_draft_model_that_nobody_knows_is_refused_with_those_that_are_known():
    said = (
        r"got llama-9b \(speculation.model\). Choose one with speculation.model=OPTION. Options: deepseek-v3"
    )
    with pytest.raises(UserError, match=said):
        build(compose(["speculation=draft_model", GEOMETRIC, "speculation.model=llama-9b", *SMALL]))


def test_a_draft_model_is_found_by_the_name_of_its_checkpoint():
    named = build(
        compose(
            [
                "speculation=draft_model",
                GEOMETRIC,
                "speculation.model=meta-llama/Llama-3.2-1B-Instruct",
                *SMALL,
            ]
        )
    )
    option = build(compose(["speculation=draft_model", GEOMETRIC, *SMALL]))
    assert named.memory == option.memory


@pytest.mark.parametrize("method", ["suffix", "medusa"])
def test_the_v1_runner_sets_a_schedule_aside_that_it_cannot_follow(method):
    built = build(compose([f"speculation={method}", GEOMETRIC, SCHEDULE, *SMALL]))
    assert (
        f"as in vLLM, num_speculative_tokens_per_batch_size is set aside with method {method} on the V1 "
        "model runner: every step drafts num_speculative_tokens=3"
    ) in built.warnings
    assert set(built.rules.draft_length_at.ravel()) == {3}
    assert built.engine.cudagraph_mode.name == "FULL_AND_PIECEWISE"  # without a schedule nothing is lowered
    assert not built.engine.async_scheduling


def test_the_v1_runner_follows_a_schedule_without_full_graphs():
    built = build(compose(["speculation=eagle3", "engine.use_v2_model_runner=false", SCHEDULE, *SMALL]))
    assert built.engine.cudagraph_mode.name == "PIECEWISE"
    assert [line for line in built.warnings if "becomes PIECEWISE" in line]
    full = build(compose(["speculation=eagle3", SCHEDULE, *SMALL]))
    assert built.memory.graphs_bytes < full.memory.graphs_bytes
    dense_s = built.rules.step_time.dense_s[0]
    assert dense_s[4, 4] == dense_s[0, 4] > full.rules.step_time.dense_s[0][4, 4]


def test_a_draft_model_shortens_the_sequences_of_the_v2_runner():
    qwen = ("model=qwen3-30b-a3b", "hardware=h200", "speculation.model=qwen3-0.6b")
    arguments = ["speculation=draft_model", GEOMETRIC, *qwen, *SMALL]
    built = build(compose(arguments))
    assert built.engine.max_model_len == 40960
    assert "as in vLLM, max_model_len 262144 becomes 40960, that of qwen3-0.6b" in built.warnings
    old = build(compose([*arguments, "engine.use_v2_model_runner=false"]))
    assert old.engine.max_model_len == 262144
    assert [
        line for line in old.warnings if line.startswith("qwen3-0.6b drafts beyond its 40960 tokens here")
    ]


def run(*arguments: str) -> Run:
    return simulate(compose([*arguments, *SMALL]))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("speculation=none",), "no speculation"),
        (("speculation=eagle",), "bundle"),
        (("speculation=draft_model", GEOMETRIC), "roofline of its architecture"),
        (("speculation=medusa", GEOMETRIC), "roofline of its architecture"),
        (("speculation=parallel", GEOMETRIC), "bundle|roofline of its architecture"),
        (
            ("speculation=eagle", "speculation.draft_cost=given", "speculation.draft_pass_s=0.0007"),
            "given: 0.7 ms a pass",
        ),
        (("speculation=eagle", "speculation.draft_cost=zero"), "zero: upper bound"),
    ],
)
def test_a_result_names_where_the_drafters_time_comes_from(arguments, words):
    assert re.fullmatch(words, run(*arguments).draft_cost)


def first_ttft_s(*arguments: str) -> float:
    """Of the first request, which is alone."""
    log = run("workload.output_tokens=16", *arguments)
    return float(log.log["first_token_s"][0] - log.requests["arrival_s"][0])


def test_drafting_over_the_prompt_shows_in_the_first_token():
    """The first pass of eagle covers the prompt's tokens, before the step's token is delivered."""
    off, eagle, free = (
        first_ttft_s("speculation=none"),
        first_ttft_s("speculation=eagle"),
        first_ttft_s("speculation=eagle", "speculation.draft_cost=zero"),
    )
    assert free == pytest.approx(off, rel=1e-6)
    assert eagle > off + 0.7e-3


def test_no_drafts_inside_a_schedule_pay_the_first_pass_of_every_step():
    never = "speculation.num_speculative_tokens_per_batch_size=[[1, 1024, 0]]"
    off = run("speculation=none")
    zero = run("speculation=eagle", never)
    free = run("speculation=eagle", never, "speculation.draft_cost=zero")
    assert off.tally.totals["draft_s"].sum() == free.tally.totals["draft_s"].sum() == 0
    built = build(compose(["speculation=eagle", never, *SMALL]))
    least_s = float(built.rules.step_time.draft_first_s[0, 1])
    assert zero.tally.totals["draft_s"].sum() > 0.9 * least_s * zero.tally.totals["steps"].sum()
    assert zero.tally.totals["clock_s"].max() > off.tally.totals["clock_s"].max()
