"""What a server did between two scrapes: by how much its counters and histograms grew, all engines together.

They only grow while a server runs: one that fell, or whose _created changed, is another run's. A series that
only the second scrape has started from 0.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NoReturn

from cluster_sim.calibrate.page import CUMULATIVE, DRAFTS, VLLM, Labels, Page, label_words, read_page
from cluster_sim.errors import UserError
from cluster_sim.traces.text import shortened

REMEDY = "Take both scrapes from one run of one server."
RUNNING = "num_requests_running"


@dataclass(frozen=True)
class Histogram:
    """Values observed between two scrapes."""

    bounds: tuple[float, ...]  # upper bounds, ascending; the last is inf
    counts: tuple[int, ...]  # [bound] values above the bound before and up to this one
    total: float  # their sum
    count: int

    @property
    def mean(self) -> float | None:
        """None where there is no value."""
        return self.total / self.count if self.count else None


@dataclass(frozen=True)
class Growth:
    """Two scrapes of one run of one server."""

    before: Page
    after: Page

    @property
    def place(self) -> str:
        """Both files."""
        return f"{self.before.path}, {self.after.path}"

    @property
    def engines(self) -> int | None:
        """Schedulers that the scrapes are of; None where the server does not number them."""
        return len(_engines(self.after)) or None

    @property
    def seconds(self) -> float | None:
        """Between the scrapes, where their samples carry times."""
        before_s, after_s = self.before.time_s, self.after.time_s
        return None if before_s is None or after_s is None else after_s - before_s

    def series(self, name: str, **labels: str) -> dict[Labels, float]:
        """By how much each series of `name` with these labels grew; empty where there is none."""
        first = self.before.of(name, **labels)
        return {one: value - first.get(one, 0.0) for one, value in self.after.of(name, **labels).items()}

    def counted(self, name: str, **labels: str) -> int:
        """By how much the counter `name` grew; 0 where it never counted."""
        return round(sum(self.series(f"{name}_total", **labels).values()))

    def histogram(self, name: str) -> Histogram | None:
        """What the histogram `name` observed; None where the server has none.

        Raises:
            UserError: its parts contradict each other.
        """
        buckets = self.series(f"{name}_bucket")
        if not buckets:
            return None
        by_bound: dict[float, float] = {}
        for labels, grown in buckets.items():
            bound = self._bound(dict(labels).get("le", ""), name)
            by_bound[bound] = by_bound.get(bound, 0.0) + grown
        bounds = sorted(by_bound)
        at_most = [0, *(round(by_bound[bound]) for bound in bounds)]
        counts = [after - before for before, after in pairwise(at_most)]
        count = round(sum(self.series(f"{name}_count").values()))
        if min(counts) < 0 or bounds[-1] != math.inf or at_most[-1] != count:
            rule = f'the buckets of {name} grow up to le="+Inf", which is its count, {count}'
            self.refuse(rule, shortened(", ".join(map(str, at_most[1:]))))
        total = sum(self.series(f"{name}_sum").values())
        return Histogram(tuple(bounds), tuple(counts), total, count)

    def refuse(self, rule: str, got: object, remedy: str = REMEDY) -> NoReturn:
        """Raise what is wrong with it."""
        raise UserError(rule, got, self.place, remedy)

    def _bound(self, text: str, name: str) -> float:
        try:
            bound = float(text)
        except ValueError:
            bound = math.nan
        if math.isnan(bound):
            self.after.refuse(f"a bucket of {name} has a bound le", shortened(repr(text)))
        return bound


def growths(files: Sequence[Path]) -> list[Growth]:
    """Those from each scrape of a server to its next.

    Raises:
        UserError: a file is damaged, or they are not of one run of one server.
    """
    pages = [read_page(file) for file in files]
    found = [Growth(before, after) for before, after in pairwise(pages)]
    for one in found:
        _check_same_server(one.before, one.after)
    return found


def _engines(page: Page) -> list[Labels]:
    """Labels of those that count drafts, or requests where none does."""
    return sorted(page.of(f"{DRAFTS}_total") or page.of(RUNNING)) if page.prefix == VLLM else []


def _check_same_server(first: Page, second: Page) -> None:
    """Refuse scrapes of other engines, of several models, or with a restart between them."""
    if _engines(first) != _engines(second):
        rule = f"both scrapes are of the same engines, here {_all_words(first)}"
        second.refuse(rule, _all_words(second), REMEDY)
    models = sorted({dict(labels).get("model_name", "") for _, labels in second.samples})
    if len(models) > 1:
        second.refuse(
            "a profile is of one model", shortened(", ".join(models)), "Keep the lines of one model."
        )
    for (name, labels), value in first.samples.items():
        if not name.endswith(CUMULATIVE):
            continue
        grown = second.samples.get((name, labels))
        is_reset = grown is not None and name.endswith("_created") and grown != value
        if grown is None or is_reset or grown < value:
            what = f"{name}{label_words(labels)}"
            rule = f"{what} cannot fall or start anew while a server runs: at first {value:.12g}"
            second.refuse(rule, "nothing" if grown is None else f"{grown:.12g}", REMEDY)


def _all_words(page: Page) -> str:
    return shortened(" ".join(map(label_words, _engines(page))))
