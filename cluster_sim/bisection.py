"""The highest value of a key, mostly the request rate, at which an arm meets the SLO, by bisection.

Rule. A trial passes when its attainment reaches slo.attainment and it is not saturated: the latencies of a
saturated run grow with its length, so its attainment says nothing of a longer one. A run with too few
arrivals to tell does not pass.

Search. Values lie on a grid of equal ratios from `low` to `high`, at most 1 + tolerance apart, that all arms
and seeds share. Every arm has a bisection of its own at every point of the axes under every seed; one round
tries the next value of each, so that rounds and the numbers of trials depend on nothing but the results. Arms
under one seed serve the same arrivals.

What is claimed. `low` passes and `high` fails, else the search is censored: below low, or at least high.
Where passing and failing alternate along the grid, by chance of one seed, it ends at one of the changes.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from typing import Any

from cluster_sim.config import Config, SearchConfig
from cluster_sim.errors import UserError, naming
from cluster_sim.slo import is_bounded
from cluster_sim.trial import Trial, place_of
from cluster_sim.trials import Row

BELOW, AT_LEAST = "below_low", "at_least_high"
LIMITS = ("ttft_s", "tpot_s", "e2el_s")


@dataclass
class Bisection:
    """One arm at one point under one seed: where on the grid it passes and fails, as far as is known."""

    first: Trial  # at the lowest value
    point: Mapping[str, object]  # without the key that is searched
    passed: int = -1  # highest step of the grid that passed; -1: none
    failed: int = -1  # lowest step above it that failed; -1: none; 0: what passes above it does not count
    tried: dict[int, Row] = field(default_factory=dict)  # step -> its trial

    @property
    def is_open(self) -> bool:
        """Whether steps are left between the one that passed and the one that failed."""
        return 0 <= self.passed < self.failed - 1

    @property
    def next_step(self) -> int:
        """The step to try next, where the search is open."""
        return (self.passed + self.failed) // 2

    @property
    def censored(self) -> str | None:
        """Why the capacity is not between the ends of the grid; None where it is."""
        return BELOW if self.passed < 0 else AT_LEAST if self.failed < 0 else None

    def told(self, step: int, row: Row) -> None:
        """Take in the trial at `step`."""
        self.tried[step] = row
        if self.failed == 0:
            return
        if limited_by(row, self.first.config.slo.attainment) is None:
            self.passed = step
        else:
            self.failed = step


def grid(search: SearchConfig) -> list[float]:
    """The values that are tried, from low to high in equal ratios of at most 1 + tolerance."""
    steps = max(1, math.ceil(math.log(search.high / search.low) / math.log1p(search.tolerance) - 1e-9))
    inner = [search.low * (search.high / search.low) ** (step / steps) for step in range(1, steps)]
    return [search.low, *inner, search.high]


def ends(search: SearchConfig) -> dict[str, list[float]]:
    """The axis of the first round: both ends of the grid."""
    return {search.key: [search.low, search.high]}


def bisections_of(first: Sequence[Trial], search: SearchConfig) -> list[Bisection]:
    """One for every arm, point and seed of `first`, the trials at both ends of the grid; in their order.

    Raises:
        UserError: an arm has no SLO that could be met; names it.
    """
    found = []
    for trial in first:
        if trial.point[search.key] != search.low:
            continue
        with naming(place_of(trial.arm, trial.point)):
            _check_slo(trial.config)
        point = {axis: value for axis, value in trial.point.items() if axis != search.key}
        found.append(Bisection(trial, point))
    return found


def most_trials(bisections: Sequence[Bisection], search: SearchConfig) -> int:
    """How many trials there can be: both ends, and a halving of the grid a round."""
    return len(bisections) * (2 + math.ceil(math.log2(len(grid(search)) - 1)))


def rounds(
    first: Sequence[Trial], bisections: Sequence[Bisection], search: SearchConfig, rows: Mapping[int, Row]
) -> Iterator[Sequence[Trial]]:
    """The trials of each round; `rows`, trial -> row, has those of a round before the next is asked for."""
    values = grid(search)
    yield first
    for end, step in ((search.low, 0), (search.high, len(values) - 1)):
        trials = [trial for trial in first if trial.point[search.key] == end]
        for one, trial in zip(bisections, trials, strict=True):
            one.told(step, rows[trial.number])
    number = len(first)
    while asked := [one for one in bisections if one.is_open]:
        trials = [
            _trial_at(one, number + place, search.key, values[one.next_step])
            for place, one in enumerate(asked)
        ]
        number += len(trials)
        yield trials
        for one, trial in zip(asked, trials, strict=True):
            one.told(one.next_step, rows[trial.number])


def limited_by(row: Row, attainment: float) -> str | None:
    """What a trial fails by, None where it passes.

    saturation; arrivals: too few to tell, or none measured; ttft_s, tpot_s or e2el_s: the limit that fewest
    requests meet, where that alone is too few; attainment: each limit is met by enough requests, all together
    are not.
    """
    is_closed_loop = row.get("clients.number") is not None
    if (row["saturated"] is None and not is_closed_loop) or row["slo_attainment"] is None:
        return "arrivals"
    if row["saturated"]:
        return "saturation"
    if row["slo_attainment"] >= attainment:
        return None
    shares = {name: row[f"slo_attainment_by_limit.{name}"] for name in LIMITS}
    share, name = min((share, name) for name, share in shares.items() if share is not None)
    return name if share < attainment else "attainment"


def _trial_at(one: Bisection, number: int, key: str, value: float) -> Trial:
    point = {**one.first.point, key: value}
    return Trial(number, one.first.arm, point, one.first.seed, _with_value(one.first.config, key, value))


def _with_value(config: Any, key: str, value: float) -> Any:
    """`config` with another value at a dotted key; between two that were checked, it needs no check."""
    name, _, rest = key.partition(".")
    part = getattr(config, name)
    return replace(config, **{name: _with_value(part, rest, value) if is_dataclass(part) else value})


def _check_slo(config: Config) -> None:
    if not is_bounded(config):
        rule, remedy = "a search needs an SLO to meet", "Set slo.ttft_s, slo.tpot_s or slo.e2el_s."
        raise UserError(rule, "no limit", "slo", remedy)
