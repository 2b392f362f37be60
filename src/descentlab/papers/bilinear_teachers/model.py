"""The teacher, the position-only student and the full one, as functions of their parameters."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, ScalarLike

from descentlab.papers.bilinear_teachers.setting import Preset, Task, bend, inputs, label_noise


@jax.custom_jvp
def activation(z: Float[Array, "*n"], k: ScalarLike, at_zero: ScalarLike) -> Float[Array, "*n"]:
    """s(z): z above zero and k z below."""
    return jnp.where(z > 0, z, k * z)


@activation.defjvp
def _slope(primals, tangents):
    z, k, at_zero = primals
    slope = jnp.where(z > 0, 1.0, jnp.where(z < 0, k, at_zero)).astype(z.dtype)
    return activation(z, k, at_zero), slope * tangents[0]


def attention(A: Float[Array, "D D"], kernel: str = "softmax") -> Float[Array, "D D"]:
    """Attention scores, softmax by columns; or linear ones, 1 + x for exp(x) and D for its sum."""
    D = A.shape[0]
    if kernel == "linear":
        return (1 + A / D**0.5) / D
    # Scaled after the largest entry is taken off, which saves a pass over what is nearly all of a step.
    weights = jnp.exp((A - jax.lax.stop_gradient(jnp.max(A, axis=0, keepdims=True))) / D**0.5)
    return weights / jnp.sum(weights, axis=0, keepdims=True)


class Student(NamedTuple):
    """The printed parameters of the position-only student, and its activation."""

    W_V: Float[Array, "M d"]
    W_KQ: Float[Array, "D D"]
    P: Float[Array, "D D"]
    k: ScalarLike


def predict(student: Student, X: Float[Array, "d D"]) -> Float[Array, "M D"]:
    """TF(X) of the position-only student as printed."""
    S = attention(student.P.T @ student.W_KQ @ student.P)
    return activation(student.W_V @ X @ S, student.k, 1.0)


class Params(NamedTuple):
    """The position-only student in the coordinates it is trained in: A = P' W_KQ P."""

    W_V: Float[Array, "M d"]
    A: Float[Array, "D D"]


class FullParams(NamedTuple):
    """The full student: W_V on [features, positions], W_KQ likewise."""

    W_V: Float[Array, "M d+D"]
    W_KQ: Float[Array, "d+D d+D"]


def printed(w: Params, task: Task) -> Student:
    """The trained position-only student with its printed parameters, W_KQ = P'^-1 A P^-1."""
    R = task.P if task.preset.encoding != "gaussian" else jnp.linalg.inv(task.P).T
    return Student(w.W_V, R @ w.A @ R.T, task.P, bend(task.preset)[0])


def outputs(W: Float[Array, "M d"], S: Float[Array, "D D"], X: Float[Array, "d N D"], p: Preset) -> Array:
    """s(W X S) of N samples, (M, N, D), as two plain matrix products."""
    d, N, D = X.shape
    mixed = (W @ X.reshape(d, N * D)).reshape(-1, D) @ S
    return activation(mixed.reshape(-1, N, D), *bend(p))


def full_outputs(w: FullParams, X: Float[Array, "d N D"], task: Task) -> Array:
    """s(W_V Z softmax(Z' W_KQ Z / sqrt(D))) of N samples, (M, N, D), with Z = [X; P].

    Written in blocks, since P is the same for all samples: the logit of key i for query j is
    x_i' (W_11 x_j + W_12 p_j) + (P' W_21 x_j)_i + (P' W_22 P)_ij. Queries are rows, keys come last.
    """
    (d, N, D), P = X.shape, task.P
    (W_11, W_12), (W_21, W_22) = ((row[:, :d], row[:, d:]) for row in (w.W_KQ[:d], w.W_KQ[d:]))
    rows = jnp.transpose(X, (1, 2, 0)).reshape(N * D, d)
    wanted = (rows @ W_11.T).reshape(N, D, d) + (W_12 @ P).T[None]
    by_position = (rows @ (P.T @ W_21).T).reshape(N, D, D) + (P.T @ W_22 @ P).T[None]
    logits = jnp.einsum("njf,nif->nji", wanted, rows.reshape(N, D, d)) + by_position
    scores = jax.nn.softmax(logits / D**0.5, axis=2)
    values = (rows @ w.W_V[:, :d].T).reshape(N, D, -1) + (w.W_V[:, d:] @ P).T[None]
    mixed = jnp.einsum("nji,nim->njm", scores, values)
    return activation(jnp.transpose(mixed, (2, 0, 1)), *bend(task.preset))


def teacher(task: Task, X: Float[Array, "d N D"]) -> Float[Array, "M N D"]:
    """f*(X) of N samples."""
    return outputs(task.V, task.S, X, task.preset)


def student(w: Params | FullParams, task: Task, X: Float[Array, "d N D"]) -> Float[Array, "M N D"]:
    """TF(X) of N samples, position-only or full."""
    if isinstance(w, FullParams):
        return full_outputs(w, X, task)
    return outputs(w.W_V, attention(w.A, task.preset.attention), X, task.preset)


def sample(
    key: Key[Array, ""], task: Task, batch: int
) -> tuple[Float[Array, "d batch D"], Float[Array, "M batch D"]]:
    """Fresh samples (X, Y), Y = f*(X) + E; the batch is the middle axis."""
    X_key, E_key = jax.random.split(key)
    X = inputs(X_key, task, batch)
    return X, teacher(task, X) + label_noise(E_key, task, batch)
