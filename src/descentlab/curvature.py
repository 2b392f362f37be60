"""Curvature: the extreme eigenvalues of a symmetric linear map known by its products, by Lanczos' method."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Key
from matfree import decomp, eig

PRODUCTS = 32


class Extremes(NamedTuple):
    """The least and the largest eigenvalue."""

    least: Float[Array, ""]
    largest: Float[Array, ""]


def extreme_eigenvalues(
    product: Callable[[Any], Any], like: Any, key: Key[Array, ""], products: int = PRODUCTS
) -> Extremes:
    """The extreme eigenvalues of `product`, a map of trees of the kind of `like`.

    Both are those of the map on a subspace, so they approach the truth from inside as `products` grow.

    >>> stretch = lambda x: jnp.array([1.0, 3.0, -5.0]) * x
    >>> found = extreme_eigenvalues(stretch, jnp.zeros(3), jax.random.key(0))
    >>> round(float(found.least), 6), round(float(found.largest), 6)
    (-5.0, 3.0)
    """
    flat, tree = ravel_pytree(like)
    begin = jax.random.normal(key, flat.shape, flat.dtype)
    # The library mixes ranks and types, which strict promotion would refuse.
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        tridiagonal = decomp.tridiag_sym(min(products, flat.size))
        values, _ = eig.eigh_partial(tridiagonal)(lambda x: ravel_pytree(product(tree(x)))[0], begin)
    return Extremes(jnp.min(values), jnp.max(values))
