"""Curvature: the extreme eigenvalues of a symmetric linear map known by its products, by Lanczos' method."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Key
from matfree import decomp

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
    >>> round(float(found.least), 3), round(float(found.largest), 3)
    (-5.0, 3.0)
    """
    return extremes_with_vector(product, like, key, products)[0]


def extremes_with_vector(
    product: Callable[[Any], Any], like: Any, key: Key[Array, ""], products: int = PRODUCTS
) -> tuple[Extremes, Any]:
    """The same, and the direction of length 1 that belongs to the largest.

    >>> stretch = lambda x: jnp.array([1.0, 3.0, -5.0]) * x
    >>> _, vector = extremes_with_vector(stretch, jnp.zeros(3), jax.random.key(0))
    >>> abs(vector).round(3).tolist()
    [0.0, 1.0, 0.0]
    """
    flat, tree = ravel_pytree(like)
    begin = jax.random.normal(key, flat.shape, flat.dtype)
    # The library mixes ranks and types, which strict promotion would refuse.
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        decompose = decomp.tridiag_sym(min(products, flat.size), custom_vjp=False)
        basis, tridiagonal, *_ = decompose(lambda x: ravel_pytree(product(tree(x)))[0], begin)
        kept, own = _until_exhausted(jnp.asarray(tridiagonal))
        values, vectors = jnp.linalg.eigh(kept)
        # Where several are largest, one of the basis itself: what fills the rest is no direction.
        share = jnp.sum(jnp.where(own[:, None], vectors, 0.0) ** 2, axis=0)
        last = jnp.argmax(jnp.where(share > 0.5, values, -jnp.inf))
        top = vectors[:, last] @ jnp.where(own[:, None], jnp.asarray(basis), 0.0)
    return Extremes(values[0], values[-1]), tree((top / jnp.linalg.norm(top)).astype(flat.dtype))


def _until_exhausted(tridiagonal: Float[Array, "k k"]) -> tuple[Float[Array, "k k"], Bool[Array, " k"]]:
    """The part before an off-diagonal entry is a rounding error; the rest repeats the first diagonal entry.

    Also says which rows are of that part.

    A map of low rank has no more directions than that. Beyond, the library goes on with normalised noise.
    """
    diagonal, beside = jnp.diagonal(tridiagonal), jnp.diagonal(tridiagonal, 1)
    size = jax.lax.cummax(jnp.maximum(jnp.abs(diagonal[:-1]), jnp.abs(beside)))
    goes_on = beside > jnp.sqrt(jnp.finfo(diagonal.dtype).eps) * size
    own = jnp.concatenate([jnp.ones(1, bool), jnp.cumprod(goes_on).astype(bool)])
    kept = jnp.where(own[:, None] & own[None, :], tridiagonal, 0.0)
    return kept + jnp.diag(jnp.where(own, 0.0, diagonal[0])), own
