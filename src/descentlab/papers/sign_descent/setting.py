"""The setting of sign_descent: its presets, the signal-noise data, and the start of the weights."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from descentlab.engine import Settings, float_dtype, log_spaced, parameter, preset

# ---------------------------------------------------------------- presets


@preset
class Preset(Settings):
    """The paper's letters, and its assumptions as switches."""

    n: int = parameter("training samples", default=20, low=1, high=10_000)
    d: int = parameter("dimension of a token", default=2000, low=2, high=100_000)
    s: int = parameter("non-zero coordinates of a noise patch", default=20, low=1)
    m_k: int = parameter("rows of W_Q and W_K (neurons)", default=100, low=1, high=100_000)
    m_v: int = parameter("rows of W_{V,1} and of W_{V,-1}", default=100, low=1, high=100_000)
    sigma_p: float = parameter("standard deviation of the noise", default=1.4, above=0)
    sigma_0: float = parameter("standard deviation of the start", default=2e-3, low=0)
    signal: float = parameter("signal strength, the norm of mu", default=1.0, low=0)
    label_noise: float = parameter("chance that a training label is flipped", default=0.0, low=0, high=1)
    start: str = parameter(
        "Gaussian, or already aligned with the training noise",
        default="gaussian",
        choices=("gaussian", "aligned"),
    )
    attention: str = parameter(
        "softmax, the Gaussian kernel of queries and keys, or linear: 1 + x for exp(x), 2 for its sum",
        default="softmax",
        choices=("softmax", "gaussian", "linear"),
    )
    optimizer: str = parameter(
        "SignGD, Adam, gradient descent, or its proximal steps with an l1 norm of W_Q and W_K",
        default="sign",
        choices=("sign", "adam", "gd", "proximal"),
    )
    lam: float = parameter("optimizer=proximal: weight of the l1 norm", default=0.01, low=0)
    eta: float = parameter("step size", default=1e-4, above=0)
    beta1: float = parameter("Adam's beta_1", default=0.9, low=0, below=1)
    beta2: float = parameter("Adam's beta_2", default=0.999, low=0, below=1)
    epsilon: float = parameter("Adam's epsilon", default=1e-15, low=0)
    train: str = parameter(
        "trained blocks: query, key, value", default="qkv", choices=("qkv", "qk", "qv", "kv", "q", "k", "v")
    )
    gradient: str = parameter(
        "closed form whose signs survive underflow, or the autodiff of the plain loss; attention other than "
        "softmax has no closed form",
        default="stable",
        choices=("stable", "plain"),
    )
    n_test: int = parameter("fresh samples behind the test loss", default=500, low=1, high=1_000_000)
    detail: bool = parameter(
        "record densely, and query and key noise of every neuron and sample", default=True
    )
    steps: int = parameter("training steps", default=2000, low=1, high=100_000_000)
    precision: int = parameter("bits of a floating-point number", default=64, choices=(32, 64))

    def conflicts(self):
        """s non-zeros must fit beside the signal's coordinate."""
        if self.s > self.d - 1:
            yield f"s takes a whole number <= d - 1 = {self.d - 1}, got s={self.s}."

    @property
    def snr(self) -> float:
        """The signal-noise ratio |mu| / (sigma_p sqrt(s)): signal norm over typical noise norm."""
        return self.signal / (self.sigma_p * self.s**0.5)


PRESETS = {
    # All four stages in two seconds, for tests and a first look.
    "tiny": Preset(n=8, d=400, m_k=40, m_v=40, n_test=100, steps=1000),
    # The size at which all four stages show, at the slides' steps; a minute or two with all comparisons.
    "quick": Preset(),
    # Ten times the horizon and a large test set. The paper's own sizes are not known.
    "paper": Preset(steps=20_000, n_test=10_000),
}


def records(p: Preset) -> np.ndarray:
    """Every step of stages I to III, then log-spaced; sparser without `detail`."""
    return (
        log_spaced(p.steps, dense=40, per_decade=40)
        if p.detail
        else log_spaced(p.steps, dense=10, per_decade=15)
    )


# ---------------------------------------------------------------- task


class FullWeights(NamedTuple):
    """The paper's parameters: W_Q, W_K and W_{V,j}, j = 1, -1."""

    Q: Float[Array, "m_k d"]
    K: Float[Array, "m_k d"]
    V: Float[Array, "2 m_v d"]


class Weights(NamedTuple):
    """Query, key and mean value weights: on the signal's coordinate, and on J that move (`moving`)."""

    q_signal: Float[Array, " m_k"]
    q: Float[Array, "m_k J"]
    k_signal: Float[Array, " m_k"]
    k: Float[Array, "m_k J"]
    v_signal: Float[Array, ""]
    v: Float[Array, " J"]


class Products(NamedTuple):
    """What weights that never move add to the products with test noise."""

    q: Float[Array, "m_k N"]
    k: Float[Array, "m_k N"]
    v: Float[Array, " N"]


class Instance(NamedTuple):
    """A random instance in the paper's coordinates: y_i xi_i for training and test, label flips, start."""

    zeta: Float[Array, "n d"]
    zeta_test: Float[Array, "N d"]
    u: Float[Array, " n"]
    start: FullWeights


class Task(NamedTuple):
    """The same instance in the coordinates that move; `zeta`, `zeta_test` and `start` are expressed there."""

    preset: Preset
    zeta: Float[Array, "n J"]
    u: Float[Array, " n"]
    zeta_test: Float[Array, "N J"]
    frozen: Products
    start: Weights


def noise(key: Key[Array, ""], p: Preset, count: int) -> Float[Array, "count d"]:
    """Noise patches: s random coordinates beside the first are N(0, sigma_p^2), the rest is zero."""
    where, size = jax.random.split(key)
    last = jnp.arange(p.d - p.s, p.d)  # Floyd's algorithm: one of 1..last, or last itself if that is taken
    draws = jax.random.randint(where, (count, p.s), 1, last[None, :] + 1)

    def add(i: Array, support: Int[Array, "count s"]) -> Int[Array, "count s"]:
        taken = jnp.any(support == draws[:, i, None], axis=1)
        return support.at[:, i].set(jnp.where(taken, last[i], draws[:, i]))

    support = jax.lax.fori_loop(0, p.s, add, jnp.zeros_like(draws))
    values = p.sigma_p * jax.random.normal(size, (count, p.s), float_dtype(p.precision))
    return jnp.zeros((count, p.d), values.dtype).at[jnp.arange(count)[:, None], support].set(values)


def full_start(key: Key[Array, ""], p: Preset) -> FullWeights:
    """The Gaussian start, every entry N(0, sigma_0^2)."""
    Q, K, V = jax.random.split(key, 3)

    def draw(key: Key[Array, ""], *shape: int) -> Float[Array, "..."]:
        return p.sigma_0 * jax.random.normal(key, shape, float_dtype(p.precision))

    return FullWeights(draw(Q, p.m_k, p.d), draw(K, p.m_k, p.d), draw(V, 2, p.m_v, p.d))


def make_instance(key: Key[Array, ""], p: Preset) -> Instance:
    """A random instance. The label's sign drops out of everything but y_i xi_i, which is noise like xi_i."""
    data, flips, test, start = jax.random.split(key, 4)
    zeta, w = noise(data, p, p.n), full_start(start, p)
    flipped = jax.random.uniform(flips, (p.n,), zeta.dtype) < p.label_noise
    if p.start == "aligned":
        toward = p.sigma_0 * zeta.sum(0)
        w = w._replace(Q=w.Q + toward[None, :], K=w.K + toward[None, :])
    return Instance(zeta, noise(test, p, p.n_test), jnp.where(flipped, -1.0, 1.0).astype(zeta.dtype), w)


def make_task(key: Key[Array, ""], p: Preset) -> Task:
    """A random instance in the coordinates that move."""
    instance = make_instance(key, p)
    moves, reads = moving(instance.zeta, p)
    w = instance.start
    mean_value = jnp.mean(w.V[0] - w.V[1], axis=0)
    zeta_test = instance.zeta_test @ moves
    q, k, v = w.Q @ reads, w.K @ reads, mean_value @ reads
    frozen = Products(
        w.Q @ instance.zeta_test.T - q @ zeta_test.T,
        w.K @ instance.zeta_test.T - k @ zeta_test.T,
        instance.zeta_test @ mean_value - zeta_test @ v,
    )
    start = Weights(w.Q[:, 0], q, w.K[:, 0], k, mean_value[0], v)
    return Task(p, instance.zeta @ moves, instance.u, zeta_test, frozen, start)


def moving(zeta: Float[Array, "n d"], p: Preset) -> tuple[Float[Array, "d J"], Float[Array, "d J"]]:
    """A basis in which training happens: x becomes x @ moves, a weight w becomes w @ reads.

    All gradients are combinations of the zeta_i, hence zero off their supports; that leaves n s coordinates.
    A step in the new coordinates is the same step in the old ones, w -> w + step @ moves.T, for

    - Adam: those coordinates themselves;
    - SignGD: coordinates that one sample has for itself all step by the sign of one number times
      sgn(zeta_ij), so they are one coordinate; those that samples share remain;
    - proximal steps, which pull at every weight: all coordinates;
    - GD, which does not care for rotations: an orthonormal basis of the span of the zeta_i.
    """
    if p.optimizer == "gd":
        basis = jnp.linalg.qr(zeta.T)[0]
        return basis, basis
    samples = jnp.sum(zeta != 0, axis=0)
    if p.optimizer == "proximal":
        everything = _picks(jnp.arange(p.d) > 0, p.d - 1, zeta.dtype)
        return everything, everything
    if p.optimizer == "adam":
        active = _picks(samples > 0, min(p.n * p.s, p.d - 1), zeta.dtype)
        return active, active
    own = jnp.where(samples == 1, zeta, 0.0)
    length = jnp.sum(jnp.abs(own), axis=1, keepdims=True)
    read = own / jnp.where(length > 0, length, 1.0)
    shared = _picks(samples > 1, most_shared(p), zeta.dtype)
    # Should they not fit after all, the run must break and not go on without them.
    fits = jnp.where(jnp.sum(samples > 1) <= shared.shape[1], 1.0, jnp.nan).astype(zeta.dtype)
    return jnp.hstack([jnp.sign(own).T, shared]), fits * jnp.hstack([read.T, shared])


def most_shared(p: Preset) -> int:
    """How many coordinates more than one sample has: certainly, or but for a chance of 1e-15.

    A coordinate is shared with the chance that a Binomial(n, s/(d-1)) is at least 2. These events are
    negatively associated, so Bernstein's inequality holds for their number.
    """
    one = p.s / (p.d - 1)
    expected = (p.d - 1) * (1 - (1 - one) ** p.n - p.n * one * (1 - one) ** (p.n - 1))
    rare = -math.log(1e-15)
    likely = expected + rare / 3 + math.sqrt(rare**2 / 9 + 2 * rare * expected)
    return min(p.n * p.s // 2, p.d - 1, math.ceil(likely))


def _picks(chosen: Bool[Array, " d"], most: int, dtype: np.dtype) -> Float[Array, "d most"]:
    """The matrix that picks the chosen coordinates, with zero columns behind them."""
    index = jnp.flatnonzero(chosen, size=most, fill_value=chosen.size)
    return (jnp.arange(chosen.size)[:, None] == index[None, :]).astype(dtype)


def sample(
    key: Key[Array, ""], task: Task, batch: int
) -> tuple[Float[Array, "batch 2 d"], Float[Array, " batch"]]:
    """Fresh samples (X, y) of the data model, tokens as rows."""
    p = task.preset
    label, patch = jax.random.split(key)
    y = jax.random.rademacher(label, (batch,), float_dtype(p.precision))
    signal = jnp.zeros((batch, p.d), y.dtype).at[:, 0].set(p.signal * y)
    return jnp.stack([signal, noise(patch, p, batch)], axis=1), y
