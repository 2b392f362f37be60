"""One layer of multi-head attention with a softmax, Gaussian or linear kernel: outputs, B, J_Q, the floor.

W^O is fixed and gives one number a position, so a head acts through u_h = W_h^V W_h^O alone:

    MH(X) = sum_h S_h X u_h = B u,   B = [S_1 X, ..., S_H X],

which is linear in the values. Heads of d numbers never have to be formed.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

KERNELS = ("softmax", "gaussian")  # of the paper; linear attention is ours

Inputs = Float[Array, "N n D"]  # X, a row a token
Labels = Float[Array, "N n"]  # y, a number a token
Readout = Float[Array, "H d"]  # W^O


class Weights(NamedTuple):
    """What may be trained: W^Q, W^K, W^V of every head."""

    Q: Float[Array, "H D d"]
    K: Float[Array, "H D d"]
    V: Float[Array, "H D d"]


def projected(X: Inputs, W: Float[Array, "H D d"]) -> Float[Array, "N H n d"]:
    """The queries X W_h^Q of all heads, or the keys."""
    return jnp.einsum("ikD,hDd->ihkd", X, W)


def scores(q: Float[Array, "*heads m d"], k: Float[Array, "*heads n d"], kernel: str) -> Array:
    """C: q_k . k_j / sqrt(d), or -|q_k - k_j|^2 / (2 sqrt(d)), a row a query."""
    C = jnp.einsum("...kd,...jd->...kj", q, k)
    if kernel == "gaussian":
        C = C - 0.5 * (jnp.sum(q**2, axis=-1)[..., :, None] + jnp.sum(k**2, axis=-1)[..., None, :])
    return C / jnp.sqrt(jnp.asarray(q.shape[-1], C.dtype))


def attention(w: Weights, X: Inputs, kernel: str) -> Float[Array, "N H n n"]:
    """S_ih: the softmax of C_ih by rows, or exp(C_ih), whose rows need not sum to one.

    Linear attention has 1 + C for exp(C), and n for the sum over tokens.
    """
    C = scores(projected(X, w.Q), projected(X, w.K), kernel)
    if kernel == "linear":
        return (1 + C) / X.shape[1]
    return jax.nn.softmax(C, axis=-1) if kernel == "softmax" else jnp.exp(C)


def values(w: Weights, W_O: Readout, X: Inputs) -> Float[Array, "N H n"]:
    """v = X_i u_h, what attention averages."""
    u = jnp.einsum("hDd,hd->hD", w.V, W_O)
    return jnp.einsum("ijD,hD->ihj", X, u)


def outputs(w: Weights, W_O: Readout, X: Inputs, kernel: str) -> Float[Array, "N n"]:
    """MH(X_i)."""
    return jnp.einsum("ihkj,ihj->ik", attention(w, X, kernel), values(w, W_O, X))


# ---------------------------------------------------------------- the matrices of the theorems


def features(w: Weights, X: Inputs, kernel: str) -> Float[Array, "Nn HD"]:
    """B = [S_ih X_i], a row for each position of each input and a column for each number of each u_h."""
    N, n, _ = X.shape
    B = jnp.einsum("ihkj,ijD->ikhD", attention(w, X, kernel), X)
    return B.reshape(N * n, -1)


def query_jacobian(w: Weights, W_O: Readout, X: Inputs, kernel: str) -> Float[Array, "Nn HDd"]:
    """J_Q, the derivative of all outputs in W^Q: row (i, k) is the direct sum over h of x_ik (x) g_ikh.

    g = -d^{-1/2} sum_j S_kj v_j (q_k - k_j), or d^{-1/2} sum_j S_kj (v_j - vbar_k) k_j for softmax, with
    v = X u_h and vbar_k the mean of v under S_k; (n d^{1/2})^{-1} sum_j v_j k_j for linear attention.
    """
    N, n, _ = X.shape
    q, k, S = projected(X, w.Q), projected(X, w.K), attention(w, X, kernel)
    slope = jnp.full_like(S, 1 / n) if kernel == "linear" else S
    weighted = slope * values(w, W_O, X)[:, :, None, :]
    total = jnp.sum(weighted, axis=-1)[..., None]
    g = jnp.einsum("ihkj,ihjd->ihkd", weighted, k)
    if kernel != "linear":
        g = g - total * (q if kernel == "gaussian" else jnp.einsum("ihkj,ihjd->ihkd", S, k))
    g = g / jnp.sqrt(jnp.asarray(q.shape[-1], g.dtype))
    return jnp.einsum("ikD,ihkd->ikhDd", X, g).reshape(N * n, -1)


def least_singular(M: Float[Array, "rows columns"]) -> Float[Array, ""]:
    """sigma_min(M'): 0 where there are fewer columns than rows."""
    rows, columns = M.shape
    if columns < rows:
        return jnp.zeros((), M.dtype)
    return jnp.linalg.svd(M, compute_uv=False)[-1]


# ---------------------------------------------------------------- the floor


def reachable(
    w: Weights, W_O: Readout, X: Inputs, kernel: str
) -> tuple[Float[Array, " N"], Float[Array, " N"]]:
    """Bounds on the outputs of every input, whatever W^Q and W^K are.

    Rows of softmax attention are weights that sum to one, so a head's outputs lie in the hull of its values.
    Gaussian attention lies in (0, 1], each entry for itself; linear attention anywhere.
    """
    v = values(w, W_O, X)
    if kernel == "linear":
        anywhere = jnp.full(v.shape[0], jnp.inf, v.dtype)
        return -anywhere, anywhere
    if kernel == "softmax":
        low, high = jnp.min(v, axis=-1), jnp.max(v, axis=-1)
    else:
        low = jnp.sum(jnp.minimum(v, 0), axis=-1)
        high = jnp.sum(jnp.maximum(v, 0), axis=-1)
    return jnp.sum(low, axis=1), jnp.sum(high, axis=1)


def floor(w: Weights, W_O: Readout, X: Inputs, y: Labels, kernel: str) -> Float[Array, ""]:
    """A loss below which no W^Q and W^K lead: half the squared distance of labels from what is reachable."""
    low, high = reachable(w, W_O, X, kernel)
    beyond = jnp.maximum(low[:, None] - y, 0) + jnp.maximum(y - high[:, None], 0)
    return 0.5 * jnp.sum(beyond**2)
