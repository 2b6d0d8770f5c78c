"""What types cannot say of the faults of a cluster: where and when they happen; each must do something."""

import math
from collections.abc import Sequence
from itertools import combinations
from typing import NoReturn

from cluster_sim.choices import FaultKind
from cluster_sim.config import Config
from cluster_sim.errors import UserError
from cluster_sim.fault_config import FaultConfig
from cluster_sim.schema import shown
from cluster_sim.waiting import clients_wait


def check_faults(config: Config) -> None:
    """Raise for the first fault that cannot happen, or that another one on the same instance contradicts.

    Raises:
        UserError: worded with the rule, the value, its key and what to do.
    """
    faults = config.cluster.faults or []
    if faults and clients_wait(config.workload):
        rule = "faults are simulated only where no client waits for an answer"
        remedy = "Leave them out, or choose traffic that does not wait, as workload=poisson."
        _refuse(rule, f"{len(faults)} of them", "cluster.faults", remedy)
    for place, fault in enumerate(faults):
        key = f"cluster.faults[{place}]"
        _check_instances(fault, config.cluster.instances, f"{key}.instances")
        _check_times(fault, key)
        _check_slowdown(fault, f"{key}.slowdown")
    _check_overlaps(faults)
    if config.router.failed_requests is not None and all(
        fault.kind is not FaultKind.stop for fault in faults
    ):
        rule = "failed_requests has an effect only where a fault stops an instance"
        got, key = config.router.failed_requests, "router.failed_requests"
        _refuse(rule, got, key, "Leave it out, or add a stop to cluster.faults.")


def end_s(fault: FaultConfig) -> float:
    """When a fault ends, s; inf: never."""
    return math.inf if fault.until_s is None else fault.until_s


def _check_instances(fault: FaultConfig, instances: int, key: str) -> None:
    if not fault.instances or len(set(fault.instances)) < len(fault.instances):
        _refuse("a fault must name instances, each once", fault.instances, key, "Name them: [0, 1].")
    for instance in fault.instances:
        if not 0 <= instance < instances:
            rule = f"an instance must be a number from 0 to {instances - 1}"
            _refuse(rule, instance, key, "Count instances from 0.")


def _check_times(fault: FaultConfig, key: str) -> None:
    if not 0.0 <= fault.from_s < math.inf:
        _refuse("a fault must begin at 0 s or later", fault.from_s, f"{key}.from_s", "Give a time in s.")
    if fault.until_s is not None and not fault.from_s < fault.until_s < math.inf:
        rule = f"a fault must end after it begins, at {fault.from_s:g} s"
        _refuse(rule, fault.until_s, f"{key}.until_s", "Give a later time, or null for the end.")


def _check_slowdown(fault: FaultConfig, key: str) -> None:
    if fault.kind is not FaultKind.slow:
        if fault.slowdown is not None:
            rule = f"slowdown has no effect with kind {fault.kind.name}"
            _refuse(rule, fault.slowdown, key, "Leave it out, or choose kind: slow.")
        return
    if fault.slowdown is None or not 1.0 < fault.slowdown < math.inf:
        rule = "a slow instance needs a slowdown above 1, which multiplies the times of its steps"
        _refuse(rule, fault.slowdown, key, "Give one: slowdown: 2.")


def _check_overlaps(faults: Sequence[FaultConfig]) -> None:
    for (first, one), (second, other) in combinations(enumerate(faults), 2):
        both = sorted(set(one.instances) & set(other.instances))
        if both and one.from_s < end_s(other) and other.from_s < end_s(one):
            rule = f"an instance has one fault at a time, and instance {both[0]} has cluster.faults[{first}]"
            got = f"another one from {other.from_s:g} s on"
            remedy = "Let one end before the other begins: until_s of one may be from_s of the next."
            _refuse(rule, got, f"cluster.faults[{second}]", remedy)


def _refuse(rule: str, got: object, key: str, remedy: str) -> NoReturn:
    raise UserError(rule, got if isinstance(got, str) else shown(got), key, remedy)
