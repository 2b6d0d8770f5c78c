"""How many tokens to draft, by the number of requests scheduled (vLLM: v1/spec_decode/dynamic).

Prefill chunks and padded requests count, running requests that got no tokens do not. The drafts are verified
one step later, when the batch may differ: requests that hold more drafts keep them for that step.
"""

from cluster_sim.engine.jit import rule
from cluster_sim.engine.rules import Drafting
from cluster_sim.engine.tables import Longs


@rule
def choose(drafting: Drafting, length_at: Longs, num_scheduled: int) -> int:
    """Draft length K after a step of `num_scheduled` requests; with none, num_speculative_tokens."""
    if num_scheduled == 0:
        return drafting.num_speculative_tokens
    return length_at[num_scheduled]
