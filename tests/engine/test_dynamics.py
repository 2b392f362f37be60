"""Dynamics go by steps or by jumps, and fresh batches come from the step's key."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from descentlab.engine import Dynamics, System, descent, online, population

KEY = jax.random.key(5)


def test_dynamics_take_a_step_or_a_jump_and_not_both():
    def init(key: Any) -> Any:
        return jnp.zeros(())

    def step(key: Any, state: Any) -> Any:
        return state + 1

    def jump(state: Any, first: Any, last: Any) -> Any:
        return state + 10 * first + last

    with pytest.raises(TypeError, match="a step or a jump"):
        Dynamics(init)
    with pytest.raises(TypeError, match="a step or a jump"):
        Dynamics(init, step, jump)
    first, last = jnp.asarray(3.0), jnp.asarray(7.0)
    assert Dynamics(init, jump=jump).advance(KEY, jnp.zeros(()), first, last) == 37.0
    assert Dynamics(init, step).advance(KEY, jnp.zeros(()), jnp.asarray(3), jnp.asarray(7)) == 4.0
    for dynamics in (Dynamics(init, step), Dynamics(init, jump=jump)):
        system = System(lambda key, p: None, lambda task, p, d=dynamics: d, lambda p: {}, "")
        assert system.divisible(None) == (dynamics.step is not None)


def test_each_step_draws_from_its_own_key_wherever_the_run_is_cut():
    dynamics = Dynamics(lambda key: jnp.zeros(10), lambda key, x: 0.5 * x + jax.random.normal(key, (10,)))
    advance = jax.jit(dynamics.advance)
    x = np.zeros(10)
    for t in range(9):
        x = 0.5 * x + np.asarray(jax.random.normal(jax.random.fold_in(KEY, t), (10,)))
    whole = advance(KEY, jnp.zeros(10), jnp.asarray(0), jnp.asarray(9))
    np.testing.assert_allclose(whole, x, rtol=1e-12, atol=1e-15)
    part = advance(KEY, jnp.zeros(10), jnp.asarray(0), jnp.asarray(4))
    np.testing.assert_array_equal(advance(KEY, part, jnp.asarray(4), jnp.asarray(9)), whole)


def test_online_descent_sees_a_fresh_batch_a_step():
    def sample(key):
        return jax.random.normal(key, (5, 2))

    def loss(w, batch):
        return jnp.mean(jnp.sum((batch - w[None, :]) ** 2, axis=1)) / 2

    fresh, w = online(sample, loss), jnp.array([1.0, -2.0])
    keys = [jax.random.fold_in(KEY, t) for t in range(4)]
    batches = [np.asarray(sample(key)) for key in keys]
    assert len({float(fresh.loss(w, key)) for key in keys}) == 4
    for key, batch in zip(keys, batches, strict=True):
        np.testing.assert_allclose(fresh.loss(w, key), np.sum((batch - np.asarray(w)) ** 2) / 10, rtol=1e-12)
        np.testing.assert_allclose(fresh.gradient(w, key), w - batch.mean(axis=0), rtol=1e-12)
    dynamics = descent(lambda key: w, fresh, optax.sgd(0.3))
    state = dynamics.advance(KEY, dynamics.init(KEY), jnp.asarray(0), jnp.asarray(4))
    for batch in batches:
        w = w - 0.3 * (w - batch.mean(axis=0))
    np.testing.assert_allclose(state.params, w, rtol=1e-12)


def test_closed_gradients_take_the_place_of_autodiff():
    doubled = population(lambda w: jnp.sum(w**2), lambda w: 4 * w)
    fresh = online(lambda key: jnp.ones(2), lambda w, batch: jnp.sum(w * batch), lambda w, batch: 7 * batch)
    w = jnp.arange(2.0)
    np.testing.assert_array_equal(doubled.gradient(w, KEY), 4 * w)
    np.testing.assert_array_equal(fresh.gradient(w, KEY), [7.0, 7.0])
    assert fresh.loss(w, KEY) == doubled.loss(w, KEY) == 1.0
