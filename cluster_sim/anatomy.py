"""What a step of decodes is made of, by batch size: parts by the engine's own rules of time (decode_time.py).

Attention, head, drafter and what the GPU waits for the host are those that the engine adds up. What a table
of kernels takes (dense, experts, all-reduce) is what the step loses with zeros in its place, as if launching
took no time; what ranks exchange is what is left then. Launching is what the step takes beyond its kernels:
nothing in a full CUDA graph, else gaps between layers and waiting for the CPU.

Conserved: the parts of a step add up to the time of the step.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cluster_sim.build import find_bundle
from cluster_sim.bundle.format import ALL_REDUCE, MOE, Bundle
from cluster_sim.bundle.knee import dense_knee_tokens, experts_knee_tokens
from cluster_sim.config import Config
from cluster_sim.decode_time import clock_of_parts, decode_batch
from cluster_sim.drafting import as_vllm_runs_it, draft_length
from cluster_sim.engine.after_schedule import Batch
from cluster_sim.flips import MOST_KINDS, kind_of
from cluster_sim.instances import kinds_of
from cluster_sim.optimum import timing_of, traffic_of
from cluster_sim.speculation.schedule import dense_lookup
from cluster_sim.trial import Trial

SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
KERNELS = {"dense": "dense", MOE: "experts", ALL_REDUCE: "all_reduce"}  # table -> part
LAUNCHING = (
    "piecewise_layer_gap_s",
    "piecewise_layer_launch_s",
    "eager_layer_launch_s",
    "eager_overhead_s",
)  # parameters of a bundle
Parts = dict[str, float]  # part -> s


def anatomy_of(config: Config, kv_tokens: float) -> dict[str, Any]:
    """What summary.json holds of it: for each batch size of decodes at `kv_tokens`, parts of a step in s.

    The draft lengths are those in force under `config`, whose schedule is resolved; batches are those that a
    step has room for. A part that is nothing at any batch size is left out.

    Raises:
        UserError: the configuration or its bundle is wrong, or does not fit.
    """
    bundle, batches = find_bundle(config), _batches(config, kv_tokens)
    parts = _parts(config, bundle, batches)
    present = {name: times_s for name, times_s in parts.items() if any(times_s)}
    return {
        "kv_tokens": kv_tokens,
        "bundle_kind": bundle.kind,
        "batch_size": [batch.requests for batch in batches],
        "draft_length": [batch.query_tokens - 1 for batch in batches],
        "step_s": [sum(times_s) for times_s in zip(*parts.values(), strict=True)],
        "parts_s": present,
        "knee_tokens": {
            "dense": dense_knee_tokens(config.model, config.hardware),
            "experts": experts_knee_tokens(config.model, config.hardware),
        },
    }


def anatomies_of(trials: Sequence[Trial], axis: str | None) -> dict[str, list[dict[str, Any]]]:
    """Arm -> an entry per combination of the axes other than `axis`, the traffic: its `axes` and anatomy_of.

    None for an arm whose instances differ, and none at all for more than MOST_KINDS different configurations.
    """
    places: dict[str, dict[str, tuple[dict[str, object], Config]]] = {}
    for trial in trials:
        alike = kinds_of(trial.config)
        axes = {name: value for name, value in trial.point.items() if name != axis}
        if len(alike) == 1:
            places.setdefault(trial.arm, {}).setdefault(repr(axes), (axes, kind_of(alike[0].config)))
    kinds = {repr(config): config for each in places.values() for _, config in each.values()}
    if len(kinds) > MOST_KINDS:
        return {}
    found = {key: anatomy_of(config, traffic_of(config).kv_tokens) for key, config in kinds.items()}
    return {
        arm: [{"axes": axes, **found[repr(config)]} for axes, config in each.values()]
        for arm, each in places.items()
    }


def _batches(config: Config, kv_tokens: float) -> list[Batch]:
    """Those of SIZES that a step has room for, each with the draft length in force."""
    setting = as_vllm_runs_it(config)
    seats, most = int(setting.engine.max_num_seqs or 0), draft_length(config)
    ranges = setting.config.speculation.num_speculative_tokens_per_batch_size
    lengths = np.full(seats + 1, most) if ranges is None else dense_lookup(ranges, seats, most)
    sizes = [size for size in SIZES if size <= seats]
    batches = [decode_batch(size, int(lengths[size]), kv_tokens) for size in sizes]
    return [batch for batch in batches if batch.tokens <= int(setting.engine.max_num_scheduled_tokens or 0)]


def _parts(config: Config, bundle: Bundle, batches: list[Batch]) -> Mapping[str, list[float]]:
    unlaunched = _with_parameters(bundle, dict.fromkeys(LAUNCHING, 0.0))
    without = {part: _without(unlaunched, name) for name, part in KERNELS.items() if name in bundle.tables}
    clocks = {
        name: clock_of_parts(timing_of(config, changed))
        for name, changed in {"": bundle, "launch": unlaunched, **without}.items()
    }

    def parts(batch: Batch) -> Parts:
        drafts = batch.query_tokens - 1
        target_s = {name: step_parts(batch, drafts).target_s for name, step_parts in clocks.items()}
        step, kernels_s = clocks[""](batch, drafts), target_s["launch"]
        found = {part: kernels_s - target_s[part] for part in without}
        found |= {"attention": step.attention_s, "head": step.head_s}
        exchange_s = kernels_s - sum(found.values()) if config.cluster.data_parallel_size > 1 else 0.0
        launch_s = step.target_s - kernels_s
        return {
            **found,
            "exchange": exchange_s,
            "launch": launch_s,
            "draft": step.draft_s,
            "host": step.host_s,
        }

    each = [parts(batch) for batch in batches]
    return {name: [one[name] for one in each] for name in each[0]} if each else {}


def _without(bundle: Bundle, name: str) -> Bundle:
    table = bundle.tables[name]
    return replace(bundle, tables={**bundle.tables, name: replace(table, time_s=0.0 * table.time_s)})


def _with_parameters(bundle: Bundle, values: Mapping[str, float]) -> Bundle:
    changed = {name: replace(bundle.parameters[name], value=value) for name, value in values.items()}
    return replace(bundle, parameters={**bundle.parameters, **changed})
