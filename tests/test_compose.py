"""Composition of the configuration: what conf/ holds, what overrides do, and the text of every error."""

import contextlib
import dataclasses
import re
import shlex
from pathlib import Path

import pytest
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import MISSING, OmegaConf

from cluster_sim.bounds import BOUNDS
from cluster_sim.compose import Composer, compose, to_yaml
from cluster_sim.config import AcceptancePolicy, Config, EngineConfig, Method, RatesAre, RouterPolicy
from cluster_sim.engine_defaults import resolve_engine
from cluster_sim.errors import UserError
from cluster_sim.luck import acceptance_source
from cluster_sim.overrides import ADDED_GROUPS, JSON_KEYS
from cluster_sim.paths import conf_dir, group_names, group_options
from cluster_sim.schema import all_keys

OPTIONS = [(group, option) for group in group_names() for option in group_options(group, [conf_dir()])]
TRANSCRIPT = (Path(__file__).parent / "composition_errors.txt").read_text()
ERRORS = re.findall(r"^\$ (.*)\n(.*)$", TRANSCRIPT, flags=re.MULTILINE)


def error_of(*arguments: str) -> str:
    with pytest.raises(UserError) as caught:
        compose(arguments)
    return str(caught.value)


@pytest.mark.parametrize(("command", "text"), ERRORS)
def test_bad_input_gets_its_one_line(command: str, text: str) -> None:
    assert error_of(*shlex.split(command)) == text


def test_no_error_advises_to_add_an_unknown_key() -> None:
    assert not re.findall(r"(?:Write|use|Add) \+(?!(?:sweep|study)=)", TRANSCRIPT)


NEEDED = {"weighted": ["router.weights=[1]"], "class_aware": ["router.classes={default: [0]}"]}


def chosen(group: str, option: str) -> Config:
    """The option of a group, with what the user must give beside it."""
    sign = "+" if group in ADDED_GROUPS else ""
    return compose([f"{sign}{group}={option}", *NEEDED.get(option, [])])


@pytest.mark.parametrize(("group", "option"), OPTIONS)
def test_every_file_of_conf_composes(group: str, option: str) -> None:
    assert isinstance(chosen(group, option), Config)


@pytest.mark.parametrize(("group", "option"), OPTIONS)
def test_every_file_of_conf_sets_every_key_of_its_group(group: str, option: str) -> None:
    """But a model's leaves out the parts that its architecture does not have (a key that is 0 or none).

    And none says the same in the words of another program: vllm_config, draft_len_schedule.
    """
    written = OmegaConf.load(conf_dir() / group / f"{option}.yaml")
    config = chosen(group, option)
    fields = dataclasses.fields(getattr(config, group))
    parts = {field.name for field in fields if group == "model" and field.default != MISSING}
    if group == "sweep":
        parts = {"search", "compare"}  # every point is tried, and what most sweeps ask for is shown
    if group == "speculation":
        parts = {key.rpartition(".")[-1] for key in JSON_KEYS}
    assert set(written) - {"defaults"} | parts == {field.name for field in fields}


def test_numbers_with_a_source_name_it() -> None:
    config = compose([])
    assert "Hugging Face" in config.model.source
    assert "AIConfigurator 0.12.0" in config.hardware.source
    assert config.hardware.licence == "Apache-2.0"
    assert "pull/20780" in acceptance_source(config)


def test_every_bound_is_of_a_key_that_exists() -> None:
    assert set(BOUNDS) <= set(all_keys())


def test_a_plain_value_overrides() -> None:
    config = compose(["workload.request_rate=20", "router=round_robin", "cluster.instances=4", "seed=7"])
    assert config.workload.request_rate == 20.0
    assert config.router.policy is RouterPolicy.round_robin
    assert (config.cluster.instances, config.seed) == (4, 7)


def test_the_last_of_several_values_holds() -> None:
    assert compose(["seed=1", "seed=2"]).seed == 2


def test_lengths_may_be_a_distribution() -> None:
    config = compose(["workload.prompt_tokens={distribution: lognormal, mean: 512, cv: 1.0}"])
    assert config.workload.prompt_tokens == {"distribution": "lognormal", "mean": 512, "cv": 1.0}


def test_a_trace_brings_its_own_times_lengths_and_size() -> None:
    workload = compose(["workload.trace=a.csv"]).workload
    assert (workload.requests, workload.request_rate) == (None, None)
    assert (workload.prompt_tokens, workload.output_tokens) == (None, None)


def test_a_trace_is_rescaled_and_cut_when_asked() -> None:
    workload = compose(["workload.request_rate=5", "workload.trace=a.csv", "workload.requests=100"]).workload
    assert (workload.requests, workload.request_rate) == (100, 5.0)


def test_a_new_acceptance_profile_replaces_the_shipped_one_whole() -> None:
    acceptance = compose(["speculation.acceptance={policy: geometric, rate: 0.7}"]).speculation.acceptance
    assert acceptance is not None
    assert (acceptance.policy, acceptance.rate) == (AcceptancePolicy.geometric, 0.7)
    assert (acceptance.rates, acceptance.rates_are, acceptance.source) == (None, None, None)


def test_new_rates_do_not_keep_the_source_of_the_old() -> None:
    composer = Composer(["speculation.acceptance={policy: fixed, rate: 0.5, source: a paper}"])
    acceptance = composer.variant({"speculation.acceptance.rate": 0.4}).speculation.acceptance
    assert acceptance is not None
    assert (acceptance.rate, acceptance.source) == (0.4, None)


def test_a_policy_of_ones_own_replaces_the_published_profile() -> None:
    arguments = [
        "speculation.acceptance.policy=per_position",
        "speculation.acceptance.rates=[0.8, 0.6, 0.4]",
        "speculation.acceptance.rates_are=conditional",
    ]
    acceptance = compose(arguments).speculation.acceptance
    assert acceptance is not None
    assert acceptance.published is None
    assert (acceptance.rates, acceptance.rates_are) == ([0.8, 0.6, 0.4], RatesAre.conditional)


def test_classes_have_profiles_of_their_own() -> None:
    given = "speculation.acceptance_by_class={code: {policy: decay, rate: 0.7}, chat: {published: auto}}"
    by_class = compose([given]).speculation.acceptance_by_class
    assert by_class is not None
    assert (by_class["code"].policy, by_class["code"].rate) == (AcceptancePolicy.decay, 0.7)
    assert by_class["chat"].published == "auto"


def test_a_value_that_is_already_so_replaces_nothing() -> None:
    assert compose(["speculation.acceptance.published=auto"]) == compose([])


def test_the_yaml_of_a_configuration_reads_back_to_the_same() -> None:
    config = compose(["+sweep=spec_grid", "speculation=eagle"])
    read = OmegaConf.merge(OmegaConf.structured(Config), OmegaConf.create(to_yaml(config)))
    assert OmegaConf.to_object(read) == config


def test_a_variant_is_what_hydra_composes() -> None:
    """The copies on which values are set agree with Hydra's own composition of the same overrides."""
    composer = Composer(["cluster.instances=2"])
    changes = {"speculation": "eagle", "workload.request_rate": 20, "seed": 3, "engine.block_size": 32}
    compose([])  # registers the schema
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        hydra = hydra_compose(
            "config", ["cluster.instances=2", *(f"{key}={value}" for key, value in changes.items())]
        )
    assert composer.variant(changes) == OmegaConf.to_object(hydra)


def test_variants_do_not_touch_one_another() -> None:
    composer = Composer(["+sweep=spec_grid"])
    before = dataclasses.replace(composer.config, sweep=None)
    composer.variant(
        {"speculation.acceptance": {"policy": "per_position", "rates": [0.5] * 5, "rates_are": "marginal"}}
    )
    assert composer.variant({}) == before


def test_the_arms_of_spec_grid_compose() -> None:
    composer = Composer(["+sweep=spec_grid"])
    sweep = composer.config.sweep
    assert sweep is not None
    arms = {name: composer.variant(changes).speculation for name, changes in sweep.arms.items()}
    assert {name: arm.num_speculative_tokens for name, arm in arms.items()} == {
        "off": None,
        "K=1": 1,
        "K=3": 3,
        "K=5": 5,
        "schedule": 5,
    }
    assert arms["off"].method is Method.none
    assert sweep.baseline == "off"


def test_the_command_lines_speculation_leaves_the_arm_that_is_off_alone() -> None:
    composer = Composer(["+sweep=spec_grid", "speculation.acceptance={policy: fixed, rate: 0.6}"])
    assert composer.variant({"speculation": "none"}).speculation.acceptance is None
    drafting = composer.variant({"speculation.num_speculative_tokens": 5}).speculation
    assert drafting.acceptance is not None
    assert drafting.acceptance.rate == 0.6


def test_a_sweeps_axis_can_be_given_on_the_command_line() -> None:
    arguments = [
        "+sweep=spec_grid",
        "sweep.axes.workload.request_rate=[1,2]",
        "sweep.axes.router=[round_robin]",
    ]
    sweep = compose(arguments).sweep
    assert sweep is not None
    assert sweep.axes == {"workload.request_rate": [1, 2], "router": ["round_robin"]}


def test_a_bad_variant_is_refused_like_a_bad_command_line() -> None:
    composer = Composer(["+sweep=spec_grid"])
    with pytest.raises(
        UserError, match=re.escape("the request rate in requests/s must be above 0, but got -1.0")
    ):
        composer.variant({"workload.request_rate": -1})
    with pytest.raises(
        UserError, match=re.escape("router must be one of the options in conf/router, but got 'x'")
    ):
        composer.variant({"router": "x"})


FILES = {
    "model/syntax": (
        "name: x\n  bad: [1\n",
        "a configuration file must be YAML, but got mapping values are not allowed here "
        "({directory}/model/syntax.yaml, line 2). Correct that line.",
    ),
    "model/unknown": (
        "name: x\nnum_hiden_layers: 3\n",
        "a key must exist in the configuration, but got 'model.num_hiden_layers' (model/unknown.yaml). "
        "Did you mean model.num_hidden_layers?",
    ),
    "model/typed": (
        "num_hidden_layers: abc\n",
        "model.num_hidden_layers must be a whole number, but got Value 'abc' of type 'str' could not be "
        "converted to Integer (model/typed.yaml). Correct the value.",
    ),
    "slo/missing": (
        "ttft_s: 1\n",
        "every mandatory key must have a value, but got none for slo.attainment (slo.attainment). "
        "Set slo.attainment=VALUE, or choose an option of the group that does.",
    ),
    "slo/elsewhere": (
        "defaults: [nowhere]\n",
        "the files of the configuration must compose, but got In 'slo/elsewhere': Could not load "
        "'slo/nowhere'. (slo/elsewhere.yaml). Correct it.",
    ),
    "slo/pointing": (
        "ttft_s: ${nowhere}\nattainment: 0.9\n",
        "the files of the configuration must compose, but got Interpolation key 'nowhere' not found "
        "full_key: slo.ttft_s (conf). Check the files of conf/ and hydra.searchpath.",
    ),
    "slo/binary": (
        "\xff",
        "the files of the configuration must compose, but got 'utf-8' codec can't decode byte 0xff in "
        "position 0: invalid start byte (conf). Check the files of conf/ and hydra.searchpath.",
    ),
    "sweep/unquoted": (
        "name: x\narms:\n  off: {}\n",
        "a name must be text, but got Key False (bool) is incompatible with (str) "
        "(sweep/unquoted.yaml: sweep.arms.False). "
        'Quote it: yes, no, on and off are truth values in YAML, for example "off": {{...}}.',
    ),
    "sweep/slash": (
        "name: a/b\nquestion: q\narms: {a: {}}\nbaseline: a\naxes: {}\nseeds: [0]\n",
        "a sweep's name, a directory's too, is made of letters, digits and _ . -, but got 'a/b' "
        "(sweep.name). Rename it.",
    ),
    "sweep/armless": (
        "name: x\nquestion: q\narms: {}\nbaseline: a\naxes: {}\nseeds: [0]\n",
        "a sweep compares arms, but got none (sweep.arms). Name at least one: {{NAME: {{KEY: VALUE}}}}.",
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_a_bad_file_of_the_users_own_gets_its_one_line(name: str, tmp_path: Path) -> None:
    content, text = FILES[name]
    group, option = name.split("/")
    (tmp_path / group).mkdir()
    (tmp_path / group / f"{option}.yaml").write_bytes(content.encode("latin-1"))
    plus = "+" if group in ADDED_GROUPS else ""
    error = error_of(f"hydra.searchpath=[{tmp_path}]", f"{plus}{group}={option}")
    assert error == text.format(directory=tmp_path.resolve())


def test_options_of_the_users_own_are_found(tmp_path: Path) -> None:
    (tmp_path / "slo").mkdir()
    (tmp_path / "slo" / "mine.yaml").write_text("ttft_s: 2.0\nattainment: 0.5\n")
    assert compose([f"hydra.searchpath=[{tmp_path}]", "slo=mine"]).slo.ttft_s == 2.0


@given(st.lists(st.text(alphabet="+~@=.,[]{}()$'\"\\ \nabseedworkload01", max_size=24), max_size=3))
def test_no_command_line_breaks_the_composer(arguments: list[str]) -> None:
    """Whatever is typed, the answer is a configuration or one UserError."""
    with contextlib.suppress(UserError):
        assert isinstance(compose(arguments), Config)


def engine_of(*arguments: str) -> EngineConfig:
    config = compose(arguments)
    return resolve_engine(config.engine, config.model, config.hardware)


def test_engine_defaults_are_those_of_the_api_server_on_an_h100() -> None:
    """vllm-scheduler.md section 11: 8192 tokens, 1024 requests; the model's length."""
    engine = engine_of()
    assert (engine.max_num_batched_tokens, engine.max_num_scheduled_tokens) == (8192, 8192)
    assert (engine.max_num_seqs, engine.max_num_active_seqs, engine.max_model_len) == (1024, 1024, 131072)


def test_engine_defaults_give_way_to_what_the_user_set() -> None:
    engine = engine_of("engine.max_num_seqs=4", "engine.max_model_len=1000")
    assert engine.max_num_batched_tokens == 4 * 1000  # no batch can hold more
    assert engine_of("engine.max_num_batched_tokens=100").max_num_seqs == 100
    assert engine_of("engine.enable_chunked_prefill=false").max_num_batched_tokens == 131072


def test_resolving_changes_nothing_that_is_set() -> None:
    engine = engine_of()
    config = compose([])
    assert resolve_engine(engine, config.model, config.hardware) == engine
    assert (engine.num_gpu_blocks, engine.host_overhead_s) == (None, None)  # memory and the bundle decide
