"""The four teachers, the positional encodings, and the laws of inputs: what a task is drawn from.

Functions take the paper's preset `p`.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from descentlab.engine import chosen, float_dtype, normal

# What a teacher sets unless it is given; M = 0 stands for M = d.
TEACHERS: dict[str, dict[str, Any]] = {
    "cnn": {"D": 36, "K": 4, "M": 5, "activation": "relu"},
    "gcn": {"D": 20, "K": 3, "M": 5, "activation": "relu"},
    "token_selection": {"D": 20, "K": 4, "M": 0, "activation": "identity"},
    "group_sparse": {"D": 20, "K": 1, "M": 1, "activation": "identity"},
}


def value_teacher(key: Key[Array, ""], p: Any) -> Float[Array, "M d"]:
    """V*: Gaussian, or the identity for token selection."""
    dtype = float_dtype(p.precision)
    if p.teacher == "token_selection":
        return p.V_scale * jnp.eye(p.M, p.d, dtype=dtype)
    return p.V_scale * jax.random.normal(key, (p.M, p.d), dtype)


def attention_teacher(key: Key[Array, ""], p: Any) -> Float[Array, "D D"]:
    """S*, K entries 1/K a column: blocks, a cycle's neighbours, or K random rows that all columns share."""
    i, j = jnp.arange(p.D)[:, None], jnp.arange(p.D)[None, :]
    if p.teacher == "cnn":
        support = i // p.K == j // p.K
    elif p.teacher == "gcn":
        support = (i - j + p.K // 2) % p.D < p.K
    else:
        rows = jax.random.permutation(key, p.D)[: p.K]
        support = jnp.broadcast_to(jnp.any(i == rows[None, :], axis=1, keepdims=True), (p.D, p.D))
    return support.astype(float_dtype(p.precision)) / p.K


def encodings(key: Key[Array, ""], p: Any) -> Float[Array, "D D"]:
    """P, a column a position."""
    dtype = float_dtype(p.precision)
    if p.encoding == "identity":
        return jnp.eye(p.D, dtype=dtype)
    if p.encoding == "cosine":
        # The discrete cosine transform, a frequency a row.
        waves = np.arange(p.D)[:, None] * (np.arange(p.D)[None, :] + 0.5) * np.pi / p.D
        rows = np.cos(waves) * np.where(np.arange(p.D)[:, None] == 0, 1.0, 2**0.5) / p.D**0.5
        return jnp.asarray(rows, dtype)
    G = jax.random.normal(key, (p.D, p.D), dtype)
    if p.encoding == "gaussian":
        return G / p.D**0.5
    Q, R = jnp.linalg.qr(G)
    return Q * jnp.sign(jnp.diagonal(R))[None, :]


Law = Callable[[Key[Array, ""], tuple[int, ...], np.dtype], Array]
# Each draws independent entries: law(key, shape, dtype). Variance 1 but for the rate-1 exponential's mean.
LAWS: dict[str, Law] = {
    "gaussian": jax.random.normal,
    "exponential": jax.random.exponential,
    "centred_exponential": lambda key, shape, dtype: jax.random.exponential(key, shape, dtype) - 1,
    "laplace": lambda key, shape, dtype: jax.random.laplace(key, shape, dtype) * 0.5**0.5,
    "uniform": lambda key, shape, dtype: jax.random.uniform(key, shape, dtype, minval=-1.0) * 3**0.5,
    "rademacher": jax.random.rademacher,
}


def entries(key: Key[Array, ""], law: str, shape: tuple[int, ...], p: Any) -> Array:
    """Independent entries of a law. Drawn in 32 bits, which is three times as fast, then widened."""
    draw = normal if law == "gaussian" else chosen("law", law, LAWS)
    return jnp.asarray(draw(key, shape, np.dtype(np.float32)), float_dtype(p.precision))
