"""What types cannot say of drawn traffic and of traces: what a process needs, and what would do nothing."""

from collections.abc import Mapping
from typing import Any, NoReturn

from cluster_sim.bounds import BOUNDS, LARGEST_COUNT, Bound
from cluster_sim.config import Arrivals, ClassConfig, LimitsConfig, SchedulingPolicy, WorkloadConfig
from cluster_sim.errors import UserError
from cluster_sim.lengths import parse_lengths
from cluster_sim.schema import shown
from cluster_sim.waiting import is_limited

# key -> the processes that it is of
OWNERS = {
    "request_rate": (Arrivals.poisson, Arrivals.gamma, Arrivals.constant, Arrivals.diurnal),
    "burstiness": (Arrivals.gamma,),
    "ends_on_time": (Arrivals.gamma,),
    "start_rate": (Arrivals.ramp,),
    "end_rate": (Arrivals.ramp,),
    "amplitude": (Arrivals.diurnal,),
    "period_s": (Arrivals.diurnal,),
    "calm_rate": (Arrivals.bursts,),
    "burst_rate": (Arrivals.bursts,),
    "calm_s": (Arrivals.bursts,),
    "burst_s": (Arrivals.bursts,),
    "max_concurrency": tuple(Arrivals),
    "think_time_s": (Arrivals.closed_loop,),
}
OF_TRACES = ("trace_start_s", "trace_end_s")
SMALLEST_DIFFERENCE = 1e-6  # shares written with six digits add up to 1
SHARE = Bound("the share of a class", above=True, high=1)
PRIORITY = Bound("a priority", low=-LARGEST_COUNT, high=LARGEST_COUNT)


def check_traffic(workload: WorkloadConfig, policy: SchedulingPolicy) -> None:
    """Raise for the first setting of the workload that is missing, out of bounds or has no effect.

    Raises:
        UserError: worded with the rule, the value, its key and what to do.
    """
    if workload.trace is None:
        for key in OF_TRACES:
            if getattr(workload, key) is not None:
                _no_effect(workload, key, "without a trace", "Leave it out, or give workload.trace.")
        _check_arrivals(workload)
    else:
        _check_trace(workload)
    _check_prefix(workload)
    _check_turns(workload)
    for name, one in (workload.classes or {}).items():
        _check_class(name, one, has_trace=workload.trace is not None)
        if one.priority and policy is SchedulingPolicy.fcfs:
            where, remedy = f"workload.classes.{name}.priority", "Set engine.scheduling_policy=priority."
            _refuse("priority has no effect under engine.scheduling_policy=fcfs", one.priority, where, remedy)
    if workload.classes is not None:
        _check_shares(workload.classes, has_trace=workload.trace is not None)


def needs_lengths(workload: WorkloadConfig, key: str) -> bool:
    """Whether workload.prompt_tokens, or output_tokens, is that of some class or of all requests."""
    return not workload.classes or any(getattr(one, key) is None for one in workload.classes.values())


def needs_rate(workload: WorkloadConfig) -> bool:
    """Whether the process of drawn arrivals goes by workload.request_rate."""
    return workload.arrivals in OWNERS["request_rate"]


def _check_arrivals(workload: WorkloadConfig) -> None:
    kind = workload.arrivals
    for key, owners in OWNERS.items():
        value = getattr(workload, key)
        if kind not in owners and value not in (None, False):
            others = " or ".join(owner.name for owner in owners)
            _no_effect(workload, key, f"with arrivals={kind.name}", f"Set it to null, or choose {others}.")
        is_needed = key != "request_rate" and (key != "max_concurrency" or kind is Arrivals.closed_loop)
        if kind in owners and value is None and is_needed:
            remedy = f"Choose workload={kind.name}, which sets it, or set it."
            _refuse(f"arrivals={kind.name} needs {key}", None, f"workload.{key}", remedy)
    if kind is Arrivals.ramp:
        _check_ramp(workload)
    if kind is Arrivals.closed_loop and workload.requests is None:
        rule = "a closed loop needs the number of its requests, which no rate tells"
        _refuse(rule, None, "workload.requests", "Set it; workload.duration_s may end the loop earlier.")
    if workload.ends_on_time and workload.duration_s is not None:
        remedy = "Set workload.duration_s to null and workload.requests."
        _no_effect(workload, "ends_on_time", "with a duration", remedy)


def _check_ramp(workload: WorkloadConfig) -> None:
    start, end = workload.start_rate or 0.0, workload.end_rate or 0.0
    if start == end:
        remedy = "Choose workload=poisson."
        _refuse("a ramp must lead from one rate to another", end, "workload.end_rate", remedy)
    if end == 0.0 and workload.duration_s is None:
        rule = "a ramp down to nothing needs its duration"
        _refuse(rule, None, "workload.duration_s", "Set it; nothing arrives after the ramp.")


def _check_trace(workload: WorkloadConfig) -> None:
    for key in OWNERS:
        if key != "request_rate" and getattr(workload, key) not in (None, False):
            remedy = f"Leave workload.{key} or the trace out."
            _no_effect(workload, key, "with a trace, which has its own times", remedy)
    if workload.arrivals is not Arrivals.poisson:
        remedy = "Leave workload.arrivals or the trace out."
        _no_effect(workload, "arrivals", "with a trace, which has its own times", remedy)
    for key, value in (
        ("shared_prefix.tokens", workload.shared_prefix.tokens),
        ("turns.mean", workload.turns.mean),
    ):
        if value is not None:
            rule = f"{key} has no effect with a trace, which has its own content"
            _refuse(rule, value, f"workload.{key}", f"Leave workload.{key} or the trace out.")
    start_s, end_s = workload.trace_start_s or 0.0, workload.trace_end_s
    if end_s is not None and start_s >= end_s:
        rule = f"a window must end after its start, {start_s:g} s"
        _refuse(rule, end_s, "workload.trace_end_s", "Raise it, or lower workload.trace_start_s.")


def _check_prefix(workload: WorkloadConfig) -> None:
    prefix = workload.shared_prefix
    if prefix.tokens is None:
        for key, value, default in (("groups", prefix.groups, 1), ("share", prefix.share, 1.0)):
            if value != default:
                where = f"workload.shared_prefix.{key}"
                remedy = "Set workload.shared_prefix.tokens, or leave it out."
                _refuse(f"{key} has no effect without the tokens of a system prompt", value, where, remedy)


def _check_turns(workload: WorkloadConfig) -> None:
    turns = workload.turns
    if turns.mean is None and turns.gap_s is not None:
        remedy = "Set workload.turns.mean, or leave it out."
        _refuse("gap_s has no effect without turns", turns.gap_s, "workload.turns.gap_s", remedy)
    if turns.mean is None and turns.after_answer:
        remedy, where = "Set workload.turns.mean, or leave it out.", "workload.turns.after_answer"
        _refuse("after_answer has no effect without turns", turns.after_answer, where, remedy)
    if turns.mean is not None and workload.arrivals is Arrivals.closed_loop and not turns.after_answer:
        rule, where = "a client of a closed loop waits for an answer", "workload.turns.after_answer"
        _refuse(rule, turns.after_answer, where, "Set it to true.")
    if turns.mean is not None and is_limited(workload):
        rule = "a limit on what is under way holds requests back, and not turns of conversations"
        remedy = "Leave it or workload.turns out, or choose workload=closed_loop."
        _refuse(rule, workload.max_concurrency, "workload.max_concurrency", remedy)
    if turns.mean is not None and turns.gap_s is None:
        remedy = "Set it to the mean time in s from one turn's arrival to the next."
        _refuse("conversations need the time between their turns", None, "workload.turns.gap_s", remedy)
    if turns.mean is not None and workload.ends_on_time:
        _no_effect(workload, "ends_on_time", "with conversations", "Leave it or workload.turns out.")


def _check_class(name: str, one: ClassConfig, has_trace: bool) -> None:
    where = f"workload.classes.{name}"
    if not name.isprintable() or not name.strip():
        _refuse("a class must have a name", name, "workload.classes", "Rename it.")
    given = {key: getattr(one, key) for key in ("share", "prompt_tokens", "output_tokens", "priority")}
    for key, value in given.items():
        if has_trace and value not in (None, 0):
            rule = f"{key} of a class has no effect with a trace, which brings its own"
            _refuse(rule, value, f"{where}.{key}", "Leave it out; a trace's class can have an slo.")
    for key in ("prompt_tokens", "output_tokens"):
        if given[key] is not None:
            parse_lengths(given[key], f"{where}.{key}")
    for key, bound in (("share", SHARE), ("priority", PRIORITY)):
        _check_bound(given[key], bound, f"{where}.{key}")
    if one.slo is not None:
        _check_limits(one.slo, f"{where}.slo")


def _check_limits(limits: LimitsConfig, where: str) -> None:
    values = {key: getattr(limits, key) for key in ("ttft_s", "tpot_s", "e2el_s")}
    for key, value in values.items():
        _check_bound(value, BOUNDS[f"slo.{key}"], f"{where}.{key}")
    if all(value is None for value in values.values()):
        remedy = "Set ttft_s, tpot_s or e2el_s, or leave slo out for the limits of all."
        _refuse("an SLO of a class must have a limit", "none", where, remedy)


def _check_shares(classes: Mapping[str, ClassConfig], has_trace: bool) -> None:
    if not classes:
        remedy = "Write null, or name classes: {chat: {share: 0.8}, code: {share: 0.2}}."
        _refuse("classes must name some", "{}", "workload.classes", remedy)
    if has_trace:
        return
    for name, one in classes.items():
        if one.share is None:
            _refuse(
                "a class needs its share of the requests",
                None,
                f"workload.classes.{name}.share",
                "Set it; the shares of all classes add up to 1.",
            )
    whole = sum(one.share or 0.0 for one in classes.values())
    if abs(whole - 1.0) > SMALLEST_DIFFERENCE:
        got = " + ".join(f"{one.share:g}" for one in classes.values()) + f" = {whole:g}"
        _refuse("the shares of the classes must add up to 1", got, "workload.classes", "Scale them.")


def _check_bound(value: Any, bound: Bound, where: str) -> None:
    broken = None if value is None else bound.broken(value)
    if broken is not None:
        must_be, instead = broken
        _refuse(f"{bound.quantity} must be {must_be}", value, where, f"Set {where} to {instead}.")


def _no_effect(workload: WorkloadConfig, key: str, why: str, remedy: str) -> NoReturn:
    _refuse(f"{key} has no effect {why}", getattr(workload, key), f"workload.{key}", remedy)


def _refuse(rule: str, got: object, where: str, remedy: str) -> NoReturn:
    raise UserError(rule, got if isinstance(got, str) else shown(got), where, remedy)
