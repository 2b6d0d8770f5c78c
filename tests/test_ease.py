"""Classes with profiles of their own, and texts of one class that draft well or badly."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from verifying import accepted, luck_of, requests, with_acceptance

from cluster_sim.build import build
from cluster_sim.compose import compose
from cluster_sim.config import AcceptanceConfig, AcceptancePolicy, RatesAre
from cluster_sim.engine.kinds import LuckKind
from cluster_sim.errors import UserError
from cluster_sim.luck import acceptance_source, profiles_of
from cluster_sim.results import latencies
from cluster_sim.run import simulate
from cluster_sim.speculation.acceptance import conditional_table
from cluster_sim.speculation.spread import NUM_LEVELS, shifts, spread_table

Z = 5.0  # standard errors; a right sample exceeds it in fewer than 1 in 10^6 seeds
EAGLE = [0.622, 0.381, 0.252]  # EAGLE on ShareGPT, K = 3 (../shared/spec-decode-facts.md B1)
MEAN = sum(EAGLE)


def eagle(**spread: Any) -> AcceptanceConfig:
    return AcceptanceConfig(
        policy=AcceptancePolicy.per_position, rates=EAGLE, rates_are=RatesAre.marginal, **spread
    )


def geometric(rate: float, **spread: Any) -> AcceptanceConfig:
    return AcceptanceConfig(policy=AcceptancePolicy.geometric, rate=rate, **spread)


def per_request(config: AcceptanceConfig, number: int = 2000, tokens: int = 200) -> NDArray[np.float64]:
    """Accepted drafts per verification of each request, with 3 drafts."""
    workload = requests(number)
    counts = accepted(luck_of(with_acceptance(config, 3), workload), workload, 3, tokens)
    share: NDArray[np.float64] = counts @ np.arange(4) / counts.sum(axis=1)
    return share


# ---- spread ----


@given(
    rates=st.lists(st.floats(0, 1), min_size=1, max_size=6),
    of_request=st.floats(0, 4),
    of_run=st.floats(0, 4),
)
def test_levels_accept_the_profiles_mean_together(
    rates: list[float], of_request: float, of_run: float
) -> None:
    """Every draft length: the mean over levels, each counted once, of m_1 + .. + m_k is the profile's."""
    falling = sorted(rates, reverse=True)
    config = AcceptanceConfig(
        policy=AcceptancePolicy.per_position,
        rates=falling,
        rates_are=RatesAre.marginal,
        request_spread=of_request,
        run_spread=of_run,
    )
    table = conditional_table(config, len(falling))
    shift = shifts(config, NUM_LEVELS, NUM_LEVELS)
    if not np.any((table > 0) & (table < 1)):
        return
    levels = spread_table(table, shift, "here")
    assert levels.shape == (NUM_LEVELS**2, len(falling) + 1, len(falling))
    assert np.all((levels >= 0) & (levels <= 1))
    for drafts in range(1, len(falling) + 1):
        means = np.cumprod(levels[:, drafts, :drafts], axis=1).sum(axis=1)
        assert means.mean() == pytest.approx(sum(falling[:drafts]), rel=1e-9, abs=1e-12)


def test_shifts_have_the_standard_deviation_asked_for() -> None:
    shift = shifts(eagle(request_spread=0.6, run_spread=0.8), NUM_LEVELS, NUM_LEVELS)
    assert shift.mean() == pytest.approx(0, abs=1e-12)
    assert shift.std() == pytest.approx(1.0)  # sqrt(0.6^2 + 0.8^2)


def test_a_level_shifts_the_logit_of_every_position_alike() -> None:
    table = conditional_table(eagle(), 3)
    shift = shifts(eagle(request_spread=0.7), NUM_LEVELS, 1)
    levels = spread_table(table, shift, "here")[:, 3]
    logits = np.log(levels / (1 - levels))
    assert logits - logits[:, :1] == pytest.approx(np.tile(logits[0] - logits[0, 0], (NUM_LEVELS, 1)))
    assert np.diff(logits[:, 0]) == pytest.approx(np.diff(shift))


def test_without_spread_there_is_one_level() -> None:
    luck = luck_of(with_acceptance(eagle(), 3), requests(5))
    assert (luck.request_levels, luck.run_levels) == (1, 1)
    assert luck.conditional.shape == (1, 1, 4, 3)


def test_requests_differ_and_their_mean_stays() -> None:
    """Without spread, the variance between requests is that of their verifications alone."""
    plain, spread = per_request(eagle()), per_request(eagle(request_spread=0.8))
    for sample in (plain, spread):
        assert abs(sample.mean() - MEAN) < Z * sample.std() / np.sqrt(len(sample))
    assert spread.std() > 3 * plain.std()


def test_runs_of_an_output_differ_and_average_out_over_it() -> None:
    """A request of 200 tokens has about six runs of 32, whose levels are independent."""
    of_request, of_run = (
        per_request(eagle(request_spread=0.8)),
        per_request(eagle(run_spread=0.8, run_tokens=32)),
    )
    assert of_request.std() > 1.5 * of_run.std()
    assert of_run.std() > 1.3 * per_request(eagle()).std()


def test_one_run_as_long_as_the_output_is_a_spread_between_requests() -> None:
    """The same distribution; draws differ, since a run has a draw of its own."""
    of_run = per_request(eagle(run_spread=0.8, run_tokens=1000))
    of_request = per_request(eagle(request_spread=0.8))
    assert of_run.std() == pytest.approx(of_request.std(), rel=0.1)


def test_a_spread_widens_the_tail_of_tpot_and_keeps_what_a_request_accepts_on_average() -> None:
    """One request at a time, so that its TPOT is its own: step times over its acceptance length."""
    quiet = [
        "workload.requests=300",
        "workload.request_rate=0.2",
        "workload.output_tokens=256",
        "speculation.acceptance={policy: per_position, rates: [0.622, 0.381, 0.252], rates_are: marginal"
        ", request_spread: %s}",
    ]
    tpot_s, means = {}, {}
    for spread in (0.0, 0.8):
        run = simulate(compose([line % spread if "%s" in line else line for line in quiet]))
        tpot_s[spread] = np.percentile(latencies(run).tpot_s, [50, 99])
        share = 3 * run.log["accepted_tokens"] / run.log["drafted_tokens"]
        means[spread] = share.mean()
        assert abs(share.mean() - MEAN) < Z * share.std() / np.sqrt(len(share))
    widths = {spread: p99 / p50 for spread, (p50, p99) in tpot_s.items()}
    assert widths[0.0] < 1.25
    assert widths[0.8] > 1.5


def test_hard_texts_need_more_verifications_so_a_run_accepts_less_on_the_whole() -> None:
    workload = requests(2000)
    luck = luck_of(with_acceptance(eagle(request_spread=0.8), 3), workload)
    counts = accepted(luck, workload, 3, 200).sum(axis=0)
    assert counts @ np.arange(4) / counts.sum() < 0.97 * MEAN


def test_a_spread_needs_drafts_in_doubt() -> None:
    with pytest.raises(UserError) as caught:
        build(with_acceptance(geometric(1.0, request_spread=0.5), 3))
    assert str(caught.value) == (
        "a spread needs drafts whose chance lies between 0 and 1, but got a profile without one "
        "(speculation.acceptance). Leave the spread out, or choose another policy."
    )


# ---- classes ----


def test_each_class_accepts_by_its_own_profile() -> None:
    names = ("code", "chat", "other")
    workload = requests(900, np.arange(900) % 3, names)
    config = with_acceptance(eagle(), 3, code=geometric(0.9), chat=geometric(0.4))
    counts = accepted(luck_of(config, workload), workload, 3, 200)
    expected = (0.9 + 0.81 + 0.729, 0.4 + 0.16 + 0.064, MEAN)
    for number, mean in enumerate(expected):
        of_class = counts[workload.workload_class == number].sum(axis=0)
        drafted = of_class.sum()
        assert abs(of_class @ np.arange(4) / drafted - mean) < Z * 1.5 / np.sqrt(drafted)


def test_a_class_without_spread_has_levels_that_are_alike() -> None:
    config = with_acceptance(eagle(), 3, code=geometric(0.9, request_spread=1.0))
    luck = luck_of(config, requests(4, [0, 1, 0, 1], ("code", "chat")))
    assert luck.conditional.shape == (2, NUM_LEVELS, 4, 3)
    assert np.ptp(luck.conditional[1], axis=0).max() == 0
    assert np.ptp(luck.conditional[0], axis=0).max() > 0.1


def test_an_unknown_class_is_refused(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    line = {"arrival_s": 0, "prompt_tokens": 8, "output_tokens": 8, "class": "chat"}
    trace.write_text(json.dumps(line) + "\n" + json.dumps(line | {"class": "code"}) + "\n")
    by_class = "speculation.acceptance_by_class={%s: {policy: geometric, rate: 0.5}}"
    build(compose([f"workload.trace={trace}", by_class % "code"]))
    with pytest.raises(UserError) as caught:
        build(compose([f"workload.trace={trace}", by_class % "coed"]))
    assert str(caught.value) == (
        "a class with an acceptance profile must be one of the workload's, but got 'coed' "
        "(speculation.acceptance_by_class.coed). Did you mean code? Classes: chat, code."
    )


def test_the_source_of_each_class_is_said() -> None:
    config = with_acceptance(AcceptanceConfig(published="auto"), 3, code=geometric(0.9))
    assert acceptance_source(config).endswith("; class code: [given] by the user")


def test_runs_are_equally_long_in_all_classes() -> None:
    config = with_acceptance(
        geometric(0.5, run_spread=1.0, run_tokens=8), 3, code=geometric(0.9, run_spread=1.0, run_tokens=16)
    )
    with pytest.raises(UserError, match=r"runs must be equally long in all classes, but got 8 and 16"):
        profiles_of(config)


# ---- walks ----


def write_lengths(path: Path, rows: list[list[int]]) -> AcceptanceConfig:
    path.write_text("".join(json.dumps({"accepted": row}) + "\n" for row in rows))
    return AcceptanceConfig(policy=AcceptancePolicy.trace, file=str(path))


def test_requests_of_a_class_walk_the_rows_of_its_file_in_order(tmp_path: Path) -> None:
    names = ("code", "chat")
    workload = requests(7, [0, 1, 1, 0, 1, 1, 0], names)
    code = write_lengths(tmp_path / "code.jsonl", [[1, 2, 3], [4]])
    chat = write_lengths(tmp_path / "chat.jsonl", [[5, 6], [7], [8, 9]])
    luck = luck_of(with_acceptance(code, 3, chat=chat), workload)
    assert luck.kind == LuckKind.walked
    rows = [luck.draws[fate.draw_start :][: fate.num_draws].tolist() for fate in luck.fates]
    assert rows == [[1, 2, 3], [5, 6], [7], [4], [8, 9], [5, 6], [1, 2, 3]]


def test_a_walk_ignores_the_seed(tmp_path: Path) -> None:
    lengths = write_lengths(tmp_path / "lengths.jsonl", [[1, 2, 0, 3, 0, 1], [0, 0, 2, 1]])
    workload = requests(6)
    counts = [
        accepted(luck_of(with_acceptance(lengths, 3, seed=seed), workload), workload, 3, 50)
        for seed in (1, 2)
    ]
    assert counts[0].tolist() == counts[1].tolist()


def test_a_run_walks_a_file(tmp_path: Path) -> None:
    """All drafts accepted, always: each verification emits K + 1 of the tokens after the first."""
    lengths = write_lengths(tmp_path / "lengths.jsonl", [[9]])
    arguments = ["workload.requests=20", "workload.output_tokens=41"]
    config = compose([*arguments, f"speculation.acceptance={{policy: trace, file: {lengths.file}}}"])
    assert set(simulate(config).log["chunks"].tolist()) == {11}  # the first token, then 40 of 4 each


def test_a_walk_beside_a_profile_is_refused(tmp_path: Path) -> None:
    lengths = write_lengths(tmp_path / "lengths.jsonl", [[1]])
    with pytest.raises(UserError, match="policy trace is that of all classes or of none, but got trace for"):
        profiles_of(with_acceptance(lengths, 3, code=geometric(0.9)))
