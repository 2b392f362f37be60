"""decision_lists: laws, model, exact losses and their reductions, masses, starts, flows and settings.

Everything is held against loops over all sequences. Certificates are in test_decision_list_certificates.py.
"""

import functools
import importlib
import itertools
import math
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from jax.flatten_util import ravel_pytree
from scipy import stats

from descentlab.engine._rollout import rollout
from descentlab.errors import SettingError
from descentlab.judging import Outcome, judge
from descentlab.papers import _registry as paper
from descentlab.papers import decision_lists as dl
from descentlab.papers.decision_lists import lengths, masses, sequences, theorems
from descentlab.papers.decision_lists.lists import Rule, draw_rule, permutation_matrix, width

KEY = jax.random.key(7)
ALPHA = 1e-6
PAPER = paper.load("decision_lists")
UNEVEN = "0.1,0.2,0.4,0.3"
LAWS: dict[str, dict[str, Any]] = {
    "distinct": {"law": "distinct"},
    "iid": {"law": "iid"},
    "uneven": {"law": "iid", "probabilities": UNEVEN},
}
by_law = pytest.mark.parametrize("law", LAWS)
JOINT: dict[str, Any] = {"algorithm": "descent", "train": "both", "start": "random", "sigma_0": 1.0}

make_task, labels, predict = (jax.jit(f) for f in (dl.make_task, dl.lists.labels, dl.predict))


@jax.jit
def loss_of(w: dl.Params, task: dl.Task) -> jax.Array:
    return dl.population_loss(w, task)


@jax.jit
def measured(w: dl.Params, task: dl.Task) -> tuple[jax.Array, jax.Array, dl.Params]:
    """Loss, error and gradient."""
    error = dl.population_error(w, task)
    return loss_of(w, task), error, jax.grad(loss_of)(w, task)


@pytest.fixture(autouse=True)
def stuck_solvers_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """No flow below needs as many steps: what is stuck fails, rather than hangs."""
    monkeypatch.setattr("descentlab.engine._flow.MOST_SOLVER_STEPS", 20_000)


@functools.cache
def task_of(**settings: Any) -> dl.Task:
    """A random task of all weights."""
    task = make_task(KEY, dl.Preset(**settings))
    assert isinstance(task, dl.Task)
    return task


def assert_means(draws: Any, expected: Any) -> None:
    """z-tests on the means of independent draws, which lie along the first axis."""
    draws, expected = np.asarray(draws), np.asarray(expected)
    z = (draws.mean(axis=0) - expected) / (draws.std(axis=0, ddof=1) / len(draws) ** 0.5)
    assert np.all(2 * stats.norm.sf(abs(z)) > ALPHA), f"largest |z| = {abs(z).max():.1f}"


def matrix(pi: Any) -> np.ndarray:
    """P, with P e_t = e_pi(t)."""
    return np.eye(len(pi))[:, np.asarray(pi)]


# ---------------------------------------------------------------- the plain definitions


def plain_lists(rule: Any) -> list[list[int]]:
    """The lists without what fills them up."""
    sizes = np.asarray(rule.sizes).tolist()
    return [one[:m] for one, m in zip(np.asarray(rule.lists).tolist(), sizes, strict=True)]


def plain_labels(rule: Any, s: tuple[int, ...]) -> list[int]:
    """The definition of the labels of a sequence."""
    lists, pi = plain_lists(rule), np.asarray(rule.pi).tolist()
    return [pi[next(t for t in lists[a] if t in s)] for a in s]


def plain_logits(w: dl.Params, s: tuple[int, ...]) -> np.ndarray:
    """V X softmax(X'WX), over labels and positions."""
    W, V = np.asarray(w.W), np.asarray(w.V)
    X = np.eye(len(V))[:, s]
    scores = np.exp(X.T @ W @ X)
    return V @ X @ (scores / scores.sum(axis=0))


def all_sequences(p: dl.Preset) -> list[tuple[tuple[int, ...], float]]:
    """Every sequence and its probability."""
    tokens = range(p.L)
    if p.law == "distinct":
        return [(s, 1 / math.perm(p.L, p.n)) for s in itertools.permutations(tokens, p.n)]
    single = [float(x) for x in p.probabilities.split(",")] if p.probabilities else [1 / p.L] * p.L
    return [(s, math.prod(single[t] for t in s)) for s in itertools.product(tokens, repeat=p.n)]


def plain_risks(w: dl.Params, task: dl.Task) -> tuple[float, float]:
    """The expected loss and error; a tie, up to rounding, is an error."""
    loss = error = 0.0
    for s, chance in all_sequences(task.preset):
        logits = plain_logits(w, s)
        for position, label in enumerate(plain_labels(task, s)):
            z = logits[:, position]
            loss += chance / len(s) * (np.log(np.exp(z).sum()) - z[label])
            error += chance / len(s) * bool(z[label] <= np.delete(z, label).max() + 1e-12)
    return loss, error


# ---------------------------------------------------------------- laws, labels and the model


@by_law
def test_sequences_have_their_law(law: str):
    p = dl.Preset(L=4, n=2, M=2, **LAWS[law])
    drawn = np.asarray(sequences.draw(KEY, p, 20_000))
    assert drawn.shape == (20_000, 2)
    table = dict(all_sequences(p))
    assert math.isclose(sum(table.values()), 1)
    kinds = np.array(list(table))
    assert_means(np.all(drawn[:, None, :] == kinds[None], axis=2), list(table.values()))
    assert set(map(tuple, drawn.tolist())) <= set(table)


@pytest.mark.parametrize("M", [3, 5])
def test_random_rules_are_permutations_and_lists(M: int):
    p = dl.Preset(L=5, n=3, M=M)
    rules = jax.jit(jax.vmap(lambda key: draw_rule(key, p)))(jax.random.split(KEY, 200))
    sizes, firsts = np.zeros(M), np.zeros(5)
    for i in range(200):
        rule = jax.tree.map(lambda x, i=i: x[i], rules)
        assert sorted(np.asarray(rule.pi).tolist()) == list(range(5))
        for a, one in enumerate(plain_lists(rule)):
            assert one[-1] == a
            assert len(set(one)) == len(one) <= M
            assert set(np.asarray(rule.lists)[a, len(one) :].tolist()) <= {a}
            sizes[len(one) - 1] += 1
            firsts[(one[0] - a) % 5] += len(one) > 1
    assert firsts[0] == 0
    assert stats.chisquare(sizes).pvalue > ALPHA
    assert stats.chisquare(firsts[1:]).pvalue > ALPHA
    assert stats.chisquare(np.bincount(np.asarray(rules.pi)[:, 0], minlength=5)).pvalue > ALPHA


@by_law
def test_labels_and_logits_are_their_definitions(law: str):
    task = task_of(L=4, n=3, M=3, **LAWS[law], **JOINT)
    tokens = np.array([s for s, _ in all_sequences(task.preset)])
    truth, logits = labels(task, jnp.asarray(tokens)), predict(task, task.start, jnp.asarray(tokens))
    for s, ours, out in zip(map(tuple, tokens.tolist()), np.asarray(truth), np.asarray(logits), strict=True):
        assert ours.tolist() == plain_labels(task, s)
        np.testing.assert_allclose(out.T, plain_logits(task.start, s), rtol=1e-12, atol=1e-13)


# ---------------------------------------------------------------- losses


@by_law
@pytest.mark.parametrize("train", ["both", "value"])
def test_population_loss_and_error_are_sums_over_all_sequences(law: str, train: str):
    task = task_of(L=4, n=3, M=3, **LAWS[law], **JOINT | {"train": train})
    assert not np.asarray(task.start.W).any() or train == "both"
    zero = jnp.zeros((4, 4))
    weights = {
        "random": task.start,
        "cP, where much is tied": dl.Params(zero, jnp.asarray(3.0 * matrix(task.pi))),
        "zero, where all is": dl.Params(zero, zero),
    }
    for name, w in weights.items():
        loss, error, _ = measured(w, task)
        expected = plain_risks(w, task)
        np.testing.assert_allclose((loss, error), expected, rtol=1e-12, atol=1e-15, err_msg=name)
    assert float(measured(weights["zero, where all is"], task)[1]) == pytest.approx(1.0)


@by_law
@pytest.mark.parametrize("train", ["both", "value"])
def test_gradients_are_finite_differences(law: str, train: str):
    task = task_of(L=4, n=3, M=3, **LAWS[law], **JOINT | {"train": train})
    flat, back = ravel_pytree(task.start)
    ours, _ = ravel_pytree(measured(task.start, task)[2])
    steps = 1e-5 * np.eye(flat.size)
    slopes = [(loss_of(back(flat + e), task) - loss_of(back(flat - e), task)) / 2e-5 for e in steps]
    np.testing.assert_allclose(ours, slopes, rtol=1e-7, atol=1e-9)


@by_law
def test_batch_losses_have_the_population_loss_as_mean(law: str):
    task = task_of(L=4, n=3, M=3, **LAWS[law], **JOINT)

    @jax.jit
    def losses(key):
        tokens, truth = dl.sample(key, task, 20_000)
        one = jax.vmap(lambda s, y: dl.batch_loss(task.start, task, (s[None, :], y[None, :])))
        return tokens, truth, one(tokens, truth), dl.batch_loss(task.start, task, (tokens, truth))

    tokens, truth, each, together = losses(KEY)
    np.testing.assert_array_equal(truth, labels(task, tokens))
    assert_means(each, loss_of(task.start, task))
    np.testing.assert_allclose(together, each.mean(), rtol=1e-12)


# ---------------------------------------------------------------- one weight per list entry

SIZES: list[dict[str, Any]] = [
    {"L": 6, "n": 3, "M": 3},
    {"L": 5, "n": 5, "M": 4},
    {"L": 4, "n": 2, "M": 4},
    {"L": 7, "n": 6, "M": 6, "sequences": "all"},
    {"L": 5, "n": 3, "M": 3, "law": "iid"},
    {"L": 3, "n": 4, "M": 3, "law": "iid"},
]


def expanded(w: np.ndarray, task: Any) -> np.ndarray:
    """The matrix of one weight per list entry and one for the others."""
    W = np.zeros((len(task.pi), len(task.pi)))
    for a, one in enumerate(plain_lists(task)):
        W[:, a] = w[len(one) - 1, 0]
        W[one, a] = w[len(one) - 1, 1 : len(one) + 1]
    return W


@jax.jit
def by_length(w: jax.Array, task: lengths.LengthTask) -> tuple[jax.Array, ...]:
    parts = (lengths.losses, lengths.error, lengths.slope, lengths.margin, lengths.certified)
    return tuple(part(w, task) for part in parts)


@functools.cache
def both_tasks(**settings: Any) -> tuple[lengths.LengthTask, dl.Task]:
    """One task in few weights and in all of them."""
    p = dl.Preset(**settings)
    assert lengths.suffice(p)
    made = jax.jit(lambda *given: tuple(dl.make_task(KEY, p) for p in given))(p, p.replace(reduced=False))
    assert isinstance(made[0], lengths.LengthTask)
    assert isinstance(made[1], dl.Task)
    return made


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_one_weight_per_list_entry_is_the_full_model(size: dict[str, Any]):
    rng = np.random.default_rng(4)
    short, full = both_tasks(**size, c=6.0)
    np.testing.assert_array_equal(full.start.V, 6.0 * matrix(full.pi))
    rule = Rule(dl.Preset(**size), full.pi, full.lists, full.sizes)
    longest, sizes = len(short.there), np.asarray(full.sizes)
    shares = np.bincount(sizes - 1, minlength=longest) / len(sizes)
    np.testing.assert_allclose(short.shares, shares, rtol=1e-15)
    perfect = []
    for trial in range(24):
        falling = np.concatenate([[0.0], np.arange(longest, 0, -1.0)])
        gap = (0.0, 0.8, 2.0, 3.5)[trial % 4]
        w = gap * falling[None, :] + 0.4 * (trial > 0) * rng.normal(size=(longest, longest + 1))
        if trial % 8 == 1:  # later entries out of order, which need not decide anything
            w[:, 2:] = rng.normal(size=w[:, 2:].shape)
        losses, errors, slope, margin, certified = map(np.asarray, by_length(jnp.asarray(w), short))
        params = dl.Params(jnp.asarray(expanded(w, full)), full.start.V)
        loss, error, gradient = measured(params, full)
        np.testing.assert_allclose(losses[sizes - 1].mean(), loss, rtol=1e-10)
        np.testing.assert_allclose(errors[sizes - 1].mean(), error, rtol=1e-10, atol=1e-15)
        np.testing.assert_allclose(expanded(slope, full), gradient.W, rtol=1e-9, atol=1e-13)
        found = dl.certify(params.W, params.V, rule)
        assert found.perfect == (margin > 0) == certified, (w, found)
        perfect.append(found.perfect)
    assert not perfect[0], "W = 0 is tied"
    assert 0.2 < np.mean(perfect) < 0.9


def test_a_length_that_does_not_occur_does_not_move_nor_count():
    short, _ = both_tasks(**SIZES[0], c=6.0)
    only = short._replace(shares=jnp.zeros_like(short.shares).at[0].set(1.0))
    w = jnp.zeros((len(only.shares), len(only.shares) + 1)).at[0, 1].set(9.0)
    _, _, slope, margin, certified = by_length(w, only)
    assert not np.asarray(slope)[1:].any()
    assert np.asarray(slope)[0, 1] < 0
    assert certified
    assert float(margin) == 9.0
    assert not by_length(w, short)[-1]


@pytest.mark.parametrize(
    ("L", "n", "law"),
    [(2, 2, "distinct"), (6, 3, "distinct"), (6, 6, "distinct"), (40, 37, "distinct"), (3, 6, "iid"),
     (2, 2, "iid"), (9, 5, "iid")],
)  # fmt: skip
def test_orbits_are_all_sequences(L: int, n: int, law: str):
    longest = min(L, 6 if law == "distinct" else 4)
    entries, others, weights = lengths.orbits(L, n, law, longest)
    np.testing.assert_allclose(weights.sum(axis=1), 1.0, rtol=1e-12)
    real = weights > 0
    tokens = entries.sum(axis=2) + others @ np.arange(1, others.shape[2] + 1)
    assert np.all(tokens[real] == n)
    for m in range(1, longest + 1):
        assert np.all(others[m - 1].sum(axis=1)[real[m - 1]] <= L - m)
        assert np.all(entries[m - 1, real[m - 1], m - 1] >= 1)
        assert not entries[m - 1, real[m - 1], m:].any()


# ---------------------------------------------------------------- flows


@jax.jit
def advance(task: Any, state: Any, last: Any) -> Any:
    return dl.dynamics(task, task.preset).advance(KEY, state, jnp.asarray(0), last)


@pytest.mark.parametrize(
    ("settings", "last"),
    [({"L": 12, "n": 4, "M": 3}, 6000), ({"L": 6, "n": 3, "M": 3, "law": "iid"}, 20_000)],
    ids=["distinct", "iid"],
)
def test_the_flow_of_one_weight_per_list_entry_is_that_of_all_weights(settings: dict[str, Any], last: int):
    tasks = both_tasks(**settings, c=20.0, eta=1e-3)
    full = tasks[1]
    begins = [dl.dynamics(task, task.preset).init(KEY) for task in tasks]
    short, long = (
        advance(task, begin, jnp.asarray(last)) for task, begin in zip(tasks, begins, strict=True)
    )  # fmt: skip
    assert 10 < float(long.hit) < last
    np.testing.assert_allclose(short.hit, long.hit, rtol=1e-4)
    # Both stop there, where all sequences have just become right.
    np.testing.assert_allclose(expanded(np.asarray(short.params), full), long.params.W, rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(long.params.V, full.start.V)
    rule = Rule(dl.Preset(**settings), full.pi, full.lists, full.sizes)
    assert dl.certify(long.params.W, long.params.V, rule).perfect
    before = advance(full, begins[1], jnp.asarray(int(0.999 * float(long.hit))))
    assert float(before.hit) == -1
    assert not dl.certify(before.params.W, before.params.V, rule).perfect


def test_sizes_of_distinct_tokens_share_the_program_of_the_flow():
    advance: Any = PAPER.system.advance
    sizes = [(8, 4, 3), (24, 8, 2), (50, 48, 3), (9, 9, 5), (200, 3, 6)]
    before, losses = advance._cache_size(), []
    program = jax.tree.structure(PAPER.system.program(dl.Preset(L=8, n=4, M=3)))
    for L, n, M in sizes:
        p = dl.Preset(L=L, n=n, M=M)
        assert jax.tree.structure(PAPER.system.program(p)) == program
        run = rollout(PAPER.system, p, range(2), np.array([0, 10**9]))
        losses.append(float(run["loss"][0, -1]))
        assert np.all(run["hit"].values[:, -1] >= 0)
    assert advance._cache_size() <= before + 1
    assert len(set(losses)) == len(sizes)


# ---------------------------------------------------------------- masses


def plain_masses(rule: Rule) -> tuple[dict[str, float], dict[str, float]]:
    """Every reading of delta and gamma, from a table of all sequences around each query."""
    p, lists = rule.preset, plain_lists(rule)
    chance_of: dict[int, float] = defaultdict(float)
    table: dict[tuple[int, int], dict[tuple[int, ...], float]] = defaultdict(lambda: defaultdict(float))
    for s, chance in all_sequences(p):
        chance_of[s[0]] += chance
        decider = next(t for t in lists[s[0]] if t in s)
        table[s[0], decider][tuple(sorted(s))] += chance
    decides, rival, rarest, event = [], [], [], []
    for (a, decider), found in table.items():
        decides.append(sum(found.values()) / chance_of[a])
        rarest.append(min(found.values()) / chance_of[a])
        event.append(sum(found.values()))
        present = {u for s in found for u in s} - {decider}
        rival += [sum(q for s, q in found.items() if u in s) / chance_of[a] for u in present]
    token = min(chance_of.values())
    return (
        {"rival": min(rival), "decides": min(decides), "rarest": min(rarest)},
        {
            "token": token,
            "event": min(event),
            "token_squared": token**2,
            "rarest": min(q for found in table.values() for q in found.values()),
        },
    )


@by_law
@pytest.mark.parametrize("n", [2, 3, 4])
def test_masses_are_those_of_all_sequences(law: str, n: int):
    rng, compute = np.random.default_rng(n), jax.jit(masses.readings)
    p = dl.Preset(L=4, n=n, M=4, **LAWS[law])
    for _ in range(20):
        before = [rng.permutation(np.delete(np.arange(4), a))[: rng.integers(4)] for a in range(4)]
        lists = [[*one.tolist(), a] for a, one in enumerate(before)]
        given = p.replace(lists=str(lists), permutation="[1,0,3,2]")
        rule = draw_rule(KEY, given)._replace(preset=p)
        deltas, gammas = compute(rule)
        delta, gamma = plain_masses(rule)
        np.testing.assert_allclose(deltas, [delta[k] for k in masses.DELTAS], 1e-10, err_msg=str(lists))
        np.testing.assert_allclose(gammas, [gamma[k] for k in masses.GAMMAS], 1e-10, err_msg=str(lists))


def test_bound_and_scale_are_the_theorems():
    short, full = both_tasks(L=12, n=4, M=3, eta=1e-3)
    np.testing.assert_allclose(short.bounds[masses.GAMMAS.index("token")], 12 / (math.log(12) / 12), 1e-14)
    delta = float(full.delta[masses.DELTAS.index("rival")])
    np.testing.assert_allclose(full.c, 4 * 4 * math.log(12) / delta, rtol=1e-14)
    np.testing.assert_allclose(short.c, full.c, rtol=1e-14)
    np.testing.assert_allclose(short.bounds, full.bounds, rtol=1e-14)
    np.testing.assert_allclose(full.start.V, float(full.c) * matrix(full.pi), rtol=1e-14)


# ---------------------------------------------------------------- starts and curvature


@pytest.mark.parametrize("settings", [{}, {"epsilon": 2.0, "noise": 0.5}], ids=str)
def test_c_of_the_theorem_on_both_solves_its_equation(settings: dict[str, Any]):
    p = dl.PRESETS["tiny"].replace(theorems.WINDOW | {"step": "fixed"}, **settings)
    task = make_task(KEY, p)
    assert isinstance(task, dl.Task)
    L_0, delta = float(loss_of(task.start, task)), float(task.delta[masses.DELTAS.index(p.delta)])
    c, epsilon = float(task.c), float(task.epsilon)
    np.testing.assert_allclose(c, 10 * p.n**2 * L_0 / delta + 4 * epsilon * p.n, rtol=1e-8)
    np.testing.assert_allclose(epsilon, settings.get("epsilon", p.n * L_0 / 18), rtol=1e-8)
    off = np.abs(np.asarray(task.start.V) - c * matrix(task.pi)).max()
    assert 0.8 * p.noise * epsilon / 2 < off <= p.noise * epsilon / 2 * (1 + 1e-9)
    assert not np.asarray(task.start.W).any()


def test_conditions_of_the_theorem_on_both_are_met_at_quick():
    p = dl.PRESETS["quick"]
    A, room = theorems.own_room(p)
    assert room > 1
    assert A > 0
    assert all(a.holds(p) for a in theorems.training_W_and_V.assumes)


def test_where_c_has_no_solution_the_claim_is_out_of_regime():
    p = dl.Preset(L=5, n=3, M=2, law="iid")
    task = make_task(KEY, p.replace(theorems.WINDOW | {"step": "fixed"}))
    assert isinstance(task, dl.Task)
    assert np.isnan(task.c)
    assert np.isfinite(np.asarray(task.start.V)).all()
    claim = theorems.descent_classifies_in_window
    data = xr.Dataset({"loss": (("seed", "step"), np.ones((2, 2)))})
    verdict = judge(claim, data, preset=p)
    assert verdict.outcome == Outcome.OUT_OF_REGIME
    assert "c = 10 n^2 L_0/delta + 4 epsilon n is found by iteration" in verdict.unmet
    assert "found by iteration" in verdict.reason
    assert theorems.own_room(p)[1] == 0


@pytest.mark.parametrize(
    ("start", "train"), [("permutation", "both"), ("random", "both"), ("permutation", "attention")]
)
def test_the_step_is_in_units_of_the_largest_eigenvalue_of_the_hessian(start: str, train: str):
    settings: dict[str, Any] = {"sigma_0": 1.0, "c": 5.0, "epsilon": 1.0, "step": "curvature", "eta": 0.5}
    task = task_of(L=4, n=3, M=3, algorithm="descent", start=start, train=train, **settings)
    flat, back = ravel_pytree(task.start)
    H = np.asarray(jax.jit(jax.hessian(lambda x: loss_of(back(x), task)))(flat))
    moved = slice(flat.size // 2) if train == "attention" else slice(None)
    largest = np.linalg.eigvalsh(H[moved, moved]).max()
    np.testing.assert_allclose(task.rate, 0.5 / largest, rtol=1e-4)


def test_with_all_tokens_in_every_sequence_nothing_leaves_zero_but_equal_columns():
    p = dl.Preset(L=4, n=4, M=3, algorithm="descent", train="both", start="zero", eta=1.0, steps=40)
    run = rollout(PAPER.system, p, range(3), np.array([0, 40]))
    V, W = run["final_V"].values, run["final_W"].values
    assert np.abs(V).max() > 0.1
    np.testing.assert_allclose(V, np.broadcast_to(V[:, :, :1], V.shape), rtol=0, atol=1e-12)
    np.testing.assert_allclose(W, 0.0, atol=1e-12)
    assert not run["certified"].values.any()


# ---------------------------------------------------------------- settings

LISTS = "[[1,0],[1],[0,1,2]]"
THREE: dict[str, Any] = {"L": 3, "n": 2, "M": 3}
OWN = "law_of_my_own:draw"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"L": 8, "n": 4, "M": 20}, r"M takes a whole number <= L = 8, got M=20\."),
        ({"n": 1}, r"n takes a whole number >= 2.*got n=1\."),
        ({"L": 8, "n": 9}, r"n takes a whole number <= L = 8 for distinct tokens, got n=9\."),
        ({"L": 8, "n": 9, "law": "iid", "sequences": "distinct"}, r"n takes a whole number <= L = 8"),
        ({**THREE, "lists": "[[1,0],[1],[2,0]]"}, r"list of token 2 must end in 2 itself, got \[2, 0\]"),
        ({**THREE, "lists": "[[0],[0,0,1],[2]]"}, r"list of token 1 takes each token once, got \[0, 0, 1\]"),
        ({**THREE, "lists": "[[3,0],[1],[2]]"}, r"list of token 0 takes tokens 0 to 2, got \[3, 0\]"),
        ({**THREE, "lists": "[[-1,0],[1],[2]]"}, r"list of token 0 takes tokens 0 to 2"),
        ({**THREE, "lists": "[[1.0,0],[1],[2]]"}, r"list of token 0 takes tokens 0 to 2"),
        ({**THREE, "lists": "[[true,0],[1],[2]]"}, r"list of token 0 takes tokens 0 to 2"),
        ({**THREE, "lists": "[[],[1],[2]]"}, r"list of token 0 takes 1 to M = 3 tokens, got \[\]"),
        ({**THREE, "M": 2, "lists": LISTS}, r"list of token 2 takes 1 to M = 2 tokens, got \[0, 1, 2\]"),
        ({**THREE, "lists": "[[0],[1]]"}, r"lists takes a list for each of the L = 3 tokens"),
        ({**THREE, "lists": "7"}, r"lists takes a list for each of the L = 3 tokens, got lists=7\."),
        ({**THREE, "lists": "[[0],[1],2]"}, r"lists takes a list for each of the L = 3 tokens"),
        ({**THREE, "lists": "1,0;1"}, r"lists takes a list such as .*got lists=1,0;1\."),
        ({**THREE, "permutation": "[0,1,1]"}, r"permutation takes each of 0 to 2 once, got \[0,1,1\]\."),
        ({**THREE, "permutation": "[0,1]"}, r"permutation takes each of 0 to 2 once"),
        ({**THREE, "permutation": "[1,2,3]"}, r"permutation takes each of 0 to 2 once"),
        ({**THREE, "permutation": '["0","1","2"]'}, r"permutation takes each of 0 to 2 once"),
        ({**THREE, "permutation": "2 0 1"}, r"permutation takes a list such as \[2,0,1\]"),
        ({**THREE, "law": "iid", "probabilities": "0.5,0.5"}, r"takes L = 3 positive numbers .*got 0.5,0.5"),
        ({**THREE, "law": "iid", "probabilities": "0.5,0.4,0.2"}, r"positive numbers that sum to 1"),
        ({**THREE, "law": "iid", "probabilities": "0.5,0.5,0"}, r"positive numbers that sum to 1"),
        ({**THREE, "law": "iid", "probabilities": "a,b,c"}, r"positive numbers that sum to 1"),
        ({**THREE, "law": "iid", "probabilities": "nan,nan,nan"}, r"positive numbers that sum to 1"),
        ({**THREE, "law": "iid", "probabilities": "0.5,nan,0.5"}, r"positive numbers that sum to 1"),
        ({**THREE, "probabilities": "0.3,0.3,0.4"}, r"probabilities takes law=iid, got law=distinct\."),
        ({"L": 40, "n": 20, "reduced": False}, r"algorithm=flow needs an exact loss.*at L=40, n=20"),
        ({"L": 40, "n": 20, "algorithm": "descent", "loss": "exact"}, r"loss=exact takes .*loss=sampled"),
        ({"L": 100, "n": 50, "M": 32}, r"M=32, n=50 with law=distinct take 2.1e\+09 orbits"),
        ({"L": 100, "n": 60, "M": 8, "law": "iid"}, r"M=8, n=60 with law=iid take .* orbits"),
        ({"start": "zero"}, r"start=zero takes train=value or both"),
        ({"start": "random"}, r"start=random takes train=value or both"),
        ({"step": "curvature"}, r"step=curvature takes algorithm=descent"),
        ({"law": "zipf"}, r"law takes one of distinct, iid, or your own as module:function; got law=zipf"),
        ({"law": "nosuch_module:draw"}, r"law takes one of .*nosuch_module"),
        ({"c": -1.0}, r"c takes a number >= 0, got c=-1"),
    ],
    ids=str,
)  # fmt: skip
def test_what_does_not_go_together_is_refused(settings: dict[str, Any], message: str):
    with pytest.raises(SettingError, match=message):
        dl.Preset(**settings)
    with pytest.raises(SettingError, match=message):
        dl.Preset().replace(settings)


def test_given_lists_and_permutation_are_used():
    p = dl.Preset(**THREE, lists=LISTS, permutation="[2,0,1]")
    rule = draw_rule(KEY, p)
    assert plain_lists(rule) == [[1, 0], [1], [0, 1, 2]]
    assert np.asarray(rule.pi).tolist() == [2, 0, 1]
    assert rule.lists.shape[1] == width(p)
    task = task_of(**THREE, lists=LISTS, permutation="[2,0,1]", reduced=False)
    assert plain_lists(task) == [[1, 0], [1], [0, 1, 2]]
    np.testing.assert_array_equal(permutation_matrix(task), matrix([2, 0, 1]))
    # Another vocabulary has other lists; other lists are random again.
    assert (p.replace(L=4).lists, p.replace(L=4).permutation, p.replace(n=3).lists) == ("", "", LISTS)


@pytest.mark.parametrize("law", ["distinct", "iid"])
def test_lists_of_four_in_sequences_of_five_of_twelve_tokens_work(law: str):
    p = dl.Preset(L=12, n=5, M=4, law=law)
    assert p.loss == "exact"
    task = make_task(KEY, p)
    assert isinstance(task, lengths.LengthTask)
    w = jnp.zeros((len(task.there), len(task.there) + 1))
    losses, _, slope, _, certified = by_length(w, task)
    assert np.isfinite(np.asarray(losses)).all()
    assert np.asarray(slope)[:4][np.asarray(task.there)[:4], 1].max() < 0
    assert not certified


def own_law(body: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A law of one's own that returns `body`."""
    monkeypatch.syspath_prepend(folder)
    source = f"import jax\nimport jax.numpy as jnp\n\ndef draw(key, L, n):\n    return {body}\n"
    (folder / "law_of_my_own.py").write_text(source)
    importlib.invalidate_caches()
    sys.modules.pop("law_of_my_own", None)
    return OWN


def test_a_law_of_ones_own_is_trained_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    law = own_law("(jax.random.randint(key, (), 0, L) + jnp.arange(n)) % L", tmp_path, monkeypatch)
    settings: dict[str, Any] = {"algorithm": "descent", "train": "both", "start": "zero", "eta": 0.5}
    p = dl.Preset(L=6, n=3, M=2, law=law, batch=16, samples=32, steps=4, **settings)
    assert (p.loss, p.sequences) == ("sampled", "all")
    drawn = np.asarray(sequences.draw(KEY, p, 50))
    assert np.all((drawn[:, 1:] - drawn[:, :-1]) % 6 == 1)
    run = rollout(PAPER.system, p, range(2), np.array([0, 4]))
    assert np.all(run["diverged_at"].values == -1)
    assert np.all(run["loss"].values[:, 1] < run["loss"].values[:, 0])
    assert np.all(np.abs(run["final_V"].values).max(axis=(1, 2)) > 0)
    for more, message in [
        ({"algorithm": "flow"}, r"algorithm=flow takes law=distinct or iid, got law=law_of_my_own:draw"),
        ({"loss": "exact"}, r"loss=exact takes law=distinct or iid"),
        ({"probabilities": "0.5,0.1,0.1,0.1,0.1,0.1"}, r"probabilities takes law=iid"),
    ]:
        with pytest.raises(SettingError, match=message):
            p.replace(more)
    task = make_task(KEY, p.replace(start="permutation", c=3.0))
    assert isinstance(task, dl.Task)
    assert float(np.asarray(task.start.V).max()) > 2.0
    sys.modules.pop("law_of_my_own")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("jnp.zeros(n + 1, int)", r"law takes a function .*shape \(4,\), not \(3,\)"),
        ("1 + jax.random.randint(key, (n,), 0, L)", r"law takes tokens 0 to 5; .* draws 1 to 6"),
        ("jnp.zeros((n, 1), int)", r"law takes a function .*shape \(3, 1\), not \(3,\)"),
        ("jnp.zeros(n)", r"law takes a function .*n whole numbers.*gives float"),
    ],
)
def test_a_law_that_gives_no_tokens_is_refused(
    body: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    law = own_law(body, tmp_path, monkeypatch)
    with pytest.raises(SettingError, match=message):
        dl.Preset(L=6, n=3, M=2, law=law, algorithm="descent", train="both", start="zero", steps=2)
    sys.modules.pop("law_of_my_own")


def test_other_sizes_and_laws_bring_their_own_sequences_and_losses():
    p = dl.Preset()
    assert (p.sequences, p.loss) == ("distinct", "exact")
    assert p.replace(law="iid", n=5).sequences == "all"
    assert p.replace(law="iid", n=5, sequences="distinct").sequences == "distinct"
    large = p.replace(L=60, n=30)
    assert (large.loss, lengths.suffice(large)) == ("exact", True)
    assert large.replace(algorithm="descent").loss == "sampled"
    descent = p.replace(algorithm="descent")
    assert (descent.eta, descent.steps) == (dl.DESCENT_ETA, dl.DESCENT_STEPS)
    assert not lengths.suffice(p.replace(reduced=False))
    assert not lengths.suffice(p.replace(law="iid", L=4, n=3, probabilities=UNEVEN))
