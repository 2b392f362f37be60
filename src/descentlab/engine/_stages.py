"""Staged descent: several update rules in turn, each until its event comes true.

All stages see the gradient of one objective, so a batch is drawn once a step whatever the stage. A stage is
over at the first state, its own start included, at which its event holds; what happens at the switch
(rounding, normalising) is part of it. Updates see t, the steps their stage has taken; events see the state.

>>> import jax, jax.numpy as jnp
>>> from descentlab.engine._objectives import empirical
>>> half = Stage(lambda x, g, t: x - 0.5 * g, over=lambda s: s.params < 0.2, then=lambda x: x + 1)
>>> still = Stage(lambda x, g, t: x)
>>> run = staged(lambda key: jnp.asarray(1.0), empirical(lambda x: x**2 / 2), [half, still])
>>> key = jax.random.key(0)
>>> end = run.advance(key, run.init(key), jnp.asarray(0), jnp.asarray(10))
>>> float(end.params), int(end.stage), end.began.tolist()  # 1, 1/2, 1/4, 1/8, and then 9/8 for ever
(1.125, 1, [0, 3])
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key

from descentlab.engine._dynamics import Dynamics
from descentlab.engine._objectives import Objective, Params

NOT_YET = -1


def _unchanged(params: Params) -> Params:
    return params


@dataclass(frozen=True)
class Stage:
    """An update (params, gradient, t) -> params, the event of the state that ends it, and what happens then.

    A stage without an event is the last.
    """

    update: Callable[[Params, Params, Int[Array, ""]], Params]
    over: Callable[["Staged"], Bool[Array, ""]] | None = None
    then: Callable[[Params], Params] = _unchanged


class Staged(NamedTuple):
    """Parameters, the stage's number, steps so far, and the step at which each stage began (-1: not yet)."""

    params: Params
    stage: Int[Array, ""]
    steps: Int[Array, ""]
    began: Int[Array, " stages"]


def staged(
    start: Callable[[Key[Array, ""]], Params], objective: Objective, stages: Sequence[Stage]
) -> Dynamics:
    """Descent on an objective by stages; all but the last have an event."""
    if not stages or any(stage.over is None for stage in stages[:-1]) or stages[-1].over is not None:
        raise TypeError("staged takes stages of which all but the last, and only they, have an event.")

    def age(state: Staged) -> Int[Array, ""]:
        return state.steps - state.began[state.stage]

    def settled(state: Staged) -> Staged:
        """The state in the first stage, from its own on, that is not over."""
        for i, stage in enumerate(stages[:-1]):
            assert stage.over is not None
            ends = (state.stage == i) & stage.over(state)
            params = jax.lax.cond(ends, stage.then, _unchanged, state.params)
            began = jnp.where(ends, state.began.at[i + 1].set(state.steps), state.began)
            state = Staged(params, state.stage + ends.astype(state.stage.dtype), state.steps, began)
        return state

    def init(key: Key[Array, ""]) -> Staged:
        zero = jnp.zeros((), int)
        return settled(Staged(start(key), zero, zero, jnp.full(len(stages), NOT_YET).at[0].set(0)))

    def step(key: Key[Array, ""], state: Staged) -> Staged:
        gradient = objective.gradient(state.params, key)
        updates: list[Any] = [stage.update for stage in stages]
        params = jax.lax.switch(state.stage, updates, state.params, gradient, age(state))
        return settled(state._replace(params=params, steps=state.steps + 1))

    return Dynamics(init, step)
