"""What a study will do, composed and checked before anything runs."""

from collections.abc import Iterator
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
        """What one would run without a search, each once; the tables' schedule in its own ranges."""
        first = next(self.arms.all_chosen())
        static = [self.space.static(length, first) for length in range(self.space.longest + 1)]
        arms = [*map(self.arms.arm, static), *self._tables]
        return list({arm.name: arm for arm in arms}.values())

    def name(self, candidate: Candidate) -> str:
        """Of what vLLM runs of it."""
        return self.arms.arm(candidate).name

    @cached_property
    def _tables(self) -> list[Arm]:
        """The analytic schedule for all choices."""
        return [self.arms.of_tables(chosen) for chosen in self.arms.all_chosen()]

    def _starts(self) -> Iterator[Candidate]:
        first, *others = self.arms.all_chosen()
        for length in range(self.space.longest + 1):
            yield self.space.static(length, first)
        yield self._of_tables(self._tables[0], first)
        for chosen, arm in zip(others, self._tables[1:], strict=True):
            yield self.space.static(0, chosen)
            yield self._of_tables(arm, chosen)

    def _of_tables(self, arm: Arm, chosen: tuple[int, ...]) -> Candidate:
        return self.space.nearest(arm.ranges or [(1, self.space.most, 0)], chosen)

    def _manifest(self) -> dict[str, Any]:
        first = self.study.seeds[:1]
        inputs = check_inputs([trial for arm in self.baselines for trial in self.arms.trials(arm, first)])
        sources = {kind: "; ".join(sorted(each)) for kind, each in inputs.sources.items()}
        seeds = [*self.study.seeds, *self.study.fresh_seeds]
        return manifest(self.config, seeds, inputs.digests, sources)
