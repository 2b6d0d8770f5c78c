"""Which acceptance profile a configuration means: the numbers given, or a published entry.

`published: auto` takes the entry of the model and the method. There is no other default: a model without an
entry is refused until it is given numbers.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from cluster_sim.config import AcceptanceConfig, Method
from cluster_sim.errors import UserError
from cluster_sim.schema import closest
from cluster_sim.speculation.acceptance import (
    KEY,
    acceptance_length,
    conditional_table,
    measured_draft_lengths,
)
from cluster_sim.speculation.published import Published, load

AUTO = "auto"
NOT_STATED = "not stated"  # of an entry's text


@dataclass(frozen=True)
class Profile:
    """An acceptance profile whose policy and numbers are known."""

    config: AcceptanceConfig
    key: str  # where it stands in the configuration
    label: str  # the published name, or the key
    source: str  # [published] NAME: source, or [given] source
    measured: tuple[int, ...]  # draft lengths at which its numbers hold as they stand; none: at all
    warnings: tuple[str, ...] = ()
    measured_on: str | None = None  # the text, and the temperature of sampling; None: not a published one


def resolve(acceptance: AcceptanceConfig, model: str, method: Method, key: str = KEY) -> Profile:
    """The profile that `acceptance`, which stands at `key`, means for a model and a method.

    Raises:
        UserError: a published one is asked for and there is none, or several; or the numbers are no profile.
    """
    if acceptance.published is None:
        source = f"[given] {acceptance.source or 'by the user'}"
        return Profile(acceptance, key, key, source, measured_draft_lengths(acceptance, key))
    entry = _entry_for(acceptance.published, model, method, key)
    config = replace(
        entry.config(),
        request_spread=acceptance.request_spread,
        run_spread=acceptance.run_spread,
        run_tokens=acceptance.run_tokens,
    )
    other_model = f"the acceptance profile {entry.name} was measured on {entry.model}, not on {model}"
    return Profile(
        config,
        key,
        entry.name,
        f"[published] {entry.name}: {entry.source}",
        tuple(entry.rows),
        () if entry.model == model else (other_model,),
        _measured_on(entry),
    )


def other_draft_lengths(profile: Profile, drafts: Iterable[int]) -> str | None:
    """What to say where some of `drafts` are not among the lengths that the profile was measured at."""
    others = sorted(length for length in set(drafts) if length > 0 and length not in profile.measured)
    if not others or not profile.measured:
        return None
    table = conditional_table(profile.config, max(*others, *profile.measured), profile.key)
    used = ", ".join(f"{length} ({acceptance_length(table, length):.2f})" for length in others)
    known = ", ".join(f"{length} ({acceptance_length(table, length):.2f})" for length in profile.measured)
    known = known.replace("(", "(acceptance length ", 1)
    return (
        f"the acceptance profile {profile.label} has drafts of {known} and stands in for drafts of {used}, "
        "whose own may differ by some percent"
    )


def check_name(name: str, key: str) -> None:
    """Refuse a name that is neither auto nor an entry's.

    Raises:
        UserError: naming the closest one.
    """
    if name != AUTO and name not in load():
        remedy = closest(name, list(load()), "Profiles").partition(" Profiles:")[0]
        meant = f"{remedy} " if remedy.startswith("Did") else ""
        remedy = f"{meant}`list profiles` prints all."
        raise UserError("a published profile must be known, or auto", repr(name), f"{key}.published", remedy)


def described() -> list[str]:
    """All entries, one a line: name, model and method, text, raw and smoothed acceptance lengths, source."""
    return [_described(entry) for entry in load().values()]


def _entry_for(name: str, model: str, method: Method, key: str) -> Published:
    where = f"{key}.published"
    if name != AUTO:
        check_name(name, key)
        entry = load()[name]
        if entry.method is not method:
            rule = f"{name} was measured with method {entry.method.name}"
            remedy = f"Choose speculation={entry.method.name}, or a profile of {method.name}."
            raise UserError(rule, f"method {method.name}", where, remedy)
        return entry
    of_method = [entry for entry in load().values() if entry.method is method]
    fitting = [entry for entry in of_method if entry.model == model]
    if not fitting:
        rule = f"acceptance with {method.name} must be given for a model without a published profile"
        remedy = f"Set '{key}={{policy: decay, rate: RATE}}' to what was measured, accepted / drafted tokens."
        raise UserError(rule, model, where, remedy)
    chosen = [entry for entry in fitting if entry.is_default] if len(fitting) > 1 else fitting
    if len(chosen) != 1:
        rule = f"one published profile of {model} with {method.name} must be meant"
        names = ", ".join(entry.name for entry in fitting)
        raise UserError(rule, f"{AUTO} for {len(fitting)}", where, f"Name one: {names}.")
    return chosen[0]


def _measured_on(entry: Published) -> str:
    text = "text that is not stated" if entry.domain == NOT_STATED else entry.domain
    at = (
        "a temperature that is not stated"
        if entry.temperature is None
        else f"temperature {entry.temperature:g}"
    )
    return f"{text} at {at}"


def _described(entry: Published) -> str:
    temperature = "" if entry.temperature is None else f", temperature {entry.temperature:g}"
    default = ", default" if entry.is_default else ""
    raw = [row.mean_length(drafts) for drafts, row in entry.rows.items()]
    used = _lengths(entry)
    shown = ", ".join(f"{drafts}: {length:g}" for drafts, length in zip(entry.rows, raw, strict=True))
    if [round(length, 6) for length in used] != [round(length, 6) for length in raw]:
        shown += "; smoothed " + ", ".join(f"{length:.3g}" for length in used)
    return (
        f"{entry.name}: {entry.model} with {entry.method.name}, {entry.domain}{temperature}{default}; "
        f"acceptance length by drafts {shown}; {entry.source} ({entry.licence})"
    )


def _lengths(entry: Published) -> list[float]:
    """Acceptance lengths that the simulation has at the published draft lengths."""
    table = conditional_table(entry.config(), max(entry.rows))
    return [acceptance_length(table, drafts) for drafts in entry.rows]
