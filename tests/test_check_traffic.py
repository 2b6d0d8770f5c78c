"""Settings of the workload that are missing, contradict each other or would do nothing: one line each."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import trace_examples as examples

from cluster_sim.compose import compose
from cluster_sim.config import WorkloadConfig
from cluster_sim.errors import UserError
from cluster_sim.traffic_config import TrafficConfig
from cluster_sim.workload import build_workload

ONE_CLASS = "workload.classes={a: {share: 1.0"


def error_of(*overrides: str) -> str:
    with pytest.raises(UserError) as caught:
        compose(overrides)
    return str(caught.value)


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        (
            ["workload.burstiness=2"],
            "burstiness has no effect with arrivals=poisson, but got 2.0 (workload.burstiness). "
            "Set it to null, or choose gamma.",
        ),
        (
            ["workload.ends_on_time=true"],
            "ends_on_time has no effect with arrivals=poisson, but got true (workload.ends_on_time). "
            "Set it to null, or choose gamma.",
        ),
        (
            ["workload=ramp", "workload.request_rate=3"],
            "request_rate has no effect with arrivals=ramp, but got 3.0 (workload.request_rate). "
            "Set it to null, or choose poisson or gamma or constant or diurnal.",
        ),
        (
            ["workload.arrivals=diurnal"],
            "arrivals=diurnal needs amplitude, but got null (workload.amplitude). "
            "Choose workload=diurnal, which sets it, or set it.",
        ),
        (
            ["workload=ramp", "workload.end_rate=2"],
            "a ramp must lead from one rate to another, but got 2.0 (workload.end_rate). "
            "Choose workload=poisson.",
        ),
        (
            ["workload=ramp", "workload.end_rate=0"],
            "a ramp down to nothing needs its duration, but got null (workload.duration_s). "
            "Set it; nothing arrives after the ramp.",
        ),
        (
            ["workload=gamma", "workload.ends_on_time=true", "workload.duration_s=9"],
            "ends_on_time has no effect with a duration, but got true (workload.ends_on_time). "
            "Set workload.duration_s to null and workload.requests.",
        ),
        (
            ["workload.trace_end_s=9"],
            "trace_end_s has no effect without a trace, but got 9.0 (workload.trace_end_s). "
            "Leave it out, or give workload.trace.",
        ),
        (
            ["workload.trace=a.csv", "workload.trace_start_s=9", "workload.trace_end_s=9"],
            "a window must end after its start, 9 s, but got 9.0 (workload.trace_end_s). "
            "Raise it, or lower workload.trace_start_s.",
        ),
        (
            ["workload=bursts", "workload.trace=a.csv"],
            "calm_rate has no effect with a trace, which has its own times, but got 4.0 "
            "(workload.calm_rate). Leave workload.calm_rate or the trace out.",
        ),
        (
            ["workload=constant", "workload.trace=a.csv"],
            "arrivals has no effect with a trace, which has its own times, but got constant "
            "(workload.arrivals). Leave workload.arrivals or the trace out.",
        ),
        (
            ["workload.trace=a.csv", "workload.shared_prefix.tokens=16"],
            "shared_prefix.tokens has no effect with a trace, which has its own content, but got 16 "
            "(workload.shared_prefix.tokens). Leave workload.shared_prefix.tokens or the trace out.",
        ),
        (
            ["workload.shared_prefix.groups=3"],
            "groups has no effect without the tokens of a system prompt, but got 3 "
            "(workload.shared_prefix.groups). Set workload.shared_prefix.tokens, or leave it out.",
        ),
        (
            ["workload.turns.gap_s=3"],
            "gap_s has no effect without turns, but got 3.0 (workload.turns.gap_s). "
            "Set workload.turns.mean, or leave it out.",
        ),
        (
            ["workload.turns.mean=3"],
            "conversations need the time between their turns, but got null (workload.turns.gap_s). "
            "Set it to the mean time in s from one turn's arrival to the next.",
        ),
        (
            ["workload=gamma", "workload.ends_on_time=true", "workload.turns={mean: 2, gap_s: 1}"],
            "ends_on_time has no effect with conversations, but got true (workload.ends_on_time). "
            "Leave it or workload.turns out.",
        ),
        (
            ["workload.classes={}"],
            "classes must name some, but got {} (workload.classes). "
            "Write null, or name classes: {chat: {share: 0.8}, code: {share: 0.2}}.",
        ),
        (
            ["workload.classes={a: {share: 0.5}, b: {share: 0.4}}"],
            "the shares of the classes must add up to 1, but got 0.5 + 0.4 = 0.9 (workload.classes). "
            "Scale them.",
        ),
        (
            ["workload.classes={a: {prompt_tokens: 5}}"],
            "a class needs its share of the requests, but got null (workload.classes.a.share). "
            "Set it; the shares of all classes add up to 1.",
        ),
        (
            [ONE_CLASS + ", prompt_tokens: 0}}"],
            "a length in tokens must be at least 1, but got 0 (workload.classes.a.prompt_tokens). "
            "Set workload.classes.a.prompt_tokens to 1 or more.",
        ),
        (
            [ONE_CLASS + ", priority: 1}}"],
            "priority has no effect under engine.scheduling_policy=fcfs, but got 1 "
            "(workload.classes.a.priority). Set engine.scheduling_policy=priority.",
        ),
        (
            [ONE_CLASS + ", slo: {}}}"],
            "an SLO of a class must have a limit, but got none (workload.classes.a.slo). "
            "Set ttft_s, tpot_s or e2el_s, or leave slo out for the limits of all.",
        ),
        (
            [ONE_CLASS + ", slo: {ttft_s: -1}}}"],
            "the time to the first token in s must be above 0, but got -1.0 (workload.classes.a.slo.ttft_s). "
            "Set workload.classes.a.slo.ttft_s to a number above 0.",
        ),
        (
            ["workload.trace=a.csv", "workload.classes={a: {share: 0.5}}"],
            "share of a class has no effect with a trace, which brings its own, but got 0.5 "
            "(workload.classes.a.share). Leave it out; a trace's class can have an slo.",
        ),
        (
            ["workload.timeout_s=0"],
            "the time after which clients give up in s must be above 0, but got 0.0 (workload.timeout_s). "
            "Set workload.timeout_s to a number above 0.",
        ),
    ],
)
def test_a_setting_that_cannot_hold_gets_its_one_line(overrides: list[str], text: str) -> None:
    assert error_of(*overrides) == text


def test_classes_with_lengths_of_their_own_need_no_common_ones() -> None:
    own = ONE_CLASS + ", prompt_tokens: 5, output_tokens: 6}}"
    config = compose([own, "workload.prompt_tokens=null", "workload.output_tokens=null"])
    workload = build_workload(config.workload, 0, 16, 0)
    assert (workload.prompt_tokens[0], workload.output_tokens[0]) == (5, 6)


def test_a_window_of_a_trace_starts_at_zero_and_ends_before_its_end(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    trace.write_text(
        examples.lines(
            *(
                {"arrival_s": 7 + second, "prompt_tokens": 1 + second, "output_tokens": 1}
                for second in range(6)
            )
        )
    )
    config = WorkloadConfig(trace=str(trace), trace_start_s=1.5, trace_end_s=4.0)
    workload = build_workload(config, 0, 16, 0)
    assert workload.arrival_s.tolist() == [0.0, 1.0]
    assert workload.prompt_tokens.tolist() == [3, 4]
    assert workload.source == f"{trace} (JSON lines), from 1.5 s to 4 s"
    rescaled = dataclasses.replace(config, request_rate=2.0)
    assert build_workload(rescaled, 0, 16, 0).arrival_s.tolist() == [0.0, 0.5]
    with pytest.raises(UserError) as caught:
        build_workload(dataclasses.replace(config, trace_start_s=5.5, trace_end_s=None), 0, 16, 0)
    assert str(caught.value) == (
        f"a window must hold at least one request of the trace's 5 s, but got none from 5.5 s ({trace}) "
        "(workload.trace_start_s). Move the window."
    )
    with pytest.raises(UserError, match=r"a trace of 2 requests, from 1.5 s to 4 s cannot give more"):
        build_workload(dataclasses.replace(config, requests=3), 0, 16, 0)


CHANGES = {
    "trace_start_s": ("TRACE", {"trace_start_s": 1.0}),
    "trace_end_s": ("TRACE", {"trace_end_s": 1.0}),
    "arrivals": ("workload=poisson", {"arrivals": "constant"}),
    "burstiness": ("workload=gamma", {"burstiness": 2.0}),
    "ends_on_time": ("workload=gamma", {"ends_on_time": "true"}),
    "start_rate": ("workload=ramp", {"start_rate": 3.0}),
    "end_rate": ("workload=ramp", {"end_rate": 3.0}),
    "amplitude": ("workload=diurnal", {"amplitude": 0.1}),
    "period_s": ("workload=diurnal", {"period_s": 60.0}),
    "calm_rate": ("workload=bursts", {"calm_rate": 1.0}),
    "burst_rate": ("workload=bursts", {"burst_rate": 9.0}),
    "calm_s": ("workload=bursts", {"calm_s": 1.0}),
    "burst_s": ("workload=bursts", {"burst_s": 1.0}),
    "max_concurrency": ("workload=closed_loop", {"max_concurrency": 3}),
    "think_time_s": ("workload=closed_loop", {"think_time_s": 2.0}),
    "classes": ("workload=poisson", {"classes": "{a: {share: 1.0, prompt_tokens: 7}}"}),
    "shared_prefix": ("workload=poisson", {"shared_prefix.tokens": 64}),
    "turns": ("workload=poisson", {"turns": "{mean: 2, gap_s: 1}"}),
}
ELSEWHERE = {"timeout_s"}  # test_classes.py: it changes a run, not what is asked


def test_every_key_of_drawn_traffic_has_a_case() -> None:
    assert {field.name for field in dataclasses.fields(TrafficConfig)} == CHANGES.keys() | ELSEWHERE


@pytest.mark.parametrize("key", CHANGES)
def test_a_key_changes_the_workload(key: str, tmp_path: Path) -> None:
    first, change = CHANGES[key]
    trace = tmp_path / "trace"
    trace.write_text(examples.MOONCAKE)
    start = [f"workload.trace={trace}"] if first == "TRACE" else [first]
    plain, changed = (
        build_workload(compose([*start, *more]).workload, 0, 16, 0)
        for more in ([], [f"workload.{name}={value}" for name, value in change.items()])
    )
    columns = ("arrival_s", "prompt_tokens", "content_ids", "think_s", "clients")
    assert not all(np.array_equal(getattr(plain, name), getattr(changed, name)) for name in columns)
