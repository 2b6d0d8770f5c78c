"""Acceptance profiles: what the user knows of a drafter -> the dense table that the engine draws from.

For a verification of k drafts, marginal m_i = P(the first i are all accepted), conditional c_i = m_i /
m_(i-1) = P(the i-th is accepted | those before it were), with m_0 = 1. Whatever the dependence between
positions, the mean accepted length is AL = 1 + m_1 + .. + m_k: accepted = sum over i of [first i accepted].

Each policy is one function of the draft length k:

    per_position  the first k of the given rates (vLLM's synthetic_acceptance_rates are marginals)
    geometric     c_i = rate; AL = (1 - rate^(k+1)) / (1 - rate) (Leviathan et al., ICML 2023, equation 1)
    fixed         mean accepted rate * k with the least variance, as vLLM turns synthetic_acceptance_length
                  into rates; every k keeps the rate (vLLM keeps the first k of num_speculative_tokens)
"""

import math
from collections.abc import Sequence
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from cluster_sim.config import AcceptanceConfig, AcceptancePolicy, RatesAre
from cluster_sim.errors import UserError
from cluster_sim.schema import shown

Floats = NDArray[np.float64]

KEY = "speculation.acceptance"


def conditional_table(config: AcceptanceConfig, max_draft_length: int) -> Floats:
    """P(position i accepted | all before it accepted) at [draft length k, position i].

    Shape [max_draft_length + 1, max_draft_length]; entries at and past position k are 0.

    Raises:
        UserError: the profile is incomplete, out of bounds, or shorter than max_draft_length.
    """
    table = np.zeros((max_draft_length + 1, max_draft_length))
    for draft_length in range(1, max_draft_length + 1):
        table[draft_length, :draft_length] = to_conditionals(marginals(config, draft_length))
    return table


def marginals(config: AcceptanceConfig, draft_length: int) -> Floats:
    """P(the first i of `draft_length` drafts are all accepted), for i = 1 .. draft_length.

    Raises:
        UserError: the profile is incomplete, out of bounds, or shorter than `draft_length`.
    """
    match config.policy:
        case AcceptancePolicy.per_position:
            return _per_position(config, draft_length)
        case AcceptancePolicy.geometric:
            return np.cumprod(np.full(draft_length, _rate(config)), dtype=np.float64)
        case AcceptancePolicy.fixed:
            return _least_variance(_rate(config) * draft_length, draft_length)
        case _:
            assert_never(config.policy)


def to_conditionals(marginal: Floats) -> Floats:
    """c_i = m_i / m_(i-1); 0 behind a position that is never reached, as vLLM takes it."""
    before = np.concatenate(([1.0], marginal[:-1]))
    return np.divide(marginal, before, out=np.zeros_like(marginal), where=before > 0)


def acceptance_length(table: Floats, draft_length: int) -> float:
    """Mean tokens that a verification of `draft_length` drafts emits, bonus included: 1 + sum of m_i."""
    return 1.0 + float(np.cumprod(table[draft_length, :draft_length]).sum())


def _per_position(config: AcceptanceConfig, draft_length: int) -> Floats:
    rates = _rates(config)
    if len(rates) < draft_length:
        raise UserError(
            f"a draft of {draft_length} tokens needs {draft_length} rates, one per position",
            len(rates),
            f"{KEY}.rates",
            f"Add {draft_length - len(rates)} more, or draft at most {len(rates)} tokens.",
        )
    if config.rates_are is RatesAre.conditional:
        return np.cumprod(rates[:draft_length], dtype=np.float64)
    if config.rates_are is RatesAre.marginal:
        _check_non_increasing(rates)
        return rates[:draft_length]
    remedy = "Write marginal for P(first i accepted), conditional for P(i-th accepted | those before)."
    raise UserError("rates must be said to be marginal or conditional", "null", f"{KEY}.rates_are", remedy)


def _least_variance(mean_accepted: float, draft_length: int) -> Floats:
    """1 for each whole accepted draft, the fraction next, then 0."""
    marginal: Floats = np.clip(mean_accepted - np.arange(draft_length), 0.0, 1.0)
    return marginal


def _rates(config: AcceptanceConfig) -> Floats:
    if not config.rates:
        remedy = f"Give one per draft: '{KEY}.rates=[0.8, 0.6, 0.4]'."
        raise UserError("policy per_position needs rates", shown(config.rates), f"{KEY}.rates", remedy)
    for index, rate in enumerate(config.rates):
        _check_rate(rate, f"{KEY}.rates[{index}]")
    return np.array(config.rates, np.float64)


def _rate(config: AcceptanceConfig) -> float:
    if config.rate is None:
        remedy = "Give 0 to 1: for geometric the chance of each draft, for fixed accepted / drafted tokens."
        raise UserError(f"policy {config.policy.name} needs a rate", "null", f"{KEY}.rate", remedy)
    _check_rate(config.rate, f"{KEY}.rate")
    return config.rate


def _check_rate(rate: float, where: str) -> None:
    if not (math.isfinite(rate) and 0 <= rate <= 1):
        raise UserError(
            "an acceptance rate must lie between 0 and 1", rate, where, "Give a fraction, not percent."
        )


def _check_non_increasing(rates: Sequence[float] | Floats) -> None:
    for index in range(1, len(rates)):
        if rates[index] > rates[index - 1]:
            raise UserError(
                "marginal rates must not increase, as the first i + 1 drafts include the first i",
                f"{rates[index - 1]:g} then {rates[index]:g}",
                f"{KEY}.rates[{index}]",
                f"Correct it, or set {KEY}.rates_are=conditional.",
            )
