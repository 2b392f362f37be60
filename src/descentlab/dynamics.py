"""Dynamics: a state and the step that moves it.

    init(key) -> state,   step(key, state) -> state

`descent` is gradient descent by any optax transformation: plain, sign, Adam, ...
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import optax
from jaxtyping import Array, Key

from descentlab.objective import Objective, Params

State = Any


@dataclass(frozen=True)
class Dynamics:
    """A start and a step, both pure functions of a key."""

    init: Callable[[Key[Array, ""]], State]
    step: Callable[[Key[Array, ""], State], State]


class Descent(NamedTuple):
    """The state of gradient descent: the parameters and what the transformation remembers."""

    params: Params
    memory: Any


def descent(
    start: Callable[[Key[Array, ""]], Params], objective: Objective, rule: optax.GradientTransformation
) -> Dynamics:
    """Gradient descent on an objective: params <- params + rule(gradient)."""

    def init(key: Key[Array, ""]) -> Descent:
        params = start(key)
        return Descent(params, rule.init(params))

    def step(key: Key[Array, ""], state: Descent) -> Descent:
        gradient = objective.gradient(state.params, key)
        # optax mixes integer counters with floats, which strict promotion would refuse.
        with jax.numpy_dtype_promotion("standard"):
            updates, memory = rule.update(gradient, state.memory, state.params)
        return Descent(optax.apply_updates(state.params, updates), memory)

    return Dynamics(init, step)
