"""Acceptance profiles: what the user knows of a drafter -> the dense table that the engine draws from.

For a verification of k drafts, marginal m_i = P(the first i are all accepted), conditional c_i = m_i /
m_(i-1) = P(the i-th is accepted | those before it were), with m_0 = 1. Whatever the dependence between
positions, the mean accepted length is AL = 1 + m_1 + .. + m_k: accepted = sum over i of [first i accepted].

Each policy is one function of the draft length k. `rate` is accepted / drafted tokens but in geometric; with
measured_draft_length n it is that of drafts of n, of which shorter ones are the beginning, else that of all:

    fixed         the least variance around the mean rate * n, as vLLM makes rates of a synthetic length
    decay         m_i = alpha^i, where alpha solves alpha + .. + alpha^n = rate * n
    binomial      m_i = P(X >= i), X ~ Binomial(n, rate): n coins, heads counted wherever they fall, as
                  simulators draw it that know the number accepted only
    geometric     c_i = rate; AL = (1 - rate^(k+1)) / (1 - rate) (Leviathan et al., ICML 2023, equation 1)
    per_position  the first k of the given rates (vLLM's synthetic_acceptance_rates are marginals)
    per_length    a row for each k: rates, or an acceptance length that decay makes rates of. Where k has no
                  row, the first k rates of the next longer one; none is longer: refused
    trace         accepted lengths at each output token, walked: a verification that emits g tokens moves on
                  by g. The engine walks the file itself; the table here is the mean over all of its walks
    custom        what a function of the user returns for k
"""

import math
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from cluster_sim.config import AcceptanceConfig, AcceptancePolicy, RatesAre
from cluster_sim.errors import UserError
from cluster_sim.schema import shown
from cluster_sim.speculation import accepted_lengths, custom_acceptance

Floats = NDArray[np.float64]

KEY = "speculation.acceptance"
BISECTIONS = 64  # halve [0, 1] down to the spacing of doubles


def conditional_table(config: AcceptanceConfig, max_draft_length: int, key: str = KEY) -> Floats:
    """P(position i accepted | all before it accepted) at [draft length k, position i].

    Shape [max_draft_length + 1, max_draft_length]; entries at and past position k are 0. `key` is where
    `config` stands in the configuration.

    Raises:
        UserError: the profile is incomplete, out of bounds, or shorter than max_draft_length.
    """
    table = np.zeros((max_draft_length + 1, max_draft_length))
    for draft_length in range(1, max_draft_length + 1):
        table[draft_length, :draft_length] = to_conditionals(marginals(config, draft_length, key))
    return table


def marginals(config: AcceptanceConfig, draft_length: int, key: str = KEY) -> Floats:
    """P(the first i of `draft_length` drafts are all accepted), for i = 1 .. draft_length.

    Raises:
        UserError: the profile is incomplete, out of bounds, or shorter than `draft_length`.
    """
    if config.policy is None:
        raise UserError("a profile needs a policy", "null", f"{key}.policy", "Set one, or published.")
    return _POLICIES[config.policy](config, draft_length, key)


def measured_draft_lengths(config: AcceptanceConfig, key: str = KEY) -> tuple[int, ...]:
    """Draft lengths at which the profile's numbers hold as they stand, ascending; none: at all."""
    if config.policy is AcceptancePolicy.per_position:
        return (len(config.rates or []),)
    if config.policy is AcceptancePolicy.per_length:
        return tuple(_rows(config, key))
    return () if config.measured_draft_length is None else (config.measured_draft_length,)


def to_conditionals(marginal: Floats) -> Floats:
    """c_i = m_i / m_(i-1); 0 behind a position that is never reached, as vLLM takes it."""
    before = np.concatenate(([1.0], marginal[:-1]))
    return np.divide(marginal, before, out=np.zeros_like(marginal), where=before > 0)


def acceptance_length(table: Floats, draft_length: int) -> float:
    """Mean tokens that a verification of `draft_length` drafts emits, bonus included: 1 + sum of m_i."""
    return 1.0 + float(np.cumprod(table[draft_length, :draft_length]).sum())


def bisect(rises: Callable[[float], float], target: float, low: float, high: float) -> float:
    """Where a function that does not fall reaches `target`; an end of the interval where it does not."""
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if rises(middle) < target else (low, middle)
    return high


def _fixed(config: AcceptanceConfig, draft_length: int, key: str) -> Floats:
    """1 for each whole accepted draft, the fraction next, then 0."""
    mean_accepted = _rate(config, key) * _measured(config, draft_length)
    marginal: Floats = np.clip(mean_accepted - np.arange(draft_length), 0.0, 1.0)
    return marginal


def _decay(config: AcceptanceConfig, draft_length: int, key: str) -> Floats:
    measured = _measured(config, draft_length)
    return _powers(_rate(config, key) * measured, measured, draft_length)


def _powers(mean_accepted: float, measured: int, draft_length: int) -> Floats:
    """Powers of the alpha that accepts `mean_accepted` of `measured` drafts on average."""
    alpha = _alpha(mean_accepted, measured)
    return np.power(alpha, np.arange(1, draft_length + 1), dtype=np.float64)


@cache
def _alpha(mean_accepted: float, measured: int) -> float:
    powers = np.arange(1, measured + 1)
    return bisect(lambda alpha: float(np.power(alpha, powers).sum()), mean_accepted, 0.0, 1.0)


def _binomial(config: AcceptanceConfig, draft_length: int, key: str) -> Floats:
    """P(X >= i), i = 1 .. draft_length, as sums from the far end."""
    rate, coins = _rate(config, key), _measured(config, draft_length)
    chance = [math.comb(coins, n) * rate**n * (1 - rate) ** (coins - n) for n in range(coins + 1)]
    at_least = np.minimum(np.cumsum(chance[::-1])[::-1], 1.0)
    return np.concatenate((at_least[1:], np.zeros(draft_length)))[:draft_length]


def _geometric(config: AcceptanceConfig, draft_length: int, key: str) -> Floats:
    return np.cumprod(np.full(draft_length, _rate(config, key)), dtype=np.float64)


def _per_position(config: AcceptanceConfig, draft_length: int, key: str) -> Floats:
    rates = config.rates or []
    where = f"{key}.rates"
    if not rates:
        remedy = f"Give one per draft: '{where}=[0.8, 0.6, 0.4]'."
        raise UserError("policy per_position needs rates", shown(config.rates), where, remedy)
    if len(rates) < draft_length:
        _refuse_longer(draft_length, len(rates), where)
    return _as_marginals(rates, config.rates_are, where, key)[:draft_length]


def _per_length(config: AcceptanceConfig, draft_length: int, key: str) -> Floats:
    rows, where = _rows(config, key), f"{key}.per_length"
    row = next((length for length in rows if length >= draft_length), None)
    if row is None:
        rule = f"a draft of {draft_length} tokens needs a row of that length or a longer one"
        remedy = f"Add a row, or draft at most {max(rows)} tokens."
        raise UserError(rule, f"rows of {', '.join(map(str, rows))}", where, remedy)
    said = rows[row]
    if isinstance(said, float):
        return _powers(said - 1.0, row, draft_length)
    return _as_marginals(said, config.rates_are, f"{where}[{row}]", key)[:draft_length]


def _rows(config: AcceptanceConfig, key: str) -> dict[int, float | list[float]]:
    """Rows of per_length by draft length, ascending: an acceptance length or a rate per position."""
    given, where = config.per_length, f"{key}.per_length"
    if not isinstance(given, dict) or not given:
        remedy = f"Give a row per draft length: '{where}={{1: 1.8, 3: [0.8, 0.6, 0.4]}}'."
        raise UserError("policy per_length needs rows by draft length", shown(given), where, remedy)
    for length, said in given.items():
        if type(length) is not int or length < 1:
            rule = "a row belongs to a draft length of 1 or more"
            raise UserError(rule, shown(length), where, "Write {K: acceptance length, or rates}.")
        _check_row(length, said, f"{where}[{length}]")
    return {length: said if isinstance(said, list) else float(said) for length, said in sorted(given.items())}


def _trace(config: AcceptanceConfig, draft_length: int, key: str) -> Floats:
    return accepted_lengths.walked_marginals(config.file, config.series, draft_length, key)


def _custom(config: AcceptanceConfig, draft_length: int, key: str) -> Floats:
    rates = custom_acceptance.rates_of(config.function, draft_length, key)
    return _as_marginals(rates, config.rates_are, f"{key}.function({draft_length})", key)


def _check_row(length: int, said: object, where: str) -> None:
    if isinstance(said, list):
        if len(said) != length:
            rule = f"a row of {length} drafts has {length} rates, one per position"
            raise UserError(rule, len(said), where, "Correct it.")
        return
    if isinstance(said, bool) or not isinstance(said, int | float) or not 1 <= said <= length + 1:
        rule = f"the acceptance length, bonus token included, must lie between 1 and 1 + K = {length + 1}"
        raise UserError(rule, shown(said), where, "Correct it, or give rates by position.")


def _as_marginals(rates: list[float], are: RatesAre | None, where: str, key: str) -> Floats:
    """Marginals of rates by position, checked."""
    for index, rate in enumerate(rates):
        _check_rate(rate, f"{where}[{index}]")
    if are is RatesAre.conditional:
        return np.cumprod(rates, dtype=np.float64)
    if are is None:
        remedy = "Write marginal for P(first i accepted), conditional for P(i-th accepted | those before)."
        rule = "rates must be said to be marginal or conditional"
        raise UserError(rule, "null", f"{key}.rates_are", remedy)
    for index, (before, rate) in enumerate(pairwise(rates), 1):
        if rate > before:
            rule = "marginal rates must not increase, as the first i + 1 drafts include the first i"
            remedy = f"Correct it, or set {key}.rates_are=conditional."
            raise UserError(rule, f"{before:g} then {rate:g}", f"{where}[{index}]", remedy)
    return np.array(rates, np.float64)


def _measured(config: AcceptanceConfig, draft_length: int) -> int:
    return draft_length if config.measured_draft_length is None else config.measured_draft_length


def _rate(config: AcceptanceConfig, key: str) -> float:
    if config.rate is None:
        policy = "" if config.policy is None else f" {config.policy.name}"
        remedy = "Give 0 to 1: for geometric the chance of each draft, else accepted / drafted tokens."
        raise UserError(f"policy{policy} needs a rate", "null", f"{key}.rate", remedy)
    _check_rate(config.rate, f"{key}.rate")
    return config.rate


def _check_rate(rate: object, where: str) -> None:
    is_number = isinstance(rate, int | float) and not isinstance(rate, bool)
    if not (is_number and 0 <= rate <= 1):  # type: ignore[operator]
        rule = "an acceptance rate must lie between 0 and 1"
        raise UserError(rule, shown(rate), where, "Give a fraction, not percent.")


def _refuse_longer(draft_length: int, given: int, where: str) -> NoReturn:
    rule = f"a draft of {draft_length} tokens needs {draft_length} rates, one per position"
    remedy = f"Add {draft_length - given} more, or draft at most {given} tokens."
    raise UserError(rule, given, where, remedy)


_POLICIES: dict[AcceptancePolicy, Callable[[AcceptanceConfig, int, str], Floats]] = {
    AcceptancePolicy.fixed: _fixed,
    AcceptancePolicy.decay: _decay,
    AcceptancePolicy.per_position: _per_position,
    AcceptancePolicy.per_length: _per_length,
    AcceptancePolicy.geometric: _geometric,
    AcceptancePolicy.binomial: _binomial,
    AcceptancePolicy.trace: _trace,
    AcceptancePolicy.custom: _custom,
}
