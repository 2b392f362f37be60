"""The four twins of bilinear_teachers, its two numbers, its flow, and its settings."""

import functools
import importlib
import itertools
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy import stats
from scipy.integrate import solve_ivp

from descentlab.engine._rollout import rollout
from descentlab.errors import SettingError
from descentlab.judging import _grids as scaling
from descentlab.papers import _registry as paper
from descentlab.papers import bilinear_teachers as bt
from descentlab.papers.bilinear_teachers import line, teachers
from descentlab.papers.bilinear_teachers.figures import attention_along
from descentlab.running import _experiments as experiment
from descentlab.store import Store

KEY = jax.random.key(7)
ALPHA = 1e-6
PAPER = paper.load("bilinear_teachers")
SLOPES = {"identity": 1.0, "relu": 0.0, "leaky_relu": 0.2}  # below zero
SMALL: dict[str, Any] = {"D": 4, "K": 2, "d": 3, "M": 3, "leak": 0.2, "sigma_x": 1.3, "noise": 0.5}

by_activation = pytest.mark.parametrize("activation", SLOPES)


@pytest.fixture(autouse=True)
def stuck_solvers_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """No flow below needs as many steps: what is stuck fails, rather than hangs."""
    monkeypatch.setattr("descentlab.engine._flow.MOST_SOLVER_STEPS", 5000)


@functools.cache
def task_of(**settings: Any) -> bt.Task:
    """A random teacher of small sizes."""
    task = bt.make_task(KEY, bt.Preset(**{**SMALL, **settings}))
    assert isinstance(task, bt.Task)
    return task


PLACES = ("random", "parallel", "opposite", "recovered", "mirrored", "some rows zero", "zero")
by_place = pytest.mark.parametrize("place", PLACES)


def weights_at(place: str, task: bt.Task) -> bt.Params:
    """Weights where closed forms may go wrong; `recovered` and `mirrored` have correlations +1 and -1."""
    rng, p = np.random.default_rng(3), task.preset
    W, A = jnp.asarray(rng.normal(size=(p.M, p.d))), jnp.asarray(2 * rng.normal(size=(p.D, p.D)))
    teachers = jnp.where(task.S > 0, 0.0, -1e6).astype(A.dtype)
    return {
        "random": bt.Params(W, A),
        "parallel": bt.Params(1.7 * task.V, A),
        "opposite": bt.Params(-task.V, A),
        "recovered": bt.Params(1.7 * task.V, teachers),
        "mirrored": bt.Params(-task.V, teachers),
        "some rows zero": bt.Params(W.at[1].set(0.0), A),
        "zero": bt.Params(jnp.zeros_like(W), jnp.zeros_like(A)),
    }[place]


def assert_means(draws: Any, expected: Any) -> None:
    """z-tests on the means of independent draws, which lie along the first axis; constants must be exact."""
    draws, expected = np.asarray(draws), np.asarray(expected)
    error, off = draws.std(axis=0, ddof=1) / len(draws) ** 0.5, draws.mean(axis=0) - expected
    constant = np.ptp(draws, axis=0) == 0
    np.testing.assert_allclose(off[constant], 0.0, atol=1e-12)
    z = off[~constant] / error[~constant]
    assert np.all(2 * stats.norm.sf(abs(z)) > ALPHA), f"largest |z| = {abs(z).max():.1f}"


def assert_alike(ours: Any, theirs: Any, rtol: float = 1e-7, atol: float = 0.0) -> None:
    """All leaves agree."""
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol, atol), ours, theirs)


def bent(z: np.ndarray, k: float) -> np.ndarray:
    """s(z)."""
    return np.where(z > 0, z, k * z)


# ---------------------------------------------------------------- twin 1: the sampler


def test_samples_have_the_moments_of_the_data_model():
    task, n = task_of(), 8_000
    p = task.preset
    X, Y = (np.asarray(a) for a in bt.sample(jax.random.key(1), task, n))
    E = Y - bent(np.einsum("mf,fni,ij->mnj", task.V, X, task.S), 0.0)
    X, E = (np.moveaxis(a, 1, 0).reshape(n, -1) for a in (X, E))
    assert_means(np.hstack([X, E]), 0.0)
    # Entries are independent of one another, and inputs of the noise.
    variances = np.diag([p.sigma_x**2] * (p.d * p.D) + [p.noise**2] * (p.M * p.D))
    both = np.hstack([X, E])
    assert_means(both[:, :, None] * both[:, None, :], variances)
    assert_means(both**4, 3 * np.diag(variances) ** 2)


@pytest.mark.parametrize("law", bt.LAWS)
def test_laws_have_variance_one_and_mean_zero_but_for_the_exponential(law: str):
    p = bt.Preset(**SMALL)
    x = np.asarray(teachers.entries(KEY, law, (200_000,), p))
    assert x.dtype == np.float64
    mean = 1.0 if law == "exponential" else 0.0
    assert_means(x, mean)
    assert_means((x - mean) ** 2, 1.0)
    assert len(np.unique(x)) == 2 or law != "rademacher"
    assert np.abs(x).max() <= 3**0.5 or law != "uniform"
    assert x.min() >= (0 if law == "exponential" else -1) or "exponential" not in law


def test_gaussian_entries_are_gaussian_and_independent():
    x = np.asarray(teachers.entries(KEY, "gaussian", (200_001,), bt.Preset(**SMALL)))
    assert stats.kstest(x, "norm").pvalue > ALPHA
    assert_means(x**4, 3.0)
    # Neighbours, and numbers half the array apart, which may come from the same random bits.
    for apart in (1, 2, 100_000, 100_001):
        y, z = x[:-apart], x[apart:]
        assert_means(np.stack([y * z, (y**2 - 1) * (z**2 - 1), y**2 * z], axis=1), 0.0)


def columns_support(S: Any) -> list[set[int]]:
    """The rows of each column's entries, all of which are 1/K."""
    S = np.asarray(S)
    K = np.count_nonzero(S[:, 0])
    assert set(np.unique(S)) == {0.0, 1 / K}
    assert set(np.count_nonzero(S, axis=0)) == {K}
    return [{int(i) for i in np.flatnonzero(column)} for column in S.T]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("teacher", bt.TEACHERS)
def test_teachers_are_what_the_paper_says(teacher: str, seed: int):
    p = bt.Preset(teacher=teacher)
    key = jax.random.key(seed)
    task = bt.make_task(key, p)
    assert isinstance(task, bt.Task)
    support, D, K = columns_support(task.S), p.D, p.K
    assert all(len(rows) == K for rows in support)
    if teacher == "cnn":
        assert support == [set(range(j - j % K, j - j % K + K)) for j in range(D)]
    elif teacher == "gcn":
        assert support == [{(j - 1) % D, j, (j + 1) % D} for j in range(D)]
    else:
        assert all(rows == support[0] for rows in support)
        other = bt.make_task(jax.random.key(seed + 1), p)
        assert isinstance(other, bt.Task)
        assert columns_support(other.S)[0] != support[0]
    if teacher == "token_selection":
        np.testing.assert_array_equal(task.V, np.eye(p.d))
    else:
        assert task.V.shape == (1 if teacher == "group_sparse" else 5, p.d)


def test_the_value_teacher_is_gaussian_with_its_scale():
    keys = jax.random.split(KEY, 500)
    V = jax.vmap(lambda key: teachers.value_teacher(key, bt.Preset(V_scale=0.7)))(keys)
    assert_means(V.ravel(), 0.0)
    assert_means(V.ravel() ** 2, 0.7**2)
    identity = teachers.value_teacher(KEY, bt.Preset(teacher="token_selection", V_scale=0.7))
    np.testing.assert_array_equal(identity, 0.7 * np.eye(10))


@pytest.mark.parametrize("D", [2, 9])
@pytest.mark.parametrize("encoding", ["orthogonal", "cosine", "identity", "gaussian"])
def test_encodings_are_orthogonal_but_for_the_gaussian(encoding: str, D: int):
    P = np.asarray(teachers.encodings(KEY, bt.Preset(teacher="gcn", D=D, K=1, encoding=encoding)))
    orthogonal = np.allclose(P.T @ P, np.eye(D), atol=1e-13)
    assert orthogonal == (encoding != "gaussian")


# ---------------------------------------------------------------- twin 2: the model


def attended(W_V: Any, W_KQ: Any, Z: Any, tokens: Any, D: int, k: float) -> np.ndarray:
    """s(W_V Z softmax(T' W_KQ T / sqrt(D))) for tokens T, sum by sum."""
    W_V, W_KQ, Z, T = (np.asarray(a) for a in (W_V, W_KQ, Z, tokens))
    out = np.zeros((W_V.shape[0], D))
    for j in range(D):
        logits = [
            sum(T[a, i] * W_KQ[a, b] * T[b, j] for a in range(len(T)) for b in range(len(T)))
            for i in range(D)
        ]
        scores = np.exp(np.array(logits) / np.sqrt(D))
        scores /= scores.sum()
        for m in range(W_V.shape[0]):
            z = sum(W_V[m, f] * sum(Z[f, i] * scores[i] for i in range(D)) for f in range(len(Z)))
            out[m, j] = z if z > 0 else k * z
    return out


@by_activation
@pytest.mark.parametrize("encoding", ["orthogonal", "gaussian"])
def test_students_are_the_printed_formulas(encoding: str, activation: str):
    task = task_of(encoding=encoding, activation=activation)
    p, w = task.preset, weights_at("random", task)
    X = jax.random.normal(KEY, (p.d, 2, p.D))
    W_KQ, k = bt.printed(w, task), SLOPES[activation]
    ours, teachers = bt.student(w, task, X), bt.teacher(task, X)
    for n in range(2):
        expected = attended(w.W_V, W_KQ, X[:, n], task.P, p.D, k)
        printed = bt.predict(w.W_V, W_KQ, task.P, X[:, n], k)
        np.testing.assert_allclose(printed, expected, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(ours[:, n], expected, rtol=1e-10, atol=1e-12)
        truth = bent(np.asarray(task.V @ X[:, n] @ task.S), SLOPES[activation])
        np.testing.assert_allclose(teachers[:, n], truth, rtol=1e-12, atol=1e-14)


@by_activation
def test_the_full_student_is_the_printed_formula_and_contains_the_position_only_one(activation: str):
    task = task_of(activation=activation)
    p, w = task.preset, weights_at("random", task)
    X = jax.random.normal(KEY, (p.d, 2, p.D))
    rng, side = np.random.default_rng(0), p.d + p.D
    full = bt.FullParams(
        jnp.asarray(rng.normal(size=(p.M, side))), jnp.asarray(rng.normal(size=(side, side)))
    )
    ours = bt.full_outputs(full, X, task)
    for n in range(2):
        Z = np.vstack([X[:, n], task.P])
        expected = attended(full.W_V, full.W_KQ, Z, Z, p.D, SLOPES[activation])
        np.testing.assert_allclose(ours[:, n], expected, rtol=1e-10, atol=1e-12)
    inside = bt.FullParams(
        jnp.zeros((p.M, side)).at[:, : p.d].set(w.W_V),
        jnp.zeros((side, side)).at[p.d :, p.d :].set(bt.printed(w, task)),
    )
    np.testing.assert_allclose(bt.student(inside, task, X), bt.student(w, task, X), rtol=1e-12, atol=1e-14)


@by_activation
@pytest.mark.parametrize("at_zero", [0.0, 0.3, 1.0])
def test_the_slope_at_zero_is_as_chosen(activation: str, at_zero: float):
    k, chosen = bt.Preset(activation=activation, leak=0.2, slope_at_zero=at_zero).bend()
    assert (k, chosen) == (SLOPES[activation], 1.0 if activation == "identity" else at_zero)
    slopes = jax.vmap(jax.grad(lambda z: bt.activation(z, k, chosen)))(jnp.array([-2.0, 0.0, 3.0]))
    np.testing.assert_array_equal(slopes, [k, chosen, 1.0])


# ---------------------------------------------------------------- twin 3: population and online


@by_activation
@by_place
def test_the_population_loss_is_the_expected_loss(place: str, activation: str):
    task = task_of(activation=activation)
    p, w, n, k = task.preset, weights_at(place, task), 40_000, SLOPES[activation]
    X = np.random.default_rng(5).normal(0, p.sigma_x, (n, p.d, p.D))
    W, A, V, S_star = (np.asarray(a) for a in (w.W_V, w.A, task.V, task.S))
    S = np.exp(A / np.sqrt(p.D))
    guess, truth = bent(W @ X @ (S / S.sum(axis=0)), k), bent(V @ X @ S_star, k)
    assert_means(((truth - guess) ** 2).sum(axis=(1, 2)) / 2, bt.population_loss(w, task))


@by_activation
def test_the_population_loss_vanishes_at_the_teacher(activation: str):
    task = task_of(activation=activation)
    w = weights_at("recovered", task)._replace(W_V=task.V)
    assert 0 <= float(bt.population_loss(w, task)) < 1e-28
    assert_alike(bt.population_gradient(w, task), jax.tree.map(np.zeros_like, w), atol=1e-14)


@functools.partial(jax.jit, static_argnames="loss")
def differences(loss: Any, w: bt.Params, task: bt.Task) -> bt.Params:
    """Central finite differences of a loss."""
    flat, back = ravel_pytree(w)
    h = 1e-5

    def along(e):
        return (loss(back(flat + h * e), task) - loss(back(flat - h * e), task)) / (2 * h)

    return back(jax.vmap(along)(jnp.eye(flat.size)))


@by_activation
@by_place
def test_the_population_gradient_is_that_of_the_loss(place: str, activation: str):
    # At W_V = 0 there is a kink, whose central difference is that of the middle slope.
    task = task_of(activation=activation, slope_at_zero=(1 + SLOPES[activation]) / 2)
    w = weights_at(place, task)
    ours = bt.population_gradient(w, task)
    assert_alike(ours, differences(bt.population_loss, w, task), rtol=1e-7, atol=1e-8)
    assert_alike(ours, jax.grad(bt.population_loss)(w, task), rtol=1e-14)


@jax.jit
def batch_gradients(w: bt.Params, task: bt.Task, X: jax.Array, Y: jax.Array) -> bt.Params:
    """The gradients of batches, along the first axis of X and Y."""
    return jax.vmap(lambda *batch: jax.grad(bt.batch_loss)(w, task, batch))(X, Y)


@by_activation
def test_online_gradients_have_the_population_gradient_as_mean(activation: str):
    for at_zero in (0.3, 1.0):
        task = task_of(activation=activation, slope_at_zero=at_zero)
        X, Y = bt.sample(KEY, task, 100_000)
        X, Y = (jnp.moveaxis(a.reshape(-1, 2000, 50, task.preset.D), 1, 0) for a in (X, Y))
        for place in ("random", "recovered", "some rows zero", "zero"):
            w = weights_at(place, task)
            jax.tree.map(assert_means, batch_gradients(w, task, X, Y), bt.population_gradient(w, task))


@by_activation
@pytest.mark.parametrize("at_zero", [0.0, 0.3, 1.0])
def test_the_gradient_at_zero_is_the_chosen_slopes(at_zero: float, activation: str):
    task = task_of(activation=activation, slope_at_zero=at_zero)
    w, k = weights_at("zero", task), SLOPES[activation]
    w = w._replace(A=weights_at("random", task).A)
    slope = 1.0 if activation == "identity" else at_zero
    overlap = np.sum(np.asarray(bt.attention(w.A)) * np.asarray(task.S))
    g = bt.population_gradient(w, task)
    expected = -slope * (1 + k) / 2 * task.preset.sigma_x**2 * overlap * np.asarray(task.V)
    np.testing.assert_allclose(g.W_V, expected, rtol=1e-13)
    assert not np.asarray(g.A).any()


# ---------------------------------------------------------------- twin 4: Lemma D.2


def plain_loss(w: bt.Params, task: bt.Task) -> jax.Array:
    """L - L_opt as the notes print it, for autodiff where correlations are not +-1 and no weights zero."""
    k, p = SLOPES[task.preset.activation], task.preset
    S, s2 = jax.nn.softmax(w.A / p.D**0.5, axis=0), p.sigma_x**2
    a, b, h = (1 + k) / 2, (1 - k) / 2, (1 + k**2) / 2
    A2 = s2 * jnp.outer(jnp.sum(w.W_V**2, axis=1), jnp.sum(S**2, axis=0))
    B2 = s2 * jnp.outer(jnp.sum(task.V**2, axis=1), jnp.sum(task.S**2, axis=0))
    c = s2 * jnp.outer(jnp.sum(w.W_V * task.V, axis=1), jnp.sum(S * task.S, axis=0))
    bow = jnp.sqrt(A2 * B2 - c**2) + c * jnp.arcsin(c / jnp.sqrt(A2 * B2))
    return 0.5 * jnp.sum(h * (A2 + B2) - 2 * (a**2 * c + 2 * b**2 / jnp.pi * bow))


@by_activation
@pytest.mark.parametrize("teacher", ["cnn", "token_selection"])
def test_on_the_line_the_gradient_is_that_of_the_two_numbers(teacher: str, activation: str):
    task = task_of(teacher=teacher, activation=activation)
    two, K, D, on = bt.two_numbers(task), task.preset.K, task.preset.D, task.S > 0

    def both(C_1, u):
        """Things of the weights, by autodiff and plain formulas, and the same things of the two numbers."""
        numbers = line.Line(C_1, u)
        w = bt.Params(C_1 * task.V, jnp.where(on, u * (D - K) / D, -u * K / D))
        g, ours = jax.grad(plain_loss)(w, task), line.gradient(numbers, two)
        expected = {
            "weights": w, "coefficients": (C_1, u * (D - K) / D, u * K / D), "W_V": g.W_V, "A": g.A,
            "loss": (plain_loss(w, task), bt.population_loss(w, task)),
            "S": jnp.sum((bt.attention(w.A) - task.S) ** 2), "V": jnp.sum((w.W_V - task.V) ** 2),
        }  # fmt: skip
        return expected, {
            "weights": bt.weights(numbers, task), "coefficients": bt.coefficients(w, task),
            "W_V": ours.C_1 * task.V, "A": jnp.where(on, (D - K) / D * ours.u, -K / D * ours.u),
            "loss": (line.excess_loss(numbers, two),) * 2,
            "S": line.attention_error(numbers, two) ** 2, "V": line.value_error(numbers, two) ** 2,
        }  # fmt: skip

    C_1, u = (x.ravel() for x in jnp.meshgrid(jnp.array([0.3, 1.0, 1.6]), jnp.array([0.0, 1.0, 6.0])))
    assert_alike(*jax.jit(jax.vmap(both))(C_1, u), rtol=1e-10, atol=1e-13)


@by_activation
def test_the_lag_and_the_gap_flow_as_the_two_numbers_do(activation: str):
    two = bt.two_numbers(task_of(activation=activation))

    def both(lag, u):
        w = line.Relaxing(lag, u)
        best, turn = jax.value_and_grad(lambda u: line.best(u, two))(u)
        g, at_best = line.gradient(line.plain(w, two), two), line.gradient(line.Line(best, u), two)
        moved = line.relaxing_gradient(w, two)
        return (at_best.C_1, moved), (jnp.zeros_like(u), line.Relaxing(g.C_1 - turn * g.u, g.u))

    ours, expected = jax.jit(jax.vmap(both))(jnp.array([-0.4, 0.2, 1e-3]), jnp.array([0.0, 1.0, 6.0]))
    assert_alike(ours, expected, rtol=1e-10, atol=1e-13)


# ---------------------------------------------------------------- training, in coordinates and as printed


@pytest.mark.parametrize(
    ("encoding", "train"),
    [("orthogonal", "both"), ("gaussian", "both"), ("cosine", "value"), ("gaussian", "attention")],
)
def test_training_A_is_training_the_printed_weights(encoding: str, train: str):
    task = task_of(
        encoding=encoding, train=train, activation="leaky_relu", start="gaussian", sigma_0=0.5, eta=0.3
    )
    p, steps = task.preset, 25
    dynamics = bt.dynamics(task, p)
    begun = dynamics.init(KEY)
    ended = jax.jit(dynamics.advance)(KEY, begun, jnp.asarray(0), jnp.asarray(steps))
    slope = jax.jit(jax.grad(lambda w: plain_loss(bt.Params(w[0], task.P.T @ w[1] @ task.P), task)))
    W_V, W_KQ = begun.params.W_V, bt.printed(begun.params, task)
    for _ in range(steps):
        g_V, g_KQ = slope((W_V, W_KQ))
        W_V = W_V - (0 if train == "attention" else p.eta) * g_V
        W_KQ = W_KQ - (0 if train == "value" else p.eta) * g_KQ
    np.testing.assert_allclose(ended.params.W_V, W_V, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(bt.printed(ended.params, task), W_KQ, rtol=1e-8, atol=1e-10)
    moved = [bool(jnp.any(a != b)) for a, b in zip(begun.params, ended.params, strict=True)]
    assert moved == [train != "attention", train != "value"]


@pytest.mark.parametrize("student", ["position_only", "full"])
def test_online_training_takes_a_fresh_batch_a_step(student: str):
    task = task_of(student=student, algorithm="online", batch=7, eta=0.1)
    p = task.preset
    dynamics = bt.dynamics(task, p)
    begun = dynamics.init(KEY)
    w = begun.params
    assert not any(np.asarray(x).any() for x in w)
    slope = jax.jit(lambda w, key: jax.grad(bt.batch_loss)(w, task, bt.sample(key, task, p.batch)))
    for t in range(3):
        w = jax.tree.map(lambda x, y: x - p.eta * y, w, slope(w, jax.random.fold_in(KEY, t)))
    ended = jax.jit(dynamics.advance)(KEY, begun, jnp.asarray(0), jnp.asarray(3))
    # Samples are drawn in 32 bits, and another program may round their last one differently.
    assert_alike(ended.params, w, rtol=1e-5, atol=1e-7)
    assert all(np.asarray(x).any() for x in w)


# ---------------------------------------------------------------- the two numbers, run

STEPS = (0, 1, 2, 10, 100, 1000, 3000)
COMMON = ("excess_loss", "attention_error", "value_error", "C_1", "C_2", "C_3")


@jax.jit
def advance(task: bt.Task | bt.LineTask, state: Any, first: Any, last: Any) -> Any:
    return bt.dynamics(task, task.preset).advance(KEY, state, first, last)


@jax.jit
def measured(task: bt.Task | bt.LineTask, state: Any) -> dict[str, jax.Array]:
    probes = bt.probes(task.preset)
    watched = COMMON if isinstance(task, bt.LineTask) else (*COMMON, "off_line")
    return {name: probes[name].measure(task, task.preset, state) for name in watched}


def run(p: bt.Preset, steps: Any = STEPS) -> tuple[dict[str, np.ndarray], Any]:
    """What is recorded of a run at the given steps, and its final state; teachers share their programs."""
    task = bt.make_task(KEY, p)
    if isinstance(task, bt.Task):
        task = task._replace(preset=p.replace(teacher="gcn", D=p.D, K=p.K, M=p.M, activation=p.activation))
    else:
        task = task._replace(preset=PAPER.system.program(p))
    state = bt.dynamics(task, p).init(KEY)
    rows = [measured(task, state)]
    for first, last in itertools.pairwise(steps):
        state = advance(task, state, jnp.asarray(int(first)), jnp.asarray(int(last)))
        rows.append(measured(task, state))
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}, state


TWO = bt.Preset(D=12, K=3, d=3, M=3, leak=0.1, sigma_x=1.1, eta=0.1, detail=False)


@by_activation
@pytest.mark.parametrize(
    ("teacher", "K"), [("cnn", 3), ("gcn", 3), ("token_selection", 3), ("group_sparse", 1)]
)
def test_the_two_numbers_are_the_full_run(teacher: str, K: int, activation: str):
    p = TWO.replace(teacher=teacher, D=12, K=K, M=3, activation=activation)
    (two, state), (full, full_state) = run(p), run(p.replace(reduced=False))
    assert isinstance(state.params, line.Line)
    assert isinstance(full_state.params, bt.Params)
    for name in COMMON:
        np.testing.assert_allclose(two[name], full[name], rtol=1e-10, atol=1e-14, err_msg=name)
    assert full["off_line"].max() < 1e-12
    assert full["excess_loss"][-1] < 0.5 * full["excess_loss"][0]


def test_sizes_and_teachers_share_the_program_of_the_two_numbers():
    advance: Any = PAPER.system.advance
    sizes = [
        {},
        {"D": 50, "K": 5, "M": 9},
        {"teacher": "gcn", "D": 7, "d": 4},
        {"teacher": "group_sparse", "D": 10**5},
    ]
    runs = [
        rollout(PAPER.system, TWO.replace(one, activation="relu"), range(1), np.array([0, 5]))
        for one in sizes
    ]
    assert advance._cache_size() == 1
    assert len({float(run["C_2"][0, -1]) for run in runs}) == len(runs)


# ---------------------------------------------------------------- the flow

FLOW = TWO.replace(activation="leaky_relu", D=8, K=2, algorithm="flow")


@pytest.mark.parametrize("leak", [0.0, 0.1, 1.0])
def test_the_flow_of_the_two_numbers_is_the_full_flow(leak: float):
    p = FLOW.replace(leak=leak)
    (two, state), (full, full_state) = run(p), run(p.replace(reduced=False))
    for name in COMMON:
        np.testing.assert_allclose(two[name], full[name], rtol=1e-4, atol=1e-6, err_msg=name)
    np.testing.assert_allclose(state.hit, full_state.hit, rtol=1e-5)
    assert 0 < float(state.hit) < STEPS[-1]


def test_descent_tends_to_the_flow_as_the_step_goes_to_zero():
    times = np.array([0, 1, 5, 20, 40, 100])
    flow, _ = run(FLOW.replace(eta=0.02), times * 50)
    coarse, fine = (run(FLOW.replace(algorithm="population", eta=1 / n), times * n)[0] for n in (50, 100))
    for name in ("C_1", "C_2", "excess_loss"):
        ratios = (np.abs(coarse[name] - flow[name]) / np.abs(fine[name] - flow[name]).clip(1e-300))[1:]
        assert np.all((ratios > 1.8) & (ratios < 2.2)), (name, ratios)


def scipys_hit(w: bt.Params, task: bt.Task) -> float:
    """When |S - S*|_F falls below half of what uniform attention gives, by another solver of the flow."""
    flat, back = ravel_pytree(w)
    velocity = jax.jit(lambda x: -ravel_pytree(bt.population_gradient(back(x), task))[0])
    p = task.preset

    def above(t, x):
        S = np.exp(x[p.M * p.d :].reshape(p.D, p.D) / p.D**0.5)
        return np.linalg.norm(S / S.sum(axis=0) - np.asarray(task.S)) - 0.5 * np.sqrt(p.D / p.K - 1)

    above.terminal = True  # type: ignore[attr-defined]
    found = solve_ivp(
        lambda t, x: np.asarray(velocity(jnp.asarray(x))), (0, 1000), np.asarray(flat), "DOP853",
        events=above, rtol=1e-10, atol=1e-12,
    )  # fmt: skip
    return float(found.t_events[0][0])


@pytest.mark.parametrize(
    ("settings", "tolerance"),
    [({}, 1e-5), ({"reduced": False}, 1e-6), ({"start": "gaussian", "sigma_0": 0.3}, 1e-6)],
    ids=["two numbers", "all weights", "gaussian start"],
)
def test_the_hitting_time_of_the_flow_is_that_of_another_solver(settings: dict[str, Any], tolerance: float):
    p = FLOW.replace(settings)
    _, state = run(p)
    task = bt.make_task(KEY, p.replace(detail=True))
    assert isinstance(task, bt.Task)
    w = bt.beginning(KEY, p)
    assert isinstance(w, bt.Params)
    if p.start == "zero":
        # The flow leaves the kink at zero along V*, where s'(0) > 0 sends it.
        w = w._replace(W_V=1e-9 * task.V)
    np.testing.assert_allclose(state.hit * p.eta, scipys_hit(w, task), rtol=tolerance)


# ---------------------------------------------------------------- what never moves, and precision


@pytest.mark.parametrize("algorithm", ["population", "flow"])
@pytest.mark.parametrize("reduced", [True, False])
def test_with_slope_zero_at_zero_nothing_ever_moves(algorithm: str, reduced: bool):
    records, _ = run(FLOW.replace(algorithm=algorithm, reduced=reduced, slope_at_zero=0.0))
    for name in COMMON:
        np.testing.assert_array_equal(records[name], records[name][0], err_msg=name)
    assert not records["C_1"].any()


@pytest.mark.parametrize("student", ["position_only", "full"])
def test_with_slope_zero_at_zero_no_batch_moves_anything(student: str):
    task = task_of(student=student, algorithm="online", batch=7, slope_at_zero=0.0)
    dynamics = bt.dynamics(task, task.preset)
    begun = dynamics.init(KEY)
    ended = jax.jit(dynamics.advance)(KEY, begun, jnp.asarray(0), jnp.asarray(3))
    assert not any(np.asarray(x).any() for x in ended.params)


@pytest.mark.parametrize(
    "settings",
    [{}, {"reduced": False}, {"algorithm": "online"}, {"algorithm": "online", "student": "full"}],
    ids=str,
)
def test_32_bits_stay_32_bits(settings: dict[str, Any]):
    p = TWO.replace(settings, precision=32, detail=True)

    def last(key):
        task = bt.make_task(key, p)
        dynamics = bt.dynamics(task, p)
        state = dynamics.advance(key, dynamics.init(key), jnp.asarray(0), jnp.asarray(3))
        return state, {name: probe.measure(task, p, state) for name, probe in bt.probes(p).items()}

    found = {str(x.dtype) for x in jax.tree.leaves(jax.eval_shape(last, KEY))}
    assert found == {"float32"}


# ---------------------------------------------------------------- out of distribution


@by_activation
def test_the_ood_excess_is_the_loss_less_the_teachers(activation: str):
    task = task_of(activation=activation)
    p, w = task.preset, weights_at("random", task)
    X = bt.ood_inputs(task, 50)
    np.testing.assert_array_equal(X, bt.ood_inputs(task, 50))
    assert not jnp.any(bt.ood_inputs(task, 50, batch=1) == X)
    truth, guess = (np.asarray(f) for f in (bt.teacher(task, X), bt.student(w, task, X)))

    def excess(Y: Any) -> Any:
        return (
            np.sum((Y - guess) ** 2, axis=(-3, -2, -1)) - np.sum((Y - truth) ** 2, axis=(-3, -2, -1))
        ) / 100

    noise = np.random.default_rng(0).normal(size=(1000, *truth.shape))
    for Y in truth + noise[:3]:
        np.testing.assert_allclose(bt.ood_excess(w, task, X, jnp.asarray(Y)), excess(Y), rtol=1e-10)
    assert_means(excess(truth + p.noise * noise), bt.ood_excess(w, task, X))
    assert_means(excess(2.5 * noise), bt.unrelated_excess(w, task, X))


# ---------------------------------------------------------------- settings


def sizes(p: bt.Preset) -> tuple[int, int, int, str]:
    return p.D, p.K, p.M, p.activation


def test_a_teacher_brings_its_sizes_unless_they_are_given():
    own = {
        "cnn": (36, 4, 5, "relu"), "gcn": (20, 3, 5, "relu"), "token_selection": (20, 4, 10, "identity"),
        "group_sparse": (20, 1, 1, "identity"),
    }  # fmt: skip
    given: dict[str, Any] = {"D": 30, "K": 5, "M": 2, "activation": "leaky_relu"}
    for teacher, expected in own.items():
        assert sizes(bt.Preset(teacher=teacher)) == expected
        for base in (bt.Preset(), bt.Preset(**given), bt.Preset(teacher="gcn", D=7)):
            assert sizes(base.replace(teacher=teacher)) == expected
            assert sizes(base.replace(teacher=teacher, **given)) == tuple(given.values())
        assert sizes(bt.Preset(teacher=teacher, **given)) == tuple(given.values())
    assert sizes(bt.Preset().replace(D=30, K=5)) == (30, 5, 5, "relu")
    assert sizes(bt.Preset(teacher="gcn").replace({"D": "31", "activation": "identity"})) == (
        31,
        3,
        5,
        "identity",
    )


def test_token_selection_has_as_many_outputs_as_features():
    p = bt.Preset(teacher="token_selection")
    assert p.replace(d=7).M == 7
    assert p.replace(d=7, M=5).M == 5
    assert p.replace(M=5).replace(d=7).M == 5
    assert bt.Preset().replace(d=7).M == 5


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"D": 36, "K": 5}, r"K must divide D for teacher=cnn.*got K=5, D=36\."),
        ({"teacher": "gcn", "K": 21}, r"K takes a whole number <= D = 20, got K=21\."),
        ({"student": "full"}, r"student=full.*online.*got algorithm=population\."),
        ({"inputs": "laplace"}, r"exact for inputs=gaussian only, got inputs=laplace"),
        ({"inputs": "laplace", "algorithm": "flow"}, r"algorithm=flow is exact for inputs=gaussian only"),
        ({"algorithm": "flow", "precision": 32}, r"algorithm=flow.*precision=32"),
        ({"D": 5000}, r"D takes a whole number <= 4096 .*got D=5000\."),
        (
            {"D": 5000, "detail": False, "algorithm": "online"},
            r"D takes a whole number <= 4096 .*got D=5000\.",
        ),
        ({"ood": "cauchy"}, "ood takes one of gaussian, exponential.*module:function; got ood=cauchy"),
        ({"inputs": "cauchy", "algorithm": "online"}, "inputs takes one of gaussian.*got inputs=cauchy"),
        ({"ood": "nosuch_module:draw"}, "ood takes one of .*nosuch_module"),
    ],
    ids=str,
)
def test_what_does_not_go_together_is_refused(settings: dict[str, Any], message: str):
    with pytest.raises(SettingError, match=message):
        bt.Preset(**settings)
    with pytest.raises(SettingError, match=message):
        bt.Preset().replace(settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"reduced": False},
        {"start": "gaussian"},
        {"train": "value"},
        {"encoding": "gaussian"},
        {"algorithm": "online"},
    ],
    ids=str,
)
def test_where_two_numbers_are_not_exact_all_weights_are_trained(settings: dict[str, Any]):
    for p in (bt.Preset(), bt.Preset(algorithm="flow"), bt.Preset(encoding="cosine", teacher="gcn")):
        assert bt.on_line(p)
        assert bt.bare(p.replace(detail=False))
        assert not bt.on_line(p.replace(settings))
        assert not bt.bare(p.replace(settings, detail=False))


def test_a_law_of_ones_own_is_drawn_from_and_names_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(tmp_path)
    source = tmp_path / "law_of_my_own.py"
    ids, means = set(), []
    for value in (2, 33):
        body = f"def draw(key, shape, dtype):\n    return jnp.full(shape, {value}, dtype)\n"
        source.write_text(f"import jax.numpy as jnp\n{body}")
        importlib.invalidate_caches()
        sys.modules.pop("law_of_my_own", None)
        p = bt.Preset(**SMALL, ood="law_of_my_own:draw")
        task = bt.make_task(KEY, p)
        assert isinstance(task, bt.Task)
        means.append(float(bt.ood_inputs(task, 5).mean()))
        ids |= {experiment.identify(PAPER, p), experiment.identify(PAPER, p)}
    assert means == [2.0, 33.0]
    assert len(ids) == 2
    sys.modules.pop("law_of_my_own")
    assert len({experiment.identify(PAPER, bt.Preset(**SMALL, ood=law)) for law in bt.LAWS}) == len(bt.LAWS)


def test_attention_from_its_two_coefficients_ends_where_training_ends(store: Store):
    own = paper.load("bilinear_teachers")
    figure = next(f for f in own.figures if f.name == "figure_3")
    runs = experiment.gather(own, own.preset("tiny"), [figure], 6, store)
    for run in experiment.datasets(figure, own.preset("tiny"), runs).values():
        expected = scaling.setting(run, "K") * run["attention"].isel(seed=0)
        np.testing.assert_allclose(attention_along(run).isel(step=-1), expected, rtol=1e-6, atol=1e-9)
