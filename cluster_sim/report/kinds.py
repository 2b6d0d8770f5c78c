"""What serves the requests, in words; and, where instances differ, how each kind of them fared."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table

from cluster_sim.config import Config, EngineConfig, Method
from cluster_sim.engine_defaults import resolve_speculation
from cluster_sim.instances import InstanceKind
from cluster_sim.report.words import NOTHING, figures, percent, seconds
from cluster_sim.schema import shown

# what follows from another limit, unless it is set
FOLLOWS = {"max_num_scheduled_tokens": "max_num_batched_tokens", "max_num_active_seqs": "max_num_seqs"}


def cluster_words(model: str, kinds: Sequence[InstanceKind]) -> str:
    """The model, the instances that serve it, and how they draft."""
    count = sum(len(kind.instances) for kind in kinds)
    instances = f"{model}, {count} instance{'s' * (count != 1)}"
    if len(kinds) == 1:
        return f"{instances} of {_server(kinds[0].config)}, {_drafter(kinds[0].config)}"
    limits = _different_limits([kind.config.engine for kind in kinds])
    each = (
        ", ".join([f"{kind.name} of {_server(kind.config)}", _drafter(kind.config), *own])
        for kind, own in zip(kinds, limits, strict=True)
    )
    return f"{instances}: {'; '.join(each)}"


def kinds_table(parts: Mapping[str, Mapping[str, Any]]) -> Table:
    """A row for each kind of instance, from by_instance_kind of summary.json."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("instances")
    for column in ("requests", "TTFT p99", "TPOT mean", "tokens/s", "AL", "batch", "KV"):
        table.add_column(column, justify="right", no_wrap=True)
    for name, part in parts.items():
        table.add_row(name, *_row(part))
    return table


def _row(part: Mapping[str, Any]) -> Iterator[str]:
    yield f"{part['requests']['offered']:,}"
    yield seconds(part["ttft_s"]["p99"])
    yield seconds(part["tpot_s"]["mean"])
    yield figures(part["output_throughput_tok_s"])
    yield NOTHING if part["acceptance_length"] is None else f"{part['acceptance_length']:.2f}"
    yield figures(part["batch_size"]["mean"])
    yield percent(part["kv_usage"]["mean"])


def _server(config: Config) -> str:
    ranks = config.cluster.data_parallel_size
    gpus = config.cluster.tensor_parallel_size * ranks
    server = config.hardware.name if gpus == 1 else f"{gpus} x {config.hardware.name}"
    return f"{server} in {ranks} ranks" if ranks > 1 else server


def _drafter(config: Config) -> str:
    if config.speculation.method is Method.none:
        return "no speculation"
    speculation = resolve_speculation(config.speculation, config.cluster, config.engine)
    by_size = speculation.num_speculative_tokens_per_batch_size
    length = f"K={config.speculation.num_speculative_tokens}"
    return f"{config.speculation.method.name} {length if by_size is None else 'with a schedule'}"


def _different_limits(engines: Sequence[EngineConfig]) -> list[list[str]]:
    """For each engine: the flags in which they differ, with its values."""
    names = [field.name for field in dataclasses.fields(EngineConfig)]
    different = [name for name in names if len({getattr(engine, name) for engine in engines}) > 1]
    return [
        [
            f"{name}={shown(getattr(engine, name))}"
            for name in different
            if name not in FOLLOWS or getattr(engine, name) != getattr(engine, FOLLOWS[name])
        ]
        for engine in engines
    ]
