"""Synthetic acceptance of vLLM's --speculative-config: rates, or a mean length that becomes rates.

Source: vLLM 0.33.0, SpeculativeConfig._resolve_synthetic_acceptance_rates and _acceptance_length_to_rates;
../shared/vllm-scheduler.md section 12.
"""

import math
from collections.abc import Mapping, Sequence

from cluster_sim.errors import UserError
from cluster_sim.schema import closest, shown
from cluster_sim.speculation import vllm_options

VLLM_CONFIG = "speculation.vllm_config"


def synthetic_rates(said: Mapping[str, object], drafts: int) -> tuple[list[float] | None, str | None]:
    """P(the first i drafts are all accepted) of synthetic rejection sampling, and where it comes from.

    None for both where another method verifies.

    Raises:
        UserError: a rule of vLLM is broken.
    """
    method = _choice(said, "rejection_sample_method", vllm_options.REJECTION_SAMPLE_METHODS)
    _choice(said, "draft_sample_method", vllm_options.DRAFT_SAMPLE_METHODS)
    given = [key for key in ("synthetic_acceptance_rates", "synthetic_acceptance_length") if key in said]
    if method != "synthetic":
        if given:
            rule = f"{given[0]} needs rejection_sample_method synthetic"
            remedy = f'Add "rejection_sample_method": "synthetic", or leave {given[0]} out.'
            raise UserError(rule, repr(method), f"{VLLM_CONFIG}.rejection_sample_method", remedy)
        return None, None
    if len(given) != 1:
        rule = "synthetic acceptance needs synthetic_acceptance_rates or synthetic_acceptance_length"
        raise UserError(rule, "both" if given else "neither", VLLM_CONFIG, "Give one of them.")
    source = f"{given[0]} of vLLM's speculative config"
    if given[0] == "synthetic_acceptance_rates":
        return _rates(said[given[0]], drafts), source
    return _least_variance(said[given[0]], drafts), source


def _rates(given: object, drafts: int) -> list[float]:
    where = f"{VLLM_CONFIG}.synthetic_acceptance_rates"
    if isinstance(given, str) or not isinstance(given, Sequence) or len(given) != drafts:
        rule = f"there must be a rate for each of the {drafts} drafts"
        raise UserError(rule, shown(given), where, f"Give {drafts} rates, from the first draft to the last.")
    rates = [_number(rate, where) for rate in given]
    for index, rate in enumerate(rates):
        if not 0 <= rate <= 1:
            raise UserError("a rate must lie between 0 and 1", rate, f"{where}[{index}]", "Give a fraction.")
        if index and rate > rates[index - 1]:
            rule = "rates must not increase: each is the chance that all drafts up to it are accepted"
            got = f"{rates[index - 1]:g} then {rate:g}"
            raise UserError(rule, got, f"{where}[{index}]", "Multiply conditional rates up.")
    return rates


def _least_variance(given: object, drafts: int) -> list[float]:
    """Rates of vLLM for a mean length, bonus included: 1 for each whole draft, the fraction next, then 0."""
    where = f"{VLLM_CONFIG}.synthetic_acceptance_length"
    length = _number(given, where)
    if not 1 <= length <= drafts + 1:
        rule = f"the mean length, bonus token included, must lie between 1 and 1 + K = {drafts + 1}"
        raise UserError(rule, length, where, "Correct it, or num_speculative_tokens.")
    return [min(max(length - 1 - index, 0.0), 1.0) for index in range(drafts)]


def _number(given: object, where: str) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not math.isfinite(given):
        raise UserError("the value must be a number", shown(given), where, "Correct it.")
    return float(given)


def _choice(said: Mapping[str, object], key: str, choices: Sequence[str]) -> str:
    value = str(said.get(key, choices[0]))
    if value not in choices:
        remedy = vllm_options.DROPPED_VALUES.get((key, value)) or closest(value, choices, "Values")
        raise UserError(f"{key} must be a word of vLLM 0.33", repr(value), f"{VLLM_CONFIG}.{key}", remedy)
    return value
