"""The data and the model: token indices, never one-hot vectors.

A batch is B x T bytes. The output V X A e_k needs X only through h = X a_k, h_n the sum of a_k over the
positions that hold token n; and the gradient in A e_k is g[x_t] at position t, with g = V'(V h - e_o).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, UInt

from descentlab.engine import bits, largest_divisor
from descentlab.papers.sparse_bigrams.truth import Task

# Up to so many tokens a pass over all positions for each token beats indexing.
FEW_TOKENS = 16
# Positions of all sequences that are drawn at once: a batch beyond is cut, which bounds its memory.
CHUNK = 2**18
# Positions that passes for each token go over together: few enough to stay in the cache.
CACHED = 2**14
# A word of 32 random bits gives so many tokens that their joint law is uniform up to 2^-16 of itself.
DIGITS = 2**16


class Params(NamedTuple):
    """V, and A with a row for each trigger: A[k] is the paper's column A e_k, or its logits."""

    V: Float[Array, "N N"]
    A: Float[Array, "N T"]


class Batch(NamedTuple):
    """Tokens, triggers and next tokens."""

    x: UInt[Array, "B T"]
    k: Int[Array, " B"]
    o: Int[Array, " B"]


# ---------------------------------------------------------------- data


def tokens(
    key: Key[Array, ""], mu: Float[Array, " N"], shape: tuple[int, int], uniform: bool
) -> UInt[Array, "B T"]:
    """Independent tokens. Uniform ones are digits of random words in base N, several a word."""
    B, T = shape
    N = mu.shape[0]
    kind = jnp.uint8 if N <= 256 else jnp.uint16
    if not uniform:
        u = jax.random.uniform(key, shape, jnp.float32)
        return jnp.searchsorted(jnp.cumsum(mu)[:-1].astype(u.dtype), u, side="right").astype(kind)
    per_word = 1
    while N ** (per_word + 1) <= DIGITS:
        per_word += 1
    word = bits(key, (B, -(-T // per_word)))
    digits, base = [], jnp.asarray(N, "uint32")
    for _ in range(per_word):
        digits.append((word % base).astype(kind))
        word = word // base
    return jnp.concatenate(digits, axis=1)[:, :T]


def sample(key: Key[Array, ""], task: Task, batch: int, T: int, uniform: bool = False) -> Batch:
    """Tokens and trigger from mu; then t ~ q^(k) and the next token from P[:, x_t]."""
    x_key, u_key = jax.random.split(key)
    x = tokens(x_key, task.mu, (batch, T), uniform)
    # 24 bits are exact in both precisions: u stays below 1, and indices of probability 0 are not picked.
    of_k, of_t, of_o = jnp.ldexp((bits(u_key, (3, batch, 1)) >> 8).astype(task.mu.dtype), -24)

    def pick(u: Float[Array, "B 1"], below: Float[Array, "rows n"]) -> Int[Array, " B"]:
        """Indices by the sums of their laws."""
        return jnp.sum(u >= below[:, :-1], axis=1)

    k = pick(of_k, jnp.cumsum(task.mu)[None, :])
    t = task.positions[k, pick(of_t, jnp.cumsum(task.weights, axis=1)[k])]
    seen = jnp.take_along_axis(x, t[:, None], axis=1)[:, 0].astype(int)
    return Batch(x, k, pick(of_o, jnp.cumsum(task.P.T, axis=1)[seen]))


# ---------------------------------------------------------------- model


def attention(A: Float[Array, "N T"], p: Any) -> Float[Array, "N T"]:
    """The attention of each trigger: A itself, or the softmax of logits where the preset says so."""
    return jax.nn.softmax(A, axis=1) if p is not None and p.attention == "softmax" else A


def _flat(x: UInt[Array, "B T"], N: int) -> Int[Array, "B T"]:
    """The place of each token in a flattened B x N array."""
    return jnp.arange(x.shape[0], dtype="int32")[:, None] * jnp.asarray(N, "int32") + x.astype("int32")


def gathered(A: Float[Array, "N T"], batch: Batch, N: int) -> Float[Array, "N B"]:
    """h = X A e_k, a column a sequence: the sums of the trigger's attention over the places of each token."""
    B, T = batch.x.shape
    if N > FEW_TOKENS:
        return jnp.zeros(B * N, A.dtype).at[_flat(batch.x, N)].add(A[batch.k]).reshape(-1, N).T
    token = jnp.arange(N, dtype=batch.x.dtype)[:, None]

    def one(sequence: tuple[UInt[Array, " T"], Int[Array, ""]]) -> Float[Array, " N"]:
        x, k = sequence
        return jnp.sum(jnp.where(x[None, :] == token, A[k][None, :], jnp.zeros((), A.dtype)), axis=1)

    size = max(1, CACHED // T)
    if size >= B:
        return jax.vmap(one)((batch.x, batch.k)).T
    return jax.lax.map(one, (batch.x, batch.k), batch_size=size).T


def scattered(g: Float[Array, "N B"], x: UInt[Array, "B T"]) -> Float[Array, "B T"]:
    """X'g of each sequence, a row: g at the token of each position."""
    N = g.shape[0]
    if N <= FEW_TOKENS:
        found = jnp.broadcast_to(g[0][:, None], x.shape)
        for n in range(1, N):
            found = jnp.where(x == jnp.asarray(n, x.dtype), g[n][:, None], found)
        return found
    return g.T.reshape(-1)[_flat(x, N)]


def chosen(index: Int[Array, " B"], N: int, like: Array) -> Float[Array, "N B"]:
    """e_index, a column for each sequence."""
    return jax.nn.one_hot(index, N, dtype=like.dtype, axis=0)


def outputs(V: Float[Array, "N N"], A: Float[Array, "N T"], batch: Batch) -> Float[Array, "N B"]:
    """V X A e_k, a column for each sequence of a batch."""
    return V @ gathered(A, batch, V.shape[0])


def batch_loss(w: Params, batch: Batch, p: Any) -> Float[Array, ""]:
    """(1/2) mean over the batch of |e_o - V X A e_k|^2."""
    target = chosen(batch.o, w.V.shape[0], w.V)
    return 0.5 * jnp.sum((target - outputs(w.V, attention(w.A, p), batch)) ** 2) / batch.k.shape[0]


def summed_gradient(V: Float[Array, "N N"], A: Float[Array, "N T"], batch: Batch) -> Params:
    """The gradient in V and in the attention itself, summed over the batch."""
    N = V.shape[0]
    # Sequences are columns, and V' is stored: a product whose left factor is turned on the way is far slower.
    h, turned = gathered(A, batch, N), jax.lax.optimization_barrier(V.T)
    r = V @ h - chosen(batch.o, N, V)
    return Params(r @ h.T, chosen(batch.k, N, V) @ scattered(turned @ r, batch.x))


def batch_gradient(key: Key[Array, ""], V: Array, A: Array, task: Task, p: Any) -> Params:
    """The gradient of a fresh batch in V and the attention; memory stays below that of CHUNK positions."""
    size = largest_divisor(p.batch, CHUNK // max(p.T, p.N))
    cuts = p.batch // size

    def part(i: Int[Array, ""] | int) -> Params:
        own = key if cuts == 1 else jax.random.fold_in(key, i)
        return summed_gradient(V, A, sample(own, task, size, p.T, uniform=not p.mu))

    if cuts == 1:
        total = part(0)
    else:
        zero = Params(jnp.zeros_like(V), jnp.zeros_like(A))
        total = jax.lax.fori_loop(0, cuts, lambda i, sum: jax.tree.map(jnp.add, sum, part(i)), zero)
    return jax.tree.map(lambda g: g / p.batch, total)


def predict(w: Params, inputs: tuple[Array, Array], p: Any = None) -> Float[Array, "B N"]:
    """V X A e_k for (tokens, triggers)."""
    x, k = inputs
    return outputs(w.V, attention(w.A, p), Batch(x, k, k)).T
