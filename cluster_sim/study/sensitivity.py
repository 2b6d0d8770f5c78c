"""How far a recommendation stands: other acceptance, other load, other costs of verification.

Acceptance: every P(first i drafts all accepted) times a factor, at most 1, so that accepted / drafted tokens
change by it. Load: the request rate times a factor. Verify attention: the bounds of bundles/assumptions.yaml,
where measurements leave open how often a verification reads its KV; a roofline bundle is made for each.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from cluster_sim.build import parallel_of
from cluster_sim.bundle import library
from cluster_sim.config import AcceptanceConfig, AcceptancePolicy, Config, Method, RatesAre
from cluster_sim.luck import profiles_of
from cluster_sim.speculation.acceptance import marginals
from cluster_sim.speculation.profiles import Profile
from cluster_sim.study.arms import Change

ACCEPTANCE = (0.9, 1.1)
LOAD = (0.75, 1.25)
VERIFY_ATTENTION = (0.09, 0.16)  # bundles/assumptions.yaml, where 10 to 18 % is measured


@dataclass(frozen=True)
class Variation:
    """One thing changed, for all arms alike."""

    name: str
    change: Change | None  # None: it cannot be
    reason: str = ""  # why not


def variations(config: Config, searched: str | None = None) -> Iterator[Variation]:
    """Those of a study of `config` that searches for the highest value of the key `searched`, if any."""
    drafts = config.speculation.method is not Method.none
    walks = any(one.config.policy is AcceptancePolicy.trace for one in profiles_of(config).all())
    for factor in ACCEPTANCE:
        change = partial(_accepting, factor=factor) if drafts and not walks else None
        reason = "recorded lengths are walked as they are" if walks else "nothing drafts"
        yield Variation(f"acceptance x {factor:g}", change, reason)
    for factor in LOAD:
        is_free = config.workload.request_rate is not None and searched is None
        change = partial(_loaded, factor=factor) if is_free else None
        reason = "the trace has times of its own" if searched is None else f"{searched} is what is searched"
        yield Variation(f"load x {factor:g}", change, reason)
    for value in VERIFY_ATTENTION:
        change = partial(_verifying, verify_attention=value) if config.cluster.bundle is None else None
        yield Variation(f"verify attention {value:g}", change, "the bundle is given")


def _accepting(config: Config, factor: float) -> Config:
    """`config` with acceptance times `factor`."""
    if config.speculation.method is Method.none:
        return config
    profiles, longest = profiles_of(config), int(config.speculation.num_speculative_tokens or 0)
    by_class = {name: _scaled(one, longest, factor) for name, one in profiles.of_class.items()}
    general = None if profiles.general is None else _scaled(profiles.general, longest, factor)
    speculation = replace(config.speculation, acceptance=general, acceptance_by_class=by_class or None)
    return replace(config, speculation=speculation)


def _scaled(profile: Profile, longest: int, factor: float) -> AcceptanceConfig:
    given = profile.config
    rows = {
        length: np.minimum(factor * marginals(given, length, profile.key), 1.0).tolist()
        for length in range(1, longest + 1)
    }
    return AcceptanceConfig(
        policy=AcceptancePolicy.per_length,
        per_length=rows,
        rates_are=RatesAre.marginal,
        request_spread=given.request_spread,
        run_spread=given.run_spread,
        run_tokens=given.run_tokens,
        source=f"{profile.source}, times {factor:g}",
    )


def _loaded(config: Config, factor: float) -> Config:
    """`config` with its request rate times `factor`."""
    rate = config.workload.request_rate
    if rate is None:
        raise ValueError("the workload has no rate")
    return replace(config, workload=replace(config.workload, request_rate=factor * rate))


def _verifying(config: Config, verify_attention: float) -> Config:
    """`config` with another cost of reading KV for several queries."""
    parallel = parallel_of(config)
    directory = library.directory_for(config.model, config.hardware, parallel, verify_attention)
    return replace(config, cluster=replace(config.cluster, bundle=str(directory)))
