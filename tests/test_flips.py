"""The batch size at which drafting stops paying: measured at one batch, and compared with the tables."""

import json
import math
from typing import Any

import numpy as np
import pytest
from test_comparison import row

from cluster_sim.comparison import RATE_AXIS, compare_arms
from cluster_sim.compose import compose
from cluster_sim.flips import crossing, differing_in_drafts, flips_of, ratios_at_one_batch
from cluster_sim.optimum import Optimum
from cluster_sim.report.optimum import flip_sentences, tables_words, where_it_pays
from cluster_sim.traffic import Traffic
from cluster_sim.trial import Trial
from cluster_sim.trials import Row

SEEDS = (0, 1)


def off_s(batch: float) -> float:
    """Seconds of a token in steps of 10 ms and 0.1 ms a request."""
    return 0.010 + 1e-4 * batch


def drafting_s(batch: float) -> float:
    """Half at batch 0, and equal at 100: 5 + 0.15 B = 10 + 0.1 B."""
    return 0.005 + 1.5e-4 * batch


def trials(slower: tuple[float, float] = (1.0, 1.0)) -> list[Row]:
    """Each arm at the batch that it settles at: the faster one has the smaller.

    `slower`: by how much drafting is, for each seed.
    """
    sizes = {"off": (2, 20, 80, 160, 300), "K=3": (1, 11, 70, 170, 400)}
    time_s = {"off": off_s, "K=3": drafting_s}
    return [
        {
            **row(arm, rate, seed, 100.0 * rate, 1.0),
            "batch_size.mean": size,
            "output_tokens_per_busy_s": size / time_s[arm](size) / (slower[seed] if arm == "K=3" else 1.0),
            "tokens.drafted": 0 if arm == "off" else 1000,
            "saturated": True,
        }
        for arm in sizes
        for rate, size in zip((1, 2, 3, 4, 5), sizes[arm], strict=True)
        for seed in SEEDS
    ]


def optimum(loaded: list[float]) -> Optimum:
    """An arm whose speed-up under load at B = 1, 2, .. is `loaded`."""
    curve = np.array([np.nan, *loaded])
    traffic = Traffic(np.ones(4), 100.0, 100.0, 10.0, np.full(4, 9.0), np.zeros(4))
    return Optimum(traffic, np.full(len(curve), 3), curve + 1.0, curve, None)


def found(rows: list[Row], of_tables: Optimum | None = None) -> dict[str, Any]:
    comparison = compare_arms(rows, "off", [RATE_AXIS])
    optima: dict[str, dict[tuple[object, ...], Optimum]] = {"K=3": {(): of_tables}} if of_tables else {}
    ((group,),) = flips_of(comparison, rows, "off", optima, ["K=3"]).values()
    json.dumps(group, allow_nan=False)
    return group


def test_the_flip_is_where_both_deliver_as_much_at_one_batch_size() -> None:
    """Curves meet at batch 100; between 70 and 160 they do within 3 %. Saturation is no matter."""
    group = found(trials())
    assert group["measured_batch_size"] == pytest.approx(100, rel=0.03)
    assert group["measured_range"] == [2, 300]
    assert group["pays_at_largest"] is False


def test_arms_that_do_not_draft_have_none() -> None:
    """Two routers, compared: neither has a draft that could stop paying."""
    rows = [{**row, "tokens.drafted": 0} for row in trials()]
    assert flips_of(compare_arms(rows, "off", [RATE_AXIS]), rows, "off", {}, ["K=3"]) == {}


def test_arms_that_differ_in_more_than_drafts_or_not_in_drafts_have_none() -> None:
    """TP 2 with drafts against TP 1 without: not the drafts alone make it faster. Nor does a router draft."""
    arms = {
        "off": ["speculation=none"],
        "K=3": [],
        "TP2": ["cluster.tensor_parallel_size=2"],
        "a100": ["hardware=a100"],
        "router": ["speculation=none", "router=random"],
    }
    configs = {arm: compose(changes) for arm, changes in arms.items()}
    of_arms = [
        Trial(number, arm, {RATE_AXIS: 8}, 0, config) for number, (arm, config) in enumerate(configs.items())
    ]
    assert differing_in_drafts(of_arms, "off") == {"K=3"}
    rows = trials()
    assert flips_of(compare_arms(rows, "off", [RATE_AXIS]), rows, "off", {}, ["off"]) == {}


def test_seeds_have_flips_of_their_own_which_give_the_interval() -> None:
    """Student's interval of two logarithms; t = 12.7062 for one degree of freedom."""
    group = found(trials((0.99, 1.01)))
    alone = [found(trials((factor, factor)))["measured_batch_size"] for factor in (0.99, 1.01)]
    logs = np.log(alone)
    half = 12.7062 * logs.std(ddof=1) / math.sqrt(2)
    assert group["measured_batch_size"] == pytest.approx(math.exp(logs.mean()))
    expected = [math.exp(logs.mean() - half), math.exp(logs.mean() + half)]
    assert group["measured_interval"] == pytest.approx(expected, rel=1e-4)
    assert group["seeds_that_flip"] == [2, 2]


def test_where_not_every_seed_flips_there_is_no_interval() -> None:
    """Twice as fast, the first never does; the mean of both does."""
    group = found(trials((0.5, 1.4)))
    assert group["measured_interval"] is None
    assert group["seeds_that_flip"] == [1, 2]
    (sentence,) = flip_sentences({"K=3": [group]}, "off")
    size = group["measured_batch_size"]
    assert sentence == (
        f"K=3: as much as off at a mean batch of {size:.0f} (in 1 of 2 seeds); not compared with the tables."
    )


def test_times_are_compared_where_both_curves_are() -> None:
    compared = ratios_at_one_batch([(1.0, 1.0), (4.0, 4.0)], [(2.0, 1.0), (8.0, 1.0)])
    assert np.array(compared) == pytest.approx(np.array([(2.0, 2.0), (4.0, 4.0)]))
    assert ratios_at_one_batch([], [(1.0, 1.0)]) == []


def test_the_last_rise_through_1_counts() -> None:
    """A loss at few requests that turns into a gain, as with MoE models, is no flip."""
    hump = [(1.0, 1.2), (10.0, 0.8), (100.0, 1.25)]
    assert crossing(hump) == pytest.approx(10 * 10 ** (math.log(0.8) / (math.log(0.8) - math.log(1.25))))
    assert crossing(hump[:2]) is None
    assert crossing([(1.0, 0.8), (10.0, 1.25), (100.0, 0.5)]) is None


def test_measured_and_tables_stand_side_by_side() -> None:
    group = found(trials(), optimum([1.5] * 90 + [1.02] * 20 + [0.9] * 40))
    assert group["tables_pay_at"] == [[1, 110]]
    assert group["tables_gain_there"] == pytest.approx(1.02)
    assert group["difference_percent"] == pytest.approx(100 * (group["measured_batch_size"] / 110 - 1))
    (sentence,) = flip_sentences({"K=3": [group]}, "off")
    assert sentence.startswith("K=3: as much as off at a mean batch of ")
    assert "; by the tables it pays up to batch 110 (measured -" in sentence
    assert sentence.endswith("%; their gain there is 1.020).")


def test_tables_that_pay_at_every_batch_size_have_no_flip_to_differ_from() -> None:
    group = found(trials(), optimum([1.5] * 150))
    assert group["difference_percent"] is None
    (sentence,) = flip_sentences({"K=3": [group]}, "off")
    assert "it pays at every batch size to 150 (their gain there is 1.500)." in sentence


def test_tables_end_at_the_largest_batch_that_lasts() -> None:
    group = found(trials(), optimum([1.5] * 90 + [math.nan] * 60))
    assert (group["tables_pay_at"], group["tables_largest"]) == ([[1, 90]], 90)
    assert group["tables_gain_there"] == 1.5
    assert group["difference_percent"] is None


def test_tables_under_which_no_batch_lasts_are_not_compared() -> None:
    assert found(trials(), optimum([math.nan] * 150))["tables_pay_at"] is None


def test_without_tables_the_measured_one_stands_alone() -> None:
    (sentence,) = flip_sentences({"K=3": [found(trials((0.5, 0.5)))]}, "off")
    assert sentence == (
        "K=3: more than off at every mean batch measured (2.00 to 300); not compared with the tables."
    )
    idle = [{**row, "output_tokens_per_busy_s": None} for row in trials()]
    (sentence,) = flip_sentences({"K=3": [found(idle)]}, "off")
    assert sentence == "K=3: no batch size was measured; not compared with the tables."


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        ([], "pays at no batch size"),
        ([[1, 61]], "pays up to batch 61"),
        ([[1, 1024]], "pays at every batch size to 1,024"),
        ([[1, 1], [12, 61]], "pays at batch 1, 12 to 61"),
        ([[1, 2], [4, 5], [7, 8], [10, 11]], "pays at batch 1 to 11 with gaps"),
    ],
)
def test_where_it_pays_is_said_in_a_few_words(runs: list[list[int]], words: str) -> None:
    assert where_it_pays(runs, 1024) == words


def test_the_line_of_one_simulation_names_both_loads_and_the_best_draft_lengths() -> None:
    words = tables_words(
        {
            "kv_tokens": 576.0,
            "draft_lengths": [[1, 256, 3]],
            "pays_at": [[1, 200]],
            "pays_with_prefills_at": [[1, 120]],
            "largest_with_prefills": 240,
            "schedule": [[1, 8, 4], [9, 30, 3], [31, 256, 0]],
            "schedule_pays_at": [[1, 220]],
        }
    )
    assert words == (
        "decodes alone, at 576 tokens of context: K=3 pays up to batch 200, with the workload's prefills "
        "beside them it pays up to batch 120; best K by batch: 4 to 8, 3 to 30, 0 to 256, which pays up to "
        "batch 220"
    )
