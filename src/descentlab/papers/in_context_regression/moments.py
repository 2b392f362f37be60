r"""The exact squared error of linear self-attention on Gaussian prompts, for all of its weights.

Only the last row (v', u) of W_PV and the first d columns (U; r') of W_KQ reach the prediction

    yhat = (v', u) (E E' / n) (U; r') x,    E E' = sum_i (x_i; y_i)(x_i; y_i)' + (x; 0)(x; 0)',

for a prompt of n points with query x. With S, b and q the means of x_i x_i', y_i x_i and y_i^2 it is a part
that is odd in the labels plus one that is even,

    odd = b' W x,  W = u U + v r',        even = v' S U x + u q r' x + (v' x)(x' U x) / n.

The target <w, x> is odd too, and labels are as likely as their negatives. So E(yhat - <w, x>)^2 =
E(odd - <w, x>)^2 + E even^2. For x_i ~ N(0, Lambda), x ~ N(0, Query), w ~ N(0, Tasks) and y_i = <w, x_i> plus
noise, both are finite sums of traces by Wick's theorem. Two things follow at once. The error depends on the
odd part through W alone, and v = r = 0 makes the even part zero: so no weights at all do better than

    W = Gamma^-1,  Gamma = (1 + 1/n) Lambda + (1/n)(tr Lambda + noise^2) I,

with Query = Lambda and Tasks = I, where half the error is (tr Lambda - tr Lambda^2 Gamma^-1) / 2.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float


class Law(NamedTuple):
    """The law of prompts: covariances of inputs, of the query and of w, variance of noise, 1 / points."""

    Lambda: Float[Array, "d d"]
    Query: Float[Array, "d d"]
    Tasks: Float[Array, "d d"]
    noise: Float[Array, ""]
    share: Float[Array, ""]


class Blocks(NamedTuple):
    """The weights that reach the prediction: (v', u) of W_PV, (U; r') of W_KQ."""

    v: Float[Array, " d"]
    u: Float[Array, ""]
    U: Float[Array, "d d"]
    r: Float[Array, " d"]


def blocks(w: Any) -> Blocks:
    """The weights that reach the prediction."""
    return Blocks(w.W_PV[-1, :-1], w.W_PV[-1, -1], w.W_KQ[:-1, :-1], w.W_KQ[-1, :-1])


def answered(w: Blocks) -> Float[Array, "d d"]:
    """W = u U + v r', through which the prediction b' W x goes."""
    return w.u * w.U + jnp.outer(w.v, w.r)


def label_variance(law: Law) -> Float[Array, ""]:
    """E y^2 = tr(Tasks Lambda) + noise^2."""
    return jnp.sum(law.Tasks * law.Lambda) + law.noise


def gamma(law: Law) -> Float[Array, "d d"]:
    """Gamma = (1 + 1/N) Lambda + (1/N)(tr Lambda + noise^2) I. Theorem 4.1, where there is no noise."""
    one = jnp.eye(law.Lambda.shape[0], dtype=law.Lambda.dtype)
    return (1 + law.share) * law.Lambda + law.share * label_variance(law) * one


def covariance_of_b(law: Law) -> Float[Array, "d d"]:
    """E b b' = (1 + 1/n) Lambda Tasks Lambda + (1/n) E y^2 Lambda, which for Tasks = I is Gamma Lambda."""
    sandwich = law.Lambda @ law.Tasks @ law.Lambda
    return (1 + law.share) * sandwich + law.share * label_variance(law) * law.Lambda


def odd_error(W: Float[Array, "d d"], law: Law) -> Float[Array, ""]:
    """E(b' W x - <w, x>)^2."""
    Q = law.Query
    own = jnp.sum(covariance_of_b(law) * (W @ Q @ W.T))
    return own - 2 * jnp.sum((law.Tasks @ law.Lambda @ W) * Q) + jnp.sum(law.Tasks * Q)


def even_error(w: Blocks, law: Law) -> Float[Array, ""]:
    """E(v' S U x + u q r' x + (v' x)(x' U x) / n)^2."""
    v, u, U, r = w
    Lambda, Q, T, _, share = law
    k = label_variance(law)
    # The mean over w of (E(y^2 | w))^2: w' Lambda w is a quadratic form in Gaussians.
    k2 = k**2 + 2 * jnp.sum((T @ Lambda) * (Lambda @ T))
    UQU, Lv, Qv = U @ Q @ U.T, Lambda @ v, Q @ v
    linear = (1 + share) * Lv @ UQU @ Lv + share * (v @ Lv) * jnp.sum(Lambda * UQU)
    linear += 2 * u * (k * Lv + 2 * share * Lambda @ T @ Lv) @ U @ Q @ r
    linear += u**2 * (1 + 2 * share) * k2 * (r @ Q @ r)
    # The query's own column. Only the symmetric part of U enters x' U x.
    B, mean = (U + U.T) / 2, U.T @ Lv + u * k * r
    BQ, trace, BQv = B @ Q, jnp.sum(U * Q), B @ Qv
    cross = (mean @ Qv) * trace + 2 * mean @ Q @ BQv
    cubic = (v @ Qv) * (trace**2 + 2 * jnp.sum(BQ * BQ.T)) + 4 * trace * (Qv @ BQv) + 8 * BQv @ Q @ BQv
    return linear + 2 * share * cross + share**2 * cubic


def squared_error(w: Any, law: Law) -> Float[Array, ""]:
    """E(yhat - <w, x>)^2, exact."""
    own = blocks(w)
    return odd_error(answered(own), law) + even_error(own, law)


def excess_loss(w: Any, law: Law) -> Float[Array, ""]:
    """Half the squared error above its least value, without cancellation, for Query = Lambda and Tasks = I.

    That is tr(Gamma Lambda D Lambda D') / 2 + E even^2 / 2 with D = W - Gamma^-1.
    """
    own = blocks(w)
    D = answered(own) - jnp.linalg.inv(gamma(law))
    return (jnp.sum(covariance_of_b(law) * (D @ law.Query @ D.T)) + even_error(own, law)) / 2


def least_loss(law: Law) -> Float[Array, ""]:
    """The least half squared error of all weights: (tr Lambda - tr Lambda^2 Gamma^-1) / 2."""
    gain = jnp.sum((law.Lambda @ law.Lambda) * jnp.linalg.inv(gamma(law)))
    return (jnp.trace(law.Lambda) - gain) / 2


def printed_error(law: Law, length: Float[Array, ""]) -> Float[Array, ""]:
    """The limit's error on test prompts of `length` points, mean over w ~ N(0, I). Theorem 4.2.

    (1/M) tr(Sigma Gamma^-2 Lambda) + (1/N^2)(|w|^2 in Gamma^-2 Lambda^3 + 2 tr Lambda |w|^2 in
    Gamma^-2 Lambda^2 + (tr Lambda)^2 |w|^2 in Gamma^-2 Lambda), Sigma the covariance of x y given w. Noise
    adds to tr Lambda in Gamma, hence in the second part.
    """
    Lambda, k = law.Lambda, label_variance(law)
    inverse = jnp.linalg.inv(gamma(law))
    weight = inverse @ inverse @ Lambda
    variance = jnp.trace((Lambda @ Lambda + k * Lambda) @ weight) / length
    bias = jnp.trace(weight @ Lambda @ Lambda) + 2 * k * jnp.trace(weight @ Lambda) + k**2 * jnp.trace(weight)
    return variance + law.share**2 * bias


def slowest_rate(law: Law) -> Float[Array, ""]:
    """The least positive eigenvalue of the Hessian at the limit, for (u, U) and diagonal Lambda.

    With D = u U - Gamma^-1 the excess is sum_ij gamma_i lambda_i lambda_j D_ij^2 / 2. Entries off the
    diagonal have curvature u^2 gamma_i lambda_i lambda_j; those on it share u, so theirs are the eigenvalues
    of A^(1/2) (u^2 I + g g' / u^2) A^(1/2) with A = diag(gamma_i lambda_i^2) and g_i = 1 / gamma_i.
    """
    lam, gam = jnp.diag(law.Lambda), jnp.diag(gamma(law))
    g, root = 1 / gam, jnp.sqrt(gam) * lam
    u2 = jnp.sqrt(jnp.sum(g**2))
    on = jnp.diag(u2 * root**2) + jnp.outer(root * g, root * g) / u2
    off = u2 * jnp.outer(gam * lam, lam)
    diagonal = jnp.eye(lam.size, dtype=bool)
    return jnp.minimum(jnp.linalg.eigvalsh(on)[0], jnp.min(jnp.where(diagonal, jnp.inf, off)))
