"""Loss landscapes over a plane of a direction of W^Q and one of W^K, and the curvature in these blocks.

Two planes: of random directions, each filter (a column of W^Q or W^K of a head) scaled to the norm of its own
weights; and of the top eigenvectors of the Hessian in each block, scaled to the norm of the block. The plane
reaches from -1 to 1 times these directions.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from descentlab.engine import Extremes, Loaded, Probe, extremes_with_vector, probe

Transformer = Any  # what has layers with W_Q and W_K
Block = list[Float[Array, "H D d"]]
PRODUCTS = 16


def block(model: Transformer, name: str) -> Block:
    """W_Q or W_K of all layers."""
    return [getattr(layer, name) for layer in model.layers]


def moved(model: Transformer, name: str, by: Block) -> Transformer:
    """The model with W_Q or W_K elsewhere."""
    there = [x + y for x, y in zip(block(model, name), by, strict=True)]
    return eqx.tree_at(lambda m: [getattr(layer, name) for layer in m.layers], model, there)


def filter_normalised(key: Key[Array, ""], weights: Block) -> Block:
    """A Gaussian direction, each column of a head as long as that of the weights."""

    def one(key: Key[Array, ""], W: Array) -> Array:
        drawn = jax.random.normal(key, W.shape, W.dtype)
        size, own = (jnp.sqrt(jnp.sum(x**2, axis=1, keepdims=True)) for x in (W, drawn))
        return drawn * size / own

    return [one(k, W) for k, W in zip(jax.random.split(key, len(weights)), weights, strict=True)]


def norm(x: Block) -> Float[Array, ""]:
    """The length of a block."""
    return jnp.sqrt(sum((jnp.sum(one**2) for one in x), jnp.zeros((), x[0].dtype)))


def plane(
    loss: Callable[[Transformer], Array], model: Transformer, of_Q: Block, of_K: Block, points: int
) -> Float[Array, "points points"]:
    """The loss at every point of the plane, W^Q along rows and W^K along columns."""
    places = jnp.linspace(-1.0, 1.0, points, dtype=of_Q[0].dtype)

    def at(a: Array, b: Array) -> Array:
        there = moved(model, "W_Q", [a * x for x in of_Q])
        return loss(moved(there, "W_K", [b * x for x in of_K]))

    return jax.lax.map(lambda a: jax.lax.map(lambda b: at(a, b), places), places)


def curvature(
    loss: Callable[[Transformer], Array], model: Transformer, name: str, key: Key[Array, ""]
) -> tuple[Extremes, Block]:
    """The extreme eigenvalues of the Hessian in a block, and the top eigenvector as long as the block."""
    weights = block(model, name)
    zero = [jnp.zeros_like(x) for x in weights]
    slope = jax.grad(lambda by: loss(moved(model, name, by)))
    found, top = extremes_with_vector(lambda x: jax.jvp(slope, (zero,), (x,))[1], zero, key, PRODUCTS)
    size = norm(weights) / jnp.maximum(norm(top), 1e-12)
    return found, [size * x for x in top]


def probes(loss: Callable[[Transformer, Loaded], Array], points: int) -> dict[str, Probe]:
    """Both planes, and the extreme eigenvalues of both blocks, at the end.

    Directions are drawn anew for each seed, the same for both kernels.
    """

    def random_plane(model: Transformer, task: Loaded) -> Array:
        Q_key, K_key = jax.random.split(task.own.directions)
        of_Q = filter_normalised(Q_key, block(model, "W_Q"))
        of_K = filter_normalised(K_key, block(model, "W_K"))
        return plane(lambda m: loss(m, task), model, of_Q, of_K, points)

    shared: dict[str, tuple[Transformer, tuple[Extremes, Block]]] = {}

    def of_block(model: Transformer, task: Loaded, name: str) -> tuple[Extremes, Block]:
        """What two probes of the same program share."""
        if name not in shared or shared[name][0] is not model:
            shared[name] = model, curvature(lambda m: loss(m, task), model, name, task.own.directions)
        return shared[name][1]

    def top_plane(model: Transformer, task: Loaded) -> Array:
        of_Q, of_K = (of_block(model, task, name)[1] for name in ("W_Q", "W_K"))
        return plane(lambda m: loss(m, task), model, of_Q, of_K, points)

    def eigenvalues(model: Transformer, task: Loaded) -> Array:
        found = [of_block(model, task, name)[0] for name in ("W_Q", "W_K")]
        return jnp.stack([jnp.stack([one.least, one.largest]) for one in found])

    grid = ("along_Q", "along_K")
    return {
        "random_plane": probe(
            random_plane, "loss over random filter-normalised directions", *grid, once=True
        ),
        "top_plane": probe(
            top_plane, "loss over the top eigenvectors of the Hessian in each block", *grid, once=True
        ),
        "eigenvalues": probe(
            eigenvalues, "extreme eigenvalues of the Hessian in W^Q and W^K", "block", "end", once=True
        ),
    }
