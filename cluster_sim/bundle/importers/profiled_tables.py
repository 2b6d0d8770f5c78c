"""A bundle from the per-layer tables of LLMServingSim's profiler (github.com/casys-kaist/LLMServingSim).

    meta.yaml              model, hardware, engine version, what was profiled
    tpN/dense.csv          layer, tokens, time_us
    tpN/per_sequence.csv   layer (lm_head, sampler), sequences, time_us
    tpN/attention.csv      prefill_chunk, kv_prefill, n_decode, kv_decode, [decode_q_len,] time_us
    tpN/moe.csv            [ep,] tokens, activated_experts, time_us      models with experts
    tpN/skew_fit.csv       pc, n_label, alpha, n_samples                 may be missing
    tpN/mtp.csv            layer (mtp_..), sequences, time_us            may be missing

Times are microseconds of one layer's kernels on one GPU. What the tables do not hold comes from
bundles/assumptions.yaml, bundles/servers.yaml or conf/hardware, with its source.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cluster_sim.bundle.architecture import BYTES_PER_VALUE, Parallel, kv_heads, moe_layers
from cluster_sim.bundle.assumptions import assumptions
from cluster_sim.bundle.draft_tables import ALL_REDUCES_PER_LAYER, drafter_parameters
from cluster_sim.bundle.format import ALL_REDUCE, DECODE_SKEW, MOE, PARAMETERS, Bundle, facts_of
from cluster_sim.bundle.grids import DRAFTER, Axis, Table
from cluster_sim.bundle.importers import (
    attention_table,
    dense_table,
    layer_table,
    moe_table,
    mtp_table,
    skew_table,
)
from cluster_sim.bundle.importers.csv_table import Longs
from cluster_sim.bundle.importers.profile import Profile, check_is_of
from cluster_sim.bundle.kernels import Kernels
from cluster_sim.bundle.sections import Parameter
from cluster_sim.bundle.servers import Server, all_reduce_s
from cluster_sim.config import HardwareConfig, ModelConfig
from cluster_sim.speculation.proposer import Drafter, drafters_of

LICENCE = "MIT (LLMServingSim, Copyright (c) 2024-2026 CASYS Lab at KAIST)"
MTP = "mtp"
ROUTING_EXPONENT = Parameter(
    1.0,
    "Exponent of the tokens in the expected number of active experts; 1: tokens choose independently.",
    "assumption: no routing was measured; ../shared/measured-runs/README.md, finding 7, found it to fit",
    "facts",
)


@dataclass(frozen=True)
class Target:
    """What was profiled, in the configuration's words."""

    profile: Profile
    model: ModelConfig
    hardware: HardwareConfig
    server: Server | None  # None: not known, its properties are assumed

    @property
    def parallel(self) -> Parallel:
        """How its GPUs share the model."""
        return Parallel(self.profile.tensor_parallel_size)

    def table(self, axes: dict[str, Axis], time_s: NDArray[np.float64], how: str) -> Table:
        """A table of the profile."""
        source = f"profiled by LLMServingSim: {self.profile.gpu}, vLLM {self.profile.vllm_version}; {how}"
        return Table(axes, time_s, source, LICENCE)


def lacks_experts(profile: Profile, model: ModelConfig) -> bool:
    """Whether a profile of a model with experts has no table of them: they are profiled whole, at tp1."""
    return bool(model.num_experts) and not (profile.directory / "moe.csv").exists()


def read_profile(
    profile: Profile, model: ModelConfig, hardware: HardwareConfig, server: Server | None
) -> Bundle:
    """The bundle of one tensor parallel size; without a known server its properties are assumed.

    Raises:
        UserError: a table is missing, damaged, or of another model.
    """
    check_is_of(profile, model)
    target = Target(profile, model, hardware, server)
    drafters, tables = _drafters(target), _tables(target)
    return Bundle(
        name=f"{model.name}-{hardware.name}-measured-tp{profile.tensor_parallel_size}",
        kind="measured",
        engine=f"vLLM {profile.vllm_version}, graphs of 0.33.0",
        dtype=model.dtype,
        tensor_parallel_size=profile.tensor_parallel_size,
        model=facts_of(model),
        hardware=facts_of(hardware),
        parameters=_parameters(target),
        drafters=drafter_parameters(model, hardware, drafters),
        tables=tables | (_mtp_tables(target, drafters[MTP], tables) if drafters else {}),
    )


def _tables(target: Target) -> dict[str, Table]:
    at, model = target.profile.directory, target.model
    dense = dense_table.read(at / "dense.csv", model)
    head = layer_table.read(at / "per_sequence.csv", "sequences")
    head.check_layers({"lm_head", "sampler"}, set(), "")
    head_s = head.sum_s({"lm_head": 1, "sampler": 1})
    attention = attention_table.read(at / "attention.csv", model.num_hidden_layers)
    found = {
        "dense": target.table(
            {"tokens": dense.counts}, dense_table.step_s(dense, model), "dense.csv, sum of the layers"
        ),
        "head": target.table({"rows": head.counts}, head_s, "per_sequence.csv, lm_head and sampler"),
        "prefill_attention": target.table(*attention.prefill, "attention.csv without decodes"),
        "decode_attention": target.table(*attention.decode, "attention.csv less its prefill alone"),
    }
    skew = at / "skew_fit.csv"
    if skew.exists():
        how = "skew_fit.csv without a prefill, by number of decodes; 0 where the kernel splits the KV"
        heads = kv_heads(model, target.parallel)
        found[DECODE_SKEW] = target.table(*skew_table.read(skew, heads, target.hardware.num_sms), how)
    if target.parallel.tensor_parallel_size > 1:
        calls = ALL_REDUCES_PER_LAYER * model.num_hidden_layers + 1  # and the embedding, cut by vocabulary
        one = _all_reduce(target, dense.counts)
        found[ALL_REDUCE] = replace(one, time_s=calls * one.time_s)
    if model.num_experts:
        tokens, experts, layer_s = moe_table.read(at / "moe.csv", model)
        axes: dict[str, Axis] = {"tokens": tokens, "experts": experts}
        found[MOE] = target.table(axes, moe_layers(model) * layer_s, "moe.csv")
    return found


def _all_reduce(target: Target, tokens: Longs) -> Table:
    """One all-reduce as the server does it, else as the fit of the hardware has it: none is profiled."""
    gpus, model, hardware = target.parallel.tensor_parallel_size, target.model, target.hardware
    if target.server is not None and gpus in target.server.all_reduce:
        known = target.server.all_reduce[gpus]
        size_bytes = tokens.astype(np.float64) * (model.hidden_size * BYTES_PER_VALUE)
        return Table({"tokens": tokens}, all_reduce_s(known, size_bytes), known.source, known.licence)
    time_s = Kernels(model, hardware, target.parallel).all_reduce_s(tokens)
    source = f"not profiled; fit of conf/hardware: {hardware.source}"
    return Table({"tokens": tokens}, time_s, source, hardware.licence)


def _drafters(target: Target) -> dict[str, Drafter]:
    """The MTP module, if it was profiled."""
    file = target.profile.directory / mtp_table.FILE
    if not file.exists() or mtp_table.is_of_no_use(file.parent, target.model):
        return {}
    return {MTP: drafters_of(target.model, target.parallel)[MTP]}


def _mtp_tables(target: Target, drafter: Drafter, tables: dict[str, Table]) -> dict[str, Table]:
    """A pass of the module, over a step's tokens or one a request, and its lm_head and choice."""
    at, model, head = target.profile.directory, target.model, tables["head"]
    dense = dense_table.read(at / "dense.csv", model)
    tokens, how = dense.counts, "mtp.csv and one layer of dense.csv"
    pass_s = mtp_table.around_layer_s(at / mtp_table.FILE, tokens) + dense_table.mtp_layer_s(dense, model)
    if model.num_experts:
        grid = moe_table.read(at / "moe.csv", model)
        pass_s = pass_s + moe_table.expected_s(grid, model, target.parallel, tokens)
        how += " and moe.csv, tokens choosing experts independently"
    if target.parallel.tensor_parallel_size > 1:
        one = _all_reduce(target, tokens)
        pass_s = pass_s + (ALL_REDUCES_PER_LAYER * drafter.layers_of_a_pass + 1) * one.time_s
        how += f"; all-reduces: {one.source}"
    axis: dict[str, Axis] = {DRAFTER: np.array([MTP])}
    return {
        "draft_first": target.table({**axis, "tokens": tokens}, pass_s[np.newaxis], how),
        "draft_next": target.table({**axis, "requests": tokens}, pass_s[np.newaxis], how),
        "draft_head": replace(head, axes={**axis, **head.axes}, time_s=head.time_s[np.newaxis]),
    }


def _parameters(target: Target) -> dict[str, Parameter]:
    known = {name: entry for name, entry in assumptions().parameters.items() if name in PARAMETERS}
    largest = "max_cudagraph_capture_tokens"
    known[largest] = replace(known[largest], value=float(target.hardware.max_cudagraph_capture_tokens))
    if target.model.num_experts:
        known["expert_routing_exponent"] = ROUTING_EXPONENT
    if target.server is None:
        return known
    return known | target.server.parameters(target.parallel.tensor_parallel_size)
