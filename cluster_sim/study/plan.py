"""What a study will do, composed and checked before anything runs.

The first value of each choice is what one has now: the search starts there, with no speculation, every static
draft length and the tables' schedule, and then with each other value of one choice at a time.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from cluster_sim.compose import Composer
from cluster_sim.config import Config, StudyConfig
from cluster_sim.manifest import manifest
from cluster_sim.study.arms import Arm, Arms
from cluster_sim.study.objective import Task, task_of
from cluster_sim.study.space import Candidate
from cluster_sim.sweep import check_inputs


class Plan:
    """One study: its space, where its search starts, and its baselines."""

    def __init__(self, config: Config, study: StudyConfig, composer: Composer) -> None:
        """Raise UserError where a baseline is wrong under any load."""
        if study.search is not None:  # its low end is in every trial
            composer.variant({study.search.key: study.search.high})
        self.config, self.study, self.arms = config, study, Arms(composer, study)
        self.task: Task = task_of(study, config.slo.attainment)
        self.space = self.arms.space()
        self.about = self._manifest()

    @cached_property
    def starts(self) -> list[Candidate]:
        """No speculation, every static draft length, and the tables' schedule; then with other choices."""
        return list(self._starts())

    @cached_property
    def baselines(self) -> list[Arm]:
        """What one would run without a search, with the first of all choices."""
        return self.simple_arms(self._first)

    def simple_arms(self, chosen: tuple[int, ...]) -> list[Arm]:
        """What needs no search with these choices, each once; the tables' schedule in its own ranges."""
        lengths = range(self.space.longest + 1)
        arms = [self.arms.arm(self.space.static(length, chosen)) for length in lengths]
        if self._searches_lengths:
            arms.append(self.arms.of_tables(chosen))
        return list({arm.name: arm for arm in arms}.values())

    def with_simple_rivals(self, best: Sequence[Candidate]) -> list[Arm]:
        """The arms of `best`, and what needs no search with the choices of the first of them; each once."""
        arms = list(map(self.arms.arm, best))
        if best:
            arms += self.simple_arms(best[0].chosen)
        return list({arm.name: arm for arm in arms}.values())

    def name(self, candidate: Candidate) -> str:
        """Of what vLLM runs of it."""
        return self.arms.arm(candidate).name

    @property
    def _first(self) -> tuple[int, ...]:
        return (0,) * len(self.space.choices)

    @property
    def _searches_lengths(self) -> bool:
        return self.study.max_draft_length is not None

    def _starts(self) -> Iterator[Candidate]:
        for length in range(self.space.longest + 1):
            yield self.space.static(length, self._first)
        if self._searches_lengths:
            yield self._of_tables(self._first)
        for place, count in enumerate(self.space.choices):
            for value in range(1, count):
                chosen = (*self._first[:place], value, *self._first[place + 1 :])
                yield self.space.static(0, chosen)
                if self._searches_lengths:
                    yield self._of_tables(chosen)

    def _of_tables(self, chosen: tuple[int, ...]) -> Candidate:
        arm = self.arms.of_tables(chosen)
        return self.space.nearest(arm.ranges or [(1, self.space.most, 0)], chosen)

    def _manifest(self) -> dict[str, Any]:
        first = self.study.seeds[:1]
        inputs = check_inputs(
            [cell.trial() for arm in self.baselines for cell in self.arms.cells(arm, first)]
        )
        sources = {kind: "; ".join(sorted(each)) for kind, each in inputs.sources.items()}
        seeds = [*self.study.seeds, *self.study.fresh_seeds]
        return manifest(self.config, seeds, inputs.digests, sources)
