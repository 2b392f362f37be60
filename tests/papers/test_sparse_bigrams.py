"""sparse_bigrams: settings, ground truths, sampler and model.

The model is held against a plain loop with one-hot matrices, the sampler against exact moments. Expectations,
noise, runs and measures have files of their own.
"""

import functools
import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from scipy import stats

from descentlab.errors import SettingError
from descentlab.papers import sparse_bigrams as sb
from descentlab.papers.sparse_bigrams import tokens as model
from descentlab.papers.sparse_bigrams import truth

KEY = jax.random.key(17)
ALPHA = 1e-6
UNEVEN = "[0.5,0.3,0.2]"
LAWS = {"uniform": "", "uneven": UNEVEN}
by_law = pytest.mark.parametrize("law", LAWS)

SYSTEM = sb.PAPER.experiment.system
make_task = jax.jit(sb.make_task)
sampled = jax.jit(model.sample, static_argnums=(2, 3, 4))
predict, batch_loss, batch_slope = (
    jax.jit(f) for f in (model.predict, model.batch_loss, jax.grad(model.batch_loss))
)


@functools.cache
def task_of(**settings: Any) -> sb.Task:
    return make_task(KEY, sb.Preset(**settings))


def assert_means(draws: Any, expected: Any) -> None:
    """z-tests on the means of independent draws, which lie along the first axis."""
    draws, expected = np.asarray(draws, float), np.asarray(expected)
    error = draws.std(axis=0, ddof=1) / len(draws) ** 0.5
    gap = np.abs(draws.mean(axis=0) - expected)
    # What does not vary must be exact.
    z = np.where(error > 1e-12, gap / np.maximum(error, 1e-12), np.where(gap > 1e-9, np.inf, 0))
    assert np.all(2 * stats.norm.sf(z) > ALPHA), f"largest |z| = {z.max():.1f}"


# ---------------------------------------------------------------- ground truths


def laws(sizes: tuple[int, ...]) -> st.SearchStrategy[np.ndarray]:
    def law(N: int) -> st.SearchStrategy[np.ndarray]:
        return st.lists(st.floats(0.01, 1), min_size=N, max_size=N).map(lambda x: np.array(x) / np.sum(x))

    return st.sampled_from(sizes).flatmap(law)


coupled, chained = jax.jit(truth.coupling), jax.jit(truth.random_chain, static_argnums=2)
related = jax.jit(truth.related_chain)
by_examples = hypothesis_settings(max_examples=25, deadline=None, derandomize=True)


@by_examples
@given(st.data(), laws((2, 3, 5)))
def test_a_coupling_has_its_two_laws(data: st.DataObject, rows: np.ndarray):
    columns = data.draw(laws((len(rows),)))
    joint = np.asarray(coupled(jnp.asarray(rows), jnp.asarray(columns)))
    assert joint.min() >= 0
    np.testing.assert_allclose(joint.sum(axis=1), rows, rtol=0, atol=1e-14)
    np.testing.assert_allclose(joint.sum(axis=0), columns, rtol=0, atol=1e-14)
    # Driven by one uniform number, the later of one goes with the later of the other.
    for (i, j), (k, m) in itertools.product(np.argwhere(joint > 1e-12), repeat=2):
        assert (i - k) * (j - m) >= 0


@by_examples
@given(st.data(), laws((2, 3, 5)), st.integers(0, 10**6))
def test_a_random_chain_is_stochastic_and_keeps_its_law(data: st.DataObject, mu: np.ndarray, seed: int):
    successors = data.draw(st.integers(1, len(mu) - 1))
    P = np.asarray(chained(jax.random.key(seed), jnp.asarray(mu), successors))
    assert P.min() >= 0
    np.testing.assert_allclose(P.sum(axis=0), 1, rtol=0, atol=1e-13)
    np.testing.assert_allclose(P @ mu, mu, rtol=0, atol=1e-13)
    assert np.abs(P - mu[:, None]).max() > 1e-6, "there is something to learn"


@pytest.mark.parametrize(("N", "successors"), [(2, 1), (3, 2), (7, 3), (40, 5)])
def test_with_uniform_tokens_each_has_so_many_equally_likely_successors(N: int, successors: int):
    chains = [np.asarray(chained(jax.random.key(s), jnp.full(N, 1 / N), successors)) for s in range(4)]
    for P in chains:
        for axis in (0, 1):
            np.testing.assert_array_equal((P > 1e-9).sum(axis=axis), [successors] * N)
        np.testing.assert_allclose(P[P > 1e-9], 1 / successors, rtol=1e-12)
    assert N == 2 or any(np.abs(P - chains[0]).max() > 0.1 for P in chains[1:])


def weighted(X: np.ndarray, Y: np.ndarray, mu: np.ndarray) -> float:
    return float(np.sum(mu[None, :] * X * Y))


@by_examples
@given(laws((3, 5)), st.floats(-1, 1), st.integers(0, 10**6))
def test_a_related_chain_has_its_correlation_and_keeps_sums(mu: np.ndarray, correlation: float, seed: int):
    P = np.asarray(chained(jax.random.key(seed), jnp.asarray(mu), 1))
    drawn = related(jax.random.key(seed + 1), jnp.asarray(P), jnp.asarray(mu), jnp.asarray(correlation))
    near, U = np.asarray(drawn) - mu[:, None], P - mu[:, None]
    np.testing.assert_allclose(near.sum(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(near @ mu, 0, atol=1e-12)
    length = weighted(U, U, mu)
    np.testing.assert_allclose(weighted(near, near, mu), length, rtol=1e-9)
    np.testing.assert_allclose(weighted(near, U, mu) / length, correlation, atol=1e-9)
    if abs(correlation) == 1:
        np.testing.assert_allclose(near, correlation * U, atol=1e-9)


@pytest.mark.parametrize(("T", "Q", "weights"), [(5, 5, "random"), (9, 2, "equal"), (9, 3, "[0.6,0.4,0]")])
def test_positions_are_distinct_uniform_and_weighted(T: int, Q: int, weights: str):
    p = sb.Preset(T=T, Q=Q, weights=weights)
    tasks = jax.jit(jax.vmap(lambda key: sb.make_task(key, p)))(jax.random.split(KEY, 300))
    positions, given = np.asarray(tasks.positions), np.asarray(tasks.weights)
    assert positions.shape == given.shape == (300, 3, Q)
    assert np.all(np.diff(np.sort(positions, axis=2), axis=2) > 0)
    assert stats.chisquare(np.bincount(positions[:, :, 0].ravel(), minlength=T)).pvalue > ALPHA
    assert np.all(positions[:, 0] >= 0)
    assert np.all(positions < T)
    np.testing.assert_allclose(given.sum(axis=2), 1, rtol=1e-12)
    if weights == "random":
        assert np.all(given > 0)
        assert given.std(axis=(0, 1)).min() > 0.01
        assert np.all(given.min(axis=2) >= given.max(axis=2) * 2 / 3), "rounding keeps all of them"
    else:
        expected = [1 / Q] * Q if weights == "equal" else json.loads(weights)
        np.testing.assert_allclose(given, np.broadcast_to(expected, given.shape), rtol=1e-15)


def test_what_is_given_is_the_truth():
    P = [[0.6, 0.3, 0.4], [0.2, 0.6, 0.1], [0.2, 0.1, 0.5]]
    values, vectors = np.linalg.eig(np.array(P))
    law = np.real(vectors[:, np.argmax(np.real(values))])
    law = (law / law.sum()).tolist()
    task = make_task(KEY, sb.Preset(mu=str(law), P=str(P)))
    np.testing.assert_array_equal(task.P, P)
    np.testing.assert_array_equal(task.mu, law)
    single = make_task(KEY, sb.Preset(precision=32, start="transfer"))
    assert {x.dtype.name for x in (single.mu, single.P, single.weights, single.pretrained)} == {"float32"}


# ---------------------------------------------------------------- settings

SWAP = "[[0,1],[1,0]]"
HALF = "[[0.5,0.5],[0.5,0.5]]"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"T": 3, "Q": 4}, "Q takes a whole number <= T = 3, got Q=4."),
        ({"N": 1}, "N takes a whole number >= 2 and <= 2000, got N=1."),
        ({"T": 1}, "T takes a whole number >= 2 and <= 1e+07, got T=1."),
        ({"lam": -0.1}, "lam takes a number >= 0, got lam=-0.1."),
        ({"noise": -1.0}, "noise takes a number >= 0, got noise=-1.0."),
        ({"batch": 0}, "batch takes a whole number >= 1 and <= 1e+08, got batch=0."),
        ({"eta_1": 0.0}, "eta_1 takes a number > 0, got eta_1=0.0."),
        ({"correlation": 1.5}, "correlation takes a number >= -1 and <= 1, got correlation=1.5."),
        ({"algorithm": "adam"}, "algorithm takes one of sgd, proximal, population, simulated, got"),
        ({"successors": 3}, "successors takes a whole number < N = 3, got successors=3."),
        ({"successors": 0}, "successors takes a whole number >= 1, got successors=0."),
        # laws
        ({"mu": "[0.5,0.5]"}, "mu takes N = 3 positive numbers that sum to 1, got mu=[0.5,0.5]."),
        ({"mu": "[0.5,0.3,0.3]"}, "mu takes N = 3 positive numbers that sum to 1, got mu=[0.5,0.3,0.3]."),
        ({"mu": "[0.5,0.5,0]"}, "mu takes N = 3 positive numbers that sum to 1, got mu=[0.5,0.5,0]."),
        ({"mu": "[1.5,-1,0.5]"}, "mu takes N = 3 positive numbers that sum to 1, got mu=[1.5,-1,0.5]."),
        ({"mu": "half"}, "mu takes numbers such as [0.5,0.3,0.2], got mu=half."),
        ({"mu": "[0.5,NaN,0.5]"}, "mu takes numbers such as [0.5,0.3,0.2], got mu=[0.5,NaN,0.5]."),
        ({"mu": "{}"}, "mu takes numbers such as [0.5,0.3,0.2], got mu={}."),
        ({"mu": f"[1{'0' * 400},0,0]"}, "mu takes numbers such as [0.5,0.3,0.2], got mu=[10000000"),
        # chains
        ({"N": 2, "P": "[[1,0],[0]]"}, "P takes numbers such as [[0.9,0.1],[0.1,0.9]], got P=[[1,0],[0]]."),
        ({"N": 2, "P": "[1,0"}, "P takes numbers such as [[0.9,0.1],[0.1,0.9]], got P=[1,0."),
        ({"P": SWAP}, "P takes N = 3 rows of N numbers, got an array of shape (2, 2)."),
        ({"N": 2, "P": "[1,0]"}, "P takes N = 2 rows of N numbers, got an array of shape (2,)."),
        ({"N": 2, "P": "[[1.5,0],[-0.5,1]]"}, "P takes columns that are >= 0 and sum to 1, got"),
        ({"N": 2, "P": "[[0.5,0.4],[0.5,0.5]]"}, "columns that are >= 0 and sum to 1, got sums [1.0, 0."),
        ({"N": 2, "P": "[[0.9,0.2],[0.1,0.8]]"}, "P must keep mu, P mu = mu = [0.5, 0.5]; got P mu = [0.55"),
        ({"N": 2, "P": SWAP, "mu": "[0.6,0.4]"}, "P mu = mu = [0.6, 0.4]; got P mu = [0.4, 0.6]."),
        ({"N": 2, "P": HALF}, "P must differ from mu1', of which there is nothing to learn."),
        # weights
        ({"weights": "[0.5,0.6]"}, "weights takes equal, random, or Q = 2 numbers >= 0 that sum to 1, got"),
        ({"weights": "[1.5,-0.5]"}, "Q = 2 numbers >= 0 that sum to 1, got weights=[1.5,-0.5]."),
        ({"weights": "[1]"}, "Q = 2 numbers >= 0 that sum to 1, got weights=[1]."),
        ({"weights": "some"}, "weights takes numbers such as [0.6,0.4], got weights=some."),
        # what does not go together
        ({"weights": "[0.7,0.3]"}, "threshold takes a number <= 0.429, the least of weights=[0.7,0.3]"),
        ({"weights": "random", "threshold": 0.9}, "threshold takes a number <= 0.667"),
        (
            {"attention": "softmax", "algorithm": "proximal"},
            "attention=softmax takes algorithm=sgd or population, got algorithm=proximal.",
        ),
        (
            {"attention": "softmax", "algorithm": "simulated"},
            "attention=softmax takes algorithm=sgd or population, got algorithm=simulated.",
        ),
        ({"start": "line", "switch": 7.0}, "start=line takes switch <= QN = 6, got switch=7."),
        (
            {"N": 2, "successors": 1, "start": "transfer"},
            "correlation takes -1 or 1 for N = 2, got correlation=0.5.",
        ),
        ({"T": 10_000_000, "N": 2000}, "T=10000000, N=2000 take 1.76e+03 GB a seed, at most 16 are allowed."),
    ],
    ids=lambda x: "" if isinstance(x, str) else ",".join(f"{k}={str(v)[:12]}" for k, v in x.items()),
)  # fmt: skip
def test_what_cannot_be_is_refused_with_field_value_and_what_is_allowed(
    settings: dict[str, Any], message: str
):
    with pytest.raises(SettingError) as refused:
        sb.Preset(**settings)
    assert message in str(refused.value)


def test_what_is_at_the_edge_is_taken():
    sb.Preset(T=2, Q=2, N=2, successors=1, weights="[1,0]")
    sb.Preset(N=2, P=SWAP, successors=5)
    sb.Preset(N=2, successors=1, start="transfer", correlation=-1.0)
    sb.Preset(start="line", switch=6.0)
    sb.Preset(mu=UNEVEN, lam=0.0)
    assert truth.given_weights(sb.Preset(weights="random")) is None
    assert sb.Preset(T=1000, N=3, precision=32).needed_bytes * 2 == sb.Preset(T=1000, N=3).needed_bytes


def test_equal_weights_of_all_positions_leave_nothing_to_learn():
    # |Q - 11'/T| = 0, along which there is no signal a_A.
    with pytest.raises(SettingError, match="Q"):
        sb.Preset(T=4, Q=4, weights="equal")


def test_another_N_drops_law_and_chain_and_lowers_successors():
    p = sb.Preset(mu=UNEVEN, P="[[1,0,0],[0,1,0],[0,0,1]]", successors=2)
    q = p.replace(N="5")
    assert (q.N, q.mu, q.P, q.successors) == (5, "", "", 2)
    q = p.replace(N=2)
    assert (q.N, q.mu, q.P, q.successors) == (2, "", "", 1)
    q = p.replace(N="2", mu="[0.6,0.4]", P="[[1,0],[0,1]]", successors=1)
    assert (q.mu, q.P) == ("[0.6,0.4]", "[[1,0],[0,1]]")
    assert p.replace(Q=3).mu == UNEVEN


@pytest.mark.parametrize("word", [True, "true", "True", "yes", "on", "1"])
def test_at_scale_takes_the_sizes_of_the_scale(word: Any):
    p = sb.Preset(mu=UNEVEN, T_scale=7000, N_scale=6, batch_scale=99, switch=0.6)
    q = p.replace(at_scale=word)
    assert q.at_scale is True
    assert (q.T, q.N, q.batch, q.mu) == (7000, 6, 99, "")
    assert q.level == pytest.approx(p.level, rel=1e-12)
    again = q.replace(at_scale=True)
    assert again == q
    assert p.replace(at_scale=word, T=50).T == 50
    assert p.replace(at_scale=False) == p


def test_at_scale_has_no_more_successors_than_its_tokens_can_have():
    p = sb.Preset(N=10, successors=5, N_scale=3)
    assert p.replace(at_scale=True).successors == 2


def test_presets_by_name_are_sound_and_the_program_serves_all_starts():
    assert {"tiny", "quick", "paper", "scale"} <= set(sb.PRESETS)
    for p in sb.PRESETS.values():
        assert p.replace(at_scale=True).needed_bytes <= sb.MOST_BYTES
        assert 0 < p.level < 1
        steps = sb.records(p)
        assert steps[0] == 0
        assert steps[-1] == p.steps
        assert np.all(np.diff(steps) > 0)
    p = sb.PRESETS["tiny"]
    programs = [SYSTEM.program(p.replace(start=start)) for start in ("scratch", "line", "transfer")]
    assert len({jax.tree.structure(one) for one in programs}) == 1
    assert sb.records(p.replace(steps=1)).tolist() == [0, 1]


def descentlab(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "descentlab", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def test_the_command_line_refuses_before_anything_runs(tmp_path: Path):
    where = ["--store", str(tmp_path / "store")]
    for words, message in (
        (["--set", "Q=201"], "Q takes a whole number <= T = 200, got Q=201."),
        (["--set", "N=2", "--set", "P=[[0.9,0.2],[0.1,0.8]]"], "P must keep mu, P mu = mu = [0.5, 0.5];"),
    ):
        done = descentlab("run", "sparse_bigrams", "tiny", *words, *where)
        assert done.returncode == 2, done.stderr
        assert message in " ".join(done.stderr.replace("│", " ").split())
        assert done.stdout == ""
    assert not (tmp_path / "store").exists()


# ---------------------------------------------------------------- sampler


def drawn(task: sb.Task, count: int, T: int, uniform: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    batch = sampled(KEY, task, count, T, uniform)
    assert batch.x.shape == (count, T)
    return np.asarray(batch.x).astype(int), np.asarray(batch.k), np.asarray(batch.o)


@pytest.mark.parametrize("N", [2, 3, 17, 41, 256, 257])
def test_uniform_tokens_are_uniform_and_independent(N: int):
    per_word = max(n for n in range(1, 17) if N**n <= 2**16)
    mu, T = jnp.full(N, 1 / N), per_word + 3
    x = np.asarray(jax.jit(model.tokens, static_argnums=(2, 3))(KEY, mu, (20_000, T), True))
    assert x.dtype == (np.uint8 if N <= 256 else np.uint16)
    assert x.max() == N - 1
    x = x.astype(int)
    for t in range(T):
        assert stats.chisquare(np.bincount(x[:, t], minlength=N)).pvalue > ALPHA
    # Pairs of digits, of one word or two, in classes small enough to be full.
    coarse = x * min(N, 8) // N
    cells, classes = min(N, 8), np.bincount(np.arange(N) * min(N, 8) // N) / N
    for s, t in itertools.combinations(range(min(T, 6)), 2):
        table = np.bincount(coarse[:, s] * cells + coarse[:, t], minlength=cells**2)
        assert stats.chisquare(table, 20_000 * np.outer(classes, classes).ravel()).pvalue > ALPHA


@pytest.mark.parametrize("N", [2, 3])
def test_all_digits_of_a_word_are_jointly_uniform(N: int):
    count = {2: 12, 3: 8}[N]
    mu = jnp.full(N, 1 / N)
    # With so few positions in a row that each is one word's next digit.
    per_word = max(n for n in range(1, 17) if N**n <= 2**16)
    x = np.asarray(jax.jit(model.tokens, static_argnums=(2, 3))(KEY, mu, (400_000, per_word), True)).astype(
        int
    )
    for columns in (x[:, :count], x[:, -count:]):
        table = np.bincount(columns @ N ** np.arange(count), minlength=N**count)
        assert stats.chisquare(table).pvalue > ALPHA


@pytest.mark.parametrize(
    "law", [[0.5, 0.3, 0.2], [0.9, 0.05, 0.03, 0.02], list(np.arange(1, 31) / 465)], ids=len
)
def test_uneven_tokens_have_their_law(law: list[float]):
    x = np.asarray(jax.jit(model.tokens, static_argnums=(2, 3))(KEY, jnp.asarray(law), (40_000, 3), False))
    for t in range(3):
        assert (
            stats.chisquare(np.bincount(x[:, t], minlength=len(law)), 40_000 * np.array(law)).pvalue > ALPHA
        )
    N = len(law)
    pairs = np.bincount(x[:, 0].astype(int) * N + x[:, 1], minlength=N**2).reshape(N, N)
    assert_means(x[:, 0].astype(float) * x[:, 1], (np.arange(N) @ law) ** 2)
    if N < 5:
        assert stats.chisquare(pairs.ravel(), 40_000 * np.outer(law, law).ravel()).pvalue > ALPHA


@by_law
def test_samples_have_the_moments_of_the_task(law: str):
    T, n = 5, 60_000
    task = task_of(T=T, mu=LAWS[law], weights="random", successors=1 if law == "uniform" else 2)
    x, k, o = drawn(task, n, T, not LAWS[law])
    mu, P = np.asarray(task.mu), np.asarray(task.P)
    one_hot = np.eye(3)
    assert_means(one_hot[k], mu)
    assert_means(one_hot[o], mu)
    assert_means(one_hot[o][:, :, None] * one_hot[k][:, None, :], np.outer(mu, mu))
    for trigger in range(3):
        q = np.zeros(T)
        q[np.asarray(task.positions)[trigger]] = np.asarray(task.weights)[trigger]
        own = k == trigger
        assert_means(one_hot[o[own]], mu)
        S = np.diag(mu) - np.outer(mu, mu)
        for t in range(T):
            # E[e_o e_{x_t}'|k] = q_t P diag(mu) + (1 - q_t) mu mu'.
            joint = one_hot[o[own]][:, :, None] * one_hot[x[own, t]][:, None, :]
            assert_means(joint, np.outer(mu, mu) + q[t] * P @ S)
        # E[e_o h'|k] for h = X a.
        a = np.linspace(-1, 2, T)
        h = np.einsum("btn,t->bn", one_hot[x[own]], a)
        moment = np.outer(mu, mu) * a.sum() + (q @ a) * P @ S
        assert_means(one_hot[o[own]][:, :, None] * h[:, None, :], moment)
    # The next token given all tokens: P X q.
    chances = np.zeros((n, 3))
    for place in range(2):
        at = np.asarray(task.positions)[k, place]
        chances += np.asarray(task.weights)[k, place][:, None] * P.T[x[np.arange(n), at]]
    assert np.all(chances[np.arange(n), o] > 0)
    features = np.stack([np.ones(n), x[:, 0], x[:, 1] * x[:, 2], k, x[:, 3] * k], axis=1)
    assert_means((one_hot[o] - chances)[:, :, None] * features[:, None, :], np.zeros((3, 5)))


def test_samples_of_many_tokens_have_their_moments():
    task = task_of(T=4, N=300, Q=1, successors=2)
    x, k, o = drawn(task, 50_000, 4, True)
    seen = x[np.arange(50_000), np.asarray(task.positions)[k, 0]]
    chances = np.asarray(task.P)[o, seen]
    np.testing.assert_allclose(chances, 0.5, rtol=1e-9)
    assert stats.chisquare(np.bincount(k, minlength=300)).pvalue > ALPHA
    assert stats.chisquare(np.bincount(o, minlength=300)).pvalue > ALPHA
    # Of the two successors each comes as often.
    first = np.asarray(task.P).argmax(axis=0)
    assert_means(o == first[seen], 0.5)


# ---------------------------------------------------------------- model


def plain(
    V: np.ndarray, A: np.ndarray, batch: model.Batch
) -> tuple[np.ndarray, float, np.ndarray, np.ndarray]:
    """Outputs V X A e_k, the loss, and the gradients of V and A, with one-hot matrices."""
    N = len(A)
    one_hot = np.eye(N)
    out, loss, to_V, to_A = [], 0.0, np.zeros_like(V), np.zeros_like(A)
    for x, k, o in zip(np.asarray(batch.x), np.asarray(batch.k), np.asarray(batch.o), strict=True):
        X, a, B = one_hot[:, x], A.T @ one_hot[:, k], len(batch.k)
        y = V @ X @ a
        out.append(y)
        loss += 0.5 * np.sum((one_hot[:, o] - y) ** 2) / B
        r = y - one_hot[:, o]
        to_V += np.outer(r, X @ a) / B
        to_A += np.outer(one_hot[:, k], X.T @ V.T @ r) / B
    return np.array(out), loss, to_V, to_A


def random_weights(N: int, T: int, seed: int = 0) -> sb.Params:
    rng = np.random.default_rng(seed)
    return sb.Params(jnp.asarray(rng.normal(size=(N, N))), jnp.asarray(rng.normal(size=(N, T))))


SIZES = [(3, 6, 2), (17, 5, 3)]


@pytest.mark.parametrize("few", [0, 64], ids=["index", "masks"])
@pytest.mark.parametrize(("N", "T", "Q"), SIZES)
def test_the_model_is_the_plain_loop(N: int, T: int, Q: int, few: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(model, "FEW_TOKENS", few)
    p = sb.Preset(N=N, T=T, Q=Q, successors=1, batch=13)
    task, w = task_of(N=N, T=T, Q=Q, successors=1), random_weights(N, T)
    batch = sampled(KEY, task, 13, T, False)
    out, loss, to_V, to_A = plain(np.asarray(w.V), np.asarray(w.A), batch)

    @jax.jit
    def ours(w: sb.Params, batch: model.Batch) -> tuple[Any, ...]:
        total = model.summed_gradient(w.V, w.A, batch)
        slope = jax.grad(model.batch_loss)(w, batch, p)
        seen = model.outputs(w.V, w.A, batch).T, model.predict(w, (batch.x, batch.k))
        return *seen, model.batch_loss(w, batch, p), total, slope

    outputs, predicted, found, total, slope = ours(w, batch)
    np.testing.assert_allclose(outputs, out, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(found, loss, rtol=1e-12)
    np.testing.assert_allclose(predicted, out, rtol=1e-12, atol=1e-13)
    for gradient in (sb.Params(total.V / 13, total.A / 13), slope):
        np.testing.assert_allclose(gradient.V, to_V, rtol=1e-11, atol=1e-13)
        np.testing.assert_allclose(gradient.A, to_A, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("N", [3, 20])
@pytest.mark.parametrize(("few", "cached"), [(0, 2**14), (64, 2**14), (64, 25), (64, 40), (64, 5)])
def test_all_ways_through_the_tokens_are_one(N: int, few: int, cached: int, monkeypatch: pytest.MonkeyPatch):
    # Four sequences of 11 are counted by indexing; all at once; two and two; three and one; one by one.
    rng = np.random.default_rng(1)
    x, k = jnp.asarray(rng.integers(N, size=(4, 11)), "uint8"), jnp.asarray(rng.integers(N, size=4))
    A, g = jnp.asarray(rng.normal(size=(N, 11))), jnp.asarray(rng.normal(size=(4, N)))
    X = np.eye(N)[np.asarray(x)]
    monkeypatch.setattr(model, "FEW_TOKENS", few)
    monkeypatch.setattr(model, "CACHED", cached)
    h = np.einsum("btn,bt->bn", X, np.asarray(A[k]))
    np.testing.assert_allclose(model.gathered(A, model.Batch(x, k, k), N).T, h, rtol=0, atol=1e-14)
    np.testing.assert_array_equal(model.scattered(g.T, x), np.einsum("btn,bn->bt", X, g))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_largest_word_picks_nothing_of_probability_zero(dtype: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(model, "bits", lambda key, shape: jnp.full(shape, 2**32 - 1, "uint32"))
    task = task_of(T=6)
    first = jnp.zeros((3, 3), dtype).at[:2].set(0.5)  # the last token follows nothing
    task = task._replace(P=first, mu=task.mu.astype(dtype), weights=task.weights.astype(dtype))
    batch = model.sample(KEY, task, 5, 6, False)
    assert np.asarray(batch.o).max() == 1


def test_softmax_attention_is_the_softmax_of_each_triggers_logits():
    p = sb.Preset(N=3, T=6, attention="softmax", algorithm="sgd")
    task, w = task_of(T=6), random_weights(3, 6)
    batch = sampled(KEY, task, 13, 6, False)
    logits = np.asarray(w.A)
    A = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    out, loss, to_V, to_A = plain(np.asarray(w.V), A, batch)
    np.testing.assert_allclose(sb.attention(w.A, p), A, rtol=1e-13)
    np.testing.assert_allclose(predict(w, (batch.x, batch.k), p), out, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(batch_loss(w, batch, p), loss, rtol=1e-12)
    slope = batch_slope(w, batch, p)
    np.testing.assert_allclose(slope.V, to_V, rtol=1e-11, atol=1e-13)
    chain = [(np.diag(a) - np.outer(a, a)) @ g for a, g in zip(A, to_A, strict=True)]
    np.testing.assert_allclose(slope.A, chain, rtol=1e-11, atol=1e-13)
    np.testing.assert_array_equal(sb.attention(w.A, p.replace(attention="linear")), w.A)


# ---------------------------------------------------------------- batches


@pytest.mark.parametrize(("law", "batch"), [("uniform", 12), ("uneven", 12), ("uniform", 7)])
def test_a_cut_batch_is_the_mean_of_its_parts(law: str, batch: int, monkeypatch: pytest.MonkeyPatch):
    T = 10
    p = sb.Preset(T=T, mu=LAWS[law], batch=batch)
    task, w = task_of(T=T, mu=LAWS[law]), random_weights(3, T)
    for chunk in (2**22, 40):
        monkeypatch.setattr(model, "CHUNK", chunk)
        # A function of its own, so that what is compiled is for this size.
        found = jax.jit(lambda w, task: sb.batch_gradient(KEY, w.V, w.A, task, p))(w, task)
        largest = max(1, chunk // T)
        size = max(n for n in range(1, batch + 1) if batch % n == 0 and n <= largest)
        keys = [KEY] if size == batch else [jax.random.fold_in(KEY, i) for i in range(batch // size)]
        parts = [sampled(key, task, size, T, not LAWS[law]) for key in keys]
        whole = model.Batch(*(jnp.concatenate(x) for x in zip(*parts, strict=True)))
        _, _, to_V, to_A = plain(np.asarray(w.V), np.asarray(w.A), whole)
        np.testing.assert_allclose(found.V, to_V, rtol=1e-11, atol=1e-13)
        np.testing.assert_allclose(found.A, to_A, rtol=1e-11, atol=1e-13)


class Patient(int):
    """A number that does not let itself be divided for ever."""

    tries = 0

    def __mod__(self, other: int) -> int:
        type(self).tries += 1
        assert self.tries < 1000, f"no number of parts is found for a batch of {int(self)}"
        return int(self) % other


def test_a_sequence_longer_than_a_part_is_a_part(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(model, "CHUNK", 4)
    p, task, w = sb.Preset(T=10, batch=3), task_of(T=10), random_weights(3, 10)
    patient = p.unchecked(batch=Patient(3))
    found = jax.jit(lambda w, task: sb.batch_gradient(KEY, w.V, w.A, task, patient))(w, task)
    parts = [sampled(jax.random.fold_in(KEY, i), task, 1, 10, True) for i in range(3)]
    whole = model.Batch(*(jnp.concatenate(x) for x in zip(*parts, strict=True)))
    np.testing.assert_allclose(
        found.A, plain(np.asarray(w.V), np.asarray(w.A), whole)[3], rtol=1e-11, atol=1e-13
    )


def sizes_within(jaxpr: Any) -> list[int]:
    """The numbers of entries of all arrays that a program makes."""
    found = []
    for equation in jaxpr.eqns:
        found += [int(np.prod(v.aval.shape)) for v in equation.outvars if hasattr(v.aval, "shape")]
        for inside in jax.tree.leaves(
            equation.params, is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")
        ):
            inside = getattr(inside, "jaxpr", inside)
            if hasattr(inside, "eqns"):
                found += sizes_within(inside)
    return found


@pytest.mark.parametrize(
    ("N", "T", "batch", "mu"),
    [
        (3, 5000, 64, ""),
        (12, 400, 64, ""),
        (500, 4000, 256, ""),
        (500, 700, 10_000, ""),
        (3, 5000, 64, UNEVEN),
    ],
)
def test_no_array_of_tokens_times_positions_times_batch_is_built(N: int, T: int, batch: int, mu: str):
    p = sb.Preset(N=N, T=T, batch=batch, mu=mu, precision=32)
    task = jax.eval_shape(lambda: sb.make_task(KEY, p))
    w = jax.eval_shape(lambda: sb.Params(jnp.zeros((N, N), "float32"), jnp.zeros((N, T), "float32")))
    program = jax.make_jaxpr(lambda w, task: sb.batch_gradient(KEY, w.V, w.A, task, p))(w, task)
    largest = max(sizes_within(program.jaxpr))
    part = max(n for n in range(1, batch + 1) if batch % n == 0 and n * T <= model.CHUNK)
    # What is passed in and out, a part of the batch, one number a token for each of its sequences, and what
    # passes for each of few tokens keep in the cache.
    cached = N * model.CACHED if N <= model.FEW_TOKENS else 0
    assert largest <= max(N * T, N * N, part * T, part * N, cached)
    assert largest >= min(part * T, N * T), "programs within programs have been looked at"
