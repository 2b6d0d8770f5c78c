"""vLLM's --speculative-config as it is: what it sets, what it may not, what vLLM dropped, the way back."""

import json
import shlex
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_sim.build import build
from cluster_sim.compose import Composer, compose, to_yaml
from cluster_sim.config import AcceptancePolicy, Config, Method, RatesAre
from cluster_sim.errors import UserError
from cluster_sim.paths import conf_dir, group_options
from cluster_sim.schema import all_keys
from cluster_sim.speculation import vllm_options
from cluster_sim.speculation.acceptance import acceptance_length, conditional_table
from cluster_sim.speculation.vllm_config import KEY, read, to_vllm_config, warnings_of

EAGLE3: dict[str, Any] = {"method": "eagle3", "num_speculative_tokens": 3}


def said(**options: object) -> str:
    """The override for EAGLE-3 with 3 drafts and `options`."""
    return f"{KEY}={json.dumps({**EAGLE3, **options})}"


def error_of(*arguments: str) -> str:
    with pytest.raises(UserError) as caught:
        compose(arguments)
    return str(caught.value)


def test_json_hydra_and_a_mapping_are_read_alike() -> None:
    json_text = compose([said(num_speculative_tokens_per_batch_size=[[1, 4, 3], [5, 64, 0]])])
    in_hydra = compose(
        [
            f"{KEY}={{method:eagle3,num_speculative_tokens:3,"
            "num_speculative_tokens_per_batch_size:[[1,4,3],[5,64,0]]}"
        ]
    )
    shell = shlex.split(f"{KEY}='{json.dumps(EAGLE3)}'")
    assert json_text == in_hydra
    assert json_text.speculation.num_speculative_tokens_per_batch_size == [[1, 4, 3], [5, 64, 0]]
    assert compose(shell).speculation.num_speculative_tokens == 3


def test_it_chooses_the_option_of_its_method_with_its_acceptance() -> None:
    written = compose([f'{KEY}={{"method": "eagle", "num_speculative_tokens": 5}}']).speculation
    option = compose(["speculation=eagle", "speculation.num_speculative_tokens=5"]).speculation
    assert written == option


def test_what_it_says_is_the_same_as_saying_it_key_by_key() -> None:
    written = said(disable_eagle_block_drop=True, num_speculative_tokens_per_batch_size=[["1", 4.0, 3]])
    assert compose([written]) == compose(
        [
            "speculation=eagle3",
            "speculation.num_speculative_tokens=3",
            "speculation.num_speculative_tokens_per_batch_size=[[1,4,3]]",
            "engine.disable_eagle_block_drop=true",
        ]
    )


@pytest.mark.parametrize(("word", "method"), vllm_options.METHODS.items())
def test_every_method_of_vllm_is_one_here(word: str, method: Method) -> None:
    assert read({"method": word, "num_speculative_tokens": 2, "model": "m"}).method is method


@pytest.mark.parametrize(
    ("model", "method"),
    [
        ("yuhuili/EAGLE-LLaMA3-Instruct-8B", Method.eagle),
        ("yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", Method.eagle3),
        ("AngelSlim/Qwen3-8B_eagle3", Method.eagle3),
        ("z-lab/Qwen3-8B-DFlash", Method.parallel),
        ("deepseek-ai/dspark_qwen3_8b_block7", Method.parallel),
        ("ngram", Method.ngram),
        ("[ngram]", Method.ngram),
        ("meta-llama/Llama-3.2-1B", Method.draft_model),
    ],
)
def test_without_a_method_the_checkpoint_tells_it_as_for_vllm(model: str, method: Method) -> None:
    assert read({"model": model, "num_speculative_tokens": 2}).method is method


def test_only_a_draft_model_is_a_model_here() -> None:
    draft = read({"method": "draft_model", "model": "meta-llama/Llama-3.2-1B", "num_speculative_tokens": 2})
    assert draft.model == "meta-llama/Llama-3.2-1B"
    head = read({**EAGLE3, "model": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"})
    assert head.model is None
    assert warnings_of(head.kept) == ()


def test_suffix_trees_limit_the_drafts_where_nothing_else_does() -> None:
    assert read({"method": "suffix"}).num_speculative_tokens == 24
    assert read({"method": "suffix", "suffix_decoding_max_tree_depth": 12}).num_speculative_tokens == 12
    assert read({"method": "suffix", "num_speculative_tokens": 32}).num_speculative_tokens == 32


@pytest.mark.parametrize(
    ("length", "drafts", "rates"),
    [(2.6, 3, [1, 0.6, 0]), (3.4, 5, [1, 1, 0.4, 0, 0]), (1, 2, [0, 0]), (3, 2, [1, 1]), (2, 1, [1])],
)
def test_a_synthetic_length_becomes_rates_of_least_variance(
    length: float, drafts: int, rates: list[float]
) -> None:
    """../shared/vllm-scheduler.md section 12 and spec-decode-facts.md D2."""
    found = read(
        {
            "method": "eagle3",
            "num_speculative_tokens": drafts,
            "rejection_sample_method": "synthetic",
            "synthetic_acceptance_length": length,
        }
    ).rates
    assert found == pytest.approx(rates)


@given(drafts=st.integers(1, 8), share=st.floats(0, 1))
def test_synthetic_rates_have_the_length_that_was_asked_for(drafts: int, share: float) -> None:
    """AL = 1 + sum of the marginals (spec-decode-facts.md D1)."""
    length = 1 + share * drafts
    config = {
        "method": "eagle",
        "num_speculative_tokens": drafts,
        "rejection_sample_method": "synthetic",
        "synthetic_acceptance_length": length,
    }
    rates = read(config).rates
    assert rates is not None
    assert 1 + sum(rates) == pytest.approx(length)
    assert all(0 <= rate <= 1 for rate in rates)
    assert rates == sorted(rates, reverse=True)


def test_synthetic_rates_are_marginals_of_the_first_positions_at_every_draft_length() -> None:
    rates = [0.8, 0.6, 0.3]
    synthetic = said(rejection_sample_method="synthetic", synthetic_acceptance_rates=rates)
    acceptance = compose([synthetic]).speculation.acceptance
    assert acceptance is not None
    assert (acceptance.policy, acceptance.rates_are) == (AcceptancePolicy.per_position, RatesAre.marginal)
    assert acceptance.rates == rates
    assert acceptance.source == "synthetic_acceptance_rates of vLLM's speculative config"
    table = conditional_table(acceptance, 3)
    assert np.cumprod(table[3]).tolist() == pytest.approx(rates)
    assert acceptance_length(table, 2) == pytest.approx(1 + 0.8 + 0.6)


def test_options_without_effect_are_named_once() -> None:
    config = compose(
        [
            said(
                attention_backend="FLASH_ATTN",
                draft_sample_method="probabilistic",
                enforce_eager=None,
                disable_padded_drafter_batch=False,
                rejection_sample_method="standard",
                model="yuhuili/EAGLE3-LLaMA3.1-Instruct-8B",
            ),
            "workload.requests=4",
        ]
    )
    line = (
        "of vLLM's speculative config, attention_backend, draft_sample_method change nothing in the "
        "simulation (acceptance is an input, and kernels are the bundle's)"
    )
    assert [warning for warning in build(config).warnings if "speculative config" in warning] == [line]
    assert not [warning for warning in build(compose([said()])).warnings if "speculative" in warning]


def test_an_option_without_effect_has_none() -> None:
    plain = build(compose([said(), "workload.requests=4"])).rules
    other = build(compose([said(attention_backend="FLASH_ATTN"), "workload.requests=4"])).rules
    assert all(np.array_equal(a, b) for a, b in zip(plain.step_time, other.step_time, strict=True))
    assert repr(plain.batching) == repr(other.batching)


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (
            f"{KEY}=5",
            f"vllm_config must be the JSON of --speculative-config, but got 5 ({KEY}). "
            f'Write {KEY}=\'{{"method": "eagle3", "num_speculative_tokens": 3}}\'.',
        ),
        (
            f"{KEY}={{num_speculative_tokens:3}}",
            f"vllm_config needs a method or a model, but got neither ({KEY}.method). "
            'Add one, for example "method": "eagle3".',
        ),
        (
            f"{KEY}={{method:eagle3}}",
            f"vllm_config needs the number of drafts, but got none ({KEY}.num_speculative_tokens). "
            "Give it; vLLM would look into the drafter's checkpoint.",
        ),
        (
            f"{KEY}={{method:eagle3,num_speculative_tokens:0}}",
            "the draft length must be a whole number of 1 or more, but got 0 "
            f"({KEY}.num_speculative_tokens). Correct it.",
        ),
        (
            f"{KEY}={{method:draft_model,num_speculative_tokens:2}}",
            f"method draft_model needs the model that drafts, but got none ({KEY}.model). "
            'Add "model", a checkpoint or an option of conf/model.',
        ),
        (
            f"{KEY}={{method:medusa,num_speculative_tokens:2}}",
            f"the method must be one that is simulated, but got 'medusa' ({KEY}.method). "
            "vLLM 0.33 has no medusa: choose speculation=medusa without vllm_config.",
        ),
        (
            f"{KEY}={{method:eagle3,num_speculative_tokens:2,synthetic_acceptance_length:2}}",
            "synthetic_acceptance_length needs rejection_sample_method synthetic, but got 'standard' "
            f'({KEY}.rejection_sample_method). Add "rejection_sample_method": "synthetic", '
            "or leave synthetic_acceptance_length out.",
        ),
        (
            f"{KEY}={{method:eagle3,num_speculative_tokens:2,rejection_sample_method:synthetic}}",
            "synthetic acceptance needs synthetic_acceptance_rates or synthetic_acceptance_length, "
            f"but got neither ({KEY}). Give one of them.",
        ),
        (
            f"{KEY}={{method:eagle3,num_speculative_tokens:1,rejection_sample_method:synthetic,"
            "synthetic_acceptance_length:1.5,synthetic_acceptance_rates:[0.5]}",
            "synthetic acceptance needs synthetic_acceptance_rates or synthetic_acceptance_length, "
            f"but got both ({KEY}). Give one of them.",
        ),
        (
            f"{KEY}={{method:eagle3,num_speculative_tokens:2,rejection_sample_method:synthetic,"
            "synthetic_acceptance_length:3.5}",
            "the mean length, bonus token included, must lie between 1 and 1 + K = 3, but got 3.5 "
            f"({KEY}.synthetic_acceptance_length). Correct it, or num_speculative_tokens.",
        ),
        (
            f"{KEY}={{method:eagle3,num_speculative_tokens:2,rejection_sample_method:synthetic,"
            "synthetic_acceptance_rates:[0.5]}",
            "there must be a rate for each of the 2 drafts, but got [0.5] "
            f"({KEY}.synthetic_acceptance_rates). Give 2 rates, from the first draft to the last.",
        ),
        (
            f"{KEY}={{method:eagle3,num_speculative_tokens:2,rejection_sample_method:synthetic,"
            "synthetic_acceptance_rates:[0.5,0.6]}",
            "rates must not increase: each is the chance that all drafts up to it are accepted, "
            f"but got 0.5 then 0.6 ({KEY}.synthetic_acceptance_rates[1]). Multiply conditional rates up.",
        ),
        (
            f"{KEY}={{method:eagle3,num_speculative_tokens:1,rejection_sample_method:synthetic,"
            "synthetic_acceptance_rates:[80]}",
            f"a rate must lie between 0 and 1, but got 80.0 ({KEY}.synthetic_acceptance_rates[0]). "
            "Give a fraction.",
        ),
        (
            f"{KEY}={{method:eagle3,num_speculative_tokens:2,rejection_sample_method:strict}}",
            "rejection_sample_method must be a word of vLLM 0.33, but got 'strict' "
            f"({KEY}.rejection_sample_method). "
            "Write rejection_sample_method standard, draft_sample_method greedy.",
        ),
        (
            f"{KEY}={{method:eagle3,num_speculative_tokens:2,parallel_drafting:true}}",
            f"parallel_drafting is not modelled, but got true ({KEY}.parallel_drafting). "
            "Leave it out; a block drafter such as DFlash is method dflash.",
        ),
        (
            f"{KEY}={{method:eagle3,num_speculative_tokens:2,draft_tensor_parallel_size:2}}",
            "a drafter is spread over as many GPUs as its target (1), but got 2 "
            f"({KEY}.draft_tensor_parallel_size). "
            "Leave draft_tensor_parallel_size out: another spread is not modelled.",
        ),
        (
            f"{KEY}={{method:eagle3,num_speculative_tokens:2,"
            "num_speculative_tokens_per_batch_size:[[2,4,1]]}",
            "the first range must start at batch size 1, but got [2, 4, 1] "
            "(speculation.num_speculative_tokens_per_batch_size[0]). "
            "Add a range for 1 to 1, or let this one start at 1.",
        ),
        (
            f"{KEY}={{method:eagle3,num_speculative_tokens:2,disable_by_batch_size:32}}",
            f"an option must be one of vLLM 0.33, but got 'disable_by_batch_size' ({KEY}). "
            "Give num_speculative_tokens_per_batch_size: "
            "[[1, 32, 3], [33, 512, 0]] drafts nothing above 32 requests.",
        ),
        (
            f"{KEY}={{method:eagle3,num_speculative_tokens:2}} speculation.num_speculative_tokens=3",
            "what is given beside vllm_config must agree with its num_speculative_tokens (2), "
            f"but got speculation.num_speculative_tokens=3 ({KEY}). "
            "Leave speculation.num_speculative_tokens out, or change vllm_config.",
        ),
        (
            f"{KEY}={{method:eagle3,num_speculative_tokens:2}} speculation=eagle",
            "what is given beside vllm_config must agree with its method (eagle3), "
            f"but got speculation=eagle ({KEY}). Leave speculation out, or change vllm_config.",
        ),
        (
            f"{KEY}={{method:eagle3,num_speculative_tokens:1,rejection_sample_method:synthetic,"
            "synthetic_acceptance_length:1.5} speculation.acceptance.rate=0.5",
            "what is given beside vllm_config must agree with its rejection_sample_method (synthetic), "
            f"but got speculation.acceptance.rate=0.5 ({KEY}). "
            "Leave speculation.acceptance.rate out, or change vllm_config.",
        ),
        (
            f"{KEY}={{method:eagle3,num_speculative_tokens:4,"
            "num_speculative_tokens_per_batch_size:[[1,4,4]]} speculation.draft_len_schedule={4:4}",
            "a schedule is given once, but got draft_len_schedule and num_speculative_tokens_per_batch_size "
            "(speculation.draft_len_schedule). Leave one of them out.",
        ),
    ],
)
def test_bad_input_gets_its_one_line(command: str, text: str) -> None:
    arguments = [part for part in command.split(" ") if part]
    assert error_of(*arguments) == text


def test_an_unknown_key_is_refused_with_the_closest_known() -> None:
    text = error_of(said(num_speculative_token=3))
    assert text.startswith(
        "a key must be one of vLLM 0.33's --speculative-config, but got 'num_speculative_token' "
        f"({KEY}). Did you mean num_speculative_tokens? Keys: method, model, "
    )
    listed = text.partition("Keys: ")[2].rstrip(".").split(", ")
    assert len(listed) == len(set(listed))


def test_what_agrees_may_stand_beside_it() -> None:
    beside = compose([said(), "speculation=eagle3", "speculation.num_speculative_tokens=3"])
    assert beside == compose([said()])
    rate = ["speculation.acceptance.policy=geometric", "speculation.acceptance.rate=0.7"]
    acceptance = compose([said(), *rate]).speculation.acceptance
    assert acceptance is not None
    assert (acceptance.policy, acceptance.rate) == (AcceptancePolicy.geometric, 0.7)
    schedule = "speculation.num_speculative_tokens_per_batch_size=[[1, 8, 2]]"
    assert compose([said(), schedule]).speculation.num_speculative_tokens_per_batch_size == [[1, 8, 2]]


@pytest.mark.parametrize("option", sorted(vllm_options.DROPPED))
def test_what_vllm_dropped_is_answered_with_what_replaced_it(option: str) -> None:
    remedy = vllm_options.DROPPED[option]
    inside = f"an option must be one of vLLM 0.33, but got {option!r} ({KEY}). {remedy}"
    assert error_of(said(**{option: 1})) == inside
    if f"speculation.{option}" in all_keys():
        return
    beside = f"an option must be one of vLLM 0.33, but got 'speculation.{option}' (command line). {remedy}"
    assert error_of(f"speculation.{option}=1") == beside


def test_a_dropped_flag_is_known_at_the_top_and_in_a_sweep_too() -> None:
    remedy = vllm_options.DROPPED["speculative_disable_by_batch_size"]
    assert error_of("speculative_disable_by_batch_size=4").endswith(f"(command line). {remedy}")
    arm = "sweep.arms.x={speculation.disable_by_batch_size: 4}"
    assert error_of("+sweep=spec_grid", arm).endswith(f"(sweep.arms.x). {remedy}")


def test_a_mapping_for_a_schedule_is_answered_with_the_list() -> None:
    """The {"1-4": 3} form of the first drafts of vLLM's schedules."""
    text = error_of(said(num_speculative_tokens_per_batch_size={"1-4": 3, "5": 0}))
    assert text.endswith("Write [[1, 4, 3], [5, 5, 0]].")


def test_arms_of_a_sweep_change_what_the_command_line_said() -> None:
    composer = Composer(["+sweep=spec_grid", said(attention_backend="X", disable_eagle_block_drop=True)])
    arm = composer.variant({"speculation.num_speculative_tokens": 1})
    assert arm.speculation.num_speculative_tokens == 1
    assert arm.engine.disable_eagle_block_drop
    off = composer.variant({"speculation": "none"})
    assert off.speculation == compose(["speculation=none"]).speculation
    assert not off.engine.disable_eagle_block_drop
    other = composer.variant({KEY: {"method": "eagle", "num_speculative_tokens": 2}})
    assert (other.speculation.method, other.speculation.num_speculative_tokens) == (Method.eagle, 2)


def test_a_composed_configuration_reads_back() -> None:
    config = compose([said(attention_backend="X", model="m")])
    assert "attention_backend: X" in to_yaml(config)
    assert config.speculation.vllm_config == {"attention_backend": "X", "model": "m"}


@st.composite
def configs(draw: st.DrawFn) -> dict[str, object]:
    """A --speculative-config that vLLM 0.33 takes, of a method that conf/ has."""
    options = group_options("speculation", [conf_dir()])
    words = [word for word in ("eagle", "eagle3") if word in options]
    drafts = draw(st.integers(1, 7))
    config: dict[str, object] = {
        "method": draw(st.sampled_from(words)),
        "model": "some/checkpoint",
        "num_speculative_tokens": drafts,
    }
    if draw(st.booleans()):
        last = draw(st.integers(1, 64))
        config["num_speculative_tokens_per_batch_size"] = [[1, last, drafts], [last + 1, 512, 0]]
    for flag in vllm_options.ENGINE_FLAGS:
        if draw(st.booleans()):
            config[flag] = True
    if draw(st.booleans()):
        config["attention_backend"] = "FLASH_ATTN"
    return config


@settings(max_examples=25)
@given(config=configs())
def test_reading_and_writing_are_inverse(config: dict[str, object]) -> None:
    assert to_vllm_config(compose([f"{KEY}={json.dumps(config)}"])) == config


@pytest.mark.parametrize(
    ("method", "word"), [(Method.parallel, "dflash"), (Method.mtp, "mtp"), (Method.ngram, "ngram")]
)
def test_a_method_is_written_in_the_words_of_vllm(method: Method, word: str) -> None:
    config = compose(["speculation=eagle3"])
    config.speculation.method = method
    assert to_vllm_config(config) == {"method": word, "num_speculative_tokens": 3}


def test_a_word_that_says_more_is_written_again() -> None:
    config = compose(["speculation=eagle3"])
    for word, method in {"dspark": Method.parallel, "ngram_gpu": Method.ngram}.items():
        config.speculation.method = method
        config.speculation.vllm_config = dict(read({"method": word, "num_speculative_tokens": 3}).kept)
        assert to_vllm_config(config)["method"] == word


def test_a_draft_model_is_written_with_its_name() -> None:
    config = compose(["speculation=eagle3"])
    config.speculation.method, config.speculation.model = Method.draft_model, "meta-llama/Llama-3.2-1B"
    assert to_vllm_config(config)["model"] == "meta-llama/Llama-3.2-1B"


def written_or_error(config: Config) -> str:
    with pytest.raises(UserError) as caught:
        to_vllm_config(config)
    return str(caught.value)


def test_what_vllm_does_not_have_is_not_written() -> None:
    config = compose(["speculation=none"])
    assert written_or_error(config) == (
        "vLLM 0.33 must know the method, but got none (speculation.method). "
        "Choose one of draft_model, eagle, eagle3, mtp, ngram, parallel, suffix."
    )
    config = compose(["speculation=eagle3"])
    config.speculation.method = Method.medusa
    assert written_or_error(config).startswith("vLLM 0.33 must know the method, but got medusa")


values = st.none() | st.booleans() | st.integers(-2, 9) | st.floats() | st.text(max_size=3)


@given(
    given_options=st.dictionaries(
        st.sampled_from((*vllm_options.READ, "fly_window_size", "parallel_drafting", "x")),
        values | st.lists(values, max_size=3),
        max_size=4,
    )
)
def test_anything_is_a_config_or_one_line(given_options: dict[str, object]) -> None:
    try:
        outcome = read({**EAGLE3, **given_options}).method.name
    except UserError as error:
        outcome = str(error)
    assert outcome in Method.__members__ or ("but got" in outcome and "\n" not in outcome)
