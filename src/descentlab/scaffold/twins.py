"""your_paper: four twins, and what the lab says of its claims.

Each part of the paper has a twin that is plainer: the sampler has exact moments, the model a loop, the fresh
batch an expectation, and the closed gradient `jax.grad`.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import descentlab.scaffold.your_paper as paper
from descentlab import running
from descentlab.judging import Claim, Mutant, Outcome
from descentlab.papers import load
from descentlab.store import Store

ALPHA = 1e-6  # of every z-test; seeds are fixed, so a test that passes goes on passing
SEEDS = 8
KEY = jax.random.key(7)
TASK = paper.make_task(KEY, paper.Preset(d=4, noise=0.5))


def assert_means(draws: np.ndarray, expected: np.ndarray) -> None:
    """z-tests on the means of independent draws, which lie along the first axis."""
    error = draws.std(axis=0, ddof=1) / len(draws) ** 0.5
    z = np.abs(draws.mean(axis=0) - expected) / error
    assert np.all(2 * stats.norm.sf(z) > ALPHA), f"largest |z| = {z.max():.1f}"


def test_the_sampler_has_the_moments_of_its_law():
    inputs, labels = map(np.asarray, paper.sample(KEY, TASK, 20_000))
    w_star, eigenvalues = np.asarray(TASK.w_star), np.asarray(TASK.eigenvalues)
    assert_means(inputs[:, :, None] * inputs[:, None, :], np.diag(eigenvalues))
    assert_means(labels[:, None] * inputs, eigenvalues * w_star)
    assert_means((labels - inputs @ w_star) ** 2, np.asarray(0.25))


def test_the_model_is_its_equation():
    inputs, _ = paper.sample(KEY, TASK, 5)
    w = np.arange(4.0)
    loop = [sum(w[j] * float(x[j]) for j in range(4)) for x in inputs]
    np.testing.assert_allclose(paper.predict(jnp.asarray(w), inputs), loop, rtol=1e-12)


def test_batch_gradients_have_the_population_gradient_as_their_mean():
    w = jnp.arange(4.0)
    keys = jax.random.split(KEY, 4000)
    slopes = jax.vmap(lambda key: jax.grad(paper.batch_loss)(w, paper.sample(key, TASK, 8)))(keys)
    assert_means(np.asarray(slopes), np.asarray(paper.gradient(w, TASK)))


def test_the_closed_gradient_is_that_of_the_loss():
    w = jnp.arange(4.0)
    np.testing.assert_allclose(
        paper.gradient(w, TASK), jax.grad(paper.excess_loss)(w, TASK), rtol=1e-12, atol=1e-12
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(Path(tmp_path_factory.mktemp("store")))


def test_the_claims_are_supported(store: Store):
    found = load("your_paper")
    for verdict in running.judge_paper(found, "tiny", found.preset("tiny"), SEEDS, store):
        assert verdict.outcome == Outcome.SUPPORTED, str(verdict)


@pytest.mark.parametrize(
    ("claim", "mutant"), [(claim, mutant) for claim in paper.main.claims for mutant in claim.mutants]
)
def test_mutants_are_refuted(claim: Claim, mutant: Mutant, store: Store):
    found = load("your_paper")
    verdict = running.judge_mutant(found, claim, mutant, found.preset("tiny"), SEEDS, store)
    assert verdict.outcome == Outcome.REFUTED, str(verdict)
