"""sparse_bigrams: the algorithm step by step, and whole runs."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from descentlab.engine._rollout import rollout
from descentlab.papers import _registry as paper
from descentlab.papers import sparse_bigrams as sb
from descentlab.papers.sparse_bigrams import population
from descentlab.papers.sparse_bigrams import tokens as model

KEY = jax.random.key(29)
ALPHA = 1e-6
PAPER = paper.load("sparse_bigrams")
UNEVEN = "[0.5,0.3,0.2]"
LAWS = {"uniform": {}, "uneven": {"mu": UNEVEN, "weights": "random"}}
by_law = pytest.mark.parametrize("law", LAWS)
# Large steps, small sizes: everything happens within a few hundred steps.
SMALL = sb.Preset(T=10, batch=16, eta_1=0.5, eta_2=0.5, steps=40)


@jax.jit
def begin(key: Any, p: sb.Preset) -> tuple[sb.Task, Any, sb.Line]:
    """The task, the state at the start and its signals."""
    task = sb.make_task(key, p)
    state = sb.dynamics(task, p).init(key)
    return task, state, population.signals(*sb.weights(state.params, task, p), task)


@functools.partial(jax.jit, static_argnums=2)
def whole(key: Any, p: sb.Preset, steps: int) -> tuple[sb.Task, Any, Any]:
    task = sb.make_task(key, p)
    dynamics = sb.dynamics(task, p)
    assert dynamics.step is not None
    first, step = dynamics.init(key), dynamics.step
    _, rest = jax.lax.scan(lambda s, k: (step(k, s),) * 2, first, jax.random.split(key, steps))
    states = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), first, rest)

    def looked(state: Any) -> Any:
        full = sb.weights(state.params, task, p)
        return population.signals(*full, task), population.distances(*full, task)

    return task, states, jax.vmap(looked)(states)


@functools.cache
def path(p: sb.Preset) -> tuple[sb.Task, Any, tuple[sb.Line, tuple[np.ndarray, np.ndarray]]]:
    """The task and all states of one seed's run, with their signals and distances from the line."""
    return jax.tree.map(np.asarray, whole(KEY, arrays(p), p.steps))


def arrays(p: sb.Preset) -> sb.Preset:
    """The preset as a compiled program sees it."""
    return jax.tree.map(jnp.asarray, p)


def truth(task: sb.Task, T: int) -> np.ndarray:
    """The columns of Q as rows."""
    Q = np.zeros((3, T))
    np.put_along_axis(Q, np.asarray(task.positions), np.asarray(task.weights), axis=1)
    return Q


# ---------------------------------------------------------------- one step


def test_a_proximal_step_is_threshold_and_shift():
    rng, eta, lam = np.random.default_rng(0), 0.3, 0.2
    V, A, to_V, to_A = (rng.normal(size=s) for s in ((3, 3), (3, 7), (3, 3), (3, 7)))
    w, g = sb.Params(jnp.asarray(V), jnp.asarray(A)), sb.Params(jnp.asarray(to_V), jnp.asarray(to_A))
    found = sb.proximal_step(eta, lam)(w, g, jnp.asarray(5))
    moved = A - eta * to_A
    shrunk = np.zeros_like(A)
    for k in range(3):
        for t in range(7):
            if moved[k, t] > eta * lam:
                shrunk[k, t] = moved[k, t] - eta * lam
            elif moved[k, t] < -eta * lam:
                shrunk[k, t] = moved[k, t] + eta * lam
    assert 0 < (shrunk == 0).sum() < shrunk.size
    for k in range(3):
        shrunk[k] += (1 - shrunk[k].sum()) / 7
    np.testing.assert_allclose(found.A, shrunk, rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(found.V, V - eta * to_V, rtol=1e-14)
    plain = sb.plain_step(eta)(w, g, jnp.asarray(5))
    np.testing.assert_allclose(plain.A, moved, rtol=1e-14)
    np.testing.assert_allclose(plain.V, V - eta * to_V, rtol=1e-14)
    alone = sb.value_step(eta, 2)(w, g, jnp.asarray(6))
    np.testing.assert_allclose(alone.V, V - eta / (1 + 6 * eta / 4) * to_V, rtol=1e-14)
    np.testing.assert_array_equal(alone.A, A)


@pytest.mark.parametrize("algorithm", ["sgd", "population"])
def test_the_gradient_of_logits_is_that_of_the_softmax_loss(algorithm: str):
    p = SMALL.replace(attention="softmax", algorithm=algorithm, mu=UNEVEN, logit_rate=3.0)
    rng = np.random.default_rng(3)

    @jax.jit
    def both(key: Any, noise: Any, logits: Any) -> tuple[sb.Task, sb.Params, sb.Params]:
        task = sb.make_task(key, p)
        V = task.mu[:, None] + population.projected(sb.Params(noise, logits), task.mu).V
        w = sb.Params(V, logits)

        def loss(w: sb.Params) -> Any:
            if algorithm == "population":
                return sb.population_loss(w.V, jax.nn.softmax(w.A, axis=1), task)
            return model.batch_loss(w, model.sample(key, task, p.batch, p.T), p)

        return task, sb.objective(task, p).gradient(w, key), jax.grad(loss)(w)

    task, found, slope = both(
        KEY, jnp.asarray(rng.normal(size=(3, 3))), jnp.asarray(rng.normal(size=(3, 10)))
    )
    mu = np.asarray(task.mu)
    np.testing.assert_allclose(found.A, 3.0 * np.asarray(slope.A) / mu[:, None], rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(found.A.sum(axis=1), 0, atol=1e-13)
    np.testing.assert_allclose(found.V, population.projected(slope, task.mu).V, rtol=1e-10, atol=1e-13)


# ---------------------------------------------------------------- the stages of a run


@pytest.fixture(scope="module")
def proximal() -> tuple[sb.Preset, sb.Task, Any]:
    p = SMALL.replace(T=40, mu=UNEVEN, lam=0.03, batch=256, last=0.25, eta_1=0.3, eta_2=0.3, steps=200)
    return p, *path(p)[:2]


def test_sums_are_kept_all_along_a_run(proximal: tuple[sb.Preset, sb.Task, Any]):
    p, task, states = proximal
    V, A = states.params
    assert A.shape == (p.steps + 1, 3, p.T)
    np.testing.assert_allclose(A.sum(axis=2), 1, atol=1e-12)
    np.testing.assert_allclose(V.sum(axis=1), 1, atol=1e-12)
    np.testing.assert_allclose(V @ task.mu, np.broadcast_to(task.mu, (p.steps + 1, 3)), atol=1e-12)
    np.testing.assert_array_equal(A[0], np.full((3, p.T), 1 / p.T))
    np.testing.assert_array_equal(V[0], np.broadcast_to(task.mu[:, None], (3, 3)))


def test_stages_switch_at_the_level_and_late(proximal: tuple[sb.Preset, sb.Task, Any]):
    p, _, states = proximal
    largest = np.max(path(p)[2][0], axis=0)
    first = int(np.argmax(largest >= p.level))
    assert 5 < first < 150
    assert states.began[-1].tolist() == [0, first, 150]
    np.testing.assert_array_equal(
        states.stage, (np.arange(201) >= first).astype(int) + (np.arange(201) >= 150)
    )


def test_the_last_stage_rounds_A_and_moves_V_alone(proximal: tuple[sb.Preset, sb.Task, Any]):
    p, task, states = proximal
    V, A = states.params
    np.testing.assert_array_equal(A[150:], np.broadcast_to(A[150], A[150:].shape))
    assert np.all(np.abs(np.diff(V[149:], axis=0)).max(axis=(1, 2)) > 0)
    for k in range(3):
        assert set(np.flatnonzero(A[150, k])) == set(task.positions[k].tolist())
        assert A[150, k][A[150, k] > 0].min() >= p.threshold * A[150, k].max()
        assert np.count_nonzero(A[149, k]) > 2


def test_refit_is_a_switch():
    for refit, stages in ((True, 3), (False, 2)):
        assert begin(KEY, arrays(SMALL.replace(refit=refit)))[1].began.shape == (stages,)
    _, states, _ = path(SMALL.replace(start="line", algorithm="sgd", refit=False))
    assert set(states.stage.tolist()) == {1}


@pytest.mark.parametrize(
    ("algorithm", "precision"), [("proximal", 64), ("proximal", 32), ("simulated", 64), ("population", 64)]
)
def test_a_start_on_the_line_is_past_stage_one(algorithm: str, precision: int):
    p = SMALL.replace(start="line", algorithm=algorithm, refit=False, precision=precision)
    kind = f"float{precision}"
    leaves = jax.tree.map(lambda x: x.astype(kind) if x.dtype == float else x, arrays(p))
    task, state, a = begin(KEY, leaves)
    assert state.began.tolist() == [0, 0]
    assert int(state.stage) == 1
    rounding = 1e-5 if precision == 32 else 1e-12
    np.testing.assert_allclose((a.a_V, a.a_A), p.level, rtol=rounding)
    assert {x.dtype.name for x in jax.tree.leaves((state.params, task.P, task.weights))} == {kind}
    scratch = begin(KEY, arrays(SMALL))[1]
    assert int(scratch.stage) == 0


@pytest.mark.parametrize("theta", [0.5, 0.8])
@pytest.mark.parametrize("correlation", [-0.3, 0.6])
def test_a_transferred_start_has_its_signal(theta: float, correlation: float):
    p = SMALL.replace(start="transfer", theta=theta, correlation=correlation, mu=UNEVEN)
    task, state, a = begin(KEY, arrays(p))
    np.testing.assert_allclose(a.a_V, theta * correlation, rtol=1e-10)
    np.testing.assert_allclose(a.a_A, 0, atol=1e-13)
    np.testing.assert_array_equal(state.params.A, np.full((3, p.T), 1 / p.T))
    V, base = np.asarray(state.params.V), np.asarray(task.mu)[:, None]
    np.testing.assert_allclose(V, theta * np.asarray(task.pretrained) + (1 - theta) * base, rtol=1e-13)
    np.testing.assert_allclose(V.sum(axis=0), 1, atol=1e-13)
    np.testing.assert_allclose(V @ np.asarray(task.mu), task.mu, atol=1e-13)
    assert int(state.stage) == int(theta * correlation > p.level)


def test_fine_tuning_by_population_descent_runs():
    # Off the line the two numbers are not exact: all weights are trained, whatever `reduced` says.
    p = SMALL.replace(algorithm="population", start="transfer", refit=False, reduced=True)
    found = rollout(PAPER.system, p, range(2), np.array([0, 40]))
    assert found["final_params_A"].shape == (2, 3, p.T)
    assert np.all(found["excess_loss"][:, 1] < 0.2 * found["excess_loss"][:, 0])


# ---------------------------------------------------------------- whole runs


@by_law
def test_the_two_numbers_are_the_full_population_run(law: str):
    p = SMALL.replace(LAWS[law], algorithm="population", refit=False, steps=2000)
    task, line, (on, _) = path(p.replace(reduced=True))
    _, full, (a, off) = path(p.replace(reduced=False))
    assert line.params.a_V.shape == (2001,)
    assert full.params.A.shape == (2001, 3, p.T)
    np.testing.assert_array_equal(full.began, line.began)
    np.testing.assert_allclose(off, 0, atol=1e-12)
    # The printed recursion, step by step.
    mu, P = task.mu, task.P
    K_P = np.sum(mu * (P - mu[:, None]) ** 2)
    K_Q = np.sum(mu[:, None] * (truth(task, p.T) - 1 / p.T) ** 2)
    expected = [(0.0, 0.0)]
    for _ in range(p.steps):
        a_V, a_A = expected[-1]
        gap = 1 - a_A * a_V
        step = (1 - a_V) / p.T + K_Q * a_A * gap, K_P * a_V * gap
        expected.append((a_V + p.eta_1 * step[0], a_A + p.eta_1 * step[1]))
    for found in (line.params, on, a):
        np.testing.assert_allclose(np.transpose(found), expected, rtol=1e-12, atol=1e-15)


@by_law
def test_the_population_run_recovers_the_truth(law: str):
    p = SMALL.replace(LAWS[law], algorithm="population", refit=False, reduced=False, steps=2000)
    task, states, (a, _) = path(p)
    np.testing.assert_allclose((a.a_V[-1], a.a_A[-1]), 1, atol=1e-5)
    np.testing.assert_allclose(states.params.V[-1], task.P, atol=1e-5)
    np.testing.assert_allclose(states.params.A[-1], truth(task, p.T), atol=1e-5)
    assert 0 < states.began[-1][1] < 100


def test_probes_are_their_definitions(proximal: tuple[sb.Preset, sb.Task, Any]):
    p, task, states = proximal
    at = jax.tree.map(lambda x: jnp.asarray(x[120]), states)
    own = jax.tree.map(jnp.asarray, task)

    @jax.jit
    def measured(task: sb.Task, state: Any, p: sb.Preset) -> dict[str, Any]:
        return {name: probe.measure(task, p, state) for name, probe in sb.probes(p).items()}

    found = measured(own, at, arrays(p))
    V, A = (x[120] for x in states.params)
    Q, mu, P = truth(task, p.T), np.asarray(task.mu), np.asarray(task.P)

    def length(X: np.ndarray) -> float:
        return float(np.sqrt(np.sum(mu * X**2)))

    least = p.threshold * A.max(axis=1, keepdims=True)
    star = np.where(least > A, 0, A)
    star = star / star.sum(axis=1, keepdims=True)
    U, W, base = P - mu[:, None], Q - 1 / p.T, mu[:, None]
    expected = {
        "value_error": length(V - P),
        "attention_error": length((A - Q).T),
        "star_error": length((star - Q).T),
        "value_cosine": np.sum(mu * (V - base) * U) / length(V - base) / length(U),
        "attention_cosine": np.sum(mu[:, None] * (A - 1 / p.T) * W) / length((A - 1 / p.T).T) / length(W.T),
        "star_cosine": np.sum(mu[:, None] * (star - 1 / p.T) * W) / length((star - 1 / p.T).T) / length(W.T),
        "value_size": length(U),
        "attention_size": length(W.T),
        "stage": 1,
    }
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-10, err_msg=name)


def test_without_l1_and_noise_a_simulated_run_is_the_population_run():
    p = SMALL.replace(refit=False, reduced=False)
    _, exact, _ = path(p.replace(algorithm="population"))
    _, same, _ = path(p.replace(algorithm="simulated", lam=0.0, noise=0.0))
    np.testing.assert_allclose(same.params.V, exact.params.V, rtol=0, atol=1e-12)
    np.testing.assert_allclose(same.params.A, exact.params.A, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(same.began, exact.began)


def test_without_l1_simulated_steps_are_those_of_sgd():
    p = SMALL.replace(algorithm="simulated", lam=0.0, refit=False)
    task, states, _ = path(p)
    own = jax.tree.map(jnp.asarray, task)
    gradient = jax.jit(lambda key, w: sb.simulated(key, w, own, 16.0))
    w = sb.Params(*(jnp.asarray(x[0]) for x in states.params))
    for key in jax.random.split(KEY, p.steps):
        g = gradient(key, w)
        w = sb.Params(w.V - p.eta_2 * g.V, w.A - p.eta_2 * g.A)
    # The noise of A is drawn in 32 bits, whose rounding depends on how a program is compiled.
    np.testing.assert_allclose(states.params.A[-1], w.A, rtol=0, atol=1e-6)
    np.testing.assert_allclose(states.params.V[-1], w.V, rtol=0, atol=1e-6)
    assert states.stage[-1] == 1
    _, killed, _ = path(p.replace(lam=5.0))
    assert np.abs(killed.params.A[-1] - 1 / p.T).max() < 1e-12, "lam takes part"


def test_sgd_takes_plain_steps_on_fresh_batches():
    p = SMALL.replace(algorithm="sgd", refit=False, start="line")
    task, states, _ = path(p)
    own = jax.tree.map(jnp.asarray, task)
    slope = jax.jit(
        lambda w, key: jax.grad(model.batch_loss)(w, model.sample(key, own, p.batch, p.T, True), p)
    )
    w, mu = sb.Params(*(x[0] for x in states.params)), task.mu
    for key in jax.random.split(KEY, p.steps):
        g = slope(sb.Params(*map(jnp.asarray, w)), key)
        to_V, to_A = np.asarray(g.V) / mu, np.asarray(g.A) / mu[:, None]
        to_V = to_V - to_V.mean(axis=0)
        w = sb.Params(
            w.V - p.eta_2 * (to_V - (to_V @ mu)[:, None]),
            w.A - p.eta_2 * (to_A - to_A.mean(axis=1, keepdims=True)),
        )
    np.testing.assert_allclose(states.params.A[-1], w.A, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(states.params.V[-1], w.V, rtol=1e-10, atol=1e-13)


# ---------------------------------------------------------------- simulated against real batches

NAMES = ("a_V", "a_A", "Delta_V", "Delta_A")


def z_between(a: np.ndarray, b: np.ndarray) -> float:
    error = np.hypot(a.std(ddof=1) / len(a) ** 0.5, b.std(ddof=1) / len(b) ** 0.5)
    return abs(a.mean() - b.mean()) / error


def test_simulated_runs_are_distributed_like_runs_on_real_batches():
    p = sb.Preset(T=150, start="line", refit=False, steps=30)
    seeds = jax.random.split(KEY, 100)

    @jax.jit
    def ends(p: sb.Preset) -> dict[str, Any]:
        def end(key: Any) -> tuple[Any, ...]:
            task = sb.make_task(key, p)
            dynamics = sb.dynamics(task, p)
            state = dynamics.advance(key, dynamics.init(key), jnp.asarray(0), jnp.asarray(30))
            V, A = state.params
            return *population.signals(V, A, task), *population.distances(V, A, task)

        return dict(zip(NAMES, jax.lax.map(end, seeds), strict=True))

    def drawn(**settings: Any) -> dict[str, np.ndarray]:
        return jax.tree.map(np.asarray, ends(arrays(p.replace(settings))))

    real, found = drawn(algorithm="proximal"), {f: drawn(algorithm="simulated", noise=f) for f in (1.0, 1.3)}
    most = float(stats.norm.isf(ALPHA / 2))
    for name in NAMES:
        a, b = real[name], found[1.0][name]
        assert z_between(a, b) < most, name
        # Second moments about the common mean, as well.
        centre = np.concatenate([a, b]).mean()
        assert z_between((a - centre) ** 2, (b - centre) ** 2) < most, name
    # So many seeds tell a variance that is wrong by a third.
    assert z_between(real["Delta_A"], found[1.3]["Delta_A"]) > most
