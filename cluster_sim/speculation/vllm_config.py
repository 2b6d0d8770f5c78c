"""vLLM's --speculative-config, read and written as it is: JSON <-> keys of the configuration.

Read with the rules of vLLM 0.33.0 (SpeculativeConfig, config/speculative.py; ../shared/vllm-scheduler.md
sections 7 and 12). What it says becomes values of speculation.* and engine.*; options without effect here
stay in speculation.vllm_config, so that one warning can name them and an export can write them again.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from cluster_sim.config import Config, Method
from cluster_sim.errors import UserError
from cluster_sim.schema import closest, shown
from cluster_sim.speculation import vllm_options
from cluster_sim.speculation.schedule import dense_lookup, whole_number
from cluster_sim.speculation.synthetic import VLLM_CONFIG, synthetic_rates

KEY = VLLM_CONFIG
_METHOD, _DRAFTS = "speculation.method", "speculation.num_speculative_tokens"
_SCHEDULE, _TRTLLM = "speculation.num_speculative_tokens_per_batch_size", "speculation.draft_len_schedule"
_ACCEPTANCE = "speculation.acceptance"
# Kept because an export needs them, or because they say what the simulation does anyway.
_QUIET = ("method", "model", "draft_tensor_parallel_size")


@dataclass(frozen=True)
class SpeculativeConfig:
    """One --speculative-config, checked."""

    method: Method
    num_speculative_tokens: int
    model: str | None = None  # of draft_model
    schedule: list[list[int]] | None = None  # [first, last, K]; None: static
    rates: list[float] | None = None  # synthetic: P(the first i drafts are all accepted)
    source: str | None = None  # of the rates
    engine_flags: tuple[str, ...] = ()  # set
    kept: Mapping[str, object] = field(default_factory=dict)  # without effect here

    def values(self) -> Iterator[tuple[str, object]]:
        """The keys that it sets, but for the method, with their values."""
        yield _DRAFTS, self.num_speculative_tokens
        yield _SCHEDULE, self.schedule
        if self.model is not None:
            yield "speculation.model", self.model
        if self.rates is not None:
            yield f"{_ACCEPTANCE}.policy", "per_position"
            yield f"{_ACCEPTANCE}.rates", self.rates
            yield f"{_ACCEPTANCE}.rates_are", "marginal"
            yield f"{_ACCEPTANCE}.source", self.source
        for flag in self.engine_flags:
            yield f"engine.{flag}", True


def read(given: object) -> SpeculativeConfig:
    """The --speculative-config that `given`, a mapping, stands for.

    Raises:
        UserError: vLLM 0.33 would refuse it, or it asks for something that is not modelled.
    """
    if not isinstance(given, Mapping):
        remedy = f'Write {KEY}=\'{{"method": "eagle3", "num_speculative_tokens": 3}}\'.'
        raise UserError("vllm_config must be the JSON of --speculative-config", shown(given), KEY, remedy)
    said = {str(key): value for key, value in given.items() if value is not None}
    for key in said:
        _check_key(key)
    word = _word_of(said)
    method = _method_of(word)
    drafts = _num_speculative_tokens(said, method)
    _check_not_modelled(said)
    rates, source = synthetic_rates(said, drafts)
    schedule = said.get("num_speculative_tokens_per_batch_size")
    if schedule is not None:
        dense_lookup(schedule, 1, drafts)
        schedule = [[whole_number(item) for item in entry] for entry in schedule]
    return SpeculativeConfig(
        method=method,
        num_speculative_tokens=drafts,
        model=_model(said, method),
        schedule=schedule,
        rates=rates,
        source=source,
        engine_flags=tuple(flag for flag in vllm_options.ENGINE_FLAGS if _flag(said, flag)),
        kept=_kept(said, word, method),
    )


def with_vllm_config(
    groups: Mapping[str, str], values: Mapping[str, object]
) -> tuple[dict[str, str], dict[str, object]]:
    """`groups` and `values` with what speculation.vllm_config says in place of it.

    Without a speculation=OPTION beside it, it chooses the option of its method, with that one's acceptance.

    Raises:
        UserError: vllm_config is wrong, or something given beside it contradicts it.
    """
    if values.get(KEY) is None:
        return dict(groups), dict(values)
    said = read(values[KEY])
    option = groups.get("speculation", said.method.name)
    if option in Method.__members__ and option != said.method.name:
        _contradicts("speculation", option, "method", said.method.name)
    sets = dict(said.values())
    merged = {**values, KEY: dict(said.kept) or None}
    if "speculation" in groups:
        merged[_METHOD] = said.method.name
    for key, value in sets.items():
        if key == _SCHEDULE and value is None and (_SCHEDULE in values or _TRTLLM in values):
            continue
        if key in values and values[key] != value:
            _contradicts(key, values[key], key.rpartition(".")[-1], value)
        merged[key] = value
    if said.rates is not None:
        for key in values:
            if key.startswith(_ACCEPTANCE) and values[key] != sets.get(key):
                _contradicts(key, values[key], "rejection_sample_method", "synthetic")
    return {**groups, "speculation": option}, merged


def check_kept(config: Config) -> None:
    """Raise where what is left in speculation.vllm_config does not fit the rest of `config`.

    Raises:
        UserError: it holds keys that set something, or another number of GPUs.
    """
    kept = config.speculation.vllm_config
    if kept is None:
        return
    for key in kept if isinstance(kept, Mapping) else ("vllm_config",):
        if key not in (
            *vllm_options.WITHOUT_EFFECT,
            *_QUIET,
            "rejection_sample_method",
            "draft_sample_method",
        ):
            rule = "vllm_config is read from the command line and from a sweep's arms and axes"
            raise UserError(rule, f"{key} in a file", KEY, f"Write speculation.{key} in the file instead.")
    spread = kept.get("draft_tensor_parallel_size", config.cluster.tensor_parallel_size)
    if spread != config.cluster.tensor_parallel_size:
        rule = f"a drafter is spread over as many GPUs as its target ({config.cluster.tensor_parallel_size})"
        remedy = "Leave draft_tensor_parallel_size out: another spread is not modelled."
        raise UserError(rule, spread, f"{KEY}.draft_tensor_parallel_size", remedy)


def warnings_of(kept: Mapping[str, object] | None) -> tuple[str, ...]:
    """One line that names the options of vllm_config that change nothing here; none where there are none."""
    idle = [
        key
        for key, value in (kept or {}).items()
        if key not in _QUIET and value != vllm_options.WITHOUT_EFFECT.get(key)
    ]
    if not idle:
        return ()
    change = "changes" if len(idle) == 1 else "change"
    return (
        f"of vLLM's speculative config, {', '.join(sorted(idle))} {change} nothing in the simulation "
        "(acceptance is an input, and kernels are the bundle's)",
    )


def to_vllm_config(config: Config) -> dict[str, object]:
    """The --speculative-config of vLLM 0.33 for `config`, without acceptance: there, it is measured.

    eagle, eagle3 and dflash need the checkpoint of their drafter as `model`; it is written where vllm_config
    named it, and for the caller to add where not.

    Raises:
        UserError: the method is none or not one of vLLM 0.33.
    """
    speculation, method = config.speculation, config.speculation.method
    word = vllm_options.WORDS.get(method, method.name)
    if word not in vllm_options.METHODS:
        remedy = f"Choose one of {', '.join(sorted({m.name for m in vllm_options.METHODS.values()}))}."
        raise UserError("vLLM 0.33 must know the method", method.name, _METHOD, remedy)
    written: dict[str, object] = {"method": word, **dict(speculation.vllm_config or {})}
    if method is Method.draft_model:
        written["model"] = speculation.model
    written["num_speculative_tokens"] = speculation.num_speculative_tokens
    if speculation.num_speculative_tokens_per_batch_size is not None:
        written["num_speculative_tokens_per_batch_size"] = [
            [whole_number(item) for item in entry]
            for entry in speculation.num_speculative_tokens_per_batch_size
        ]
    written.update({flag: True for flag in vllm_options.ENGINE_FLAGS if getattr(config.engine, flag)})
    read(written)
    return written


def _check_key(key: str) -> None:
    known = (*vllm_options.READ, *vllm_options.WITHOUT_EFFECT, *vllm_options.NOT_MODELLED, *_QUIET)
    if key in known:
        return
    if key in vllm_options.DROPPED:
        rule = "an option must be one of vLLM 0.33"
        raise UserError(rule, repr(key), KEY, vllm_options.DROPPED[key])
    remedy = closest(key, dict.fromkeys(known), "Keys")
    raise UserError("a key must be one of vLLM 0.33's --speculative-config", repr(key), KEY, remedy)


def _word_of(said: Mapping[str, object]) -> str:
    """The word of vLLM for the method; like there, from the checkpoint's name where it is not given."""
    if "method" in said:
        return str(said["method"])
    model = str(said.get("model", "")).lower()
    if not model:
        remedy = 'Add one, for example "method": "eagle3".'
        raise UserError("vllm_config needs a method or a model", "neither", f"{KEY}.method", remedy)
    if model in ("ngram", "[ngram]"):
        return "ngram"
    marks = {"eagle-": "eagle", "eagle3": "eagle3", "dflash": "dflash", "dspark": "dspark"}
    return next((word for mark, word in marks.items() if mark in model), "draft_model")


def _method_of(word: str) -> Method:
    if word in vllm_options.METHODS:
        return vllm_options.METHODS[word]
    remedy = vllm_options.OTHER_METHODS.get(word) or closest(word, list(vllm_options.METHODS), "Methods")
    raise UserError("the method must be one that is simulated", repr(word), f"{KEY}.method", remedy)


def _num_speculative_tokens(said: Mapping[str, object], method: Method) -> int:
    where = f"{KEY}.num_speculative_tokens"
    given = said.get("num_speculative_tokens")
    if given is None and method is Method.suffix:  # a limit, as deep as vLLM's trees
        given = said.get("suffix_decoding_max_tree_depth", 24)
    if given is None:
        remedy = "Give it; vLLM would look into the drafter's checkpoint."
        raise UserError("vllm_config needs the number of drafts", "none", where, remedy)
    drafts = whole_number(given)
    if drafts is None or drafts < 1:
        raise UserError(
            "the draft length must be a whole number of 1 or more", shown(given), where, "Correct it."
        )
    return drafts


def _model(said: Mapping[str, object], method: Method) -> str | None:
    if method is not Method.draft_model:
        return None
    if "model" not in said:
        remedy = 'Add "model", a checkpoint or an option of conf/model.'
        raise UserError("method draft_model needs the model that drafts", "none", f"{KEY}.model", remedy)
    return str(said["model"])


def _check_not_modelled(said: Mapping[str, object]) -> None:
    for key, (harmless, remedy) in vllm_options.NOT_MODELLED.items():
        if said.get(key, harmless) != harmless:
            raise UserError(f"{key} is not modelled", shown(said[key]), f"{KEY}.{key}", remedy)


def _flag(said: Mapping[str, object], key: str) -> bool:
    value = said.get(key, False)
    if not isinstance(value, bool):
        raise UserError("the value must be true or false", shown(value), f"{KEY}.{key}", "Correct it.")
    return value


def _kept(said: Mapping[str, object], word: str, method: Method) -> dict[str, object]:
    """The options without effect, the drafter's checkpoint, and the method where vLLM's word says more."""
    kept = {key: value for key, value in said.items() if key in vllm_options.WITHOUT_EFFECT}
    for key, choices in (
        ("rejection_sample_method", ("standard", "synthetic")),
        ("draft_sample_method", ("greedy",)),
    ):
        if key in said and said[key] not in choices:
            kept[key] = said[key]
    if "draft_tensor_parallel_size" in said:
        kept["draft_tensor_parallel_size"] = said["draft_tensor_parallel_size"]
    if "model" in said and method is not Method.draft_model:
        kept["model"] = said["model"]
    if method is not Method.mtp and word != vllm_options.WORDS.get(method, method.name):
        kept["method"] = word.strip("[]")
    return kept


def _contradicts(key: str, got: object, option: str, said: object) -> NoReturn:
    rule = f"what is given beside vllm_config must agree with its {option} ({said})"
    raise UserError(rule, f"{key}={got}", KEY, f"Leave {key} out, or change vllm_config.")
