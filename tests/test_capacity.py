"""Capacities: intervals that hold what was not tried, censored seeds, a closed form, and a whole sweep."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypeVar

import pytest
from searching import RATE, SEARCH, searched
from sweeping import bytes_of, swept

from cluster_sim import sweep as sweep_module
from cluster_sim.bisection import grid
from cluster_sim.capacity import compare_capacities
from cluster_sim.compose import compose
from cluster_sim.config import SweepConfig
from cluster_sim.errors import UserError
from cluster_sim.report.capacity import capacity_view
from cluster_sim.report.terminal import to_text
from cluster_sim.run import simulate
from cluster_sim.statistics import mean_interval, ratio_interval
from cluster_sim.trial import Trial
from cluster_sim.trials import read_trials

T = TypeVar("T")
R = TypeVar("R")
SWEEP = SweepConfig("test", "?", {"off": {}, "on": {}}, "off", {}, [0, 1, 2], SEARCH)
VALUES = grid(SEARCH)
WELL_INSIDE = {
    **{("off", 0): 20.0, ("off", 1): 22.0, ("off", 2): 21.0},
    **{("on", 0): 40.0, ("on", 1): 44.0, ("on", 2): 42.0},
}
ONE_SERVER = """
name: one_server
question: How many prompts a second does one slot serve at once?
arms: {one: {}}
baseline: one
axes: {}
search: {key: workload.request_rate, low: 10, high: 60, tolerance: 0.01}
seeds: [0, 1, 2, 3, 4]
"""
PREFILL_ALONE = (
    *("speculation=none", "engine.max_num_seqs=1", "engine.async_scheduling=false"),
    "workload.output_tokens=1",
)
SMALL = (
    "+sweep=capacity",
    *("sweep.seeds=[0,1]", "sweep.search.tolerance=0.2", "sweep.search.high=200", "workload.requests=300"),
)


def compared(capacities: dict[tuple[str, int], float]) -> dict[str, Any]:
    return compare_capacities(searched(capacities)[0], SWEEP)


def next_value(passed: float) -> float:
    return VALUES[VALUES.index(passed) + 1]


def test_the_interval_reaches_from_what_passed_to_what_failed() -> None:
    (entry,) = compared(WELL_INSIDE)["capacity"]["arms"]["off"]
    passed = [seed["passed"] for seed in entry["seeds"]]
    assert [seed["failed"] for seed in entry["seeds"]] == [next_value(value) for value in passed]
    assert all(value <= WELL_INSIDE["off", seed] for seed, value in enumerate(passed))
    assert entry["value"] == mean_interval(passed).value
    assert entry["low"] == mean_interval(passed).low
    assert entry["high"] == mean_interval([next_value(value) for value in passed]).high
    assert entry["limited_by"] == ["ttft_s"]


def test_seeds_that_agree_leave_an_interval_as_wide_as_the_grid() -> None:
    (entry,) = compared(dict.fromkeys(WELL_INSIDE, 20.0))["capacity"]["arms"]["off"]
    assert entry["low"] < 20.0 < entry["high"]
    assert entry["high"] / entry["low"] == pytest.approx(VALUES[1] / VALUES[0])


def test_the_ratio_is_fieller_s_from_the_worst_to_the_best_that_is_possible() -> None:
    found = compared(WELL_INSIDE)
    (entry,) = found["vs_baseline"]["on"]
    own, base = (
        [seed["passed"] for seed in found["capacity"]["arms"][arm][0]["seeds"]] for arm in ("on", "off")
    )
    own_failed, base_failed = ([next_value(value) for value in values] for values in (own, base))
    assert entry["capacity"] == {
        "ratio": ratio_interval(own, base).value,
        "low": ratio_interval(own, base_failed).low,
        "high": ratio_interval(own_failed, base).high,
        "verdict": "win",
    }


def test_arms_of_one_capacity_are_a_tie() -> None:
    (entry,) = compared(dict.fromkeys(WELL_INSIDE, 20.0))["vs_baseline"]["on"]
    assert entry["capacity"]["verdict"] == "tie"
    assert entry["capacity"]["low"] < 1.0 < entry["capacity"]["high"]


def test_a_censored_seed_leaves_no_value_and_no_interval_and_is_said() -> None:
    found = compared({**WELL_INSIDE, ("on", 1): 1000.0, ("on", 2): 1.0})
    (entry,) = found["capacity"]["arms"]["on"]
    assert (entry["value"], entry["low"], entry["high"]) == (None, None, None)
    assert [seed["censored"] for seed in entry["seeds"]] == [None, "at_least_high", "below_low"]
    assert (entry["seeds"][1]["passed"], entry["seeds"][1]["failed"]) == (64.0, None)
    assert (entry["seeds"][2]["passed"], entry["seeds"][2]["failed"]) == (None, 4.0)
    assert found["vs_baseline"]["on"][0]["capacity"] is None
    assert found["arms"]["on"][0]["seeds"] == [0, 1]


def test_one_seed_gives_a_value_and_no_verdict() -> None:
    found = compared({("off", 0): 20.0, ("on", 0): 40.0})
    (entry,) = found["capacity"]["arms"]["off"]
    assert entry["value"] is not None
    assert (entry["low"], entry["high"]) == (None, None)
    assert found["vs_baseline"]["on"][0]["capacity"]["verdict"] == "unknown"


def test_an_arm_whose_seeds_all_fail_is_there_without_numbers() -> None:
    found = compared({key: 1.0 if key[0] == "on" else value for key, value in WELL_INSIDE.items()})
    assert found["arms"]["on"] == []
    assert "below 4" in to_text(capacity_view(found, "off", 80), 80, False)


def test_the_capacity_of_one_server_is_its_closed_form(tmp_path: Path) -> None:
    """M/D/1: a request finds the server idle with chance 1 - rho (PASTA), so 40 % do at rho = 0.6.

    A service time S is the limit of TTFT and 0.4 the attainment; the file of the sweep is the user's own. The
    capacity, 0.6 / S, must lie in a 95 % interval, under fixed seeds, of less than 4 % on each side.
    """
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "one_server.yaml").write_text(ONE_SERVER)
    alone = simulate(compose([*PREFILL_ALONE, "workload.requests=1"]))
    service_s = float(alone.log["first_token_s"][0] - alone.requests["arrival_s"][0])
    given = [
        *(f"hydra.searchpath=[{tmp_path}]", "+sweep=one_server", *PREFILL_ALONE, "workload.requests=4000"),
        *(f"slo.ttft_s={service_s * (1 + 1e-9)}", "slo.tpot_s=null", "slo.attainment=0.4"),
    ]
    assert swept(tmp_path / "out", *given) == 0
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    (entry,) = summary["capacity"]["arms"]["one"]
    assert entry["low"] < 0.6 / service_s < entry["high"]
    assert 0.96 * entry["value"] < entry["low"] < entry["high"] < 1.04 * entry["value"]
    assert entry["limited_by"] == ["ttft_s"]


@pytest.fixture(scope="module", name="whole")
def fixture_whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small search, run in this process without a break."""
    directory = tmp_path_factory.mktemp("whole")
    assert swept(directory, *SMALL) == 0
    return directory


def test_a_search_leaves_every_trial_it_tried_and_what_users_get_at_capacity(whole: Path) -> None:
    summary, rows = json.loads((whole / "summary.json").read_text()), read_trials(whole)
    assert [row["trial"] for row in rows] == list(range(len(rows)))
    for arm, (entry,) in summary["capacity"]["arms"].items():
        for seed in entry["seeds"]:
            tried = {row[RATE]: row for row in rows if (row["arm"], row["seed"]) == (arm, seed["seed"])}
            passed, failed = tried[seed["passed"]], tried[seed["failed"]]
            assert passed["slo_attainment"] >= 0.9
            assert not passed["saturated"]
            assert failed["saturated"] or failed["slo_attainment"] < 0.9
        (means,) = summary["arms"][arm]
        at_capacity = [
            row["ttft_s.mean"]
            for row in rows
            for seed in entry["seeds"]
            if (row["arm"], row["seed"], row[RATE]) == (arm, seed["seed"], seed["passed"])
        ]
        assert means["ttft_s"]["mean"]["value"] == pytest.approx(sum(at_capacity) / 2)


class Stopping:
    """An executor that stops, as by Ctrl-C, after some trials; it counts what it runs."""

    def __init__(self, after: int) -> None:
        self.after, self.ran = after, list[int]()

    def run(self, work: Callable[[T], R], trials: Sequence[T]) -> Iterator[R]:
        for trial in reversed(trials):
            if len(self.ran) == self.after:
                raise KeyboardInterrupt
            assert isinstance(trial, Trial)
            self.ran.append(trial.number)
            yield work(trial)


@pytest.mark.parametrize("after", [3, 16, 25])
def test_an_interrupted_search_goes_on_where_it_stopped_and_ends_with_the_same_bytes(
    after: int,
    tmp_path: Path,
    whole: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In the first round, of 16 trials, at its end, and in a later one."""
    stopping, going_on = Stopping(after), Stopping(1000)
    monkeypatch.setattr(sweep_module, "open_executor", lambda *_: nullcontext(stopping))
    with pytest.raises(KeyboardInterrupt):
        swept(tmp_path, *SMALL)
    assert (
        f"{after} of at most 56 trials are kept; go on with output.dir={tmp_path}" in capsys.readouterr().err
    )
    monkeypatch.setattr(sweep_module, "open_executor", lambda *_: nullcontext(going_on))
    assert swept(tmp_path, *SMALL) == 0
    assert sorted(stopping.ran + going_on.ran) == list(range(len(read_trials(whole))))
    assert bytes_of(tmp_path) == bytes_of(whole)


def test_a_search_that_is_complete_runs_nothing_again(
    tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert swept(tmp_path, *SMALL) == 0

    def open_executor(*_: object) -> None:
        pytest.fail("an executor was opened")

    monkeypatch.setattr(sweep_module, "open_executor", open_executor)
    assert swept(tmp_path, *SMALL) == 0
    assert bytes_of(tmp_path) == bytes_of(whole)


def test_a_bad_arm_stops_the_search_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        swept(tmp_path / "new", *SMALL, "sweep.arms.bad={workload.requests: 0}")
    assert "arm bad, workload.request_rate=4.0" in str(caught.value)
    assert not (tmp_path / "new").exists()


@pytest.mark.ray
def test_ray_leaves_the_same_bytes(tmp_path: Path, whole: Path) -> None:
    given = [*SMALL, "executor=ray", "executor.workers=2", f"output.dir={tmp_path}"]
    assert sweep_module.run_sweep(compose(given), given) == 0
    assert bytes_of(tmp_path) == bytes_of(whole)


# ---- on the terminal ----


@pytest.mark.parametrize("width", [80, 160])
def test_the_table_fits_the_terminal_and_says_what_ends_each_capacity(width: int) -> None:
    text = to_text(capacity_view(compared(WELL_INSIDE), "off", width), width, False)
    assert max(map(len, text.splitlines())) <= width
    words = " ".join(text.split())
    assert "capacity: the highest request rate that meets the SLO" in words
    assert "arm requests/s 95% interval ratio to off limited by" in words
    assert "on 41.5 37.5 to 46.5 2.003 [1.915, 2.106] + TTFT" in words


def test_censored_capacities_are_worded_not_numbered() -> None:
    found = compared({**WELL_INSIDE, ("on", 1): 1000.0, ("on", 2): 1.0})
    words = " ".join(to_text(capacity_view(found, "off", 160), 160, False).split())
    assert "on below 4.00 (1 of 3 seeds) - - TTFT at least 64.0 (1 of 3 seeds)" in words


def test_the_ratio_shrinks_where_there_is_no_room() -> None:
    text = to_text(capacity_view(compared(WELL_INSIDE), "off", 64), 64, False)
    assert max(map(len, text.splitlines())) <= 64
    assert "2.00 ±0.10 +" in text
