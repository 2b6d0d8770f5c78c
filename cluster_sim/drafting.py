"""What the proposer of a configuration brings and changes: its model, its tables, and vLLM's settings for it.

Source of the changes: vLLM 0.33.0, config/vllm.py, as told in speculation/requirements.py; of the shorter
sequences with a draft model, VllmConfig._limit_max_model_len_to_draft.
"""

from dataclasses import dataclass, replace

from cluster_sim.bounds import LARGEST_COUNT
from cluster_sim.bundle.architecture import Parallel
from cluster_sim.bundle.format import Bundle
from cluster_sim.config import Config, DraftCost, EngineConfig, Method, ModelConfig
from cluster_sim.draft_cost import DraftTables, of_bundle, of_roofline
from cluster_sim.engine_defaults import resolve_engine, resolve_speculation, why_no_schedule
from cluster_sim.errors import UserError
from cluster_sim.naming import model_named
from cluster_sim.speculation.requirements import changes, cudagraph_mode, runs_async, uses_v2_runner
from cluster_sim.speculation.schedule import dense_lookup


@dataclass(frozen=True)
class Setting:
    """A configuration as vLLM runs it."""

    config: Config  # without a schedule that vLLM sets aside
    engine: EngineConfig  # every limit filled in
    draft: ModelConfig | None  # of draft_model
    warnings: tuple[str, ...]  # a line for each change


def draft_length(config: Config) -> int:
    """num_speculative_tokens; 0 without speculation."""
    return 0 if config.speculation.method is Method.none else config.speculation.num_speculative_tokens or 0


def as_vllm_runs_it(config: Config) -> Setting:
    """What vLLM makes of a configuration with its proposer.

    Raises:
        UserError: a rule of schedules is broken, in one set aside too; an unknown draft model.
    """
    config, set_aside = _without_useless_schedule(config)
    speculation = config.speculation
    draft = draft_model(config)
    asked = resolve_engine(config.engine, config.model, config.hardware)
    engine = replace(
        asked,
        async_scheduling=runs_async(asked, speculation.method),
        cudagraph_mode=cudagraph_mode(asked, speculation),
    )
    warnings = (*set_aside, *_cut_to_limit(config, engine), *changes(asked, speculation))
    if draft is not None and draft.max_position_embeddings < int(engine.max_model_len or 0):
        engine, shorter = _within_length_of(draft, engine)
        warnings = (*warnings, shorter)
    return Setting(config, engine, draft, warnings)


def draft_model(config: Config) -> ModelConfig | None:
    """The model of method draft_model; None for the other methods.

    Raises:
        UserError: conf/model does not know it.
    """
    name = config.speculation.model
    if config.speculation.method is not Method.draft_model or name is None:
        return None
    try:
        return model_named(name)
    except UserError as unknown:
        remedy = unknown.remedy.replace("--model", "speculation.model")
        raise UserError(unknown.rule, name, "speculation.model", remedy) from None


def drafter_tables(setting: Setting, bundle: Bundle, parallel: Parallel) -> DraftTables | None:
    """The drafter's tables where its cost comes from such: of the bundle, else of its roofline.

    Raises:
        UserError: a drafter that the model cannot have, or costs that the hardware lacks.
    """
    config, speculation = setting.config, setting.config.speculation
    if speculation.method is Method.none or speculation.draft_cost is not DraftCost.bundle:
        return None
    own = of_bundle(bundle, speculation.method)
    if own is not None:
        return own
    return of_roofline(speculation.method, config.model, config.hardware, parallel, setting.draft)


def cost_words(config: Config, bundle: Bundle) -> str:
    """Where the drafter's time comes from."""
    speculation = config.speculation
    if speculation.method is Method.none:
        return "no speculation"
    if speculation.draft_cost is DraftCost.zero:
        return "zero: upper bound"
    if speculation.draft_cost is DraftCost.given:
        return f"given: {1e3 * float(speculation.draft_pass_s or 0.0):g} ms a pass"
    return "bundle" if speculation.method.name in bundle.drafters else "roofline of its architecture"


def _without_useless_schedule(config: Config) -> tuple[Config, tuple[str, ...]]:
    """`config` with the draft lengths that vLLM uses, and its warning where it sets a schedule aside."""
    why = why_no_schedule(config.speculation, config.cluster, config.engine)
    if why is None:
        return config, ()
    drafts = draft_length(config)
    dense_lookup(config.speculation.num_speculative_tokens_per_batch_size, 1, drafts)
    warning = (
        f"as in vLLM, num_speculative_tokens_per_batch_size is set aside with {why}: "
        f"every step drafts num_speculative_tokens={drafts}"
    )
    speculation = resolve_speculation(config.speculation, config.cluster, config.engine)
    return replace(config, speculation=speculation), (warning,)


def _cut_to_limit(config: Config, engine: EngineConfig) -> tuple[str, ...]:
    """A warning where the schedule asks for more drafts than num_speculative_tokens."""
    ranges, limit = config.speculation.num_speculative_tokens_per_batch_size, draft_length(config)
    if not limit or ranges is None or isinstance(ranges, str):
        return ()
    asked = int(dense_lookup(ranges, int(engine.max_num_seqs or 1), LARGEST_COUNT)[1:].max())
    if asked <= limit:
        return ()
    return (
        f"as in vLLM, the schedule's K={asked} is cut to num_speculative_tokens={limit}: "
        f"set speculation.num_speculative_tokens={asked} to draft as many",
    )


def _within_length_of(draft: ModelConfig, engine: EngineConfig) -> tuple[EngineConfig, str]:
    """V2 lowers max_model_len to the draft's; V1 skips the drafts of such steps, which is not modelled."""
    longest = draft.max_position_embeddings
    if uses_v2_runner(engine, Method.draft_model):
        warning = f"as in vLLM, max_model_len {engine.max_model_len} becomes {longest}, that of {draft.name}"
        return replace(engine, max_model_len=longest), warning
    warning = (
        f"{draft.name} drafts beyond its {longest} tokens here: the V1 model runner would skip the drafts of "
        "steps with a longer sequence"
    )
    return engine, warning
