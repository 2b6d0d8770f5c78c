"""Arms of a study: a schedule and a value for every choice, as the configurations of its simulations.

Schedules that vLLM runs alike are one arm: one that drafts nothing is no speculation at all (`off`, which has
no drafter to pay for), one with a single range is its static draft length. num_speculative_tokens is the
longest draft of the schedule: more would reserve memory for nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from cluster_sim.check import check
from cluster_sim.compose import Composer
from cluster_sim.config import Config, Method, StudyConfig
from cluster_sim.engine_defaults import resolve_engine
from cluster_sim.errors import naming
from cluster_sim.manifest import plain
from cluster_sim.optimum import optimum_of, resolved
from cluster_sim.study.cells import Cell, cell_of, size_of
from cluster_sim.study.space import Candidate, Range, Space
from cluster_sim.sweep import with_whole_paths
from cluster_sim.trial import Trial, place_of

OFF = "off"
Choices = tuple[tuple[str, object], ...]  # key or group -> value, as JSON text where it is no scalar
Change = Callable[[Config], Config]


@dataclass(frozen=True)
class Arm:
    """One way to run the cluster."""

    ranges: tuple[Range, ...]  # as few as can be; none: no speculation
    choices: Choices = ()

    @property
    def name(self) -> str:
        """In words that no other arm has, for example `K=3 to 16, 1 to 64, 0 beyond; router=random`."""
        if len(self.ranges) > 1:
            ends = [f"{length} to {last}" for _, last, length in self.ranges[:-1]]
            words = f"K={', '.join(ends)}, {self.ranges[-1][2]} beyond"
        else:
            words = f"K={self.ranges[0][2]}" if self.ranges else OFF
        return "; ".join([words, *(f"{key}={value}" for key, value in self.choices)])

    @property
    def complexity(self) -> int:
        """No speculation is simpler than a static draft length, and that than a schedule of few ranges."""
        return len(self.ranges)

    @property
    def longest(self) -> int:
        """The longest draft."""
        return max((length for _, _, length in self.ranges), default=0)


@dataclass
class Arms:
    """Makes the trials of arms; numbers them as they first come up, from 0."""

    composer: Composer
    study: StudyConfig
    _composed: dict[str, Config] = field(default_factory=dict)
    _numbers: dict[str, int] = field(default_factory=dict)  # of arms, by name

    @property
    def loads(self) -> list[dict[str, object]]:
        """Every combination of the axes."""
        return [
            dict(zip(self.study.axes, values, strict=True)) for values in product(*self.study.axes.values())
        ]

    def space(self) -> Space:
        """What is searched."""
        config = self.composer.config
        most = max(self.seats(self.choices(chosen)) for chosen in self.all_chosen())
        monotone = self.study.monotone
        return Space(
            lasts=tuple(last for last in self.study.bucket_lasts if last < most),
            longest=self.study.max_draft_length or 0,
            most=most,
            is_monotone=config.model.num_experts == 0 if monotone is None else monotone,
            searches_edges=self.study.search_edges,
            choices=tuple(len(values) for values in self.study.choices.values()),
        )

    def all_chosen(self) -> Iterator[tuple[int, ...]]:
        """Every combination of the choices, as places in their lists."""
        return product(*(range(len(values)) for values in self.study.choices.values()))

    def choices(self, chosen: tuple[int, ...]) -> Choices:
        """The values at these places."""
        lists = self.study.choices.items()
        return tuple((key, values[place]) for (key, values), place in zip(lists, chosen, strict=True))

    def arm(self, candidate: Candidate) -> Arm:
        """What vLLM runs of a candidate."""
        choices = self.choices(candidate.chosen)
        if self.study.max_draft_length is None:
            return _arm(self._given(choices), choices)
        return _arm(candidate.ranges(self.seats(choices)), choices)

    def of_tables(self, chosen: tuple[int, ...]) -> Arm:
        """The analytic schedule of the step-time tables (optimum.py), whatever the buckets."""
        choices = self.choices(chosen)
        optimum = optimum_of(self._base(choices, 0, drafts=True))
        if optimum is None:
            raise ValueError("a study has a drafter")
        return _arm(tuple((first, last, length) for first, last, length in optimum.schedule), choices)

    def seats(self, choices: Choices) -> int:
        """max_num_seqs: the largest batch."""
        config = self._base(choices, 0, drafts=True)
        return int(resolve_engine(config.engine, config.model, config.hardware).max_num_seqs or 0)

    def gpus(self, arm: Arm) -> int:
        """Of the whole cluster."""
        cluster = self.config(arm, 0).cluster
        return cluster.instances * cluster.tensor_parallel_size * cluster.data_parallel_size

    def config(self, arm: Arm, load: int) -> Config:
        """The simulation of `arm` under the load of that number, with the command line's seed, checked.

        Raises:
            UserError: it is wrong.
        """
        if not arm.ranges:
            return self._base(arm.choices, load, drafts=False)
        base = self._base(arm.choices, load, drafts=True)
        if self.study.max_draft_length is None:
            return base
        is_static = len(arm.ranges) == 1
        speculation = replace(
            base.speculation,
            num_speculative_tokens=arm.longest,
            num_speculative_tokens_per_batch_size=None
            if is_static
            else [list(entry) for entry in arm.ranges],
        )
        config = replace(base, speculation=speculation)
        with naming(place_of(arm.name, self.loads[load])):
            check(config)
        return config

    def cells(
        self, arm: Arm, seeds: Sequence[int], variation: str = "", change: Change = lambda config: config
    ) -> list[Cell]:
        """What is simulated of it, load by load: with `variation`, a name, as `change` makes it.

        Numbers are those of the whole study's, of seeds known and fresh; an arm's come up in its order.

        Raises:
            UserError: a configuration is wrong.
        """
        name = f"{arm.name}{variation and f' ({variation})'}"
        known = [*self.study.seeds, *self.study.fresh_seeds]
        start = self._numbers.setdefault(name, len(self._numbers)) * len(known) * len(self.loads)
        search, cells = self.study.search, []
        for load, point in enumerate(self.loads):
            config = change(self.config(arm, load))
            for seed in seeds:
                number = (start + load * len(known) + known.index(seed)) * size_of(search)
                trial = Trial(number, name, point, seed, replace(config, seed=seed))
                cells.append(cell_of(load, trial, search))
        return cells

    def _given(self, choices: Choices) -> tuple[Range, ...]:
        """The command line's own draft lengths with these choices; none: it does not draft."""
        speculation = self._base(choices, 0, drafts=True).speculation
        if speculation.method is Method.none:
            return ()
        ranges = speculation.num_speculative_tokens_per_batch_size
        if ranges is None:
            return ((1, self.seats(choices), int(speculation.num_speculative_tokens or 0)),)
        return tuple((first, last, length) for first, last, length in ranges)

    def _base(self, choices: Choices, load: int, *, drafts: bool) -> Config:
        """Composed once: the command line under a load, with the longest drafts at every step or without."""
        point = self.loads[load]
        changes: dict[str, object] = {**dict(choices), **point}
        if not drafts:
            changes["speculation"] = "none"
        elif self.study.max_draft_length is not None:
            changes["speculation.num_speculative_tokens"] = self.study.max_draft_length
            changes["speculation.num_speculative_tokens_per_batch_size"] = None
        if self.study.search is not None:
            changes[self.study.search.key] = self.study.search.low
        key = repr(plain(changes))
        if key not in self._composed:
            with naming(place_of("with drafts" if drafts else OFF, point)):
                self._composed[key] = resolved(with_whole_paths(self.composer.variant(changes)))
        return self._composed[key]


def _arm(ranges: tuple[Range, ...], choices: Choices) -> Arm:
    """Without speculation there is no choice of how to speculate."""
    if all(length == 0 for _, _, length in ranges):
        ranges = ()
    if not ranges:
        choices = tuple((key, value) for key, value in choices if key.split(".")[0] != "speculation")
    return Arm(ranges, choices)
