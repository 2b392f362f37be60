r"""Noisy MNIST: a digit in place of the signal, and a patch of noise beside it.

A sample is two tokens of 28 x 28 numbers: x_1 a digit of one of two classes, scaled to norm 1, and x_2
Gaussian noise whose norm is about `noise`. The label is the class. The model is the paper's, with v the mean
value vector as there; nothing is known of the paper's own sizes, so these are ours.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.nn import softplus
from jaxtyping import Array, Float, Key

from descentlab.data import mnist
from descentlab.data.mnist import Digits
from descentlab.engine import (
    Dynamics,
    Loaded,
    Probe,
    Settings,
    descent,
    empirical,
    float_dtype,
    log_spaced,
    optimizer,
    parameter,
    preset,
)
from descentlab.papers.sign_descent.mnist.claims import CLAIMS as CLAIMS
from descentlab.papers.sign_descent.mnist.figures import FIGURES as FIGURES

SIDE = 28
LOSS = "training_loss"


@preset
class Preset(Settings):
    """The paper's letters where it has them."""

    images: str = parameter(
        "the digits 0 and 1 that come with the package, or all of MNIST",
        default="full",
        choices=("small", "full"),
    )
    pool: int = parameter(
        "squares of so many pixels each way are averaged: faster", default=1, choices=(1, 2, 4)
    )
    plus: int = parameter("the digit with label 1", default=0, low=0, high=9)
    minus: int = parameter("the digit with label -1", default=1, low=0, high=9)
    n: int = parameter("training samples", default=100, low=2, high=10_000)
    n_test: int = parameter(
        "test digits, each with fresh noise; all of the two classes, if there are fewer",
        default=1000,
        low=2,
        high=10_000,
    )
    noise: float = parameter("typical norm of the noise patch; that of the digit is 1", default=4.0, above=0)
    m_k: int = parameter("rows of W_Q and W_K (neurons)", default=20, low=1, high=10_000)
    m_v: int = parameter("rows of W_{V,1} and of W_{V,-1}", default=20, low=1, high=10_000)
    sigma_0: float = parameter("standard deviation of the start", default=2e-3, low=0)
    optimizer: str = parameter(
        "SignGD, Adam or gradient descent", default="sign", choices=("sign", "adam", "gd")
    )
    eta: float = parameter("step size of SignGD and Adam", default=1e-4, above=0)
    eta_gd: float = parameter("step size of gradient descent", default=10.0, above=0)
    beta1: float = parameter("Adam's beta_1", default=0.9, low=0, below=1)
    beta2: float = parameter("Adam's beta_2", default=0.999, low=0, below=1)
    epsilon: float = parameter("Adam's epsilon", default=1e-15, low=0)
    steps: int = parameter("training steps", default=3000, low=1, high=10_000_000)
    precision: int = parameter("bits of a floating-point number", default=64, choices=(32, 64))

    def conflicts(self):
        """Two different digits, of those that are there."""
        if self.plus == self.minus:
            yield f"minus takes another digit than plus = {self.plus}, got minus={self.minus}."
        if self.images == "small" and {self.plus, self.minus} != {0, 1}:
            yield (
                f"images=small has the digits 0 and 1 only, got plus={self.plus}, minus={self.minus}; "
                "images=full has all."
            )
        if self.images == "small" and self.n > 1000:
            yield f"n takes a whole number <= 1000 with images=small, got n={self.n}."


PRESETS = {
    "mnist_tiny": Preset(images="small", pool=4, n=20, n_test=100, m_k=10, m_v=10, eta=1e-3, steps=1500),
    # On the digits that come with the package: seconds.
    "mnist_small": Preset(images="small", pool=2, n=40, n_test=500, eta=3e-4),
    "mnist": Preset(),
    "mnist_paper": Preset(n=500, n_test=2000, m_k=100, m_v=100, steps=10_000),
}


def pixels(p: Preset) -> int:
    """The pixels of a patch."""
    return (SIDE // p.pool) ** 2


def records(p: Preset) -> np.ndarray:
    """The first steps one by one, then log-spaced."""
    return log_spaced(p.steps, dense=10, per_decade=30)


# ---------------------------------------------------------------- data


def data(p: Preset) -> Digits:
    """The digits of the two classes as rows of grey levels, and their labels +-1."""
    whole = mnist.digits(p.images)

    def chosen(images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        own = (labels == p.plus) | (labels == p.minus)
        squares = images[own].reshape(-1, SIDE // p.pool, p.pool, SIDE // p.pool, p.pool)
        grey = squares.mean(axis=(2, 4), dtype=np.float32).reshape(-1, pixels(p))
        return grey, np.where(labels[own] == p.plus, 1, -1).astype(np.int8)

    return Digits(*chosen(whole.train, whole.train_labels), *chosen(whole.test, whole.test_labels))


def require(p: Preset) -> None:
    """Raises where MNIST is needed and not there."""
    data(p)


class Samples(NamedTuple):
    """Samples, tokens as rows, and labels +-1."""

    X: Float[Array, "n 2 pixels"]
    y: Float[Array, " n"]


class Task(NamedTuple):
    """Training and test samples with noise of their own."""

    train: Samples
    test: Samples


def samples(key: Key[Array, ""], p: Preset, count: int, images: Array, labels: Array) -> Samples:
    """So many random digits without repetition, as far as there are, each with noise."""
    which, patch = jax.random.split(key)
    dtype = float_dtype(p.precision)
    order = jax.random.permutation(which, images.shape[0])[: min(count, images.shape[0])]
    digits = images[order].astype(dtype)
    digits = digits / jnp.sqrt(jnp.sum(digits**2, axis=1, keepdims=True))
    noise = p.noise / pixels(p) ** 0.5 * jax.random.normal(patch, digits.shape, dtype)
    return Samples(jnp.stack([digits, noise], axis=1), labels[order].astype(dtype))


def make_task(key: Key[Array, ""], p: Preset, digits: Digits) -> Task:
    """Random digits and noise."""
    train, test = jax.random.split(key)
    return Task(
        samples(train, p, p.n, digits.train, digits.train_labels),
        samples(test, p, p.n_test, digits.test, digits.test_labels),
    )


# ---------------------------------------------------------------- model


class Weights(NamedTuple):
    """W_Q, W_K and v = mean_r (w_{V,1,r} - w_{V,-1,r})."""

    Q: Float[Array, "m_k pixels"]
    K: Float[Array, "m_k pixels"]
    v: Float[Array, " pixels"]


def start(key: Key[Array, ""], p: Preset) -> Weights:
    """Every entry of W_Q, W_K and W_V is N(0, sigma_0^2)."""
    Q, K, v = jax.random.split(key, 3)
    dtype = float_dtype(p.precision)
    return Weights(
        p.sigma_0 * jax.random.normal(Q, (p.m_k, pixels(p)), dtype),
        p.sigma_0 * jax.random.normal(K, (p.m_k, pixels(p)), dtype),
        p.sigma_0 * (2 / p.m_v) ** 0.5 * jax.random.normal(v, (pixels(p),), dtype),
    )


def attention(w: Weights, X: Float[Array, "n 2 pixels"]) -> Float[Array, "n 2 2"]:
    """How much each query looks at each key."""
    q, k = X @ w.Q.T, X @ w.K.T
    return jax.nn.softmax(jnp.einsum("nlm,nam->nla", q, k), axis=-1)


def margins(w: Weights, s: Samples) -> Float[Array, " n"]:
    """y f(X): the values of both tokens by the attention that they get."""
    return s.y * jnp.einsum("nla,na->n", attention(w, s.X), s.X @ w.v)


def loss(w: Weights, s: Samples) -> Float[Array, ""]:
    """The mean logistic loss."""
    return jnp.mean(softplus(-margins(w, s)))


def rule(p: Preset) -> optax.GradientTransformation:
    """The optimiser; v, a difference of rows that take opposite steps, takes twice the step of one."""

    def doubled(updates: Any, _: Any) -> Any:
        return updates._replace(v=2.0 * updates.v)

    eta = p.eta_gd if p.optimizer == "gd" else p.eta
    own = optimizer(p.optimizer, eta, beta1=p.beta1, beta2=p.beta2, epsilon=p.epsilon)
    return optax.chain(own, optax.stateless(doubled))


def dynamics(task: Loaded, p: Preset) -> Dynamics:
    """Full-batch training; a row of W_V has 1/m_v of v's gradient."""

    def gradient(w: Weights) -> Weights:
        g = jax.grad(loss)(w, task.own.train)
        return g._replace(v=g.v / p.m_v)

    objective = empirical(lambda w: loss(w, task.own.train), gradient)
    return descent(lambda key: start(key, p), objective, rule(p))


# ---------------------------------------------------------------- probes

EXAMPLES = 4


def probes(p: Preset) -> dict[str, Probe]:
    """Losses, errors, how much attention noise gets, and a few samples to look at."""

    def of(measure, doc: str, *dims: str, **options) -> Probe:
        return Probe(lambda task, p, state: measure(state.params, task.own), doc, dims, **options)

    dtype = float_dtype(p.precision)
    return {
        "training_loss": of(lambda w, task: loss(w, task.train), "logistic loss of the n samples"),
        "test_loss": of(lambda w, task: loss(w, task.test), "logistic loss of test digits with fresh noise"),
        "test_error": of(
            lambda w, task: jnp.mean(margins(w, task.test) <= 0, dtype=dtype), "0-1 loss of the same"
        ),
        "attention_to_noise": of(
            lambda w, task: jnp.mean(attention(w, task.train.X)[:, :, 1]),
            "attention that the noise patch gets, mean over queries and samples",
        ),
        "examples": of(
            lambda w, task: task.train.X[:EXAMPLES], "training samples", "example", "patch", "pixel",
            once=True, dtype=np.float32,
        ),
    }  # fmt: skip
