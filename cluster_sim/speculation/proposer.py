"""Drafters as architectures of their own: what a pass multiplies, what it weighs, what it caches.

EAGLE (arXiv 2401.15077): fc joins token embedding and the target's hidden state (2 hidden -> hidden), one
decoder layer like the target's, then the target's own lm_head. EAGLE-3 (arXiv 2503.01840): the first pass
joins hidden states of three target layers (3 hidden -> hidden), attention reads embedding and hidden state
side by side (2 hidden wide), the lm_head is its own, over a reduced vocabulary. Both share the target's
embedding and keep KV of one layer for every token.
"""

from dataclasses import dataclass

from cluster_sim.bundle.assumptions import assumptions
from cluster_sim.config import Method, ModelConfig

BYTES_PER_WEIGHT = 2  # bfloat16, the only dtype with costs so far (check.py)


@dataclass(frozen=True)
class Gemm:
    """A weight matrix: inputs x outputs."""

    inputs: int
    outputs: int

    @property
    def weights(self) -> int:
        return self.inputs * self.outputs


@dataclass(frozen=True)
class Drafter:
    """A drafter of one target; a pass drafts one token per request."""

    num_hidden_layers: int
    first_only: tuple[Gemm, ...]  # in the pass over the step's tokens, on top of `every_pass`
    every_pass: tuple[Gemm, ...]
    head: Gemm
    owns_head: bool  # False: the target's lm_head, held once

    @property
    def weights_bytes(self) -> int:
        """Memory of the drafter's own weights."""
        own = (*self.first_only, *self.every_pass, *((self.head,) if self.owns_head else ()))
        return sum(BYTES_PER_WEIGHT * gemm.weights for gemm in own)


def drafter_of(method: Method, model: ModelConfig) -> Drafter | None:
    """The drafter of a method for a target; None without speculation."""
    hidden = model.hidden_size
    match method:
        case Method.none:
            return None
        case Method.eagle:
            joined = Gemm(2 * hidden, hidden)
            layer = layer_gemms(model, hidden)
            return Drafter(1, (), (joined, *layer), Gemm(hidden, model.vocab_size), owns_head=False)
        case Method.eagle3:
            vocabulary = int(assumptions().drafters["eagle3"]["vocab_size"].value)
            joined = Gemm(3 * hidden, hidden)
            layer = layer_gemms(model, 2 * hidden)
            return Drafter(1, (joined,), layer, Gemm(hidden, vocabulary), owns_head=True)


def layer_gemms(model: ModelConfig, attention_inputs: int) -> tuple[Gemm, ...]:
    """The weight matrices of a dense decoder layer: qkv, o, gate and up, down."""
    query = int(model.num_attention_heads * model.head_dim)
    key_value = 2 * model.num_key_value_heads * model.head_dim
    return (
        Gemm(attention_inputs, query + key_value),
        Gemm(query, model.hidden_size),
        Gemm(model.hidden_size, 2 * model.intermediate_size),
        Gemm(model.intermediate_size, model.hidden_size),
    )


def kv_bytes_per_token(model: ModelConfig, layers: int) -> int:
    """Keys and values of one token in `layers` layers."""
    return int(2 * layers * model.num_key_value_heads * model.head_dim * BYTES_PER_WEIGHT)
