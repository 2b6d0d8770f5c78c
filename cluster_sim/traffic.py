"""What a decode step of a workload yields, reads and shares its time with, on average.

The context of a decode is the mean over the workload's decode steps, of which a request has as many as output
tokens: sum of n (p + n / 2) / sum of n over requests of p prompt and n output tokens.
"""

from dataclasses import dataclass

import numpy as np

from cluster_sim.engine.kinds import LuckKind
from cluster_sim.engine.rules import Luck, Request, Rules
from cluster_sim.engine.tables import Floats, Longs, Table


@dataclass(frozen=True)
class Traffic:
    """Of one workload and one drafter."""

    acceptance_lengths: Floats  # [K] mean tokens of a verification of K drafts
    kv_tokens: float  # mean context of a decode
    prompt_tokens: float  # of a request
    output_tokens: float


def traffic(rules: Rules, most: int) -> Traffic:
    """What the requests of `rules` ask for and accept, of at most `most` drafts."""
    requests, stop_at = rules.workload.requests, rules.luck.fates["stop_at"]
    outputs = np.where(stop_at > 0, stop_at, requests["max_tokens"])
    lengths = acceptance_lengths(rules.luck, requests, outputs, most)
    prompts = requests["prompt_tokens"]
    return Traffic(lengths, mean_kv_tokens(prompts, outputs), float(prompts.mean()), float(outputs.mean()))


def mean_kv_tokens(prompt_tokens: Longs, output_tokens: Longs) -> float:
    """Mean context of a decode: each output token sees the prompt and, on average, half of the output."""
    weights = output_tokens.astype(np.float64)
    return float(weights @ (prompt_tokens + 0.5 * weights) / max(weights.sum(), 1.0))


def acceptance_lengths(luck: Luck, requests: Table[Request], outputs: Longs, most: int) -> Floats:
    """[K]: output tokens / verifications of K drafts each, over all `outputs` of the `requests`.

    A class or a level of ease with less acceptance takes more verifications for its tokens: the mean is the
    harmonic one. A trace of accepted lengths is walked from its beginning.
    """
    if luck.kind == int(LuckKind.walked):
        return np.array([_walked(luck, drafts) for drafts in range(most + 1)])
    shares = np.bincount(requests["workload_class"], outputs, luck.conditional.shape[0])
    shares = shares / shares.sum()
    lengths = np.ones(most + 1)
    for drafts in range(1, most + 1):
        marginals = np.cumprod(luck.conditional[:, :, drafts, :drafts], axis=2)
        lengths[drafts] = 1.0 / (shares @ (1.0 / (1.0 + marginals.sum(axis=2))).mean(axis=1))
    return lengths


def _walked(luck: Luck, drafts: int) -> float:
    """Tokens per verification along the recorded lengths, cut at `drafts`."""
    tokens = verifications = 0
    fates = zip(luck.fates["draw_start"].tolist(), luck.fates["num_draws"].tolist(), strict=True)
    for start, length in dict.fromkeys(fates):
        place = 0
        while place < length:
            place += 1 + min(int(luck.draws[start + place]), drafts)
            verifications += 1
        tokens += place
    return tokens / max(verifications, 1)
