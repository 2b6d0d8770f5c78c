"""Routed experts of a step: how many wake, which share of the tokens a GPU has, and what travels."""

from dataclasses import replace

import numpy as np
import pytest

from cluster_sim.bundle import roofline
from cluster_sim.bundle.architecture import Parallel
from cluster_sim.bundle.format import Bundle, Parameter
from cluster_sim.bundle.grids import Table
from cluster_sim.compose import compose
from cluster_sim.errors import UserError
from cluster_sim.expert_tables import LINK, Ranks, active_experts, experts_s, has_experts

CONFIG = compose(["model=qwen3-30b-a3b", "hardware=h100", "speculation=none"])
TOKENS = np.array([1, 2, 4, 8, 16, 32, 64])
TOKEN_S, EXPERT_S = 2.0**-20, 2.0**-16
LATENCY_S, GB_PER_S = 20e-6, 16.0
MOE_LAYERS, ROW_BYTES = 48, 2048 * 2.0
TWO, FOUR = Ranks(2, 1, True), Ranks(2, 2, True)


def bundle(experts_on_gpu: int = 128, **parameters: float) -> Bundle:
    """Qwen3-30B-A3B whose experts take TOKEN_S a token and EXPERT_S an active expert."""
    built = roofline.build(CONFIG.model, CONFIG.hardware, Parallel(1))
    values = {
        "expert_routing_exponent": 1.0,
        **dict(zip(LINK, (LATENCY_S, GB_PER_S), strict=True)),
    } | parameters
    known = {name: Parameter(value, "of this test", "by hand", "none") for name, value in values.items()}
    axes = {"tokens": np.array([1, 4096]), "experts": np.array([1, experts_on_gpu])}
    time_s = TOKEN_S * axes["tokens"][:, np.newaxis] + EXPERT_S * axes["experts"]
    tables = built.tables | {"moe": Table(axes, time_s, "by hand", "none")}
    return replace(built, tables=tables, parameters=built.parameters | known)


def with_routing(num_experts: int, per_token: int) -> Bundle:
    found = bundle()
    return replace(found, model=found.model | {"num_experts": num_experts, "num_experts_per_tok": per_token})


@pytest.mark.parametrize(
    ("num_experts", "per_token", "expected"),
    [
        (128, 8, [8, 15.5, 29.1, 51.6, 82.4, 111.8, 125.9]),
        (256, 8, [8, 15.8, 30.5, 57.4, 102, 163, 222]),
        (8, 2, [2, 3.5, 5.5, 7.2, 7.9, 8, 8]),
    ],
)
def test_independent_tokens_wake_the_expected_distinct_experts(
    num_experts: int, per_token: int, expected: list[float]
) -> None:
    """E (1 - (1 - k/E)^t) (../shared/spec-decode-facts.md, C8)."""
    found = active_experts(with_routing(num_experts, per_token), TOKENS, Ranks())
    digits = [abs(value) * 5e-3 + 0.05 for value in expected]
    assert (np.abs(found - expected) <= digits).all()


def test_correlated_routing_wakes_the_experts_of_fewer_tokens() -> None:
    """16 tokens with exponent 1/2 wake as many as 4 independent ones."""
    correlated = active_experts(bundle(expert_routing_exponent=0.5), np.array([16]), Ranks())
    assert correlated == pytest.approx(active_experts(bundle(), np.array([4]), Ranks()))


def test_a_gpu_of_several_has_its_share_of_the_active_experts() -> None:
    whole = active_experts(bundle(), TOKENS, Ranks())
    assert active_experts(bundle(), TOKENS, TWO) == pytest.approx(whole / 2)
    assert active_experts(bundle(), TOKENS, FOUR) == pytest.approx(whole / 4)
    assert active_experts(bundle(), TOKENS, Ranks(1, 4, True)) == pytest.approx(whole / 4)


def test_without_expert_parallelism_every_gpu_has_a_slice_of_all() -> None:
    assert active_experts(bundle(), TOKENS, Ranks(1, 4, False)) == pytest.approx(
        active_experts(bundle(), TOKENS, Ranks())
    )


def test_the_table_is_read_at_tokens_and_active_experts() -> None:
    """Bilinear, so exact where time is linear in both; beyond the last tokens the line goes on."""
    for tokens in (1, 7, 512, 4096, 10_000):
        at = np.array([tokens])
        active = float(active_experts(bundle(), at, Ranks())[0])
        assert experts_s(bundle(), at, Ranks()) == pytest.approx(TOKEN_S * tokens + EXPERT_S * active)


def test_no_token_costs_no_less_than_the_first_point() -> None:
    assert experts_s(bundle(), np.array([0]), Ranks()) == pytest.approx(TOKEN_S + EXPERT_S)


def test_under_expert_parallelism_a_gpu_computes_its_share_of_the_tokens() -> None:
    """On 4 GPUs of one rank, 1/4 of the tokens and of the experts, and nothing travels between ranks."""
    at = np.array([512])
    active = float(active_experts(bundle(), at, Ranks())[0])
    assert experts_s(bundle(), at, Ranks(1, 4, True)) == pytest.approx(
        (TOKEN_S * 512 + EXPERT_S * active) / 4
    )


@pytest.mark.parametrize("ranks", [TWO, FOUR, Ranks(4, 1, True)])
def test_rows_of_other_ranks_travel_twice_in_every_moe_layer(ranks: Ranks) -> None:
    """2 L (latency + t (r - 1) / r * 2 hidden / bandwidth) (measured-runs/README.md, finding 7)."""
    at, size = np.array([512]), ranks.data_parallel_size
    still_s = experts_s(bundle(), at, Ranks(1, size * ranks.tensor_parallel_size, True))
    others = 512 / size * (size - 1)
    travel_s = 2 * MOE_LAYERS * (LATENCY_S + others * ROW_BYTES / (GB_PER_S * 1e9))
    assert experts_s(bundle(), at, ranks) - still_s == pytest.approx(travel_s)


def test_leading_dense_layers_send_nothing() -> None:
    sparse = bundle()
    sparse = replace(sparse, model=sparse.model | {"first_k_dense_replace": 12})
    at = np.array([512])
    travel_s = [experts_s(one, at, TWO) - experts_s(one, at, Ranks(1, 2, True)) for one in (bundle(), sparse)]
    assert travel_s[1] == pytest.approx(travel_s[0] * 36 / 48)


def test_ranks_without_a_link_are_refused() -> None:
    found = bundle()
    lacking = replace(found, parameters={name: p for name, p in found.parameters.items() if name != LINK[1]})
    assert experts_s(lacking, TOKENS, Ranks(1, 2, True)).shape == TOKENS.shape
    with pytest.raises(UserError) as caught:
        experts_s(lacking, TOKENS, TWO)
    assert str(caught.value) == (
        "ranks that exchange tokens need the link's expert_link_latency_s and expert_link_gb_per_s, but got "
        f"none in bundle {lacking.name} (cluster.data_parallel_size). Use 1, or add them to the bundle's "
        "parameters with their source."
    )


def test_a_dense_model_has_no_experts() -> None:
    assert has_experts(bundle())
    assert not has_experts(replace(bundle(), model={"num_experts": 0}))
