"""Papers under others' optimisers and kernels: steps and models against plain ones, and what is refused."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from descentlab.atlas._survey import presets, tasks
from descentlab.errors import SettingError
from descentlab.papers import OPTIMIZER_WORDS
from descentlab.papers import _registry as paper
from descentlab.papers import attention_kernels as ak
from descentlab.papers import bilinear_teachers as bt
from descentlab.papers import decision_lists as dl
from descentlab.papers import in_context_regression as icl
from descentlab.papers import sparse_bigrams as sb
from descentlab.running import _experiments as experiment

KEY = jax.random.key(3)
ETA, LAM = 0.05, 0.3
by_optimizer = pytest.mark.parametrize("name", ["sign", "adam", "proximal"])


def plain_step(name: str, w: Any, g: Any, sparse: bool) -> np.ndarray:
    """The first step of an optimiser from w, number by number; Adam's has the size of sign descent's."""
    w, g = np.array(w, float), np.asarray(g, float)
    for i in np.ndindex(w.shape):
        if name == "sign":
            w[i] -= ETA * np.sign(g[i])
        elif name == "adam":
            m, v = 0.1 * g[i] / (1 - 0.9), 0.001 * g[i] ** 2 / (1 - 0.999)
            w[i] -= ETA * m / (np.sqrt(v) + 1e-8)
        else:
            w[i] -= ETA * g[i]
            if sparse:
                w[i] = np.sign(w[i]) * max(abs(w[i]) - ETA * LAM, 0.0)
    return w


def one_step(module: Any, task: Any, p: Any, w: Any = None) -> Any:
    """The state after one step of the paper's dynamics, compiled; from its own start, or from weights."""

    @jax.jit
    def run(task: Any, p: Any) -> Any:
        dynamics = module.dynamics(task, p)
        state = dynamics.init(KEY)
        return dynamics.step(KEY, state if w is None else state._replace(params=w))

    return run(task, p)


def assert_near(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@by_optimizer
@pytest.mark.parametrize("attention", ["softmax", "linear"])
def test_a_step_on_decision_lists_is_the_plain_one(name: str, attention: str):
    p = dl.PRESETS["tiny"].replace(
        L=4, n=3, M=2, algorithm="descent", optimizer=name, attention=attention, train="both",
        start="random", sigma_0=0.5, eta=ETA, lam=LAM,
    )  # fmt: skip
    task: Any = dl.make_task(KEY, p)

    def loss(w: dl.Params) -> Any:
        """Over all sequences of different tokens, from the printed formula."""
        total = jnp.zeros(())
        sequences = [(a, b, c) for a in range(4) for b in range(4) for c in range(4) if len({a, b, c}) == 3]
        for s in sequences:
            X = jax.nn.one_hot(jnp.array(s), 4, dtype=float).T
            scores = X.T @ w.W @ X
            S = jax.nn.softmax(scores, axis=0) if attention == "softmax" else (1 + scores) / 3
            logits = w.V @ X @ S
            truth = dl.lists.labels(task, jnp.array([s]))[0]
            total += jnp.sum(jax.nn.logsumexp(logits, axis=0) - logits[truth, jnp.arange(3)])
        return total / (3 * len(sequences))

    g = jax.jit(jax.grad(loss))(task.start)
    found = one_step(dl, task, p).params
    assert_near(found.W, plain_step(name, task.start.W, g.W, sparse=True))
    assert_near(found.V, plain_step(name, task.start.V, g.V, sparse=False))


@by_optimizer
@pytest.mark.parametrize("kernel", ["softmax", "linear"])
def test_a_step_of_attention_kernels_is_the_plain_one(name: str, kernel: str):
    p = ak.Preset(N=2, n=3, D=4, d=2, H=2, value_scale=1.0, output_scale=2.0, detail=False).replace(
        optimizer=name, kernel=kernel, step="fixed", eta=ETA, lam=LAM
    )
    task = ak.make_task(KEY, p)

    def loss(w: ak.Weights) -> Any:
        total = jnp.zeros(())
        for X, y in zip(task.X, task.y, strict=True):
            out = jnp.zeros(p.n)
            for Q, K, V, W_O in zip(*w, task.W_O, strict=True):
                C = (X @ Q) @ (X @ K).T / jnp.sqrt(float(p.d))
                S = jax.nn.softmax(C, axis=1) if kernel == "softmax" else (1 + C) / p.n
                out += S @ X @ V @ W_O
            total += jnp.sum((out - y) ** 2) / 2
        return total

    g = jax.jit(jax.grad(loss))(task.start)
    path = one_step(ak, task, p).params
    for block, sparse in (("Q", True), ("K", True), ("V", False)):
        expected = plain_step(name, getattr(task.start, block), getattr(g, block), sparse)
        assert_near(getattr(path.weights, block), expected)
    assert_near(path.energy, ETA * sum(float(jnp.sum(x**2)) for x in g))


def test_the_query_jacobian_of_linear_attention_is_that_of_differentiation():
    p = ak.Preset(N=2, n=3, D=4, d=2, H=2, value_scale=1.0, kernel="linear", step="fixed", detail=False)
    task = ak.make_task(KEY, p)
    by_query = jax.jacobian(lambda Q: ak.outputs(task.start._replace(Q=Q), task.W_O, task.X, "linear"))
    J = by_query(task.start.Q).reshape(p.N * p.n, -1)
    assert_near(ak.query_jacobian(task.start, task.W_O, task.X, "linear"), np.asarray(J))


@by_optimizer
@pytest.mark.parametrize("attention", ["softmax", "linear"])
def test_a_step_on_a_teacher_is_the_plain_one_of_its_printed_weights(name: str, attention: str):
    p = bt.PRESETS["tiny"].replace(
        D=6, K=2, d=3, M=2, optimizer=name, attention=attention, start="gaussian", sigma_0=0.5, reduced=False,
        detail=False, eta=ETA, lam=LAM,
    )  # fmt: skip
    task: Any = bt.make_task(KEY, p)
    w: Any = bt.beginning(KEY, p)
    R = task.P  # orthogonal: A = P' W_KQ P

    def loss(W_V: Any, W_KQ: Any) -> Any:
        """(1/2) E|f* - TF|^2 for ReLU by arc cosines, from rows of W_V and columns of S."""
        A = (R.T @ W_KQ @ R) / p.D**0.5
        S = jax.nn.softmax(A, axis=0) if attention == "softmax" else (1 + A) / p.D
        total = jnp.zeros(())
        for row, v in zip(W_V, task.V, strict=True):
            for s, t in zip(S.T, task.S.T, strict=True):
                a, b = jnp.linalg.norm(row) * jnp.linalg.norm(s), jnp.linalg.norm(v) * jnp.linalg.norm(t)
                cos = (row @ v) * (s @ t) / (a * b)
                angle = jnp.arccos(cos)
                cross = a * b * (jnp.sin(angle) + (jnp.pi - angle) * cos) / (2 * jnp.pi)
                total += (a**2 / 2 + b**2 / 2 - 2 * cross) / 2
        return total

    W_KQ = R @ w.A @ R.T
    g_V, g_KQ = jax.jit(jax.grad(loss, argnums=(0, 1)))(w.W_V, W_KQ)
    found = one_step(bt, task, p, w).params
    assert_near(found.W_V, plain_step(name, w.W_V, g_V, sparse=False))
    if name == "proximal":  # of A itself
        assert_near(found.A, plain_step(name, w.A, R.T @ g_KQ @ R, sparse=True))
    else:
        assert_near(found.A, R.T @ plain_step(name, W_KQ, g_KQ, sparse=False) @ R)


@pytest.mark.parametrize("name", ["sign", "adam"])
@pytest.mark.parametrize("attention", ["softmax", "linear"])
def test_a_step_on_bigrams_is_the_plain_one(name: str, attention: str):
    p = sb.PRESETS["tiny"].replace(
        T=6, N=3, optimizer=name, attention=attention, algorithm="population", eta_1=ETA
    )
    task = sb.make_task(KEY, p)
    w: Any = sb.beginning(task, p)
    w = sb.Params(w.V + 0.1 * task.P, w.A + 0.1 * jnp.arange(18.0).reshape(3, 6))
    g: Any = sb.objective(task, p).gradient(w, KEY)
    found = one_step(sb, task, p, w).params
    V, A = plain_step(name, w.V, g.V, sparse=False), plain_step(name, w.A, g.A, sparse=False)
    # 1'V, V mu (uniform) and, where A is the attention, 1'A stay; nothing else is taken off the step.
    assert_near(found.V.sum(axis=0), np.asarray(w.V.sum(axis=0)))
    assert_near(found.V.sum(axis=1), np.asarray(w.V.sum(axis=1)))
    step = V - np.asarray(w.V)
    assert_near(found.V - w.V, step - step.mean(0, keepdims=True) - step.mean(1, keepdims=True) + step.mean())
    shift = (A - np.asarray(w.A)).mean(1, keepdims=True) if attention == "linear" else 0.0
    assert_near(found.A, A - shift)


@by_optimizer
def test_a_step_on_regression_in_context_is_the_plain_one(name: str):
    p = icl.Preset(d=3, N=4, start="anywhere", s=0.5).replace(
        algorithm="descent", optimizer=name, eta=ETA, lam=LAM
    )
    task = icl.make_task(KEY, p)
    g = jax.grad(icl.population_loss)(task.start, task)
    found = one_step(icl, task, p).params
    assert_near(found.W_PV, plain_step(name, task.start.W_PV, g.W_PV, sparse=False))
    assert_near(found.W_KQ, plain_step(name, task.start.W_KQ, g.W_KQ, sparse=True))


# ---------------------------------------------------------------- what does not go together

# What says nothing of how weights were found.
OF_ANY_OPTIMIZER = {"attention_is_needed", "overparameterisation_is_needed", "softmax_respects_floor"}
TINY = {name: paper.load(name).preset("tiny") for name in paper.names()}


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("decision_lists", {"optimizer": "adam"}, "optimizer=adam takes algorithm=descent"),
        ("decision_lists", {"attention": "linear"}, "attention=linear takes algorithm=descent"),
        (
            "decision_lists",
            {"algorithm": "descent", "optimizer": "sign", "step": "curvature"},
            "step=curvature takes optimizer=gd or proximal, got optimizer=sign",
        ),
        (
            "attention_kernels",
            {"optimizer": "adam", "algorithm": "flow"},
            "optimizer=adam takes algorithm=des",
        ),
        (
            "attention_kernels",
            {"optimizer": "sign", "starts": 2},
            "one start, got algorithm=descent, starts=2",
        ),
        (
            "attention_kernels",
            {"optimizer": "sign", "step": "curvature"},
            "step=curvature takes optimizer=gd",
        ),
        (
            "bilinear_teachers",
            {"optimizer": "sign", "algorithm": "flow"},
            "takes algorithm=population or onl",
        ),
        ("bilinear_teachers", {"optimizer": "proximal", "encoding": "gaussian"}, "takes encoding=orthogonal"),
        (
            "sparse_bigrams",
            {"optimizer": "adam", "algorithm": "proximal"},
            "takes algorithm=sgd or population",
        ),
        (
            "sparse_bigrams",
            {"optimizer": "sign", "refit": True},
            "refit=false, got algorithm=sgd, refit=true",
        ),
        ("in_context_regression", {"optimizer": "adam"}, "optimizer=adam takes algorithm=descent or online"),
        ("sign_descent", {"optimizer": "newton"}, "one of sign, adam, gd, proximal"),
    ],
)
def test_what_makes_no_sense_is_refused(name: str, changes: dict[str, Any], message: str):
    with pytest.raises(SettingError, match=message):
        TINY[name].replace(changes)


@pytest.mark.parametrize(("p", "crossing"), tasks(), ids=lambda x: getattr(x, "name", getattr(x, "task", "")))
def test_theorems_do_not_speak_of_other_optimisers_and_every_cell_is_a_run(p: paper.Paper, crossing: Any):
    assert presets(crossing)
    claims = p.claims_of("tiny")
    own, kernel = crossing.own
    for optimizer in OPTIMIZER_WORDS:
        if optimizer == own or not crossing.fits(optimizer, kernel):
            continue
        first, *_ = crossing.runs(optimizer, kernel).values()
        assert experiment.needed(first, claims)
        speaks = [c.name for c in claims if all(a.holds(first) for a in c.assumes if a.exact)]
        if (p.name, optimizer) != ("sparse_bigrams", "gd"):  # that paper's own claims compare the two
            assert set(speaks) <= OF_ANY_OPTIMIZER, optimizer
