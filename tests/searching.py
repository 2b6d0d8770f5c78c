"""Searches without simulation: an arm meets the SLO up to a value of its own."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cluster_sim.bisection import Bisection, bisections_of, ends, rounds
from cluster_sim.compose import compose
from cluster_sim.config import SearchConfig
from cluster_sim.trial import Trial
from cluster_sim.trials import Row

RATE = "workload.request_rate"
SEARCH = SearchConfig(key=RATE, low=4.0, high=64.0, tolerance=0.02)
CONFIG = compose(["slo.attainment=0.9"])
Capacities = Mapping[tuple[str, int], float]  # (arm, seed) -> the highest value that passes


def first_round(arms: Sequence[str], seeds: Sequence[int], search: SearchConfig = SEARCH) -> list[Trial]:
    places = [(value, seed, arm) for value in ends(search)[search.key] for seed in seeds for arm in arms]
    return [
        Trial(number, arm, {search.key: value}, seed, replace(CONFIG, seed=seed))
        for number, (value, seed, arm) in enumerate(places)
    ]


def row_of(trial: Trial, passes: bool, key: str = RATE) -> Row:
    """A trial that passes, or misses the limit of TTFT."""
    return {
        "trial": trial.number,
        "arm": trial.arm,
        key: trial.point[key],
        "seed": trial.seed,
        "saturated": False,
        "slo_attainment": 0.95 if passes else 0.5,
        "slo_attainment_by_limit.ttft_s": 0.95 if passes else 0.5,
        "slo_attainment_by_limit.tpot_s": 0.99,
        "slo_attainment_by_limit.e2el_s": None,
    }


def searched(
    capacities: Capacities, search: SearchConfig = SEARCH
) -> tuple[list[Bisection], list[list[Trial]]]:
    """The bisections of these arms and seeds, ended; and the trials of each round."""
    arms, seeds = list(dict.fromkeys(arm for arm, _ in capacities)), sorted({seed for _, seed in capacities})
    first = first_round(arms, seeds, search)
    bisections = bisections_of(first, search)
    rows: dict[int, Row] = {}
    tried = []
    for trials in rounds(first, bisections, search, rows):
        tried.append(list(trials))
        for trial in trials:
            value = trial.point[search.key]
            assert isinstance(value, float)
            rows[trial.number] = row_of(trial, value <= capacities[trial.arm, trial.seed])
    return bisections, tried
