"""What must hold of acceptance profiles before one is read: nothing is missing, nothing would do nothing."""

from typing import Any, NoReturn

from cluster_sim.bounds import BOUNDS
from cluster_sim.config import AcceptanceConfig, AcceptancePolicy, Method, SpeculationConfig
from cluster_sim.errors import UserError
from cluster_sim.schema import shown
from cluster_sim.speculation.acceptance import KEY
from cluster_sim.speculation.profiles import check_name

_POLICIES_WITH_A_SHARE = (AcceptancePolicy.fixed, AcceptancePolicy.decay, AcceptancePolicy.binomial)
_BY_POSITION = (AcceptancePolicy.per_position, AcceptancePolicy.per_length, AcceptancePolicy.custom)
# key -> the policies that it is of
_KEYS: dict[str, tuple[AcceptancePolicy, ...]] = {
    "rates": (AcceptancePolicy.per_position,),
    "per_length": (AcceptancePolicy.per_length,),
    "rates_are": _BY_POSITION,
    "rate": (*_POLICIES_WITH_A_SHARE, AcceptancePolicy.geometric),
    "measured_draft_length": _POLICIES_WITH_A_SHARE,
    "file": (AcceptancePolicy.trace,),
    "series": (AcceptancePolicy.trace,),
    "function": (AcceptancePolicy.custom,),
}
_MAY_BE_NULL = ("measured_draft_length", "series")
_EXAMPLES = {
    "rates": "Give one per draft: '{key}.rates=[0.8, 0.6, 0.4]'.",
    "per_length": "Give a row per draft length: '{key}.per_length={{1: 1.8, 3: 2.6}}'.",
    "rates_are": "Write marginal for P(first i accepted), conditional for P(i-th accepted | those before).",
    "rate": "Give 0 to 1: for geometric the chance of each draft, else accepted / drafted tokens.",
    "file": "Name a JSON-lines file of accepted lengths.",
    "function": "Name a function of the draft length that Python can import: package.module.function.",
}


def check_acceptance(speculation: SpeculationConfig) -> None:
    """Raise for the first key of the acceptance profiles that is missing, out of bounds or has no effect.

    Raises:
        UserError: worded with the rule, the value, its key and what to do.
    """
    if speculation.method is Method.none:
        for name, said in (
            ("acceptance", speculation.acceptance),
            ("acceptance_by_class", speculation.acceptance_by_class),
        ):
            if said is not None:
                remedy = "Write speculation=none without it, or choose a method: speculation=eagle3."
                _refuse(f"{name} has no effect with method none", "a profile", f"speculation.{name}", remedy)
        return
    if speculation.acceptance is not None:
        _check_profile(speculation.acceptance, KEY)
    for name, profile in (speculation.acceptance_by_class or {}).items():
        _check_profile(profile, f"{KEY}_by_class.{name}")


def _check_profile(acceptance: AcceptanceConfig, key: str) -> None:
    _check_bounds(acceptance, key)
    if acceptance.published is not None:
        _check_published(acceptance, acceptance.published, key)
    else:
        _check_policy(acceptance, key)
    _check_spread(acceptance, key)


def _check_bounds(acceptance: AcceptanceConfig, key: str) -> None:
    for path, bound in BOUNDS.items():
        parent, _, name = path.rpartition(".")
        value = getattr(acceptance, name) if parent == KEY else None
        broken = None if value is None else bound.broken(value)
        if broken is not None:
            must_be, instead = broken
            where = f"{key}.{name}"
            _refuse(f"{bound.quantity} must be {must_be}", value, where, f"Set {where} to {instead}.")


def _check_published(acceptance: AcceptanceConfig, name: str, key: str) -> None:
    for other in ("policy", *_KEYS, "source"):
        value = getattr(acceptance, other)
        if value is not None:
            rule = f"{other} has no effect with a published profile"
            remedy = f"Leave it out, or set {key}.policy instead of published={name}."
            _refuse(rule, value, f"{key}.{other}", remedy)
    check_name(name, key)


def _check_policy(acceptance: AcceptanceConfig, key: str) -> None:
    policy = acceptance.policy
    if policy is None:
        remedy = f"Set {key}.policy and its numbers, or {key}.published=auto."
        _refuse("an acceptance profile is published or has a policy", None, f"{key}.policy", remedy)
    for name, policies in _KEYS.items():
        value, where = getattr(acceptance, name), f"{key}.{name}"
        if policy not in policies and value is not None:
            names = " or ".join(other.name for other in policies)
            remedy = f"Leave it out, or set {key}.policy to {names}."
            _refuse(f"{name} has no effect with policy {policy.name}", value, where, remedy)
        is_needed = name not in _MAY_BE_NULL and (name != "rates_are" or _has_rates(acceptance))
        if policy in policies and value is None and is_needed:
            _refuse(f"policy {policy.name} needs {name}", None, where, _EXAMPLES[name].format(key=key))
    if acceptance.rates_are is not None and not _has_rates(acceptance):
        rule = "rates_are has no effect on acceptance lengths"
        _refuse(rule, acceptance.rates_are, f"{key}.rates_are", "Leave it out.")


def _has_rates(acceptance: AcceptanceConfig) -> bool:
    """Whether rates by position are given; rows of per_length may be acceptance lengths alone."""
    rows: Any = acceptance.per_length
    if acceptance.policy is AcceptancePolicy.per_length and isinstance(rows, dict):
        return any(isinstance(row, list) for row in rows.values())
    return acceptance.policy in _BY_POSITION


def _check_spread(acceptance: AcceptanceConfig, key: str) -> None:
    has_runs = acceptance.run_spread > 0
    if has_runs and acceptance.run_tokens is None:
        remedy = f"Set {key}.run_tokens to the output tokens that are alike, for example 32."
        _refuse("run_spread needs the length of a run", None, f"{key}.run_tokens", remedy)
    if not has_runs and acceptance.run_tokens is not None:
        rule, where = "run_tokens has no effect without run_spread", f"{key}.run_tokens"
        _refuse(rule, acceptance.run_tokens, where, f"Leave it out, or set {key}.run_spread above 0.")
    if acceptance.policy is AcceptancePolicy.trace and (has_runs or acceptance.request_spread > 0):
        name = "run_spread" if has_runs else "request_spread"
        rule = f"{name} has no effect with policy trace, whose lengths are spread as recorded"
        _refuse(rule, getattr(acceptance, name), f"{key}.{name}", "Leave it out.")


def _refuse(rule: str, got: object, where: str, remedy: str) -> NoReturn:
    raise UserError(rule, got if isinstance(got, str) else shown(got), where, remedy)
