"""Is attention needed? Whether some V classifies perfectly with W = 0, decided exactly.

With W = 0 the output is the same at all positions of a sequence. So if two positions of some sequence
have different labels, no V is right on both. Such a sequence exists if and only if there are tokens a and
b with deciders a_i != b_j such that a, b, a_i, b_j fit into one sequence without any token that comes
earlier in either list. Otherwise the labels depend on the sequence alone, and whether a V gets them right
is a linear program, solved by adding the sequences on which its candidates fail.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from scipy import optimize

from descentlab.papers.decision_lists.certificate import certify
from descentlab.papers.decision_lists.setting import Rule


class Disagreement(NamedTuple):
    """Two tokens of one sequence, and the different tokens that decide for them; -1 where there are none."""

    a: Int[Array, ""]
    b: Int[Array, ""]
    a_i: Int[Array, ""]
    b_j: Int[Array, ""]
    pairs: Float[Array, ""]  # the share of pairs of tokens that disagree in some sequence


def disagreement(rule: Any) -> Disagreement:
    """Two tokens that some sequence labels differently, and the share of pairs for which there is one."""
    p, M = rule.preset, rule.lists.shape[1]
    tokens, entries = jnp.arange(p.L), jnp.arange(M)
    member = rule.lists[:, :, None] == tokens[None, None, :]
    # earlier[a, i, t]: whether t comes before a_i in the list of a.
    earlier = jnp.cumsum(member, axis=1) - member.astype(int) > 0
    possible = entries[None, :] < rule.sizes[:, None]

    def of(a: Int[Array, ""]) -> Bool[Array, "M L M"]:
        def pair(i: Array, b: Array, j: Array) -> Array:
            a_i, b_j = rule.lists[a, i], rule.lists[b, j]
            banned = earlier[a, i] | earlier[b, j]
            needed = (tokens == a) | (tokens == b) | (tokens == a_i) | (tokens == b_j)
            fits = ~jnp.any(banned & needed) & (jnp.sum(needed) <= p.n)
            if p.sequences == "distinct":
                fits = fits & (p.L - jnp.sum(banned) >= p.n)
            return fits & possible[a, i] & possible[b, j] & (a_i != b_j) & (a != b)

        over_j = jax.vmap(pair, (None, None, 0))
        over_b = jax.vmap(over_j, (None, 0, None))
        return jax.vmap(over_b, (0, None, None))(entries, tokens, entries)

    found = jax.lax.map(of, tokens)
    pairs = jnp.sum(jnp.any(found, axis=(1, 3)), dtype=jnp.float64) / (p.L * (p.L - 1))
    flat = jnp.argmax(found)
    a, i, b, j = jnp.unravel_index(flat, found.shape)
    none = ~jnp.any(found)

    def known(x: Array) -> Array:
        return jnp.where(none, -1, x)

    return Disagreement(known(a), known(b), known(rule.lists[a, i]), known(rule.lists[b, j]), pairs)


@jax.jit
def _compiled(rule: Rule) -> Disagreement:
    return disagreement(rule)


class Needed(NamedTuple):
    """Whether attention is needed: a sequence with two labels that says so, or a V that needs none.

    Where the labels depend on the sequence alone and still no V gets them right, there is neither.
    """

    needed: bool
    sequence: tuple[int, ...] = ()
    V: np.ndarray | None = None


def attention_needed(rule: Any) -> Needed:
    """Whether every V fails with W = 0; exact."""
    found = _compiled(Rule(*(getattr(rule, name) for name in Rule._fields)))
    if found.a >= 0:
        return Needed(True, _example(rule, found))
    return _by_linear_program(rule)


def _example(rule: Any, found: Disagreement) -> tuple[int, ...]:
    """A sequence with both tokens and their deciders, and nothing that either list puts before these."""
    p, lists = rule.preset, np.asarray(rule.lists)
    needed = list(dict.fromkeys(int(t) for t in found[:4]))
    banned = set()
    for query, decider in ((found.a, found.a_i), (found.b, found.b_j)):
        own = lists[int(query)].tolist()
        banned |= set(own[: own.index(int(decider))])
    if p.sequences == "all":
        return tuple(needed + needed[:1] * (p.n - len(needed)))
    more = [t for t in range(p.L) if t not in banned and t not in needed]
    return tuple((needed + more)[: p.n])


def _by_linear_program(rule: Any, rounds: int = 10_000) -> Needed:
    """A V with a margin of 1 on every sequence, by adding the sequences on which candidates fail."""
    L = rule.preset.L
    W, V, rows = np.zeros((L, L)), np.zeros((L, L)), []
    for _ in range(rounds):
        found = certify(W, V, rule)
        if found:
            return Needed(False, V=V)
        counts = np.bincount(found.sequence, minlength=L).astype(float)
        for rival in range(L):
            if rival != found.right:
                row = np.zeros((L, L))
                row[rival], row[found.right] = counts, -counts
                rows.append(row.ravel())
        # The least largest entry, which has a solution of moderate size if there is any.
        cost = np.append(np.zeros(L * L), 1.0)
        bound = np.hstack([np.vstack([np.eye(L * L), -np.eye(L * L)]), -np.ones((2 * L * L, 1))])
        cuts = np.hstack([np.array(rows), np.zeros((len(rows), 1))])
        limits = np.concatenate([np.zeros(2 * L * L), -np.ones(len(rows))])
        solved = optimize.linprog(cost, np.vstack([bound, cuts]), limits, bounds=(None, None))
        if solved.status == 2:
            return Needed(True)
        if solved.status != 0:
            raise ArithmeticError(f"The linear program failed: {solved.message}")
        V = solved.x[:-1].reshape(L, L)
    raise ArithmeticError(f"No answer after {rounds} rounds of the linear program.")
