"""The numbers of a bundle that may be fitted: the host's seconds a step, and one factor for each part.

    host_overhead_s  CPU time of one step (the bundle's host_s)
    gpu              all tables and drafters' times together; or apart:
    dense            dense, head, moe, all_reduce
    attention        prefill_attention, decode_attention
    drafter          draft_first, draft_next, draft_head, and the drafters' times per pass and KV token

A factor multiplies all times of its part; gaps and launches between kernels stay as they are, and so does
decode_skew, which is a share of the attention.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cluster_sim.bundle.format import ALL_REDUCE, DECODE_SKEW, DRAFT_TABLES, MOE, Bundle
from cluster_sim.bundle.sections import Parameter
from cluster_sim.config import Config, DraftCost
from cluster_sim.errors import UserError

HOST, GPU, DENSE, ATTENTION, DRAFTER = "host_overhead_s", "gpu", "dense", "attention", "drafter"
NAMES = (HOST, GPU, DENSE, ATTENTION, DRAFTER)
HOST_S = "host_s"
TABLES = {
    DENSE: ("dense", "head", MOE, ALL_REDUCE),
    ATTENTION: ("prefill_attention", "decode_attention"),
    DRAFTER: tuple(DRAFT_TABLES),
}
DRAFTER_TIMES = ("prepare_s", "pass_launch_s", "attention_s_per_kv_token")
WHERE = "--fit"


def check(names: Sequence[str], config: Config, bundle: Bundle) -> None:
    """Refuse names that are none, come twice, overlap, or have nothing to scale under this configuration.

    Raises:
        UserError: naming the first one.
    """
    for name in names:
        if name not in NAMES or names.count(name) > 1:
            rule = f"the numbers to fit are among {', '.join(NAMES)}, each once"
            raise UserError(rule, name or "an empty name", WHERE, "Correct the list.")
    apart = [name for name in names if name in TABLES]
    if GPU in names and apart:
        rule = f"{GPU} is all of the bundle's tables together"
        raise UserError(rule, f"{GPU} and {apart[0]}", WHERE, f"Leave {GPU} or {', '.join(apart)} out.")
    if HOST in names and config.engine.host_overhead_s is not None:
        given = f"engine.host_overhead_s={config.engine.host_overhead_s:g}"
        raise UserError(f"{HOST} is given or fitted", given, WHERE, "Leave one of them out.")
    if HOST in names and bundle.parameters[HOST_S].value == 0.0:
        rule, remedy = f"a fit starts from the bundle's {HOST_S}, above 0", "Choose another bundle."
        raise UserError(rule, "0", f"bundle {bundle.name}", remedy)
    method = config.speculation.method.name
    if DRAFTER in names and (
        method not in bundle.drafters or config.speculation.draft_cost is not DraftCost.bundle
    ):
        rule = f"bundle {bundle.name} must hold the drafter's times, to scale them"
        got = f"draft_cost {config.speculation.draft_cost.name} of method {method}"
        raise UserError(rule, got, WHERE, f"Leave {DRAFTER} out.")


def scaled(bundle: Bundle, factors: Mapping[str, float], name: str, note: str) -> Bundle:
    """`bundle` under a new name, with each fitted part times its factor; `note` goes before its sources."""
    of_table = {
        table: factors.get(part, factors.get(GPU, 1.0)) for part, of in TABLES.items() for table in of
    }
    tables = dict(bundle.tables)
    for table, factor in of_table.items():
        if table in tables and factor != 1.0 and table != DECODE_SKEW:
            was = tables[table]
            source = f"times {factor:.6g}, {note}; before: {was.source}"
            tables[table] = replace(was, time_s=was.time_s * factor, source=source)
    parameters = dict(bundle.parameters)
    parameters[HOST_S] = _times(parameters[HOST_S], factors.get(HOST, 1.0), note)
    of_drafters = factors.get(DRAFTER, factors.get(GPU, 1.0))
    drafters = {
        drafter: {
            key: _times(one, of_drafters if key in DRAFTER_TIMES else 1.0, note) for key, one in known.items()
        }
        for drafter, known in bundle.drafters.items()
    }
    return replace(bundle, name=name, parameters=parameters, drafters=drafters, tables=tables)


def _times(one: Parameter, factor: float, note: str) -> Parameter:
    if factor == 1.0:
        return one
    return replace(one, value=one.value * factor, source=f"times {factor:.6g}, {note}; before: {one.source}")
