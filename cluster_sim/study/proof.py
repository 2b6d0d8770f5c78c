"""The proof: the best of a search and what one would run without one, on seeds that the search never saw.

What one would run: no speculation, every static draft length, the tables' schedule; with the first of all
choices, and with those of the best.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cluster_sim.executors import Executor
from cluster_sim.report.progress import progress
from cluster_sim.study.arms import Arm, Arms
from cluster_sim.study.cells import Cell
from cluster_sim.study.objective import Task, rank, score_of
from cluster_sim.study.sensitivity import Variation, variations
from cluster_sim.study.summary import sensitivity_of
from cluster_sim.study.verdict import Contender, Verdict, judge
from cluster_sim.study.window import Ledger
from cluster_sim.trial import run_trial

SENSITIVITY_SEEDS = 4  # of the fresh ones
STATIC_RIVALS = 2  # the best static draft lengths


@dataclass(frozen=True)
class Proof:
    """Where and of what it is made."""

    arms: Arms
    task: Task
    baselines: Sequence[Arm]
    ledger: Ledger
    executor: Executor

    def judged(self, best: Sequence[Arm]) -> Verdict:
        """The `best` of the search, the first of them best, and the baselines under the fresh seeds."""
        seeds = self.arms.study.fresh_seeds
        named = {arm.name: arm for arm in (*best, *self.baselines)}
        cells = {name: self.arms.cells(arm, seeds) for name, arm in named.items()}
        self._simulate([one for each in cells.values() for one in each], "verdict")
        contenders = [self._contender(arm, cells[name], seeds) for name, arm in named.items()]
        return judge(self.task, contenders, best[0] if best else self.baselines[0])

    def varied(self, verdict: Verdict) -> Iterator[dict[str, Any]]:
        """The recommended arm beside the champion and the best baselines, with one thing changed a time."""
        if verdict.recommended is None or verdict.champion is None:
            return
        seeds = self.arms.study.fresh_seeds[:SENSITIVITY_SEEDS]
        rivals = {one.arm.name: one.arm for one in (verdict.recommended, verdict.champion)}
        rivals |= {arm.name: arm for arm in self._simple_rivals(verdict)}
        drafting = next((arm for arm in self.baselines if arm.ranges), self.baselines[0])
        search = self.arms.study.search
        plan = [
            (variation, self._varied_cells(variation, rivals.values(), seeds))
            for variation in variations(self.arms.config(drafting, 0), None if search is None else search.key)
        ]
        self._simulate([one for _, cells in plan for each in cells.values() for one in each], "sensitivity")
        for variation, cells in plan:
            varied = {name: self._contender(rivals[name], each, seeds) for name, each in cells.items()}
            yield sensitivity_of(self.task, variation, verdict.recommended.arm.name, varied)

    def _simple_rivals(self, verdict: Verdict) -> list[Arm]:
        """No speculation, and the static draft lengths that did best."""
        simple = [one for one in verdict.contenders if one.is_baseline and one.arm.complexity <= 1]
        ordered = sorted(simple, key=lambda one: rank(self.task, one.score))
        static = [one.arm for one in ordered if one.arm.ranges][:STATIC_RIVALS]
        return [*(one.arm for one in ordered if not one.arm.ranges), *static]

    def _varied_cells(
        self, variation: Variation, rivals: Iterable[Arm], seeds: Sequence[int]
    ) -> dict[str, list[Cell]]:
        if variation.change is None:
            return {}
        return {arm.name: self.arms.cells(arm, seeds, variation.name, variation.change) for arm in rivals}

    def _contender(self, arm: Arm, cells: Sequence[Cell], seeds: Sequence[int]) -> Contender:
        rows = {(cell.load, cell.seed): cell.row() for cell in cells}
        score = score_of(self.task, rows, seeds, self.arms.gpus(arm))
        return Contender(arm, score, arm in self.baselines)

    def _simulate(self, cells: Sequence[Cell], what: str) -> None:
        """Run what is missing of `cells`, round by round."""
        done = planned = 0
        with progress(what, "simulations", sys.stderr) as report:
            while needed := self.ledger.needed(cells):
                missing = self.ledger.missing(needed)
                planned += len(missing)
                for ended in self.executor.run(run_trial, missing):
                    self.ledger.keep(ended)
                    done += 1
                    report(done, planned)
