"""The four twins of sign_descent, its exact reductions, and signs that survive 32 bits."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import xarray as xr
from scipy import stats

from descentlab.engine import System, log_spaced
from descentlab.engine._rollout import rollout
from descentlab.errors import SettingError
from descentlab.judging import judge
from descentlab.papers import load
from descentlab.papers import sign_descent as sd
from descentlab.papers.sign_descent.theorems import noise_softmax_decays_exponentially, with_decay

SMALL = sd.Preset(n=5, d=40, s=6, m_k=7, m_v=3, sigma_0=0.2, signal=1.3, label_noise=0.3, n_test=50, steps=30)
KEY = jax.random.key(7)
ALPHA = 1e-6


def full_instance(p: sd.Preset, key=KEY) -> tuple[sd.Task, sd.Instance, Any, Any]:
    """A task, and the same instance in the paper's own coordinates with its tokens and labels."""
    instance = sd.make_instance(key, p)
    y = jax.random.rademacher(key, (p.n,), instance.zeta.dtype)
    signal = jnp.zeros((p.n, p.d)).at[:, 0].set(p.signal * y)
    tokens = jnp.stack([signal, y[:, None] * instance.zeta], axis=1)
    return sd.make_task(key, p), instance, tokens, y * instance.u


every_optimizer = pytest.mark.parametrize(
    ("optimizer", "eta"), [("sign", 1e-2), ("gd", 0.3), ("adam", 1e-2), ("proximal", 0.3)]
)


def soft_steps(g: Any, w: Any, eta: float, lam: float) -> Any:
    """Proximal steps of W_Q and W_K and plain ones of W_V, entry by entry."""

    def soft(x: np.ndarray) -> np.ndarray:
        return np.where(x > eta * lam, x - eta * lam, np.where(x < -eta * lam, x + eta * lam, 0.0))

    Q, K, V = (np.asarray(a) - eta * np.asarray(b) for a, b in zip(w, g, strict=True))
    return sd.FullWeights(*(jnp.asarray(a) - b for a, b in zip((soft(Q), soft(K), V), w, strict=True)))


def full_loss(w: sd.FullWeights, X, y, kernel="softmax"):
    return jnp.mean(jax.nn.softplus(-y * jax.vmap(lambda x: sd.predict(w, x, kernel))(X)))


def assert_mean(x: np.ndarray, expected: float, alpha: float = ALPHA) -> None:
    """A z-test on the mean of independent draws."""
    z = (x.mean() - expected) / (x.std(ddof=1) / np.sqrt(x.size))
    assert 2 * stats.norm.sf(abs(z)) > alpha, f"mean {x.mean()} against {expected}, z = {z:.1f}"


# ---------------------------------------------------------------- twin 1: the sampler


def test_samples_have_the_moments_of_the_data_model():
    task = sd.make_task(KEY, SMALL)
    X, y = (np.asarray(a) for a in sd.sample(jax.random.key(1), task, 20_000))
    signal, noise = X[:, 0], X[:, 1]
    np.testing.assert_array_equal(signal[:, 0], y * SMALL.signal)
    assert not signal[:, 1:].any()
    assert not noise[:, 0].any()
    assert set(np.count_nonzero(noise, axis=1)) == {SMALL.s}
    assert_mean(y, 0.0)
    values = noise[noise != 0]
    assert_mean(values, 0.0)
    assert_mean(values**2, SMALL.sigma_p**2)
    hits = np.count_nonzero(noise[:, 1:], axis=0)
    chance = SMALL.s / (SMALL.d - 1)
    # Coordinates are drawn without replacement: variance 1 - chance of the independent one.
    chi2 = (
        ((hits - 20_000 * chance) ** 2).sum()
        / (20_000 * chance * (1 - chance))
        * (SMALL.d - 2)
        / (SMALL.d - 1)
    )
    assert stats.chi2.sf(chi2, SMALL.d - 2) > ALPHA


# ---------------------------------------------------------------- twin 2: the model


def test_predict_is_the_printed_formula():
    _, instance, X, _ = full_instance(SMALL)
    w = instance.start
    Q, K, V = (np.asarray(a) for a in w)
    for x in np.asarray(X):
        F = {1: 0.0, -1: 0.0}
        for j, row in ((1, 0), (-1, 1)):
            for query in range(2):
                scores = [
                    sum((K @ x[key])[r] * (Q @ x[query])[r] for r in range(SMALL.m_k)) for key in range(2)
                ]
                weights = np.exp(scores) / np.sum(np.exp(scores))
                mixed = weights[0] * x[0] + weights[1] * x[1]
                F[j] += sum(V[row, r] @ mixed for r in range(SMALL.m_v)) / SMALL.m_v
        np.testing.assert_allclose(sd.predict(w, jnp.asarray(x)), F[1] - F[-1], rtol=1e-12)


# ---------------------------------------------------------------- twin 3: reduced against full objective


@every_optimizer
def test_reduced_loss_is_the_full_loss(optimizer: str, eta: float):
    task, instance, X, y = full_instance(SMALL.replace(optimizer=optimizer))
    np.testing.assert_allclose(sd.loss(task.start, task), full_loss(instance.start, X, y), rtol=1e-12)


@every_optimizer
def test_test_loss_sees_what_never_moves(optimizer: str, eta: float):
    task, instance, _, _ = full_instance(SMALL.replace(optimizer=optimizer))
    signal = jnp.zeros((SMALL.n_test, SMALL.d)).at[:, 0].set(SMALL.signal)
    tokens = jnp.stack([signal, instance.zeta_test], axis=1)
    margins = jax.vmap(lambda x: sd.predict(instance.start, x))(tokens)
    ours = sd.forward(task.start, SMALL.signal, task.zeta_test, task.frozen).margin
    np.testing.assert_allclose(ours, margins, rtol=1e-10, atol=1e-13)


# ---------------------------------------------------------------- twin 4: gradients


def test_closed_gradient_is_the_gradient():
    task = sd.make_task(KEY, SMALL)
    ours = sd.gradient(task.start, task)
    auto = jax.grad(sd.loss)(task.start, task)
    auto = auto._replace(v_signal=auto.v_signal / SMALL.m_v, v=auto.v / SMALL.m_v)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-16), ours, auto)


def test_gradient_vanishes_off_the_supports_and_is_alike_in_all_value_rows():
    _, instance, X, y = full_instance(SMALL)
    g = jax.grad(full_loss)(instance.start, X, y)
    frozen = 1 + np.flatnonzero(~np.asarray(instance.zeta).any(axis=0)[1:])
    assert frozen.size
    for block in g:
        np.testing.assert_array_equal(np.asarray(block)[..., frozen], 0.0)
    signs = jnp.array([1.0, -1.0])[:, None, None]
    np.testing.assert_allclose(g.V, jnp.broadcast_to(g.V[:1, :1], g.V.shape) * signs, atol=1e-17)


def test_balanced_gradient_has_the_signs_of_the_gradient():
    task = sd.make_task(KEY, SMALL)
    plain, balanced = sd.gradient(task.start, task), sd.gradient(task.start, task, balanced=True)
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(jnp.sign(a), jnp.sign(b)), plain, balanced)


# ---------------------------------------------------------------- the exact moving coordinates


@pytest.mark.parametrize("kernel", ["gaussian", "linear"])
def test_other_kernels_are_those_of_queries_and_keys(kernel: str):
    task, instance, X, y = full_instance(SMALL.replace(attention=kernel))
    Q, K, V = (np.asarray(a) for a in instance.start)
    for x in np.asarray(X):
        f = 0.0
        for query in range(2):
            for key in range(2):
                q, k = Q @ x[query], K @ x[key]
                s = np.exp(-np.sum((q - k) ** 2) / 2) if kernel == "gaussian" else (1 + q @ k) / 2
                f += s * np.mean((V[0] - V[1]) @ x[key])
        np.testing.assert_allclose(sd.predict(instance.start, jnp.asarray(x), kernel), f, rtol=1e-12)
    np.testing.assert_allclose(sd.loss(task.start, task), full_loss(instance.start, X, y, kernel), rtol=1e-12)


@every_optimizer
@pytest.mark.parametrize("kernel", ["softmax", "gaussian", "linear"])
def test_moving_coordinates_give_the_full_run(optimizer: str, eta: float, kernel: str):
    p = SMALL.replace(
        optimizer=optimizer, eta=eta, attention=kernel, steps=SMALL.steps if kernel == "softmax" else 5
    )
    task, instance, X, y = full_instance(p)
    moves, _ = sd.moving(instance.zeta, p)
    rules: dict[str, Any] = {"sign": optax.sign_sgd(eta), "gd": optax.sgd(eta)}
    rules["adam"] = optax.adam(eta, p.beta1, p.beta2, p.epsilon)
    rules["proximal"] = optax.stateless(lambda g, w: soft_steps(g, w, eta, p.lam))
    rule, w = rules[optimizer], instance.start
    memory = rule.init(w)
    dynamics = sd.dynamics(task, p)
    state = dynamics.init(KEY)
    for t in range(p.steps):
        assert dynamics.step is not None
        state = dynamics.step(jax.random.fold_in(KEY, t), state)
        with jax.numpy_dtype_promotion("standard"):
            updates, memory = rule.update(jax.grad(full_loss)(w, X, y, kernel), memory, w)
        w = jax.tree.map(jnp.add, w, updates)

    def back(start, now, then):
        """Weights in the paper's coordinates: w -> w + step @ moves.T."""
        return start + (now - then) @ moves.T

    for name, full, start in (("q", w.Q, instance.start.Q), ("k", w.K, instance.start.K)):
        ours = back(start, getattr(state.params, name), getattr(task.start, name))
        np.testing.assert_allclose(ours[:, 1:], full[:, 1:], rtol=1e-7, atol=1e-10, err_msg=name)
        np.testing.assert_allclose(
            getattr(state.params, f"{name}_signal"), full[:, 0], rtol=1e-7, err_msg=name
        )
    v, v_start = (jnp.mean(a.V[0] - a.V[1], axis=0) for a in (w, instance.start))
    np.testing.assert_allclose(back(v_start, state.params.v, task.start.v)[1:], v[1:], rtol=1e-7, atol=1e-10)
    np.testing.assert_allclose(state.params.v_signal, v[0], rtol=1e-7)


def test_samples_that_share_coordinates_are_tested():
    instance = sd.make_instance(KEY, SMALL)
    assert int(jnp.max(jnp.sum(instance.zeta != 0, axis=0))) >= 3


@pytest.mark.parametrize("p", [sd.PRESETS["tiny"], SMALL, SMALL.replace(n=1), SMALL.replace(s=39)])
def test_shared_coordinates_fit(p: sd.Preset):
    zeta = jax.vmap(lambda k: sd.noise(k, p, p.n))(jax.random.split(KEY, 200))
    shared = jnp.sum(jnp.sum(zeta != 0, axis=1) > 1, axis=1)
    assert int(shared.max()) <= sd.most_shared(p)


def test_shared_coordinates_that_do_not_fit_break_the_run(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sd, "most_shared", lambda p: 2)
    assert not np.isfinite(np.asarray(sd.make_task(KEY, SMALL).start.q)).any()


# ---------------------------------------------------------------- signs in 32 bits

LATE = sd.PRESETS["tiny"].replace(steps=1800, n_test=10)


def late_weights(precision: int) -> tuple[sd.Task, sd.Weights]:
    """A state far in stage IV, where s_21 is below the smallest 32-bit number, in the given precision."""
    p = LATE
    task = sd.make_task(KEY, p)
    dynamics = sd.dynamics(task, p)
    state = dynamics.advance(KEY, dynamics.init(KEY), jnp.asarray(0), jnp.asarray(p.steps))
    cast = lambda x: x.astype(f"float{precision}") if jnp.issubdtype(x.dtype, jnp.floating) else x  # noqa: E731
    narrow = p.replace(precision=precision)
    narrow = jax.tree.map(lambda x: cast(jnp.asarray(x)), narrow)
    return jax.tree.map(cast, task._replace(preset=narrow)), jax.tree.map(cast, state.params)


def test_signs_survive_32_bits_where_autodiff_loses_them():
    task, w = late_weights(32)
    wide_task, _ = late_weights(64)
    wide = jax.tree.map(lambda x: x.astype("float64"), w)
    z_2 = sd.forward(wide, jnp.asarray(1.0), wide_task.zeta.astype("float32").astype("float64")).z_2
    assert float(jnp.max(z_2)) < -104, "the state must be beyond the reach of 32 bits"
    touched = np.asarray(jnp.any(task.zeta != 0, axis=0))
    exact_task = jax.tree.map(
        lambda x: x.astype("float64") if jnp.issubdtype(x.dtype, jnp.floating) else x, task
    )
    exact = np.sign(np.asarray(sd.gradient(wide, exact_task, balanced=True).q))[:, touched]
    assert np.all(exact != 0)
    stable = np.sign(np.asarray(sd.gradient(w, task, balanced=True).q))[:, touched]
    plain = np.sign(np.asarray(jax.grad(sd.loss)(w, task).q))[:, touched]
    assert np.mean(stable == exact) > 0.999
    assert np.mean(plain == 0) > 0.9


def test_the_share_of_lost_signs_is_recorded():
    p = LATE.replace(precision=32, detail=False)
    system = System(sd.make_task, sd.dynamics, sd.probes, "training_loss")
    run = rollout(system, p, range(2), log_spaced(p.steps, dense=1, per_decade=4))
    assert float(run["zero_share"].max()) < 1e-3
    assert float(run["plain_zero_share"].isel(step=-1).min()) > 0.4


# ---------------------------------------------------------------- settings


def test_s_must_fit_beside_the_signal():
    with pytest.raises(SettingError, match=r"s takes a whole number <= d - 1 = 9, got s=10"):
        sd.Preset(d=10, s=10)


def test_snr_is_signal_over_noise_norm():
    p = sd.Preset(signal=2.0, sigma_p=0.5, s=16)
    assert p.snr == pytest.approx(1.0)


# ---------------------------------------------------------------- claims on planted and real runs


def planted_run(power: int) -> xr.Dataset:
    """A run of four seeds whose s_21 falls like exp(-c t^power), but for a little noise, and nothing else."""
    steps = log_spaced(2000, dense=40, per_decade=40)
    shape = (4, steps.size, 3)
    empty = xr.Dataset({"log_softmax_21": (("seed", "step", "sample"), np.zeros(shape))}, {"step": steps})
    noise = np.exp(np.random.default_rng(0).normal(0, 1e-3, shape))
    return with_decay(empty, power) * noise


@pytest.mark.parametrize(("power", "outcome"), [(1, "SUPPORTED"), (2, "REFUTED")])
def test_decay_laws_are_told_apart(power: int, outcome: str):
    assert judge(noise_softmax_decays_exponentially, planted_run(power)).outcome == outcome


def test_log_loss_goes_on_where_the_loss_underflows():
    task = sd.make_task(KEY, SMALL.replace(label_noise=0.0))
    np.testing.assert_allclose(sd.log_loss(task.start, task), jnp.log(sd.loss(task.start, task)), rtol=1e-12)
    # Uniform attention, and a value that fits every sample with its own margin.
    v = jnp.linalg.lstsq(task.zeta, jnp.linspace(1000.0, 1005.0, SMALL.n))[0]
    trained = jax.tree.map(jnp.zeros_like, task.start)._replace(v=v)
    margin = sd.forward(trained, SMALL.signal, task.zeta).margin
    assert float(margin.min()) > 800
    assert float(sd.loss(trained, task)) == 0.0
    expected = -float(margin.min()) + np.log(np.sum(np.exp(-(margin - margin.min())))) - np.log(SMALL.n)
    np.testing.assert_allclose(sd.log_loss(trained, task), expected, rtol=1e-12)


def test_other_optimisers_are_out_of_regime():
    preset = sd.PRESETS["tiny"].replace(optimizer="adam")
    assert all(
        [a.name for a in c.assumes if a.exact and not a.holds(preset)] == ["optimizer = sign"]
        for c in load("sign_descent").claims
        if "tiny" in c.presets
    )
