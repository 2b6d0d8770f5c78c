"""Routed experts of a step: how many are active, and what they cost with and without data parallelism.

How many distinct experts a step's tokens wake is expected_distinct of bundle/kernels.py, with the bundle's
`expert_routing_exponent`.

With expert parallelism the ranks of an instance hold whole experts, a share each. All tokens of all ranks are
gathered before the experts and the results scattered after them (vLLM's allgather_reducescatter): each of the
two takes a latency and the rows of the other ranks over the link, in every MoE layer.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cluster_sim.bundle.architecture import BYTES_PER_VALUE, Experts
from cluster_sim.bundle.format import LINK, MOE, Bundle
from cluster_sim.bundle.kernels import active_experts as expected_distinct
from cluster_sim.errors import UserError

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]


@dataclass(frozen=True)
class Ranks:
    """GPUs that an instance is spread over."""

    data_parallel_size: int = 1
    tensor_parallel_size: int = 1
    enable_expert_parallel: bool = False

    @property
    def expert_parallel_size(self) -> int:
        """GPUs over which whole experts are spread; 1: every GPU holds a slice of each."""
        if not self.enable_expert_parallel:
            return 1
        return self.data_parallel_size * self.tensor_parallel_size


def has_experts(bundle: Bundle) -> bool:
    """Whether the model routes tokens to experts."""
    return bool(bundle.model.get("num_experts", 0))


def active_experts(bundle: Bundle, tokens: Longs, ranks: Ranks) -> Floats:
    """Expected distinct experts of one GPU that `tokens` tokens of the instance wake."""
    in_all, per_token = bundle.model["num_experts"], bundle.model["num_experts_per_tok"]
    experts = Experts(-(-in_all // ranks.expert_parallel_size), per_token, in_all, ())
    return expected_distinct(tokens, experts, bundle.parameters["expert_routing_exponent"].value)


def experts_s(bundle: Bundle, tokens: Longs, ranks: Ranks) -> Floats:
    """All MoE layers for `tokens` tokens of the whole instance, with what travels between its ranks, seconds.

    Raises:
        UserError: ranks that exchange tokens, and a bundle without their link.
    """
    share = tokens / ranks.expert_parallel_size
    kernels_s = _interpolate(bundle, share, active_experts(bundle, tokens, ranks))
    if ranks.data_parallel_size == 1:
        return kernels_s
    missing = [name for name in LINK if name not in bundle.parameters]
    if missing:
        raise UserError(
            f"ranks that exchange tokens need the link's {' and '.join(LINK)}",
            f"none in bundle {bundle.name}",
            "cluster.data_parallel_size",
            "Use 1, or add them to the bundle's parameters with their source.",
        )
    latency_s, gb_per_s = (bundle.parameters[name].value for name in LINK)
    others = tokens / ranks.data_parallel_size * (ranks.data_parallel_size - 1)
    travel_s = latency_s + others * bundle.model["hidden_size"] * BYTES_PER_VALUE / (gb_per_s * 1e9)
    layers = bundle.model["num_hidden_layers"] - bundle.model.get("first_k_dense_replace", 0)
    return np.asarray(kernels_s + 2.0 * layers * travel_s)


def _interpolate(bundle: Bundle, tokens: Floats, experts: Floats) -> Floats:
    """The table `moe` at pairs of tokens and experts: bilinear, extended along its last points."""
    table = bundle.tables[MOE]
    rows, columns = (axis.astype(np.float64) for axis in table.axes.values())
    row, along = _place(rows, tokens)
    column, across = _place(columns, experts)
    near = table.time_s[row, column] * (1.0 - across) + table.time_s[row, column + 1] * across
    far = table.time_s[row + 1, column] * (1.0 - across) + table.time_s[row + 1, column + 1] * across
    return np.asarray(near * (1.0 - along) + far * along)


def _place(axis: Floats, at: Floats) -> tuple[Longs, Floats]:
    """The interval of each value and how far into it; clamped below the first point."""
    low = np.clip(np.searchsorted(axis, at, side="right") - 1, 0, len(axis) - 2)
    weight = (np.maximum(at, axis[0]) - axis[low]) / (axis[low + 1] - axis[low])
    return low.astype(np.int64), weight
