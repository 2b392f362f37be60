"""Update rules by name against plain steps."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from descentlab.engine import OPTIMIZERS, optimizer, shrunk

W = {"sparse": jnp.array([0.3, -0.02, 0.0, 1.0]), "free": jnp.array([0.01, -2.0])}
G = {"sparse": jnp.array([1.0, 0.0, -0.5, 2.0]), "free": jnp.array([0.0, -1.0])}
ETA, LAM = 0.1, 0.4


def plain(name: str, w: np.ndarray, g: np.ndarray, sparse: bool) -> np.ndarray:
    """Two steps with the same gradient, number by number."""
    found = []
    for x, slope in zip(w, g, strict=True):
        m, v = 0.0, 0.0
        for t in (1, 2):
            if name == "sign":
                x -= ETA * float(np.sign(slope))
            elif name == "adam":
                m, v = 0.9 * m + 0.1 * slope, 0.999 * v + 0.001 * slope**2
                x -= ETA * (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)) ** 0.5 + 1e-8)
            else:
                x -= ETA * slope
                if name == "proximal" and sparse:
                    x = max(x - ETA * LAM, 0.0) if x > 0 else min(x + ETA * LAM, 0.0)
        found.append(x)
    return np.array(found)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_two_steps_are_the_plain_ones(name: str):
    rule, w = optimizer(name, ETA, lam=LAM, sparse=("sparse",)), W
    memory = rule.init(w)
    for _ in range(2):
        with jax.numpy_dtype_promotion("standard"):
            updates, memory = rule.update(G, memory, w)
        w = jax.tree.map(jnp.add, w, updates)
    for block, sparse in (("sparse", True), ("free", False)):
        expected = plain(name, np.asarray(W[block]), np.asarray(G[block]), sparse)
        np.testing.assert_allclose(w[block], expected, rtol=1e-12, atol=1e-15, err_msg=block)


def test_what_is_pulled_below_zero_is_zero_exactly():
    assert shrunk(jnp.array([0.2, -0.2, 0.05, -0.05]), 0.1).tolist() == [0.1, -0.1, 0.0, -0.0]
    rule: Any = optimizer("proximal", ETA, lam=LAM)
    updates, _ = rule.update(jnp.zeros(2), rule.init(None), jnp.array([0.03, 1 / 3]))
    assert float(jnp.array([0.03, 1 / 3])[0] + updates[0]) == 0.0
