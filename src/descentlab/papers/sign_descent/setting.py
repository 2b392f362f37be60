"""The setting of sign_descent: its presets, the signal-noise data, and the start of the weights."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from descentlab.numerics import float_dtype
from descentlab.preset import Settings, parameter, preset
from descentlab.probe import log_spaced

# ---------------------------------------------------------------- presets


@preset
class Preset(Settings):
    """The paper's letters, and its assumptions as switches."""

    n: int = parameter("training samples", default=20, low=1, high=10_000)
    d: int = parameter("dimension of a token", default=2000, low=2, high=1_000_000)
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
    optimizer: str = parameter(
        "SignGD, Adam or gradient descent", default="sign", choices=("sign", "adam", "gd")
    )
    eta: float = parameter("step size", default=1e-4, above=0)
    beta1: float = parameter("Adam's beta_1", default=0.9, low=0, below=1)
    beta2: float = parameter("Adam's beta_2", default=0.999, low=0, below=1)
    epsilon: float = parameter("Adam's epsilon", default=1e-15, low=0)
    train: str = parameter(
        "trained blocks: query, key, value", default="qkv", choices=("qkv", "qk", "qv", "kv", "q", "k", "v")
    )
    gradient: str = parameter(
        "closed form whose signs survive underflow, or the autodiff of the plain loss",
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


class Weights(NamedTuple):
    """Query, key and mean value weights: on the signal's coordinate and on the active noise ones."""

    q_signal: Float[Array, " m_k"]
    q: Float[Array, "m_k J"]
    k_signal: Float[Array, " m_k"]
    k: Float[Array, "m_k J"]
    v_signal: Float[Array, ""]
    v: Float[Array, " J"]


class Products(NamedTuple):
    """What frozen coordinates add to the products with test noise: constant along the run."""

    q: Float[Array, "m_k N"]
    k: Float[Array, "m_k N"]
    v: Float[Array, " N"]


class Task(NamedTuple):
    """One random instance: training noise, fresh test noise, and the start."""

    preset: Preset
    active: Int[Array, " J"]
    zeta: Float[Array, "n J"]
    u: Float[Array, " n"]
    zeta_test: Float[Array, "N J"]
    frozen: Products
    start: Weights


class FullWeights(NamedTuple):
    """The paper's parameters: W_Q, W_K and W_{V,j}, j = 1, -1."""

    Q: Float[Array, "m_k d"]
    K: Float[Array, "m_k d"]
    V: Float[Array, "2 m_v d"]


def noise(
    key: Key[Array, ""], p: Preset, count: int
) -> tuple[Int[Array, "count s"], Float[Array, "count s"]]:
    """Supports and values of noise patches: s random coordinates beside the first, Gaussian there."""
    where, size = jax.random.split(key)
    bits = jax.random.bits(where, (count, p.d - 1), jnp.uint32)
    support = 1 + jax.lax.top_k(bits, p.s)[1]
    return support, p.sigma_p * jax.random.normal(size, (count, p.s), float_dtype(p.precision))


def full_start(key: Key[Array, ""], p: Preset) -> FullWeights:
    """The Gaussian start, every entry N(0, sigma_0^2)."""
    Q, K, V = jax.random.split(key, 3)

    def draw(key: Key[Array, ""], *shape: int) -> Float[Array, "..."]:
        return p.sigma_0 * jax.random.normal(key, shape, float_dtype(p.precision))

    return FullWeights(draw(Q, p.m_k, p.d), draw(K, p.m_k, p.d), draw(V, 2, p.m_v, p.d))


def dense(support: Int[Array, "c s"], values: Float[Array, "c s"], d: int) -> Float[Array, "c d"]:
    """Sparse patches written out."""
    rows = jnp.arange(support.shape[0])[:, None]
    return jnp.zeros((support.shape[0], d), values.dtype).at[rows, support].set(values)


def make_task(key: Key[Array, ""], p: Preset) -> Task:
    """A random instance. The label's sign drops out of everything but `zeta`; it is absorbed there."""
    data, flips, test, start = jax.random.split(key, 4)
    support, values = noise(data, p, p.n)
    zeta = dense(support, values, p.d)
    flipped = jax.random.uniform(flips, (p.n,), zeta.dtype) < p.label_noise
    u = jnp.where(flipped, -1.0, 1.0).astype(zeta.dtype)
    # Padding points past the last coordinate; reading there gives zeros.
    active = jnp.unique(support, size=min(p.n * p.s, p.d - 1), fill_value=p.d)
    zeta_test = dense(*noise(test, p, p.n_test), p.d)
    w = full_start(start, p)
    if p.start == "aligned":
        toward = p.sigma_0 * zeta.sum(0)
        w = w._replace(Q=w.Q + toward[None, :], K=w.K + toward[None, :])
    elsewhere = zeta_test.at[:, active].set(0.0, mode="drop")
    v = jnp.mean(w.V[0] - w.V[1], axis=0)
    frozen = Products(w.Q @ elsewhere.T, w.K @ elsewhere.T, elsewhere @ v)
    return Task(p, active, at(zeta, active), u, at(zeta_test, active), frozen, reduced(w, active))


def at(x: Float[Array, "*rows d"], active: Int[Array, " J"]) -> Float[Array, "*rows J"]:
    """The active coordinates of the last axis."""
    return jnp.take(x, active, axis=-1, mode="fill", fill_value=0.0)


def reduced(w: FullWeights, active: Int[Array, " J"]) -> Weights:
    """The moving part of the full weights."""
    v = jnp.mean(w.V[0] - w.V[1], axis=0)
    return Weights(w.Q[:, 0], at(w.Q, active), w.K[:, 0], at(w.K, active), v[0], at(v, active))


def sample(
    key: Key[Array, ""], task: Task, batch: int
) -> tuple[Float[Array, "batch 2 d"], Float[Array, " batch"]]:
    """Fresh samples (X, y) of the data model, tokens as rows."""
    p = task.preset
    label, patch = jax.random.split(key)
    y = jax.random.rademacher(label, (batch,), float_dtype(p.precision))
    signal = jnp.zeros((batch, p.d), y.dtype).at[:, 0].set(p.signal * y)
    return jnp.stack([signal, dense(*noise(patch, p, batch), p.d)], axis=1), y
