"""Mean and percentiles: of values, of counts in bins, of counts of whole numbers."""

import numpy as np

from cluster_sim.engine.tables import Floats, Longs

PERCENTILES = (50, 90, 95, 99)


def distribution(values: Floats) -> dict[str, float | None]:
    """Mean and percentiles (numpy's linear interpolation) of `values`; all None when there are none."""
    if len(values) == 0:
        return dict.fromkeys(("mean", *(f"p{percent}" for percent in PERCENTILES)))
    quantiles = np.percentile(values, PERCENTILES)
    names = (f"p{percent}" for percent in PERCENTILES)
    return {"mean": float(values.mean()), **dict(zip(names, quantiles.tolist(), strict=True))}


def histogram_percentile(counts: Longs, edges: Floats, percent: float) -> float:
    """The value below which `percent` (above 0) of the counted lie, spread evenly over their bins.

    Bin i is from edges[i] to edges[i + 1]. The sample's percentile lies in the same bin, or at the edge that
    it shares with the next: the error is no more than a bin's width.
    """
    below = np.concatenate(([0], np.cumsum(counts)))
    rank = percent / 100 * below[-1]
    bin_of = int(np.searchsorted(below[1:], rank, side="left"))
    inside = (rank - below[bin_of]) / counts[bin_of]
    return float(edges[bin_of] + inside * (edges[bin_of + 1] - edges[bin_of]))


def counted_percentile(counts: Longs, percent: float) -> float:
    """The linear percentile (as numpy's) of a sample that holds the number i counts[i] times."""
    rank = percent / 100 * (int(counts.sum()) - 1)
    through = np.cumsum(counts)
    low, high = np.searchsorted(through, [np.floor(rank), np.ceil(rank)], side="right")
    return float(low + (rank - np.floor(rank)) * (high - low))
