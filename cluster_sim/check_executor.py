"""What types cannot say of the executor: none of its settings may do nothing."""

from typing import NoReturn

from cluster_sim.config import Config, ExecutorKind
from cluster_sim.errors import UserError

_PER_HOST = "instances_per_host"


def check_executor(config: Config) -> None:
    """Raise for the first setting of the executor that would have no effect.

    Raises:
        UserError: worded with the rule, the value, its key and what to do.
    """
    executor = config.executor
    if executor.kind is ExecutorKind.serial:
        for key in ("address", "workers", _PER_HOST):
            if getattr(executor, key) is not None:
                remedy = "Choose executor=ray."
                _refuse(f"{key} has no effect with kind serial", getattr(executor, key), key, remedy)
    if executor.instances_per_host is None:
        return
    for whole in ("sweep", "study"):
        if getattr(config, whole) is not None:
            rule = f"{_PER_HOST} has no effect in a {whole}, whose trials run whole in a worker each"
            _refuse(rule, executor.instances_per_host, _PER_HOST, "Leave it out.")
    if config.cluster.faults:
        rule = f"{_PER_HOST} has no effect with cluster.faults, which are simulated in one process"
        _refuse(rule, executor.instances_per_host, _PER_HOST, "Leave it out.")
    if executor.workers is not None:
        rule = f"workers has no effect with {_PER_HOST}, which says how many there are"
        _refuse(rule, executor.workers, "workers", "Leave one of them out.")
    instances = config.cluster.instances
    if executor.instances_per_host > instances:
        rule = f"{_PER_HOST} must be at most cluster.instances ({instances})"
        _refuse(rule, executor.instances_per_host, _PER_HOST, f"Set it to {instances} or less.")


def _refuse(rule: str, got: object, key: str, remedy: str) -> NoReturn:
    raise UserError(rule, str(got), f"executor.{key}", remedy)
