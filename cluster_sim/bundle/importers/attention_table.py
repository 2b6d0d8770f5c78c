"""The profiled attention table as a prefill curve and what decodes add to it.

One kernel call serves a step's prefill chunk and its decodes. Alone, a chunk c after history h takes P(c, h);
n decodes of kv tokens beside it add A(c, 0, n, kv) - P(c, 0), at the longest chunk of the step, and hardly
anything depends on h (../shared/measured-runs/README.md, findings 2 and 3).

Between profiled chunks P(c, h) / c, the time of a query token, is taken linear in c, since the work of a
chunk is c (h + c / 2). History points below 512 tokens are left out: a partly filled tile makes them jump,
and the engine extends the line below 0.

Corners that were not profiled: a curve goes on along its last two points; decodes of a query length that was
not profiled beside a chunk cost what they do beside the nearest chunk with it.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cluster_sim.bundle.grids import Axis
from cluster_sim.bundle.importers.csv_table import COUNT, TIME_US, Floats, Longs, Rows, read_csv, refuse
from cluster_sim.bundle.importers.curves import along

Grid = tuple[dict[str, Axis], NDArray[np.float64]]
SHORTEST_HISTORY = 512
CHUNK_STEP = 32  # tokens between points of the resampled prefill curve
ENDS = 2  # points that a curve needs


@dataclass(frozen=True)
class Attention:
    """Tables `prefill_attention` and `decode_attention` of a bundle, seconds of all layers."""

    prefill: Grid
    decode: Grid


def read(file: Path, layers: int) -> Attention:
    """Both tables.

    Raises:
        UserError: the file is damaged, or lacks prefills, decodes or one end of a curve.
    """
    names = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode")
    columns = dict.fromkeys(names, COUNT) | {"time_us": TIME_US}
    shots = read_csv(file, columns, optional={"decode_q_len": (COUNT, 1)})
    shots.check_once(*names, "decode_q_len")
    prefills = shots.where((shots["n_decode"] == 0) & (shots["prefill_chunk"] > 0))
    decodes = shots.where((shots["n_decode"] > 0) & (shots["kv_prefill"] == 0))
    for rows, what in (
        (prefills, "prefills without decodes"),
        (decodes, "decodes without a prefill's history"),
    ):
        if not len(rows.line):
            refuse(file, f"{what} must be profiled", "none")
    if decodes["decode_q_len"].min() < 1:
        refuse(file, "column decode_q_len must hold 1 or more beside decodes", 0)
    alone = _alone(prefills)
    return Attention(_prefill(alone, layers), _decode(alone, decodes, layers))


def _alone(prefills: Rows) -> Rows:
    """Prefills after the histories that are kept, each once: decode_q_len says nothing about them."""
    history, query = prefills["kv_prefill"], prefills["decode_q_len"]
    return prefills.where((query == query.min()) & ((history == 0) | (history >= SHORTEST_HISTORY)))


def _prefill(alone: Rows, layers: int) -> Grid:
    chunks, history = np.unique(alone["prefill_chunk"]), np.unique(alone["kv_prefill"])
    if len(chunks) < ENDS:
        refuse(alone.file, "prefills must be profiled at two or more prefill_chunk", chunks.tolist())
    rows = [alone.where(alone["prefill_chunk"] == chunk) for chunk in chunks]
    for chunk, row in zip(chunks, rows, strict=True):
        if 0 not in row["kv_prefill"] or len(row.line) < ENDS:
            rule = f"prefill_chunk {chunk} must be profiled at kv_prefill 0 and {SHORTEST_HISTORY} or more"
            refuse(alone.file, rule, f"kv_prefill {row['kv_prefill'].tolist()}")
    grid = np.stack([along(row["kv_prefill"], row["time_us"], history) for row in rows])
    fine = np.unique(np.concatenate([chunks, np.arange(CHUNK_STEP, chunks[-1], CHUNK_STEP)]))
    fine = fine[fine >= chunks[0]]
    per_token = grid / chunks[:, np.newaxis]
    columns = [np.interp(fine, chunks, per_token[:, column]) for column in range(len(history))]
    axes: dict[str, Axis] = {"chunk_tokens": fine, "history_tokens": history}
    return axes, 1e-6 * layers * fine[:, np.newaxis] * np.stack(columns, axis=1)


def _decode(alone: Rows, decodes: Rows, layers: int) -> Grid:
    """[query, chunk, decodes, kv]; chunk 0 is no prefill, and a chunk shorter than profiled the shortest."""
    query, chunks, kv = (np.unique(decodes[name]) for name in ("decode_q_len", "prefill_chunk", "kv_decode"))
    counts = np.unique(decodes["n_decode"])
    if chunks[0] != 0:
        refuse(
            decodes.file, "decodes must be profiled without a prefill", f"prefill_chunk {chunks[0]} or more"
        )
    base_us = np.array([0.0, *(_without_decodes(alone, chunk) for chunk in chunks[1:])])
    added = np.zeros((len(query), len(chunks), 1 + len(counts), len(kv)))
    for place, length in enumerate(query):
        of_query = decodes.where(decodes["decode_q_len"] == length)
        known = np.unique(of_query["prefill_chunk"])
        for column, chunk in enumerate(chunks):
            nearest = known[np.abs(known - chunk).argmin()]
            rows = of_query.where(of_query["prefill_chunk"] == nearest)
            base = base_us[np.searchsorted(chunks, nearest)]
            added[place, column, 1:] = np.maximum(_of_shapes(rows, counts, kv) - base, 0.0)
    if len(chunks) == 1 or chunks[1] > 1:
        shortest = added[:, min(1, len(chunks) - 1)]
        chunks, added = np.insert(chunks, 1, 1), np.insert(added, 1, shortest, axis=1)
    axes: dict[str, Axis] = {"query_tokens": query, "chunk_tokens": chunks}
    return {**axes, "requests": np.insert(counts, 0, 0), "kv_tokens": kv}, 1e-6 * layers * added


def _of_shapes(rows: Rows, counts: Longs, kv: Longs) -> Floats:
    """[decodes, kv] of one query length beside one chunk."""
    known = np.unique(rows["n_decode"])
    curves = []
    for count in known:
        row = rows.where(rows["n_decode"] == count)
        if len(row.line) < ENDS:
            rule = f"n_decode {count} must be profiled at two or more kv_decode"
            refuse(rows.file, rule, row["kv_decode"].tolist(), int(row.line[0]))
        curves.append(along(row["kv_decode"], row["time_us"], kv))
    if len(known) < ENDS:
        chunk = rows["prefill_chunk"][0]
        rule = f"decodes beside prefill_chunk {chunk} must be profiled at two or more n_decode"
        refuse(rows.file, rule, known.tolist(), int(rows.line[0]))
    grid = np.stack(curves)
    return np.stack([along(known, grid[:, column], counts) for column in range(len(kv))], axis=1)


def _without_decodes(alone: Rows, chunk: int) -> float:
    """Microseconds of a chunk without history that decodes were profiled beside."""
    (row,) = np.nonzero((alone["prefill_chunk"] == chunk) & (alone["kv_prefill"] == 0))
    if not len(row):
        refuse(alone.file, f"prefill_chunk {chunk} must be profiled without decodes and history", "none")
    return float(alone["time_us"][row[0]])
