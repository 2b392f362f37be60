"""Extreme eigenvalues by Lanczos' method."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from descentlab.engine import extreme_eigenvalues


def ends(A: np.ndarray, products: int = 32) -> tuple[float, float]:
    M = jnp.asarray(A)
    found = extreme_eigenvalues(lambda x: M @ x, jnp.zeros(len(A)), jax.random.key(1), products)
    return float(found.least), float(found.largest)


def symmetric(values: np.ndarray, size: int) -> np.ndarray:
    """A matrix with these eigenvalues, and zero for the rest."""
    basis = np.linalg.qr(np.random.default_rng(0).standard_normal((size, size)))[0][:, : len(values)]
    return (basis * values) @ basis.T


@pytest.mark.parametrize("values", [[7.0], [-3.0, 5.0], [2.0, 2.0, 2.0], [-1e6, 1.0, 1e6], [1e-9, -2e-9]])
def test_a_map_of_low_rank_has_no_values_but_its_own_and_zero(values: list[float]):
    least, largest = ends(symmetric(np.array(values), 60))
    size = max(abs(v) for v in values)
    assert least == pytest.approx(min(*values, 0.0), abs=1e-7 * size)
    assert largest == pytest.approx(max(*values, 0.0), abs=1e-7 * size)


def test_the_zero_map_has_only_zero():
    assert ends(np.zeros((9, 9))) == (0.0, 0.0)


def test_a_whole_spectrum_is_approached_from_inside():
    values = np.linspace(-1, 3, 200)
    A = symmetric(values, 200)
    found = [ends(A, products) for products in (8, 16, 32, 64)]
    assert all(least >= -1 - 1e-9 and largest <= 3 + 1e-9 for least, largest in found)
    errors = [(least + 1) + (3 - largest) for least, largest in found]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-2


def test_trees_keep_their_shape():
    like = {"a": jnp.zeros((2, 3)), "b": jnp.zeros(4)}
    found = extreme_eigenvalues(
        lambda x: {"a": 2.0 * x["a"], "b": -x["b"]}, like, jax.random.key(0), products=5
    )
    assert (float(found.least), float(found.largest)) == pytest.approx((-1.0, 2.0))
