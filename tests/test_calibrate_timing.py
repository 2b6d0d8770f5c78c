"""The fit of factors: closed forms in place of the simulator, and what is scaled in a bundle."""

from pathlib import Path

import numpy as np
import pytest
from example_bundle import BUNDLE

from cluster_sim.bundle import format as bundle_format
from cluster_sim.calibrate.least_squares import Floats, Solution, solve
from cluster_sim.calibrate.parts import NAMES, scaled
from cluster_sim.errors import UserError

FIXED_S = np.array([6.0, 6.0, 6.0, 6.0, 6.0, 6.0])
PER_LOAD_S = np.array([0.1, 1.0, 2.0, 4.0, 8.0, 16.0])
TRUE = np.array([1.2, 0.7])


def predict(factors: Floats) -> Floats:
    """Log of a time with a fixed part and one that grows with the load [point, 1 metric]."""
    return np.log(factors[0] * FIXED_S + factors[1] * PER_LOAD_S)[:, np.newaxis]


def fitted(measured: Floats) -> Solution:
    return solve(predict, measured, ("fixed", "load"), lambda _step, _change: None)


def noisy(seed: int, metrics: int = 1) -> Floats:
    return predict(TRUE) + 0.01 * np.random.default_rng(seed).standard_normal((len(FIXED_S), metrics))


def test_factors_are_found_exactly_where_the_model_is_exact() -> None:
    found = fitted(predict(TRUE))
    assert found.factors == pytest.approx(TRUE, rel=1e-5)
    assert found.halves == pytest.approx([0.0, 0.0], abs=1e-5)


def test_intervals_hold_the_true_factors_as_often_as_they_say() -> None:
    """500 fits: at 95 %, fewer than 0.92 or more than 0.975 have a chance of 0.5 % each."""
    held = []
    for seed in range(500):
        found = fitted(noisy(seed))
        held.append(np.abs(found.factors - TRUE) <= found.halves)
    assert all(0.92 <= share <= 0.975 for share in np.mean(held, axis=0))


def test_two_metrics_that_say_the_same_make_no_interval_narrower() -> None:
    """A second copy of the first metric adds nothing: as wide as from one, but for the degrees of freedom."""
    once = noisy(7)
    twice = np.repeat(once, 2, axis=1)
    found = solve(lambda at: np.repeat(predict(at), 2, axis=1), twice, ("fixed", "load"), lambda *_: None)
    single = fitted(once)
    assert found.factors == pytest.approx(single.factors)
    assert found.halves == pytest.approx(single.halves * np.sqrt(2 * 4 / (2 * 6 - 2)))


def test_held_out_errors_are_those_of_a_fit_to_the_other_points() -> None:
    measured = noisy(3)
    found = fitted(measured)
    for point in range(len(measured)):
        others = np.delete(np.arange(len(measured)), point)
        without = solve(
            lambda at, kept=others: predict(at)[kept], measured[others], ("fixed", "load"), lambda *_: None
        )
        error = measured[point, 0] - predict(without.factors)[point, 0]
        assert found.held_out[point, 0] == pytest.approx(error, abs=1e-4)


def _refused(names: tuple[str, ...], model: object, points: int = 6) -> str:
    with pytest.raises(UserError) as raised:
        solve(model, np.ones((points, 1)), names, lambda *_: None)  # type: ignore[arg-type]
    return str(raised.value)


def test_no_more_numbers_are_fitted_than_runs_can_hold() -> None:
    assert _refused(("gpu", "host_overhead_s"), predict, points=2) == (
        "2 fitted numbers (gpu, host_overhead_s) need 3 runs or more, but got 2 (--fit). "
        "Fit fewer numbers with --fit, or measure at more rates."
    )


def test_a_number_without_effect_is_refused() -> None:
    assert _refused(("gpu", "host_overhead_s"), lambda at: predict(np.array([at[0], 1.0]))) == (
        "runs must tell host_overhead_s to 50% where each mean is 1% off, but got no effect on any mean "
        "(--fit). Leave host_overhead_s out of --fit, or measure at other rates and draft lengths."
    )


def test_numbers_that_move_all_means_alike_are_refused_by_name() -> None:
    """The load moves the first part by 0 to 0.3 % here."""
    assert _refused(
        ("dense", "drafter"), lambda at: np.log(at[0] + at[1] * (1 + PER_LOAD_S / 5e3))[:, np.newaxis]
    ) == (
        "runs must tell dense and drafter apart to 50% where each mean is 1% off, but got 1054% (--fit). "
        "Leave dense or drafter out of --fit, or measure at other rates and draft lengths."
    )


def test_a_fit_that_does_not_settle_is_refused() -> None:
    """All means are 10^-9 of what they would be: a factor halves at most at a step."""
    with pytest.raises(UserError) as raised:
        solve(
            lambda at: np.log(at[0] * FIXED_S)[:, np.newaxis],
            np.log(1e-9 * FIXED_S)[:, np.newaxis],
            ("gpu",),
            lambda *_: None,
        )
    assert str(raised.value) == (
        "a fit must settle within 12 steps, but got a last change of 50.0% (--fit). "
        "Fit fewer numbers with --fit, or leave saturated runs out."
    )


# ---- the bundle ----


@pytest.mark.parametrize("name", NAMES)
def test_a_factor_scales_the_times_of_its_part_and_nothing_else(name: str) -> None:
    whole = scaled(BUNDLE, {"gpu": 2.0, "host_overhead_s": 2.0}, "all", "on trial")
    found = scaled(BUNDLE, {name: 2.0}, "mine", "on trial")
    tables = {
        key
        for key in BUNDLE.tables
        if not np.array_equal(BUNDLE.tables[key].time_s, found.tables[key].time_s)
    }
    everything = {key for key in BUNDLE.tables if key != "decode_skew"}
    of = {
        "gpu": everything,
        "dense": {"dense", "head"},
        "attention": {"prefill_attention", "decode_attention"},
        "drafter": {"draft_first", "draft_next", "draft_head"},
        "host_overhead_s": set(),
    }[name]
    assert tables == of & everything
    for key in tables:
        assert np.array_equal(found.tables[key].time_s, 2.0 * BUNDLE.tables[key].time_s)
        assert found.tables[key].source == f"times 2, on trial; before: {BUNDLE.tables[key].source}"
    assert (found.parameters["host_s"].value == 2 * BUNDLE.parameters["host_s"].value) == (
        name == "host_overhead_s"
    )
    unscaled = {key for key in BUNDLE.parameters if key != "host_s"}
    assert all(whole.parameters[key] == BUNDLE.parameters[key] for key in unscaled)
    assert found.name == "mine"


def test_a_scaled_bundle_is_a_bundle(tmp_path: Path) -> None:
    directory = tmp_path / "bundle"
    found = scaled(BUNDLE, {"gpu": 1.1}, "mine", "on trial")
    bundle_format.write(found, directory)
    read = bundle_format.read(directory)
    assert np.array_equal(read.tables["dense"].time_s, 1.1 * BUNDLE.tables["dense"].time_s)
    for method, known in BUNDLE.drafters.items():
        assert read.drafters[method]["prepare_s"].value == pytest.approx(1.1 * known["prepare_s"].value)
        assert read.drafters[method]["weights_bytes"] == known["weights_bytes"]
