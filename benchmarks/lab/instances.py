"""What the reference needs of seed 0, as `rollout` makes it: ground truth, start, batches to check with."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from descentlab.papers import (
    attention_kernels,
    bilinear_teachers,
    decision_lists,
    sign_descent,
    sparse_bigrams,
)
from descentlab.papers.attention_kernels import transformer
from descentlab.papers.decision_lists import sequences
from descentlab.papers.sparse_bigrams import noise, tokens

Arrays = dict[str, Any]


def keys() -> tuple[jax.Array, jax.Array, jax.Array]:
    """The keys of seed 0 as `rollout` makes them: of the task, the start and the steps (System._row)."""
    task, start, step = jax.random.split(jax.random.fold_in(jax.random.key(0), 0), 3)
    return task, start, step


def of_step(step: int) -> jax.Array:
    """The key of a step (Dynamics.advance)."""
    return jax.random.fold_in(keys()[2], step)


def signals(p: sign_descent.Preset, steps: int) -> Arrays:
    """Data and start with all coordinates. Labels, which the laboratory absorbs into the noise, are drawn."""
    instance = sign_descent.make_instance(keys()[0], p)
    arrays: Arrays = {"eta": p.eta, "signal": p.signal, "sign": p.optimizer == "sign"}
    labels = np.random.default_rng(0)
    for part, zeta in (("train", np.asarray(instance.zeta)), ("test", np.asarray(instance.zeta_test))):
        y = labels.choice([-1.0, 1.0], len(zeta))
        arrays |= {f"{part}_noise": y[:, None] * zeta, f"{part}_y": y}
    w = instance.start
    return arrays | {"W_Q": w.Q, "W_K": w.K, "W_V": w.V}


def teacher(p: bilinear_teachers.Preset, steps: int) -> Arrays:
    """A teacher and the weights: at the start if random, else after a step, as zero has no slope."""
    task_key, start_key, step_key = keys()
    task = bilinear_teachers.make_task(task_key, p)
    assert isinstance(task, bilinear_teachers.Task)
    dynamics = bilinear_teachers.dynamics(task, p)
    begins = jnp.asarray(0 if p.start == "gaussian" else 1)
    w = dynamics.advance(step_key, dynamics.init(start_key), jnp.asarray(0), begins).params
    return {"V": task.V, "S": task.S, "W_V": w.W_V, "A": w.A, "eta": p.eta}


def teacher_with_batches(p: bilinear_teachers.Preset, steps: int) -> Arrays:
    """The same with batches, in which a sample is a (d, D) matrix."""
    task = bilinear_teachers.make_task(keys()[0], p)
    assert isinstance(task, bilinear_teachers.Task)
    drawn = [bilinear_teachers.sample(of_step(t), task, p.batch) for t in range(1, steps)]
    X, Y = (jnp.stack([jnp.moveaxis(batch[i], 1, 0) for batch in drawn]) for i in range(2))
    return teacher(p, steps) | {"X": X, "Y": Y, "noise": p.noise, "batch": p.batch}


def bigrams(p: sparse_bigrams.Preset) -> tuple[sparse_bigrams.Task, Arrays]:
    """A ground truth."""
    task = sparse_bigrams.make_task(keys()[0], p)
    given = {"positions": task.positions, "weights": task.weights, "T": p.T, "eta": p.eta_1}
    level = p.level if p.start == "line" else 0.0
    return task, {"mu": task.mu, "P": task.P, "level": level, **given}


def bigrams_with_batches(p: sparse_bigrams.Preset, steps: int) -> Arrays:
    """A ground truth, and tokens, triggers and next tokens."""
    task, arrays = bigrams(p)
    drawn = [tokens.sample(of_step(t), task, p.batch, p.T, uniform=True) for t in range(steps)]
    given = {name: np.stack([np.asarray(getattr(batch, name)) for batch in drawn]) for name in "xko"}
    return arrays | {"batch": p.batch} | given


def bigrams_with_noise(p: sparse_bigrams.Preset, steps: int) -> Arrays:
    """A ground truth, and the white noise of simulated batches."""
    task, arrays = bigrams(p)
    found: dict[str, list[np.ndarray]] = {"triggers": [], "values": [], "entries": []}
    for t in range(steps):
        V_key, A_key, k_key = jax.random.split(of_step(t), 3)
        found["triggers"].append(np.asarray(jax.random.normal(k_key, (1, p.N), task.mu.dtype)))
        found["values"].append(np.asarray(jax.random.normal(V_key, (3 * p.N, p.N), task.mu.dtype)))
        found["entries"].append(np.asarray(noise.white_rows(A_key, p.N, p.T)))
    stacked = {name: np.stack(values) for name, values in found.items()}
    own = {"root": task.root, "batch": p.batch / p.noise, "eta": p.eta_2, "lam": p.lam}
    return arrays | own | stacked


def lists(p: decision_lists.Preset, steps: int) -> Arrays:
    """A rule as a table of counts with their labels, and V = cP."""
    # The task with all weights: the rule and c are those of the reduced one.
    task = decision_lists.make_task(keys()[0], p.replace({"reduced": False}))
    assert isinstance(task, decision_lists.Task)
    counts, weights = sequences.others(p.L, p.n, p.law, (1 / p.L,) * p.L)
    return {"counts": counts, "weights": weights, "truth": task.truth, "V": task.start.V, "eta": p.eta}


def heads(p: attention_kernels.Preset, steps: int) -> Arrays:
    """Data, W^O, start and step size of the theory problem."""
    task = attention_kernels.make_task(keys()[0], p)
    w = task.start
    given = {"rate": task.rate, "kernel": p.kernel}
    return {"X": task.X, "y": task.y, "W_O": task.W_O, "Q": w.Q, "K": w.K, "V": w.V} | given


def texts(p: transformer.Preset, steps: int) -> Arrays:
    """Examples, the start of every weight by its name, and which examples each step takes."""
    task_key, start_key, _ = keys()
    examples = transformer.data(p)
    found: Arrays = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(transformer.begin(start_key, p)):
        found["w." + jax.tree_util.keystr(path, simple=True, separator=".")] = leaf
    drawn = [
        jax.random.randint(jax.random.split(of_step(t))[0], (p.batch,), 0, len(examples.train))
        for t in range(steps)
    ]
    seen = transformer.make_task(task_key, p, examples).seen
    given = {"kernel": p.kernel, "patch": p.patch, "layers": p.layers, "batch": p.batch, "eta": p.eta}
    given |= {"warmup": p.warmup, "horizon": p.horizon, "seen": seen, "chosen": jnp.stack(drawn)}
    return found | examples._asdict() | given


INSTANCES: dict[tuple[str, str], Callable[[Any, int], Arrays]] = {
    ("sign_descent", ""): signals,
    ("bilinear_teachers", "population"): teacher,
    ("bilinear_teachers", "online"): teacher_with_batches,
    ("sparse_bigrams", "online"): bigrams_with_batches,
    ("sparse_bigrams", "simulated"): bigrams_with_noise,
    ("decision_lists", ""): lists,
    ("attention_kernels", "theory"): heads,
    ("attention_kernels", "transformer"): texts,
}
