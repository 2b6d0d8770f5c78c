"""One simulation on the terminal: who waits, how fast, what speculation did, memory, warnings."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from cluster_sim.client_report import is_of_closed_loop
from cluster_sim.client_report import words_of as client_words
from cluster_sim.config import LimitsConfig, SloConfig
from cluster_sim.fault_report import words_of as fault_words
from cluster_sim.instances import kinds_of
from cluster_sim.report.classes import classes_table
from cluster_sim.report.closed_loop import run_below_the_flip
from cluster_sim.report.intervals import measured_lines, steady_words, wilson_words
from cluster_sim.report.kinds import cluster_words, kinds_table
from cluster_sim.report.optimum import tables_words
from cluster_sim.report.words import GIB, cached_words, figures, percent, seconds, slo_limits
from cluster_sim.results import Run

LATENCIES = {
    "queue_s": "waits in the queue",
    "ttft_s": "first token (TTFT)",
    "tpot_s": "each further token (TPOT)",
    "itl_s": "between chunks (ITL)",
    "e2el_s": "whole answer (E2E)",
}
COLUMNS = ("mean", "p50", "p90", "p95", "p99")
SHOWN_GIB = 0.05  # a smaller part of memory would show as 0.0


def to_text(view: RenderableType, width: int, colours: bool) -> str:
    """`view` as text of at most `width` columns, with ANSI colours or without."""
    console = Console(width=width, force_terminal=colours, color_system="standard" if colours else None)
    with console.capture() as capture:
        console.print(view)
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"


def header_of(run: Run) -> str:
    """What was simulated, in a line."""
    return f"{cluster_of(run)}; {run.workload_source}"


def cluster_of(run: Run) -> str:
    """The model, what serves it, and how it drafts."""
    number = len(run.config.cluster.faults or ())
    faults = f", {number} fault{'s' * (number > 1)}" if number else ""
    return cluster_words(run.config.model.name, kinds_of(run.config)) + faults


def run_view(
    summary: Mapping[str, Any],
    header: str,
    slo: SloConfig,
    own_limits: Mapping[str, LimitsConfig] | None = None,
) -> RenderableType:
    """The summary of one simulation, to be read in ten seconds; `own_limits`: those of some classes."""
    return Group(
        Text(header, style="bold"),
        Text(_outcome(summary)),
        *[Text(line) for line in measured_lines(summary)],
        _latency_table(summary),
        *([kinds_table(summary["by_instance_kind"])] if "by_instance_kind" in summary else []),
        *([classes_table(summary["classes"])] if "classes" in summary else []),
        _facts(dict(_fact_lines(summary, slo, own_limits or {}))),
        *[Text(f"warning: {line}", style="yellow") for line in _warnings(summary)],
    )


def _outcome(summary: Mapping[str, Any]) -> str:
    requests = summary["requests"]
    words = [f"{requests['completed']:,} of {requests['offered']:,} requests completed"]
    for name in ("rejected", "cancelled", "timed_out", "failed"):
        if requests[name]:
            words.append(f"{requests[name]:,} {name.replace('_', ' ')}")
    return f"{', '.join(words)}, in {seconds(summary['simulated_s'])} of simulated time"


def _latency_table(summary: Mapping[str, Any]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("latency")
    for column in COLUMNS:
        table.add_column(column, justify="right", no_wrap=True)
    for name, words in LATENCIES.items():
        table.add_row(words, *(seconds(summary[name][column]) for column in COLUMNS))
    return table


def _facts(lines: Mapping[str, str]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, words in lines.items():
        table.add_row(name, Text(words))
    return table


def _fact_lines(
    summary: Mapping[str, Any], slo: SloConfig, own_limits: Mapping[str, LimitsConfig]
) -> Iterator[tuple[str, str]]:
    yield (
        "throughput",
        f"{figures(summary['output_throughput_tok_s'])} output tokens/s, "
        f"{figures(summary['request_throughput_rps'])} requests/s",
    )
    cost = summary["cost"]
    if cost["per_million_output_tokens"] is not None:
        words = f"{cost['per_million_output_tokens']:,.3g} per million output tokens"
        yield "cost", f"{words}, at {figures(cost['per_hour'])} an hour for all GPUs, idle or not"
    if summary.get("batch_means"):
        yield "steady means", steady_words(summary["batch_means"])
    if summary["slo_attainment"] is not None:
        is_met = summary["slo_attainment"] >= slo.attainment
        yield (
            "SLO",
            f"{'met' if is_met else 'MISSED'}: {percent(summary['slo_attainment'])} of the requests within "
            f"{_limits(slo, own_limits)} ({wilson_words(summary)}wanted {percent(slo.attainment)}), "
            f"{figures(summary['slo_goodput_rps'])} good requests/s",
        )
    yield "speculation", _speculation(summary)
    if summary["acceptance_length"] is not None:
        yield "acceptance", summary["acceptance_source"]
        yield "chunks", _chunks(summary)
    for words, part in _of_one_instance(summary):
        if part.get("optimum"):
            yield f"tables{words}", tables_words(part["optimum"])
    for words in client_words(summary):
        yield "clients", words
    shares = summary["time_share"]
    yield (
        "time",
        f"target {percent(shares['target'])}, drafter {percent(shares['draft'])}, waiting for the host "
        f"{percent(shares['host'])}, idle {percent(shares['idle'])}",
    )
    size = summary["batch_size"]
    yield (
        "batch",
        f"{figures(size['mean'])} requests a step (p50 {figures(size['p50'])}, p99 {figures(size['p99'])}), "
        f"{summary['steps']:,} steps",
    )
    usage = summary["kv_usage"]
    yield (
        "KV memory",
        f"{percent(usage['mean'])} used (at most {percent(usage['max'])}), "
        f"{summary['preemptions']:,} preemptions{cached_words(summary['tokens'])}",
    )
    for words, part in _of_one_instance(summary):
        yield f"GPU memory{words}", _memory(part["memory_bytes"])
    if summary["faults"]:
        yield "faults", _faults(summary)


def _of_one_instance(summary: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What is said of each kind of instance, and which these are; of all at once where they are alike."""
    if "by_instance_kind" not in summary:
        yield "", summary
    for name, part in summary.get("by_instance_kind", {}).items():
        yield f" of {name}", part


def _limits(slo: SloConfig, own_limits: Mapping[str, LimitsConfig]) -> str:
    """What the requests must meet: the limits of all, and those of some classes instead."""
    own = [f"{name}: {slo_limits(limits)}" for name, limits in own_limits.items()]
    return "; ".join([slo_limits(slo) or "no limit", *own])


def _speculation(summary: Mapping[str, Any]) -> str:
    if summary["acceptance_length"] is None:
        return "no token was drafted"
    tokens = summary["tokens"]
    positions = " ".join(percent(share).removesuffix("%") for share in summary["acceptance_by_position"])
    cost = _draft_cost(summary["draft_cost"])
    return (
        f"acceptance length {summary['acceptance_length']:.2f}, rate {percent(summary['acceptance_rate'])}: "
        f"{tokens['drafted']:,} drafted, {tokens['accepted']:,} accepted, {tokens['rejected']:,} rejected; "
        f"accepted by position, %: {positions}; {cost}"
    )


def _draft_cost(source: str) -> str:
    """Where the drafter's time comes from, in words (cluster_sim/drafting.py, cost_words)."""
    if source.startswith("zero"):
        return "the drafter costs nothing here: an UPPER BOUND"
    return f"the drafter's cost: {source}"


def _chunks(summary: Mapping[str, Any]) -> str:
    """What a client sees: the tokens that come together, and gaps with and without a prefill in the step."""
    chunk, kinds = summary["chunk_tokens"], summary["itl_by_step"]
    words = (
        f"{figures(chunk['mean'])} tokens each (p50 {figures(chunk['p50'])}, p99 {figures(chunk['p99'])}), "
        f"{figures(summary['chunk_throughput_per_s'])} chunks/s"
    )
    if not kinds["mixed"]["gap_share"]:
        return words
    return (
        f"{words}; ITL p50 {seconds(kinds['decode_only']['p50'])}, and {seconds(kinds['mixed']['p50'])} "
        f"where the step has a prefill ({percent(kinds['mixed']['step_share'])} of the steps)"
    )


def _faults(summary: Mapping[str, Any]) -> str:
    happened = [fault_words(row) for row in summary["faults"] if row["came_true"]]
    return "; ".join([*happened, f"{summary['retries']:,} retries"])


def _memory(memory_bytes: Mapping[str, int]) -> str:
    """The parts of one GPU's memory in GiB, without those that show as nothing."""
    sizes = {name.removesuffix("_bytes").replace("_", " "): size / GIB for name, size in memory_bytes.items()}
    device = sizes.pop("device")
    shown = [
        f"{name.replace('kv', 'KV')} {size:.1f}" for name, size in sizes.items() if abs(size) >= SHOWN_GIB
    ]
    return f"{', '.join(shown)}: {device:.1f} GiB"


def _warnings(summary: Mapping[str, Any]) -> Iterator[str]:
    if summary["saturated"]:
        growth = summary["queue_growth"]
        yield (
            f"SATURATED: in the second half of the arrivals {figures(growth['requests'])} more requests came "
            f"than left, {percent(growth['share_of_arrivals'])} of those that came. The throughput is the "
            "capacity, and latencies grow with the length of the run"
        )
    if summary["saturated"] is None and not is_of_closed_loop(summary):
        yield "too few arrivals to tell whether the cluster keeps up with them"
    unsent = summary["clients"]["unsent_turns"] if "clients" in summary else 0
    if unsent:
        yield f"{unsent:,} turns were never sent: a conversation ends with a turn that gets no answer"
    yield from run_below_the_flip(summary)
    yield from summary["warnings"]
