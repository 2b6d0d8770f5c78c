"""The draft length that pays most at each batch size, straight from the tables: the analytic schedule.

Steps of decodes alone, all alike (decode_time.py), at the mean context of the workload (traffic.py).
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cluster_sim.build import build, step_time_of
from cluster_sim.bundle.format import Bundle
from cluster_sim.config import Config, Method, SpeculationConfig
from cluster_sim.decode_time import Timing, decode_steps_s
from cluster_sim.drafting import as_vllm_runs_it, draft_length
from cluster_sim.engine.tables import Floats, Longs
from cluster_sim.instances import kinds_of, with_each
from cluster_sim.load_time import loaded_token_s
from cluster_sim.speculation.schedule import dense_lookup, describe
from cluster_sim.traffic import Traffic, traffic

AUTO = "auto"  # of num_speculative_tokens_per_batch_size: the schedule found here
SHOWN = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)  # batch sizes of which the summary tells the gain
NEAR = 0.01  # nobody acts on less: draft lengths within 1 % of the best are as good


@dataclass(frozen=True)
class Optimum:
    """Speed-ups over no drafter at the same batch size; entries for batch size 0 are nan."""

    traffic: Traffic
    lengths: Longs  # [B] draft length of the configuration as it is
    own: Floats  # [B] its speed-up
    loaded: Floats  # [B] the same under the workload's own load; nan where such a batch cannot last
    by_length: Floats | None  # [K, B] of K drafts under a schedule; None: vLLM follows none here

    @property
    def largest_loaded(self) -> int:
        """The largest batch that can last under the workload's load; 0: none."""
        return int(np.flatnonzero(np.append(True, np.isfinite(self.loaded[1:])))[-1])

    @property
    def best(self) -> Floats:
        """[B]: of the best draft length under a schedule, or without one of the only one."""
        return self.own if self.by_length is None else np.asarray(self.by_length.max(axis=0))

    @property
    def schedule(self) -> list[list[int]]:
        """The fewest ranges [first, last, K] with a K within 1 % of the best at each batch size."""
        if self.by_length is None:
            return [[1, len(self.own) - 1, int(self.lengths[1])]]
        return fewest_ranges(self.by_length)


def optimum_of(config: Config, known: Traffic | None = None) -> Optimum | None:
    """What pays under `config`, whose schedule is resolved; None without speculation.

    Raises:
        UserError: the configuration, its bundle or its trace is wrong, or does not fit.
    """
    if config.speculation.method is Method.none:
        return None
    seen = known or traffic_of(config)
    setting = as_vllm_runs_it(config)
    seats, most = int(setting.engine.max_num_seqs or 0), draft_length(config)
    always = [np.full(seats + 1, drafts) for drafts in range(most + 1)]
    off, timing = timing_of(without_drafter(config)), timing_of(config)
    off_s = decode_steps_s(off, always[0], seen.kv_tokens)
    ranges = setting.config.speculation.num_speculative_tokens_per_batch_size
    own = always[most] if ranges is None else dense_lookup(ranges, seats, most)
    by_length = None
    if _follows_schedules(config, seats):
        fixed = [_with_schedule(config, [[1, seats, drafts]]) for drafts in range(most + 1)]
        by_length = np.stack(
            [
                seen.acceptance_lengths[drafts]
                * off_s
                / decode_steps_s(timing_of(fixed[drafts]), always[drafts], seen.kv_tokens)
                for drafts in range(most + 1)
            ]
        )
    alone = seen.acceptance_lengths[own] * off_s / decode_steps_s(timing, own, seen.kv_tokens)
    loaded = loaded_token_s(off, always[0], seen) / loaded_token_s(timing, own, seen)
    return Optimum(seen, own, alone, loaded, by_length)


def resolved(config: Config) -> Config:
    """`config` with the schedule found here where it asks for one with `auto`.

    Raises:
        UserError: the configuration, its bundle or its trace is wrong, or does not fit.
    """
    return with_each(config, _with_own_schedule)


def wants_schedule(config: Config) -> bool:
    """Whether some instance asks for the schedule found here."""
    kinds = kinds_of(config)
    return any(kind.config.speculation.num_speculative_tokens_per_batch_size == AUTO for kind in kinds)


def _with_own_schedule(config: Config) -> Config:
    if config.speculation.num_speculative_tokens_per_batch_size != AUTO:
        return config
    found = optimum_of(_with_schedule(config, None))
    return config if found is None else _with_schedule(config, found.schedule)


def without_drafter(config: Config) -> Config:
    """`config` with the target alone: an arm of its own beside K = 0."""
    return replace(config, speculation=SpeculationConfig(method=Method.none))


def traffic_of(config: Config) -> Traffic:
    """What the workload of `config` asks for and accepts."""
    return traffic(build(config).rules, draft_length(config))


def fewest_ranges(speedups: Floats) -> list[list[int]]:
    """The fewest [first, last, K] with each K within NEAR of the best; among such, the best on average.

    `speedups` [K, B] for B from 1 on. Each range goes as far as any K allows: no cover has fewer.
    """
    good = speedups >= (1.0 - NEAR) * speedups.max(axis=0)
    ranges, first, last = [], 1, good.shape[1] - 1
    while first <= last:
        alive, end = good[:, first], first
        while end < last and (alive & good[:, end + 1]).any():
            end += 1
            alive = alive & good[:, end]
        means = np.where(alive, speedups[:, first : end + 1].mean(axis=1), -np.inf)
        ranges.append([first, end, int(means.argmax())])
        first = end + 1
    return ranges


def paying(speedups: Floats) -> list[tuple[int, int]]:
    """The runs (first, last) of batch sizes at which [B] exceeds 1; what MoE models gain may come and go."""
    pays = np.concatenate(([False], speedups[1:] > 1.0, [False]))
    edges = np.flatnonzero(np.diff(pays.astype(np.int8)))
    return [(int(first) + 1, int(last)) for first, last in zip(edges[::2], edges[1::2], strict=True)]


def summary_of(optimum: Optimum) -> dict[str, Any]:
    """What summary.json holds of it; batch sizes are requests of one step."""
    shown = [size for size in SHOWN if size < len(optimum.own)]
    return {
        "kv_tokens": optimum.traffic.kv_tokens,
        "draft_lengths": describe(np.concatenate(([0], optimum.lengths[1:]))),
        "pays_at": [list(run) for run in paying(optimum.own)],
        "pays_with_prefills_at": [list(run) for run in paying(optimum.loaded)],
        "largest_with_prefills": optimum.largest_loaded,
        "schedule": optimum.schedule,
        "schedule_pays_at": [list(run) for run in paying(optimum.best)],
        "speedup": {str(size): float(optimum.own[size]) for size in shown},
        "best_speedup": {str(size): float(optimum.best[size]) for size in shown},
    }


def timing_of(config: Config, bundle: Bundle | None = None) -> Timing:
    """The step times and limits of an instance of `config`; by its own bundle or `bundle`."""
    setting = as_vllm_runs_it(config)
    ranks = config.cluster.data_parallel_size if config.model.num_experts else 1
    return Timing(
        step_time_of(setting, bundle),
        setting.config.speculation.method is not Method.none,
        setting.engine.async_scheduling,
        ranks,
        int(setting.engine.max_num_scheduled_tokens or 0),
    )


def _follows_schedules(config: Config, seats: int) -> bool:
    every = _with_schedule(config, [[1, seats, draft_length(config)]])
    return as_vllm_runs_it(every).config.speculation.num_speculative_tokens_per_batch_size is not None


def _with_schedule(config: Config, ranges: list[list[int]] | None) -> Config:
    speculation = replace(config.speculation, num_speculative_tokens_per_batch_size=ranges)
    return replace(config, speculation=speculation)
