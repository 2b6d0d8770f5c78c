"""What must hold of a proposer's options: none is missing, and none would do nothing.

What needs the architecture of a drafter (an MTP module, a vocabulary) is refused in speculation/proposer.py.
"""

from typing import Any, NoReturn

from cluster_sim.config import Config, DraftCost, Method, SpeculationConfig
from cluster_sim.errors import UserError
from cluster_sim.schema import shown


def check_speculation(config: Config) -> None:
    """Raise for the first option of `config.speculation` that is missing or has no effect.

    Raises:
        UserError: worded with the rule, the value, its key and what to do.
    """
    speculation = config.speculation
    if speculation.method is Method.none:
        _check_off(config)
        return
    method = speculation.method.name
    if speculation.num_speculative_tokens is None:
        remedy = f"Choose speculation={method}, or set it to 1 or more."
        _refuse(f"method {method} needs a draft length", None, "num_speculative_tokens", remedy)
    if speculation.acceptance is None:
        rule = f"method {method} needs an acceptance profile"
        _refuse(rule, None, "acceptance", f"Choose speculation={method}, or set policy and rate.")
    _check_model(speculation)
    _check_cost(speculation)


def _check_off(config: Config) -> None:
    speculation = config.speculation
    useless: dict[str, Any] = {
        "num_speculative_tokens": speculation.num_speculative_tokens,
        "num_speculative_tokens_per_batch_size": speculation.num_speculative_tokens_per_batch_size,
        "acceptance": speculation.acceptance and speculation.acceptance.policy,
        "draft_cost": None if speculation.draft_cost is DraftCost.bundle else speculation.draft_cost,
        "draft_pass_s": speculation.draft_pass_s,
        "model": speculation.model,
    }
    for key, value in useless.items():
        if value is not None:
            remedy = "Write speculation=none without it, or choose a method: speculation=eagle3."
            _refuse(f"{key} has no effect with method none", value, key, remedy)
    if not config.engine.use_v2_model_runner:
        rule, key = "the model runner has an effect only with speculation", "engine.use_v2_model_runner"
        raise UserError(rule, shown(False), key, f"Leave {key} out.")


def _check_model(speculation: SpeculationConfig) -> None:
    method = speculation.method
    if method is Method.draft_model and speculation.model is None:
        remedy = "Name a small model of the target's family: speculation.model=llama-3.2-1b."
        _refuse("method draft_model needs a model that drafts", None, "model", remedy)
    if method is not Method.draft_model and speculation.model is not None:
        remedy = "Leave it out, or choose speculation=draft_model."
        _refuse(f"model has no effect with method {method.name}", speculation.model, "model", remedy)


def _check_cost(speculation: SpeculationConfig) -> None:
    cost, pass_s = speculation.draft_cost, speculation.draft_pass_s
    if cost is DraftCost.given and pass_s is None:
        remedy = "Give the time of one of its passes in s: speculation.draft_pass_s=0.0007."
        _refuse("draft_cost given needs the time", None, "draft_pass_s", remedy)
    if cost is not DraftCost.given and pass_s is not None:
        remedy = "Leave it out, or set speculation.draft_cost=given."
        _refuse(f"draft_pass_s has no effect with draft_cost {cost.name}", pass_s, "draft_pass_s", remedy)


def _refuse(rule: str, got: object, key: str, remedy: str) -> NoReturn:
    raise UserError(rule, got if isinstance(got, str) else shown(got), f"speculation.{key}", remedy)
