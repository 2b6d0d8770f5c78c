"""Least squares with coefficients >= 0: times only add up.

Source: C. L. Lawson and R. J. Hanson, Solving Least Squares Problems (1974), chapter 23, algorithm NNLS. The
solution fulfils its Kuhn-Tucker conditions: no coefficient below 0; where one is 0, more of it would not
lessen the error; where one is above 0, the error does not change with it.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

_GRADIENT_TOLERANCE = 1e-10  # of columns and target of length 1
_MOST_ROUNDS_PER_COLUMN = 10


def nonnegative_least_squares(matrix: Floats, target: Floats) -> Floats:
    """The coefficients [column] >= 0 that minimise |matrix @ coefficients - target|; matrix[row, column].

    A column of zeros gets 0. Of columns that say the same, the first one is taken.

    Raises:
        ArithmeticError: it does not converge, which finite input does not cause.
    """
    lengths = np.linalg.norm(matrix, axis=0)
    scale = np.where(lengths > 0.0, lengths, 1.0)
    size = float(np.linalg.norm(target)) or 1.0
    orthogonal, triangle = np.linalg.qr(matrix / scale)  # the same errors, as many rows as columns
    return np.asarray(_solve(triangle, orthogonal.T @ (target / size)) * size / scale)


def _solve(matrix: Floats, target: Floats) -> Floats:
    """Let in the column that lessens the error most, until none does; put out those that turn negative."""
    columns = matrix.shape[1]
    coefficients, free = np.zeros(columns), np.zeros(columns, np.bool_)
    refused = np.zeros(columns, np.bool_)  # put out at once: rounding made them look useful
    for _ in range(_MOST_ROUNDS_PER_COLUMN * columns):
        gradient = np.where(free | refused, -np.inf, matrix.T @ (target - matrix @ coefficients))
        best = int(np.argmax(gradient))
        if gradient[best] <= _GRADIENT_TOLERANCE:
            return coefficients
        free[best] = True
        coefficients = _descend(matrix, target, coefficients, free)
        refused = np.zeros(columns, np.bool_) if free[best] else refused | (np.arange(columns) == best)
    raise ArithmeticError(f"non-negative least squares of {columns} columns did not converge")


def _descend(matrix: Floats, target: Floats, coefficients: Floats, free: Flags) -> Floats:
    """The least squares of the `free` columns, fewer of them (changed in place) where it is negative."""
    while True:
        wanted = np.zeros_like(coefficients)
        wanted[free] = np.linalg.lstsq(matrix[:, free], target, rcond=None)[0]
        negative = free & (wanted <= 0.0)
        if not negative.any():
            return wanted
        gap = coefficients[negative] - wanted[negative]
        share = float(np.min(coefficients[negative] / np.where(gap > 0.0, gap, 1.0)))
        coefficients = coefficients + share * (wanted - coefficients)
        free &= coefficients > np.finfo(np.float64).eps
        coefficients = np.where(free, coefficients, 0.0)
