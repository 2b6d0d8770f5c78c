"""What output tokens cost: the price of all GPUs over the run's time, busy or idle."""

from cluster_sim.config import Config
from cluster_sim.instances import kinds_of

SECONDS_PER_HOUR = 3600.0


def cost_of(config: Config, output_tokens: int, duration_s: float) -> dict[str, float | None]:
    """The entry `cost` of summary.json, in the currency of hardware.price_per_hour; None without a price.

    per_hour                     of the cluster: GPUs times the price of one, over kinds of instances
    per_million_output_tokens    per_hour * duration_s / output tokens, whatever became of their requests
    """
    per_hour = 0.0
    for kind in kinds_of(config):
        cluster, price = kind.config.cluster, kind.config.hardware.price_per_hour
        if price is None:
            return {"per_hour": None, "per_million_output_tokens": None}
        per_hour += len(kind.instances) * cluster.tensor_parallel_size * cluster.data_parallel_size * price
    whole = per_hour * duration_s / SECONDS_PER_HOUR
    return {
        "per_hour": per_hour,
        "per_million_output_tokens": 1e6 * whole / output_tokens if output_tokens else None,
    }
