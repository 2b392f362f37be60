"""Rollouts on a problem whose every number is known."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jaxtyping import Array, Float, Key
from threadpoolctl import threadpool_info, threadpool_limits

from descentlab.engine import (
    Checkpoint,
    Dynamics,
    Loaded,
    Objective,
    Probe,
    Settings,
    System,
    _rollout,
    descent,
    empirical,
    parameter,
    preset,
    rollouts,
)
from descentlab.engine import _platform as numerics
from descentlab.engine._program import _working_set
from descentlab.engine._rollout import rollout


@preset
class Bowl(Settings):
    """Noisy descent on |w - c|^2 / 2."""

    d: int = parameter("dimension", default=3, low=1)
    eta: float = parameter("step size", default=0.1, above=0)
    noise: float = parameter("gradient noise", default=0.0, low=0)
    steps: int = parameter("steps", default=20, low=1)
    precision: int = parameter("bits", default=64, choices=(32, 64))


def make_task(key: Key[Array, ""], p: Bowl) -> Float[Array, " d"]:
    return jax.random.normal(key, (p.d,), f"float{p.precision}")


def dynamics(c: Float[Array, " d"], p: Bowl) -> Dynamics:
    def gradient(w, key):
        return w - c + p.noise * jax.random.normal(key, w.shape, w.dtype)

    objective = Objective(lambda w, key: jnp.sum((w - c) ** 2) / 2, gradient)
    return descent(lambda key: jnp.zeros_like(c), objective, optax.sgd(p.eta))


def probes(p: Bowl) -> dict[str, Probe]:
    return {
        "loss": Probe(lambda c, p, state: jnp.sum((state.params - c) ** 2) / 2, "the loss"),
        "error": Probe(lambda c, p, state: state.params - c, "w - c", ("coordinate",)),
    }


BOWL = System(make_task, dynamics, probes, "loss")
STEPS = np.array([0, 1, 5, 20])


def centres(p: Bowl) -> np.ndarray:
    """Data that all rows share: a row of bytes for each of some centres."""
    return np.arange(12, dtype=np.uint8).reshape(4, 3)


def one_of(key: Key[Array, ""], p: Bowl, data: Array) -> Array:
    return jax.random.randint(key, (), 0, data.shape[0])


def towards(task: Loaded, p: Bowl) -> Dynamics:
    return dynamics(task.data[task.own].astype(float), p)


def of_data(p: Bowl) -> dict[str, Probe]:
    return {
        "loss": Probe(lambda task, p, state: jnp.sum(state.params**2), "the loss"),
        "chosen": Probe(lambda task, p, state: task.own, "which centre", once=True),
        "centre": Probe(lambda task, p, state: task.data[task.own], "the centre", ("coordinate",), once=True),
        "place": Probe(lambda task, p, state: state.params, "w", ("coordinate",)),
    }


SHARED = System(one_of, towards, of_data, "loss", data=centres)


def same(a, b) -> None:
    assert set(a) == set(b)
    for name in a:
        np.testing.assert_array_equal(a[name].values, b[name].values, err_msg=str(name))


@pytest.mark.parametrize("seeds", [1, 2, 3, 5])
def test_descent_on_a_bowl_shrinks_by_its_factor(seeds: int):
    run = rollout(BOWL, Bowl(), range(seeds), STEPS)
    assert run["error"].dims == ("seed", "step", "coordinate")
    expected = run["error"].isel(step=0).values[:, None] * 0.9 ** STEPS[None, :, None]
    np.testing.assert_allclose(run["error"], expected, rtol=1e-12)
    np.testing.assert_array_equal(run["step"], STEPS)
    np.testing.assert_array_equal(run["diverged_at"], np.full(seeds, -1))


@pytest.mark.slow
def test_seeds_are_their_own_whatever_runs_beside_them():
    p = Bowl(noise=0.3)
    together = rollout(BOWL, p, range(6), STEPS)
    for seed in (0, 4):
        alone = rollout(BOWL, p, range(seed, seed + 1), STEPS)
        # A batch of seeds may be rounded differently from one alone, by a few units in the last place.
        np.testing.assert_allclose(together["error"].sel(seed=[seed]), alone["error"], rtol=1e-13)
    assert len({float(x) for x in together["loss"].isel(step=-1)}) == 6


def test_a_run_cut_anywhere_equals_the_uncut_one_bit_for_bit(monkeypatch: pytest.MonkeyPatch):
    p = Bowl(noise=0.3)
    whole = rollout(BOWL, p, range(3), STEPS)
    kept: list[Checkpoint] = []
    with monkeypatch.context() as patch:
        patch.setattr(_rollout, "PIECE_SECONDS", 0.0)
        same(whole, rollout(BOWL, p, range(3), STEPS, keep=kept.append, keep_every=-1.0))
    assert [c.step for c in kept] == list(range(1, 20))
    for checkpoint in kept:
        through_disk = Checkpoint.from_arrays(checkpoint.arrays())
        same(whole, rollout(BOWL, p, range(3), STEPS, resume=through_disk))


@pytest.mark.parametrize("records", [[1, 2], [0, 2, 2], [0, 3, 1]])
def test_records_begin_at_the_start_and_increase(records: list[int]):
    with pytest.raises(ValueError, match="records must begin at 0 and increase"):
        rollout(BOWL, Bowl(), range(1), np.array(records))


def test_precision_is_the_presets():
    for precision in (32, 64):
        run = rollout(BOWL, Bowl(precision=precision), range(2), STEPS)
        assert run["error"].dtype == f"float{precision}"
        assert run["final_params"].dtype == f"float{precision}"


def test_a_run_that_overflows_is_marked_with_its_step():
    run = rollout(BOWL, Bowl(eta=1e12, precision=32), range(2), np.array([0, 2, 20]))
    # |w - c| grows by 1e12 a step and passes 3.4e38 in the fourth.
    np.testing.assert_array_equal(run["diverged_at"], [2, 2])
    only_at_end = rollout(BOWL, Bowl(eta=1e12, precision=32), range(2), np.array([0, 20]))
    np.testing.assert_array_equal(only_at_end["diverged_at"], [4, 4])


@pytest.mark.slow
def test_one_bad_seed_does_not_stop_the_others():
    def poisoned(c, p):
        inner = dynamics(c, p)

        def step(key, state):
            assert inner.step is not None
            state = inner.step(key, state)
            bad = (c[0] > 0) & (jnp.abs(state.params[0] - c[0]) < 0.5 * jnp.abs(c[0]))
            return state._replace(params=jnp.where(bad, jnp.nan, state.params))

        return Dynamics(inner.init, step)

    run = rollout(System(make_task, poisoned, probes, "loss"), Bowl(), range(8), STEPS)
    positive = run["error"].isel(step=0, coordinate=0).values < 0
    assert 0 < positive.sum() < 8
    # 0.9^t < 1/2 from t = 7 on.
    np.testing.assert_array_equal(run["diverged_at"], np.where(positive, 7, -1))
    assert np.isfinite(run["loss"].values[~positive]).all()


def test_whoever_watches_sees_steps_and_losses():
    seen: list[tuple[int, float]] = []
    rollout(BOWL, Bowl(), range(2), STEPS, watch=lambda step, loss: seen.append((step, loss)))
    steps, losses = zip(*seen, strict=True)
    assert steps[-1] == 20
    assert list(steps) == sorted(steps)
    assert losses[-1] < losses[0]


def test_empirical_objectives_ignore_the_key():
    objective = empirical(lambda w: jnp.sum(w**2))
    w = jnp.arange(3.0)
    np.testing.assert_array_equal(objective.gradient(w, jax.random.key(0)), 2 * w)
    assert objective.loss(w, jax.random.key(0)) == objective.loss(w, jax.random.key(1)) == 5.0


@pytest.mark.parametrize("seeds", [1, 5])
def test_rows_share_data_and_choose_from_them(seeds: int):
    run = rollout(SHARED, Bowl(eta=1.0), range(seeds), np.array([0, 1]))
    np.testing.assert_array_equal(run["centre"], centres(Bowl())[run["chosen"]])
    np.testing.assert_array_equal(run["place"].isel(step=1), run["centre"])
    assert "data" not in "".join(str(name) for name in run)


def test_data_are_the_same_for_presets_that_share_a_program():
    several = rollouts(SHARED, [Bowl(eta=0.5), Bowl(eta=1.0)], range(3), np.array([0, 1]))
    for run, eta in zip(several, (0.5, 1.0), strict=True):
        np.testing.assert_allclose(run["place"].isel(step=1), eta * run["centre"].values)


def test_a_run_with_data_goes_on_from_a_checkpoint():
    kept: list[Checkpoint] = []
    noisy = Bowl(noise=0.3)
    whole = rollout(SHARED, noisy, range(2), STEPS, keep=kept.append, keep_every=-1.0)
    same(rollout(SHARED, noisy, range(2), STEPS, resume=kept[len(kept) // 2]), whole)


def test_decompositions_have_one_thread_while_a_rollout_runs_and_all_of_them_after():
    def threads() -> set[int]:
        return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}

    with threadpool_limits(limits=2, user_api="blas"):
        seen: list[set[int]] = []
        rollout(BOWL, Bowl(), range(2), np.arange(3), watch=lambda *_: seen.append(threads()))
        assert seen
        assert all(one == {1} for one in seen)
        assert threads() == {2}


def test_decompositions_keep_to_one_thread_until_the_last_rollout_has_ended():
    def threads() -> set[int]:
        return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}

    first, second = threading.Event(), threading.Event()

    def other() -> None:
        with numerics.OneThread():
            first.set()
            second.wait(10)

    before = threads()
    thread = threading.Thread(target=other)
    thread.start()
    assert first.wait(10)
    with numerics.OneThread():
        second.set()
        thread.join()
        assert threads() == {1}
    assert threads() == before


def test_what_a_row_works_on_is_the_largest_array_on_its_way():
    def draws(key: Array, w: Array) -> Array:
        def step(i, w):
            return w + jnp.mean(jax.random.normal(jax.random.fold_in(key, i), (100, 50, *w.shape)))

        return jax.lax.fori_loop(0, 3, step, w)

    key = jax.random.key(0)
    assert _working_set(draws, (key, jnp.zeros(4))) >= 100 * 50 * 4 * 8
    assert _working_set(lambda key, w: w + 1, (key, jnp.zeros(4))) < 100
    assert _working_set(lambda key: jnp.zeros(1000), (key,)) >= 8000
