"""Expectations in closed form, with S = diag(mu) - mu mu' and norms weighted by mu.

Lemma B.7's expected gradients, preconditioned (columns over mu_k) and with sums kept (1'A = 1', 1'V = 1',
V mu = mu):

    grad_V = |A|^2_mu (V - mu1') - <Q,A>_mu (P - mu1'),
    grad_A = tr(VSV') (A - 11'/T) - <V,PS> (Q - 11'/T).

So population descent stays on the line V = mu1' + a_V (P - mu1'), A = 11'/T + a_A (Q - 11'/T), where it is
a process of two numbers.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from descentlab.papers.sparse_bigrams.tokens import Params
from descentlab.papers.sparse_bigrams.truth import Task, inner, keeping_sums


def overlap(A: Float[Array, "N T"], task: Task) -> Float[Array, " N"]:
    """<q^(k), a_k> for each trigger."""
    return jnp.sum(task.weights * jnp.take_along_axis(A, task.positions, axis=1), axis=1)


def by_trigger(A: Float[Array, "N T"], task: Task) -> tuple[Float[Array, " N"], Float[Array, " N"]]:
    """|a_k|^2 and <q^(k), a_k> for each trigger."""
    return jnp.sum(A**2, axis=1), overlap(A, task)


def moments(V: Float[Array, "N N"], task: Task) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """tr(VSV') and <V,PS>."""
    mean, mean_P = V @ task.mu, task.P @ task.mu
    return (
        inner(V, V, task.mu) - jnp.sum(mean * mean),
        inner(V, task.P, task.mu) - jnp.sum(mean * mean_P),
    )


def population_loss(V: Float[Array, "N N"], A: Float[Array, "N T"], task: Task) -> Float[Array, ""]:
    """(1/2) E|e_o - V X A e_k|^2 for attention A.

    1/2 - <Q,A>_mu <V,PS> - (sum mu_k s_k) mu'Vmu + (1/2)|A|^2_mu tr(VSV') + (1/2)(sum mu_k s_k^2)|Vmu|^2
    with s_k = 1'a_k.
    """
    mu = task.mu
    squares, overlaps = by_trigger(A, task)
    s, mean = jnp.sum(A, axis=1), V @ mu
    VV, VP = moments(V, task)
    return (
        0.5
        - jnp.sum(mu * overlaps) * VP
        - jnp.sum(mu * s) * jnp.sum(mu * mean)
        + 0.5 * jnp.sum(mu * squares) * VV
        + 0.5 * jnp.sum(mu * s**2) * jnp.sum(mean**2)
    )


def least_loss(task: Task) -> Float[Array, ""]:
    """The loss of V = P and A = Q, which no V and A with 1'A = 1', V mu = mu go below."""
    Q2 = jnp.sum(task.mu * jnp.sum(task.weights**2, axis=1))
    PP, _ = moments(task.P, task)
    return 0.5 - 0.5 * Q2 * PP - 0.5 * jnp.sum(task.mu**2)


def less_truth(A: Float[Array, "N T"], task: Task) -> Float[Array, "N T"]:
    """A - Q, without storing Q."""
    return A.at[jnp.arange(A.shape[0])[:, None], task.positions].add(-task.weights)


def expected(V: Float[Array, "N N"], A: Float[Array, "N T"], task: Task) -> Params:
    """The preconditioned, projected gradient of the population loss."""
    mu, T = task.mu, A.shape[1]
    squares, overlaps = by_trigger(A, task)
    VV, VP = moments(V, task)
    base = mu[:, None]
    to_V = jnp.sum(mu * squares) * (V - base) - jnp.sum(mu * overlaps) * (task.P - base)
    off = VV * (A - 1 / T) + VP / T
    return Params(to_V, off.at[jnp.arange(A.shape[0])[:, None], task.positions].add(-VP * task.weights))


def projected(w: Params, mu: Float[Array, " N"]) -> Params:
    """A gradient with columns over mu_k, and without what would change 1'A, 1'V or V mu."""
    V, A = w.V / mu[None, :], w.A / mu[:, None]
    return Params(keeping_sums(V, mu), A - jnp.mean(A, axis=1, keepdims=True))


# ---------------------------------------------------------------- the line


class Line(NamedTuple):
    """The signals of V and A."""

    a_V: Float[Array, ""]  # noqa: N815, the paper's letter
    a_A: Float[Array, ""]  # noqa: N815


def sizes(task: Task, T: int) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """K_P = |P|^2_mu - |mu|^2 and K_Q = |Q|^2_mu - 1/T: the squared lengths of the line's directions."""
    mu = task.mu
    return (
        inner(task.P, task.P, mu) - jnp.sum(mu**2),
        jnp.sum(mu * jnp.sum(task.weights**2, axis=1)) - 1 / T,
    )


def line_gradient(w: Line, task: Task, T: int) -> Line:
    """What the population gradient is on the line."""
    K_P, K_Q = sizes(task, T)
    gap = 1 - w.a_A * w.a_V
    return Line((w.a_V - 1) / T - K_Q * w.a_A * gap, -K_P * w.a_V * gap)


def from_line(w: Line, task: Task, T: int) -> Params:
    """V and A of two signals."""
    base = task.mu[:, None]
    A = jnp.full((task.mu.shape[0], T), (1 - w.a_A) / T, task.mu.dtype)
    rows = jnp.arange(A.shape[0])[:, None]
    return Params(base + w.a_V * (task.P - base), A.at[rows, task.positions].add(w.a_A * task.weights))


def signals(V: Float[Array, "N N"], A: Float[Array, "N T"], task: Task) -> Line:
    """The coordinates of V and A along the line, for 1'A = 1'."""
    mu, T = task.mu, A.shape[1]
    K_P, K_Q = sizes(task, T)
    base = mu[:, None]
    along = jnp.sum(mu * overlap(A, task)) - 1 / T
    tiny = jnp.finfo(V.dtype).tiny
    return Line(inner(V - base, task.P - base, mu) / jnp.maximum(K_P, tiny), along / jnp.maximum(K_Q, tiny))


def distances(V: Float[Array, "N N"], A: Float[Array, "N T"], task: Task) -> tuple[Array, Array]:
    """|Delta_V|_mu and |Delta_A|_mu: what is orthogonal to the line."""
    on = from_line(signals(V, A, task), task, A.shape[1])
    return jnp.sqrt(inner(V - on.V, V - on.V, task.mu)), norm_A(A - on.A, task)


def norm_A(A: Float[Array, "N T"], task: Task) -> Float[Array, ""]:
    """|A|_mu."""
    return jnp.sqrt(jnp.sum(task.mu * jnp.sum(A**2, axis=1)))


def rounded(A: Float[Array, "N T"], threshold: Float[Array, ""] | float) -> Float[Array, "N T"]:
    """A without the entries below a share of the largest of their trigger, and normalised: "the star"."""
    least = threshold * jnp.max(A, axis=1, keepdims=True)
    kept = jnp.where(least <= A, A, jnp.zeros((), A.dtype))
    return kept / jnp.sum(kept, axis=1, keepdims=True)
