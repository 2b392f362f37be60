"""The largest eigenvalue of a symmetric linear map that is known by its products, by Lanczos' method."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Key
from matfree import decomp, eig

PRODUCTS = 32


def largest_eigenvalue(
    product: Callable[[Any], Any], like: Any, key: Key[Array, ""], products: int = PRODUCTS
) -> Float[Array, ""]:
    """The largest eigenvalue of `product`, a map of trees of the kind of `like`.

    >>> found = largest_eigenvalue(lambda x: jnp.array([1.0, 3.0, -5.0]) * x, jnp.zeros(3), jax.random.key(0))
    >>> round(float(found), 6)
    3.0
    """
    flat, tree = ravel_pytree(like)
    begin = jax.random.normal(key, flat.shape, flat.dtype)
    # The library mixes ranks and types, which strict promotion would refuse.
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        tridiagonal = decomp.tridiag_sym(min(products, flat.size))
        values, _ = eig.eigh_partial(tridiagonal)(lambda x: ravel_pytree(product(tree(x)))[0], begin)
    return jnp.max(values)
