"""`list`: the names that can be chosen, from conf/, bundles/ and the enums."""

from collections.abc import Sequence
from enum import Enum

from cluster_sim.config import AcceptancePolicy, Method, RouterPolicy
from cluster_sim.errors import UserError
from cluster_sim.paths import bundle_names, conf_dir, group_options
from cluster_sim.schema import closest
from cluster_sim.speculation.profiles import described

_GROUPS = {"models": "model", "hardware": "hardware", "sweeps": "sweep", "studies": "study"}
_ENUMS: dict[str, type[Enum]] = {"routers": RouterPolicy, "proposers": Method, "policies": AcceptancePolicy}
KINDS = ("models", "hardware", "bundles", "routers", "proposers", "policies", "profiles", "sweeps", "studies")


def names(words: Sequence[str]) -> list[str]:
    """The names of the one kind that `words` ask for; published acceptance profiles with what they hold.

    Raises:
        UserError: not exactly one known kind.
    """
    if len(words) != 1 or words[0] not in KINDS:
        asked = " ".join(words)
        rule = "list takes the one kind of names to print"
        raise UserError(
            rule, repr(asked) if asked else "none", "command line", closest(asked, KINDS, "Kinds")
        )
    (kind,) = words
    if kind == "bundles":
        return bundle_names()
    if kind == "profiles":
        return described()
    if kind in _GROUPS:
        return group_options(_GROUPS[kind], [conf_dir()])
    return [member.name for member in _ENUMS[kind]]
