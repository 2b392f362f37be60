"""A small transformer with softmax or Gaussian attention, for one sequence of tokens at a time.

Attention goes through the queries in chunks and forgets the scores of a chunk once it has its outputs;
backward it makes them again (attention.py). So memory is linear in the length, and the numbers are those of
the plain form, dropout included, whose factors are drawn by head and chunk.
"""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, ScalarLike

from descentlab.engine import thinning
from descentlab.papers.attention_kernels.transformer.attention import (
    SCORES,
    Dropout,
    Kernel,
    attention,
    factors,
)


def weights(
    q: Float[Array, "H m d"], k: Float[Array, "H n d"], there: Bool[Array, " n"], kernel: Kernel
) -> Float[Array, "H m n"]:
    """How much m queries look at n keys: softmax(q k' / sqrt(d)), or exp(-|q - k|^2 / (2 sqrt(d)))."""
    C = jnp.einsum("hmd,hnd->hmn", q, k)
    if kernel == "gaussian":
        C = C - 0.5 * (jnp.sum(q**2, axis=-1)[:, :, None] + jnp.sum(k**2, axis=-1)[:, None, :])
    C = C / jnp.asarray(q.shape[-1] ** 0.5, C.dtype)
    if kernel == "gaussian":
        return jnp.where(there[None, None, :], jnp.exp(C), 0.0)
    return jax.nn.softmax(jnp.where(there[None, None, :], C, -jnp.inf), axis=-1)


def attend(
    q: Float[Array, "H n d"],
    k: Float[Array, "H n d"],
    v: Float[Array, "H n d"],
    there: Bool[Array, " n"],
    kernel: Kernel,
    chunk: int = 0,
    drop: Dropout | None = None,
) -> Float[Array, "H n d"]:
    """S v, `chunk` queries at a time (0: as many as fit the cache); `drop` has a row for each head."""
    chunk = fitting(chunk, q.shape[1])
    return jax.vmap(lambda q, k, v, drop: attention(q, k, v, there, drop, kernel, chunk))(q, k, v, drop)


def attend_plainly(
    q: Float[Array, "H n d"],
    k: Float[Array, "H n d"],
    v: Float[Array, "H n d"],
    there: Bool[Array, " n"],
    kernel: Kernel,
    chunk: int = 0,
    drop: Dropout | None = None,
) -> Float[Array, "H n d"]:
    """The same in other words, whose slopes can be differentiated once more, for many models at once."""
    H, n, d = q.shape
    chunk = fitting(chunk, n)

    def rows(number: Array, part: Array) -> Array:
        S = weights(part, k, there, kernel)
        if drop is not None:
            S = S * jax.vmap(partial(factors, number))(drop, S)
        return jnp.einsum("hmn,hnd->hmd", S, v)

    if chunk == n:
        return rows(jnp.zeros((), int), q)
    count = -(-n // chunk)
    padded = jnp.pad(q, ((0, 0), (0, count * chunk - n), (0, 0)))
    parts = jnp.moveaxis(padded.reshape(H, count, chunk, d), 1, 0)
    found = jax.lax.map(lambda x: jax.checkpoint(rows)(*x), (jnp.arange(count), parts))
    return jnp.moveaxis(found, 0, 1).reshape(H, count * chunk, d)[:, :n]


def fitting(chunk: int, n: int) -> int:
    """The queries of a chunk, of n."""
    return min(chunk or max(1, SCORES // n), n)


def thinned(key: Key[Array, ""] | None, x: Array, rate: ScalarLike) -> Array:
    """Dropout, none without a key."""
    return x if key is None else x * thinning(key, rate, x.shape, x.dtype)


def rows_through(linear: eqx.nn.Linear, x: Float[Array, "n a"]) -> Float[Array, "n b"]:
    """x W' + 1 b': half the time of `vmap(linear)(x)`, whose products W x leave the rows last."""
    assert linear.bias is not None
    return x @ linear.weight.T + linear.bias[None, :]


class Layer(eqx.Module):
    """Attention and a small network, each behind a LayerNorm and beside a shortcut."""

    before_attention: eqx.nn.LayerNorm
    before_network: eqx.nn.LayerNorm
    W_Q: Float[Array, "H D d"]
    W_K: Float[Array, "H D d"]
    W_V: Float[Array, "H D d"]
    W_O: Float[Array, "H d D"]
    inner: eqx.nn.Linear
    outer: eqx.nn.Linear

    def __init__(self, D: int, H: int, width: int, key: Key[Array, ""], dtype=jnp.float32) -> None:
        keys = jax.random.split(key, 6)
        d = D // H

        def draw(key: Key[Array, ""], *shape: int) -> Array:
            return jax.random.normal(key, shape, dtype) / D**0.5

        self.before_attention = eqx.nn.LayerNorm(D, dtype=dtype)
        self.before_network = eqx.nn.LayerNorm(D, dtype=dtype)
        self.W_Q, self.W_K, self.W_V = (draw(key, H, D, d) for key in keys[:3])
        self.W_O = draw(keys[3], H, d, D)
        self.inner = eqx.nn.Linear(D, width, key=keys[4], dtype=dtype)
        self.outer = eqx.nn.Linear(width, D, key=keys[5], dtype=dtype)

    def __call__(
        self,
        x: Float[Array, "n D"],
        there: Bool[Array, " n"],
        kernel: Kernel,
        chunk: int,
        key: Key[Array, ""] | None,
        rate: ScalarLike,
        plain: bool,
    ) -> Float[Array, "n D"]:
        """One more round of attention."""
        keys = [None] * 4 if key is None else list(jax.random.split(key, 4))
        z = jax.vmap(self.before_attention)(x)
        q, k, v = (jnp.einsum("nD,hDd->hnd", z, W) for W in (self.W_Q, self.W_K, self.W_V))
        drop = None if keys[0] is None else Dropout.of_heads(keys[0], rate, len(q))
        mixed = (attend_plainly if plain else attend)(q, k, v, there, kernel, chunk, drop)
        x = x + thinned(keys[1], jnp.einsum("hnd,hdD->nD", mixed, self.W_O), rate)
        z = jax.vmap(self.before_network)(x)
        hidden = thinned(keys[2], jax.nn.gelu(rows_through(self.inner, z)), rate)
        return x + thinned(keys[3], rows_through(self.outer, hidden), rate)


class Transformer(eqx.Module):
    """Tokens, or small patches of grey levels, with learned positions; layers; their mean; a head."""

    embedding: Float[Array, "vocabulary D"]
    positions: Float[Array, "n D"]
    layers: list[Layer]
    after: eqx.nn.LayerNorm
    hidden: eqx.nn.Linear
    head: eqx.nn.Linear

    def __init__(
        self, vocabulary: int, length: int, layers: int, D: int, H: int, width: int, key: Key[Array, ""],
        dtype=jnp.float32,
    ) -> None:  # fmt: skip
        keys = jax.random.split(key, 4 + layers)
        self.embedding = 0.02 * jax.random.normal(keys[0], (vocabulary, D), dtype)
        self.positions = 0.02 * jax.random.normal(keys[1], (length, D), dtype)
        self.layers = [Layer(D, H, width, one, dtype) for one in keys[4:]]
        self.after = eqx.nn.LayerNorm(D, dtype=dtype)
        self.hidden = eqx.nn.Linear(D, width, key=keys[2], dtype=dtype)
        self.head = eqx.nn.Linear(width, 2, key=keys[3], dtype=dtype)

    def __call__(
        self,
        x: Float[Array, "n D"],
        there: Bool[Array, " n"],
        kernel: Kernel,
        chunk: int = 0,
        key: Key[Array, ""] | None = None,
        rate: ScalarLike = 0.0,
        plain: bool = False,
    ) -> Float[Array, " 2"]:
        """The logits of the two classes of an embedded sequence; only positions that are `there` count.

        `plain` attention has slopes that can be differentiated once more, for many models at once.
        """
        count = 1 + len(self.layers)
        first, *keys = [None] * count if key is None else list(jax.random.split(key, count))
        x = thinned(first, x + self.positions, rate)
        for layer, own in zip(self.layers, keys, strict=True):
            x = layer(x, there, kernel, chunk, own, rate, plain)
        z = jnp.where(there[:, None], jax.vmap(self.after)(x), 0.0)
        pooled = jnp.sum(z, axis=0) / jnp.maximum(jnp.sum(there, dtype=z.dtype), 1.0)
        return self.head(jax.nn.gelu(self.hidden(pooled)))


def embedded_words(model: Transformer, tokens: Array) -> tuple[Float[Array, "n D"], Bool[Array, " n"]]:
    """A text of tokens; 0 is padding. Of an empty text, that at the first place is read."""
    there = tokens > 0
    first = (jnp.arange(tokens.shape[0]) == 0) & ~jnp.any(there)  # softmax needs something to look at
    return model.embedding[tokens.astype(int)], there | first


def embedded_pixels(model: Transformer, grey: Array) -> tuple[Float[Array, "n D"], Bool[Array, " n"]]:
    """An image as a sequence of grey levels, each a token."""
    return model.embedding[grey[:, 0].astype(int)], jnp.ones(grey.shape[0], bool)


def embedded_patches(model: Transformer, grey: Array) -> tuple[Float[Array, "n D"], Bool[Array, " n"]]:
    """An image as a sequence of patches: their grey levels times a row of the embedding each, which adds up.

    Rows start 50 times larger than those of tokens, so that the levels, which are mostly 0, are seen.
    """
    levels = grey.astype(model.embedding.dtype) / 255
    return levels @ (50.0 * model.embedding), jnp.ones(grey.shape[0], bool)
