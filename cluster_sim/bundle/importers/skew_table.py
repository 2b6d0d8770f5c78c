"""How much uneven KV lengths cost decodes: the share of the way from the mean's time to the longest's.

A kernel that splits the KV of a request over several blocks does not care. FlashAttention-2 splits while
requests * KV heads < 0.8 * 2 * SMs (num_splits_heuristic in its flash_api.cpp). Above that a request's KV is
one block's and the last blocks work alone; the share falls as the blocks grow in number (profiled: 0.07 at
512, 0.03 at 1,024). Between the threshold and the first profiled count of 512 blocks it is taken to rise
from 0: what was profiled there, with two lengths only, costs more than the measured runs show.
"""

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cluster_sim.bundle.grids import Axis
from cluster_sim.bundle.importers.csv_table import (
    COUNT,
    WORDS,
    Floats,
    Longs,
    Numbers,
    Rows,
    read_csv,
    refuse,
)

Grid = tuple[dict[str, Axis], NDArray[np.float64]]
SPLIT_SHARE = 0.8 * 2.0  # of the SMs
ENOUGH_BLOCKS = 512
ALPHA = Numbers(-1e3, 1e3)  # fitted: noise takes it out of 0 to 1


def read(file: Path, kv_heads: int, num_sms: int) -> Grid:
    """Table `decode_skew` of a bundle, from the rows without a prefill.

    Raises:
        UserError: the file is damaged, or has no such rows.
    """
    rows = read_csv(file, {"pc": COUNT, "n_label": WORDS, "alpha": ALPHA, "n_samples": COUNT})
    decodes = _decodes(rows)
    alone = (rows["pc"] == 0) & (decodes > 0)
    if not alone.any():
        refuse(file, "decodes must be profiled without a prefill, at n<=2 or more", "no row of pc 0")
    counts, alpha, weight = decodes[alone], rows["alpha"][alone], rows["n_samples"][alone]
    axis = np.unique(counts)
    share = np.array([_median(alpha[counts == count], weight[counts == count]) for count in axis])
    requests = np.arange(1, max(2, int(axis[-1])) + 1)
    threshold = SPLIT_SHARE * num_sms / kv_heads
    kept = axis * kv_heads >= max(ENOUGH_BLOCKS, SPLIT_SHARE * num_sms)
    if not kept.any():
        return {"requests": requests}, np.zeros(len(requests))
    rising = np.concatenate([[threshold], axis[kept]])
    values = np.interp(requests, rising, np.concatenate([[0.0], np.maximum(share[kept], 0.0)]))
    return {"requests": requests}, values


def _decodes(rows: Rows) -> Longs:
    """Of each row, the number of decodes that it was profiled at, 64 for n<=64; 0: an open label, n>256."""
    found = {label: _count(label) for label in np.unique(rows["n_label"]).tolist()}
    for line, label in zip(rows.line.tolist(), rows["n_label"].tolist(), strict=True):
        if not 0 <= found[label] <= COUNT.largest:
            refuse(rows.file, "column n_label must hold labels such as n<=64 and n>256", repr(label), line)
    return np.array([found[label] for label in rows["n_label"].tolist()], np.int64)


def _count(label: str) -> int:
    """The number in a label; -1 if it is none."""
    match = re.fullmatch(r"n(<=|>)([0-9]{1,9})", label)
    if match is None:
        return -1
    return int(match[2]) if match[1] == "<=" else 0


def _median(values: Floats, weight: Longs) -> float:
    """The value that half of the weight lies below."""
    order = np.argsort(values)
    total = np.cumsum(weight[order])
    return float(values[order][np.searchsorted(total, 0.5 * total[-1])])
