"""Published speed-ups, predicted: each row within the tolerance that conf/published_speedups.yaml states."""

import json
from functools import cache
from pathlib import Path

import pytest

from cluster_sim.cli import BAD_INPUT, main
from cluster_sim.published.comparison import Choice, Comparison, Point, as_dict, compared, independent
from cluster_sim.published.rows import Row, measured_speedups, rows
from cluster_sim.report.published import published_view
from cluster_sim.report.terminal import to_text

ROWS = {row.id: row for row in rows()}
FAILING = ("A1.6", "A1.9 tp4", "A1.11 off", "A2.15 two", "A2.27")


@cache
def of(name: str) -> Comparison:
    return compared(ROWS[name])


def value(name: str, load: int, drafts: int) -> Point:
    (point,) = [point for point in of(name).points if (point.load, point.drafts) == (load, drafts)]
    return point


# ---- what holds, and what does not ----


@pytest.mark.parametrize("name", [row.id for row in rows() if row.tolerance_percent is not None])
def test_a_row_holds_within_its_tolerance(name: str) -> None:
    assert of(name).worst_percent <= ROWS[name].tolerance_percent


@pytest.mark.parametrize("name", [row.id for row in rows() if row.most_regret_percent is not None])
def test_the_draft_length_predicted_best_loses_little(name: str) -> None:
    regret = of(name).most_regret_percent
    assert regret is not None
    assert regret <= ROWS[name].most_regret_percent


@pytest.mark.parametrize("name", [row.id for row in rows() if row.same_order])
def test_the_best_draft_length_is_the_source_s(name: str) -> None:
    assert all(choice.predicted == choice.measured for choice in of(name).choices)


def test_rows_that_fail_are_those_that_say_so() -> None:
    assert tuple(row.id for row in rows() if row.tolerance_percent is None) == FAILING


@pytest.mark.parametrize("name", FAILING)
def test_a_row_that_fails_still_fails(name: str) -> None:
    """Once it is within 10 percent, it must state a tolerance."""
    assert of(name).worst_percent > 10


# ---- the findings that matter most ----


def test_eagle3_gains_on_eagle_what_was_measured() -> None:
    """The best of each, A1 row 1: 4.29 / 4.05 = 1.06 times faster at K = 4 than EAGLE at K = 3."""
    margin = value("A1.1 eagle3", 1, 4).predicted / value("A1.1 eagle", 1, 3).predicted
    assert margin == pytest.approx(4.29 / 4.05, abs=0.03)


def test_speculation_still_pays_at_batch_size_128_on_one_h100() -> None:
    assert value("A1.3 8B GSM8K", 128, 3).predicted == pytest.approx(1.21, rel=0.03)


def test_a_poor_drafter_of_a_fast_moe_model_loses() -> None:
    assert all(point.predicted < 1 for point in of("A2.22").points)


def test_the_best_draft_length_of_a_moe_model_falls_with_the_batch_as_measured() -> None:
    """Qwen3-235B: 4 or 5 drafts for one request, 2 for 64."""
    chosen = {choice.load: choice.predicted for choice in of("A2.19").choices}
    assert chosen[64] == 2 < chosen[16] == 4


def test_mtp_gains_at_low_rates() -> None:
    assert value("A2.15 one", 1, 1).predicted > 1.5
    assert value("A2.15 two", 2, 1).predicted > 1.1


def test_independent_rows_are_right_within_a_few_percent() -> None:
    points = [point for row in rows() if row.is_independent for point in of(row.id).points]
    errors = sorted(abs(point.error_percent) for point in points)
    assert errors[len(errors) // 2] < 5


# ---- the data ----


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.id)
def test_a_row_says_where_it_is_from_and_why_it_is_as_it_is(row: Row) -> None:
    words = (row.what, row.source, row.engine, row.acceptance, row.explanation)
    assert all(len(text) > 5 for text in words)
    assert len({row.id for row in rows()}) == len(rows())
    for load, by_length in row.values.items():
        lengths = {*by_length} - {row.reference}
        assert row.quantity == "last_batch_size" or lengths <= {*row.acceptance_lengths}, load
    assert all(1 <= length <= 1 + drafts for drafts, length in row.acceptance_lengths.items())


def test_measured_values_become_speed_ups() -> None:
    """TPOT falls and tokens/s rise; without a run of the target alone, over the reference draft length."""
    assert measured_speedups(ROWS["A1.1 eagle"])[1][3] == pytest.approx((7.07 / 4.29,) * 2)
    assert measured_speedups(ROWS["A1.2 eagle3"])[1][2] == pytest.approx((220.2 / 133,) * 2)
    assert measured_speedups(ROWS["A2.19"])[64][2] == pytest.approx((3693 / 3353,) * 2)
    assert measured_speedups(ROWS["A1.7"])[1][3] == pytest.approx((16.5 / 12, 16.5 / 7))


def test_a_range_has_no_error_inside_and_the_distance_outside() -> None:
    row = ROWS["A1.7"]
    errors = [Point(row, 1, 3, (2.0, 4.0), predicted).error_percent for predicted in (1.0, 3.0, 6.0)]
    assert errors == pytest.approx([-50, 0, 50])


def test_regret_is_what_the_chosen_length_loses_of_the_measured_best() -> None:
    """32 requests of Qwen3-235B: of 3 and 4 drafts, within 1 percent, the shorter is the best."""
    (choice,) = [choice for choice in of("A2.19").choices if choice.load == 32]
    assert choice == Choice(32, 3, 3, 0.0)


# ---- the view and the command ----


def some() -> list[Comparison]:
    return [of(name) for name in ("A1.1 eagle", "A1.3 8B GSM8K", "A1.9 tp4", "A2.22")]


@pytest.mark.parametrize("width", [80, 160])
def test_the_table_fits(width: int) -> None:
    text = to_text(published_view(some()), width, colours=False)
    assert max(map(len, text.splitlines())) <= width
    for part in ("A1.3 8B GSM8K", "1.21", "median absolute error", "A1.9 tp4: Does not hold"):
        assert part in text
    assert ("GSM8K, batch size 128" in text) is (width == 160)


def test_the_json_holds_every_value_with_its_source() -> None:
    written = json.loads(json.dumps(as_dict(some())))
    assert len(written["rows"]) == len(some())
    first = written["rows"][0]
    assert first["source"].endswith("20780")
    assert first["values"][0] == {
        "batch_size": 1,
        "draft_length": 2,
        "measured": pytest.approx(7.07 / 4.37),
        "predicted": pytest.approx(value("A1.1 eagle", 1, 2).predicted),
        "error_percent": pytest.approx(value("A1.1 eagle", 1, 2).error_percent),
    }
    assert written["median_absolute_error_percent_of_independent_rows"] > 0
    assert len(independent(some())) == len(some()) - 1


def test_the_command_takes_a_run_or_published_rows_and_not_both(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["validate"]) == BAD_INPUT
    assert "validate needs a DIR or --published, but got neither" in capsys.readouterr().err
    assert main(["validate", str(tmp_path), "--published"]) == BAD_INPUT
    assert "--published has setups of its own" in capsys.readouterr().err
