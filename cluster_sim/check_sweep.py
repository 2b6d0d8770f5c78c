"""What must hold of a sweep itself: arms, baseline, axes, seeds. Trials are checked as they are composed."""

import re
from collections.abc import Iterable

from cluster_sim.compared import COMPARED, SHOWN
from cluster_sim.config import SearchConfig, SweepConfig
from cluster_sim.errors import UserError
from cluster_sim.paths import group_names
from cluster_sim.schema import closest, find_key

# Settings of the whole sweep: no trial can have its own.
_OF_THE_SWEEP = ("sweep", "study", "output", "executor")


def check_sweep(sweep: SweepConfig) -> None:
    """Raise for the first thing in `sweep` that contradicts itself, names an unknown key or would do nothing.

    Raises:
        UserError: worded with the rule, the value, its key and what to do.
    """
    if not re.fullmatch(r"\w[\w.-]*", sweep.name):
        rule = "a sweep's name, a directory's too, is made of letters, digits and _ . -"
        raise UserError(rule, repr(sweep.name), "sweep.name", "Rename it.")
    if not sweep.arms:
        raise UserError(
            "a sweep compares arms", "none", "sweep.arms", "Name at least one: {NAME: {KEY: VALUE}}."
        )
    if sweep.baseline not in sweep.arms:
        remedy = closest(sweep.baseline, sweep.arms, "Arms")
        raise UserError(
            "the baseline must be one of the arms", repr(sweep.baseline), "sweep.baseline", remedy
        )
    for axis, values in sweep.axes.items():
        where = f"sweep.axes.{axis}"
        check_key(axis, where)
        check_list(values, where)
        for arm, changes in sweep.arms.items():
            if axis in changes:
                raise UserError(
                    "a key is an arm's or an axis", f"{axis} in both", f"sweep.arms.{arm}", "Keep one."
                )
    for arm, changes in sweep.arms.items():
        for key in changes:
            check_key(key, f"sweep.arms.{arm}")
    _check_search(sweep, sweep.search)
    _check_compared(sweep.compare)
    check_list(sweep.seeds, "sweep.seeds")
    if min(sweep.seeds) < 0:
        raise UserError(
            "a seed must be at least 0", min(sweep.seeds), "sweep.seeds", "Leave out the negative ones."
        )


def _check_compared(names: Iterable[str]) -> None:
    check_list(names, "sweep.compare")
    for name in names:
        if name not in COMPARED:
            rule = "a sweep shows some of the values that it compares"
            raise UserError(rule, repr(name), "sweep.compare", closest(name, COMPARED, "Values"))


def _check_search(sweep: SweepConfig, search: SearchConfig | None) -> None:
    if search is None:
        return
    check_search(search)
    key = search.key
    owners = [f"sweep.axes.{key}"] if key in sweep.axes else []
    owners += [f"sweep.arms.{arm}" for arm, changes in sweep.arms.items() if key in changes]
    if owners:
        raise UserError(
            "the key that is searched is no axis and no arm's", key, owners[0], "Leave it out there."
        )
    if sweep.compare != list(SHOWN):
        remedy = "Leave it out: a search shows the values that it finds."
        raise UserError("compare has no effect with a search", sweep.compare, "sweep.compare", remedy)


def check_search(search: SearchConfig, whole: str = "sweep") -> None:
    """Raise where `search` is not for the highest value of a number, or its ends are not in order."""
    key, where = search.key, f"{whole}.search.key"
    check_key(key, where, whole)
    if key in group_names() or find_key(key, where).type is not float:
        rule, remedy = "a search is for the highest value of a number", "Search workload.request_rate, say."
        raise UserError(rule, key, where, remedy)
    if search.low >= search.high:
        got = f"low={search.low:g}, high={search.high:g}"
        raise UserError("low < high must hold", got, f"{whole}.search", f"Raise {whole}.search.high.")


def check_key(key: str, where: str, whole: str = "sweep") -> None:
    """Raise where `key`, met at `where`, is none that a trial of the `whole` can have of its own."""
    if key == "seed":
        raise UserError("seeds are a list of their own", "the key seed", where, f"Write {whole}.seeds.")
    if key.split(".", maxsplit=1)[0] in _OF_THE_SWEEP:
        raise UserError(f"this key belongs to the whole {whole}", key, where, "Set it on the command line.")
    if key not in group_names():
        find_key(key, where)


def check_list(values: Iterable[object], where: str, whole: str = "sweep") -> None:
    """Raise where the list at `where` is empty or has a value twice."""
    listed = list(values)
    if not listed:
        raise UserError(
            f"a list of a {whole} holds at least one value",
            "none",
            where,
            "Add values, or leave the key out.",
        )
    repeated = [value for place, value in enumerate(listed) if value in listed[:place]]
    if repeated:
        raise UserError("the values of a list differ", f"{repeated[0]} twice", where, "Keep one.")
