r"""Noisy MNIST: a digit in place of the signal, and a patch of noise beside it.

A sample is two tokens of 28 x 28 numbers: x_1 a digit of one of two classes, scaled to norm 1, and x_2
Gaussian noise whose norm is about `noise`. The label is the class. The model is the paper's, with v the mean
value vector as there; nothing is known of the paper's own sizes, so these are ours.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import xarray as xr
from jax.nn import softplus
from jaxtyping import Array, Float, Key
from matplotlib.figure import Figure as Canvas

from descentlab.data import mnist
from descentlab.drawing import BLUE, GREEN, VERMILION, band, legend, panels
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
    probe,
)
from descentlab.judging import (
    Broken,
    Datasets,
    Estimate,
    Mutant,
    Unsettled,
    around,
    at_least,
    check_finite,
    mean,
    setting,
    theorem,
    times,
)
from descentlab.papers import Experiment, figure

# ---------------------------------------------------------------- setting

SIDE = 28


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


def data(p: Preset) -> mnist.Digits:
    """The digits of the two classes as rows of grey levels, and their labels +-1."""
    whole = mnist.digits(p.images)

    def chosen(images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        own = (labels == p.plus) | (labels == p.minus)
        squares = images[own].reshape(-1, SIDE // p.pool, p.pool, SIDE // p.pool, p.pool)
        grey = squares.mean(axis=(2, 4), dtype=np.float32).reshape(-1, pixels(p))
        return grey, np.where(labels[own] == p.plus, 1, -1).astype(np.int8)

    return mnist.Digits(*chosen(whole.train, whole.train_labels), *chosen(whole.test, whole.test_labels))


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


def make_task(key: Key[Array, ""], p: Preset, digits: mnist.Digits) -> Task:
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

    dtype = float_dtype(p.precision)
    return {
        "training_loss": probe(lambda w, task: loss(w, task.own.train), "logistic loss of the n samples"),
        "test_loss": probe(
            lambda w, task: loss(w, task.own.test), "logistic loss of test digits with fresh noise"
        ),
        "test_error": probe(
            lambda w, task: jnp.mean(margins(w, task.own.test) <= 0, dtype=dtype), "0-1 loss of the same"
        ),
        "attention_to_noise": probe(
            lambda w, task: jnp.mean(attention(w, task.own.train.X)[:, :, 1]),
            "attention that the noise patch gets, mean over queries and samples",
        ),
        "examples": probe(
            lambda w, task: task.own.train.X[:EXAMPLES], "training samples", "example", "patch", "pixel",
            once=True, dtype=np.float32,
        ),
    }  # fmt: skip


EXPERIMENT = Experiment(
    PRESETS, make_task, dynamics, probes, loss="training_loss", records=records, data=data, require=data
)

# ---------------------------------------------------------------- claims
#
# What the slides say of noisy MNIST: test losses of GD, SignGD and Adam against the scale of the noise.
# Optimisers are compared at the same training loss, FIT, where each first comes to it.

FIT = 0.05
NOISES = (0.25, 0.5, 1.0, 2.0)  # times the preset's noise
TITLES = {"gd": "GD", "sign": "SignGD", "adam": "Adam"}


def runs(*optimizers: str) -> dict[str, dict[str, Any]]:
    """The runs of some optimisers by name: each at each noise, as overrides of a preset."""
    return {
        f"{name}_{i}": {"optimizer": name, "noise": times(factor)}
        for name in optimizers
        for i, factor in enumerate(NOISES)
    }


def over_noises(name: str, data: Mapping[str, xr.Dataset]) -> list[xr.Dataset]:
    """The runs of an optimiser, from the least noise to the most."""
    return [data[f"{name}_{i}"] for i in range(len(NOISES))]


def noises(data: Mapping[str, xr.Dataset]) -> np.ndarray:
    """The scales of the noise."""
    return np.array([float(setting(run, "noise")) for run in over_noises("sign", data)])


def fitted(run: xr.Dataset) -> np.ndarray:
    """Which seeds have brought their training loss to FIT."""
    return (run["training_loss"] <= FIT).any("step").values


def once_fit(run: xr.Dataset, what: str = "test_loss") -> np.ndarray:
    """A series where the training loss first comes to FIT, by seed; at the last record, if it does not.

    Between the records before and after, series are linear in the logarithm of the training loss.
    """
    loss, series = (run[name].transpose("seed", "step").values for name in ("training_loss", what))
    fit = loss <= FIT
    after = np.where(fit.any(axis=1), fit.argmax(axis=1), fit.shape[1] - 1)
    before = np.where(fit.any(axis=1), np.maximum(after - 1, 0), after)
    own = np.arange(len(fit))
    high, low = (np.log(np.maximum(loss[own, at], 1e-300)) for at in (before, after))
    share = np.where(high > low, (high - np.log(FIT)) / np.where(high > low, high - low, 1.0), 1.0)
    return (1 - share) * series[own, before] + share * series[own, after]


def losses(name: str, data: Mapping[str, xr.Dataset]) -> np.ndarray:
    """The test losses of an optimiser, by noise and seed."""
    for run in over_noises(name, data):
        check_finite(run["training_loss"])
    return np.array([once_fit(run) for run in over_noises(name, data)])


def compared(samples: np.ndarray, data: Mapping[str, xr.Dataset], **by_name: np.ndarray) -> Estimate:
    """The mean of samples over the range of the noise, unsettled while a seed has not come to FIT.

    Notes give mean test losses by optimiser and noise, and how far seeds are that have not come to FIT.
    """
    scales = noises(data)
    notes = {
        f"{name}_at_noise_{noise:g}": own.mean()
        for name, found in by_name.items()
        for noise, own in zip(scales, found, strict=True)
    }
    late = {name: run["training_loss"] for name, run in data.items() if not fitted(run).all()}
    notes |= {f"{name}_training_loss": one.min("step").max() for name, one in late.items()}
    estimate = mean(samples, range={"noise": (scales[0], scales[-1])}, notes=notes)
    return replace(estimate, spread=Unsettled(), lacks="more steps") if late else estimate


def in_place_of(name: str, other: str) -> Mutant:
    """One optimiser's runs under another's name."""

    def alter(data: Datasets) -> Datasets:
        return {**data, **{f"{name}_{i}": data[f"{other}_{i}"] for i in range(len(NOISES))}}

    return Mutant(f"{TITLES[other]} in place of {TITLES[name]}", alter=alter)


def at_least_noise(data: Datasets) -> Datasets:
    """SignGD errs by 2 more where there is least noise."""
    run = data["sign_0"]
    return {**data, "sign_0": run.assign(test_loss=run["test_loss"] + 2.0)}


noisy_mnist = theorem("Slides, noisy MNIST", kind="experiment", bound="order", presets=tuple(PRESETS))


@noisy_mnist.claim(
    predicts=at_least(1.1),
    margin="The slides give no number; a tenth more is what anyone would call better.",
    runs=runs("gd", "sign"),
    mutants=(in_place_of("sign", "gd"),),
)
def mnist_gd_generalises_better(**data: xr.Dataset) -> Estimate:
    """On noisy MNIST, at training loss 0.05, the test loss of SignGD is at least 1.1 times that of GD.

    Measured: the geometric mean over noises of the ratio.
    """
    sign, gd = losses("sign", data), losses("gd", data)
    return compared(np.exp(np.log(sign / gd).mean(axis=0)), data, sign=sign, gd=gd)


@noisy_mnist.claim(
    predicts=at_least(0.0),
    margin="Growth is a sign; no size of it is claimed.",
    runs=runs("gd", "sign"),
    mutants=(Mutant("a gap where there is least noise", alter=at_least_noise),),
)
def mnist_gap_grows_with_noise(**data: xr.Dataset) -> Estimate:
    """On noisy MNIST, at training loss 0.05, the gap between the test losses of SignGD and GD grows with the
    noise: its least-squares slope against the logarithm of the noise is positive.

    Measured: what a doubling of the noise adds to the gap.
    """
    sign, gd = losses("sign", data), losses("gd", data)
    if np.array_equal(sign, gd):
        raise Broken("SignGD and GD have the same test losses, seed by seed: were they different?")
    slopes = np.polyfit(np.log2(noises(data)), sign - gd, 1)[0]
    return compared(slopes, data, sign=sign, gd=gd)


@noisy_mnist.claim(
    predicts=around(1.0, 0.5),
    margin="Half way to GD is where Adam would be as near to the one as to the other.",
    bound="two-sided",
    runs=runs("gd", "sign", "adam"),
    mutants=(in_place_of("adam", "gd"),),
)
def mnist_adam_matches_sign_descent(**data: xr.Dataset) -> Estimate:
    """On noisy MNIST, at training loss 0.05, Adam's test loss is nearer to SignGD's than to GD's:
    (Adam - GD) / (SignGD - GD), both summed over noises, is between 1/2 and 3/2.

    Measured: a ratio of means over seeds. Its interval is that of the linearised ratio. Where SignGD and GD
    do not differ, there is no between.
    """
    by_name = {name: losses(name, data) for name in ("adam", "sign", "gd")}
    adam, sign, gd = (found.sum(axis=0) for found in by_name.values())
    apart = mean(sign - gd)
    low, high = apart.interval()
    ratio = (adam - gd).mean() / (apart.value or np.inf)
    linear = ratio + (adam - gd - ratio * (sign - gd)) / (apart.value or np.inf)
    found = compared(linear, data, **by_name)
    if low <= 0 <= high and apart.seeds > 1 and not isinstance(found.spread, Unsettled):
        return replace(found, spread=Unsettled(), lacks="SignGD and GD to differ")
    return found


# ---------------------------------------------------------------- the figure

COLOURS = {"gd": GREEN, "sign": BLUE, "adam": VERMILION}


@figure(
    runs=runs("gd", "sign", "adam"),
    claims=tuple(claim.name for claim in noisy_mnist.claims),
    presets=tuple(PRESETS),
)
def figure_noisy_mnist(**data: xr.Dataset) -> Canvas:
    """Noisy MNIST. Samples (digit and noise patch), training loss at the largest noise, test loss and error
    of each optimiser when its training loss first is 0.05 or less, all seeds and the mean.
    """
    figure, axes = panels(1, 4, (1.9, 2.2))
    shown, training, *tests = axes[0]
    scales = noises(data)
    samples = data["sign_1"]["examples"].isel(seed=0, example=slice(3)).values
    side = round(samples.shape[-1] ** 0.5)
    rows = [np.hstack(list(example.reshape(2, side, side))) for example in samples]
    shown.imshow(np.vstack(rows), cmap="gray", vmin=-0.2, vmax=0.3)
    shown.set(xticks=[], yticks=[], title=f"samples, noise {scales[1]:g}")
    for name, colour in COLOURS.items():
        own = over_noises(name, data)
        band(training, own[-1]["training_loss"].isel(step=slice(1, None)), TITLES[name], colour)
        for ax, what in zip(tests, ("test_loss", "test_error"), strict=True):
            found = np.array([np.where(fitted(run), once_fit(run, what), np.nan) for run in own])
            ax.plot(scales, found.mean(axis=1), color=colour, marker="o", ms=3)
            ax.plot(np.repeat(scales, found.shape[1]), found.ravel(), ".", color=colour, ms=2, alpha=0.5)
    training.axhline(FIT, color="0.5", lw=0.7, ls=":")
    training.set(xscale="log", yscale="log", xlabel="step", title=f"training loss, noise {scales[-1]:g}")
    for ax, title in zip(tests, (f"test loss at training loss {FIT}", "test error there"), strict=True):
        ax.set(xscale="log", xlabel="norm of the noise patch", title=title)
        ax.set_xticks(scales, [f"{x:g}" for x in scales])
        ax.minorticks_off()
    legend(figure, columns=3)
    return figure
