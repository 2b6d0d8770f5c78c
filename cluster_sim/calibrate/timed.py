"""What a server did under one load: its traffic, as keys of the workload, and the mean latencies that it had.

Whoever measured it (bench.py, server_times.py, sglang_times.py), the fit compares the same means with those
of the simulator:

    tpot           of requests with two output tokens or more: each one's mean time per token after the first
    itl            gaps between deliveries, of all requests together; one may hold several tokens
    itl_per_token  time from first to last token of all requests over the tokens in it: TPOT, longer outputs
                   weighing more; SGLang's inter_token_latency_seconds
    ttft, e2el     of requests
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from cluster_sim.errors import UserError
from cluster_sim.traces.text import shortened

PER_TOKEN = "itl_per_token"
METRICS = ("tpot", "itl", PER_TOKEN, "ttft", "e2el")
DEFAULT_METRICS = ("tpot", PER_TOKEN, "e2el")  # the first that all measurements have
LENGTHS = ("prompt_tokens", "output_tokens")  # keys of the workload
REMEDY = "Correct the file, or measure again."


class Traffic(ABC):
    """What was sent, as far as the measurement says it."""

    @property
    @abstractmethod
    def own_keys(self) -> Collection[str]:
        """Keys of `workload` that the user must not give, since it says them."""

    @abstractmethod
    def as_workload(self, given: Collection[str], scratch: Path) -> dict[str, object]:
        """Its keys of the configuration, but for those of LENGTHS that are `given`; files go to `scratch`."""


@dataclass(frozen=True)
class Timed:
    """One measurement under one load."""

    place: str  # the file, and the line or the entry where it holds several
    requests: int  # that completed
    mean_tokens: Mapping[str, float]  # by key of LENGTHS
    cached_share: float | None  # of prompt tokens found in the prefix cache; None: not said
    draft_length: int  # 0: no speculation
    means_s: Mapping[str, float]  # by name of METRICS, those that it has
    traffic: Traffic

    def refuse(self, rule: str, got: object, remedy: str = REMEDY) -> NoReturn:
        """Raise what is wrong with it."""
        raise UserError(
            rule, got if isinstance(got, int | float) else shortened(str(got)), self.place, remedy
        )


@dataclass(frozen=True)
class Sent:
    """One request that was sent."""

    arrival_s: float  # from the first one
    prompt_tokens: int
    output_tokens: int


def as_trace(requests: Sequence[Sent], scratch: Path) -> dict[str, object]:
    """The keys that simulate these very requests, which go to `scratch`."""
    scratch.write_text("".join(json.dumps(vars(one)) + "\n" for one in requests), "utf-8")
    keys = ("request_rate", *LENGTHS)
    return {"workload.trace": str(scratch), **dict.fromkeys((f"workload.{key}" for key in keys), None)}


def fixed_lengths(mean_tokens: Mapping[str, float], given: Collection[str]) -> dict[str, object]:
    """Lengths at their means, for those keys of LENGTHS that are not `given`."""
    return {
        f"workload.{key}": max(1, round(mean))
        for key, mean in mean_tokens.items()
        if f"workload.{key}" not in given
    }
