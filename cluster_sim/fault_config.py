"""One fault of a cluster, an entry of cluster.faults. What it does: faults.py."""

from dataclasses import dataclass

from omegaconf import MISSING

from cluster_sim.choices import FaultKind


@dataclass
class FaultConfig:
    """What happens to some instances from `from_s` on and before `until_s`, on the simulated clock."""

    instances: list[int] = MISSING
    kind: FaultKind = MISSING
    from_s: float = MISSING
    until_s: float | None = None  # None: to the end
    slowdown: float | None = None  # slow: what the times of a step are multiplied by; None: another kind
