"""What must hold of the GPUs of an instance: who holds which experts, and that no flag does nothing."""

from cluster_sim.config import ClusterConfig, ModelConfig
from cluster_sim.errors import UserError

_FLAG = "cluster.enable_expert_parallel"


def check_cluster(cluster: ClusterConfig, model: ModelConfig) -> None:
    """Raise where `model` cannot be spread over the GPUs of an instance, or a flag would have no effect.

    Raises:
        UserError: worded with the rule, the value, its key and what to do.
    """
    gpus = cluster.tensor_parallel_size * cluster.data_parallel_size
    if cluster.enable_expert_parallel:
        _check_expert_parallel(model, gpus)
    elif model.num_experts and cluster.data_parallel_size > 1:
        rule = (
            "ranks of a model with experts hold whole experts, the only way of sharing them with costs so far"
        )
        raise UserError(rule, "false", _FLAG, f"Set {_FLAG}=true.")


def _check_expert_parallel(model: ModelConfig, gpus: int) -> None:
    experts = model.num_experts
    rule = "enable_expert_parallel has no effect"
    if not experts:
        raise UserError(f"{rule} on a model without experts", "true", _FLAG, "Leave it out.")
    if gpus == 1:
        remedy = "Leave it out, or raise cluster.data_parallel_size or cluster.tensor_parallel_size."
        raise UserError(f"{rule} on a single GPU", "true", _FLAG, remedy)
    if experts % gpus:
        rule = "tensor_parallel_size * data_parallel_size must divide the experts under expert parallelism"
        remedy = f"Let their product divide {experts}."
        raise UserError(rule, f"{experts} experts on {gpus} GPUs", "cluster.data_parallel_size", remedy)
