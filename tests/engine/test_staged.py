"""Staged descent: events, switches, and the bookkeeping between them."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float, Key

from descentlab.engine import (
    Checkpoint,
    Dynamics,
    Objective,
    Probe,
    Settings,
    Stage,
    Staged,
    System,
    _rollout,
    empirical,
    parameter,
    preset,
    staged,
)
from descentlab.engine._rollout import rollout
from descentlab.engine._stages import NOT_YET

KEY = jax.random.key(3)
BOWL = empirical(lambda x: jnp.sum(x**2) / 2)


def plain(eta: float) -> Callable[..., Any]:
    return lambda x, g, t: x - eta * g


def below(level: float) -> Callable[[Staged], Any]:
    return lambda s: jnp.max(jnp.abs(s.params)) < level


def path(dynamics: Dynamics, steps: int) -> list[Staged]:
    """The states after 0, 1, ..., steps steps."""
    assert dynamics.step is not None
    states = [dynamics.init(KEY)]
    for t in range(steps):
        states.append(dynamics.step(jax.random.fold_in(KEY, t), states[-1]))
    return states


def from_one(*stages: Stage, objective: Objective = BOWL) -> Dynamics:
    return staged(lambda key: jnp.asarray(1.0), objective, stages)


# ---------------------------------------------------------------- events


def test_a_stage_is_over_at_the_first_state_at_which_its_event_holds():
    # 1, 1/2, 1/4, 1/8: below 0.2 after three steps; then steps of the second kind alone.
    states = path(from_one(Stage(plain(0.5), below(0.2)), Stage(plain(0.25))), 6)
    quarter = 0.75
    expected = [1, 1 / 2, 1 / 4, 1 / 8, quarter / 8, quarter**2 / 8, quarter**3 / 8]
    assert [float(s.params) for s in states] == expected
    assert [int(s.stage) for s in states] == [0, 0, 0, 1, 1, 1, 1]
    assert [int(s.steps) for s in states] == list(range(7))
    assert [s.began.tolist() for s in states] == [[0, NOT_YET]] * 3 + [[0, 3]] * 4


def test_what_happens_at_a_switch_happens_once_and_at_once():
    raised = Stage(plain(0.5), below(0.2), then=lambda x: x + 1)
    states = path(from_one(raised, Stage(plain(0.5))), 6)
    # After the switch the signal falls below 0.2 again, but the stage is over.
    assert [float(s.params) for s in states] == [1, 1 / 2, 1 / 4, 9 / 8, 9 / 16, 9 / 32, 9 / 64]
    assert states[-1].began.tolist() == [0, 3]


def test_updates_see_the_steps_of_their_own_stage():
    def ageing(x: Any, g: Any, t: Any) -> Any:
        return x + 10.0 ** t.astype(float)

    states = path(from_one(Stage(ageing, lambda s: s.steps >= 2), Stage(ageing)), 5)
    assert [float(s.params) for s in states] == [1, 2, 12, 13, 23, 123]


def test_several_stages_are_passed_at_once():
    stages = [
        Stage(plain(0.5), below(0.3), then=lambda x: x + 0.01),
        Stage(plain(0.25), below(0.3), then=lambda x: x * 2),
        Stage(plain(0.125), below(0.5), then=lambda x: x * 3),
        Stage(plain(0.0)),
    ]
    states = path(from_one(*stages), 3)
    # 1/4 ends the first stage and, raised, the second; doubled it is above one half, and the third stays.
    assert float(states[2].params) == 2 * (0.25 + 0.01)
    assert states[2].began.tolist() == [0, 2, 2, NOT_YET]
    assert int(states[2].stage) == 2
    assert float(states[3].params) == 3 * 2 * (0.25 + 0.01) * 0.875
    assert states[3].began.tolist() == [0, 2, 2, 3]


def test_events_see_what_the_switch_before_made():
    # Without the change at the first switch the second event would hold as well.
    first = Stage(plain(0.5), below(0.3), then=lambda x: x + 1)
    states = path(from_one(first, Stage(plain(0.0), below(0.3)), Stage(plain(1.0))), 4)
    assert [int(s.stage) for s in states] == [0, 0, 1, 1, 1]


def test_an_event_true_at_the_start_skips_the_stage_and_still_switches():
    skipped = Stage(lambda x, g, t: x + jnp.nan, below(2.0), then=lambda x: x * 3)
    states = path(from_one(skipped, Stage(plain(0.5))), 2)
    assert [float(s.params) for s in states] == [3, 1.5, 0.75]
    assert [s.began.tolist() for s in states] == [[0, 0]] * 3
    assert [int(s.stage) for s in states] == [1, 1, 1]


def test_an_event_that_never_comes_leaves_the_run_in_its_stage():
    states = path(from_one(Stage(plain(0.5), below(-1.0)), Stage(plain(0.5))), 5)
    assert states[-1].began.tolist() == [0, NOT_YET]
    assert float(states[-1].params) == 0.5**5


def test_one_stage_is_plain_descent():
    assert float(path(from_one(Stage(plain(0.5))), 4)[-1].params) == 0.5**4


@pytest.mark.parametrize(
    "stages",
    [
        [],
        [Stage(plain(1.0), below(1.0))],
        [Stage(plain(1.0)), Stage(plain(1.0))],
        [Stage(plain(1.0), below(1.0)), Stage(plain(1.0), below(1.0))],
        [Stage(plain(1.0)), Stage(plain(1.0), below(1.0))],
    ],
    ids=["none", "no last", "two last", "no last of two", "last first"],
)
def test_stages_of_which_not_the_last_alone_lacks_an_event_are_refused(stages: list[Stage]):
    with pytest.raises(TypeError, match="all but the last, and only they, have an event"):
        staged(lambda key: jnp.zeros(()), BOWL, stages)


# ---------------------------------------------------------------- gradients


def test_there_is_one_gradient_a_step_at_the_parameters_before_it():
    seen: list[tuple[float, Any]] = []

    def gradient(x: Any, key: Any) -> Any:
        seen.append((float(x), jax.random.key_data(key).tolist()))
        return x

    stages = [Stage(plain(0.5), below(0.3), then=lambda x: x + 1), Stage(plain(0.25), below(1.0))]
    path(from_one(*stages, Stage(plain(0.5)), objective=Objective(lambda x, key: x, gradient)), 5)
    keys = [jax.random.key_data(jax.random.fold_in(KEY, t)).tolist() for t in range(5)]
    assert seen == list(zip([1, 1 / 2, 5 / 4, 15 / 16, 15 / 32], keys, strict=True))


# ---------------------------------------------------------------- whole runs


@preset
class Noisy(Settings):
    """Three stages on a bowl with noise: to a level, for some steps, and for ever."""

    eta: float = parameter("step size", default=0.2, above=0)
    noise: float = parameter("gradient noise", default=0.5, low=0)
    level: float = parameter("where stage 1 ends", default=1.2, above=0)
    steps: int = parameter("steps", default=30, low=1)


def make_task(key: Key[Array, ""], p: Noisy) -> Float[Array, " 4"]:
    return 4 * jax.random.normal(key, (4,))


def dynamics(c: Float[Array, " 4"], p: Noisy) -> Dynamics:
    def gradient(w: Any, key: Any) -> Any:
        return w - c + p.noise * jax.random.normal(key, w.shape, w.dtype)

    def falling(w: Any, g: Any, t: Any) -> Any:
        return w - p.eta / (1.0 + t.astype(w.dtype)) * g

    stages = [
        Stage(lambda w, g, t: w - p.eta * g, lambda s: jnp.max(jnp.abs(s.params - c)) < p.level),
        Stage(falling, lambda s: s.steps >= 20, then=jnp.round),
        Stage(lambda w, g, t: w - 0.01 * g),
    ]
    return staged(lambda key: jnp.zeros_like(c), Objective(lambda w, key: jnp.sum(w), gradient), stages)


def probes(p: Noisy) -> dict[str, Probe]:
    return {
        "loss": Probe(lambda c, p, state: jnp.sum((state.params - c) ** 2), "the loss"),
        "stage": Probe(lambda c, p, state: state.stage, "the stage"),
    }


NOISY = System(make_task, dynamics, probes, "loss")
RECORDS = np.array([0, 1, 5, 20, 30])


def same(a: Any, b: Any) -> None:
    assert set(a) == set(b)
    for name in a:
        np.testing.assert_array_equal(a[name].values, b[name].values, err_msg=str(name))


@pytest.mark.slow
def test_a_run_cut_anywhere_equals_the_uncut_one_bit_for_bit(monkeypatch: pytest.MonkeyPatch):
    whole = rollout(NOISY, Noisy(), range(4), RECORDS)
    began = whole["final_began"].values
    assert len(set(began[:, 1].tolist())) > 1, "seeds switch at steps of their own"
    assert np.all((began[:, 1] > 0) & (began[:, 1] < 20))
    np.testing.assert_array_equal(began[:, [0, 2]], [[0, 20]] * 4)
    finals = [name for name in whole if str(name).startswith("final_")]
    for records in (np.array([0, 30]), np.arange(31)):
        same(whole[finals], rollout(NOISY, Noisy(), range(4), records)[finals])
    stages = rollout(NOISY, Noisy(), range(4), np.arange(31))["stage"].values
    np.testing.assert_array_equal((stages == 0).sum(axis=1), began[:, 1])
    np.testing.assert_array_equal((stages <= 1).sum(axis=1), began[:, 2])
    kept: list[Checkpoint] = []
    monkeypatch.setattr(_rollout, "PIECE_SECONDS", 0.0)
    rollout(NOISY, Noisy(), range(4), RECORDS, keep=kept.append, keep_every=-1.0)
    assert [c.step for c in kept] == list(range(1, 30))
    for checkpoint in kept[::3]:
        through_disk = Checkpoint.from_arrays(checkpoint.arrays())
        same(whole, rollout(NOISY, Noisy(), range(4), RECORDS, resume=through_disk))


@pytest.mark.slow
def test_many_seeds_at_once_are_the_seeds_one_by_one():
    @jax.jit
    def end(key: Any) -> Any:
        run = dynamics(make_task(key, Noisy()), Noisy())
        return run.advance(key, run.init(key), jnp.asarray(0), jnp.asarray(30))

    keys = jax.random.split(KEY, 20)
    together = jax.jit(jax.vmap(end))(keys)
    assert len(set(np.asarray(together.began)[:, 1].tolist())) > 3
    for i in range(20):
        alone = end(keys[i])
        # A batch of seeds may be rounded differently from one alone, by a few units in the last place.
        np.testing.assert_allclose(together.params[i], alone.params, rtol=1e-13, atol=1e-14)
        np.testing.assert_array_equal(together.began[i], alone.began)
        assert (int(together.stage[i]), int(together.steps[i])) == (int(alone.stage), int(alone.steps))


def test_seeds_in_one_program_are_the_plain_loop():
    key = jax.random.key(11)
    c, p = np.asarray(make_task(key, Noisy())), Noisy()
    run = dynamics(jnp.asarray(c), p)
    end = run.advance(key, run.init(key), jnp.asarray(0), jnp.asarray(30))
    w, stage, began = np.zeros(4), 0, [0, NOT_YET, NOT_YET]
    for step in range(31):
        if stage == 0 and np.abs(w - c).max() < p.level:
            stage, began[1] = 1, step
        if stage == 1 and step >= 20:
            w, stage, began[2] = np.round(w), 2, step
        if step == 30:
            break
        z = np.asarray(jax.random.normal(jax.random.fold_in(key, step), (4,)))
        g = w - c + p.noise * z
        w = w - (p.eta, p.eta / (1 + step - began[stage]), 0.01)[stage] * g
    np.testing.assert_allclose(end.params, w, rtol=1e-12, atol=1e-14)
    assert end.began.tolist() == began
