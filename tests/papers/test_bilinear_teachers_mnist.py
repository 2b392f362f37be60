"""The MNIST experiment of bilinear_teachers: patches, the CNN teacher, the student, and its claims."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib.figure
import numpy as np
import pytest
import xarray as xr
from matplotlib.patches import Rectangle
from scipy import stats

from descentlab.data import mnist
from descentlab.engine import Descent, Loaded
from descentlab.engine._rollout import rollout
from descentlab.errors import DataError, SettingError
from descentlab.judging import Claim, Mutant, Outcome, judge
from descentlab.papers import _registry as paper
from descentlab.papers.bilinear_teachers import Params, attention, predict
from descentlab.papers.bilinear_teachers import mnist as digits

KEY = jax.random.key(7)
SMALL = digits.Preset(images="small", M=3, leak=0.2, batch=6, eta=0.01, n_test=20, steps=3, precision=64)
SLOPES = {"relu": 0.0, "leaky_relu": 0.2}  # below zero

by_activation = pytest.mark.parametrize("activation", SLOPES)
by_pixels = pytest.mark.parametrize("pixels", ["standard", "unit"])


@functools.cache
def loaded_digits() -> mnist.Digits:
    """The packaged digits as a run sees them."""
    return jax.tree.map(jnp.asarray, digits.data(SMALL))


def inputs(p: digits.Preset = SMALL, count: int = 5) -> Any:
    """Some test images, of both digits."""
    return digits.normalised(loaded_digits().test[:count], p)


def random(*shape: int, seed: int = 0, scale: float = 1.0) -> Any:
    return jnp.asarray(scale * np.random.default_rng([seed, *shape]).normal(size=shape))


def weights(p: digits.Preset = SMALL) -> Params:
    """A student somewhere: attention far from uniform."""
    return Params(random(p.M, 9, seed=1), random(81, 81, seed=2, scale=9.0))


def kernels(p: digits.Preset = SMALL) -> Any:
    return 0.3 + random(p.M, 9, seed=3)


def task_of(p: digits.Preset = SMALL) -> Loaded:
    """A teacher with random kernels, as if trained."""
    return Loaded(digits.Task(kernels(p), jnp.asarray(0.75)), loaded_digits())


def teachers_logits(dtype: Any = np.float64) -> Any:
    """A whose attention is S*."""
    return jnp.asarray(np.where(slow_pooling() > 0, 0.0, -1e6), dtype)


def bent(z: Any, k: float) -> np.ndarray:
    """s(z)."""
    return np.where(np.asarray(z) > 0, z, k * np.asarray(z))


# ---------------------------------------------------------------- patches


def test_a_constant_image_stays_constant():
    levels = np.arange(600) % 256
    images = np.broadcast_to(levels[:, None, None], (600, 28, 28)).astype(np.uint8)
    cut = digits.patches(images)
    assert cut.dtype == np.uint8
    np.testing.assert_array_equal(cut, np.broadcast_to(levels[:, None, None], (600, 9, 81)))


def test_patches_are_squares_of_the_resized_image_row_by_row():
    images = np.random.default_rng(0).integers(256, size=(1001, 28, 28), dtype=np.uint8)
    cut = digits.patches(images)
    assert cut.shape == (1001, 9, 81)
    for i in (0, 499, 501, 1000):
        resized = np.asarray(jax.image.resize(jnp.asarray(images[i], np.float32), (27, 27), "linear"))
        assert np.ptp(resized) > 100
        for row in range(27):
            for column in range(27):
                patch = (row // 3) * 9 + column // 3
                pixel = (row % 3) * 3 + column % 3
                # Rounded to a byte.
                assert abs(float(cut[i, pixel, patch]) - resized[row, column]) <= 0.5 + 1e-3


def test_a_bright_corner_is_in_its_patch():
    images = np.zeros((500, 28, 28), np.uint8)
    images[0, 0, 0] = images[1, 0, 27] = images[2, 27, 0] = images[3, 27, 27] = 255
    cut = digits.patches(images)
    for i, (pixel, patch) in enumerate([(0, 0), (2, 8), (6, 72), (8, 80)]):
        assert np.unravel_index(cut[i].argmax(), (9, 81)) == (pixel, patch)
        assert cut[i, pixel, patch] > 200
    assert not cut[4:].any()


def test_data_are_the_packaged_digits_in_patches():
    found = digits.data(SMALL)
    images, labels, test_images, test_labels = mnist.small()
    np.testing.assert_array_equal(found.train, digits.patches(images))
    np.testing.assert_array_equal(found.test, digits.patches(test_images))
    np.testing.assert_array_equal(found.train_labels, labels)
    np.testing.assert_array_equal(found.test_labels, test_labels)
    assert found.train.shape == found.test.shape == (1000, 9, 81)
    # Resizing keeps the mean grey of an image.
    ratio = found.train.mean(axis=(1, 2)) / images.mean(axis=(1, 2))
    np.testing.assert_allclose(ratio, 1.0, atol=0.01)


@by_pixels
@pytest.mark.parametrize("precision", [32, 64])
def test_grey_levels_are_normalised_as_asked_for(pixels: str, precision: int):
    p = SMALL.replace(pixels=pixels, precision=precision)
    bytes_ = digits.data(SMALL).test[:7]
    found = inputs(p, 7)
    assert found.shape == (9, 7, 81)
    assert found.dtype == f"float{precision}"
    grey = bytes_ / 255.0
    expected = grey if pixels == "unit" else (grey - 0.1307) / 0.3081
    np.testing.assert_allclose(found, np.moveaxis(expected, 1, 0), rtol=1e-5, atol=1e-6)
    lowest = 0.0 if pixels == "unit" else -0.1307 / 0.3081
    np.testing.assert_allclose(found.min(), lowest, rtol=1e-6)
    # Background is exactly zero or nowhere zero.
    assert bool(jnp.any(found == 0)) == (pixels == "unit")


# ---------------------------------------------------------------- pooling


@functools.cache
def slow_pooling() -> np.ndarray:
    """S*, entry by entry: 1/9 where two patches lie in one of the nine squares of 3 x 3 patches."""
    S = np.zeros((81, 81))
    for i in range(81):
        for j in range(81):
            same_row = (i // 9) // 3 == (j // 9) // 3
            same_column = (i % 9) // 3 == (j % 9) // 3
            S[i, j] = 1 / 9 if same_row and same_column else 0.0
    S.flags.writeable = False
    return S


def test_blocks_are_squares_of_nine_patches_row_by_row():
    block = digits.block_of()
    for i in range(81):
        assert block[i] == (i // 9) // 3 * 3 + (i % 9) // 3
    assert np.bincount(block).tolist() == [9] * 9
    assert block[:9].tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_pooling_is_the_mean_over_blocks(dtype: Any):
    S = digits.pooling(dtype)
    assert S.dtype == dtype
    np.testing.assert_array_equal(S, slow_pooling().astype(dtype))
    np.testing.assert_allclose(S.sum(axis=0), 1.0, rtol=1e-6)
    np.testing.assert_allclose(S.sum(axis=1), 1.0, rtol=1e-6)
    assert np.linalg.matrix_rank(np.asarray(S)) == 9


# ---------------------------------------------------------------- teacher


@by_activation
@by_pixels
def test_logits_are_the_direct_formula(activation: str, pixels: str):
    p = SMALL.replace(activation=activation, pixels=pixels)
    X, cnn = inputs(p), digits.CNN(kernels(p), random(10, 27), random(10))
    found = digits.logits(cnn, X, p)
    V, W, b = (np.asarray(a) for a in cnn)
    firsts = [(block // 3) * 27 + (block % 3) * 3 for block in range(9)]  # the first patch of each block
    for n, x in enumerate(np.moveaxis(np.asarray(X), 1, 0)):
        layer = bent(V @ x @ slow_pooling(), SLOPES[activation])[:, firsts]
        np.testing.assert_allclose(found[n], W @ layer.ravel() + b, rtol=1e-10, atol=1e-12)


@by_activation
@by_pixels
def test_the_teacher_is_the_first_layer_with_pooling(activation: str, pixels: str):
    p = SMALL.replace(activation=activation, pixels=pixels)
    X, V = inputs(p), kernels(p)
    found = digits.teacher(V, X, p)
    assert found.shape == (3, 5, 81)
    np.testing.assert_allclose(
        found, digits.outputs(V, digits.pooling(np.float64), X, p), rtol=1e-10, atol=1e-13
    )
    for n in range(5):
        direct = bent(np.asarray(V) @ np.asarray(X[:, n]) @ slow_pooling(), SLOPES[activation])
        np.testing.assert_allclose(found[:, n], direct, rtol=1e-10, atol=1e-13)
    assert (np.asarray(found) < 0).any() == (activation == "leaky_relu")


def direct_cross_entropy(cnn: digits.CNN, X: Any, labels: Any, k: float) -> Any:
    """The mean cross-entropy of the CNN, image by image."""
    pool = jnp.asarray(slow_pooling()[:, [0, 3, 6, 27, 30, 33, 54, 57, 60]])

    def one(x: Any, label: Any) -> Any:
        z = cnn.V @ x @ pool
        scores = cnn.W @ jnp.where(z > 0, z, k * z).ravel() + cnn.b
        return jnp.log(jnp.sum(jnp.exp(scores))) - scores[label]

    return jnp.mean(jax.vmap(one)(jnp.moveaxis(X, 1, 0), labels))


def test_the_teacher_trains_by_adam_on_batches_of_a_fresh_order():
    p = SMALL.replace(activation="leaky_relu", epochs=2, teacher_batch=16, teacher_eta=0.02)
    own = loaded_digits()
    few = own._replace(train=own.train[:40], train_labels=own.train_labels[:40])
    found = jax.jit(lambda key: digits.train_teacher(key, p, few))(KEY)
    V_key, W_key, order_key = jax.random.split(KEY, 3)
    # Two batches an epoch; what is left over is left out.
    orders = [np.asarray(jax.random.permutation(key, 40)) for key in jax.random.split(order_key, 2)]
    assert np.any(orders[0] != orders[1])
    chosen = [part for order in orders for part in (order[:16], order[16:32])]
    w = [
        np.asarray(jax.random.normal(V_key, (3, 9))) / 3,
        np.asarray(jax.random.normal(W_key, (10, 27))) / 27**0.5,
        np.zeros(10),
    ]
    slope = jax.jit(jax.grad(direct_cross_entropy))
    first, second = ([np.zeros_like(x) for x in w] for _ in range(2))
    for t, part in enumerate(chosen, 1):
        X, labels = digits.normalised(few.train[part], p), few.train_labels[part].astype(int)
        cnn = digits.CNN(*[jnp.asarray(x) for x in w])
        for i, g in enumerate(np.asarray(x) for x in slope(cnn, X, labels, p.leak)):
            first[i] = 0.9 * first[i] + 0.1 * g
            second[i] = 0.999 * second[i] + 0.001 * g**2
            size = np.sqrt(second[i] / (1 - 0.999**t)) + 1e-8
            w[i] = w[i] - 0.02 * first[i] / (1 - 0.9**t) / size
    for ours, theirs in zip(found, w, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-9)


@functools.cache
def trained(pixels: str, seed: int = 1) -> digits.Task:
    p = digits.Preset(images="small", M=4, pixels=pixels, epochs=20, teacher_eta=1e-2)
    return make_task(jax.random.key(seed), p, loaded_digits())


make_task = jax.jit(digits.make_task)


@by_pixels
def test_a_teacher_learns_to_tell_zeros_from_ones(pixels: str):
    task = trained(pixels)
    assert task.V.shape == (4, 9)
    assert task.V.dtype == np.float32
    assert 0.97 < float(task.accuracy) <= 1.0


def test_the_same_seed_gives_the_same_teacher_and_another_another():
    p = digits.Preset(images="small", M=4, epochs=20, teacher_eta=1e-2)
    again = make_task(jax.random.key(1), p, loaded_digits())
    np.testing.assert_array_equal(trained("standard").V, again.V)
    assert float(trained("standard").accuracy) == float(again.accuracy)
    assert not np.any(np.asarray(trained("standard", seed=2).V) == np.asarray(again.V))


def test_accuracy_is_the_share_of_test_images_in_the_right_class(monkeypatch: pytest.MonkeyPatch):
    cnn, own = digits.CNN(kernels(), random(10, 27), random(10)), loaded_digits()
    monkeypatch.setattr(digits, "train_teacher", lambda key, p, data: cnn)
    task = digits.make_task(KEY, SMALL, own)
    assert task.V is cnn.V
    scores = np.asarray(digits.logits(cnn, digits.normalised(own.test, SMALL), SMALL))
    right = [int(row.argmax()) == int(label) for row, label in zip(scores, own.test_labels, strict=True)]
    assert 0 < sum(right) < 1000
    assert float(task.accuracy) == pytest.approx(sum(right) / 1000)


# ---------------------------------------------------------------- student


@by_activation
@by_pixels
def test_the_student_is_the_printed_one(activation: str, pixels: str):
    p = SMALL.replace(activation=activation, pixels=pixels)
    X, w = inputs(p), weights(p)
    found = digits.outputs(w.W_V, attention(w.A), X, p)
    P = jnp.linalg.qr(random(81, 81, seed=5))[0]
    W_KQ = P @ w.A @ P.T
    S = np.exp(np.asarray(w.A) / 9)
    S /= S.sum(axis=0)
    for n in range(5):
        printed = predict(w.W_V, W_KQ, P, X[:, n], SLOPES[activation])
        np.testing.assert_allclose(found[:, n], printed, rtol=1e-9, atol=1e-10)
        direct = bent(np.asarray(w.W_V) @ np.asarray(X[:, n]) @ S, SLOPES[activation])
        np.testing.assert_allclose(found[:, n], direct, rtol=1e-10, atol=1e-12)


@by_activation
@by_pixels
def test_the_loss_is_half_the_mean_squared_distance(activation: str, pixels: str):
    p = SMALL.replace(activation=activation, pixels=pixels)
    X, V, w = inputs(p), kernels(p), weights(p)
    truth = np.asarray(digits.teacher(V, X, p))
    guess = np.asarray(digits.outputs(w.W_V, attention(w.A), X, p))
    expected = np.mean([0.5 * np.sum((truth[:, n] - guess[:, n]) ** 2) for n in range(5)])
    np.testing.assert_allclose(digits.loss(w, V, X, p), expected, rtol=1e-12)
    nothing = Params(jnp.zeros((3, 9)), w.A)
    half = np.mean([0.5 * np.sum(truth[:, n] ** 2) for n in range(5)])
    np.testing.assert_allclose(digits.loss(nothing, V, X, p), half, rtol=1e-12)


@by_activation
@by_pixels
def test_a_student_who_has_the_teachers_weights_has_no_loss(activation: str, pixels: str):
    p = SMALL.replace(activation=activation, pixels=pixels)
    X, V = inputs(p), kernels(p)
    same = Params(V, teachers_logits())
    np.testing.assert_allclose(attention(same.A), digits.pooling(np.float64), rtol=1e-12)
    assert float(digits.loss(same, V, X, p)) < 1e-24
    assert float(digits.loss(same._replace(W_V=1.01 * V), V, X, p)) > 1e-6
    assert float(digits.loss(same._replace(A=0.0 * same.A), V, X, p)) > 1e-2


@by_activation
@by_pixels
def test_the_gradient_is_that_of_finite_differences(activation: str, pixels: str):
    p = SMALL.replace(activation=activation, pixels=pixels)
    X, V, w = inputs(p), kernels(p), weights(p)
    value = jax.jit(lambda w: digits.loss(w, V, X, p))
    g, h = jax.jit(jax.grad(value))(w), 1e-6
    for block in Params._fields:
        for seed in range(4):
            toward = random(*getattr(w, block).shape, seed=10 + seed)
            up, down = (w._replace(**{block: getattr(w, block) + s * h * toward}) for s in (1, -1))
            slope = (value(up) - value(down)) / (2 * h)
            np.testing.assert_allclose(jnp.sum(getattr(g, block) * toward), slope, rtol=1e-5)


def by_hand(w: Params, V: Any, X: Any, k: float, at_zero: float) -> Params:
    """The gradient of the loss in NumPy, image by image."""
    W, A, V, X = (np.asarray(a) for a in (*w, V, X))
    S = np.exp(A / 9)
    S /= S.sum(axis=0)
    to_W, to_S = np.zeros_like(W), np.zeros_like(S)
    for x in np.moveaxis(X, 1, 0):
        z = W @ x @ S
        slope = np.where(z > 0, 1.0, np.where(z < 0, k, at_zero))
        back = (bent(z, k) - bent(V @ x @ slow_pooling(), k)) * slope / X.shape[1]
        to_W += back @ (x @ S).T
        to_S += (W @ x).T @ back
    to_A = S * (to_S - (S * to_S).sum(axis=0)[None, :]) / 9
    return Params(jnp.asarray(to_W), jnp.asarray(to_A))


@by_activation
@by_pixels
def test_training_is_descent_from_zero_on_fresh_batches(activation: str, pixels: str):
    p = SMALL.replace(activation=activation, pixels=pixels, slope_at_zero=0.7)
    task = task_of(p)
    dynamics = digits.dynamics(task, p)
    assert dynamics.step is not None
    step, state = jax.jit(dynamics.step), dynamics.init(KEY)
    w = Params(jnp.zeros((3, 9)), jnp.zeros((81, 81)))
    batches = set()
    for t in range(3):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-14), state.params, w)
        key = jax.random.fold_in(KEY, t)
        chosen = np.asarray(jax.random.randint(key, (p.batch,), 0, 1000))
        batches.add(tuple(chosen.tolist()))
        X = digits.normalised(task.data.train[chosen], p)
        g = by_hand(w, task.own.V, X, SLOPES[activation], 0.7)
        assert bool(jnp.any(g.W_V != 0))
        assert bool(jnp.any(g.A != 0)) == (t > 0)
        state, w = step(key, state), jax.tree.map(lambda x, y: x - p.eta * y, w, g)
    assert len(batches) == 3
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-14), state.params, w)


def test_with_slope_zero_at_zero_nothing_ever_moves():
    p = SMALL.replace(slope_at_zero=0.0)
    dynamics = digits.dynamics(task_of(p), p)
    ended = jax.jit(dynamics.advance)(KEY, dynamics.init(KEY), jnp.asarray(0), jnp.asarray(3))
    assert not any(np.asarray(x).any() for x in ended.params)


# ---------------------------------------------------------------- what is recorded


@jax.jit
def measured(p: digits.Preset, task: Loaded, w: Params) -> dict[str, Any]:
    """All records of a student."""
    state = Descent(w, ())
    return {name: probe.measure(task, p, state) for name, probe in digits.probes(p).items()}


def test_uniform_attention_is_off_by_sixteen_ninths_in_every_row():
    found = measured(SMALL, task_of(), Params(jnp.zeros((3, 9)), jnp.zeros((81, 81))))
    np.testing.assert_allclose(found["row_error"], np.full(81, 16 / 9), rtol=1e-12)
    assert found["value_cosine"] == 0.0
    np.testing.assert_allclose(found["attention"], np.full((81, 81), 1 / 81), rtol=1e-12)


def test_a_student_who_has_the_teachers_weights_is_recorded_as_recovered():
    task = task_of()
    for factor in (1.0, 3.0, -2.0):
        found = measured(SMALL, task, Params(factor * task.own.V, teachers_logits()))
        np.testing.assert_allclose(found["value_cosine"], np.sign(factor), rtol=1e-12)
        np.testing.assert_allclose(found["row_error"], np.zeros(81), atol=1e-12)
        assert (float(found["loss"]) < 1e-24) == (factor == 1.0)


def test_records_are_what_they_say():
    task, w = task_of(), weights()
    found = measured(SMALL, task, w)
    data = digits.data(SMALL)
    X = digits.normalised(jnp.asarray(data.test[:20]), SMALL)
    np.testing.assert_allclose(found["loss"], digits.loss(w, task.own.V, X, SMALL), rtol=1e-10)
    W, V, A = (np.asarray(a) for a in (w.W_V, task.own.V, w.A))
    cosine = sum(W.ravel() * V.ravel()) / np.linalg.norm(W.ravel()) / np.linalg.norm(V.ravel())
    np.testing.assert_allclose(found["value_cosine"], cosine, rtol=1e-10)
    S = np.exp(A / 9)
    S /= S.sum(axis=0)
    np.testing.assert_allclose(found["attention"], S, rtol=1e-10)
    np.testing.assert_array_equal(found["teacher_attention"], slow_pooling())
    for i in (0, 40, 80):
        expected = sum(abs(S[i, j] - slow_pooling()[i, j]) for j in range(81))
        np.testing.assert_allclose(found["row_error"][i], expected, rtol=1e-10)
        inked = np.mean([np.mean(image[:, i] > 0) for image in data.train])
        np.testing.assert_allclose(found["ink"][i], inked, rtol=1e-10)
    assert 0 == float(found["ink"][0]) < float(found["ink"][40]) < 1
    assert found["teacher_accuracy"] == 0.75
    np.testing.assert_allclose(found["example"], data.test[0] / 255, rtol=1e-12)


def test_runs_of_the_paper_are_those_of_the_branch_and_share_programs():
    p, steps = SMALL.replace(epochs=1, teacher_batch=60_000), np.arange(3)
    system = paper.load("bilinear_teachers").system_of(p)
    assert (system.data, system.loss) == (digits.data, "loss")
    run = rollout(system, p, range(3, 5), steps)
    programs = system.advance._cache_size()  # type: ignore[attr-defined]
    other = rollout(system, p.replace(eta=0.02), range(3, 5), steps)
    assert system.advance._cache_size() == programs  # type: ignore[attr-defined]
    assert not np.any(other["loss"].values[:, 1:] == run["loss"].values[:, 1:])
    for seed in (3, 4):
        task_key, start_key, step_key = jax.random.split(jax.random.fold_in(jax.random.key(0), seed), 3)
        own = run.sel(seed=seed)
        task = Loaded(make_task(task_key, p, loaded_digits()), loaded_digits())
        dynamics = digits.dynamics(task, p)
        assert dynamics.step is not None
        state, step = dynamics.init(start_key), jax.jit(dynamics.step)
        for t in steps:
            found = measured(p, task, state.params)
            if t == steps[-1]:
                for name in ("teacher_accuracy", "ink", "attention", "teacher_attention", "example"):
                    np.testing.assert_allclose(own[name], found[name], rtol=1e-7, err_msg=name)
            for name in ("loss", "value_cosine", "row_error"):
                np.testing.assert_allclose(own[name].sel(step=t), found[name], rtol=1e-7, err_msg=name)
            state = step(jax.random.fold_in(step_key, t), state)


@by_activation
@by_pixels
def test_32_bits_stay_32_bits(activation: str, pixels: str):
    p = SMALL.replace(activation=activation, pixels=pixels, precision=32, epochs=1)

    def last(key: Any, data: mnist.Digits) -> Any:
        task = Loaded(digits.make_task(key, p, data), data)
        dynamics = digits.dynamics(task, p)
        state = dynamics.advance(key, dynamics.init(key), jnp.asarray(0), jnp.asarray(3))
        records = {name: probe.measure(task, p, state) for name, probe in digits.probes(p).items()}
        return task.own, state, records

    found = {x.dtype for x in jax.tree.leaves(jax.eval_shape(last, KEY, loaded_digits()))}
    assert found == {np.dtype(np.float32)}


# ---------------------------------------------------------------- settings


def test_all_of_mnist_is_required_where_it_is_used_and_nowhere_else(monkeypatch: pytest.MonkeyPatch):
    def missing(split: str) -> None:
        raise DataError(f"no {split}")

    monkeypatch.setattr(mnist, "load", missing)
    digits._digits.cache_clear()
    digits.EXPERIMENT.require(SMALL)
    with pytest.raises(DataError, match="no train"):
        digits.EXPERIMENT.require(digits.Preset())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"images": "small", "n_test": 1001},
            r"n_test takes a whole number <= 1000 with images=small, got .*1001\.",
        ),
        ({"n_test": 10_001}, r"n_test takes a whole number >= 1 and <= 10000, got n_test=10001\."),
        ({"images": "fashion"}, r"images takes one of small, full, got images=fashion\."),
        ({"pixels": "bytes"}, r"pixels takes one of standard, unit, got pixels=bytes\."),
        ({"activation": "identity"}, r"activation takes one of relu, leaky_relu, got activation=identity\."),
        ({"M": 0}, r"M takes a whole number >= 1 and <= 1000, got M=0\."),
        ({"slope_at_zero": 1.5}, r"slope_at_zero takes a number >= 0 and <= 1, got slope_at_zero=1.5\."),
        ({"teacher_eta": 0.0}, r"teacher_eta takes a number > 0, got teacher_eta=0.0\."),
    ],
    ids=str,
)
def test_what_does_not_go_together_is_refused(settings: dict[str, Any], message: str):
    with pytest.raises(SettingError, match=f"^{message}"):
        digits.Preset(**settings)
    with pytest.raises(SettingError, match=f"^{message}"):
        digits.Preset().replace(settings)


def test_as_many_test_images_as_there_are_may_be_used():
    assert digits.Preset(images="small", n_test=1000).n_test == 1000
    assert digits.Preset(n_test=10_000).n_test == 10_000


def test_claims_and_figures_are_for_the_presets_and_runs_there_are():
    figures = (digits.figure_4, digits.figure_5)
    assert all(set(need.presets) == set(digits.PRESETS) for need in (*digits.section.claims, *figures))
    shown = [name for figure in figures for name in figure.claims]
    assert shown == [claim.name for claim in digits.section.claims]
    for need in (*digits.section.claims, *figures):
        found = {name: SMALL.replace(overrides).activation for name, overrides in need.runs.items()}
        assert found == {"relu": "relu", "leaky": "leaky_relu"}


# ---------------------------------------------------------------- claims on made-up runs

SEEDS = 4


def attention_with(hits: Any, rng: np.random.Generator) -> np.ndarray:
    """Attention that has so many of the nine largest entries of each row where S* has them."""
    S = rng.uniform(0.0, 0.4, size=(81, 81))
    for row, count in zip(range(81), hits, strict=True):
        inside = slow_pooling()[row] > 0
        S[row, rng.permutation(np.flatnonzero(inside))[:count]] += 0.5
        S[row, rng.permutation(np.flatnonzero(~inside))[: 9 - count]] += 0.5
    return S


def made_up(
    left: Sequence[float] = (0.01, 0.012, 0.014, 0.016),
    cosine: Sequence[float] = (0.95, 0.96, 0.97, 0.98),
    errors: Any = None,
    ink: Any = None,
    hits: Any = 9,
) -> xr.Dataset:
    """A run of four seeds: losses at the end as a share of the start, cosines, the rows' errors and hits."""
    if errors is None:
        errors = np.where(np.isin(np.arange(81), [*range(9), *range(72, 81)]), 1.5, 0.1)
    errors = np.broadcast_to(errors, (SEEDS, 81))
    # Seeds start from different losses, and what is in between must not count.
    first, rng = np.array([1.0, 10.0, 100.0, 1000.0]), np.random.default_rng(0)
    loss = np.stack([first, 5.0 * first, first * np.array(left)], axis=1)
    cosines = np.stack([np.zeros(SEEDS), np.ones(SEEDS), np.array(cosine)], axis=1)
    rows = np.stack([np.full((SEEDS, 81), 16 / 9), 0.5 * errors[:, ::-1], errors], axis=1)
    ink = np.broadcast_to(np.linspace(0.1, 0.9, 81) if ink is None else ink, (SEEDS, 81))
    matrices = np.stack([attention_with(own, rng) for own in np.broadcast_to(hits, (SEEDS, 81))])
    resized = rng.uniform(size=(SEEDS, 9, 81))
    return xr.Dataset(
        {
            "loss": (("seed", "step"), loss),
            "value_cosine": (("seed", "step"), cosines),
            "row_error": (("seed", "step", "patch"), rows),
            "teacher_accuracy": ("seed", np.array([0.9, 0.92, 0.94, 0.96])),
            "ink": (("seed", "patch"), ink),
            "attention": (("seed", "row", "column"), matrices),
            "teacher_attention": (("seed", "row", "column"), np.stack([slow_pooling()] * SEEDS)),
            "example": (("seed", "pixel", "patch"), resized),
        },
        {"seed": np.arange(SEEDS), "step": [0, 7, 50]},
    )


ACCURACIES = {"relu_teacher_accuracy": 0.93, "leaky_relu_teacher_accuracy": 0.93}
EDGES_LOST = [2] * 9 + [9] * 63 + [3] * 9
AS_CLAIMED = {
    "relu": made_up(hits=EDGES_LOST),
    "leaky": made_up(left=(0.02, 0.021, 0.022, 0.023), hits=EDGES_LOST),
}
CLAIMS = {claim.name: claim for claim in digits.section.claims}
by_claim = pytest.mark.parametrize("claim", digits.section.claims, ids=lambda claim: claim.name)
background = digits.mnist_background_patches_fail


@pytest.mark.parametrize(
    ("name", "relu", "leaky", "value", "notes"),
    [
        (
            "mnist_loss_gets_small",
            made_up(left=(0.01, 0.04, 0.02, 0.03)),
            made_up(left=(0.03, 0.02, 0.01, 0.04)),
            0.0325,  # of the larger: 0.03, 0.04, 0.02, 0.04
            {"relu": 0.025, "leaky_relu": 0.025},
        ),
        (
            "mnist_value_direction_recovers",
            made_up(cosine=(0.9, 0.8, 0.7, 0.6)),
            made_up(cosine=(0.5, 0.9, 0.9, 0.5)),
            0.625,  # of the smaller: 0.5, 0.8, 0.7, 0.5
            {"relu": 0.75, "leaky_relu": 0.7},
        ),
    ],
)
def test_ends_are_measured_by_the_worse_activation_of_each_seed(
    name: str, relu: xr.Dataset, leaky: xr.Dataset, value: float, notes: dict[str, float]
):
    found = CLAIMS[name].measure(relu=relu, leaky=leaky)
    assert found.value == pytest.approx(value, rel=1e-12)
    assert found.seeds == SEEDS
    assert found.notes == pytest.approx(notes | ACCURACIES)
    assert judge(CLAIMS[name], {"relu": relu, "leaky": leaky}).range == {"step": (0.0, 50.0)}


def rows(**errors: Any) -> np.ndarray:
    """Errors of rows: 0.1, but for some."""
    found = np.full(81, 0.1)
    for place, value in errors.items():
        found[{"first": slice(9), "inner": slice(9, 72), "last": slice(72, 81)}[place]] = value
    return found


def test_inner_rows_are_recovered_below_one_half():
    measure = CLAIMS["mnist_attention_recovers_pooling"].measure
    inner = np.concatenate([np.full(20, 0.5), np.full(10, 0.4999), np.full(33, 0.1)])
    off = rows(first=1.7, inner=inner, last=1.7)
    on = rows(first=0.0, inner=0.0, last=0.0)
    assert digits.inner_recovered(made_up(errors=off)).tolist() == pytest.approx([43 / 63] * SEEDS)
    assert digits.inner_recovered(made_up(errors=on)).tolist() == [1.0] * SEEDS
    found = measure(relu=made_up(errors=on), leaky=made_up(errors=off))
    assert found.value == pytest.approx(43 / 63)
    assert found.notes == pytest.approx({"relu": 1.0, "leaky_relu": 43 / 63} | ACCURACIES)
    by_seed = made_up(errors=np.stack([on, off, on, off]))
    other = made_up(errors=np.stack([on, on, off, off]))
    assert measure(relu=by_seed, leaky=other).value == pytest.approx((1 + 3 * 43 / 63) / 4)
    assert digits.inner_recovered(by_seed.transpose()).tolist() == pytest.approx([1.0, 43 / 63, 1.0, 43 / 63])


def test_hits_are_largest_entries_where_the_teacher_has_its_own():
    given = np.random.default_rng(5).integers(10, size=(SEEDS, 81))
    run = made_up(hits=given)
    np.testing.assert_allclose(digits.hits(run), given / 9)
    np.testing.assert_allclose(digits.hits(run.transpose(*reversed(list(run.sizes)))), given / 9)
    np.testing.assert_allclose(digits.inner_hits(run), given[:, 9:72].mean(axis=1) / 9)
    S, T = run["attention"].values[1, 30], slow_pooling()[30]
    largest = sorted(range(81), key=lambda j: -S[j])[:9]
    assert sum(T[j] > 0 for j in largest) == given[1, 30]
    measure = CLAIMS["mnist_attention_recovers_pattern"].measure
    other = np.repeat([[9], [0], [9], [0]], 81, axis=1)
    found = measure(relu=run, leaky=made_up(hits=other))
    expected = np.where([True, False, True, False], given[:, 9:72].mean(axis=1) / 9, 0.0)
    assert found.value == pytest.approx(expected.mean())
    assert found.notes["leaky_relu"] == pytest.approx(0.5)


def test_edge_rows_fail_from_one_half_on():
    errors = rows(first=[0.5] * 4 + [0.4999] * 5, inner=1.7, last=[1.7] * 2 + [0.0] * 7)
    runs = {"relu": made_up(errors=rows(first=1.7, last=1.7)), "leaky": made_up(errors=errors)}
    failed = digits.edge(digits.row_errors(runs["leaky"])) >= digits.RECOVERED
    assert failed.mean(axis=1).tolist() == pytest.approx([6 / 18] * SEEDS)
    found = background(**runs)
    assert found.notes["relu_share_of_these_rows_failed"] == 1.0
    assert found.notes["leaky_relu_share_of_these_rows_failed"] == pytest.approx(6 / 18)
    assert judge(background, runs).range == {"step": (0.0, 50.0)}


def test_notes_on_background_are_rank_correlations_and_extremes_of_ink():
    rng = np.random.default_rng(0)
    ink = np.stack([rng.permutation(np.linspace(0.01, 0.95, 81)) for _ in range(SEEDS)])
    errors = np.stack([rng.permutation(np.linspace(0.01, 1.7, 81)) ** 3 / 3 for _ in range(SEEDS)])
    found = background(made_up(errors=errors, ink=ink), made_up(errors=1.7 * (1 - ink**5), ink=ink))
    ranks = [stats.spearmanr(a, b).statistic for a, b in zip(ink, errors, strict=True)]  # type: ignore[attr-defined]
    assert found.notes["relu_rank_correlation_of_ink_and_error"] == pytest.approx(np.mean(ranks))
    assert found.notes["leaky_relu_rank_correlation_of_ink_and_error"] == pytest.approx(-1.0)
    recovered = [a for a, b in zip(ink.ravel(), errors.ravel(), strict=True) if b < 0.5]
    failed = [a for a, b in zip(ink.ravel(), errors.ravel(), strict=True) if b >= 0.5]
    assert found.notes["relu_least_ink_of_a_recovered_row"] == pytest.approx(min(recovered))
    assert found.notes["relu_most_ink_of_a_failed_row"] == pytest.approx(max(failed))
    assert len(found.notes) == 12


def test_equal_values_share_their_rank():
    rng = np.random.default_rng(1)
    ink, errors = rng.integers(4, size=81) / 4, rng.integers(3, size=81) / 2
    expected = stats.spearmanr(ink, errors).statistic  # type: ignore[attr-defined]
    assert digits.rank_correlation(ink, errors) == pytest.approx(expected, rel=1e-12)
    order = rng.permutation(81)
    assert digits.rank_correlation(ink[order], errors[order]) == pytest.approx(expected, rel=1e-12)
    assert digits.rank_correlation(ink, np.zeros(81)) == 0.0


def test_background_is_how_much_larger_errors_are_at_the_edge():
    near, far = made_up(errors=rows(first=0.5, last=0.7)), made_up(errors=rows(first=1.7, last=1.7))
    assert digits.edge_lag(near).tolist() == pytest.approx([0.5 / (16 / 9)] * SEEDS)
    assert background(near, far).value == pytest.approx(0.5 / (16 / 9))
    assert background(far, far).value == pytest.approx(1.6 / (16 / 9))
    # Rows of uniform attention err alike, whatever the order of their entries.
    uniform = made_up(errors=np.full(81, 16 / 9), hits=[0] * 9 + [9] * 63 + [0] * 9)
    assert background(uniform, uniform).value == pytest.approx(0.0, abs=1e-12)


def test_notes_on_background_compare_hits_at_the_edge_with_others():
    run = made_up(errors=np.linspace(0, 1, 81), hits=[3] * 9 + [6] * 63 + [0] * 9)
    notes = background(made_up(), run).notes
    assert notes["leaky_relu_hits_in_these_rows"] == pytest.approx(1.5 / 9)
    assert notes["leaky_relu_hits_in_other_rows"] == pytest.approx(6 / 9)
    assert notes["relu_hits_in_these_rows"] == notes["relu_hits_in_other_rows"] == 1.0


@pytest.mark.parametrize(("error", "least", "most"), [(0.1, 0.2, 0.0), (1.0, 1.0, 0.8)])
def test_where_no_row_fails_or_all_do_the_other_note_is_its_bound(error: float, least: float, most: float):
    ink, errors = np.linspace(0.2, 0.8, 81), error + np.linspace(0, 1e-3, 81)
    run = made_up(errors=errors, ink=ink)
    notes = background(run, run).notes
    assert notes["relu_least_ink_of_a_recovered_row"] == pytest.approx(least)
    assert notes["leaky_relu_most_ink_of_a_failed_row"] == pytest.approx(most)


AGAINST: dict[str, dict[str, Any]] = {
    "mnist_loss_gets_small": {"left": (0.06, 0.07, 0.065, 0.0625)},
    "mnist_value_direction_recovers": {"cosine": (0.85, 0.86, 0.87, 0.86)},
    "mnist_attention_recovers_pooling": {"errors": rows(first=1.7, inner=[0.6] * 10 + [0.1] * 53, last=1.7)},
    "mnist_attention_recovers_pattern": {"hits": [9] * 9 + [9, 7, 7, 8, 9, 8, 7, 9, 8] * 7 + [9] * 9},
    "mnist_background_patches_fail": {"errors": rows(first=0.6, last=0.4)},
}


@by_claim
def test_claims_hold_on_runs_as_claimed_and_fail_where_either_activation_does(claim: Claim):
    assert judge(claim, AS_CLAIMED).outcome == Outcome.SUPPORTED
    for name in AS_CLAIMED:
        data = AS_CLAIMED | {name: made_up(**AGAINST[claim.name])}
        assert judge(claim, data).outcome == Outcome.REFUTED, name


@by_claim
def test_mutants_are_refuted(claim: Claim):
    for mutant in claim.mutants:
        refuted(claim, mutant)


def refuted(claim: Claim, mutant: Mutant) -> None:
    data = AS_CLAIMED
    if mutant.alter is not None:
        altered = mutant.alter(data)
        assert set(altered) == set(data)
        assert not any(altered[name]["row_error"].values.any() for name in altered)
        assert all(altered[name]["loss"].identical(data[name]["loss"]) for name in altered)
        assert all(np.all(digits.hits(altered[name]) == 1.0) for name in altered)
    else:
        assert mutant.settings == {"eta": 1e-9}
        # Nothing is learned but a direction that a single step has; real ones: test_every_paper.
        start = made_up((0.999, 1.0, 1.0, 0.998), (0.75, 0.71, 0.6, 0.66), np.full(81, 16 / 9), hits=1)
        altered = {"relu": start, "leaky": start}
    verdict = judge(claim, altered)
    assert verdict.outcome == Outcome.REFUTED, str(verdict)


# ---------------------------------------------------------------- figures


def test_figure_4_shows_losses_and_cosines():
    canvas = digits.figure_4(**AS_CLAIMED)
    assert isinstance(canvas, matplotlib.figure.Figure)
    losses, cosines = canvas.axes
    for ax, name in ((losses, "loss"), (cosines, "value_cosine")):
        for line, run in zip(ax.lines, AS_CLAIMED.values(), strict=False):
            drawn = np.asarray(line.get_xydata())
            np.testing.assert_allclose(drawn[:, 0], [7, 50])
            np.testing.assert_allclose(drawn[:, 1], np.median(run[name].values[:, 1:], axis=0))
    other = AS_CLAIMED["leaky"].assign(teacher_accuracy=("seed", np.full(SEEDS, 0.8125)))
    [words] = digits.figure_4(**(AS_CLAIMED | {"leaky": other})).axes[0].texts
    assert words.get_text().splitlines()[1:] == ["93.0% ReLU", "81.2% LeakyReLU", "(71% in the paper)"]


def test_figure_5_shows_attention_and_the_patches_that_are_lost():
    lost = [3, 9, 44, 80]
    hits = np.full((SEEDS, 81), 5)
    hits[0, lost] = [4, 0, 4, 3]  # of nine: less than half
    hits[1] = 0
    image = np.random.default_rng(1).uniform(size=(27, 27))
    relu, leaky = made_up(hits=hits), made_up()
    cut = np.zeros((9, 81))
    for row in range(27):
        for column in range(27):
            cut[row % 3 * 3 + column % 3, row // 3 * 9 + column // 3] = image[row, column]
    relu["example"][0] = cut
    canvas = digits.figure_5(relu=relu, leaky=leaky)
    assert isinstance(canvas, matplotlib.figure.Figure)
    truth, first, second, shown, against = canvas.axes
    for ax, matrix in (
        (truth, slow_pooling()),
        (first, relu["attention"][0]),
        (second, leaky["attention"][0]),
    ):
        np.testing.assert_array_equal(np.asarray(ax.images[0].get_array()), matrix)
    np.testing.assert_array_equal(np.asarray(shown.images[0].get_array()), image)
    corners = [patch.get_xy() for patch in shown.patches if isinstance(patch, Rectangle)]
    assert corners == [(3 * (i % 9) - 0.5, 3 * (i // 9) - 0.5) for i in lost]
    for line, run in zip(against.lines, (relu, leaky), strict=False):
        drawn = np.asarray(line.get_xydata())
        np.testing.assert_allclose(drawn[:, 0], run["ink"].values.ravel())
        np.testing.assert_allclose(drawn[:, 1], run["row_error"].values[:, -1].ravel())
