"""Gradient descent on linear regression converges linearly.

A textbook theorem, standing in for your paper: put its title and authors here, then its setting in its own
letters, as far as one must know it to read the claims.

Inputs are x ~ N(0, Lambda), where Lambda is diagonal with eigenvalues from mu to 1, and labels are
y = <w*, x> + noise. The loss and its descent from zero are

    L(w) = E (y - <w, x>)^2 / 2,   w_{t+1} = w_t - eta grad L(w_t).

Theorem 1. If eta <= 1, the excess loss is at most L(w_t) - L(w*) <= (1 - eta mu)^{2t} (L(w_0) - L(w*)).

| here | paper | meaning |
| --- | --- | --- |
| `d` | d | numbers of an input |
| `eigenvalues` | Lambda | variances of the inputs |
| `w_star` | w* | the truth |
| `mu`, `eta` | mu, eta | smallest eigenvalue, step size |
| `rate` | (1 - eta mu)^2 | the share of the excess loss that a step leaves at most |
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float, Key, ScalarLike
from matplotlib.figure import Figure as Canvas

from descentlab.drawing import BLUE, VERMILION, band, legend, panels
from descentlab.engine import (
    Dynamics,
    Probe,
    Training,
    descent,
    float_dtype,
    online,
    parameter,
    population,
    preset,
    probe,
)
from descentlab.judging import (
    Assumption,
    Estimate,
    at_most,
    data_mutant,
    is_one_of,
    mean,
    mutant,
    theorem,
    trajectories,
)
from descentlab.papers import Deviation, Experiment, Paper, figure

# ---------------------------------------------------------------- presets
# A field for every letter that a reader may want to change, with its meaning and the values it takes. What
# the theorem assumes is a field wherever it can be dropped: here exact gradients (`algorithm`), clean labels.
# `Training` has the fields optimizer, lam, eta, steps and precision; other defaults are plain assignments.


@preset
class Preset(Training):
    """Linear regression by gradient descent."""

    d: int = parameter("numbers of an input", default=10, low=2, high=10_000)
    mu: float = parameter("smallest eigenvalue; the largest is 1", default=0.1, above=0, below=1)
    noise: float = parameter("standard deviation of the label noise", default=0.0, low=0)
    algorithm: str = parameter(
        "gradients: exact, or of a fresh batch a step", default="exact", choices=("exact", "online")
    )
    batch: int = parameter("samples of a batch", default=32, low=1, high=1_000_000)
    eta = 0.5
    steps = 400

    @property
    def rate(self) -> ScalarLike:
        """The share of the excess loss that a step leaves at most."""
        return (1 - self.eta * self.mu) ** 2


# `tiny` is for tests, below a second; `quick` shows the effect; `paper` has the paper's sizes. The time that
# a preset takes belongs here, in words.
PRESETS = {
    "tiny": Preset(d=4, steps=200),
    "quick": Preset(),
    "paper": Preset(d=100, mu=0.02, steps=2000),
}


# ---------------------------------------------------------------- task
# The ground truth of one random instance, and its samples. A seed draws one.


class Task(NamedTuple):
    """The law of inputs and labels."""

    w_star: Float[Array, " d"]
    eigenvalues: Float[Array, " d"]
    noise: Float[Array, ""]


def make_task(key: Key[Array, ""], p: Preset) -> Task:
    """A Gaussian w*, and eigenvalues evenly spaced in their logarithm."""
    dtype = float_dtype(p.precision)
    eigenvalues = jnp.asarray(p.mu, dtype) ** jnp.linspace(1, 0, p.d, dtype=dtype)
    return Task(jax.random.normal(key, (p.d,), dtype), eigenvalues, jnp.asarray(p.noise, dtype))


def sample(
    key: Key[Array, ""], task: Task, batch: int
) -> tuple[Float[Array, "batch d"], Float[Array, " batch"]]:
    """Inputs and labels."""
    of_inputs, of_noise = jax.random.split(key)
    dtype = task.w_star.dtype
    inputs = jax.random.normal(of_inputs, (batch, task.w_star.size), dtype) * jnp.sqrt(task.eigenvalues)[None]
    labels = predict(task.w_star, inputs) + task.noise * jax.random.normal(of_noise, (batch,), dtype)
    return inputs, labels


# ---------------------------------------------------------------- model
# As printed. If a faster form is needed, a test proves it equal to this one.


def predict(w: Float[Array, " d"], inputs: Float[Array, "batch d"]) -> Float[Array, " batch"]:
    """<w, x> of every input."""
    return inputs @ w


# ---------------------------------------------------------------- objective
# The exact expectation where there is a closed form, batches where there is none; both, if you can.


def excess_loss(w: Float[Array, " d"], task: Task) -> Float[Array, ""]:
    """L(w) - L(w*) = (w - w*)' Lambda (w - w*) / 2."""
    return jnp.sum(task.eigenvalues * (w - task.w_star) ** 2) / 2


def gradient(w: Float[Array, " d"], task: Task) -> Float[Array, " d"]:
    """grad L(w) = Lambda (w - w*)."""
    return task.eigenvalues * (w - task.w_star)


def batch_loss(w: Float[Array, " d"], batch: tuple[Array, Array]) -> Float[Array, ""]:
    """The mean over a batch of (y - <w, x>)^2 / 2."""
    inputs, labels = batch
    return jnp.mean((labels - predict(w, inputs)) ** 2) / 2


# ---------------------------------------------------------------- algorithm


def dynamics(task: Task, p: Preset) -> Dynamics:
    """Gradient descent from zero, w <- w - eta grad."""
    if p.algorithm == "exact":
        objective = population(lambda w: excess_loss(w, task), lambda w: gradient(w, task))
    else:
        objective = online(lambda key: sample(key, task, p.batch), batch_loss)
    return descent(lambda key: jnp.zeros_like(task.w_star), objective, p.rule())


# ---------------------------------------------------------------- probes
# What claims and figures read, recorded along the run; `once` at its end.

PROBES = {
    "excess_loss": probe(excess_loss, "L(w) - L(w*)"),
    "rate": Probe(lambda task, p, state: jnp.asarray(p.rate), "(1 - eta mu)^2", once=True),
}


# ---------------------------------------------------------------- theorems
# Where statements stand and what they assume; then claim after claim, each one function: its name says what
# holds, its docstring is the statement, its body measures it on recorded runs. Every claim has a mutant that
# it must refute: a claim that nothing can refute is decoration.

main = theorem(
    "Theorem 1",
    bound="upper",
    assumes=(
        is_one_of("algorithm", "exact"),
        is_one_of("optimizer", "gd"),
        Assumption("eta <= 1", lambda p: p.eta <= 1, lambda p: p.eta),
        # Where w* and w agree to the last digit, the loss is rounding.
        Assumption(
            "the bound stays above rounding",
            lambda p: p.rate**p.steps > np.finfo(float_dtype(p.precision)).eps ** 1.5,
            lambda p: p.rate**p.steps,
        ),
    ),
    presets=("tiny", "quick", "paper"),
)


def bound(run: xr.Dataset) -> xr.DataArray:
    """(1 - eta mu)^{2t} (L(w_0) - L(w*))."""
    return run["rate"] ** run["step"] * run["excess_loss"].isel(step=0)


@main.claim(
    predicts=at_most(0.0),
    margin="None: the inequality has no constants that are not given.",
    mutants=(
        mutant("noisy labels in fresh batches", algorithm="online", noise=1.0),
        data_mutant("a bound of twice the rate", lambda run: run.assign(rate=run["rate"] ** 2)),
    ),
)
def excess_loss_stays_below_its_bound(run: xr.Dataset) -> Estimate:
    """With exact gradients and eta <= 1, the excess loss stays below (1 - eta mu)^{2t} of its start.

    Measured: the largest logarithm of the excess loss over its bound, at t >= 1.
    """
    ratio = (trajectories(run["excess_loss"]) / bound(run)).isel(step=slice(1, None))
    return mean(np.log(ratio.max("step")))


# ---------------------------------------------------------------- figures
# Pure functions of stored runs. Each names the claims that it shows; every claim is shown by one.


@figure(claims=("excess_loss_stays_below_its_bound",))
def figure_1(run: xr.Dataset) -> Canvas:
    """The excess loss and its bound over all seeds: below it, and parallel in the end."""
    figure, axes = panels(1, 1, (4.0, 2.6))
    band(axes[0, 0], run["excess_loss"], "$L(w_t) - L(w_*)$", BLUE)
    band(axes[0, 0], bound(run), r"$(1 - \eta\mu)^{2t}(L(w_0) - L(w_*))$", VERMILION, linestyle="--")
    axes[0, 0].set(xlabel="step", yscale="log")
    legend(figure)
    return figure


# ---------------------------------------------------------------- the paper
# Where the module departs from the paper or fills a gap, each with its reason. There is always one: sizes.

PAPER = Paper(
    "Gradient Descent on Linear Regression Converges Linearly",
    "Textbook; put authors, venue and year here",
    Experiment(PRESETS, make_task, dynamics, PROBES, loss="excess_loss"),
    deviations=(
        Deviation("sizes", "The theorem holds for all sizes; those of the presets are ours."),
        Deviation("start", "Descent starts from zero; the theorem takes any start."),
    ),
)
