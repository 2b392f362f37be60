"""Objectives: a loss of the parameters, and its gradient.

An objective ignores its key (population: an exact expectation; empirical: fixed data) or
draws a fresh batch from it (online). The gradient is `jax.grad` of the loss unless a closed
form is given, which a test must then prove equal.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
from jaxtyping import Array, Float, Key

Params = Any
Batch = Any


@dataclass(frozen=True)
class Objective:
    """`loss(params, key)` and `gradient(params, key)`."""

    loss: Callable[[Params, Key[Array, ""]], Float[Array, ""]]
    gradient: Callable[[Params, Key[Array, ""]], Params]


def empirical(
    loss: Callable[[Params], Float[Array, ""]], gradient: Callable[[Params], Params] | None = None
) -> Objective:
    """The objective of full-batch training on fixed data: every step sees the same loss."""
    slope = gradient or jax.grad(loss)
    return Objective(lambda params, key: loss(params), lambda params, key: slope(params))


def population(
    loss: Callable[[Params], Float[Array, ""]], gradient: Callable[[Params], Params] | None = None
) -> Objective:
    """The objective of training on an exact expectation: no batch, no noise."""
    return empirical(loss, gradient)


def online(
    sample: Callable[[Key[Array, ""]], Batch],
    loss: Callable[[Params, Batch], Float[Array, ""]],
    gradient: Callable[[Params, Batch], Params] | None = None,
) -> Objective:
    """The objective of training on a fresh batch a step: `sample` draws it from the step's key."""
    slope = gradient or jax.grad(loss)
    return Objective(
        lambda params, key: loss(params, sample(key)), lambda params, key: slope(params, sample(key))
    )
