"""What types cannot say of the executor: none of its settings may do nothing."""

from typing import NoReturn

from cluster_sim.config import Config, ExecutorKind
from cluster_sim.errors import UserError
from cluster_sim.waiting import clients_wait

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
    if executor.instances_per_host is not None:
        _check_per_host(config, executor.instances_per_host)


def _check_per_host(config: Config, per_host: int) -> None:
    for whole in ("sweep", "study"):
        if getattr(config, whole) is not None:
            rule = f"{_PER_HOST} has no effect in a {whole}, whose trials run whole in a worker each"
            _refuse(rule, per_host, _PER_HOST, "Leave it out.")
    in_one_process = {
        "with cluster.faults, which are": bool(config.cluster.faults),
        "where clients wait for answers, which is": clients_wait(config.workload),
    }
    for words, is_so in in_one_process.items():
        if is_so:
            rule = f"{_PER_HOST} has no effect {words} simulated in one process"
            _refuse(rule, per_host, _PER_HOST, "Leave it out.")
    if config.executor.workers is not None:
        rule = f"workers has no effect with {_PER_HOST}, which says how many there are"
        _refuse(rule, config.executor.workers, "workers", "Leave one of them out.")
    instances = config.cluster.instances
    if per_host > instances:
        rule = f"{_PER_HOST} must be at most cluster.instances ({instances})"
        _refuse(rule, per_host, _PER_HOST, f"Set it to {instances} or less.")


def _refuse(rule: str, got: object, key: str, remedy: str) -> NoReturn:
    raise UserError(rule, str(got), f"executor.{key}", remedy)
