"""Which option of conf/model and conf/hardware a name made elsewhere means.

Never a guess: a checkpoint whose name says more than a variant of the same architecture (a quantization, say)
has other costs, and is refused.
"""

import re
from collections.abc import Sequence
from functools import cache

from cluster_sim.compose import compose
from cluster_sim.config import ModelConfig
from cluster_sim.errors import UserError
from cluster_sim.paths import conf_dir, group_options

# of the same architecture
VARIANT = re.compile(r"(-(base|chat|hf|instruct|it|thinking|v\d+(\.\d+)*|\d{4}))*")


def model_option(name: str, choose: str) -> str:
    """The option of conf/model for a checkpoint such as Qwen/Qwen3-30B-A3B-Instruct-2507.

    `choose` is how the user names one instead.

    Raises:
        UserError: none fits.
    """
    wanted = name.rsplit("/", 1)[-1].lower().removeprefix("meta-")
    fitting = [
        option
        for option in _options("model")
        if wanted.startswith(option) and VARIANT.fullmatch(wanted.removeprefix(option))
    ]
    return _only(fitting, name, "model", choose)


@cache
def model_named(name: str) -> ModelConfig:
    """The model of conf/model for an option or a checkpoint's name.

    Raises:
        UserError: none fits.
    """
    return compose([f"model={model_option(name, 'speculation.model=OPTION')}", "speculation=none"]).model


def hardware_option(name: str, choose: str) -> str:
    """The option of conf/hardware for a label such as RTXPRO6000; `choose` as for a model.

    Raises:
        UserError: none fits.
    """
    wanted = re.sub(r"[^a-z0-9]", "", name.lower())
    fitting = [option for option in _options("hardware") if option.replace("_", "") == wanted]
    return _only(fitting, name, "hardware", choose)


def _options(group: str) -> list[str]:
    return group_options(group, [conf_dir()])


def _only(fitting: Sequence[str], name: str, group: str, choose: str) -> str:
    """The longest of the fitting options: llama-3.1-8b-v2 rather than a variant v2 of llama-3.1-8b."""
    if not fitting:
        rule = f"a name must be that of an option in conf/{group}, or of a variant with the same costs"
        remedy = f"Choose one with {choose}. Options: {', '.join(_options(group))}."
        raise UserError(rule, repr(name), group, remedy)
    return max(fitting, key=len)
