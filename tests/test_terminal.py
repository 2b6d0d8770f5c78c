"""What people read: nothing missing, nothing wider than their terminal."""

import io
from typing import Any

import numpy as np
import pytest
from example_run import example_run, example_tally
from test_comparison import rows

from cluster_sim.compared import COMPARED
from cluster_sim.comparison import RATE_AXIS, compare_arms
from cluster_sim.report import progress as progress_module
from cluster_sim.report.console import show_lines
from cluster_sim.report.crossover import GAINS, LOSSES, TITLES, crossover_sentences, sweep_view
from cluster_sim.report.progress import progress
from cluster_sim.report.terminal import header_of, run_view, to_text
from cluster_sim.report.words import figures, percent, seconds
from cluster_sim.summary import summarise

WIDTHS = (80, 160)
SHOWN = ("output_throughput_tok_s", "tpot_s")


def shown(width: int, changes: dict[str, Any] | None = None, **run_changes: Any) -> str:
    run = example_run(**run_changes)
    return to_text(run_view(summarise(run) | (changes or {}), header_of(run), run.config.slo), width, False)


def words_of(changes: dict[str, Any] | None = None, **run_changes: Any) -> str:
    """What is shown, wherever its lines break."""
    return " ".join(shown(160, changes, **run_changes).split())


def with_speculation() -> dict[str, Any]:
    verified = np.zeros((1, 1, 3, 3), np.int64)
    verified[0, 0, 2] = [1, 2, 3]
    return {
        "tally": example_tally(verified=verified),
        "log": {"drafted_tokens": [12, 0, 0], "accepted_tokens": [8, 0, 0]},
    }


@pytest.mark.parametrize("width", WIDTHS)
def test_a_run_fits_the_terminal_and_a_screen(width: int) -> None:
    lines = shown(width, warnings=("a long warning, " * 12,), **with_speculation()).splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) <= 32


def test_a_run_says_who_waits_how_fast_what_speculation_did_and_where_memory_went() -> None:
    text = words_of(**with_speculation())
    for words in (
        "llama-3.1-8b, 1 instance of h100, eagle3 K=3; by hand",
        "3 of 3 requests completed, in 4.00 s of simulated time",
        "latency mean p50 p90 p95 p99",
        "waits in the queue",
        "first token (TTFT) 583 ms 500 ms 900 ms 950 ms 990 ms",
        "4.00 output tokens/s, 0.75 requests/s",
        "acceptance length 2.33, rate 66.7%: 12 drafted, 8 accepted, 4 rejected",
        "accepted by position, %: 83.3 50.0",
        "within TTFT <= 500 ms, TPOT <= 50.0 ms",
        "0 preemptions",
        "GPU memory target weights 16.0, target KV 54.0, headroom 2.0, reserve 8.0: 80.0 GiB",
        "too few arrivals to tell",
    ):
        assert words in text


def test_the_source_of_acceptance_shows_with_its_brackets() -> None:
    text = words_of(acceptance_source="[published] one: a paper", **with_speculation())
    assert "acceptance [published] one: a paper" in text


def test_a_run_without_speculation_says_so() -> None:
    text = words_of(overrides=("speculation=none",))
    assert "no speculation; by hand" in text
    assert "no token was drafted" in text


def test_the_gpus_of_an_instance_are_those_of_all_its_ranks() -> None:
    ranks = ("cluster.instances=3", "cluster.tensor_parallel_size=2", "cluster.data_parallel_size=4")
    assert "3 instances of 8 x h100 in 4 ranks, eagle3 K=3" in words_of(overrides=ranks)
    assert "1 instance of 2 x h100, eagle3" in words_of(overrides=ranks[1:2])


def test_a_schedule_that_ranks_set_aside_is_not_shown() -> None:
    schedule = "speculation.num_speculative_tokens_per_batch_size=[[1, 4, 3], [5, 9, 1]]"
    assert "eagle3 with a schedule" in words_of(overrides=(schedule,))
    assert "eagle3 K=3" in words_of(overrides=(schedule, "cluster.data_parallel_size=2"))


def test_memory_that_is_overdrawn_shows() -> None:
    memory_bytes = {"device_bytes": 80 * 2**30, "target_kv_bytes": 83 * 2**30, "headroom_bytes": -3 * 2**30}
    assert "target KV 83.0, headroom -3.0: 80.0 GiB" in words_of(changes={"memory_bytes": memory_bytes})


def test_what_the_prefix_cache_gave_is_said_where_it_gave_anything() -> None:
    assert "0 preemptions, 25.0% of the prompt tokens from the prefix cache GPU memory" in words_of(
        log={"cached_tokens": [0, 100, 50]}
    )
    assert "prefix cache" not in words_of()


def test_a_missed_slo_and_a_met_one_are_told_apart() -> None:
    assert "MISSED: 0.0% of the requests" in words_of()
    assert "met: 100.0% of the requests within TTFT <= 5.00 s" in words_of(
        overrides=("slo.ttft_s=5", "slo.tpot_s=null")
    )
    assert "SLO" not in words_of(overrides=("slo.ttft_s=null", "slo.tpot_s=null"))


def test_what_makes_numbers_doubtful_is_said() -> None:
    growth = {"requests": 120.0, "share_of_arrivals": 0.25}
    text = words_of(changes={"saturated": True, "queue_growth": growth}, warnings=("the profile is old",))
    assert "SATURATED: in the second half of the arrivals 120 more requests came than left, 25.0%" in text
    assert "warning: the profile is old" in text
    assert "an UPPER BOUND" in words_of(draft_cost="zero: upper bound", **with_speculation())
    assert "an UPPER BOUND" not in words_of(**with_speculation())


def test_requests_that_did_not_complete_are_counted() -> None:
    requests = {"offered": 9, "completed": 3, "rejected": 3, "cancelled": 0, "timed_out": 2, "failed": 1}
    assert "3 of 9 requests completed, 3 rejected, 2 timed out, 1 failed," in words_of(
        changes={"requests": requests}
    )


def test_a_cut_is_said_above_the_latencies() -> None:
    words = words_of(overrides=("workload.warmup=0.4", "workload.cooldown=0.25"))
    assert (
        "latencies, SLO and goodput are of 1 requests, without those that arrive in the first 800 ms and in "
        "the last 500 ms latency mean"
    ) in words
    assert "without those" not in words_of()


def batch_means(**changes: Any) -> dict[str, Any]:
    """Means by 20 batches; `changes` of TTFT, whose interval is 90 to 110 ms."""
    rate = {"value": 1000.0, "low": 980.0, "high": 1020.0, "effective_requests": None, "reason": None}
    ttft = {"value": 0.1, "low": 0.09, "high": 0.11, "effective_requests": 500.0, "reason": None}
    means = {"ttft_s": ttft | changes, "output_throughput_tok_s": rate, "slo_attainment": None}
    part = {"reason": None, "batches": 20, "requests": 1800, "start_s": 2.0, "end_s": 200.0}
    return {"batch_means": {**part, "means": means}}


def test_the_means_of_one_run_carry_half_of_their_intervals() -> None:
    assert (
        "steady means TTFT 100 ms ±10.0 ms, 1,000 ±20.0 output tokens/s; ± is half of the 95% interval, by "
        "20 batches of 90 requests, from 2.00 s to 200 s"
    ) in words_of(batch_means())


def test_intervals_that_cover_too_seldom_and_runs_that_are_too_short_are_named() -> None:
    few = words_of(batch_means(effective_requests=42.0))
    assert (
        "too narrow for TTFT: neighbouring requests are alike, and all of them tell as much as 42 independent"
        in few
    )
    none = dict.fromkeys(("value", "low", "high", "effective_requests"))
    short = words_of(batch_means(**none, reason="the requests tell as much as 3"))
    assert "the run is too short for TTFT" in short
    assert "steady means 1,000 ±20.0" in short
    assert "too short" not in words_of(batch_means(**none, reason="all batches are alike"))
    assert "no interval from this run alone: the run is saturated" in words_of(
        {"batch_means": {"reason": "the run is saturated", "batches": 20, "means": {}}}
    )


def test_wilson_s_interval_gives_way_to_that_of_batch_means() -> None:
    share = {"value": 0.9, "low": 0.85, "high": 0.95, "effective_requests": 200.0, "reason": None}
    changes = batch_means()
    assert "(95% interval 0.0% to 56.1%; wanted 90.0%)" in words_of(changes)
    changes["batch_means"]["means"]["slo_attainment"] = share
    assert "SLO 90.0% ±5.0%" in words_of(changes)
    assert "TPOT <= 50.0 ms (wanted 90.0%)" in words_of(changes)


def test_colours_are_only_there_when_asked_for() -> None:
    run = example_run()
    view = run_view(summarise(run), header_of(run), run.config.slo)
    assert "\x1b[" in to_text(view, 80, colours=True)
    assert "\x1b[" not in to_text(view, 80, colours=False)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_crossover_table_fits_the_terminal(width: int) -> None:
    arms = [f"K={length}" for length in range(10)]
    trials = [{**row, "arm": arm} for row in rows() for arm in (arms if row["arm"] == "K=3" else ["off"])]
    text = to_text(sweep_view(compare_arms(trials, "off", [RATE_AXIS]), "off", width, SHOWN), width, False)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    header_words = [word for line in text.splitlines() if "requests/s  " in line for word in line.split()]
    assert all(header_words.count(arm) == 2 for arm in arms)  # in the tables of throughput and of TPOT


def test_the_crossover_table_marks_wins_losses_ties_and_saturation() -> None:
    text = to_text(sweep_view(compare_arms(rows(), "off", [RATE_AXIS]), "off", 80, SHOWN), 80, False)
    text = " ".join(text.split())
    for words in (
        "output throughput: tokens/s, and ratio to it (above 1 is better) requests/s off K=3",
        " 2 199 1.000 [1.000, 1.000] = ",
        " 16 1,595* 0.900 [0.900, 0.900] -* ",
        " 2 19.9 ms 0.501 [0.499, 0.504] + ",
        "+ win, - loss, = tie",
        "K=3: faster per token than off up to 8 requests/s; "
        "loses throughput from 16 requests/s, where it is saturated.",
    ):
        assert words in text


def test_a_sweep_shows_the_values_that_it_is_asked_to_compare() -> None:
    """In that order: the p99 of TTFT grows with the rate, from half the baseline's."""
    shown = ("ttft_p99_s", "output_throughput_tok_s")
    text = to_text(sweep_view(compare_arms(rows(), "off", [RATE_AXIS]), "off", 80, shown), 80, False)
    text = " ".join(text.split())
    first, second = "time to first token (TTFT): p99, and ratio to it", "output throughput: tokens/s"
    assert 0 <= text.index(first) < text.index(second)
    assert "time per output token" not in text
    assert " 16 319 ms* 0.501 [0.499, 0.504] +* " in text
    lost = "loses throughput from 16 requests/s, where it is saturated."
    assert f"K=3: shorter p99 TTFT than off up to 8 requests/s; {lost}" in text


def test_a_baseline_that_could_be_nothing_is_not_said_to_be_of_one_seed() -> None:
    """Fieller's interval has no end where the baseline's mean could be 0: here 20, 1,000 and 20 tokens/s."""
    wild = [
        {**row, "output_throughput_tok_s": 1000.0 if row["seed"] == 1 else 20.0, "tpot_s.mean": 0.02}
        for row in rows()
    ]
    text = to_text(sweep_view(compare_arms(wild, "off", [RATE_AXIS]), "off", 160, SHOWN), 160, False)
    text = " ".join(text.split())
    assert " 2 347 1.00 ? " in text
    assert "? no interval: one seed, or a baseline too uncertain;" in text


def test_every_compared_value_has_a_title_and_words_for_the_sentence() -> None:
    assert list(TITLES) == list(COMPARED)
    assert {name: name in LOSSES for name in GAINS | LOSSES} == {
        name: more_is_better for name, (_, more_is_better) in COMPARED.items()
    }


def test_the_interval_shrinks_to_a_half_width_where_there_is_no_room() -> None:
    text = to_text(sweep_view(compare_arms(rows(), "off", [RATE_AXIS]), "off", 45, SHOWN), 45, False)
    assert "0.50 ±0.00 +" in text


def test_an_arm_that_never_wins_and_never_loses_says_so() -> None:
    same = [{**row, "tpot_s.mean": 0.02, "output_throughput_tok_s": 100.0} for row in rows()]
    sentences = list(crossover_sentences(compare_arms(same, "off", [RATE_AXIS]), "off", SHOWN))
    assert sentences == ["K=3: faster per token than off nowhere; loses throughput nowhere in the sweep."]


def test_wins_with_holes_are_listed() -> None:
    holes = [
        {**row, "saturated": False, "tpot_s.mean": 0.02 if row[RATE_AXIS] == 8 else row["tpot_s.mean"]}
        for row in rows()
    ]
    (sentence,) = crossover_sentences(compare_arms(holes, "off", [RATE_AXIS]), "off", SHOWN)
    assert "faster per token than off at 2, 16, 32 requests/s" in sentence


@pytest.mark.parametrize(
    ("value", "words"),
    [
        *((0.0, "0 s"), (1.5e-6, "1.50 us"), (0.00625, "6.25 ms"), (0.99949, "999 ms"), (1.0, "1.00 s")),
        *((0.9999999, "1.00 s"), (9.994, "9.99 s"), (9.996, "10.0 s"), (1234.5, "1,234 s"), (None, "-")),
    ],
)
def test_times_have_three_figures_and_a_unit(value: float | None, words: str) -> None:
    assert seconds(value) == words


def test_numbers_have_three_figures() -> None:
    assert [figures(value) for value in (0.5, 12.34, 99.96, 7236.4, None)] == [
        "0.50",
        "12.3",
        "100",
        "7,236",
        "-",
    ]
    assert (percent(0.1234), percent(None)) == ("12.3%", "-")


def test_a_command_to_copy_is_one_line_on_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    command = f"to simulate it again: python -m cluster_sim --config {'directory/' * 9}best.yaml"
    show_lines([command])
    assert capsys.readouterr().out == f"{command}\n"


def test_progress_off_a_terminal_is_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [0.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: now_s[0])
    stream = io.StringIO()
    with progress("sweep", "trials", stream) as report:
        for second in range(26):
            now_s[0] = float(second)
            report(second * 4, 200)
    assert stream.getvalue().splitlines() == [
        "sweep: 40 of 200 trials, 4.0/s, 40 s left",
        "sweep: 80 of 200 trials, 4.0/s, 30 s left",
    ]


def test_progress_promises_no_end_by_the_time_that_the_first_trial_was_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = [0.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: now_s[0])
    stream = io.StringIO()
    with progress("sweep", "trials", stream) as report:
        for second, done in ((60, 1), (70, 21)):
            now_s[0] = float(second)
            report(done, 101)
    assert stream.getvalue().splitlines() == [
        "sweep: 1 of 101 trials",
        "sweep: 21 of 101 trials, 2.0/s, 40 s left",
    ]


def test_short_work_off_a_terminal_prints_nothing() -> None:
    stream = io.StringIO()
    with progress("run", "requests", stream) as report:
        report(1, 2)
    assert stream.getvalue() == ""


def test_progress_on_a_terminal_is_a_bar() -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Screen()
    with progress("sweep", "trials", stream) as report:
        report(0, 10)
        report(5, 10)
    assert "sweep" in stream.getvalue()
    assert "5/10" in stream.getvalue()


def test_one_seed_judges_nothing_and_says_so() -> None:
    ratio = {"ratio": 0.6, "low": None, "high": None, "verdict": "unknown"}
    entry = {"axes": {"workload.request_rate": 2}, "output_throughput_tok_s": ratio, "tpot_s": ratio}
    comparison = {
        "arms": {},
        "vs_baseline": {"K=3": [entry]},
        "crossover": {"axis": "workload.request_rate", "arms": {"K=3": []}},
    }
    (sentence,) = crossover_sentences(comparison, "off", SHOWN)
    assert sentence.startswith("From one seed nothing is judged")
