"""The transformer, and the labels that it has to learn."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from descentlab.papers.decision_lists.setting import draw_sequences


class Params(NamedTuple):
    """The weights of the layer."""

    W: Float[Array, "L L"]
    V: Float[Array, "L L"]


def decided(rule: Any, queries: Int[Array, " q"], present: Array) -> Int[Array, " q"]:
    """The labels of query tokens, each with its own row of tokens that are present."""
    there = jnp.take_along_axis(present, rule.lists[queries], axis=1)
    first = jnp.argmax(there, axis=1)
    return rule.pi[jnp.take_along_axis(rule.lists[queries], first[:, None], axis=1)[:, 0]]


def labels(rule: Any, tokens: Int[Array, "batch n"]) -> Int[Array, "batch n"]:
    """The label at every position of sequences."""

    def one(s: Array) -> Array:
        present = jnp.any(s[None, :] == jnp.arange(rule.preset.L)[:, None], axis=1)
        return decided(rule, s, jnp.broadcast_to(present[None, :], (s.size, present.size)))

    return jax.vmap(one)(tokens)


def predict(task: Any, w: Params, tokens: Int[Array, "batch n"]) -> Float[Array, "batch n L"]:
    """The logits V X softmax(X'WX) at every position; V X (1 + X'WX)/n for linear attention."""
    scores = w.W[tokens[:, :, None], tokens[:, None, :]]
    linear = task.preset.attention == "linear"
    attention = (1 + scores) / tokens.shape[1] if linear else jax.nn.softmax(scores, axis=1)
    return jnp.einsum("kbi,bij->bjk", w.V[:, tokens], attention)


def sample(key: Key[Array, ""], task: Any, batch: int) -> tuple[Int[Array, "batch n"], Int[Array, "batch n"]]:
    """Fresh sequences and their labels."""
    tokens = draw_sequences(key, task.preset, batch)
    return tokens, labels(task, tokens)
