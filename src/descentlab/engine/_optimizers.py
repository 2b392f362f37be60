"""Optimisers by name: the update rules that papers compare, or that their tasks are crossed with.

    gd          w - eta g
    sign        w - eta sign(g)
    adam        Adam, by optax
    proximal    w - eta g, then pulled to zero by eta lam: the proximal step of lam |w|_1

>>> import jax.numpy as jnp
>>> w, g = jnp.array([1.0, -0.1]), jnp.array([2.0, 0.0])
>>> (w + optimizer("proximal", eta=0.1, lam=2.0).update(g, optax.EmptyState(), w)[0]).round(6).tolist()
[0.6, 0.0]
"""

from collections.abc import Collection
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, ScalarLike

OPTIMIZERS = ("gd", "sign", "adam", "proximal")
BY_SIGN = ("sign", "adam")  # which a gradient tells a direction alone
# Of Kingma and Ba; papers that have letters for them give their own.
BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8


def optimizer(
    name: str,
    eta: Any,
    *,
    beta1: ScalarLike = BETA_1,
    beta2: ScalarLike = BETA_2,
    epsilon: ScalarLike = EPSILON,
    lam: ScalarLike = 0.0,
    sparse: Collection[str] | None = None,
) -> optax.GradientTransformation:
    """An update rule by its name; the proximal one pulls at the blocks that `sparse` names, or at all."""
    return {
        "gd": lambda: optax.sgd(eta),
        "sign": lambda: optax.sign_sgd(eta),
        "adam": lambda: optax.adam(eta, beta1, beta2, epsilon),
        "proximal": lambda: proximal(eta, lam, sparse),
    }[name]()


def shrunk(w: Array, by: ScalarLike) -> Array:
    """sign(w) max(|w| - by, 0): the proximal map of by |w|_1."""
    return jnp.sign(w) * jnp.maximum(jnp.abs(w) - jnp.asarray(by, w.dtype), 0)


def proximal(
    eta: ScalarLike, lam: ScalarLike, sparse: Collection[str] | None = None
) -> optax.GradientTransformation:
    """Proximal gradient steps of lam |w|_1 over the blocks that `sparse` names, or all; else plain steps."""

    def change(gradient: Any, weights: Any) -> Any:
        def one(path: Any, g: Array, w: Array) -> Array:
            after = w - jnp.asarray(eta, w.dtype) * g
            pulled = sparse is None or jax.tree_util.keystr(path[:1], simple=True) in sparse
            return (shrunk(after, eta * lam) if pulled else after) - w

        return jax.tree_util.tree_map_with_path(one, gradient, weights)

    return optax.stateless(change)
