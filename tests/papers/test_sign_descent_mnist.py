"""Noisy MNIST of sign_descent: digits and noise, the printed model, three optimisers, and its claims."""

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib.figure
import numpy as np
import pytest
import xarray as xr
from matplotlib.axes import Axes
from scipy import stats

from descentlab.data import mnist
from descentlab.engine import Descent, Dynamics, Loaded
from descentlab.engine._rollout import rollout
from descentlab.errors import DataError, SettingError
from descentlab.judging import Claim, Outcome, judge
from descentlab.papers import _registry as paper
from descentlab.papers import sign_descent as sd
from descentlab.papers.sign_descent import mnist as noisy

KEY = jax.random.key(7)
ALPHA = 1e-6
CLAIMS = noisy.noisy_mnist.claims
SMALL = noisy.Preset(
    images="small", pool=4, n=6, n_test=9, noise=1.5, m_k=3, m_v=4, sigma_0=0.3, eta=1e-2, steps=12
)
MANY = SMALL.replace(n=300, n_test=200)
ALL = SMALL.replace(n=1000, n_test=2000)

every_optimizer = pytest.mark.parametrize("optimizer", ["sign", "gd", "adam"])
with_and_without_pooling = pytest.mark.parametrize("pool", [1, 4])


@functools.cache
def digits_of(p: noisy.Preset = SMALL) -> mnist.Digits:
    """The digits as a run sees them."""
    return jax.tree.map(jnp.asarray, noisy.data(p))


make_task = jax.jit(noisy.make_task)


def task_of(p: noisy.Preset, key: Any = KEY) -> noisy.Task:
    return make_task(key, p, digits_of(p.replace(n=6, n_test=9, noise=1.5)))


def dynamics_of(p: noisy.Preset, task: noisy.Task) -> Dynamics:
    return noisy.dynamics(Loaded(task, digits_of(p)), p)


def full_weights(p: noisy.Preset, seed: int = 0) -> sd.FullWeights:
    """Random weights of the paper's model."""
    Q, K, V = (
        jnp.asarray(0.3 * np.random.default_rng([seed, i]).normal(size=(*rows, noisy.pixels(p))))
        for i, rows in enumerate(((p.m_k,), (p.m_k,), (2, p.m_v)))
    )
    return sd.FullWeights(Q, K, V)


@jax.jit
def printed_margins(w: sd.FullWeights, part: noisy.Samples) -> Any:
    """y f(X) of the paper's model as printed."""
    return part.y * jax.vmap(lambda x: sd.predict(w, x))(part.X)


def reduced(w: sd.FullWeights) -> noisy.Weights:
    """The same weights with the rows of W_V as their mean difference."""
    return noisy.Weights(w.Q, w.K, jnp.mean(w.V[0] - w.V[1], axis=0))


def assert_mean(x: Any, expected: float) -> None:
    """A z-test on the mean of independent draws."""
    x = np.asarray(x)
    z = (x.mean() - expected) / (x.std(ddof=1) / np.sqrt(x.size))
    assert 2 * stats.norm.sf(abs(z)) > ALPHA, f"mean {x.mean()} against {expected}, z = {z:.1f}"


# ---------------------------------------------------------------- data


@pytest.mark.parametrize("pool", [1, 2, 4])
@pytest.mark.parametrize(("plus", "minus"), [(0, 1), (1, 0)])
def test_data_are_means_over_squares_with_labels_plus_and_minus_one(pool: int, plus: int, minus: int):
    p = SMALL.replace(pool=pool, plus=plus, minus=minus)
    found = noisy.data(p)
    images, labels, test_images, test_labels = mnist.small()
    side = 28 // pool
    assert noisy.pixels(p) == side**2
    for ours, theirs, signs, names in (
        (found.train, images, found.train_labels, labels),
        (found.test, test_images, found.test_labels, test_labels),
    ):
        assert ours.shape == (1000, side**2)
        np.testing.assert_array_equal(signs, np.where(names == plus, 1, -1))
        for i in (0, 1, 500, 999):
            for row in range(side):
                for column in range(side):
                    square = [
                        float(theirs[i, pool * row + a, pool * column + b])
                        for a in range(pool)
                        for b in range(pool)
                    ]
                    expected = sum(square) / pool**2
                    assert ours[i, side * row + column] == pytest.approx(expected, rel=1e-6)


def test_of_all_digits_the_two_classes_are_taken_in_their_order(monkeypatch: pytest.MonkeyPatch):
    rng = np.random.default_rng(0)
    splits = {
        split: (rng.integers(256, size=(n, 28, 28), dtype=np.uint8), rng.integers(10, size=n, dtype=np.uint8))
        for split, n in (("train", 60), ("test", 40))
    }
    monkeypatch.setattr(mnist, "load", splits.__getitem__)
    found = noisy.data(noisy.Preset(plus=3, minus=7))
    for split, images, signs in (
        ("train", found.train, found.train_labels),
        ("test", found.test, found.test_labels),
    ):
        own = [i for i, label in enumerate(splits[split][1]) if label in (3, 7)]
        assert 0 < len(own) < len(splits[split][1])
        np.testing.assert_array_equal(images, splits[split][0][own].reshape(len(own), -1))
        np.testing.assert_array_equal(signs, [1 if splits[split][1][i] == 3 else -1 for i in own])


def sources(X: Any, images: Any) -> list[int]:
    """Which digit each sample has as its first token; it must be that digit over its norm."""
    rows = np.asarray(images, float)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    first = np.asarray(X)[:, 0]
    found = np.argmax(first @ rows.T, axis=1)
    np.testing.assert_allclose(first, rows[found], rtol=1e-12)
    return found.tolist()


@with_and_without_pooling
def test_samples_are_digits_of_norm_one_without_repetition_and_their_labels(pool: int):
    p = MANY.replace(pool=pool)
    digits, task = digits_of(p), task_of(p)
    for found, images, labels, n in (
        (task.train, digits.train, digits.train_labels, 300),
        (task.test, digits.test, digits.test_labels, 200),
    ):
        assert found.X.shape == (n, 2, noisy.pixels(p))
        assert found.X.dtype == found.y.dtype == np.float64
        np.testing.assert_allclose(np.linalg.norm(found.X[:, 0], axis=1), 1.0, rtol=1e-12)
        which = sources(found.X, images)
        assert len(set(which)) == n
        np.testing.assert_array_equal(found.y, np.asarray(labels)[which])
        assert set(np.asarray(found.y).tolist()) == {1.0, -1.0}


def test_every_digit_is_as_likely_as_any_other():
    p = SMALL.replace(n=50)
    index = jnp.arange(1000.0)[:, None] * jnp.ones((1, noisy.pixels(p)))

    def drawn(key: Any) -> Any:
        # What is told apart by norms is lost: labels are kept as they are.
        return noisy.samples(key, p, p.n, index + 1, jnp.arange(1000)).y

    which = np.asarray(jax.jit(jax.vmap(drawn))(jax.random.split(KEY, 400)), int)
    assert all(len(set(row)) == p.n for row in which)
    hits = np.bincount(which.ravel(), minlength=1000)
    # Without replacement: variance 1 - n/N of the independent one.
    chi2 = ((hits - 20.0) ** 2).sum() / (20.0 * (1 - 50 / 1000)) * 999 / 1000
    assert stats.chi2.sf(chi2, 999) > ALPHA
    assert stats.chi2.cdf(chi2, 999) > ALPHA


@pytest.mark.parametrize("noise", [0.5, 8.0])
def test_noise_is_gaussian_of_its_norm_and_independent(noise: float):
    p = ALL.replace(noise=noise)
    task = task_of(p)
    train, test = (np.asarray(part.X[:, 1]) for part in (task.train, task.test))
    for part in (train, test):
        squares = (part**2).sum(axis=1)
        assert_mean(squares, noise**2)
        assert_mean(part, 0.0)
        assert stats.kstest(part.ravel() / noise * noisy.pixels(p) ** 0.5, "norm").pvalue > ALPHA
        assert_mean(part[:, 1:] * part[:, :-1], 0.0)
        assert_mean(part[1:] * part[:-1], 0.0)
    assert_mean(train * test, 0.0)
    assert_mean(train * np.asarray(task.train.X[:, 0]), 0.0)
    assert_mean(train.sum(axis=1) * np.asarray(task.train.y), 0.0)


def test_where_there_are_fewer_digits_all_are_taken():
    task, digits = task_of(ALL), digits_of()
    assert sorted(sources(task.train.X, digits.train)) == list(range(1000))
    assert sorted(sources(task.test.X, digits.test)) == list(range(1000))


def test_seeds_have_tasks_of_their_own_and_the_same_seed_the_same():
    one, again, other = (task_of(SMALL, jax.random.key(seed)) for seed in (1, 1, 2))
    jax.tree.map(np.testing.assert_array_equal, one, again)
    assert not np.array_equal(one.train.X[:, 0], other.train.X[:, 0])
    assert not np.any(one.train.X[:, 1] == other.train.X[:, 1])


# ---------------------------------------------------------------- model


@with_and_without_pooling
def test_margins_are_labels_times_the_printed_model(pool: int):
    p = MANY.replace(pool=pool)
    task, full = task_of(p), full_weights(p)
    for part in (task.train, task.test):
        printed = np.asarray(printed_margins(full, part))
        assert np.ptp(printed) > 0.01
        ours = jax.jit(noisy.margins)(reduced(full), part)
        np.testing.assert_allclose(ours, printed, rtol=1e-10, atol=1e-13)
        expected = np.mean([np.log1p(np.exp(-margin)) for margin in printed])
        np.testing.assert_allclose(jax.jit(noisy.loss)(reduced(full), part), expected, rtol=1e-12)


def test_attention_is_softmax_over_keys():
    w, X = reduced(full_weights(SMALL)), task_of(SMALL).train.X
    found = np.asarray(jax.jit(noisy.attention)(w, X))
    np.testing.assert_allclose(found.sum(axis=2), 1.0, rtol=1e-12)
    assert not np.allclose(found.sum(axis=1), 1.0, atol=1e-3)
    Q, K = np.asarray(w.Q), np.asarray(w.K)
    for n, x in enumerate(np.asarray(X)):
        for query in range(2):
            scores = [np.exp((Q @ x[query]) @ (K @ x[key])) for key in range(2)]
            np.testing.assert_allclose(found[n, query], np.array(scores) / sum(scores), rtol=1e-10)


def test_the_start_is_gaussian_and_v_a_mean_over_rows():
    p = SMALL.replace(pool=1, m_k=100, m_v=8, sigma_0=0.2)
    many = jax.jit(jax.vmap(lambda key: noisy.start(key, p)))(jax.random.split(KEY, 20))
    w = jax.tree.map(lambda x: x[0], many)
    assert w.Q.shape == w.K.shape == (100, 784)
    for block in (w.Q, w.K):
        assert_mean(block, 0.0)
        assert_mean(np.asarray(block) ** 2, p.sigma_0**2)
    assert_mean(np.asarray(w.Q) * np.asarray(w.K), 0.0)
    v = np.asarray(many.v)
    assert_mean(v, 0.0)
    # The mean of m_v differences of two.
    assert_mean(v**2, 2 * p.sigma_0**2 / p.m_v)


# ---------------------------------------------------------------- gradients and steps


def full_loss(w: Sequence[np.ndarray], X: np.ndarray, y: np.ndarray) -> tuple[float, list[np.ndarray]]:
    """The loss of the paper's model and its gradient in W_Q, W_K and every row of W_V, sample by sample."""
    Q, K, V = w
    total, slopes = 0.0, [np.zeros_like(block) for block in w]
    signs = np.array([1.0, -1.0])[:, None, None]
    for x, label in zip(X, y, strict=True):
        q, k = x @ Q.T, x @ K.T
        scores = np.exp(q @ k.T)
        scores /= scores.sum(axis=1, keepdims=True)
        values = (signs * V).sum(axis=(0, 1)) @ x.T / V.shape[1]
        margin = label * (scores @ values).sum()
        total += np.log1p(np.exp(-margin)) / len(y)
        outer = -label / (1 + np.exp(margin)) / len(y)
        inner = outer * scores * (values[None, :] - (scores @ values)[:, None])
        slopes[0] += np.einsum("la,am,ld->md", inner, k, x)
        slopes[1] += np.einsum("la,lm,ad->md", inner, q, x)
        slopes[2] += outer * signs / V.shape[1] * (scores.sum(axis=0) @ x)[None, None, :]
    return float(total), slopes


def as_numpy(w: sd.FullWeights) -> list[np.ndarray]:
    return [np.array(block) for block in w]


def test_the_gradient_is_that_of_finite_differences():
    task, w = task_of(SMALL), reduced(full_weights(SMALL))
    g, rng, h = jax.jit(jax.grad(noisy.loss))(w, task.train), np.random.default_rng(1), 1e-5
    loss = jax.jit(noisy.loss)
    for block in noisy.Weights._fields:
        for _ in range(5):
            toward = jnp.asarray(rng.normal(size=getattr(w, block).shape))
            up, down = (w._replace(**{block: getattr(w, block) + s * h * toward}) for s in (1, -1))
            slope = (loss(up, task.train) - loss(down, task.train)) / (2 * h)
            np.testing.assert_allclose(jnp.sum(getattr(g, block) * toward), slope, rtol=1e-6)


def test_the_slow_gradient_is_that_of_finite_differences():
    task = task_of(SMALL)
    X, y, w = np.asarray(task.train.X), np.asarray(task.train.y), as_numpy(full_weights(SMALL))
    value, slopes = full_loss(w, X, y)
    np.testing.assert_allclose(value, noisy.loss(reduced(full_weights(SMALL)), task.train), rtol=1e-12)
    rng, h = np.random.default_rng(1), 1e-5
    for i, slope in enumerate(slopes):
        toward = rng.normal(size=slope.shape)
        up, down = ([*w[:i], w[i] + s * h * toward, *w[i + 1 :]] for s in (1, -1))
        difference = (full_loss(up, X, y)[0] - full_loss(down, X, y)[0]) / (2 * h)
        np.testing.assert_allclose((slope * toward).sum(), difference, rtol=1e-6)


def one_step(p: noisy.Preset) -> tuple[noisy.Weights, noisy.Weights, noisy.Weights]:
    """Weights, how far a step from the start takes them, and the gradient of the loss there."""
    task = task_of(p)
    dynamics = dynamics_of(p, task)
    assert dynamics.step is not None
    begun = jax.jit(dynamics.init)(KEY)
    jax.tree.map(np.testing.assert_array_equal, begun.params, jax.jit(noisy.start)(KEY, p))
    ended = jax.jit(dynamics.step)(KEY, begun)
    moved = jax.tree.map(jnp.subtract, ended.params, begun.params)
    return begun.params, moved, jax.jit(jax.grad(noisy.loss))(begun.params, task.train)


def test_a_sign_step_moves_every_entry_by_eta_and_v_by_twice_that():
    _, moved, g = one_step(SMALL.replace(optimizer="sign", eta=3e-3))
    for name, size in (("Q", 3e-3), ("K", 3e-3), ("v", 6e-3)):
        expected = -size * np.sign(getattr(g, name))
        assert np.all(expected != 0)
        np.testing.assert_allclose(getattr(moved, name), expected, rtol=1e-10)


def test_a_gradient_step_moves_v_by_two_rows_worth():
    p = SMALL.replace(optimizer="gd", eta_gd=0.7)
    _, moved, g = one_step(p)
    np.testing.assert_allclose(moved.Q, -0.7 * g.Q, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(moved.K, -0.7 * g.K, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(moved.v, -2 * 0.7 / p.m_v * g.v, rtol=1e-9, atol=1e-15)


def by_hand(p: noisy.Preset, w: Sequence[np.ndarray], X: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
    """The paper's model, every row of W_V by itself, trained in NumPy."""
    w = list(w)
    first, second = ([np.zeros_like(block) for block in w] for _ in range(2))
    for t in range(p.steps):
        for i, g in enumerate(full_loss(w, X, y)[1]):
            if p.optimizer == "gd":
                w[i] = w[i] - p.eta_gd * g
            elif p.optimizer == "sign":
                w[i] = w[i] - p.eta * np.sign(g)
            else:
                first[i] = p.beta1 * first[i] + (1 - p.beta1) * g
                second[i] = p.beta2 * second[i] + (1 - p.beta2) * g**2
                size = np.sqrt(second[i] / (1 - p.beta2 ** (t + 1))) + p.epsilon
                w[i] = w[i] - p.eta * first[i] / (1 - p.beta1 ** (t + 1)) / size
    return w


@every_optimizer
def test_training_is_that_of_the_full_model_with_all_rows(optimizer: str):
    p = SMALL.replace(optimizer=optimizer, eta=1e-2, eta_gd=0.5, beta1=0.8, beta2=0.95)
    task, full = task_of(p), full_weights(p)
    dynamics = dynamics_of(p, task)
    begun = jax.jit(dynamics.init)(KEY)._replace(params=reduced(full))
    ended = jax.jit(dynamics.advance)(KEY, begun, jnp.asarray(0), jnp.asarray(p.steps)).params
    expected = by_hand(p, as_numpy(full), np.asarray(task.train.X), np.asarray(task.train.y))
    expected = reduced(sd.FullWeights(*[jnp.asarray(block) for block in expected]))
    for name in noisy.Weights._fields:
        ours, theirs = (np.asarray(getattr(w, name)) for w in (ended, expected))
        assert np.abs(theirs - np.asarray(getattr(begun.params, name))).max() > 1e-3
        np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-10, err_msg=name)
    assert float(noisy.loss(ended, task.train)) < float(noisy.loss(begun.params, task.train))


# ---------------------------------------------------------------- what is recorded


@jax.jit
def measured(p: noisy.Preset, task: noisy.Task, w: noisy.Weights) -> dict[str, Any]:
    """All records of weights."""
    loaded, state = Loaded(task, ()), Descent(w, ())
    return {name: probe.measure(loaded, p, state) for name, probe in noisy.probes(p).items()}


def test_records_are_what_they_say():
    p = MANY
    task, full = task_of(p), full_weights(p)
    found = measured(p, task, reduced(full))
    train, test = (np.asarray(printed_margins(full, part)) for part in task)
    assert 0 < np.mean(test <= 0) < 1
    np.testing.assert_allclose(found["training_loss"], np.log1p(np.exp(-train)).mean(), rtol=1e-10)
    np.testing.assert_allclose(found["test_loss"], np.log1p(np.exp(-test)).mean(), rtol=1e-10)
    np.testing.assert_allclose(found["test_error"], np.mean(test <= 0), rtol=1e-12)
    Q, K, _ = as_numpy(full)
    on_noise = [
        1 / (1 + np.exp((Q @ x[query]) @ (K @ (x[0] - x[1]))))
        for x in np.asarray(task.train.X)
        for query in range(2)
    ]
    np.testing.assert_allclose(found["attention_to_noise"], np.mean(on_noise), rtol=1e-10)
    np.testing.assert_array_equal(found["examples"], task.train.X[:4])


def test_a_model_that_says_nothing_is_always_wrong_and_looks_everywhere():
    nothing = jax.tree.map(jnp.zeros_like, reduced(full_weights(SMALL)))
    found = measured(SMALL, task_of(SMALL), nothing)
    assert found["test_error"] == 1.0
    assert found["attention_to_noise"] == 0.5
    np.testing.assert_allclose([found["training_loss"], found["test_loss"]], np.log(2), rtol=1e-12)


def test_runs_of_the_paper_are_those_of_the_branch_and_share_programs():
    p, steps = SMALL.replace(steps=3), np.arange(4)
    system = paper.load("sign_descent").system_of(p)
    assert (system.data, system.loss) == (noisy.data, "training_loss")
    run = rollout(system, p, range(3, 5), steps)
    programs = system.advance._cache_size()  # type: ignore[attr-defined]
    other = rollout(system, p.replace(noise=3.0, eta=2e-2), range(3, 5), steps)
    assert system.advance._cache_size() == programs  # type: ignore[attr-defined]
    assert not np.any(other["training_loss"].values == run["training_loss"].values)
    for seed in (3, 4):
        task_key, start_key, _ = jax.random.split(jax.random.fold_in(jax.random.key(0), seed), 3)
        task = task_of(p, task_key)
        dynamics = dynamics_of(p, task)
        state, own = jax.jit(dynamics.init)(start_key), run.sel(seed=seed)
        assert dynamics.step is not None
        advance = jax.jit(dynamics.step)
        for step in steps:
            for name, value in measured(p, task, state.params).items():
                if name != "examples":
                    np.testing.assert_allclose(own[name].sel(step=step), value, rtol=1e-8, err_msg=name)
            state = advance(KEY, state)
        np.testing.assert_allclose(own["examples"], task.train.X[:4], rtol=1e-6)
        assert own["examples"].dtype == np.float32


@every_optimizer
def test_32_bits_stay_32_bits(optimizer: str):
    p = SMALL.replace(optimizer=optimizer, precision=32)

    def last(key: Any, digits: mnist.Digits) -> Any:
        task = noisy.make_task(key, p, digits)
        loaded = Loaded(task, digits)
        dynamics = noisy.dynamics(loaded, p)
        state = dynamics.advance(key, dynamics.init(key), jnp.asarray(0), jnp.asarray(3))
        return task, state, {name: probe.measure(loaded, p, state) for name, probe in noisy.probes(p).items()}

    kinds = {x.dtype for x in jax.tree.leaves(jax.eval_shape(last, KEY, digits_of(p)))}
    assert {kind for kind in kinds if jnp.issubdtype(kind, jnp.inexact)} == {np.dtype(np.float32)}


# ---------------------------------------------------------------- settings


def test_all_of_mnist_is_required_where_it_is_used_and_nowhere_else(monkeypatch: pytest.MonkeyPatch):
    def missing(split: str) -> None:
        raise DataError(f"no {split}")

    monkeypatch.setattr(mnist, "load", missing)
    noisy.EXPERIMENT.require(SMALL)
    with pytest.raises(DataError, match="no train"):
        noisy.EXPERIMENT.require(noisy.Preset())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"plus": 1}, r"minus takes another digit than plus = 1, got minus=1\."),
        ({"images": "small", "plus": 2}, r"images=small has the digits 0 and 1 only, got plus=2, minus=1; "),
        ({"images": "small", "minus": 9}, r"images=small .*got plus=0, minus=9; images=full has all\."),
        ({"images": "small", "n": 1001}, r"n takes a whole number <= 1000 with images=small, got n=1001\."),
        ({"n": 10_001}, r"n takes a whole number >= 2 and <= 10000, got n=10001\."),
        ({"n": 1}, r"n takes a whole number >= 2 and <= 10000, got n=1\."),
        ({"plus": 10}, r"plus takes a whole number >= 0 and <= 9, got plus=10\."),
        ({"pool": 3}, r"pool takes one of 1, 2, 4, got pool=3\."),
        ({"noise": 0.0}, r"noise takes a number > 0, got noise=0.0\."),
        ({"images": "fashion"}, r"images takes one of small, full, got images=fashion\."),
        ({"optimizer": "sgd"}, r"optimizer takes one of sign, adam, gd, got optimizer=sgd\."),
    ],
    ids=str,
)
def test_what_does_not_go_together_is_refused(settings: dict[str, Any], message: str):
    with pytest.raises(SettingError, match=f"^{message}"):
        noisy.Preset(**settings)
    with pytest.raises(SettingError, match=f"^{message}"):
        noisy.Preset().replace(settings)


def test_the_two_packaged_digits_may_change_places_and_all_of_them_be_used():
    p = noisy.Preset(images="small", plus=1, minus=0, n=1000)
    assert (p.plus, p.minus, p.n) == (1, 0, 1000)
    assert noisy.Preset(plus=8, minus=3, n=10_000).n == 10_000


def test_claims_and_the_figure_are_for_the_presets_and_runs_there_are():
    figure = noisy.figure_noisy_mnist
    assert all(set(claim.presets) == set(noisy.PRESETS) for claim in CLAIMS)
    assert set(figure.presets) == set(noisy.PRESETS)
    assert set(figure.claims) == {claim.name for claim in CLAIMS}
    for need in (*CLAIMS, figure):
        for name, overrides in need.runs.items():
            for preset in noisy.PRESETS.values():
                p = preset.replace(overrides)
                assert p.optimizer == name[:-2]
                assert p.noise == noisy.NOISES[int(name[-1])] * preset.noise
                assert (p.eta, p.eta_gd) == (preset.eta, preset.eta_gd)
    assert set(figure.runs) == {f"{name}_{i}" for name in ("gd", "sign", "adam") for i in range(4)}


# ---------------------------------------------------------------- claims on made-up runs

STEPS = np.array([0, 1, 2, 5, 10])
NOISES = 4 * np.array(noisy.NOISES)


def made_up(test_loss: Any, fit: Sequence[int] = (1, 2, 3, 4), noise: float = 8.0) -> xr.Dataset:
    """A run whose seeds fit the data at these records, where their test losses are these."""
    shape = (len(fit), len(STEPS))
    training, test = np.full(shape, 0.6), np.full(shape, 77.0)
    for seed, record in enumerate(fit):
        training[seed, record:] = noisy.FIT
        test[seed, record] = np.broadcast_to(test_loss, len(fit))[seed]
    series = {"training_loss": training, "test_loss": test, "test_error": test / 100}
    examples = np.random.default_rng(0).normal(size=(len(fit), 4, 2, 49))
    return xr.Dataset(
        {name: (("seed", "step"), x) for name, x in series.items()}
        | {"examples": (("seed", "example", "patch", "pixel"), examples)},
        {"seed": np.arange(len(fit)), "step": STEPS},
        {"about": json.dumps({"settings": {"noise": noise}})},
    )


def made_up_runs(**losses: Any) -> dict[str, xr.Dataset]:
    """Runs by optimiser and noise, with these test losses (noise, seed)."""
    return {
        f"{name}_{i}": made_up(own, noise=float(NOISES[i]))
        for name, all_ in losses.items()
        for i, own in enumerate(all_)
    }


SEEDS = np.array([1.0, 1.1, 0.9, 1.4])
GD = 0.2 * NOISES[:, None] * SEEDS[None, :]
GAP = 0.1 + 0.3 * np.log2(NOISES)[:, None] + 0.02 * SEEDS[None, :]


def test_losses_are_read_at_the_first_record_that_fits():
    run = made_up([3.0, 5.0, 7.0, 9.0])
    np.testing.assert_array_equal(noisy.once_fit(run), [3.0, 5.0, 7.0, 9.0])
    np.testing.assert_allclose(noisy.once_fit(run, "test_error"), [0.03, 0.05, 0.07, 0.09])
    np.testing.assert_array_equal(noisy.once_fit(run.transpose()), [3.0, 5.0, 7.0, 9.0])
    # What a loss does afterwards does not count, and FIT itself is enough.
    run["training_loss"][:, -1] = 0.6
    run["training_loss"][3, -2:] = noisy.FIT
    run["test_loss"][3, -2] = 8.0
    np.testing.assert_array_equal(noisy.once_fit(run), [3.0, 5.0, 7.0, 8.0])
    run["training_loss"][:, 0] = noisy.FIT
    np.testing.assert_array_equal(noisy.once_fit(run), 77.0)


def test_between_records_losses_are_read_where_the_training_loss_is_that_of_the_claim():
    run = made_up([3.0, 5.0, 7.0, 9.0])
    # Half way in logarithms between 0.2 and 0.0125, and a quarter of the way down from 0.1 to 0.1 / 16.
    run["training_loss"][1, 1:3] = [0.2, 0.0125]
    run["training_loss"][2, 2:4] = [0.1, 0.1 / 16]
    np.testing.assert_allclose(noisy.once_fit(run), [3.0, 41.0, 59.5, 9.0])
    run["training_loss"][2, 3] = 0.0  # by underflow
    assert np.isfinite(noisy.once_fit(run)).all()


def test_optimisers_that_are_the_same_are_not_compared():
    same = judge(CLAIMS[1], made_up_runs(gd=GD, sign=GD))
    assert same.outcome == Outcome.BROKEN
    assert same.reason.startswith("SignGD and GD have the same test losses")


def test_a_seed_that_has_not_fitted_yet_leaves_the_claim_undecided():
    run = made_up(1.0)
    run["training_loss"][2] = [0.6, 0.5, 0.0625, 0.3, 0.4]
    np.testing.assert_array_equal(noisy.fitted(run), [True, True, False, True])
    np.testing.assert_array_equal(noisy.once_fit(run), [1.0, 1.0, 77.0, 1.0])
    for claim in CLAIMS:
        data = made_up_runs(gd=GD, sign=GD + GAP, adam=GD + GAP) | {"sign_3": run}
        verdict = judge(claim, data)
        assert verdict.outcome == Outcome.UNDECIDED
        assert verdict.reason.startswith("needs more steps")
        assert verdict.notes["sign_3_training_loss"] == 0.0625


def test_a_loss_that_is_not_finite_breaks_the_claim():
    run = made_up(1.0)
    run["training_loss"][2, 3] = np.nan
    for claim in CLAIMS:
        data = made_up_runs(gd=GD, sign=GD + GAP, adam=GD + GAP) | {"sign_3": run}
        verdict = judge(claim, data)
        assert verdict.outcome == Outcome.BROKEN
        assert "not finite" in verdict.reason


def test_nothing_lies_between_optimisers_that_do_not_differ():
    apart = np.array([0.1, -0.1, 0.2, -0.2])
    verdict = judge(CLAIMS[2], made_up_runs(gd=GD, sign=GD + apart, adam=GD + 0.05))
    assert verdict.outcome == Outcome.UNDECIDED
    assert verdict.reason.startswith("needs SignGD and GD to differ")
    same = judge(CLAIMS[2], made_up_runs(gd=GD, sign=GD, adam=GD + 0.05))
    assert (same.outcome, same.value) == (Outcome.UNDECIDED, 0.0)


def test_the_ratio_is_a_geometric_mean_over_noises():
    ratios = np.array([1.0, 2.0, 4.0, 2.0])
    sign = GD * ratios[:, None]
    found = noisy.mnist_gd_generalises_better(**made_up_runs(gd=GD, sign=sign))
    assert found.value == pytest.approx(2.0, rel=1e-12)
    np.testing.assert_allclose(found.interval(), 2.0, rtol=1e-9)
    assert found.seeds == 4
    assert found.range == {"noise": (1.0, 8.0)}
    by_seed = noisy.mnist_gd_generalises_better(
        **made_up_runs(gd=GD, sign=GD * np.array([1.0, 2.0, 3.0, 6.0])[None, :])
    )
    assert by_seed.value == pytest.approx(3.0, rel=1e-12)
    assert found.notes == pytest.approx(
        {f"gd_at_noise_{x:g}": 0.2 * x * SEEDS.mean() for x in NOISES}
        | {f"sign_at_noise_{x:g}": r * 0.2 * x * SEEDS.mean() for x, r in zip(NOISES, ratios, strict=True)}
    )


def test_growth_is_the_slope_of_the_gap_by_doublings():
    assert noisy.mnist_gap_grows_with_noise(**made_up_runs(gd=GD, sign=GD + GAP)).value == pytest.approx(
        0.3, rel=1e-10
    )
    # Deviations with no slope of their own change nothing.
    bent = GAP + np.array([1.0, -3.0, 3.0, -1.0])[:, None]
    assert noisy.mnist_gap_grows_with_noise(**made_up_runs(gd=GD, sign=GD + bent)).value == pytest.approx(
        0.3, rel=1e-10
    )
    own = 0.1 * np.log2(NOISES)[:, None] * np.array([1.0, 2.0, 3.0, 4.0])[None, :]
    found = noisy.mnist_gap_grows_with_noise(**made_up_runs(gd=GD, sign=GD + own))
    assert found.value == pytest.approx(0.25, rel=1e-10)
    assert found.interval()[1] - 0.25 == pytest.approx(
        stats.t.ppf(0.975, 3) * stats.sem([0.1, 0.2, 0.3, 0.4])
    )
    assert set(found.notes) == {f"{name}_at_noise_{x}" for name in ("gd", "sign") for x in (1, 2, 4, 8)}


def test_nearness_is_of_sums_over_noises():
    adam = GD + 0.8 * GAP + np.array([0.5, -0.5, 0.25, -0.25])[:, None]
    found = noisy.mnist_adam_matches_sign_descent(**made_up_runs(gd=GD, sign=GD + GAP, adam=adam))
    assert found.value == pytest.approx(0.8, rel=1e-10)
    assert found.notes["adam_at_noise_2"] == pytest.approx(adam[1].mean())
    for same, value in (("gd", 0.0), ("sign", 1.0)):
        both = {"gd": GD, "sign": GD + GAP}
        assert noisy.mnist_adam_matches_sign_descent(
            **made_up_runs(**both, adam=both[same])
        ).value == pytest.approx(value)


AS_CLAIMED = {"gd": GD, "sign": GD + GAP, "adam": GD + 0.9 * GAP + 0.01 * SEEDS[None, :]}
AGAINST = {
    "mnist_gd_generalises_better": {"sign": GD * (1 + 0.02 * SEEDS[None, :])},
    "mnist_gap_grows_with_noise": {"sign": GD + GAP[::-1]},
    "mnist_adam_matches_sign_descent": {"adam": GD + 0.3 * GAP + 0.001 * SEEDS[None, :]},
}
by_claim = pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)


@by_claim
def test_claims_hold_on_runs_as_claimed_and_fail_on_others_and_on_mutants(claim: Claim):
    data = made_up_runs(**AS_CLAIMED)
    assert judge(claim, data).outcome == Outcome.SUPPORTED
    assert judge(claim, made_up_runs(**(AS_CLAIMED | AGAINST[claim.name]))).outcome == Outcome.REFUTED
    own = {name: data[name] for name in claim.runs}
    assert claim.mutants
    for mutant in claim.mutants:
        assert mutant.alter is not None
        altered = mutant.alter(own)
        assert set(altered) == set(own)
        assert judge(claim, altered).outcome == Outcome.REFUTED, mutant.name


def test_adam_far_beyond_sign_descent_does_not_match_it():
    claim = CLAIMS[-1]
    data = made_up_runs(**(AS_CLAIMED | {"adam": GD + 1.8 * GAP + 0.001 * SEEDS[None, :]}))
    assert judge(claim, data).outcome == Outcome.REFUTED


def test_mutants_change_what_they_name_and_nothing_else():
    data: Mapping[str, xr.Dataset] = made_up_runs(**AS_CLAIMED)
    mutant = noisy.in_place_of("adam", "gd")
    assert mutant.name == "GD in place of Adam"
    alter: Callable[..., Any] | None = mutant.alter
    assert alter is not None
    for name, run in alter(data).items():
        assert run is data[name.replace("adam", "gd")]
    altered = noisy.at_least_noise(data)
    assert {name for name, run in altered.items() if run is not data[name]} == {"sign_0"}
    np.testing.assert_allclose(noisy.once_fit(altered["sign_0"]), AS_CLAIMED["sign"][0] + 2.0)
    np.testing.assert_allclose(noisy.once_fit(data["sign_0"]), AS_CLAIMED["sign"][0])


# ---------------------------------------------------------------- the figure


def test_the_figure_shows_the_losses_that_are_judged():
    data = made_up_runs(**AS_CLAIMED)
    canvas = noisy.figure_noisy_mnist(**data)
    assert isinstance(canvas, matplotlib.figure.Figure)
    shown, _, losses, errors = canvas.axes
    for scale, ax in ((1.0, losses), (0.01, errors)):
        assert isinstance(ax, Axes)
        lines = [np.asarray(line.get_xydata()) for line in ax.lines]
        assert len(lines) == 6
        for name, mean, each in zip(noisy.COLOURS, lines[::2], lines[1::2], strict=True):
            np.testing.assert_allclose(mean[:, 0], NOISES)
            np.testing.assert_allclose(mean[:, 1], scale * AS_CLAIMED[name].mean(axis=1))
            np.testing.assert_allclose(each[:, 0], np.repeat(NOISES, 4))
            np.testing.assert_allclose(each[:, 1], scale * AS_CLAIMED[name].ravel())
    example = data["sign_1"]["examples"].values[0]
    image = np.asarray(shown.images[0].get_array())
    assert image.shape == (21, 14)
    for i in range(3):
        np.testing.assert_allclose(image[7 * i : 7 * i + 7, :7].ravel(), example[i, 0])
        np.testing.assert_allclose(image[7 * i : 7 * i + 7, 7:].ravel(), example[i, 1])


def test_seeds_that_never_fit_or_diverge_leave_gaps_in_the_figure():
    data = made_up_runs(**AS_CLAIMED)
    data["sign_3"]["training_loss"][2] = 0.6
    data["adam_0"]["training_loss"][1, 2:] = np.nan
    canvas = noisy.figure_noisy_mnist(**data)
    for ax in canvas.axes[2:]:
        means = {
            name: np.asarray(line.get_ydata())
            for name, line in zip(noisy.COLOURS, ax.lines[::2], strict=True)
        }
        assert np.isfinite(means["gd"]).all()
        assert np.isnan(means["sign"]).tolist() == [False, False, False, True]
        assert np.isnan(means["adam"]).tolist() == [True, False, False, False]
