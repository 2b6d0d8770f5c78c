"""From tables of each kind of instance to the engine's, which have a row for each engine core.

Tables of kinds differ in length. The shorter ones are filled up so that every look-up gives what it gives in
a table of the kind alone, to the last bit:

    axes and what is interpolated on them   the first point again, in front: clamping and slopes stay
    graphs of query lengths                 a mixed batch, as for a length without a graph; the last: no graph
    query lengths of attention              the longest that there is, as the engine takes it
    all else                                nan behind the end: it is never read, and would be seen
"""

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cluster_sim.engine.rules import StepTime
from cluster_sim.engine.tables import Floats, Longs, Table
from cluster_sim.step_tables import StepArrays

Row = TypeVar("Row")
INTERPOLATED = (
    "prefill_chunk_tokens",
    "prefill_history_tokens",
    "prefill_attention_s",
    "decode_chunk_tokens",
    "decode_requests",
    "decode_kv_tokens",
)
LOOKED_UP = ("experts_s", "head_s", "decode_skew", "draft_first_s", "draft_more_s", "draft_kv_s")


def rows_of(tables: Sequence[Table[Row]], kind_of: Longs) -> Table[Row]:
    """One row for each entry of `kind_of`: the only row of that kind's table."""
    stacked: Any = np.concatenate([np.asarray(table) for table in tables])[kind_of]
    rows: Table[Row] = stacked.view(np.recarray)
    return rows


def lengths_of(lookups: Sequence[Longs], kind_of: Longs) -> Longs:
    """Draft lengths by batch size [row, requests], filled up with the last one of each kind."""
    longest = max(map(len, lookups))
    return np.stack([np.pad(one, (0, longest - len(one)), mode="edge") for one in lookups])[kind_of]


def step_time_of(arrays: Sequence[StepArrays], kind_of: Longs) -> StepTime:
    """The step times of all kinds: the bundle of a row is that of its kind."""
    tables = {name: [np.asarray(getattr(one, name), np.float64) for one in arrays] for name in _TABLES}
    return StepTime(
        bundle_of=kind_of,
        host_s=np.array([one.host_s for one in arrays], np.float64)[kind_of],
        slowdown=np.ones(len(kind_of)),
        captured_tokens=np.array([one.captured_tokens for one in arrays], np.int64),
        dense_s=_stacked([_with_graphs(one, tables["dense_s"]) for one in tables["dense_s"]], _behind),
        decode_attention_s=_stacked(tables["decode_attention_s"], _around_queries),
        **{name: _stacked(tables[name], _in_front) for name in INTERPOLATED},
        **{name: _stacked(tables[name], _behind) for name in LOOKED_UP},
    )


_TABLES = (*INTERPOLATED, *LOOKED_UP, "dense_s", "decode_attention_s")


def _stacked(tables: Sequence[Floats], filled: Any) -> Floats:
    """`tables` on a leading axis, each `filled` by as many entries as it lacks of each axis."""
    shape = np.array([table.shape for table in tables]).max(axis=0)
    return np.stack([filled(table, shape - table.shape) for table in tables])


def _in_front(table: Floats, missing: NDArray[np.int64]) -> Floats:
    return np.pad(table, [(count, 0) for count in missing], mode="edge")


def _behind(table: Floats, missing: NDArray[np.int64]) -> Floats:
    return np.pad(table, [(0, count) for count in missing], constant_values=np.nan)


def _around_queries(table: Floats, missing: NDArray[np.int64]) -> Floats:
    """The first axis is that of query lengths."""
    return np.pad(table, [(0, missing[0]), *((count, 0) for count in missing[1:])], mode="edge")


def _with_graphs(table: Floats, tables: Sequence[Floats]) -> Floats:
    """[graph, tokens] with as many graphs as the most of `tables`."""
    missing = max(map(len, tables)) - len(table)
    return np.concatenate([table[:-1], np.repeat(table[:1], missing, axis=0), table[-1:]])
