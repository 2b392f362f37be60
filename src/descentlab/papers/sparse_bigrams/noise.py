r"""Simulated minibatches: the expected gradient plus Gaussian noise of the minibatch covariance.

For a trigger k write a = A e_k, b_k = |a|^2, c_k = <q^(k), a>, xi = X a - mu and r = V X a - e_o. Then
xi has covariance b_k S, and with the sums kept (1'a = 1, V mu = mu)

    R_k = E[r r'|k] = S - c_k (VSP' + PSV') + b_k VSV'.

The preconditioned, projected gradient of one sample is r (xi/mu)' in V, and g[x_t] less its mean over t in
A e_k, over mu_k, with g = V'r. To leading order the noise of a batch is therefore, factor by factor,

    in V:  Gaussian with covariance (sum_k mu_k b_k R_k) (x) (diag(1/mu) - 11') / B,
    in A:  independent for all positions, of variance <VSV', R_k> / (B mu_k), less its mean over t,
    and:   the expected gradient of each trigger times how often it occurred, over how often it should.

Dropped are: that r and xi, and that g and x_t, depend on one another (this matters at the few positions
where a_t or q_t is not small), correlations between the noise of V and that of A and between positions, and
everything beyond second moments. A batch costs as much as one number for each entry of A, whatever B.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from descentlab.engine import normal
from descentlab.papers.sparse_bigrams.population import by_trigger, moments
from descentlab.papers.sparse_bigrams.tokens import Params
from descentlab.papers.sparse_bigrams.truth import Task


def covariances(V: Float[Array, "N N"], task: Task) -> tuple[Array, Array, Array]:
    """S, VSP' and VSV'."""
    mean = V @ task.mu
    VS = V * task.mu[None, :] - jnp.outer(mean, task.mu)
    return jnp.diag(task.mu) - jnp.outer(task.mu, task.mu), VS @ task.P.T, VS @ V.T


def residual_root(V: Array, b: Array, c: Array, task: Task) -> Float[Array, "N 3*N"]:
    """A square root of sum_k mu_k b_k R_k, without factorising anything but what the task brings.

    With f = sum mu_k b_k, g = sum mu_k b_k c_k, h = sum mu_k b_k^2 the sum is
    f (diag(mu) - P diag(mu) P') + (f - g^2/h) PSP' + h (g/h P - V) S (g/h P - V)', and g^2 <= f h since
    c_k^2 <= b_k.
    """
    mu, P = task.mu, task.P
    f, g, h = jnp.sum(mu * b), jnp.sum(mu * b * c), jnp.sum(mu * b * b)
    side = jnp.sqrt(mu)
    S = jnp.diag(side) - jnp.outer(mu, side)  # S S' is the covariance of a token
    rest = jnp.sqrt(jnp.maximum(f - g**2 / h, 0))
    return jnp.concatenate([jnp.sqrt(f) * task.root, rest * P @ S, jnp.sqrt(h) * (g / h * P - V) @ S], axis=1)


def position_variance(V: Array, b: Array, c: Array, task: Task) -> Float[Array, " N"]:
    """<VSV', R_k> for each trigger: the variance of g[x_t] around its mean over tokens."""
    S, VP, VV = covariances(V, task)
    return jnp.maximum(jnp.sum(VV * S) - 2 * c * jnp.sum(VV * VP) + b * jnp.sum(VV * VV), 0)


def white_rows(key: Key[Array, ""], N: int, T: int) -> Float[Array, "N T"]:
    """White noise less its mean over positions, row by row: at scale all rows at once leave the cache."""

    def row(key: Key[Array, ""]) -> Float[Array, " T"]:
        z = normal(key, (T,))
        return z - jnp.mean(z)

    return jax.lax.map(row, jax.random.split(key, N))


def simulated(key: Key[Array, ""], w: Params, task: Task, batch: Array | float) -> Params:
    """A preconditioned, projected gradient as a batch of so many sequences would give it."""
    V, A = w
    mu, (N, T) = task.mu, A.shape
    V_key, A_key, k_key = jax.random.split(key, 3)
    b, c = by_trigger(A, task)
    VV, VP = moments(V, task)
    error = 1 / jnp.sqrt(jnp.asarray(batch, mu.dtype))

    def centred(z: Float[Array, "n N"]) -> Float[Array, "n N"]:
        """Rows of covariance diag(1/mu) - 11' from white ones."""
        return z / jnp.sqrt(mu)[None, :] - (z @ jnp.sqrt(mu))[:, None]

    # How often each trigger occurred, over how often it should.
    seen = 1 + centred(jax.random.normal(k_key, (1, N), mu.dtype))[0] * error
    base = mu[:, None]
    to_V = jnp.sum(mu * seen * b) * (V - base) - jnp.sum(mu * seen * c) * (task.P - base)
    white = jax.random.normal(V_key, (3 * N, N), mu.dtype)
    to_V = to_V + residual_root(V, b, c, task) @ centred(white) * error

    deviation = error * jnp.sqrt(position_variance(V, b, c, task) / mu)
    z = white_rows(A_key, N, T).astype(mu.dtype)
    to_A = (seen * VV)[:, None] * (A - 1 / T) + (seen * VP)[:, None] / T + deviation[:, None] * z
    rows = jnp.arange(N)[:, None]
    return Params(to_V, to_A.at[rows, task.positions].add(-(seen * VP)[:, None] * task.weights))
