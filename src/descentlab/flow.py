"""Gradient flow: d params / d time = -gradient, by error-controlled solvers with events.

Time is counted in steps of gradient descent: step t of a flow is time rate · t, where descent
with step size `rate` is after t steps. So both are recorded, compared and judged alike, and
descent tends to the flow as the rate goes to zero.

A solver goes from record to record, takes as many steps as the tolerance asks for, and hands its
last stride on. An event is a function of the parameters that changes sign: the time when it first
does is found by bisection on the solver's own interpolation, to the same tolerance.

>>> import jax.numpy as jnp
>>> halves = flow(lambda key: jnp.ones(1), lambda x: x, 0.1, event=lambda x: x[0] - 0.5)
>>> state = halves.advance(None, halves.init(None), jnp.asarray(0), jnp.asarray(20))
>>> print(f"{state.params[0]:.6f} {0.1 * state.hit:.6f}")  # exp(-2) and log 2
0.135335 0.693147
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import diffrax
import jax
import jax.numpy as jnp
import lineax
import optimistix
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Key, ScalarLike

from descentlab.dynamics import Dynamics
from descentlab.objective import Params

MOST_SOLVER_STEPS = 10_000_000  # between two records


class Flow(NamedTuple):
    """The state of a flow: parameters, the solver's last stride, and the step of the event (-1: not yet)."""

    params: Params
    stride: Float[Array, ""]
    hit: Float[Array, ""]


def flow(
    start: Callable[[Any], Params],
    gradient: Callable[[Params], Params],
    rate: ScalarLike,
    *,
    event: Callable[[Params], Float[Array, ""]] | None = None,
    stop: bool = False,
    stiff: bool = False,
    rtol: float = 1e-8,
    atol: float = 1e-10,
) -> Dynamics:
    """Gradient flow from `start`, to relative and absolute tolerance; `stop` ends it at the event.

    `stiff` takes an implicit solver (Kvaerno's of order 5), whose steps stability does not limit; each
    solves a linear system of the parameters' size. Otherwise an explicit one of order 5 (Tsitouras).
    A solver that fails leaves parameters that are not finite, which a rollout reports.
    """
    term = diffrax.ODETerm(lambda time, params, args: jax.tree.map(jnp.negative, gradient(params)))
    newton = diffrax.with_stepsize_controller_tols(diffrax.VeryChord)(linear_solver=Dense())
    solver = diffrax.Kvaerno5(root_finder=newton) if stiff else diffrax.Tsit5()
    controller = diffrax.PIDController(rtol=rtol, atol=atol)

    def init(key: Key[Array, ""] | None) -> Flow:
        params = start(key)
        dtype = jnp.result_type(*jax.tree.leaves(params))
        return Flow(params, jnp.asarray(rate, dtype), jnp.asarray(-1.0, dtype))

    def solved(state: Flow, begin: Array, end: Array) -> tuple[Flow, Array]:
        """The state at `end`, or at the event if that comes first; and that time."""
        span, seen = end - begin, None
        if event is not None:
            awaited = state.hit < 0
            finder = optimistix.Bisection(rtol=rtol, atol=atol, flip="detect")
            seen = diffrax.Event(lambda t, y, args, **_: jnp.where(awaited, event(y), 1.0), finder)
        solution = diffrax.diffeqsolve(
            term, solver, jnp.zeros_like(span), span, jnp.minimum(state.stride, span), state.params,
            saveat=diffrax.SaveAt(t1=True), stepsize_controller=controller, event=seen,
            max_steps=MOST_SOLVER_STEPS, throw=False,
        )  # fmt: skip
        assert solution.ys is not None
        assert solution.ts is not None
        fine, taken = diffrax.is_okay(solution.result), solution.ts[-1]
        params = jax.tree.map(lambda y: jnp.where(fine, y[-1], jnp.nan), solution.ys)
        # The mean of the strides: the last one is cut to end at the record.
        stride = taken / jnp.maximum(solution.stats["num_accepted_steps"], 1)
        early = diffrax.is_event(solution.result)
        hit = jnp.where(early, (begin + taken) / unit(state), state.hit)
        return Flow(params, stride, hit), jnp.where(early, begin + taken, end)

    def unit(state: Flow) -> Array:
        return jnp.asarray(rate, state.stride.dtype)

    def jump(state: Flow, first: Array, last: Array) -> Flow:
        # diffrax mixes ranks and types, which strict promotion would refuse.
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            begin, end = first * unit(state), last * unit(state)
            if event is None:
                return solved(state, begin, end)[0]

            # Twice at most: to the event, and on from there.
            def unfinished(at: tuple[Flow, Array]) -> Array:
                return (at[1] < end) & ((at[0].hit < 0) if stop else True)

            return jax.lax.while_loop(unfinished, lambda at: solved(*at, end), (state, begin))[0]

    return Dynamics(init, jump=jump)


class Dense(lineax.AbstractLinearSolver):
    """Dense LU. lineax's own compares shardings, which differ when seeds are spread over devices."""

    def init(self, operator: lineax.AbstractLinearOperator, options: dict[str, Any]) -> Any:
        """The factors."""
        return jax.scipy.linalg.lu_factor(operator.as_matrix())

    def compute(self, state: Any, vector: Any, options: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
        """The solution, of the same form as the right-hand side."""
        flat, form = ravel_pytree(vector)
        return form(jax.scipy.linalg.lu_solve(state, flat)), lineax.RESULTS.successful, {}

    def transpose(self, state: Any, options: dict[str, Any]) -> Any:
        """Nothing here differentiates through a solve."""
        raise NotImplementedError

    def conj(self, state: Any, options: dict[str, Any]) -> Any:
        """Nothing here is complex."""
        raise NotImplementedError

    def assume_full_rank(self) -> bool:
        """The matrix of an implicit step is regular."""
        return True
