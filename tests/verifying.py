"""Verifications without a server around them: what the engine's accept() draws, one request after another."""

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from cluster_sim.compose import compose
from cluster_sim.config import AcceptanceConfig, Config
from cluster_sim.engine.acceptance import accept
from cluster_sim.engine.rules import Luck, Request
from cluster_sim.engine.rules import Workload as Asked
from cluster_sim.engine.state import Progress
from cluster_sim.luck import build_luck, profiles_of
from cluster_sim.workload import Workload
from cluster_sim.world import empty_table

Longs = NDArray[np.int64]
PROMPT_TOKENS = 10


def with_acceptance(acceptance: AcceptanceConfig, drafts: int, seed: int = 0, **classes: Any) -> Config:
    """A configuration whose profile is `acceptance`, and those of `classes` by name."""
    config = compose([f"speculation.num_speculative_tokens={max(drafts, 1)}", f"seed={seed}"])
    config.speculation.acceptance = acceptance
    config.speculation.acceptance_by_class = classes or None
    return config


def requests(number: int, workload_class: Any = 0, class_names: tuple[str, ...] = ("default",)) -> Workload:
    """Requests that only have a class."""
    zeros = np.zeros(number, np.int64)
    return Workload(
        arrival_s=np.zeros(number),
        prompt_tokens=zeros + PROMPT_TOKENS,
        output_tokens=zeros + 1,
        workload_class=zeros + workload_class,
        priority=zeros,
        content_start=np.zeros(number + 1, np.int64),
        content_ids=np.zeros(0, np.int64),
        class_names=class_names,
        session=np.arange(number),
        source="by hand",
        may_reject=False,
        warnings=(),
        think_s=np.zeros(number),
        clients=0,
    )


def luck_of(config: Config, workload: Workload) -> Luck:
    """The engine's Luck of a configuration."""
    return build_luck(config, [profiles_of(config)], workload)


def accepted(luck: Luck, workload: Workload, drafts: int, tokens: int) -> Longs:
    """How often each request accepted so many on the way to `tokens` outputs, [request, accepted]."""
    number = len(workload.arrival_s)
    table = empty_table(
        Request,
        number,
        prompt_tokens=workload.prompt_tokens,
        workload_class=workload.workload_class,
    )
    counts = np.zeros((number, drafts + 1), np.int64)
    asked = Asked(table, np.zeros(0, np.int64), False)
    _walk(luck, asked, empty_table(Progress, number), counts, tokens)
    return counts


@numba.njit  # type: ignore[misc]
def _walk(luck: Luck, asked: Asked, rows: Any, counts: Longs, tokens: int) -> None:
    drafts = counts.shape[1] - 1
    for request in range(len(counts)):
        row = rows[request]
        outputs = 0
        while outputs < tokens:
            row.known_tokens = asked.requests[request].prompt_tokens + outputs
            number = accept(luck, row, asked, 0, request, drafts)
            counts[request, number] += 1
            outputs += number + 1


def falling(draft_length: int) -> list[float]:
    """Marginals of a custom policy: a half of the drafts before survives."""
    return [0.8 * 0.5**position for position in range(draft_length)]


def flat(draft_length: int) -> list[float]:
    """Marginals of a custom policy: all drafts or none."""
    return [0.8] * draft_length
