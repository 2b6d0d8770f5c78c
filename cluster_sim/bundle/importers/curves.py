"""Lines through profiled points."""

import numpy as np
from numpy.typing import NDArray

from cluster_sim.bundle.importers.csv_table import Floats


def along(axis: NDArray[np.generic], values: Floats, at: NDArray[np.generic]) -> Floats:
    """`values` on `axis` (two or more points, in any order) at other points.

    Linear between points, along the last two beyond them, as the first before them; never below 0.
    """
    order = np.argsort(axis)
    known, known_values = axis[order].astype(np.float64), values[order]
    wanted = at.astype(np.float64)
    slope = (known_values[-1] - known_values[-2]) / (known[-1] - known[-2])
    beyond = np.maximum(wanted - known[-1], 0.0) * slope
    return np.asarray(np.maximum(np.interp(wanted, known, known_values) + beyond, 0.0))
