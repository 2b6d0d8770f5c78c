"""The traffic of a stored run, made again from its manifest: the same requests, and what they share."""

from collections.abc import Mapping
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from cluster_sim.config import WorkloadConfig
from cluster_sim.errors import UserError


def stored_workload(tree: Mapping[str, Any]) -> WorkloadConfig:
    """The settings `workload` of a manifest.

    Raises:
        UserError: they are not those of this version.
    """
    try:
        merged = OmegaConf.merge(OmegaConf.structured(WorkloadConfig), dict(tree))
        workload = OmegaConf.to_object(merged)
    except OmegaConfBaseException as error:
        got = str(error).partition("\n")[0]
        rule = "the workload of a manifest must be one of this version"
        raise UserError(rule, got, "manifest.yaml", "Run it again with this version.") from error
    if not isinstance(workload, WorkloadConfig):
        raise TypeError(f"no workload: {workload}")
    return workload
