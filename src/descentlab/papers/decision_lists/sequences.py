"""Sequences: their laws, and the tables by which expectations over them are exact.

What a query token a sees of a sequence is how often each token occurs. So an expectation over all
sequences is a finite sum over the counts of the n - 1 other tokens, and that table is the same for
all queries once tokens are named by their distance from the query: column r counts token a + r mod L.
"""

import functools
import itertools
import math
from collections.abc import Iterable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key
from scipy import special

# ---------------------------------------------------------------- laws


def iid(key: Key[Array, ""], L: int, n: int) -> Int[Array, " n"]:
    """Independent uniform tokens."""
    return jax.random.randint(key, (n,), 0, L)


def distinct(key: Key[Array, ""], L: int, n: int) -> Int[Array, " n"]:
    """Distinct tokens, uniform."""
    return jnp.argsort(jax.random.bits(key, (L,), "uint64"))[:n]


# ---------------------------------------------------------------- tables


def others_count(L: int, n: int, law: str) -> int:
    """How many rows `others` has."""
    return math.comb(L - 1, n - 1) if law == "distinct" else math.comb(L + n - 2, n - 1)


def whole_count(L: int, n: int, law: str) -> int:
    """How many rows `whole` has."""
    return math.comb(L, n) if law == "distinct" else math.comb(L + n - 1, n)


@functools.lru_cache(maxsize=8)
def others(L: int, n: int, law: str, probabilities: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Counts of the tokens of a sequence around its query, and the probability of each query and row.

    >>> counts, weights = others(3, 2, "iid", (1 / 3, 1 / 3, 1 / 3))
    >>> counts.astype(int).tolist(), weights.shape, round(float(weights.sum()), 12)
    ([[2, 0, 0], [1, 1, 0], [1, 0, 1]], (3, 3), 1.0)
    """
    if law == "distinct":
        around = _counts(itertools.combinations(range(1, L), n - 1), L, n - 1)
        weights = np.full((L, len(around)), 1 / (L * len(around)))
    else:
        around = _counts(itertools.combinations_with_replacement(range(L), n - 1), L, n - 1)
        p = np.array(probabilities)
        rolled = p[(np.arange(L)[:, None] + np.arange(L)[None, :]) % L]
        weights = p[:, None] * _multinomial(around, rolled)
    around[:, 0] += 1
    return around, weights


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


def orbit_count(L: int, n: int, law: str, longest: int) -> int:
    """How many rows the tables of one length have at most; partitions grow slowly, so this bounds them."""
    if law == "distinct":
        return 1 << (longest - 1)
    partitions = [1] + [0] * n
    for part in range(1, n + 1):
        for total in range(part, n + 1):
            partitions[total] += partitions[total - part]
    return sum(math.comb(n - 1 - r + longest - 1, longest - 1) * partitions[r] for r in range(n))
