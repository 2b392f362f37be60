"""in_context_regression against plain NumPy, quadrature, exact moments and drawn prompts."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy import stats

from descentlab.engine._rollout import rollout
from descentlab.errors import SettingError
from descentlab.papers import _registry as paper
from descentlab.papers import in_context_regression as icl
from descentlab.papers.in_context_regression import Law, Params, Preset, moments

Z = stats.norm.isf(1e-6 / 2)


def covariance(rng: np.random.Generator, d: int) -> jax.Array:
    A = rng.normal(size=(d, d))
    return jnp.asarray(A @ A.T / d)


def any_law(seed: int, d: int, n: int, noise: float = 0.5) -> Law:
    rng = np.random.default_rng(seed)
    of_x, of_query, of_w = (covariance(rng, d) for _ in range(3))
    return Law(of_x, of_query, of_w, jnp.asarray(noise), jnp.asarray(1 / n))


def any_weights(seed: int, d: int) -> Params:
    rng = np.random.default_rng(seed)
    return Params(*(jnp.asarray(rng.normal(size=(d + 1, d + 1))) for _ in range(2)))


def training_law(d: int, N: int, noise: float = 0.0) -> Law:
    return icl.make_task(jax.random.key(0), Preset(d=d, N=N, noise=noise)).law


# ---------------------------------------------------------------- the four twins


def test_prompts_have_the_moments_of_their_law():
    law, n = any_law(0, 3, 4), 4
    E, y = (np.asarray(x) for x in icl.prompts(jax.random.key(1), law, 40_000, n))
    Lambda, Query, Tasks = (np.asarray(X) for X in law[:3])
    x, labels, query = E[:, :3, 0], E[:, 3, 0], E[:, :3, -1]
    assert np.all(E[:, 3, -1] == 0)
    pairs = [
        (x[:, :, None] * x[:, None, :], Lambda),
        (query[:, :, None] * query[:, None, :], Query),
        (labels**2, np.trace(Tasks @ Lambda) + 0.5),
        (y**2, np.trace(Tasks @ Query)),
        (labels[:, None] * x, np.zeros(3)),
        # E y_1 <w, x> x_1 x' = Lambda Tasks Query.
        ((labels * y)[:, None, None] * x[:, :, None] * query[:, None, :], Lambda @ Tasks @ Query),
    ]
    for drawn, exact in pairs:
        error = (drawn.mean(axis=0) - exact) / (drawn.std(axis=0) / len(drawn) ** 0.5)
        assert np.abs(error).max() < Z


def test_model_is_the_printed_equation():
    w, law = any_weights(2, 3), any_law(3, 3, 5)
    E, _ = icl.prompts(jax.random.key(4), law, 6, 5)
    W_PV, W_KQ = (np.asarray(x) for x in w)
    for one, answer in zip(np.asarray(E), np.asarray(icl.predict(w, E)), strict=True):
        f = one + W_PV @ one @ (one.T @ W_KQ @ one) / 5
        assert answer == pytest.approx(f[-1, -1], rel=1e-12)


@pytest.mark.parametrize(("d", "n", "noise"), [(1, 1, 0.7), (1, 2, 0.0), (2, 1, 0.7), (2, 2, 0.0)])
def test_exact_error_is_that_of_a_quadrature_over_all_prompts(d: int, n: int, noise: float):
    # The error is a polynomial of degree 6 at most in each variable: four Gauss-Hermite nodes are exact.
    law, w = any_law(5, d, n, noise), any_weights(6, d)
    nodes, weights = np.polynomial.hermite_e.hermegauss(4)
    count = n * d + 2 * d + (n if noise else 0)
    grid = np.array(list(itertools.product(range(4), repeat=count)))
    z, mass = nodes[grid], np.prod((weights / weights.sum())[grid], axis=1)
    of_x, of_query, of_w = (np.linalg.cholesky(np.asarray(X)) for X in law[:3])
    x = z[:, : n * d].reshape(-1, n, d) @ of_x.T
    query, task = z[:, n * d : n * d + d] @ of_query.T, z[:, n * d + d : n * d + 2 * d] @ of_w.T
    labels = np.einsum("bnd,bd->bn", x, task)
    if noise:
        labels = labels + noise**0.5 * z[:, n * d + 2 * d :]
    last = np.concatenate([query, np.zeros((len(z), 1))], axis=1)
    points = np.concatenate([x, labels[:, :, None]], axis=2)
    E = np.concatenate([points, last[:, None, :]], axis=1).swapaxes(1, 2)
    answers = np.asarray(icl.predict(w, jnp.asarray(E)))
    brute = np.sum(mass * (answers - np.sum(task * query, axis=1)) ** 2)
    assert float(icl.squared_error(w, law)) == pytest.approx(brute, rel=1e-10)


@pytest.mark.parametrize(("d", "n"), [(3, 2), (4, 7)])
def test_exact_error_is_that_of_drawn_prompts(d: int, n: int):
    law = any_law(7, d, n)
    w = jax.tree.map(lambda x: x / 2, any_weights(8, d))
    E, y = icl.prompts(jax.random.key(9), law, 100_000, n)
    drawn = np.asarray((icl.predict(w, E) - y) ** 2)
    z = (drawn.mean() - float(icl.squared_error(w, law))) / (drawn.std() / drawn.size**0.5)
    assert abs(z) < Z


def test_gradient_of_the_exact_loss_is_the_mean_over_fresh_prompts():
    task = icl.make_task(jax.random.key(0), Preset(d=2, N=3, algorithm="online", noise=0.3))
    w = jax.tree.map(lambda x: x / 2, any_weights(10, 2))
    keys = jax.random.split(jax.random.key(11), 400)
    drawn = jax.jit(jax.vmap(lambda key: jax.grad(icl.batch_loss)(w, icl.sample(key, task, 128))))(keys)
    exact = jax.grad(icl.population_loss)(w, task)
    for own, mean in zip(drawn, exact, strict=True):
        moving = np.asarray(own).std(axis=0) > 0
        # First d rows of W_PV and last column of W_KQ never reach the prediction.
        assert np.all(np.asarray(mean)[~moving] == 0)
        spread = np.where(moving, np.asarray(own).std(axis=0) / len(keys) ** 0.5, 1.0)
        assert np.abs((np.asarray(own).mean(axis=0) - np.asarray(mean)) / spread).max() < Z


def test_closed_gradient_is_lemma_5_2_and_keeps_the_blocks():
    task = icl.make_task(jax.random.key(0), Preset(d=3, N=4, noise=0.2))
    w = any_weights(12, 3)
    U = w.W_KQ[:-1, :-1]
    w = Params(jnp.zeros((4, 4)).at[-1, -1].set(0.7), jnp.zeros((4, 4)).at[:-1, :-1].set(U))
    found = jax.grad(icl.population_loss)(w, task)
    to_u, to_U = icl.block_gradient(jnp.asarray(0.7), U, task.law)
    np.testing.assert_allclose(found.W_PV, jnp.zeros((4, 4)).at[-1, -1].set(to_u), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(found.W_KQ, jnp.zeros((4, 4)).at[:-1, :-1].set(to_U), rtol=1e-12, atol=1e-14)


# ---------------------------------------------------------------- the limit


def test_answers_do_not_know_a_factor_that_the_matrices_share():
    task = icl.make_task(jax.random.key(0), Preset(d=3, N=4))
    w = icl.limit(task.law)
    scaled = Params(2 * w.W_PV, w.W_KQ / 2)
    assert float(icl.answer_error(w, task)) < 1e-14
    assert float(icl.answer_error(scaled, task)) < 1e-14
    assert float(icl.answer_error(Params(2 * w.W_PV, w.W_KQ), task)) == pytest.approx(1.0)
    assert float(icl.distance(scaled, task).min()) > 0.4


def test_limit_is_stationary_and_has_the_least_loss_of_all_weights():
    task = icl.make_task(jax.random.key(0), Preset(d=4, N=6, noise=0.4))
    w, least = icl.limit(task.law), float(icl.least_loss(task.law))
    assert float(icl.population_loss(w, task)) == pytest.approx(least, rel=1e-13)
    assert float(icl.excess_loss(w, task.law)) < 1e-25
    assert max(float(jnp.abs(g).max()) for g in jax.grad(icl.population_loss)(w, task)) < 1e-13
    rng = np.random.default_rng(13)
    for scale in (0.01, 0.1, 1.0):
        near = jax.tree.map(lambda x, scale=scale: x + scale * rng.normal(size=x.shape), w)
        gap = float(icl.population_loss(near, task)) - least
        assert gap > 0
        assert float(icl.excess_loss(near, task.law)) == pytest.approx(gap, rel=1e-8)


@pytest.mark.parametrize(("N", "noise"), [(5, 0.0), (40, 0.8)])
def test_printed_error_is_the_exact_error_of_the_limit(N: int, noise: float):
    law = training_law(4, N, noise)
    for M in (1, 7, 300):
        exact = float(icl.squared_error(icl.limit(law), law._replace(share=jnp.asarray(1 / M))))
        assert float(icl.printed_error(law, jnp.asarray(float(M)))) == pytest.approx(exact, rel=1e-12)


def test_slowest_rate_is_the_hessians_least_positive_eigenvalue():
    law = training_law(3, 10)
    w = icl.limit(law)
    at = jnp.concatenate([w.W_PV[-1:, -1], w.W_KQ[:-1, :-1].ravel()])

    def loss(z: jax.Array) -> jax.Array:
        zero = jnp.zeros((4, 4))
        inside = Params(zero.at[-1, -1].set(z[0]), zero.at[:-1, :-1].set(z[1:].reshape(3, 3)))
        return icl.squared_error(inside, law) / 2

    values = np.linalg.eigvalsh(np.asarray(jax.jit(jax.hessian(loss))(at)))
    assert abs(values[0]) < 1e-12  # along u U, which the prediction does not see
    assert float(icl.slowest_rate(law)) == pytest.approx(values[1], rel=1e-10)


def test_there_is_a_local_minimum_outside_the_blocks():
    law = training_law(3, 10)
    start = Params(
        jnp.zeros((4, 4)).at[-1, 0].set(1.0).at[-1, -1].set(0.25),
        jnp.diag(jnp.asarray([-0.3, 1.3, 1.3, 0.0])).at[-1, 0].set(0.6),
    )
    flat, shape = ravel_pytree(start)

    def loss(z: jax.Array) -> jax.Array:
        return icl.squared_error(shape(z), law) / 2

    slope, bend = jax.jit(jax.grad(loss)), jax.jit(jax.hessian(loss))
    for _ in range(3000):
        flat = flat - 0.1 * slope(flat)
    for _ in range(5):
        flat = flat - jnp.linalg.pinv(bend(flat), rtol=1e-9) @ slope(flat)
    values = np.linalg.eigvalsh(np.asarray(bend(flat)))
    assert float(jnp.abs(slope(flat)).max()) < 1e-12
    assert values[0] > -1e-10
    assert float(loss(flat)) > 1.5 * float(icl.least_loss(law))


# ---------------------------------------------------------------- runs and settings


def test_sizes_and_starts_share_a_program():
    system, records = paper.load("in_context_regression").system, np.array([0, 1])
    common = Preset(d=2, steps=1)
    rollout(system, common, range(2), records)
    compiled = system.advance._cache_size()  # type: ignore[attr-defined]
    for change in ({"N": 77}, {"M": 5}, {"start": "anywhere"}, {"Lambda": "1,0.3"}, {"Theta": "rank_one"}):
        rollout(system, common.replace(change), range(2), records)
    assert system.advance._cache_size() == compiled  # type: ignore[attr-defined]


@pytest.mark.parametrize("theta", ["gaussian", "identity", "rank_one"])
def test_start_has_the_norms_of_the_theorem(theta: str):
    w = icl.beginning(jax.random.key(3), Preset(d=4, s=0.2, balance=3.0, Theta=theta))
    assert float(jnp.sqrt(jnp.sum(w.W_PV**2))) == pytest.approx(0.2)
    assert float(jnp.sqrt(jnp.sum(w.W_KQ**2))) == pytest.approx(0.6)
    assert float(jnp.linalg.eigvalsh(w.W_KQ)[0]) > -1e-12


def test_bound_on_the_start_is_the_theorems():
    p = Preset(d=3, N=7, s=0.4, noise=0.5)
    law = icl.make_task(jax.random.key(0), p).law
    Gamma = np.asarray(moments.gamma(law))
    assert p.start_over_bound == pytest.approx(0.4**2 * np.linalg.norm(Gamma, 2) * 3**0.5 / 2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"Lambda": "1,2"}, "Lambda takes identity, power, or d = 5 positive numbers; got Lambda=1,2."),
        ({"Lambda": "1,2,3,4,-1"}, "positive numbers"),
        ({"Lambda": "1,2,3,4,x"}, "positive numbers"),
        ({"precision": 32}, "algorithm=flow takes precision=64"),
        ({"algorithm": "online", "N": 10**6}, "algorithm=online takes N <= 10000"),
        ({"s": 0.0}, "s takes a number > 0"),
    ],
)
def test_what_cannot_be_is_refused(change: dict, words: str):
    with pytest.raises(SettingError, match=words):
        Preset().replace(change)


def test_training_prompts_have_the_presets_length_under_every_algorithm():
    for algorithm in ("flow", "online"):
        p = icl.PRESETS["tiny"].replace(algorithm=algorithm, steps=10)
        E, _ = icl.sample(jax.random.key(0), icl.make_task(jax.random.key(1), p), 3)
        assert E.shape == (3, p.d + 1, p.N + 1)
