"""The ground truth of sparse_bigrams: mu, P and Q, as a preset gives them or at random."""

import functools
import json
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from descentlab.engine import float_dtype
from descentlab.errors import SettingError

# The least of random weights over the largest.
EVEN = 2 / 3
WEIGHTS = ("equal", "random")

# ---------------------------------------------------------------- what may be given


@functools.lru_cache
def _numbers(field: str, text: str, example: str) -> np.ndarray:
    try:
        found = np.array(json.loads(text), dtype=float)
    except (ValueError, TypeError, OverflowError):
        found = np.array(np.nan)
    if not np.isfinite(found).all():
        raise SettingError(f"{field} takes numbers such as {example}, got {field}={text}.")
    return found


def given_mu(p: Any) -> np.ndarray:
    """The law of tokens; a SettingError if it is none."""
    if not p.mu:
        return np.full(p.N, 1 / p.N)
    mu = _numbers("mu", p.mu, "[0.5,0.3,0.2]")
    if mu.shape != (p.N,) or not mu.min() > 0 or not abs(mu.sum() - 1) <= 1e-9:
        raise SettingError(f"mu takes N = {p.N} positive numbers that sum to 1, got mu={p.mu}.")
    return mu


def given_P(p: Any) -> np.ndarray | None:
    """The transition matrix that the preset gives; a SettingError if it is none, or does not keep mu."""
    if not p.P:
        return None
    P, mu = _numbers("P", p.P, "[[0.9,0.1],[0.1,0.9]]"), given_mu(p)
    if P.shape != (p.N, p.N):
        raise SettingError(f"P takes N = {p.N} rows of N numbers, got an array of shape {P.shape}.")
    if P.min() < 0 or not np.abs(P.sum(0) - 1).max() <= 1e-9:
        raise SettingError(f"P takes columns that are >= 0 and sum to 1, got sums {P.sum(0).tolist()}.")
    if not np.abs(P @ mu - mu).max() <= 1e-9:
        raise SettingError(f"P must keep mu, P mu = mu = {mu.tolist()}; got P mu = {(P @ mu).tolist()}.")
    if not np.abs(P - mu[:, None]).max() > 1e-9:
        raise SettingError("P must differ from mu1', of which there is nothing to learn.")
    return P


def given_weights(p: Any) -> np.ndarray | None:
    """The weights of the Q positions, alike in all columns; a SettingError if they are none."""
    if p.weights in WEIGHTS:
        return np.full(p.Q, 1 / p.Q) if p.weights == "equal" else None
    weights = _numbers("weights", p.weights, "[0.6,0.4]")
    if weights.shape != (p.Q,) or weights.min() < 0 or not abs(weights.sum() - 1) <= 1e-9:
        raise SettingError(
            f"weights takes equal, random, or Q = {p.Q} numbers >= 0 that sum to 1, got weights={p.weights}."
        )
    return weights


# ---------------------------------------------------------------- random truths


class Task(NamedTuple):
    """The ground truth: mu, P, and the columns of Q as positions with weights, a row each.

    `root` is a square root of the covariance of e_o given its source, diag(mu) - P diag(mu) P'.
    """

    mu: Float[Array, " N"]
    P: Float[Array, "N N"]
    positions: Int[Array, "N Q"]
    weights: Float[Array, "N Q"]
    root: Float[Array, "N N"]
    pretrained: Float[Array, "N N"]


def coupling(rows: Float[Array, " N"], columns: Float[Array, " N"]) -> Float[Array, "N N"]:
    """The joint law of two variables with these laws that are driven by the same uniform number.

    Entry (i, j) is the overlap of the i-th with the j-th interval when [0, 1) is cut by each law.

    >>> half = jnp.array([0.5, 0.5])
    >>> coupling(half, jnp.array([0.25, 0.75])).tolist()
    [[0.25, 0.25], [0.0, 0.5]]
    """
    zero = jnp.zeros(1, rows.dtype)
    ends = [jnp.concatenate([zero, jnp.cumsum(law)]) for law in (rows, columns)]
    low = jnp.maximum(ends[0][:-1, None], ends[1][None, :-1])
    high = jnp.minimum(ends[0][1:, None], ends[1][None, 1:])
    return jnp.maximum(high - low, 0)


def random_chain(key: Key[Array, ""], mu: Float[Array, " N"], successors: int) -> Float[Array, "N N"]:
    """A random P with P mu = mu: for uniform mu each token has so many successors, all equally likely.

    The mean of couplings of mu with itself, tokens in one random order against another one, shifted.
    """
    one, other = jnp.argsort(jax.random.bits(key, (2, mu.shape[0]), "uint32"))

    def shifted(s: Array, joint: Float[Array, "N N"]) -> Float[Array, "N N"]:
        order = jnp.roll(one, s)
        return joint.at[order[:, None], other[None, :]].add(coupling(mu[order], mu[other]))

    joint = jax.lax.fori_loop(0, successors, shifted, jnp.zeros((mu.shape[0],) * 2, mu.dtype))
    return joint / jnp.sum(joint, axis=0, keepdims=True)


def inner(X: Float[Array, "n N"], Y: Float[Array, "n N"], mu: Float[Array, " N"]) -> Float[Array, ""]:
    """<X, Y>_mu, columns weighted by mu."""
    return jnp.sum(mu[None, :] * X * Y)


def keeping_sums(X: Float[Array, "N N"], mu: Float[Array, " N"]) -> Float[Array, "N N"]:
    """X without what would change 1'V or V mu if it were added to V."""
    X = X - jnp.mean(X, axis=0, keepdims=True)
    return X - (X @ mu)[:, None]


def related_chain(
    key: Key[Array, ""], P: Float[Array, "N N"], mu: Float[Array, " N"], correlation: Any
) -> Float[Array, "N N"]:
    """P^ with <P^ - mu1', P - mu1'>_mu = correlation |P^ - mu1'| |P - mu1'|: P and a random direction.

    Its columns sum to one and it keeps mu, but entries may be negative.
    """
    base = jnp.broadcast_to(mu[:, None], P.shape)
    U, E = P - base, keeping_sums(jax.random.normal(key, P.shape, P.dtype), mu)
    E = E - inner(E, U, mu) / jnp.maximum(inner(U, U, mu), 1e-30) * U
    E = E * jnp.sqrt(inner(U, U, mu) / jnp.maximum(inner(E, E, mu), 1e-30))
    return base + correlation * U + jnp.sqrt(jnp.maximum(1 - correlation**2, 0)) * E


def make_task(key: Key[Array, ""], p: Any) -> Task:
    """A random ground truth, but for what the preset gives."""
    dtype = float_dtype(p.precision)
    P_key, Q_key, weight_key, other_key = jax.random.split(key, 4)
    mu, P, weights = jnp.asarray(given_mu(p)), given_P(p), given_weights(p)
    P = random_chain(P_key, mu, p.successors) if P is None else jnp.asarray(P)

    def places(key: Key[Array, ""]) -> Int[Array, " Q"]:
        return jax.lax.top_k(jax.random.bits(key, (p.T,), "uint32"), p.Q)[1].astype(int)

    positions = jax.lax.map(places, jax.random.split(Q_key, p.N))
    if weights is None:
        drawn = jax.random.uniform(weight_key, (p.N, p.Q), jnp.float64, EVEN, 1.0)
        columns = drawn / jnp.sum(drawn, axis=1, keepdims=True)
    else:
        columns = jnp.broadcast_to(jnp.asarray(weights), (p.N, p.Q))
    values, vectors = jnp.linalg.eigh(jnp.diag(mu) - (P * mu[None, :]) @ P.T)
    root = vectors * jnp.sqrt(jnp.maximum(values, 0))[None, :]
    pretrained = P
    if p.start == "transfer":
        pretrained = related_chain(other_key, P, mu, jnp.asarray(p.correlation, jnp.float64))
    mu, P, columns, root, pretrained = (x.astype(dtype) for x in (mu, P, columns, root, pretrained))
    return Task(mu, P, positions, columns, root, pretrained)
