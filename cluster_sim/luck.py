"""The engine's Luck, from acceptance profiles: one for each kind of instance and class of the workload.

A run draws from profiles, or walks recorded lengths (policy trace); all classes do the same of the two. Where
instances walk, all that draft walk the same files: a request's walk does not depend on where it is served.
Walks: the requests of a class take the rows of its file in order, again from the first one after the last.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cluster_sim.config import AcceptancePolicy, Config, Method
from cluster_sim.drafting import draft_length
from cluster_sim.engine import streams
from cluster_sim.engine.kinds import LuckKind, Purpose
from cluster_sim.engine.rules import Fate, Luck
from cluster_sim.errors import UserError
from cluster_sim.schema import closest
from cluster_sim.speculation import accepted_lengths
from cluster_sim.speculation.acceptance import KEY, conditional_table
from cluster_sim.speculation.profiles import Profile, other_draft_lengths, resolve
from cluster_sim.speculation.spread import NUM_LEVELS, shifts, spread_table
from cluster_sim.workload import Workload
from cluster_sim.world import empty_table

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]
BY_CLASS = f"{KEY}_by_class"


@dataclass(frozen=True)
class Profiles:
    """All that a configuration says of acceptance; no `general` one without speculation."""

    general: Profile | None
    of_class: dict[str, Profile]  # those of classes with one of their own
    max_draft_length: int = 0

    def all(self) -> list[Profile]:
        """Each once."""
        return ([] if self.general is None else [self.general]) + list(self.of_class.values())

    def by_class(self, class_names: Sequence[str]) -> list[Profile]:
        """That of each class of the workload; none without speculation."""
        own = [self.of_class.get(name, self.general) for name in class_names]
        return [profile for profile in own if profile is not None]


@dataclass(frozen=True)
class Levels:
    """How finely ease is divided."""

    of_requests: int = 1
    of_runs: int = 1
    run_tokens: int = 1


def profiles_of(config: Config) -> Profiles:
    """The profiles that the configuration means.

    Raises:
        UserError: one is not published, not sound, or they do not go together.
    """
    speculation = config.speculation
    if speculation.acceptance is None or speculation.method is Method.none:
        return Profiles(None, {})
    model, method = config.model.name, speculation.method
    by_class = speculation.acceptance_by_class or {}
    profiles = Profiles(
        resolve(speculation.acceptance, model, method),
        {name: resolve(said, model, method, f"{BY_CLASS}.{name}") for name, said in by_class.items()},
        draft_length(config),
    )
    walked = [profile for profile in profiles.all() if profile.config.policy is AcceptancePolicy.trace]
    if walked and len(walked) < len(profiles.all()):
        rule = "policy trace is that of all classes or of none"
        remedy = "Give every class and speculation.acceptance a file, or another policy."
        raise UserError(rule, f"trace for {walked[0].key} alone", walked[0].key, remedy)
    _levels([profiles])
    return profiles


def build_luck(config: Config, kinds: Sequence[Profiles], workload: Workload) -> Luck:
    """Fates of all offered requests: luck does not depend on what an arm rejects, or on the instance.

    The profile of class c on an instance of kind k is k * classes + c.

    Raises:
        UserError: a class has a profile and no request, a profile does not reach its max_draft_length, or the
            `kinds` do not go together.
    """
    for profiles in kinds:
        _check_classes(profiles, workload)
    drafting = [own for own in (profiles.by_class(workload.class_names) for profiles in kinds) if own]
    of_class = drafting[0] if drafting else []
    is_walk = _is_walk(drafting)
    levels = _levels(kinds)
    fates = empty_table(
        Fate,
        len(workload.arrival_s),
        stop_at=0 if config.workload.ignore_eos else workload.output_tokens,
        **(_walks(of_class, workload) if is_walk else {}),
    )
    with np.errstate(over="ignore"):
        key, level_key = (
            np.uint64(streams.of_purpose(np.uint64(config.seed), int(purpose)))
            for purpose in (Purpose.acceptance, Purpose.ease)
        )
    if is_walk or not of_class:
        conditional = np.zeros((len(kinds) * len(workload.class_names), 1, 1, 1))
    else:
        conditional = _conditional(kinds, workload.class_names, levels)
    return Luck(
        fates,
        int(LuckKind.walked if is_walk else LuckKind.profile),
        key,
        level_key,
        levels.of_requests,
        levels.of_runs,
        levels.run_tokens,
        np.ascontiguousarray(conditional, np.float64),
        _draws(of_class) if is_walk else np.zeros(0, np.int32),
        np.zeros(0, np.int32),
    )


def profile_warnings(profiles: Profiles, draft_lengths: Sequence[int]) -> tuple[str, ...]:
    """What to say, once, of profiles that stand in for others: other models, or other draft lengths."""
    said = [warning for profile in profiles.all() for warning in profile.warnings]
    said += [other_draft_lengths(profile, draft_lengths) or "" for profile in profiles.all()]
    return tuple(dict.fromkeys(warning for warning in said if warning))


def acceptance_source(config: Config) -> str:
    """Where the acceptance profiles come from, in words.

    Raises:
        UserError: as of `profiles_of`.
    """
    profiles = profiles_of(config)
    if profiles.general is None:
        return "no speculation"
    of_class = [f"class {name}: {profile.source}" for name, profile in profiles.of_class.items()]
    return "; ".join([profiles.general.source, *of_class])


def check_profile(profile: Profile, max_draft_length: int) -> None:
    """Raise where build_luck would for this profile.

    Raises:
        UserError: it does not reach `max_draft_length`, or cannot be spread, or its file is wrong.
    """
    if profile.config.policy is AcceptancePolicy.trace:
        accepted_lengths.read(profile.config.file, profile.config.series, profile.key)
    else:
        table = conditional_table(profile.config, max_draft_length, profile.key)
        spread_table(table, shifts(profile.config, NUM_LEVELS, NUM_LEVELS), profile.key)


def _check_classes(profiles: Profiles, workload: Workload) -> None:
    for name, profile in profiles.of_class.items():
        if name not in workload.class_names:
            rule = "a class with an acceptance profile must be one of the workload's"
            raise UserError(rule, repr(name), profile.key, closest(name, workload.class_names, "Classes"))


def _is_walk(drafting: Sequence[Sequence[Profile]]) -> bool:
    """Whether recorded lengths are walked; `drafting` has the profiles by class of each kind that drafts."""
    policies = [profile.config.policy for own in drafting for profile in own]
    if AcceptancePolicy.trace not in policies:
        return False
    if any(
        [profile.config for profile in own] != [profile.config for profile in drafting[0]] for own in drafting
    ):
        rule = "with policy trace, all instances that draft walk the same recorded lengths"
        got, remedy = "different acceptance", f"Give them one {KEY}, or profiles of another policy."
        raise UserError(rule, got, KEY, remedy)
    return True


def _levels(kinds: Sequence[Profiles]) -> Levels:
    """The same for all classes and instances: a class without spread has levels that are alike."""
    spreads = [profile.config for profiles in kinds for profile in profiles.all()]
    runs = {profile.run_tokens for profile in spreads if profile.run_tokens is not None}
    if len(runs) > 1:
        where = "in all classes" if len(kinds) == 1 else "in all classes and on all instances"
        rule = f"runs must be equally long {where}"
        got = " and ".join(map(str, sorted(runs)))
        raise UserError(rule, got, f"{KEY}.run_tokens", "Set one run_tokens.")
    return Levels(
        NUM_LEVELS if any(profile.request_spread > 0 for profile in spreads) else 1,
        NUM_LEVELS if any(profile.run_spread > 0 for profile in spreads) else 1,
        next(iter(runs), 1),
    )


def _conditional(kinds: Sequence[Profiles], class_names: Sequence[str], levels: Levels) -> Floats:
    """[profile, level, draft length, position] of all kinds, zeros beyond a kind's own draft lengths."""
    longest = max(profiles.max_draft_length for profiles in kinds)
    all_levels, classes = levels.of_requests * levels.of_runs, len(class_names)
    tables = np.zeros((len(kinds) * classes, all_levels, longest + 1, longest))
    for kind, profiles in enumerate(kinds):
        for number, profile in enumerate(profiles.by_class(class_names)):
            own = _table(profile, levels, profiles.max_draft_length)
            tables[kind * classes + number, :, : own.shape[1], : own.shape[2]] = own
    return tables


def _table(profile: Profile, levels: Levels, max_draft_length: int) -> Floats:
    """Conditionals of one class, shape [level, draft length, position]."""
    table = conditional_table(profile.config, max_draft_length, profile.key)
    return spread_table(table, shifts(profile.config, levels.of_requests, levels.of_runs), profile.key)


def _draws(of_class: Sequence[Profile]) -> Ints:
    """Accepted lengths of all classes' files, one behind another."""
    return np.concatenate([_lengths(profile).accepted for profile in of_class])


def _walks(of_class: Sequence[Profile], workload: Workload) -> dict[str, NDArray[np.int64]]:
    """Which row of its class's file each request walks: columns of Fate."""
    start = np.zeros(len(workload.arrival_s), np.int64)
    length = np.zeros(len(workload.arrival_s), np.int64)
    offset = 0
    for number, profile in enumerate(of_class):
        lengths = _lengths(profile)
        members = np.flatnonzero(workload.workload_class == number)
        row = np.arange(len(members)) % (len(lengths.start) - 1)
        start[members] = offset + lengths.start[row]
        length[members] = np.diff(lengths.start)[row]
        offset += len(lengths.accepted)
    return {"draw_start": start, "num_draws": length}


def _lengths(profile: Profile) -> accepted_lengths.AcceptedLengths:
    return accepted_lengths.read(profile.config.file, profile.config.series, profile.key)
