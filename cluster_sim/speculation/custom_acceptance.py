"""Policy custom: rates that a function of the user returns for a draft length."""

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from cluster_sim.errors import UserError


def rates_of(path: str | None, draft_length: int, key: str) -> list[float]:
    """What the function at the dotted `path` returns for `draft_length`: a number per position.

    It is called once for each draft length, and must return the same whenever it is called.

    Raises:
        UserError: there is no such function, it fails, or it returns something else.
    """
    where = f"{key}.function"
    function = _function(path, where)
    try:
        returned = function(draft_length)
    except Exception as error:
        rule = f"{path} must return rates for a draft of {draft_length} tokens"
        raise UserError(rule, f"{type(error).__name__}: {error}", where, "Correct the function.") from error
    try:
        rates = np.asarray(returned, dtype=np.float64)
    except (TypeError, ValueError):
        rates = np.zeros(0)
    if rates.shape != (draft_length,):
        rule = f"{path} must return {draft_length} numbers for a draft of {draft_length} tokens"
        raise UserError(rule, repr(returned), where, "Correct the function.")
    return [float(rate) for rate in rates]


def _function(path: str | None, where: str) -> Callable[[int], Any]:
    remedy = f"Name one that Python can import: {where}=package.module.function."
    module, _, name = (path or "").rpartition(".")
    if not module:
        raise UserError("policy custom needs a function", repr(path), where, remedy)
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError("a function must be importable", f"{path}: {error}", where, remedy) from error
    if not callable(found):
        raise UserError("a function must be callable", f"{path} = {found!r}", where, remedy)
    function: Callable[[int], Any] = found
    return function
