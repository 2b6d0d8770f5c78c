"""One simulation on the terminal: who waits, how fast, what speculation did, memory, warnings."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from cluster_sim.config import Method, SloConfig
from cluster_sim.report.words import figures, gib, percent, seconds, slo_limits
from cluster_sim.results import Run

LATENCIES = {
    "queue_s": "waits in the queue",
    "ttft_s": "first token (TTFT)",
    "tpot_s": "each further token (TPOT)",
    "itl_s": "between chunks (ITL)",
    "e2el_s": "whole answer (E2E)",
}
COLUMNS = ("mean", "p50", "p90", "p95", "p99")


def to_text(view: RenderableType, width: int, colours: bool) -> str:
    """`view` as text of at most `width` columns, with ANSI colours or without."""
    console = Console(width=width, force_terminal=colours, color_system="standard" if colours else None)
    with console.capture() as capture:
        console.print(view)
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"


def header_of(run: Run) -> str:
    """What was simulated, in a line."""
    config = run.config
    gpus = config.cluster.tensor_parallel_size
    instance = config.hardware.name if gpus == 1 else f"{gpus} x {config.hardware.name}"
    drafter = "no speculation"
    if config.speculation.method is not Method.none:
        by_size = config.speculation.num_speculative_tokens_per_batch_size
        length = f"K={config.speculation.num_speculative_tokens}"
        drafter = f"{config.speculation.method.name} {length if by_size is None else 'with a schedule'}"
    instances = f"{config.cluster.instances} instance{'s' * (config.cluster.instances != 1)}"
    return f"{config.model.name}, {instances} of {instance}, {drafter}; {run.workload_source}"


def run_view(summary: Mapping[str, Any], header: str, slo: SloConfig) -> RenderableType:
    """The summary of one simulation, to be read in ten seconds."""
    return Group(
        Text(header, style="bold"),
        Text(_outcome(summary)),
        _latency_table(summary),
        _facts(dict(_fact_lines(summary, slo))),
        *[Text(f"warning: {line}", style="yellow") for line in _warnings(summary)],
    )


def _outcome(summary: Mapping[str, Any]) -> str:
    requests = summary["requests"]
    words = [f"{requests['completed']:,} of {requests['offered']:,} requests completed"]
    for name in ("rejected", "cancelled", "timed_out"):
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
        table.add_row(name, words)
    return table


def _fact_lines(summary: Mapping[str, Any], slo: SloConfig) -> Iterator[tuple[str, str]]:
    yield (
        "throughput",
        f"{figures(summary['output_throughput_tok_s'])} output tokens/s, "
        f"{figures(summary['request_throughput_rps'])} requests/s",
    )
    if summary["slo_attainment"] is not None:
        low, high = summary["slo_attainment_interval"]
        is_met = summary["slo_attainment"] >= slo.attainment
        yield (
            "SLO",
            f"{'met' if is_met else 'MISSED'}: {percent(summary['slo_attainment'])} of the requests within "
            f"{slo_limits(slo)} (95% interval {percent(low)} to {percent(high)}; wanted "
            f"{percent(slo.attainment)}), {figures(summary['slo_goodput_rps'])} good requests/s",
        )
    yield "speculation", _speculation(summary)
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
        f"{summary['preemptions']:,} preemptions",
    )
    yield "GPU memory", _memory(summary["memory_bytes"])


def _speculation(summary: Mapping[str, Any]) -> str:
    if summary["acceptance_length"] is None:
        return "no token was drafted"
    tokens = summary["tokens"]
    positions = " ".join(percent(share).removesuffix("%") for share in summary["acceptance_by_position"])
    bound = "; the drafter costs nothing here: an UPPER BOUND" if summary["draft_cost"] != "bundle" else ""
    return (
        f"acceptance length {summary['acceptance_length']:.2f}, rate {percent(summary['acceptance_rate'])}: "
        f"{tokens['drafted']:,} drafted, {tokens['accepted']:,} accepted, {tokens['rejected']:,} rejected; "
        f"accepted by position, %: {positions}{bound}"
    )


def _memory(memory_bytes: Mapping[str, int]) -> str:
    parts = {name: size for name, size in memory_bytes.items() if name.endswith("_bytes") and size}
    return ", ".join(
        f"{name.removesuffix('_bytes').replace('_', ' ')} {gib(size)}" for name, size in parts.items()
    )


def _warnings(summary: Mapping[str, Any]) -> Iterator[str]:
    if summary["saturated"]:
        growth = summary["queue_growth"]
        yield (
            f"SATURATED: in the second half of the arrivals {figures(growth['requests'])} more requests came "
            f"than left, {percent(growth['share_of_arrivals'])} of those that came. The throughput is the "
            "capacity, and latencies grow with the length of the run"
        )
    if summary["saturated"] is None:
        yield "too few arrivals to tell whether the cluster keeps up with them"
    yield from summary["warnings"]
