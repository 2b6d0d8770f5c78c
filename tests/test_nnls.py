"""Non-negative least squares: the Kuhn-Tucker conditions of Lawson and Hanson (1974), chapter 23."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_sim.bundle.importers.nnls import nonnegative_least_squares

SHAPES = st.tuples(st.integers(1, 30), st.integers(1, 12), st.integers(0, 2**32 - 1), st.booleans())


@given(SHAPES)
def test_no_change_of_a_coefficient_lessens_the_error(shape):
    """With A x near b: x >= 0, and A'(b - A x) is 0 where x > 0 and not above 0 where x = 0."""
    rows, columns, seed, is_correlated = shape
    random = np.random.default_rng(seed)
    matrix, target = random.standard_normal((rows, columns)), random.standard_normal(rows)
    if is_correlated:
        matrix = np.cumsum(np.abs(matrix), axis=1)
    found = nonnegative_least_squares(matrix, target)
    gradient = matrix.T @ (target - matrix @ found)
    tolerance = 1e-8 * np.linalg.norm(matrix, axis=0) * np.linalg.norm(target)
    assert (found >= 0).all()
    assert (gradient <= tolerance).all()
    assert (np.abs(gradient[found > 0]) <= tolerance[found > 0]).all()


def test_positive_coefficients_are_those_of_least_squares():
    matrix, wanted = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]), np.array([3.0, 0.5])
    assert nonnegative_least_squares(matrix, matrix @ wanted) == pytest.approx(wanted)


def test_what_would_be_negative_is_zero():
    """A falling line: the best that does not fall is the mean, 2."""
    matrix = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
    assert nonnegative_least_squares(matrix, np.array([3.0, 2.0, 1.0])) == pytest.approx([2.0, 0.0])


def test_columns_that_differ_by_twelve_orders_of_magnitude_are_told_apart():
    matrix = np.array([[1.0, 1e9], [1.0, 3e9], [1.0, 7e9]])
    wanted = np.array([5e-3, 4e-12])
    assert nonnegative_least_squares(matrix, matrix @ wanted) == pytest.approx(wanted)


@pytest.mark.parametrize("target", [[0.0, 0.0], [1.0, 1.0]])
def test_columns_without_content_get_nothing(target):
    matrix = np.array([[0.0, 1.0, 1.0], [0.0, 1.0, 1.0]])
    found = nonnegative_least_squares(matrix, np.array(target))
    assert found == pytest.approx([0.0, target[0], 0.0])
