"""attention_kernels: model, matrices of the theorems, floor, data, starts, dynamics and whole runs.

Outputs, gradients and descent are held against plain loops over inputs, heads and tokens.
"""

import functools
import importlib
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy import stats

from descentlab.errors import SettingError
from descentlab.judging import Outcome
from descentlab.papers import _registry as paper
from descentlab.papers import attention_kernels as ak
from descentlab.papers.attention_kernels import kernels, theorems
from descentlab.running import _experiments as experiment
from descentlab.store import Store

KEY = jax.random.key(5)
ALPHA = 1e-6
PAPER = paper.load("attention_kernels")
KERNELS = ("softmax", "gaussian")
by_kernel = pytest.mark.parametrize("kernel", KERNELS)
# Fewer positions, Nn = 12, than features, HD = 15.
ODD = ak.Preset(N=3, n=4, D=5, d=2, H=3, value_scale=1.0, output_scale=2.0, step="fixed", eta=0.02)
SEPARATING = ODD.replace(init="separating", H=4, train="q")

make_task, loss_of, slope_of = (jax.jit(f) for f in (ak.make_task, ak.loss, ak.slope))
outputs_of = jax.jit(kernels.outputs, static_argnums=3)
floor_of = jax.jit(kernels.floor, static_argnums=4)


@jax.jit
def measured(w: ak.Weights, task: ak.Task, p: ak.Preset) -> dict[str, Any]:
    """What is computed at some weights, and J_Q by differentiation."""

    def outputs(Q: Any) -> Any:
        return kernels.outputs(w._replace(Q=Q), task.W_O, task.X, p.kernel).ravel()

    return {
        "outputs": outputs(w.Q),
        "loss": ak.loss(w, task, p),
        "slope": ak.slope(w, task, p),
        "B": kernels.features(w, task.X, p.kernel),
        "J": kernels.query_jacobian(w, task.W_O, task.X, p.kernel),
        "J by differentiation": jax.jacobian(outputs)(w.Q).reshape(p.N * p.n, -1),
        "beta": ak.beta(w, task, p),
        "gamma": ak.gamma(w, task, p),
        "ranks": ak.ranks(w, task, p),
    }


@functools.cache
def task_of(p: ak.Preset) -> ak.Task:
    return make_task(KEY, p)


def arrays(tree: Any) -> Any:
    """The leaves as NumPy's."""
    return jax.tree.map(np.asarray, tree)


def at(p: ak.Preset) -> tuple[ak.Task, dict[str, Any]]:
    """A task, and what is computed at its start."""
    task = task_of(p)
    return task, arrays(measured(task.start, task, p))


@pytest.fixture(autouse=True)
def stuck_solvers_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """No flow below needs as many steps: what is stuck fails, rather than hangs."""
    monkeypatch.setattr("descentlab.engine._flow.MOST_SOLVER_STEPS", 20_000)


# ---------------------------------------------------------------- the plain definitions


def plain_row(w: ak.Weights, h: int, tokens: Any, k: int, kernel: str) -> np.ndarray:
    """Row k of S_ih."""
    d = w.Q.shape[2]
    query, keys = tokens[k] @ w.Q[h], [x @ w.K[h] for x in tokens]
    if kernel == "softmax":
        weights = np.array([np.exp(query @ key / np.sqrt(d)) for key in keys])
        return weights / sum(weights)
    return np.array([np.exp(-np.sum((query - key) ** 2) / (2 * np.sqrt(d))) for key in keys])


def plain_outputs(w: ak.Weights, task: ak.Task, kernel: str) -> np.ndarray:
    """MH(X_i): heads of d numbers, concatenated, times W^O."""
    H, _, _ = w.Q.shape
    N, n, _ = task.X.shape
    found = np.zeros((N, n))
    for i in range(N):
        for k in range(n):
            heads = []
            for h in range(H):
                row = plain_row(w, h, task.X[i], k, kernel)
                heads.append(sum(row[j] * (task.X[i, j] @ w.V[h]) for j in range(n)))
            found[i, k] = np.concatenate(heads) @ np.concatenate(list(task.W_O))
    return found


def plain_query_slope(w: ak.Weights, task: ak.Task, kernel: str) -> np.ndarray:
    """The gradient of f in W^Q, by the chain rule."""
    H, _, d = w.Q.shape
    N, n, _ = task.X.shape
    residual, found = plain_outputs(w, task, kernel) - task.y, np.zeros_like(w.Q)
    for i in range(N):
        for k in range(n):
            for h in range(H):
                row, x = plain_row(w, h, task.X[i], k, kernel), task.X[i]
                keys, values = [y @ w.K[h] for y in x], [y @ w.V[h] @ task.W_O[h] for y in x]
                centre = sum(row[j] * keys[j] for j in range(n)) if kernel == "softmax" else x[k] @ w.Q[h]
                for j in range(n):
                    # d C_kj / d W^Q, less its mean under the row for softmax.
                    score = np.outer(x[k], keys[j] - centre) / np.sqrt(d)
                    found[h] += residual[i, k] * row[j] * values[j] * score
    return found


# ---------------------------------------------------------------- the model and its gradients


@by_kernel
def test_outputs_are_heads_concatenated_times_their_matrix(kernel: str):
    task, found = at(ODD.replace(kernel=kernel))
    expected = plain_outputs(arrays(task.start), arrays(task), kernel)
    np.testing.assert_allclose(found["outputs"], expected.ravel(), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(found["loss"], 0.5 * np.sum((expected - task.y) ** 2), rtol=1e-12)
    again = kernels.outputs(task.start, task.W_O, task.X[1:], kernel)
    np.testing.assert_allclose(again, expected[1:], rtol=1e-12, atol=1e-14)


@by_kernel
def test_large_scores_give_finite_attention(kernel: str):
    task = task_of(ODD.replace(kernel=kernel))
    w = task.start._replace(Q=1e4 * task.start.Q, K=1e4 * task.start.K)
    S = np.asarray(kernels.attention(w, task.X, kernel))
    assert np.isfinite(S).all()
    assert S.min() >= 0
    assert S.max() <= 1 + 1e-12
    if kernel == "softmax":
        np.testing.assert_allclose(S.sum(axis=-1), 1, rtol=1e-12)


@by_kernel
def test_the_gradient_is_that_of_finite_differences_and_of_the_chain_rule(kernel: str):
    p = ODD.replace(kernel=kernel)
    task, found = at(p)
    flat, back = ravel_pytree(task.start)
    step = 1e-5
    losses = jax.jit(jax.vmap(lambda x: ak.loss(back(x), task, p)))
    ahead, behind = (
        losses(flat[None] + step * np.eye(flat.size)),
        losses(flat[None] - step * np.eye(flat.size)),
    )
    differences = back((ahead - behind) / (2 * step))
    for name, ours, expected in zip(ak.Weights._fields, found["slope"], differences, strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-6, atol=1e-7, err_msg=name)
    by_hand = plain_query_slope(arrays(task.start), arrays(task), kernel)
    np.testing.assert_allclose(found["slope"].Q, by_hand, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("train", ak.TRAINED)
def test_what_is_not_trained_has_no_slope(train: str):
    task, found = at(ODD)
    ours = slope_of(task.start, task, ODD.replace(train=train))
    for letter, own, full in zip("qkv", ours, found["slope"], strict=True):
        np.testing.assert_allclose(own, full if letter in train else np.zeros_like(full), rtol=1e-12)
    assert list(ak.trained(task.start, ODD.replace(train=train))) == list(train.upper())


# ---------------------------------------------------------------- the matrices of the theorems


@by_kernel
def test_outputs_are_features_times_directions(kernel: str):
    task, found = at(ODD.replace(kernel=kernel))
    u = np.concatenate([V @ o for V, o in zip(np.asarray(task.start.V), np.asarray(task.W_O), strict=True)])
    assert found["B"].shape == (12, 15)
    np.testing.assert_allclose(found["B"] @ u, found["outputs"], rtol=1e-12, atol=1e-13)


@by_kernel
def test_the_query_jacobian_and_gamma_are_those_of_differentiation(kernel: str):
    _, found = at(ODD.replace(kernel=kernel))
    assert found["J"].shape == (12, 30)
    np.testing.assert_allclose(found["J"], found["J by differentiation"], rtol=1e-11, atol=1e-13)
    least = np.linalg.svd(found["J by differentiation"], compute_uv=False)[-1]
    assert found["gamma"] == pytest.approx(least**2, rel=1e-9)
    assert found["gamma"] > 0


@by_kernel
def test_ranks_are_counted_head_by_head(kernel: str):
    p = ODD.replace(kernel=kernel)
    task, found = at(p)
    assert found["ranks"].tolist() == [5, 10, 12]
    twin = ak.Weights(*(x.at[1].set(x[0]) for x in task.start))
    again = arrays(measured(twin, task, p))
    expected = [np.linalg.matrix_rank(again["B"][:, : 5 * h]) for h in (1, 2, 3)]
    assert again["ranks"].tolist() == expected == [5, 5, 10]
    assert again["beta"] == pytest.approx(0, abs=1e-20)


def test_ranks_are_right_in_single_precision():
    p = ODD.replace(precision=32)
    task = task_of(p)
    twin = ak.Weights(*(x.at[1].set(x[0]) for x in task.start))
    assert measured(twin, task, p)["ranks"].tolist() == [5, 5, 10]


def test_beta_in_both_readings_is_its_definition():
    # Heads of three lengths.
    task = task_of(ODD)
    task = task._replace(W_O=task.W_O * jnp.array([[1.0], [0.5], [2.0]]))
    found = arrays(measured(task.start, task, ODD))
    least = np.linalg.svd(found["B"], compute_uv=False)[-1]
    assert found["beta"] == pytest.approx([1.0 * least**2, (4 + 1 + 16) * least**2], rel=1e-9)


@by_kernel
def test_with_fewer_features_than_positions_beta_is_zero(kernel: str):
    _, found = at(ODD.replace(kernel=kernel, D=3))
    assert found["B"].shape == (12, 9)
    assert found["beta"].tolist() == [0, 0]
    _, found = at(ODD.replace(kernel=kernel, D=4))
    assert found["beta"].min() > 0


def in_values(found: dict[str, Any]) -> float:
    return float(np.sum(np.asarray(found["slope"].V) ** 2))


@by_kernel
def test_the_gradient_in_the_values_is_as_large_as_beta_says(kernel: str):
    p = ODD.replace(kernel=kernel)

    @jax.jit
    @jax.vmap
    def drawn(key: Any) -> tuple[Any, Any]:
        *w, W_O, y, X, scale = ak.normals(key, p, *[(3, 5, 2)] * 3, (3, 2), (3, 4), (3, 4, 5), (3,))
        weights = ak.Weights(*(jnp.exp(s) * x / jnp.sqrt(5.0) for s, x in zip(scale, w, strict=True)))
        task = ak.Task(X, y, W_O, None, jnp.ones(()))
        squared = jnp.sum(ak.slope(weights, task, p).V ** 2)
        return squared / (2 * ak.loss(weights, task, p)), ak.beta(weights, task, p)

    ratios, betas = arrays(drawn(jax.random.split(KEY, 300)))
    assert (betas[:, 0] > 0).mean() > 0.9
    assert (ratios >= betas[:, 0] * (1 - 1e-9)).all()


@by_kernel
def test_the_gradient_in_the_values_can_be_smaller_than_beta_as_printed_says(kernel: str):
    p = ODD.replace(kernel=kernel)
    task, found = at(p)
    weakest = np.linalg.svd(found["B"])[0][:, -1]
    task = task._replace(y=jnp.asarray((found["outputs"] - weakest).reshape(3, 4)))
    found = arrays(measured(task.start, task, p))
    safe, printed = found["beta"]
    assert in_values(found) == pytest.approx(safe * 2 * found["loss"], rel=1e-6)
    assert in_values(found) == pytest.approx(printed * 2 * found["loss"] / 3, rel=1e-6)


# ---------------------------------------------------------------- curvature and step sizes


@jax.jit
def curved(w: ak.Weights, task: ak.Task, p: ak.Preset) -> tuple[Any, Any, Any]:
    """The extreme eigenvalues by many products and by few, and the whole Hessian, in what is trained."""
    own, back = ravel_pytree(ak.trained(w, p))

    def slope(x: Any) -> Any:
        parts = back(x)
        moved = w._replace(**parts)
        return ravel_pytree(ak.trained(ak.slope(moved, task, p), p))[0]

    return ak.hessian_ends(w, task, p), ak.hessian_ends(w, task, p, 6), jax.jacfwd(slope)(own)


def ends_of(p: ak.Preset, task: ak.Task) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    many, few, hessian = arrays(curved(task.start, task, p))
    np.testing.assert_allclose(hessian, hessian.T, atol=1e-9 * np.abs(hessian).max())
    return np.array(many), np.array(few), np.linalg.eigvalsh(hessian)[[0, -1]]


@pytest.mark.parametrize(
    ("kernel", "train", "label_scale", "largest"),
    [("softmax", "q", 1.0, 1), ("softmax", "k", 10.0, 0), ("gaussian", "qkv", 1.0, 1)],
)
def test_curvature_is_that_of_the_whole_hessian_from_inside(
    kernel: str, train: str, label_scale: float, largest: int
):
    p = ODD.replace(kernel=kernel, train=train, label_scale=label_scale, step="curvature", eta=0.3)
    task = task_of(p)
    many, few, truth = ends_of(p, task)
    width = truth[1] - truth[0]
    assert truth[0] < -0.01 * width
    for found, allowed in ((many, 0.001), (few, 0.3)):
        assert truth[0] - 1e-9 * width <= found[0] <= truth[0] + allowed * width
        assert truth[1] - allowed * width <= found[1] <= truth[1] + 1e-9 * width
    assert few[1] < many[1]
    assert np.abs(truth).argmax() == largest
    assert float(task.rate) == pytest.approx(0.3 / abs(truth[largest]), rel=1e-3)


@pytest.mark.parametrize(
    "changes",
    [
        # Linear in W^V: rank Nn = 12 in 30 numbers.
        {"train": "v"},
        # A last head without a partner has no values: rank 20 in 30 numbers.
        {"train": "q", "init": "paired"},
    ],
    ids=str,
)
def test_curvature_of_low_rank_is_that_of_the_whole_hessian(changes: dict[str, Any]):
    p = ODD.replace(changes)
    many, _, truth = ends_of(p, task_of(p))
    assert many == pytest.approx(truth, rel=1e-2, abs=1e-2 * truth[1])


FLAT = ODD.replace(init="paired", H=1, train="q", step="curvature", eta=0.3)


def test_where_the_loss_is_flat_eta_is_the_step_size():
    task = task_of(FLAT)
    assert not np.asarray(task.start.V).any()
    assert float(task.rate) == 0.3


def test_where_the_loss_is_flat_curvature_is_zero():
    task = task_of(FLAT)
    assert np.array(jax.jit(ak.hessian_ends)(task.start, task, FLAT)).tolist() == [0, 0]


def test_the_step_follows_the_units_however_small_they_are():
    large, small = (
        float(task_of(ODD.replace(train="q", step="curvature", label_scale=s, output_scale=s)).rate)
        for s in (1.0, 1e-6)
    )
    assert small == pytest.approx(1e12 * large, rel=1e-6)


def test_a_fixed_step_is_eta_and_others_side_by_side_are_four_times_as_large_each():
    assert float(task_of(ODD).rate) == 0.02
    p = ODD.replace(rates=3, starts=2)
    assert p.cells == 6
    assert task_of(p).rate.tolist() == pytest.approx([0.02, 0.08, 0.32] * 2)
    curvature = task_of(ODD.replace(rates=3, step="curvature"))
    single = float(task_of(ODD.replace(step="curvature")).rate)
    assert curvature.rate.tolist() == pytest.approx([single, 4 * single, 16 * single])


# ---------------------------------------------------------------- the floor


@by_kernel
def test_no_queries_and_keys_go_below_the_floor(kernel: str):
    p = ODD.replace(kernel=kernel, label_scale=15.0)
    task = task_of(p)
    floor = float(floor_of(task.start, task.W_O, task.X, task.y, kernel))

    @jax.jit
    @jax.vmap
    def losses(key: Any, scale: Any) -> Any:
        Q, K = ak.normals(key, p, *[(3, 5, 2)] * 2)
        return ak.loss(ak.Weights(scale * Q, scale * K, task.start.V), task, p)

    keys = jax.random.split(KEY, 600)
    found = np.asarray(losses(keys, jnp.geomspace(0.01, 100.0, 600)))
    assert floor > 0.01 * float(jnp.sum(task.y**2))
    assert found.min() >= floor
    assert found.min() - floor < 0.9 * (found.max() - floor)


# Two tokens with the values 1 and 2, and labels that neither kernel reaches.
BY_HAND = ak.Task(
    jnp.eye(2)[None], jnp.array([[4.0, -1.0]]), jnp.array([[2.0]]), None, jnp.ones(()),
)  # fmt: skip
VALUES = jnp.array([[[0.5], [1.0]]])
WITHIN = jnp.array([[1.2, 1.7]])


def by_hand(Q: list[float], K: list[float]) -> ak.Weights:
    first, second = (jnp.array(x, float).reshape(1, 2, 1) for x in (Q, K))
    return ak.Weights(first, second, VALUES)


@pytest.mark.parametrize(
    ("kernel", "floor", "near"),
    [
        # The first token looks at the second, and the second at the first: outputs 2 and 1.
        ("softmax", ((4 - 2) ** 2 + (1 + 1) ** 2) / 2, lambda s: by_hand([s, -s], [-s, s])),
        # The first query lies on both keys, and the second far away: outputs 3 and 0.
        ("gaussian", ((4 - 3) ** 2 + 1**2) / 2, lambda s: by_hand([0, s], [0, 0])),
    ],
)
def test_the_floor_by_hand_is_reached_in_the_limit(kernel: str, floor: float, near: Any):
    w, p = near(0.0), ak.Preset(N=1, n=2, D=2, d=1, H=1, kernel=kernel)
    assert float(floor_of(w, BY_HAND.W_O, BY_HAND.X, BY_HAND.y, kernel)) == pytest.approx(floor, rel=1e-14)
    assert float(floor_of(w, BY_HAND.W_O, BY_HAND.X, WITHIN, kernel)) == 0
    losses = [float(loss_of(near(s), BY_HAND, p)) for s in (0.0, 1.0, 2.0, 8.0)]
    assert losses == sorted(losses, reverse=True)
    assert losses[0] > 1.1 * floor
    assert losses[-1] == pytest.approx(floor, rel=1e-10)


@by_kernel
def test_values_along_the_common_coordinate_are_of_no_use_to_softmax_alone(kernel: str):
    p = SEPARATING.replace(kernel=kernel, train="qk", delta=0.0)
    task = task_of(p)
    half = 0.5 * float(jnp.sum(task.y**2))
    assert float(loss_of(task.start, task, p)) == pytest.approx(half, rel=1e-12)
    floor = float(floor_of(task.start, task.W_O, task.X, task.y, kernel))
    slopes = [float(jnp.abs(x).max()) for x in slope_of(task.start, task, p)[:2]]
    if kernel == "softmax":
        assert floor == pytest.approx(half, rel=1e-12)
        assert max(slopes) < 1e-12
    else:
        assert floor < 0.1 * half
        assert min(slopes) > 0.1


# ---------------------------------------------------------------- data and starts


def assert_normal(draws: Any, deviation: float) -> None:
    values = np.asarray(draws).ravel() / deviation
    assert stats.kstest(values, "norm").pvalue > ALPHA


def test_generic_data_and_weights_are_normal_of_their_sizes():
    p = ak.Preset(
        N=30,
        n=20,
        D=9,
        d=40,
        H=30,
        scale=0.7,
        value_scale=2.5,
        label_scale=3.0,
        output_scale=4.0,
        step="fixed",
    )
    task = task_of(p)
    for draws, deviation in (
        (task.X, 1.0), (task.y, 3.0),
        (task.start.Q, 0.7 / 3), (task.start.K, 0.7 / 3), (task.start.V, 2.5 / 3),
    ):  # fmt: skip
        assert_normal(draws, deviation)
    np.testing.assert_allclose(np.linalg.norm(task.W_O, axis=1), 4.0, rtol=1e-12)
    everything = np.concatenate([np.asarray(x).ravel() for x in (task.X, task.y, *task.start)])
    assert len(np.unique(everything)) == everything.size
    other, labels, _ = ak.draw(jax.random.fold_in(KEY, 1), p.replace(N=50))
    assert (other.shape, labels.shape) == ((50, 20, 9), (50, 20))
    assert_normal(other, 1.0)
    assert_normal(labels, 3.0)


def test_biased_tokens_end_in_one():
    task = task_of(ODD.replace(tokens="biased", N=60))
    np.testing.assert_array_equal(task.X[..., -1], 1.0)
    assert_normal(task.X[..., :-1], 1.0)


@by_kernel
@pytest.mark.parametrize("H", [3, 4])
def test_paired_heads_cancel(kernel: str, H: int):
    p = ODD.replace(kernel=kernel, init="paired", H=H)
    task = task_of(p)
    size = float(jnp.abs(task.start.V[0] @ task.W_O[0]).max())
    assert size > 0.1
    np.testing.assert_allclose(
        outputs_of(task.start, task.W_O, task.X, kernel), np.zeros((3, 4)), atol=1e-14 * size
    )
    assert float(loss_of(task.start, task, p)) == pytest.approx(0.5 * float(jnp.sum(task.y**2)), rel=1e-12)
    for same in (task.start.Q, task.start.K, task.W_O, -jnp.abs(task.start.V)):
        np.testing.assert_array_equal(same[0], same[1])
    np.testing.assert_array_equal(task.start.V[0], -task.start.V[1])
    if H == 3:
        assert not np.asarray(task.start.V[2]).any()
        assert np.abs(task.start.Q[2]).min() > 0
    else:
        assert np.abs(task.start.Q[2] - task.start.Q[0]).max() > 0.1


@pytest.mark.parametrize(("H", "delta"), [(4, 0.3), (5, 1.0), (2, 0.0)])
def test_separating_values_are_the_common_coordinate_with_a_part_delta_of_others(H: int, delta: float):
    p = SEPARATING.replace(H=H, delta=delta, c=2.5)
    task = task_of(p)
    u = np.einsum("hDd,hd->hD", task.start.V, task.W_O)
    for h in range(0, H - 1, 2):
        assert u[h, -1] == pytest.approx(2.5, rel=1e-12)
        assert np.linalg.norm(u[h, :-1]) == pytest.approx(2.5 * delta, rel=1e-12)
        np.testing.assert_allclose(u[h + 1], -u[h], rtol=1e-13)
        np.testing.assert_array_equal(task.start.Q[h], task.start.Q[h + 1])
    if H == 5:
        assert not u[4].any()
        assert np.abs(u[2, :-1] - u[0, :-1]).max() > 0.1
    np.testing.assert_array_equal(task.X[..., -1], 1.0)


@by_kernel
@pytest.mark.parametrize("init", ["generic", "separating"])
def test_the_weights_of_the_teacher_have_no_loss(kernel: str, init: str):
    p = ODD.replace(kernel=kernel, init=init, H=4, labels="teacher", label_scale=3.0, output_scale=8.0)
    X, y, W_O = ak.draw(KEY, p)
    assert float(jnp.abs(y).max()) > 0.1
    teacher = ak.generic(jax.random.fold_in(KEY, 1), p.replace(scale=1.0, value_scale=1.0), W_O, X, y)
    teacher = teacher._replace(V=3.0 / 8.0 * teacher.V)
    np.testing.assert_allclose(outputs_of(teacher, W_O, X, "softmax"), y, rtol=1e-12, atol=1e-13)


OWN = "start_of_my_own:draw"


def own_start(body: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> ak.Preset:
    """A start of one's own that returns `body`."""
    monkeypatch.syspath_prepend(folder)
    source = f"import jax\nimport jax.numpy as jnp\n\ndef draw(key, p, W_O, X, y):\n    return {body}\n"
    (folder / "start_of_my_own.py").write_text(source)
    importlib.invalidate_caches()
    monkeypatch.delitem(sys.modules, "start_of_my_own", raising=False)
    return ODD.replace(init=OWN)


def test_a_start_of_ones_own_is_where_training_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    body = (
        "[p.scale * jnp.ones((p.H, p.D, p.d)), 2 * jnp.ones((3, 5, 2), int), 0 * X[0, 0, 0] + y[0, 0] * W_O"
    )
    body += "[:, None, :] * jnp.ones((3, 5, 1))]"
    p = own_start(body, tmp_path, monkeypatch)
    assert p.foreign_code()
    assert not ODD.foreign_code()
    p = p.replace(scale=0.5)
    task = jax.jit(lambda key: ak.make_task(key, p))(KEY)
    np.testing.assert_array_equal(task.start.Q, np.full((3, 5, 2), 0.5))
    np.testing.assert_array_equal(task.start.K, np.full((3, 5, 2), 2.0))
    np.testing.assert_allclose(task.start.V, task.y[0, 0] * np.repeat(task.W_O[:, None], 5, axis=1))
    after = onward(task, ak.dynamics(task, p).init(KEY), PAPER.system.program(p), 0, 3)
    assert np.abs(after.params.weights.V - task.start.V).max() > 0


@pytest.mark.parametrize(
    ("body", "got"),
    [
        ("[jnp.ones((p.H, p.D, p.d + 1))] * 3", "got [(3, 5, 3), (3, 5, 3), (3, 5, 3)] from init="),
        ("[jnp.ones((1, p.D, p.d))] * 3", "got [(1, 5, 2), (1, 5, 2), (1, 5, 2)] from init="),
        ("[jnp.ones((p.H, p.D, p.d))] * 2", "got list from init="),
        ("(jnp.ones((p.H, p.D, p.d)),) * 4", "got tuple from init="),
        ("jnp.ones((p.H, p.D, p.d))", "got [(5, 2), (5, 2), (5, 2)] from init="),
        ("None", "got NoneType from init="),
        ("1.0", "got float from init="),
        ("'qkv'", "got str from init="),
        ("[jnp.ones((p.H, p.D, p.d)), None, None]", "got list from init="),
    ],
)
def test_a_start_that_gives_no_weights_is_refused(
    body: str, got: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    p = own_start(body, tmp_path, monkeypatch)
    with pytest.raises(SettingError) as refused:
        jax.eval_shape(lambda key: ak.make_task(key, p), KEY)
    said = "init takes a function that gives W^Q, W^K, W^V of shape (3, 5, 2) each, "
    assert said + got + OWN in str(refused.value)


# ---------------------------------------------------------------- settings

ONE_START = "algorithm=flow trains one start, got "
UNKNOWN = "init takes one of generic, paired, separating, or your own as module:function; got init="


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"N": 0}, "N takes a whole number >= 1 and <= 10000, got N=0."),
        ({"D": 1}, "D takes a whole number >= 2 and <= 4096, got D=1."),
        ({"H": 0}, "H takes a whole number >= 1 and <= 1024, got H=0."),
        ({"kernel": "cubic"}, "kernel takes one of softmax, gaussian, linear, got kernel=cubic."),
        ({"train": "vq"}, "train takes one of q, k, v, qk, qv, kv, qkv, got train=vq."),
        ({"eta": 0.0}, "eta takes a number > 0, got eta=0.0."),
        ({"scale": -1.0}, "scale takes a number >= 0, got scale=-1.0."),
        ({"label_scale": float("nan")}, "label_scale takes a number > 0, got label_scale=nan."),
        ({"rates": 33}, "rates takes a whole number >= 1 and <= 32, got rates=33."),
        ({"precision": 16}, "precision takes one of 32, 64, got precision=16."),
        ({"init": "zero"}, UNKNOWN + "zero."),
        ({"init": "nosuch_module:draw"}, UNKNOWN + "nosuch_module:draw (No module named"),
        ({"init": "math:nothing"}, UNKNOWN + "math:nothing (module 'math' has no attribute 'nothing')."),
        ({"init": "math:pi"}, UNKNOWN + "math:pi (pi of math is not a function)."),
        (
            {"init": "separating", "tokens": "gaussian"},
            "init=separating takes tokens=biased, got tokens=gaussian.",
        ),
        ({"grid": 3}, "grid takes 0 unless init=separating, got grid=3 with init=generic."),
        ({"grid": 3, "init": "paired"}, "grid takes 0 unless init=separating, got grid=3 with init=paired."),
        ({"algorithm": "flow", "starts": 2}, ONE_START + "starts=2, rates=1, grid=0."),
        ({"algorithm": "flow", "rates": 3}, ONE_START + "starts=1, rates=3, grid=0."),
        (
            {"algorithm": "flow", "init": "separating", "tokens": "biased", "grid": 2},
            ONE_START + "starts=1, rates=1, grid=2.",
        ),
        (
            {"N": 1000, "n": 100, "D": 256, "d": 64, "H": 16},
            "N=1000, n=100, D=256, d=64, H=16 with 1 cells take 634 GB a seed, at most 4 are allowed.",
        ),
        (
            {"D": 512, "d": 512, "H": 16, "starts": 1000},
            "N=8, n=4, D=512, d=512, H=16 with 1000 cells take 403 GB a seed, at most 4 are allowed.",
        ),
    ],
    ids=lambda x: "" if isinstance(x, str) else ",".join(f"{k}={v}" for k, v in x.items()),
)  # fmt: skip
def test_what_cannot_be_is_refused_with_field_value_and_what_is_allowed(
    settings: dict[str, Any], message: str
):
    with pytest.raises(SettingError) as refused:
        ak.Preset(**settings)
    assert message in str(refused.value)
    with pytest.raises(SettingError) as refused:
        ak.Preset().replace(settings)
    assert message in str(refused.value)


def test_separating_brings_its_tokens_and_a_start_of_ones_own_stays():
    p = ak.Preset().replace(init="separating")
    assert p.tokens == "biased"
    query = theorems.QUERY["softmax"]
    assert ak.Preset().replace(query).init == "paired"
    assert ak.Preset(init="math:sqrt").replace(query).init == "math:sqrt"
    assert ak.Preset(precision=32).needed_bytes * 2 == ak.Preset().needed_bytes


def test_presets_by_name_are_sound_and_the_program_serves_all_starts():
    for p in ak.PRESETS.values():
        assert p.N * p.n <= p.H * p.D
        for claim in PAPER.claims_of("tiny"):
            for overrides in claim.runs.values():
                run = p.replace(overrides)
                steps = ak.records(run)
                assert (steps[0], steps[-1]) == (0, run.steps)
                assert np.all(np.diff(steps) > 0)
    p = ak.PRESETS["tiny"]
    starts = [p.replace(init=init, labels="teacher", step="fixed") for init in ak.INITS]
    assert {jax.tree.structure(PAPER.system.program(q)) for q in starts} == {
        jax.tree.structure(PAPER.system.program(p))
    }


# ---------------------------------------------------------------- dynamics


@jax.jit
def begin(key: Any, p: ak.Preset) -> tuple[ak.Task, Any]:
    task = ak.make_task(key, p)
    return task, ak.dynamics(task, p).init(key)


@jax.jit
def onward(task: ak.Task, state: Any, p: ak.Preset, first: Any, last: Any) -> Any:
    return ak.dynamics(task, p).advance(KEY, state, first, last)


def trained(p: ak.Preset, steps: int) -> tuple[Any, ak.Task]:
    """The state after so many steps, and the task."""
    task, state = begin(KEY, p)
    return onward(task, state, p, 0, steps), task


@by_kernel
def test_descent_in_the_queries_is_the_plain_loop(kernel: str):
    p = ODD.replace(kernel=kernel, train="q")
    state, task = trained(p, 30)
    w, plain, length, energy = arrays(task.start), arrays(task), 0.0, 0.0
    for _ in range(30):
        g = plain_query_slope(w, plain, kernel)
        w = w._replace(Q=w.Q - 0.02 * g)
        length, energy = length + 0.02 * np.sqrt(np.sum(g**2)), energy + 0.02 * np.sum(g**2)
    np.testing.assert_allclose(state.params.weights.Q, w.Q, rtol=1e-9, atol=1e-11)
    for still in ("K", "V"):
        np.testing.assert_array_equal(getattr(state.params.weights, still), getattr(task.start, still))
    assert float(state.params.length) == pytest.approx(length, rel=1e-9)
    assert float(state.params.energy) == pytest.approx(energy, rel=1e-9)
    assert length > 0.1


@by_kernel
def test_descent_in_all_weights_sums_the_norm_of_all_of_them(kernel: str):
    p = ODD.replace(kernel=kernel, eta=0.002)
    state, task = trained(p, 10)
    w, length, energy = task.start, 0.0, 0.0
    for _ in range(10):
        g = slope_of(w, task, p)
        w = jax.tree.map(lambda x, g: x - 0.002 * g, w, g)
        square = sum(float(jnp.sum(x**2)) for x in g)
        length, energy = length + 0.002 * square**0.5, energy + 0.002 * square
    for ours, expected, first in zip(state.params.weights, w, task.start, strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-10, atol=1e-12)
        assert np.abs(ours - first).max() > 1e-3
    assert float(state.params.length) == pytest.approx(length, rel=1e-10)
    assert float(state.params.energy) == pytest.approx(energy, rel=1e-10)


def test_flow_is_the_limit_of_descent_and_its_energy_is_the_loss_that_is_gone():
    p = ODD.replace(algorithm="flow", kernel="gaussian", eta=0.02)
    state, task = trained(p, 10)
    flat = ravel_pytree(state.params.weights)[0]
    gaps = []
    for finer in (100, 200):
        small = p.replace(algorithm="descent", eta=0.02 / finer)
        there, _ = trained(small, 10 * finer)
        gaps.append(float(jnp.abs(ravel_pytree(there.params.weights)[0] - flat).max()))
        assert float(there.params.length) == pytest.approx(float(state.params.length), rel=2 / finer)
    moved = float(
        jnp.sqrt(sum(jnp.sum((a - b) ** 2) for a, b in zip(state.params.weights, task.start, strict=True)))
    )
    assert gaps[0] < 0.02 * moved
    assert gaps[1] / gaps[0] == pytest.approx(0.5, abs=0.02)
    gone = float(loss_of(task.start, task, p) - loss_of(state.params.weights, task, p))
    assert gone > 0.1
    assert float(state.params.energy) == pytest.approx(gone, rel=1e-6)
    assert float(state.params.length) >= moved * (1 + 1e-6)


CELLS = {
    "starts and step sizes": ODD.replace(starts=3, rates=2, train="qv", eta=0.002),
    "a map": SEPARATING.replace(kernel="gaussian", scale=0.5, grid=2, rates=2, step="curvature", eta=0.2),
}


@pytest.mark.parametrize("name", CELLS)
def test_cells_are_single_runs_side_by_side(name: str):
    p = CELLS[name]
    state, task = trained(p, 20)
    assert {x.shape for x in state.params} == {(p.cells, p.H, p.D, p.d)}
    alone = p.replace(starts=1, rates=1, grid=0)
    ends = []
    for i in range(p.cells):
        w = ak.Weights(*(x[i] for x in task.start))
        single = task._replace(start=w, rate=task.rate[i])
        first = ak.dynamics(single, alone).init(KEY)
        ends.append(onward(single, first, alone, 0, 20).params.weights)
        for ours, expected in zip(state.params, ends[-1], strict=True):
            np.testing.assert_allclose(ours[i], expected, rtol=1e-9, atol=1e-11)
    assert all(np.abs(a.Q - b.Q).max() > 1e-6 for a, b in zip(ends[1:], ends[:-1], strict=True))


def test_starts_differ_in_what_is_trained_alone():
    task, single = task_of(CELLS["starts and step sizes"]), task_of(ODD.replace(train="qv"))
    for letter, cells, one in zip("qkv", task.start, single.start, strict=True):
        firsts = np.asarray(cells)[::2]
        np.testing.assert_array_equal(firsts, np.asarray(cells)[1::2], err_msg="step sizes share a start")
        np.testing.assert_array_equal(firsts[0], one)
        if letter == "k":
            np.testing.assert_array_equal(firsts, np.broadcast_to(one, firsts.shape))
        else:
            assert_normal(firsts, np.sqrt(1 / 5))
            assert np.abs(firsts[1] - firsts[2]).max() > 0.1


def test_a_map_ranges_over_delta_and_scale():
    p = CELLS["a map"]
    task = task_of(p)
    single = task_of(p.replace(grid=0, rates=1, step="fixed"))
    deltas, scales = ak.map_axes(p)
    assert deltas.tolist() == [0, 1]
    assert scales.tolist() == pytest.approx([0.05, 1.5])
    cells = jax.tree.map(lambda x: np.asarray(x).reshape(2, 2, 2, *x.shape[1:]), task.start)
    for i in range(2):
        for j in range(2):
            own = ak.Weights(*(x[i, j, 0] for x in cells))
            np.testing.assert_allclose(own.Q, scales[j] / 0.5 * np.asarray(single.start.Q), rtol=1e-12)
            np.testing.assert_allclose(own.K, scales[j] / 0.5 * np.asarray(single.start.K), rtol=1e-12)
            u = np.einsum("hDd,hd->hD", own.V, task.W_O)
            assert np.linalg.norm(u[0, :-1]) == pytest.approx(float(p.c * deltas[i]), abs=1e-12)
            np.testing.assert_array_equal(own.V, cells.V[i, j, 1])
    rates = np.asarray(task.rate).reshape(2, 2, 2)
    np.testing.assert_allclose(rates[..., 1], 4 * rates[..., 0], rtol=1e-12)
    assert len(np.unique(rates[1])) == 4, "every start has its own curvature"


@by_kernel
def test_a_step_that_is_far_too_large_harms_its_own_cell_alone(kernel: str):
    few, many = (ODD.replace(kernel=kernel, eta=0.005, rates=rates) for rates in (2, 16))
    expected, _ = trained(few, 40)
    state, task = trained(many, 40)
    for ours, alone in zip(state.params, expected.params, strict=True):
        assert np.isfinite(ours).all()
        np.testing.assert_allclose(ours[0], alone[0], rtol=1e-9, atol=1e-11)
    found = arrays({name: x.measure(task, many, state) for name, x in ak.probes(many).items()})
    losses = found["losses"][0, 0, 0]
    assert found["losses"].shape == (1, 1, 1, 16)
    assert np.nan_to_num(losses[8:], nan=np.inf).min() > 2 * losses[0]
    assert found["loss"] == np.nanmin(losses)
    beyond = state.params._replace(Q=state.params.Q.at[5].set(1e300), K=state.params.K.at[5].set(1e300))
    assert ak.probes(many)["loss"].measure(task, many, state._replace(params=beyond)) == np.nanmin(losses)


@by_kernel
def test_in_other_units_the_path_is_the_same_and_losses_are_a_hundredth(kernel: str):
    large = ODD.replace(kernel=kernel, init="paired", H=4, train="q", step="curvature", eta=0.3)
    small = large.replace(label_scale=large.label_scale / 10, output_scale=large.output_scale / 10)
    (one, task), (two, other) = trained(large, 40), trained(small, 40)
    assert float(other.rate) == pytest.approx(100 * float(task.rate), rel=1e-6)
    np.testing.assert_allclose(two.params.weights.Q, one.params.weights.Q, rtol=1e-6, atol=1e-9)
    assert np.abs(one.params.weights.Q - task.start.Q).max() > 0.01
    losses = [float(loss_of(w, t, p)) for w, t, p in (
        (one.params.weights, task, large), (two.params.weights, other, small),
    )]  # fmt: skip
    assert losses[1] == pytest.approx(losses[0] / 100, rel=1e-6)
    # The length of the path is the same, so that the sum of norms is no part of the loss.
    assert float(two.params.length) == pytest.approx(float(one.params.length), rel=1e-6)
    assert float(two.params.energy) == pytest.approx(float(one.params.energy) / 100, rel=1e-6)


@pytest.mark.parametrize(
    "changes",
    [
        {"algorithm": "descent"},
        {"algorithm": "flow"},
        {"starts": 2, "rates": 2, "step": "curvature"},
        {"init": "separating", "grid": 2},
    ],
    ids=str,
)
def test_single_precision_stays_single(changes: dict[str, Any]):
    p = ODD.replace(precision=32, **changes)
    single = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32 if isinstance(x, float) else None), p)
    task, state = begin(KEY, single)
    after = onward(task, state, single, 0, 2)
    assert {x.dtype.name for x in jax.tree.leaves((task, state, after))} == {"float32"}
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(after))


# ---------------------------------------------------------------- whole runs

SIZES = {"N": "6", "n": "5", "D": "20", "H": "2", "steps": "30"}


def test_a_run_records_what_it_says(store: Store):
    p = ak.PRESETS["tiny"].replace(SIZES)
    run = experiment.run(PAPER, p, 2, store).data
    along = {
        "loss": (), "gradient": ("block",), "moved": ("block",), "length": (), "energy": (),
        "beta": ("reading",), "gamma": (), "curvature": ("end",),
    }  # fmt: skip
    once = {"start_size": ("block",), "floor": ("kernel",), "ranks": ("heads",), "rate": ()}
    dims = {name: ("seed", "step", *more) for name, more in along.items()}
    dims |= {name: ("seed", *more) for name, more in once.items()}
    assert {name: run[name].dims for name in dims} == dims
    assert run.sizes["block"] == 3
    assert [run.sizes[x] for x in ("seed", "reading", "end", "kernel", "heads")] == [2] * 5
    assert set(ak.probes(p)) == set(dims)
    assert np.all(run["diverged_at"] == -1)
    assert run["ranks"].values.tolist() == [[20, 30]] * 2
    np.testing.assert_array_equal(run["moved"].isel(step=0), 0)
    moved = (run["moved"] ** 2).sum("block") ** 0.5
    assert np.all(moved <= run["length"] + 1e-12)
    assert float(moved.isel(step=-1).min()) > 0
    # W^V starts at zero, so that the others stay for a step.
    assert np.all(run["start_size"].isel(block=2) == 0)
    np.testing.assert_array_equal(run["gradient"].isel(step=0, block=[0, 1]), 0)
    np.testing.assert_allclose(run["rate"] * run["curvature"].isel(step=0).max("end"), p.eta, rtol=1e-6)
    np.testing.assert_allclose(run["length"].diff("step").isel(step=0),
                               run["rate"] * run["gradient"].isel(step=0, block=2), rtol=1e-10)  # fmt: skip
    assert np.all(run["loss"].isel(step=-1) < run["loss"].isel(step=0))


def test_a_run_of_many_cells_records_what_it_says(store: Store):
    p = ak.PRESETS["tiny"].replace(SIZES).replace(value_scale=1.0, train="q", starts=3, rates=2, eta=0.1)
    run = experiment.run(PAPER, p, 2, store).data
    cells = ("start", "delta", "scale", "multiple")
    dims = {
        "loss": ("seed", "step"), "losses": ("seed", "step", *cells), "slopes": ("seed", "step", *cells),
        "outputs": ("seed", "step", *cells, "position"), "labels": ("seed", "position"),
        "floors": ("seed", *cells), "rate": ("seed", *cells),
    }  # fmt: skip
    assert {name: run[name].dims for name in dims} == dims
    assert set(ak.probes(p)) == set(dims)
    assert [run.sizes[x] for x in (*cells, "position")] == [3, 1, 1, 2, 30]
    np.testing.assert_allclose(run["rate"].isel(multiple=1), 4 * run["rate"].isel(multiple=0), rtol=1e-12)
    residuals = run["outputs"] - run["labels"]
    np.testing.assert_allclose(0.5 * (residuals**2).sum("position"), run["losses"], rtol=1e-10)
    np.testing.assert_array_equal(run["loss"], run["losses"].min(cells))
    assert np.all(run["losses"] >= run["floors"])
    # Frozen values: all starts have the same floor.
    np.testing.assert_array_equal(run["floors"], run["floors"].isel(start=[0] * 3, multiple=[0] * 2))
    first = run["losses"].isel(step=0)
    np.testing.assert_array_equal(first.isel(multiple=0), first.isel(multiple=1))
    assert float(first.isel(multiple=0).std("start").min()) > 0


def test_with_fewer_features_than_positions_the_theorems_do_not_speak(store: Store):
    p = ak.PRESETS["tiny"].replace(H=2, D=2, steps=20)
    assert not theorems.WIDE.holds(p)
    wide = [claim for claim in PAPER.claims_of("tiny") if theorems.WIDE in claim.assumes]
    assert len(wide) == 11
    some = [c for c in wide if c.name in ("all_weights_rate_bound_softmax", "overparameterisation_is_needed")]
    for verdict in experiment.verdicts(some, p, experiment.gather(PAPER, p, some, 2, store)):
        assert verdict.outcome == Outcome.OUT_OF_REGIME, str(verdict)
        assert verdict.unmet == ("HD >= Nn",)
        assert "HD >= Nn" in verdict.reason
