"""Names made elsewhere: which model and GPU of conf/ they mean, and which they must not be taken for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_sim.errors import UserError
from cluster_sim.naming import hardware_option, model_named, model_option
from cluster_sim.paths import conf_dir, group_options

MODELS = group_options("model", [conf_dir()])
HARDWARE = group_options("hardware", [conf_dir()])


@pytest.mark.parametrize("option", MODELS)
def test_an_option_names_itself(option: str) -> None:
    assert model_option(option, "--model OPTION") == option


@pytest.mark.parametrize("option", HARDWARE)
def test_hardware_is_named_without_its_underscores_in_any_case(option: str) -> None:
    assert hardware_option(option, "--hardware OPTION") == option
    assert hardware_option(option.replace("_", "").upper(), "--hardware OPTION") == option
    assert hardware_option(option.replace("_", " ").title(), "--hardware OPTION") == option


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("meta-llama/Llama-3.1-8B", "llama-3.1-8b"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("meta-llama/Meta-Llama-3.1-70B-Instruct", "llama-3.1-70b"),
        ("Qwen/Qwen3-32B", "qwen3-32b"),
        ("Qwen/Qwen3-8B-Base", "qwen3-8b"),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", "qwen3-30b-a3b"),
        ("Qwen/Qwen3-30B-A3B-Thinking-2507", "qwen3-30b-a3b"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        ("deepseek-ai/DeepSeek-V3-0324", "deepseek-v3"),
        ("openai/gpt-oss-120b", "gpt-oss-120b"),
        ("/data/checkpoints/Qwen3-32B", "qwen3-32b"),
    ],
)
def test_a_checkpoint_is_a_variant_of_its_architecture(name: str, option: str) -> None:
    assert model_option(name, "--model OPTION") == option


@pytest.mark.parametrize(
    "name",
    [
        "Qwen/Qwen3-32B-FP8",
        "Qwen/Qwen3-30B-A3B-Instruct-2507-FP8",
        "Qwen/Qwen3-32B-AWQ",
        "nvidia/Llama-3.1-8B-Instruct-FP4",
        "deepseek-ai/DeepSeek-V3.1",
        "Qwen/Qwen3-8",
        "Qwen/Qwen3-8B-Instruct-2507b",
        "Qwen/Qwen3-32B/",
        "",
    ],
)
def test_another_architecture_or_a_quantized_one_is_refused(name: str) -> None:
    """Its weights have other bytes, so other costs: taken for bf16 it would be wrong without a word."""
    with pytest.raises(UserError) as caught:
        model_option(name, "--model OPTION")
    assert str(caught.value) == (
        "a name must be that of an option in conf/model, or of a variant with the same costs, "
        f"but got {name!r} (model). Choose one with --model OPTION. Options: {', '.join(MODELS)}."
    )


@pytest.mark.parametrize("name", ["RTX4091", "H10", "H1000", "NVIDIA H100", ""])
def test_another_gpu_is_refused(name: str) -> None:
    with pytest.raises(UserError) as caught:
        hardware_option(name, "--set hardware=OPTION")
    assert str(caught.value) == (
        "a name must be that of an option in conf/hardware, or of a variant with the same costs, but got "
        f"{name!r} (hardware). Choose one with --set hardware=OPTION. Options: {', '.join(HARDWARE)}."
    )


@given(st.text())
def test_any_text_is_an_option_or_one_line(name: str) -> None:
    for option_of, options in ((model_option, MODELS), (hardware_option, HARDWARE)):
        try:
            assert option_of(name, "X") in options
        except UserError as error:
            assert "\n" not in str(error)  # noqa: PT017  either outcome is sound


def test_a_named_model_has_the_facts_of_its_option() -> None:
    model = model_named("Qwen/Qwen3-30B-A3B-Instruct-2507")
    assert (model.name, model.num_experts, model.num_experts_per_tok) == ("qwen3-30b-a3b", 128, 8)
