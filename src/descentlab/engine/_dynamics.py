"""Dynamics: a state and the step that moves it.

    init(key) -> state,   step(key, state) -> state

`descent` is gradient descent by any optax transformation: plain, sign, Adam, ... Dynamics in
continuous time, such as gradient flow (_flow.py), have a jump instead of a step: it goes from
one record to the next, however many steps lie between.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import optax
from jaxtyping import Array, Key

from descentlab.engine._objectives import Objective, Params

State = Any


@dataclass(frozen=True)
class Dynamics:
    """A start and a step, both pure functions of a key; or a jump(state, first, last) between steps."""

    init: Callable[[Key[Array, ""]], State]
    step: Callable[[Key[Array, ""], State], State] | None = None
    jump: Callable[[State, Array, Array], State] | None = None

    def __post_init__(self) -> None:
        if (self.step is None) == (self.jump is None):
            raise TypeError(f"Dynamics take a step or a jump, got step={self.step}, jump={self.jump}.")

    def advance(self, key: Key[Array, ""], state: State, first: Array, last: Array) -> State:
        """The state after the steps first, ..., last - 1; step t draws from fold_in(key, t)."""
        if self.jump is not None:
            return self.jump(state, first, last)
        step = self.step
        assert step is not None
        return jax.lax.fori_loop(first, last, lambda t, s: step(jax.random.fold_in(key, t), s), state)


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
