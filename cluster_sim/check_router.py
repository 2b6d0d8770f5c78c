"""What types cannot say of the router: which of its settings a policy needs, and which do nothing for it."""

import math
from typing import NoReturn

from cluster_sim.config import Config, RouterConfig, RouterPolicy
from cluster_sim.errors import UserError
from cluster_sim.schema import shown

BLIND = (RouterPolicy.round_robin, RouterPolicy.random, RouterPolicy.weighted, RouterPolicy.session_hash)
OWNERS = {
    "weights": RouterPolicy.weighted,
    "overlap_weight": RouterPolicy.prefix_aware,
    "classes": RouterPolicy.class_aware,
}
EXAMPLES = {
    "weights": "Give one for each instance: 'router.weights=[2, 1]'.",
    "overlap_weight": "Give 0 or more; 1 is the default of NVIDIA Dynamo.",
    "classes": "Give the instances of each class: 'router.classes={code: [0], chat: [1, 2]}'.",
}


def check_router(config: Config) -> None:
    """Raise for the first setting that the policy lacks, cannot use, or that fits no instance.

    Raises:
        UserError: worded with the rule, the value, its key and what to do.
    """
    router, name = config.router, config.router.policy.name
    if router.policy in BLIND and router.signal_interval_s is not None:
        rule = f"signal_interval_s has no effect with policy {name}"
        remedy = f"Choose router={name} without it."
        _refuse(rule, router.signal_interval_s, "signal_interval_s", remedy)
    if router.policy not in BLIND and router.signal_interval_s is None:
        rule = f"policy {name} needs the age of its signals"
        _refuse(rule, "null", "signal_interval_s", "Set it to 0 or more.")
    _check_replicas(router)
    for key, owner in OWNERS.items():
        value = getattr(router, key)
        if router.policy is owner and value is None:
            _refuse(f"policy {name} needs {key}", "null", key, EXAMPLES[key])
        if router.policy is not owner and value is not None:
            rule = f"{key} has no effect with policy {name}"
            _refuse(rule, value, key, f"Choose router={owner.name}, or leave it out.")
    _check_weights(config)
    _check_classes(config)
    weight = router.overlap_weight
    if weight is not None and not 0 <= weight < math.inf:
        _refuse("overlap_weight must be 0 or more", weight, "overlap_weight", EXAMPLES["overlap_weight"])


def _check_replicas(router: RouterConfig) -> None:
    """Replicas differ in what they know, and vLLM's balancer makes up for that in a way of its own."""
    name = router.policy.name
    if router.replicas == 1:
        return
    if router.policy in BLIND:
        rule = f"replicas have no effect with policy {name}, which looks at no instance"
        _refuse(rule, router.replicas, "replicas", "Leave them out, or choose router=least_requests.")
    if router.policy is RouterPolicy.vllm_dp:
        rule = f"policy {name} is modelled with one API server"
        _refuse(rule, router.replicas, "replicas", "Leave them out, or choose router=least_requests.")


def _check_weights(config: Config) -> None:
    weights, instances = config.router.weights, config.cluster.instances
    if weights is None:
        return
    if len(weights) != instances:
        _refuse(
            f"weights must be one for each of {instances} instances",
            len(weights),
            "weights",
            EXAMPLES["weights"],
        )
    for place, weight in enumerate(weights):
        if not 1e-3 <= weight <= 1e3:  # noqa: PLR2004  beyond it the smallest share is no share
            _refuse(
                "a weight must lie between 0.001 and 1000", weight, f"weights[{place}]", "Scale all of them."
            )


def _check_classes(config: Config) -> None:
    classes, instances = config.router.classes, config.cluster.instances
    for name, members in (classes or {}).items():
        if not members or len(set(members)) < len(members):
            _refuse("a class must name instances, each once", members, f"classes.{name}", EXAMPLES["classes"])
        for member in members:
            if not 0 <= member < instances:
                rule = f"an instance must be a number from 0 to {instances - 1}"
                _refuse(rule, member, f"classes.{name}", "Count instances from 0.")


def _refuse(rule: str, got: object, key: str, remedy: str) -> NoReturn:
    raise UserError(rule, got if isinstance(got, str) else shown(got), f"router.{key}", remedy)
