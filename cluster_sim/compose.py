"""Composition: conf/ and overrides to a checked Config. The only file that imports Hydra's compose API.

Hydra composes the groups' files, once per distinct choice of options; values are then set one by one on
a copy, at a small part of a composition's cost and with the same result, since Hydra too sets them last.
"""

import pickle
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import yaml
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    KeyValidationError,
    MissingMandatoryValue,
    OmegaConfBaseException,
    ValidationError,
)

from cluster_sim.assign import set_values
from cluster_sim.check import check
from cluster_sim.check_overrides import KEY as OVERRIDES
from cluster_sim.check_overrides import check_alike, check_keys, check_overrides
from cluster_sim.check_study import check_effect
from cluster_sim.config import Config, OverrideConfig, SweepConfig
from cluster_sim.config_file import read_tree
from cluster_sim.engine_defaults import resolve_engine
from cluster_sim.errors import UserError, naming
from cluster_sim.instances import config_of, own_of
from cluster_sim.overrides import (
    ADDED_GROUPS,
    COMMAND_LINE,
    SEARCH_PATH,
    Overrides,
    parse_overrides,
    split_changes,
)
from cluster_sim.paths import conf_dir
from cluster_sim.schema import find_key, unknown_key
from cluster_sim.speculation.trtllm import with_vllm_schedule
from cluster_sim.speculation.vllm_options import ENGINE_FLAGS


def compose(arguments: Sequence[str]) -> Config:
    """The configuration that the command line's `arguments` ask for, checked.

    Raises:
        UserError: anything wrong with it.
    """
    return Composer(arguments).config


def compose_file(file: Path, arguments: Sequence[str]) -> Config:
    """The configuration that `file` holds, with `arguments` on top, checked.

    It is as best.yaml of a study, or the manifest of a simulation (config_file.py). What it leaves out is
    composed as without it.

    Raises:
        UserError: the file or anything in it is wrong, or a sweep or a study is asked for.
    """
    overrides = parse_overrides(arguments)
    for group in ADDED_GROUPS:
        if group in overrides.groups:
            remedy = f"Leave --config or +{group} out."
            raise UserError("a file of --config is one simulation", f"+{group}", "command line", remedy)
    tree = read_tree(file)
    config = _compose_groups(overrides.groups, overrides.search_path)
    try:
        given = cast(DictConfig, OmegaConf.merge(OmegaConf.structured(Config), tree))
    except ValidationError as error:
        key, got = str(error.full_key), str(error).partition("\n")[0]
        raise UserError(
            f"{key} must be {find_key(key).words}", got, str(file), "Correct the value."
        ) from error
    except OmegaConfBaseException as error:
        raise _reworded(error) from error
    for key in tree:
        if key not in overrides.groups:
            config[key] = given[key]
    set_values(config, overrides.values)
    return _finished(config, _said_in_full)


def to_yaml(config: Config) -> str:
    """`config` as YAML that reads back to the same values."""
    return OmegaConf.to_yaml(OmegaConf.structured(config))


class Composer:
    """One command line, composed; and its variants, as the trials of a sweep need them.

    `config` is the command line's own configuration, checked. Composers do not work in threads side by side:
    Hydra's composition is global to a process.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        self._overrides = parse_overrides(arguments)
        self._composed: dict[tuple[tuple[str, str], ...], bytes] = {}
        self.config = self._with_layers([])
        given = {**self._overrides.groups, **self._overrides.values}
        asked = {key: value for key, value in given.items() if key not in self._overrides.implied}
        if self.config.sweep is not None:
            _check_effect(asked, self.config.sweep)
        if self.config.study is not None:
            check_effect(asked, self.config.study)

    def variant(self, changes: Mapping[str, object]) -> Config:
        """One simulation: the command line with `changes` on top, and no sweep or study.

        The keys of `changes` are those of a sweep's arms and axes. A group option that they choose takes the
        command line's values of that group too, except that `speculation: none` has none to take.

        Raises:
            UserError: anything wrong with it.
        """
        return self._with_layers([split_changes(changes, self._overrides.search_path)])

    def _with_layers(self, layers: Sequence[Overrides]) -> Config:
        """The command line with `layers` on top, finished."""
        return _finished(self._with(layers), lambda entry: self._resolved(entry, layers))

    def _resolved(self, entry: OverrideConfig, layers: Sequence[Overrides]) -> OverrideConfig:
        """`entry` with what its keys mean on top of the command line and `layers`."""
        if not entry.set:
            return entry
        check_keys(entry.set)
        asked = split_changes(entry.set, self._overrides.search_path)
        own = own_of(_as_dataclasses(self._with([*layers, asked])))
        return OverrideConfig(entry.instances, None, own)

    def _with(self, layers: Sequence[Overrides]) -> DictConfig:
        """The command line with `layers` on top: each one's groups, then each one's values, in turn."""
        config = self._composed_with(
            {group: option for one in layers for group, option in one.groups.items()}
        )
        if layers:
            config.sweep = config.study = config.output.drafter = None
        for number, one in enumerate(layers, 1):
            turned_off = any(_turns_off(later.groups) for later in layers[number:])
            set_values(config, _without_speculation(one.values) if turned_off else one.values)
        return config

    def _composed_with(self, chosen: Mapping[str, str]) -> DictConfig:
        """A copy of the command line's configuration with the group options `chosen` instead of its own."""
        choice = tuple(sorted(chosen.items()))
        if choice not in self._composed:
            config = _compose_groups({**self._overrides.groups, **chosen}, self._overrides.search_path)
            values = self._overrides.values
            set_values(config, _without_speculation(values) if _turns_off(chosen) else values)
            self._composed[choice] = pickle.dumps(config)  # loads is six times as fast as DictConfig.copy()
        return cast(DictConfig, pickle.loads(self._composed[choice]))


def _compose_groups(groups: Mapping[str, str], search_path: Sequence[Path]) -> DictConfig:
    ConfigStore.instance().store(name="schema", node=Config)
    plus = {group: "+" if group in ADDED_GROUPS else "" for group in groups}
    arguments = [f"{plus[group]}{group}={option}" for group, option in groups.items()]
    if search_path:
        quoted = ", ".join(f"'file://{path}'" for path in search_path)
        arguments.append(f"{SEARCH_PATH}=[{quoted}]")
    try:
        with initialize_config_dir(str(conf_dir()), version_base="1.3"):
            config = hydra_compose("config", arguments)
    except (HydraException, OmegaConfBaseException, yaml.YAMLError, UnicodeDecodeError) as error:
        raise _reworded(error) from error
    OmegaConf.set_struct(config, False)  # the dataclasses stay closed; mappings such as sweep.axes may grow
    return config


def _finished(config: DictConfig, resolve: Callable[[OverrideConfig], OverrideConfig]) -> Config:
    """`config` checked, with what instances have of their own resolved."""
    finished = _as_dataclasses(config)
    check(finished)
    entries = finished.cluster.overrides
    if entries is None:
        return finished
    check_overrides(entries, finished.cluster.instances)
    resolved = []
    for number, entry in enumerate(entries):
        with naming(f"{OVERRIDES}[{number}]"):
            resolved.append(resolve(entry))
            check_alike(finished, resolved[-1])
            check(config_of(finished, resolved[-1]))
    return replace(finished, cluster=replace(finished.cluster, overrides=resolved))


def _said_in_full(entry: OverrideConfig) -> OverrideConfig:
    if entry.resolved is None:
        rule = "a file of --config says what instances have of their own in full: resolved"
        raise UserError(rule, "set", OVERRIDES, "Write the file as --cfg job prints it.")
    return entry


def _as_dataclasses(config: DictConfig) -> Config:
    try:
        finished = cast(Config, OmegaConf.to_object(config))
    except MissingMandatoryValue as error:
        missing = sorted(OmegaConf.missing_keys(config))
        remedy = f"Set {missing[0]}=VALUE, or choose an option of the group that does."
        if "[" in missing[0]:
            remedy = "Give it in that entry of the list."
        rule = "every mandatory key must have a value"
        raise UserError(rule, f"none for {', '.join(missing)}", missing[0], remedy) from error
    except OmegaConfBaseException as error:
        raise _reworded(error) from error
    engine = resolve_engine(finished.engine, finished.model, finished.hardware)
    finished.speculation = with_vllm_schedule(finished.speculation, int(engine.max_num_seqs or 0))
    return finished


def _check_effect(asked: Mapping[str, object], sweep: SweepConfig) -> None:
    """Refuse options and values of the command line that every trial of the sweep replaces."""
    for key, value in asked.items():
        written = f"{key}={value}"
        if key == "seed":
            remedy = f"Write 'sweep.seeds=[{value}]'."
            raise UserError("a sweep has seeds of its own", written, COMMAND_LINE, remedy)
        if key in sweep.axes:
            remedy = f"Write 'sweep.axes.{key}=[{value}]'."
            raise UserError("a sweep's axis sets this key in every trial", written, COMMAND_LINE, remedy)
        if sweep.search is not None and key == sweep.search.key:
            remedy = "Leave it out, or move sweep.search.low and sweep.search.high."
            raise UserError("the sweep's search sets this key in every trial", written, COMMAND_LINE, remedy)
        if all(key in arm or (_turns_off(arm) and _is_of_speculation(key)) for arm in sweep.arms.values()):
            remedy = "Leave it out, or change sweep.arms."
            raise UserError("the sweep's arms set this key in every trial", written, COMMAND_LINE, remedy)


def _turns_off(chosen: Mapping[str, object]) -> bool:
    return chosen.get("speculation") == "none"


def _without_speculation(values: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in values.items() if not _is_of_speculation(key)}


def _is_of_speculation(key: str) -> bool:
    """Whether it has an effect with speculation alone."""
    flags = (*ENGINE_FLAGS, "use_v2_model_runner")
    return key.startswith("speculation.") or key in {f"engine.{flag}" for flag in flags}


def _starts_at_the_top(key: str) -> bool:
    """False: it starts at an entry of a list."""
    return key.partition(".")[0] in Config.__dataclass_fields__


def _reworded(error: Exception) -> UserError:
    """One line for what Hydra, OmegaConf or YAML found wrong in a configuration file."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        place = f"{error.problem_mark.name}, line {error.problem_mark.line + 1}"
        return UserError("a configuration file must be YAML", error.problem, place, "Correct that line.")
    first, *others = [line.strip() for line in str(error).splitlines()]
    composing = re.match(r"In '([^']+)'", first)
    place = f"{composing[1]}.yaml" if composing else "conf"
    reason: BaseException = error.__cause__ or error.__context__ or error
    key = getattr(reason, "full_key", None)
    reason_line = str(reason).partition("\n")[0]
    if isinstance(reason, KeyValidationError):
        remedy = 'Quote it: yes, no, on and off are truth values in YAML, for example "off": {...}.'
        return UserError("a name must be text", reason_line, f"{place}: {key}", remedy)
    if isinstance(reason, ConfigKeyError | ConfigAttributeError) and key:
        return unknown_key(key, place)
    if isinstance(reason, ValidationError) and key and _starts_at_the_top(key):
        return UserError(f"{key} must be {find_key(key).words}", reason_line, place, "Correct the value.")
    got = " ".join([first, *others[:1]])
    remedy = "Correct it." if composing else f"Check the files of conf/ and {SEARCH_PATH}."
    return UserError("the files of the configuration must compose", got.strip(), place, remedy)
