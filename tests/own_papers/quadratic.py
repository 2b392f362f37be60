"""Gradient descent on a quadratic converges exponentially: a whole paper in one file.

The loss is L(w) = sum_i lambda_i w_i^2 / 2 with lambda_i from 0.1 to 1, and descent w <- w - eta grad L(w)
starts at a random w. Theorem 1: for eta < 2 the loss falls like exp(-c t).
"""

import jax
import jax.numpy as jnp

from descentlab import (
    Experiment,
    Paper,
    Training,
    around,
    data_mutant,
    descent,
    population,
    probe,
    stretch,
    theorem,
)

PRESETS = {
    "tiny": Training(eta=0.5, steps=200),
    "quick": Training(eta=0.5, steps=400),
    "paper": Training(eta=0.1, steps=4000),
}


def make_task(key, p):
    """lambda, the same for every seed."""
    return jnp.linspace(0.1, 1.0, 5)


def loss(w, eigenvalues):
    """L(w)."""
    return jnp.sum(eigenvalues * w**2) / 2


def dynamics(eigenvalues, p):
    """Descent from a random start."""
    objective = population(lambda w: loss(w, eigenvalues))
    return descent(lambda key: jax.random.normal(key, (5,)), objective, p.rule())


def slow(run):
    """A loss that falls like 1/t."""
    return run.assign(loss=run["loss"].isel(step=0) / (1 + run["step"]))


main = theorem("Theorem 1", presets=tuple(PRESETS))


@main.claim(
    predicts=around(1.0, 0.1),
    margin="A tenth: p = 0 is a power of t, p = 2 a Gaussian.",
    mutants=(
        data_mutant("a power of t", lambda run: run.assign(loss=run["loss"][:, :1] / (1 + run["step"]))),
    ),
)
def loss_falls_exponentially(run):
    """The loss falls like exp(-c t^p) with p = 1."""
    return stretch(run["loss"], window=(50, 200))


PAPER = Paper(
    "Gradient Descent on a Quadratic Converges Exponentially",
    "Textbook.",
    Experiment(PRESETS, make_task, dynamics, probes={"loss": probe(loss)}),
)
