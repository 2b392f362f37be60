r"""Attention with memory linear in the length: scores of a chunk of queries are made, used and forgotten.

Backward they are made again. The numbers are those of the plain form, `attend_plainly`, dropout included,
whose factors are drawn by head and chunk.

For a head, with q divided by sqrt(d) beforehand, both kernels are

    S_ij = exp(<q_i, k_j> + b_j - a_i),   o_i = sum_j S_ij v_j,

where b_j is -inf for a key that is not there, and o_i = sum_j M_ij S_ij v_j with factors M_ij of dropout, if
there is any: drawn by chunk, backward once more. Softmax has b_j = 0 and a_i the logarithm of the sum; the
Gaussian kernel b_j = -|k_j|^2 / (2 sqrt(d)) and a_i = |q_i|^2 / (2 sqrt(d)). Only o and a are kept. With the
slopes g_i in o_i, and c_i = <g_i, o_i> for softmax, 0 for the Gaussian kernel,

    dS_ij = S_ij (M_ij <g_i, v_j> - c_i),
    dv_j = sum_i M_ij S_ij g_i,   dq_i = sum_j dS_ij k_j,   dk_j = sum_i dS_ij q_i,

from which the Gaussian kernel takes <g_i, o_i> q_i and <dv_j, v_j> k_j / sqrt(d): sums of dS over j and i.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_batching import sequential_vmap
from jaxtyping import Array, Bool, Float, Key, ScalarLike

from descentlab.engine import thinning
from descentlab.papers.attention_kernels.kernels import scores

SCORES = 2**18  # of a chunk: what the cache of a core holds

Head = Float[Array, "n d"]  # queries, keys, values or outputs
Heads = Float[Array, "H n d"]
There = Bool[Array, " n"]  # which keys are there


class Dropout(NamedTuple):
    """What draws the factors of a head, and the share of its weights that it drops."""

    key: Key[Array, ""]
    rate: Float[Array, ""]

    @classmethod
    def of_heads(cls, key: Key[Array, ""], rate: ScalarLike, heads: int) -> Dropout:
        """A row for each head."""
        return cls(jax.random.split(key, heads), jnp.full(heads, rate, jnp.float32))


def whole_chunks(x: Float[Array, "n ..."], chunk: int) -> Float[Array, "count chunk ..."]:
    """x in chunks, the last one filled with zeros."""
    missing = -len(x) % chunk
    return jnp.pad(x, ((0, missing), *[(0, 0)] * (x.ndim - 1))).reshape(-1, chunk, *x.shape[1:])


def joined(x: Float[Array, "count chunk ..."], n: int) -> Float[Array, "n ..."]:
    """The first n rows of all chunks."""
    return x.reshape(-1, *x.shape[2:])[:n]


def half_square(x: Head) -> Float[Array, " n"]:
    """|x_i|^2 / (2 sqrt(d))."""
    return jnp.sum(x**2, axis=1) / (2 * x.shape[1] ** 0.5)


def key_terms(k: Head, there: There, kernel: str) -> Float[Array, " n"]:
    """b."""
    b = -half_square(k) if kernel == "gaussian" else jnp.zeros(len(k), k.dtype)
    return jnp.where(there, b, -jnp.inf)


def factors(
    number: Array, drop: Dropout | None, S: Float[Array, "chunk n"]
) -> Float[Array, "chunk n"] | float:
    """M for the weights of a chunk."""
    if drop is None:
        return 1.0
    return thinning(jax.random.fold_in(drop.key, number), drop.rate, S.shape, S.dtype)


def outputs(
    q: Head, k: Head, v: Head, there: There, drop: Dropout | None, *, kernel: str, chunk: int
) -> tuple[Head, Float[Array, " n"]]:
    """o and a of one head."""
    b, root = key_terms(k, there, kernel), q.shape[1] ** 0.5

    def rows(x: tuple[Array, Array]) -> tuple[Array, Array]:
        number, q = x
        C = (q / root) @ k.T + b[None, :]
        if kernel == "gaussian":
            a = half_square(q)
            S = jnp.exp(C - a[:, None])
            return (factors(number, drop, S) * S) @ v, a
        top = jax.lax.stop_gradient(jnp.max(C, axis=1))
        S = jnp.exp(C - top[:, None])
        total = jnp.sum(S, axis=1)
        return (factors(number, drop, S) * S) @ v / total[:, None], top + jnp.log(total)

    chunks = whole_chunks(q, chunk)
    o, a = jax.lax.map(rows, (jnp.arange(len(chunks)), chunks))
    return joined(o, len(q)), joined(a, len(q))


def slopes(
    q: Head, k: Head, v: Head, there: There, drop: Dropout | None, o: Head, a: Float[Array, " n"], g: Head,
    *, kernel: str, chunk: int,
) -> tuple[Head, Head, Head]:  # fmt: skip
    """dq, dk and dv of one head."""
    b, root = key_terms(k, there, kernel), q.shape[1] ** 0.5
    along = jnp.sum(g * o, axis=1)
    c = along if kernel == "softmax" else jnp.zeros_like(along)

    def rows(sums: tuple[Array, Array], x: tuple[Array, ...]) -> tuple[tuple[Array, Array], Array]:
        number, q, a, g, c = x
        S = jnp.exp(q @ k.T + b[None, :] - a[:, None])
        M = factors(number, drop, S)
        dS = S * (M * (g @ v.T) - c[:, None])
        # As (d, n): a product with the transpose of S or dS on the left would be five times slower.
        dk, dv = sums
        return (dk + q.T @ dS, dv + g.T @ (M * S)), dS @ k

    zero = jnp.zeros_like(k.T)
    parts = tuple(whole_chunks(x, chunk) for x in (q / root, a, g, c))
    (dk, dv), dq = jax.lax.scan(rows, (zero, zero), (jnp.arange(len(parts[0])), *parts))
    dq, dk, dv = joined(dq, len(q)) / root, dk.T, dv.T
    if kernel == "gaussian":
        dq = dq - along[:, None] * q / root
        dk = dk - jnp.sum(dv * v, axis=1)[:, None] * k / root
    return dq, dk, dv


@partial(jax.custom_vjp, nondiff_argnums=(5, 6))
def attention(q: Head, k: Head, v: Head, there: There, drop: Dropout | None, kernel: str, chunk: int) -> Head:
    """o of one head; heads and sequences of a batch go one after another, since a chunk fills the cache."""
    return _forward(q, k, v, there, drop, kernel, chunk)[0]


def _forward(
    q: Head, k: Head, v: Head, there: There, drop: Dropout | None, kernel: str, chunk: int
) -> tuple[Head, tuple]:
    o, a = sequential_vmap(partial(outputs, kernel=kernel, chunk=chunk))(q, k, v, there, drop)
    return o, (q, k, v, there, drop, o, a)


def _backward(kernel: str, chunk: int, kept: tuple, g: Array) -> tuple:
    return *sequential_vmap(partial(slopes, kernel=kernel, chunk=chunk))(*kept, g), None, None


attention.defvjp(_forward, _backward)


# ---------------------------------------------------------------- all heads


def fitting(chunk: int, n: int) -> int:
    """The queries of a chunk, of n."""
    return min(chunk or max(1, SCORES // n), n)


def attend(
    q: Heads, k: Heads, v: Heads, there: There, kernel: str, chunk: int = 0, drop: Dropout | None = None
) -> Heads:
    """S v, `chunk` queries at a time (0: as many as fit the cache); `drop` has a row for each head."""
    chunk = fitting(chunk, q.shape[1])
    return jax.vmap(lambda q, k, v, drop: attention(q, k, v, there, drop, kernel, chunk))(q, k, v, drop)


def weights(q: Float[Array, "H m d"], k: Heads, there: There, kernel: str) -> Float[Array, "H m n"]:
    """How much m queries look at n keys: softmax(q k' / sqrt(d)), or exp(-|q - k|^2 / (2 sqrt(d)))."""
    C = jnp.where(there[None, None, :], scores(q, k, kernel), -jnp.inf)
    return jnp.exp(C) if kernel == "gaussian" else jax.nn.softmax(C, axis=-1)


def attend_plainly(
    q: Heads, k: Heads, v: Heads, there: There, kernel: str, chunk: int = 0, drop: Dropout | None = None
) -> Heads:
    """The same in other words, whose slopes can be differentiated once more, for many models at once."""
    n = q.shape[1]
    chunk = fitting(chunk, n)

    def rows(number: Array, part: Array) -> Array:
        S = weights(part, k, there, kernel)
        if drop is not None:
            S = S * jax.vmap(partial(factors, number))(drop, S)
        return jnp.einsum("hmn,hnd->hmd", S, v)

    if chunk == n:
        return rows(jnp.zeros((), int), q)
    parts = jax.vmap(lambda q: whole_chunks(q, chunk), out_axes=1)(q)
    found = jax.lax.map(lambda x: jax.checkpoint(rows)(*x), (jnp.arange(len(parts)), parts))
    return jax.vmap(lambda x: joined(x, n), in_axes=1)(found)
