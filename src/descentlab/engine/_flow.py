"""Gradient flow: d params / d time = -gradient, by error-controlled solvers with events.

Time is counted in steps of gradient descent: step t of a flow is time rate · t, where descent
with step size `rate` is after t steps. So both are recorded, compared and judged alike, and
descent tends to the flow as the rate goes to zero.

A solver goes from record to record, takes as many steps as the tolerance asks for, and hands its
stride on. An event is a condition on the parameters, and its hitting time is found by halving the
interval between the two records where it came true. Every trial is solved for, so the time is as
accurate as the solver (1e-4 for stiff ones, which give up on tiny strides); what comes true and false
again between two records is not seen.

>>> import jax, jax.numpy as jnp
>>> halves = flow(lambda key: jnp.ones(1), lambda x: x, 0.1, event=lambda x: x[0] < 0.5)
>>> key = jax.random.key(0)
>>> state = halves.advance(key, halves.init(key), jnp.asarray(0), jnp.asarray(20))
>>> print(f"{state.params[0]:.6f} {0.1 * state.hit:.6f}")  # exp(-2) and log 2
0.135335 0.693147
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import diffrax
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, ScalarLike

from descentlab.engine._dynamics import Dynamics
from descentlab.engine._objectives import Params

MOST_SOLVER_STEPS = 1_000_000  # between two records


class Flow(NamedTuple):
    """The state of a flow: parameters, the solver's stride, and the step of the event (-1: not yet)."""

    params: Params
    stride: Float[Array, ""]
    hit: Float[Array, ""]


def flow(
    start: Callable[[Any], Params],
    gradient: Callable[[Params], Params],
    rate: ScalarLike,
    *,
    event: Callable[[Params], Bool[Array, ""]] | None = None,
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
    # Time runs from 0 to 1 in every solve: diffrax ends solves with an absolute tolerance of time.
    term = diffrax.ODETerm(lambda _, params, span: jax.tree.map(lambda g: -span * g, gradient(params)))
    solver = diffrax.Kvaerno5() if stiff else diffrax.Tsit5()
    controller = diffrax.PIDController(rtol=rtol, atol=atol, factormax=4, dtmin=1e-16, force_dtmin=False)

    def init(key: Any) -> Flow:
        params = start(key)
        dtype = jnp.result_type(*jax.tree.leaves(params))
        at_once = event is not None and event(params)
        return Flow(params, jnp.asarray(rate, dtype), jnp.where(at_once, 0.0, -1.0).astype(dtype))

    def solved(params: Params, stride: Array, span: Array) -> tuple[Params, Array]:
        """The parameters after a time `span`, and the mean stride that took."""
        # A first stride that ends just before the end would leave a remainder of mere rounding.
        part = jnp.where(stride < 0.99 * span, stride / span, 1.0)
        # Nothing leads on from what is not finite; a solver would take all its steps to find out.
        sound = jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(params)]))
        solution = diffrax.diffeqsolve(
            term, solver, 0.0, jnp.where(sound, 1.0, 0.0), part, params, args=span,
            stepsize_controller=controller, saveat=diffrax.SaveAt(t1=True),
            max_steps=MOST_SOLVER_STEPS, throw=False,
        )  # fmt: skip
        fine = sound & diffrax.is_successful(solution.result)
        there = jax.tree.map(lambda y: jnp.where(fine, y[-1], jnp.nan), solution.ys)
        return there, span / jnp.maximum(solution.stats["num_accepted_steps"], 1)

    def located(state: Flow, begin: Array, end: Array, unit: Array) -> Flow:
        """The state at `end`, with the hit if the event came true since `begin`; as it is if it is over."""
        assert event is not None
        came = event
        close = jnp.finfo(end.dtype).eps * 16 * end

        def unfinished(at: Any) -> Array:
            whole, _, low, high, *_ = at
            return whole | (jnp.isfinite(high) & (high - low > jnp.maximum(close, rtol * high)))

        def halve(at: Any) -> Any:
            whole, trial, low, high, at_low, at_high, at_end, stride = at
            params, taken = solved(at_low, stride, trial - low)
            true = came(params) & (state.hit < 0)
            kept = ((~whole & ~true, at_low), (true, at_high), (whole, at_end))
            at_low, at_high, at_end = (
                jax.tree.map(lambda new, old, now=now: jnp.where(now, new, old), params, x) for now, x in kept
            )
            low, high = jnp.where(whole | true, low, trial), jnp.where(true, trial, high)
            # Seeds that are done go on beside others: their trial must be one that can be solved.
            trial = jnp.where(jnp.isfinite(high), (low + high) / 2, end)
            stride = jnp.where(whole, taken, stride)
            return jnp.zeros_like(whole), trial, low, high, at_low, at_high, at_end, stride

        never, start = jnp.full_like(end, jnp.inf), state.params
        over = (state.hit >= 0) & stop
        first = (~over, end, begin, never, start, start, start, state.stride)
        _, _, _, high, _, at_high, at_end, stride = jax.lax.while_loop(unfinished, halve, first)
        hit = jnp.isfinite(high)
        params = jax.tree.map(lambda a, b: jnp.where(hit & stop, a, b), at_high, at_end)
        return Flow(params, stride, jnp.where(hit, high / unit, state.hit))

    def jump(state: Flow, first: Array, last: Array) -> Flow:
        # diffrax mixes ranks and types, which strict promotion would refuse.
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            unit = jnp.asarray(rate, state.stride.dtype)
            begin, end = first * unit, last * unit
            if event is None:
                return Flow(*solved(state.params, state.stride, end - begin), state.hit)
            return located(state, begin, end, unit)

    return Dynamics(init, jump=jump)
