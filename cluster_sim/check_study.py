"""What must hold of a study itself: loads, seeds, space, objective. Trials are checked as they come."""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NoReturn

from cluster_sim.check_study_objective import check_objective
from cluster_sim.check_sweep import check_key, check_list, check_search
from cluster_sim.config import Config, Method, SearchConfig, StudyConfig
from cluster_sim.errors import UserError
from cluster_sim.schema import shown
from cluster_sim.speculation.requirements import schedules

RATE = "workload.request_rate"
FEWEST_FRESH_SEEDS = 2  # from one there is no interval
# Keys that a study sets in every trial, and how to ask for what they say.
SET_BY_STUDY = {
    "speculation.num_speculative_tokens": "Write study.max_draft_length=K for the longest draft.",
    "speculation.num_speculative_tokens_per_batch_size": "Write study.bucket_lasts=[..] for the ranges.",
    "speculation.draft_len_schedule": "Write study.bucket_lasts=[..] for the ranges.",
}


def check_study(config: Config, study: StudyConfig) -> None:
    """Raise for the first thing in `study` that contradicts itself or `config`, or would do nothing.

    Raises:
        UserError: worded with the rule, the value, its key and what to do.
    """
    if config.sweep is not None:
        _refuse("a command runs a sweep or a study", "both", "sweep", "Leave one of them out.")
    if not re.fullmatch(r"\w[\w.-]*", study.name):
        rule = "a study's name, a directory's too, is made of letters, digits and _ . -"
        _refuse(rule, repr(study.name), "name", "Rename it.")
    if study.max_draft_length is None:
        _check_as_it_is(study)
    else:
        _check_drafter(config, study)
    check_objective(config, study)
    _check_buckets(study.bucket_lasts)
    _check_keys(study)
    _check_seeds(study)
    if study.search_edges and not study.bucket_lasts:
        _refuse("edges are searched between buckets", "one bucket", "search_edges", "Add bucket_lasts.")


def check_no_study(config: Config) -> None:
    """Raise for an option that has an effect in a study alone.

    Raises:
        UserError: it is set.
    """
    if config.output.drafter is not None:
        rule, remedy = "the drafter's checkpoint is for a study's schedule.json", "Leave it out."
        raise UserError(rule, repr(config.output.drafter), "output.drafter", remedy)


def check_effect(asked: Mapping[str, object], study: StudyConfig) -> None:
    """Refuse options and values of the command line that every trial of the study replaces.

    Raises:
        UserError: there is one.
    """
    for key, value in asked.items():
        if key in SET_BY_STUDY and study.max_draft_length is not None:
            rule = "a study sets this key in every trial"
            raise UserError(rule, f"{key}={value}", "command line", SET_BY_STUDY[key])
        if study.search is not None and key == study.search.key:
            rule, remedy = "the study's search sets this key", "Write study.search.low and study.search.high."
            raise UserError(rule, f"{key}={value}", "command line", remedy)
        for group, lists in (("axes", study.axes), ("choices", study.choices)):
            if key in lists:
                rule, remedy = f"the study's {group} set this key", f"Write 'study.{group}.{key}=[{value}]'."
                raise UserError(rule, f"{key}={value}", "command line", remedy)


def _check_as_it_is(study: StudyConfig) -> None:
    """Where the command line's own draft lengths are kept, there is no schedule to search."""
    remedy = "Set study.max_draft_length, or leave it out with 'study.bucket_lasts=[]'."
    if study.bucket_lasts:
        _refuse("buckets are of draft lengths that are searched", study.bucket_lasts, "bucket_lasts", remedy)
    if study.monotone is not None:
        remedy = "Set study.max_draft_length, or leave study.monotone out."
        _refuse("monotone is of draft lengths that are searched", study.monotone, "monotone", remedy)
    if not study.choices:
        rule, remedy = "a study searches draft lengths or choices", "Set study.max_draft_length."
        _refuse(rule, "neither", "choices", remedy)


def _check_drafter(config: Config, study: StudyConfig) -> None:
    if config.speculation.method is Method.none and "speculation" not in study.choices:
        remedy = "Choose a method, for example speculation=eagle3."
        raise UserError("a study of draft schedules needs a drafter", "none", "speculation.method", remedy)
    if "none" in study.choices.get("speculation", []):
        remedy = "Leave it out of the list."
        _refuse("a study has an arm without speculation anyway", "none", "choices.speculation", remedy)
    static = "Write 'study.bucket_lasts=[]' to search static draft lengths."
    method = config.speculation.method
    if study.bucket_lasts and method is not Method.none and not schedules(config.engine, method):
        rule = f"vLLM follows no schedule with method {method.name} on the V1 model runner"
        _refuse(rule, f"{len(study.bucket_lasts) + 1} buckets", "bucket_lasts", static)
    if config.cluster.data_parallel_size > 1 and study.bucket_lasts:
        rule = "vLLM follows no schedule with data_parallel_size above 1"
        _refuse(rule, f"{len(study.bucket_lasts) + 1} buckets", "bucket_lasts", static)


def _check_buckets(lasts: Sequence[int]) -> None:
    where = "bucket_lasts"
    if lasts and lasts[0] < 1:
        _refuse("a bucket ends at batch size 1 or more", lasts[0], where, "Count requests from 1.")
    for before, after in pairwise(lasts):
        if after <= before:
            _refuse("the last batch sizes of buckets rise", f"{after} after {before}", where, "Sort them.")


def _check_keys(study: StudyConfig) -> None:
    groups: Mapping[str, Mapping[str, Sequence[Any]]] = {"axes": study.axes, "choices": study.choices}
    for group, lists in groups.items():
        for key, values in lists.items():
            where = f"study.{group}.{key}"
            check_key(key, where, "study")
            check_list(values, where, "study")
            if key in SET_BY_STUDY and study.max_draft_length is not None:
                raise UserError("a study sets this key in every trial", key, where, SET_BY_STUDY[key])
    both = [key for key in study.axes if key in study.choices]
    if both:
        _refuse("a key is of the loads or a choice", f"{both[0]} in both", "choices", "Keep one.")
    if study.search is not None:
        _check_searched_key(study, study.search)
    elif not study.axes:
        _refuse("a study has loads", "none", "axes", f"Add 'study.axes.{RATE}=[..]'.")


def _check_searched_key(study: StudyConfig, search: SearchConfig) -> None:
    check_search(search, "study")
    if search.key in study.axes or search.key in study.choices:
        rule = "the key that is searched is no axis and no choice"
        group = "axes" if search.key in study.axes else "choices"
        _refuse(rule, search.key, f"{group}.{search.key}", "Leave it out there.")


def _check_seeds(study: StudyConfig) -> None:
    for name, seeds in (("seeds", study.seeds), ("fresh_seeds", study.fresh_seeds)):
        check_list(seeds, f"study.{name}", "study")
        if min(seeds) < 0:
            _refuse("a seed must be at least 0", min(seeds), name, "Leave out the negative ones.")
    if len(study.fresh_seeds) < FEWEST_FRESH_SEEDS:
        rule = f"a verdict needs {FEWEST_FRESH_SEEDS} fresh seeds or more, to have intervals"
        _refuse(rule, len(study.fresh_seeds), "fresh_seeds", "Add seeds.")
    seen = sorted(set(study.seeds) & set(study.fresh_seeds))
    if seen:
        rule = "the verdict's seeds must be unknown to the search"
        _refuse(rule, f"{seen[0]} in both", "fresh_seeds", "Choose other fresh seeds.")


def _refuse(rule: str, got: object, name: str, remedy: str) -> NoReturn:
    words = got if isinstance(got, str) else shown(got)
    raise UserError(rule, words, name if name == "sweep" else f"study.{name}", remedy)
