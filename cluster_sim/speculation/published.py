"""Published acceptance, read from conf/published_acceptance.yaml and checked.

Each row of an entry is of one draft length K and may state a rate, an acceptance length AL and marginals.
They say the same thing, 1 + rate * K = AL = 1 + the sum of the marginals, within the rounding of the digits
as they are printed; a pair that does not is refused by the name of its entry, whoever asks for which.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import yaml

from cluster_sim.config import AcceptanceConfig, AcceptancePolicy, Method, RatesAre
from cluster_sim.errors import UserError
from cluster_sim.paths import conf_dir
from cluster_sim.speculation.isotonic import non_increasing

FILE = "published_acceptance.yaml"
_ENTRY = {"model", "method", "domain", "temperature", "default", "source", "rows"}
_NEEDED = ("model", "method", "domain", "temperature", "source", "rows")
_NUMBERS = {"rate", "acceptance_length", "marginals"}


@dataclass(frozen=True)
class Row:
    """What is published of one draft length, digits as printed; None: not stated."""

    rate: Decimal | None = None  # accepted / drafted tokens
    acceptance_length: Decimal | None = None  # bonus included
    marginals: tuple[Decimal, ...] | None = None

    def mean_length(self, draft_length: int) -> float:
        """Acceptance length, from whichever is stated."""
        if self.acceptance_length is not None:
            return float(self.acceptance_length)
        if self.marginals is not None:
            return 1.0 + float(sum(self.marginals))
        return 1.0 + float(self.rate or 0) * draft_length


@dataclass(frozen=True)
class Published:
    """One model with one drafter on one kind of text."""

    name: str
    model: str
    method: Method
    domain: str
    temperature: float | None  # None: not stated
    source: str
    licence: str
    is_default: bool  # of its model and method
    rows: Mapping[int, Row]  # by draft length, ascending: raw, as published

    @property
    def has_all_lengths(self) -> bool:
        """Whether there are acceptance lengths alone, of 1, 2, .. and so on."""
        plain = all(row.rate is None and row.marginals is None for row in self.rows.values())
        return plain and len(self.rows) > 1 and list(self.rows) == list(range(1, len(self.rows) + 1))

    def config(self) -> AcceptanceConfig:
        """The policy and the numbers that the entry stands for."""
        lengths = {drafts: row.mean_length(drafts) for drafts, row in self.rows.items()}
        ((drafts, row), *others) = self.rows.items()
        if self.has_all_lengths:
            steps = [after - before for before, after in pairwise([1.0, *lengths.values()])]
            return _of_rates(non_increasing(steps))
        if not others and row.marginals is not None:
            return _of_rates([float(rate) for rate in row.marginals])
        if not others:
            rate = (lengths[drafts] - 1) / drafts if row.rate is None else float(row.rate)
            return AcceptanceConfig(policy=AcceptancePolicy.decay, rate=rate, measured_draft_length=drafts)
        said: dict[int, float | list[float]] = {
            length: lengths[length] if row.marginals is None else [float(rate) for rate in row.marginals]
            for length, row in self.rows.items()
        }
        return AcceptanceConfig(
            policy=AcceptancePolicy.per_length, per_length=said, rates_are=RatesAre.marginal
        )


def load(file: Path | None = None) -> dict[str, Published]:
    """All entries of `file`, by default the shipped one, checked.

    Raises:
        UserError: naming the first entry that is wrong.
    """
    return _load(conf_dir() / FILE if file is None else file)


@cache
def _load(file: Path) -> dict[str, Published]:
    try:
        # BaseLoader leaves numbers as text: the printed digits, trailing zeros too, say how they were rounded
        content = yaml.load(file.read_text("utf-8"), yaml.BaseLoader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        _refuse("published acceptance must be readable YAML", str(error).splitlines()[0], str(file))
    profiles = content.get("profiles") if isinstance(content, dict) else None
    if not isinstance(profiles, dict) or not isinstance(content.get("licence"), str):
        _refuse("the file must hold a licence and profiles", "something else", str(file))
    entries = {name: _entry(name, said, content["licence"], file) for name, said in profiles.items()}
    chosen = [(entry.model, entry.method) for entry in entries.values() if entry.is_default]
    twice = next((pair for pair in chosen if chosen.count(pair) > 1), None)
    if twice is not None:
        rule = "a model and a method have one default profile"
        _refuse(rule, f"two of {twice[0]} with {twice[1].name}", str(file))
    return entries


def _entry(name: str, said: Any, licence: str, file: Path) -> Published:
    where = f"{file}: {name}"
    if not isinstance(said, dict) or not set(_NEEDED) <= said.keys() <= _ENTRY:
        _refuse(f"a published profile has {', '.join(_NEEDED)}", repr(said)[:80], where)
    if said["method"] not in Method.__members__:
        _refuse("the method must be one of speculation.method", said["method"], where)
    if not isinstance(said["rows"], dict) or not said["rows"]:
        _refuse("rows must be given by draft length", repr(said["rows"]), where)
    if not re.fullmatch(r"\d+(\.\d+)?|null", said["temperature"]):
        _refuse("the temperature must be a number, or null", said["temperature"], where)
    rows = {}
    for length, row in said["rows"].items():
        if not re.fullmatch(r"[1-9]\d{0,2}", length):
            _refuse("a draft length must be a whole number of 1 or more", length, where)
        rows[int(length)] = _row(int(length), row, f"{where}: {length}")
    return Published(
        name=name,
        model=said["model"],
        method=Method[said["method"]],
        domain=said["domain"],
        temperature=None if said["temperature"] == "null" else float(said["temperature"]),
        source=said["source"].strip(),
        licence=licence,
        is_default=said.get("default") == "true",
        rows={length: rows[length] for length in sorted(rows)},
    )


def _row(drafts: int, said: Any, where: str) -> Row:
    if isinstance(said, str):
        said = {"acceptance_length": said}
    if isinstance(said, list):
        said = {"marginals": said}
    if not isinstance(said, dict) or not said or not said.keys() <= _NUMBERS:
        _refuse("a row holds rate, acceptance_length or marginals", repr(said), where)
    marginals = said.get("marginals")
    if marginals is not None and (not isinstance(marginals, list) or len(marginals) != drafts):
        _refuse(f"{drafts} drafts have {drafts} marginals", repr(marginals), where)
    row = Row(
        rate=_number(said["rate"], 0, 1, where) if "rate" in said else None,
        acceptance_length=_number(said["acceptance_length"], 1, drafts + 1, where)
        if "acceptance_length" in said
        else None,
        marginals=None if marginals is None else tuple(_number(rate, 0, 1, where) for rate in marginals),
    )
    _check_falls(row, where)
    _check_identity(row, drafts, where)
    return row


def _check_falls(row: Row, where: str) -> None:
    for before, after in pairwise(row.marginals or ()):
        if after > before:
            _refuse("marginals must not increase", f"{before} then {after}", where)


def _check_identity(row: Row, drafts: int, where: str) -> None:
    """1 + rate * K = AL = 1 + the sum of the marginals, each as far as it is printed."""
    lengths: list[tuple[Decimal, Decimal]] = []  # (acceptance length, how far rounding may have moved it)
    if row.acceptance_length is not None:
        lengths.append((row.acceptance_length, _rounding(row.acceptance_length)))
    if row.rate is not None:
        lengths.append((1 + row.rate * drafts, _rounding(row.rate) * drafts))
    if row.marginals is not None:
        lengths.append((sum(row.marginals, Decimal(1)), sum(map(_rounding, row.marginals), Decimal(0))))
    for (one, one_rounding), (other, other_rounding) in pairwise([*lengths, *lengths[:1]]):
        if abs(one - other) > one_rounding + other_rounding:
            rule = f"1 + rate * {drafts}, acceptance length and 1 + the sum of the marginals are one number"
            _refuse(rule, f"{one} and {other}", where)


def _rounding(printed: Decimal) -> Decimal:
    """Half a unit of the last printed digit."""
    exponent = printed.as_tuple().exponent
    assert isinstance(exponent, int)
    return Decimal(1).scaleb(exponent) / 2


def _number(said: Any, low: int, high: int, where: str) -> Decimal:
    try:
        number = Decimal(said)
    except (InvalidOperation, TypeError, ValueError):
        _refuse("a number must be given", repr(said), where)
    if not (number.is_finite() and low <= number <= high):
        _refuse(f"the number must lie between {low} and {high}", str(said), where)
    return number


def _of_rates(rates: list[float]) -> AcceptanceConfig:
    return AcceptanceConfig(policy=AcceptancePolicy.per_position, rates=rates, rates_are=RatesAre.marginal)


def _refuse(rule: str, got: object, where: str) -> NoReturn:
    raise UserError(rule, got, where, "Correct the file.")
