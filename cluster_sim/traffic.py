"""What a request of a workload asks of the steps it takes part in, on average.

The context of a decode is the mean over the workload's decode steps, of which a request has as many as output
tokens: sum of n (p + n / 2) / sum of n over requests of p prompt and n output tokens.

The step that ends a request's prefill gives its first token. The m = n - 1 others take V(m) verifications, of
which each gives L = 1 + accepted tokens, the last one at most what is left (Wald's identity for large m):

    V(m) = 1 + sum over l of P(L = l) V(m - l),  V = 0 for m <= 0;    V(m + 1) - V(m) -> 1 / AL

Under async scheduling a step is scheduled before the output of the one before is known: one that a request
ends in is followed by one that gives it nothing, unless the end was sure, which it is with one token left.
That the last verification starts so has the probability

    S(m) = sum over l of P(L = l) S(m - l),  S(1) = 1,  S = 0 for m <= 0;    S(m) -> 1 / AL

A stop token is never foreseen.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cluster_sim.engine.kinds import LuckKind
from cluster_sim.engine.rules import Luck, Request, Rules
from cluster_sim.engine.tables import Floats, Longs, Table

Flags = NDArray[np.bool_]
EXACT = (
    32  # tokens up to which V and S are followed one by one; from there on each takes 1 / AL verifications
)


@dataclass(frozen=True)
class Traffic:
    """Of one workload and one drafter."""

    acceptance_lengths: Floats  # [K] mean tokens of a verification of K drafts
    kv_tokens: float  # mean context of a decode
    prompt_tokens: float  # of a request
    output_tokens: float
    verifications: Floats  # [K] steps of a request after its prefill that give it tokens
    unforeseen_ends: Floats  # [K] share of the requests that async scheduling gives one more step


def traffic(rules: Rules, most: int) -> Traffic:
    """What the requests of `rules` ask for and accept, of at most `most` drafts."""
    requests, stop_at = rules.workload.requests, rules.luck.fates["stop_at"]
    stops = (stop_at > 0) & (stop_at < requests["max_tokens"])
    outputs = np.where(stops, stop_at, requests["max_tokens"])
    lengths = acceptance_lengths(rules.luck, requests, outputs, most)
    prompts = requests["prompt_tokens"]
    return Traffic(
        lengths,
        mean_kv_tokens(prompts, outputs),
        float(prompts.mean()),
        float(outputs.mean()),
        *_steps_after_prefill(rules.luck, requests, outputs, stops, most),
    )


def mean_kv_tokens(prompt_tokens: Longs, output_tokens: Longs) -> float:
    """Mean context of a decode: each output token sees the prompt and, on average, half of the output."""
    weights = output_tokens.astype(np.float64)
    return float(weights @ (prompt_tokens + 0.5 * weights) / max(weights.sum(), 1.0))


def acceptance_lengths(luck: Luck, requests: Table[Request], outputs: Longs, most: int) -> Floats:
    """[K]: output tokens / verifications of K drafts each, over all `outputs` of the `requests`.

    A class or a level of ease with less acceptance takes more verifications for its tokens: the mean is the
    harmonic one. A trace of accepted lengths is walked from its beginning.
    """
    shares = np.bincount(requests["workload_class"], outputs)
    verifications_a_token = 1.0 / (1.0 + _marginals(luck, len(shares), most).sum(axis=3))
    return np.asarray(1.0 / (verifications_a_token.mean(axis=2) @ shares / shares.sum()))


def _steps_after_prefill(
    luck: Luck, requests: Table[Request], outputs: Longs, stops: Flags, most: int
) -> tuple[Floats, Floats]:
    """Traffic.verifications and Traffic.unforeseen_ends: means over the requests."""
    later, of_class, whole = outputs - 1, requests["workload_class"], len(outputs)
    place = (of_class, np.minimum(later, EXACT))
    shares = np.zeros((int(of_class.max()) + 1, EXACT + 1))  # [class, tokens after the first]
    foreseeable = np.zeros_like(shares)
    np.add.at(shares, place, 1.0 / whole)
    np.add.at(foreseeable, place, (~stops & (later > 0)) / whole)
    beyond = np.bincount(of_class, np.maximum(later - EXACT, 0)) / whole
    marginals = _marginals(luck, len(shares), most)
    needed, sure = _renewals(marginals)
    rest = (1.0 / (1.0 + marginals.sum(axis=3))).mean(axis=2) @ beyond
    unforeseen = stops.mean() + ((1.0 - sure) * foreseeable).sum(axis=(1, 2))
    return np.asarray((needed * shares).sum(axis=(1, 2)) + rest), np.asarray(unforeseen)


def _renewals(marginals: Floats) -> Floats:
    """[V or S, K, class, m]: their means over the levels of ease, up to m = EXACT."""
    *places, most = marginals.shape
    edges = np.concatenate((np.ones((*places, 1)), marginals, np.zeros((*places, 1))), axis=3)
    chances = -np.diff(edges, axis=3)[..., ::-1]  # of L = most + 1, .., 1
    found = np.zeros((2, *places, most + 1 + EXACT))  # from m = -most on
    for tokens in range(1, EXACT + 1):
        found[..., most + tokens] = (chances * found[..., tokens - 1 : tokens + most]).sum(axis=4)
        found[0, ..., most + tokens] += 1.0
        found[1, ..., most + tokens] += float(tokens == 1)
    return np.asarray(found[..., most:].mean(axis=3))


def _marginals(luck: Luck, classes: int, most: int) -> Floats:
    """[K, class, level of ease, i]: P(the first i + 1 of K drafts are all accepted)."""
    levels = 1 if luck.kind == int(LuckKind.walked) else luck.conditional.shape[1]
    marginals = np.zeros((most + 1, classes, levels, most))
    for drafts in range(1, most + 1):
        if luck.kind == int(LuckKind.walked):
            marginals[drafts, ..., :drafts] = _walked(luck, drafts)
        else:
            accepted = np.cumprod(luck.conditional[:classes, :, drafts, :drafts], axis=2)
            marginals[drafts, ..., :drafts] = accepted
    return marginals


def _walked(luck: Luck, drafts: int) -> Floats:
    """The same along the recorded lengths, cut at `drafts`."""
    accepted = []
    fates = zip(luck.fates["draw_start"].tolist(), luck.fates["num_draws"].tolist(), strict=True)
    for start, length in dict.fromkeys(fates):
        place = 0
        while place < length:
            accepted.append(min(int(luck.draws[start + place]), drafts))
            place += 1 + accepted[-1]
    return np.asarray((np.array(accepted)[:, np.newaxis] > np.arange(drafts)).mean(axis=0))
