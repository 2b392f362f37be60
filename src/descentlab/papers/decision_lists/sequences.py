"""Sequences: their laws, and the tables by which expectations over them are exact.

What a query token a sees of a sequence is how often each token occurs. So an expectation over all
sequences is a finite sum over the counts of the n - 1 other tokens, and that table is the same for
all queries once tokens are named by their distance from the query: column r counts token a + r mod L.
"""

import functools
import itertools
import math
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key
from scipy import special

from descentlab.engine import chosen
from descentlab.errors import SettingError

# ---------------------------------------------------------------- laws


def iid(key: Key[Array, ""], L: int, n: int) -> Int[Array, " n"]:
    """Independent uniform tokens."""
    return jax.random.randint(key, (n,), 0, L)


def distinct(key: Key[Array, ""], L: int, n: int) -> Int[Array, " n"]:
    """Distinct tokens, uniform."""
    return jnp.argsort(jax.random.bits(key, (L,), "uint64"))[:n]


LAWS = {"distinct": distinct, "iid": iid}


def chances(p: Any) -> tuple[float, ...]:
    """The probability of each token; a SettingError if what the preset gives are not such."""
    if not p.probabilities:
        return (1 / p.L,) * p.L
    if p.law != "iid":
        raise SettingError(f"probabilities takes law=iid, got law={p.law}.")
    try:
        found = tuple(float(word) for word in p.probabilities.split(","))
    except ValueError:
        found = ()
    if len(found) != p.L or not min(found) > 0 or not abs(sum(found) - 1) <= 1e-9:
        raise SettingError(
            f"probabilities takes L = {p.L} positive numbers that sum to 1, got {p.probabilities}."
        )
    return found


def draw(key: Key[Array, ""], p: Any, batch: int) -> Int[Array, "batch n"]:
    """Sequences of the preset's law."""
    if p.law == "iid" and p.probabilities:
        logits = jnp.log(jnp.asarray(chances(p)))
        return jax.random.categorical(key, logits, shape=(batch, p.n))
    law = chosen("law", p.law, LAWS)
    drawn = jax.vmap(lambda k: jnp.asarray(law(k, p.L, p.n)))(jax.random.split(key, batch))
    if drawn.shape != (batch, p.n) or not jnp.issubdtype(drawn.dtype, jnp.integer):
        raise SettingError(
            f"law takes a function (key, L, n) -> n whole numbers; {p.law} gives {drawn.dtype} of shape "
            f"{drawn.shape[1:]}, not ({p.n},)."
        )
    return drawn.astype(jnp.arange(1).dtype)


# ---------------------------------------------------------------- tables


def at_distance(L: int) -> np.ndarray:
    """The token at distance r from the query a, over a and r."""
    return (np.arange(L)[:, None] + np.arange(L)[None, :]) % L


def by_sequence(p: Any) -> bool:
    """Whether attention stays uniform (W = 0), so that all positions of a sequence share their output."""
    return p.train == "value"


def table(p: Any) -> tuple[np.ndarray, np.ndarray]:
    """Counts and probabilities: of whole sequences where these share one output, else around each query."""
    return (whole if by_sequence(p) else others)(p.L, p.n, p.law, chances(p))


def triples(p: Any) -> int:
    """How many (query, sequence, label) triples the sum over the table has."""
    L, n = p.L, p.n
    if by_sequence(p):
        return L * (math.comb(L, n) if p.law == "distinct" else math.comb(L + n - 1, n))
    return L**2 * (math.comb(L - 1, n - 1) if p.law == "distinct" else math.comb(L + n - 2, n - 1))


@functools.lru_cache(maxsize=8)
def others(L: int, n: int, law: str, probabilities: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Counts of the tokens of a sequence around its query, and the probability of each query and row.

    >>> counts, weights = others(3, 2, "iid", (1 / 3, 1 / 3, 1 / 3))
    >>> counts.astype(int).tolist(), weights.shape, round(float(weights.sum()), 12)
    ([[2, 0, 0], [1, 1, 0], [1, 0, 1]], (3, 3), 1.0)
    """
    if law == "distinct":
        counts = _counts(itertools.combinations(range(1, L), n - 1), L, n - 1)
        weights = np.full((L, len(counts)), 1 / (L * len(counts)))
    else:
        counts = _counts(itertools.combinations_with_replacement(range(L), n - 1), L, n - 1)
        p = np.array(probabilities)
        weights = p[:, None] * _multinomial(counts, p[at_distance(L)])
    counts[:, 0] += 1
    return counts, weights


@functools.lru_cache(maxsize=8)
def whole(L: int, n: int, law: str, probabilities: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Counts of the tokens of whole sequences, and their probabilities.

    >>> counts, weights = whole(3, 2, "distinct", ())
    >>> counts.astype(int).tolist(), round(float(weights.sum()), 12)
    ([[1, 1, 0], [1, 0, 1], [0, 1, 1]], 1.0)
    """
    if law == "distinct":
        counts = _counts(itertools.combinations(range(L), n), L, n)
        return counts, np.full(len(counts), 1 / len(counts))
    counts = _counts(itertools.combinations_with_replacement(range(L), n), L, n)
    return counts, _multinomial(counts, np.array(probabilities)[None, :])[0]


def _counts(rows: Iterable[tuple[int, ...]], L: int, n: int) -> np.ndarray:
    """How often each of L tokens occurs in each row of n tokens."""
    tokens = np.fromiter(itertools.chain.from_iterable(rows), int).reshape(-1, n)
    counts = np.zeros((len(tokens), L))
    np.add.at(counts, (np.arange(len(tokens))[:, None], tokens), 1)
    return counts


def _multinomial(counts: np.ndarray, p: np.ndarray) -> Float[np.ndarray, "a s"]:
    """The probability of the counts of each row under each row of token probabilities."""
    size = special.gammaln(counts.sum(1) + 1) - special.gammaln(counts + 1).sum(1)
    return np.exp(size[None, :] + np.log(p) @ counts.T)
