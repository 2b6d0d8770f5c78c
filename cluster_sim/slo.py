"""Which limits a request must meet: those of its class, and where its class has none, those of all."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cluster_sim.config import Config, LimitsConfig, SloConfig
from cluster_sim.errors import UserError
from cluster_sim.schema import closest

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
NO_LIMIT = np.inf
LONGEST_S = {"ttft_s": 100.0, "tpot_s": 1.0, "e2el_s": 3600.0}  # from here on a limit looks like milliseconds


@dataclass(frozen=True)
class Limits:
    """Per class, in s; inf: not part of its SLO."""

    ttft_s: Floats
    tpot_s: Floats
    e2el_s: Floats

    @property
    def exist(self) -> Flags:
        """[class]: whether any latency is bounded."""
        return np.isfinite(self.ttft_s) | np.isfinite(self.tpot_s) | np.isfinite(self.e2el_s)


def limits_of(config: Config, class_names: Sequence[str]) -> Limits:
    """The limits of each class of the workload."""
    of_class: list[SloConfig | LimitsConfig] = []
    for name in class_names:
        said = (config.workload.classes or {}).get(name)
        of_class.append(config.slo if said is None or said.slo is None else said.slo)
    return Limits(
        *(
            np.array(
                [NO_LIMIT if getattr(slo, key) is None else getattr(slo, key) for slo in of_class], np.float64
            )
            for key in ("ttft_s", "tpot_s", "e2el_s")
        )
    )


def own_limits(config: Config) -> Iterator[tuple[str, LimitsConfig]]:
    """The classes that have limits of their own."""
    for name, said in sorted((config.workload.classes or {}).items()):
        if said.slo is not None:
            yield name, said.slo


def is_bounded(config: Config) -> bool:
    """Whether any request has a latency that is bounded."""
    given: list[SloConfig | LimitsConfig] = [config.slo, *(limits for _, limits in own_limits(config))]
    return any(limit_s is not None for slo in given for limit_s in (slo.ttft_s, slo.tpot_s, slo.e2el_s))


def milliseconds_meant(config: Config) -> Iterator[str]:
    """A warning for each limit so long that milliseconds were probably meant."""
    of_class = [(f"workload.classes.{name}.slo", limits) for name, limits in own_limits(config)]
    given: list[tuple[str, SloConfig | LimitsConfig]] = [("slo", config.slo), *of_class]
    for where, limits in given:
        for key, longest_s in LONGEST_S.items():
            limit_s = getattr(limits, key)
            if limit_s is not None and limit_s >= longest_s:
                yield f"{where}.{key}={limit_s:g} is in seconds: for {limit_s:g} ms write {limit_s / 1e3:g}"


def check_class_names(config: Config, class_names: Sequence[str]) -> None:
    """Raise for a class of the configuration that the workload does not have.

    Raises:
        UserError: names it.
    """
    for name in config.workload.classes or {}:
        if name not in class_names:
            rule = "a class of workload.classes must be one of the trace's"
            raise UserError(rule, repr(name), "workload.classes", closest(name, class_names, "Classes"))
