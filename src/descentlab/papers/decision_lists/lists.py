"""The rule: a permutation and a list for every token, drawn or given, and the labels that they decide."""

import functools
import json
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from descentlab.errors import SettingError


class Rule(NamedTuple):
    """A permutation and the lists, each filled up with its own token; `sizes` are their real lengths.

    A task has the same fields: functions of a rule take either.
    """

    preset: Any
    pi: Int[Array, " L"]
    lists: Int[Array, "L M"]
    sizes: Int[Array, " L"]


def width(p: Any) -> int:
    """Columns of `Rule.lists`: M, or enough that presets of small M share compiled programs."""
    return max(p.M, min(4, p.L))


def _parsed(field: str, text: str, example: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise SettingError(f"{field} takes a list such as {example}, got {field}={text}.") from None


@functools.lru_cache
def _lists(text: str, L: int, M: int) -> tuple[tuple[int, ...], ...]:
    found = _parsed("lists", text, "[[1,0],[1],[0,1,2]]")
    if not (isinstance(found, list) and len(found) == L and all(isinstance(one, list) for one in found)):
        raise SettingError(f"lists takes a list for each of the L = {L} tokens, got lists={text}.")
    for a, one in enumerate(found):
        whose = f"the list of token {a}"
        if not one or len(one) > M:
            raise SettingError(f"{whose} takes 1 to M = {M} tokens, got {one}.")
        if not all(type(t) is int and 0 <= t < L for t in one):
            raise SettingError(f"{whose} takes tokens 0 to {L - 1}, got {one}.")
        if len(set(one)) < len(one):
            raise SettingError(f"{whose} takes each token once, got {one}.")
        if one[-1] != a:
            raise SettingError(f"{whose} must end in {a} itself, got {one}.")
    return tuple(map(tuple, found))


def given_rule(p: Any) -> tuple[list[int] | None, tuple[tuple[int, ...], ...] | None]:
    """The permutation and the lists that the preset gives, or None; a SettingError if they are wrong."""
    pi = _parsed("permutation", p.permutation, "[2,0,1]") if p.permutation else None
    known = isinstance(pi, list) and sorted(map(repr, pi)) == sorted(map(repr, range(p.L)))
    if p.permutation and not known:
        raise SettingError(f"permutation takes each of 0 to {p.L - 1} once, got {p.permutation}.")
    return pi, _lists(p.lists, p.L, p.M) if p.lists else None


def shuffled(key: Key[Array, ""], count: int) -> Int[Array, " count"]:
    """0, ..., count - 1 in random order. One sort, which compiles faster than jax.random.permutation."""
    return jnp.argsort(jax.random.bits(key, (count,), "uint64"))


def draw_rule(key: Key[Array, ""], p: Any) -> Rule:
    """A random permutation and random lists, of lengths 1 to M, unless the preset gives them."""
    pi_key, size_key, list_key = jax.random.split(key, 3)
    tokens = jnp.arange(p.L)
    pi, lists = given_rule(p)
    permutation = shuffled(pi_key, p.L) if pi is None else jnp.asarray(pi, tokens.dtype)
    if lists is not None:
        full = [(*one, *[one[-1]] * (width(p) - len(one))) for one in lists]
        return Rule(p, permutation, jnp.asarray(full, tokens.dtype), jnp.asarray([len(one) for one in lists]))
    sizes = jax.random.randint(size_key, (p.L,), 1, p.M + 1, tokens.dtype)

    def entries(key: Key[Array, ""], a: Int[Array, ""], m: Int[Array, ""]) -> Int[Array, " M"]:
        # The first m - 1 of the other tokens in random order, then a itself.
        others = (a + 1 + shuffled(key, p.L - 1)) % p.L
        padded = jnp.concatenate([others, jnp.full(width(p), a)])[: width(p)]
        return jnp.where(jnp.arange(width(p)) < m - 1, padded, a)

    return Rule(p, permutation, jax.vmap(entries)(jax.random.split(list_key, p.L), tokens, sizes), sizes)


def permutation_matrix(rule: Any) -> Float[Array, "L L"]:
    """P, with P[pi(t), t] = 1."""
    return (jnp.arange(rule.pi.size)[:, None] == rule.pi[None, :]).astype(jnp.float64)


def earlier(entries: Int[Array, " M"], j: Int[Array, ""], L: int) -> Bool[Array, " L"]:
    """Which of the tokens come before the j-th entry of a list."""
    before = jnp.arange(entries.size) < j
    return jnp.any((entries[None, :] == jnp.arange(L)[:, None]) & before[None, :], axis=1)


def decided(rule: Any, queries: Int[Array, " q"], present: Array) -> Int[Array, " q"]:
    """The labels of query tokens, each with its own row of tokens that are present."""
    there = jnp.take_along_axis(present, rule.lists[queries], axis=1)
    first = jnp.argmax(there, axis=1)
    return rule.pi[jnp.take_along_axis(rule.lists[queries], first[:, None], axis=1)[:, 0]]


def labels(rule: Any, tokens: Int[Array, "batch n"]) -> Int[Array, "batch n"]:
    """The label at every position of sequences."""

    def one(s: Array) -> Array:
        present = jnp.any(s[None, :] == jnp.arange(rule.pi.size)[:, None], axis=1)
        return decided(rule, s, jnp.broadcast_to(present[None, :], (s.size, present.size)))

    return jax.vmap(one)(tokens)
