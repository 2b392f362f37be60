"""Gradient flow on linear fields, whose every number is known."""

import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float, Key

from descentlab.engine import Checkpoint, Dynamics, Probe, Settings, System, flow, parameter, preset
from descentlab.engine import _flow as flow_module
from descentlab.engine._flow import Flow
from descentlab.engine._rollout import rollout

KEY = jax.random.key(0)
RATE = 0.1
DECAY, STIFF = np.diag([1.0, 2.0]), np.diag([1.0, 2e4])
TURN = np.array([[0.0, 1.0], [-1.0, 0.0]])  # x_0 = cos(time), x_1 = sin(time) from (1, 0)


@pytest.fixture(autouse=True)
def stuck_solvers_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """No solve below needs as many steps: what is stuck fails, rather than hangs."""
    monkeypatch.setattr(flow_module, "MOST_SOLVER_STEPS", 5000)


@functools.cache
def linear(**options: Any) -> Callable[[Any, Any, Any], list[Flow]]:
    """Solves d x / d time = -G x from x, and gives the states at the given steps."""

    def made(G, x):
        return flow(lambda key: x, lambda x: G @ x, RATE, **options)

    advance = jax.jit(lambda G, state, a, b: made(G, state.params).advance(KEY, state, a, b))

    def states(G, x, steps):
        G, x = jnp.asarray(G), jnp.asarray(x)
        found = [made(G, x).init(KEY)]
        for first, last in itertools.pairwise(steps):
            found.append(advance(G, found[-1], jnp.asarray(first), jnp.asarray(last)))
        return found

    return states


def halved(x: Float[Array, " n"]) -> Any:
    return x[0] < 0.5


@pytest.mark.parametrize(("G", "stiff"), [(DECAY, False), (DECAY, True), (STIFF, True)])
def test_decay_is_exponential_and_halves_at_log_2(G: np.ndarray, stiff: bool):
    steps = [0, 1, 6, 30, 40]
    found = linear(event=halved, stiff=stiff)(G, [1.0, 1.0], steps)
    for step, state in zip(steps, found, strict=True):
        np.testing.assert_allclose(state.params, np.exp(-np.diag(G) * RATE * step), rtol=1e-6, atol=1e-9)
    assert [float(state.hit) for state in found[:3]] == [-1.0] * 3
    # On tiny strides the implicit solver's Newton iteration gives up, which ends the halving early.
    accuracy = 1e-4 if G is STIFF else 1e-6
    np.testing.assert_allclose([float(s.hit) * RATE for s in found[3:]], [np.log(2)] * 2, rtol=accuracy)


def test_an_event_true_at_the_start_is_hit_at_zero():
    found = linear(event=halved, stiff=False)(DECAY, [0.4, 1.0], [0, 1, 30])
    assert [float(state.hit) for state in found] == [0.0] * 3
    np.testing.assert_allclose(found[-1].params, [0.4 * np.exp(-3), np.exp(-6)], rtol=1e-6)


def test_only_the_first_hit_is_kept():
    # cos(time) passes 1/2 at pi/3, 5 pi/3, 7 pi/3, ...
    found = linear(event=halved, stiff=False)(TURN, [1.0, 0.0], [0, 5, 20, 40, 60, 80, 100])
    below = [bool(halved(state.params)) for state in found]
    assert below == [False, False, True, True, False, True, True]
    hits = np.array([float(state.hit) for state in found])
    np.testing.assert_allclose(hits[2:] * RATE, np.pi / 3, rtol=1e-7)
    assert len(set(hits[2:])) == 1


def test_stop_freezes_the_parameters_at_the_event():
    steps = [0, 5, 30, 60]
    found = linear(event=halved, stop=True)(DECAY, [1.0, 1.0], steps)
    np.testing.assert_allclose(found[1].params, np.exp([-0.5, -1.0]), rtol=1e-7)
    np.testing.assert_allclose(found[2].params, [0.5, 0.25], rtol=1e-7)
    assert float(found[2].params[0]) < 0.5
    jax.tree.map(np.testing.assert_array_equal, found[2], found[3])
    at_once = linear(event=halved, stop=True)(DECAY, [0.4, 1.0], steps)
    jax.tree.map(np.testing.assert_array_equal, at_once[0], at_once[3])


def test_tighter_tolerances_give_smaller_errors():
    exact = np.array([np.cos(20.0), np.sin(20.0)])
    states = [linear(rtol=rtol, atol=rtol)(TURN, [1.0, 0.0], [0, 200])[-1] for rtol in (1e-4, 1e-9)]
    coarse, fine = (np.linalg.norm(state.params - exact) for state in states)
    assert fine < 1e-3 * coarse
    assert fine < 1e-7


def test_a_failing_solve_gives_up_rather_than_taking_all_its_steps():
    evaluations = []

    def gradient(x):
        jax.debug.callback(evaluations.append, x[0])
        return jnp.where(x < 0.5, jnp.nan, x)

    dynamics = flow(lambda key: jnp.ones(1), gradient, RATE)
    advance = jax.jit(dynamics.advance)
    state = dynamics.init(KEY)
    for first, last in ((0, 5), (5, 20), (20, 30)):
        evaluations.clear()
        state = jax.block_until_ready(advance(KEY, state, jnp.asarray(first), jnp.asarray(last)))
        jax.effects_barrier()
        assert np.isfinite(state.params).all() == (last == 5)
        assert len(evaluations) < 1000, f"{len(evaluations)} evaluations between {first} and {last}"


# ---------------------------------------------------------------- flows in rollouts


@preset
class Fall(Settings):
    """Each seed decays at a speed of its own; `wall` breaks fast ones where they pass it."""

    wall: float = parameter("where the gradient stops being a number for speeds above 1", default=0.0, low=0)
    steps: int = parameter("steps", default=40, low=1)
    precision: int = parameter("bits", default=64, choices=(32, 64))


def make_task(key: Key[Array, ""], p: Fall) -> Float[Array, ""]:
    return jax.random.uniform(key, (), minval=0.5, maxval=1.5)


def dynamics(speed: Float[Array, ""], p: Fall) -> Dynamics:
    def gradient(x):
        return jnp.where((x < p.wall) & (speed > 1), jnp.nan, speed * x)

    return flow(lambda key: jnp.ones(2), gradient, RATE, event=halved)


def probes(p: Fall) -> dict[str, Probe]:
    return {
        "loss": Probe(lambda speed, p, state: speed * jnp.sum(state.params**2) / 2, "the loss"),
        "speed": Probe(lambda speed, p, state: speed, "speed", once=True),
    }


FALL = System(make_task, dynamics, probes, "loss")
RECORDS = np.array([0, 1, 4, 10, 25, 40])


def test_flows_are_recorded_and_resumed_bit_for_bit_at_records():
    kept: list[Checkpoint] = []
    whole = rollout(FALL, Fall(), range(3), RECORDS, keep=kept.append, keep_every=-1.0)
    speed = whole["speed"].values[:, None]
    np.testing.assert_allclose(whole["loss"], speed * np.exp(-2 * speed * RATE * RECORDS), rtol=1e-6)
    np.testing.assert_allclose(whole["final_hit"] * RATE, np.log(2) / speed[:, 0], rtol=1e-7)
    np.testing.assert_array_equal(whole["diverged_at"], [-1] * 3)
    assert not FALL.divisible(Fall())
    assert [c.step for c in kept] == list(RECORDS[1:-1])
    for checkpoint in kept:
        through_disk = Checkpoint.from_arrays(checkpoint.arrays())
        resumed = rollout(FALL, Fall(), range(3), RECORDS, resume=through_disk)
        for name in whole:
            np.testing.assert_array_equal(whole[name], resumed[name], err_msg=str(name))


def test_seeds_flow_alike_together_and_alone():
    together = rollout(FALL, Fall(), range(3), RECORDS)
    for seed in (0, 2):
        alone = rollout(FALL, Fall(), range(seed, seed + 1), RECORDS)
        for name in ("loss", "final_params", "final_hit"):
            np.testing.assert_allclose(together[name].sel(seed=[seed]), alone[name], rtol=1e-7, err_msg=name)


def test_a_flow_that_breaks_is_reported_with_its_step_and_the_others_go_on():
    data = rollout(FALL, Fall(wall=0.3), range(3), RECORDS)
    speed = data["speed"].values
    broken = speed > 1
    assert 0 < broken.sum() < 3
    through = np.ceil(-np.log(0.3) / (RATE * speed)).astype(int)
    np.testing.assert_array_equal(data["diverged_at"], np.where(broken, through, -1))
    assert np.isnan(data["loss"].values[broken, -1]).all()
    sound = speed[~broken, None]
    expected = sound * np.exp(-2 * sound * RATE * RECORDS)
    np.testing.assert_allclose(data["loss"].values[~broken], expected, rtol=1e-6)
    hits = data["final_hit"].values[~broken] * RATE
    np.testing.assert_allclose(hits, np.log(2) / speed[~broken], rtol=1e-7)
