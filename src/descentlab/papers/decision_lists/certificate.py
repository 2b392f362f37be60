"""Certificates: what holds on every sequence, decided exactly without visiting them.

Is every sequence classified right? For a query a with label-determining token a_j, the right label y beats
label k on a sequence with n_t tokens t if and only if

    sum_t n_t g_t > 0,    g_t = exp(W[t, a]) (V[y, t] - V[k, t]),

which is linear in the counts. The sequences in question have a and a_j, none of a_1, ..., a_{j-1}, and
are free otherwise. So the worst has one a, one a_j, and only copies of the token with the least g; or,
of distinct tokens, those with the least g. That is a minimum over L M L labels, however many sequences.

`surely` does this with floating-point numbers and a bound on their rounding. `certify` settles what is
too close to call in exact arithmetic: g is a combination of exponentials of rational numbers, which are
linearly independent (Lindemann and Weierstrass), so it vanishes only if its collected coefficients do,
and otherwise enough digits tell its sign. A tie is not a correct answer.

Is attention needed, or does some V classify perfectly with W = 0? Then the output is the same at all
positions of a sequence. So if two positions of some sequence have different labels, no V is right on both.
Such a sequence exists if and only if there are tokens a and b with deciders a_i != b_j such that
a, b, a_i, b_j fit into one sequence without any token that comes earlier in either list (`disagreement`).
Otherwise the labels depend on the sequence alone, and whether a V gets them right is a linear program, solved
by adding the sequences on which its candidates fail (`attention_needed`).
"""

import decimal
import functools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from scipy import optimize

from descentlab.errors import SettingError
from descentlab.papers.decision_lists.lists import Rule, earlier


def worst(W: Array, V: Array, rule: Any) -> tuple[Float[Array, "L M"], Float[Array, "L M"]]:
    """For each query and deciding entry: the least sum over labels and sequences, and its rounding.

    Weights are relative to the largest of the column. The sum is +inf where the entry cannot decide.
    """
    p = rule.preset

    def entry(a: Array, entries: Array, size: Array, j: Array) -> tuple[Array, Array]:
        tokens = jnp.arange(p.L)
        decider, y = entries[j], rule.pi[entries[j]]
        weights = jnp.exp(W[:, a] - jnp.max(W[:, a]))
        g = weights[None, :] * (V[y][None, :] - V)
        banned = earlier(entries, j, p.L)
        must = (tokens == a) | (tokens == decider)
        room = p.n - jnp.sum(must)
        base = jnp.sum(jnp.where(must[None, :], g, 0.0), axis=1)
        size_of_base = jnp.sum(jnp.where(must[None, :], jnp.abs(g), 0.0), axis=1)
        if p.sequences == "distinct":
            free = ~(banned | must)
            least = jnp.sort(jnp.where(free[None, :], g, jnp.inf), axis=1)
            taken = jnp.arange(p.L) < room
            rest = jnp.sum(jnp.where(taken[None, :], least, 0.0), axis=1)
            size_of_rest = jnp.sum(jnp.where(taken[None, :], jnp.abs(least), 0.0), axis=1)
            occurs = jnp.sum(free) >= room
        else:
            least = jnp.min(jnp.where(banned[None, :], jnp.inf, g), axis=1)
            copies = room.astype(g.dtype)
            rest, size_of_rest = copies * least, copies * jnp.abs(least)
            occurs = jnp.bool(True)
        occurs = occurs & (room >= 0) & (j < size)
        sums = jnp.where(tokens == y, jnp.inf, base + rest)
        # Relative to all terms, and what is lost where weights underflow.
        kind = jnp.finfo(g.dtype)
        ulps = 2 * (8 + p.n + 2 * jnp.max(jnp.abs(W[:, a])))
        lost = 4 * p.n * kind.tiny * (1 + jnp.max(jnp.abs(V)))
        error = jnp.where(tokens == y, 0.0, (size_of_base + size_of_rest) * ulps * kind.eps + lost)
        sure = jnp.argmin(sums - error)
        return jnp.where(occurs, sums[sure], jnp.inf), jnp.where(occurs, error[sure], 0.0)

    def query(given: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        return jax.vmap(lambda j: entry(*given, j))(jnp.arange(rule.lists.shape[1]))

    return jax.lax.map(query, (jnp.arange(p.L), rule.lists, rule.sizes))


_worst = jax.jit(worst)


def margin(W: Float[Array, "L L"], V: Float[Array, "L L"], rule: Any) -> Float[Array, ""]:
    """The least sum over all queries, less its rounding: positive only if all sequences are right."""
    least, rounding = worst(W, V, rule)
    return jnp.min(least - rounding)


def surely(W: Float[Array, "L L"], V: Float[Array, "L L"], rule: Any) -> Bool[Array, ""]:
    """Whether all sequences are classified right, beyond what rounding could change."""
    return margin(W, V, rule) > 0


# ---------------------------------------------------------------- exactly


@dataclass(frozen=True)
class Certificate:
    """What `certify` found. On failure: a sequence, the position of its query, the right label and the rival.

    `margin` is the least sum in floating point, relative to the largest weight of a query.
    """

    perfect: bool
    margin: float
    sequence: tuple[int, ...] = ()
    position: int = -1
    right: int = -1
    rival: int = -1

    def __bool__(self) -> bool:
        return self.perfect

    def __str__(self) -> str:
        if self.perfect:
            return "every sequence is classified right"
        query = self.sequence[self.position]
        return (
            f"{list(self.sequence)} is misclassified at token {query}: "
            f"label {self.rival} is not below the right label {self.right}"
        )


def certify(W: Any, V: Any, rule: Any) -> Certificate:
    """Whether softmax(V X softmax(X'WX)) classifies every sequence right; otherwise one that it does not.

    `rule` is a task of this paper or a `Rule`; all L^n sequences count, or all of distinct tokens
    (`preset.sequences`). The decision is exact for the numbers given.
    """
    p = rule.preset
    W, V = np.asarray(W, float), np.asarray(V, float)
    for name, X in (("W", W), ("V", V)):
        if X.shape != (p.L, p.L) or not np.isfinite(X).all():
            raise SettingError(f"{name} takes {p.L} x {p.L} finite numbers, got shape {X.shape}.")
    arrays = (jnp.asarray(x) for x in (rule.pi, rule.lists, rule.sizes))
    margins, roundings = map(np.asarray, _worst(W, V, Rule(p, *arrays)))
    least = float(margins.min())
    # The worst first, so that a failure is reported where it is plainest.
    order = np.argsort(margins, axis=None, kind="stable")
    for a, j in zip(*np.unravel_index(order, margins.shape), strict=True):
        if margins[a, j] <= roundings[a, j] and (failure := _failure(W, V, rule, int(a), int(j))):
            sequence, right, rival = failure
            return Certificate(False, least, sequence, 0, right, rival)
    return Certificate(True, least)


def _failure(
    W: np.ndarray, V: np.ndarray, rule: Any, a: int, j: int
) -> tuple[tuple[int, ...], int, int] | None:
    """A sequence that begins with the query a, that a_j decides, and that is not right; with both labels."""
    entries, distinct = np.asarray(rule.lists[a]).tolist(), rule.preset.sequences == "distinct"
    tokens, right = range(len(V)), int(rule.pi[entries[j]])
    must = tuple(dict.fromkeys((a, entries[j])))
    out = {*entries[:j], *(must if distinct else ())}
    free, room = [t for t in tokens if t not in out], rule.preset.n - len(must)
    weights = np.exp(W[:, a] - W[:, a].max())

    def roughly(rival: int) -> float:
        """How bad a rival can get, to look at bad ones first."""
        g = weights * (V[right] - V[rival])
        return float(g[list(must)].sum() + room * g.min())

    for rival in sorted(set(tokens) - {right}, key=roughly):
        lead = [Fraction(x) - Fraction(y) for x, y in zip(V[right].tolist(), V[rival].tolist(), strict=True)]

        def compare(s: int, t: int, lead: list[Fraction] = lead) -> int:
            return sign([(W[s, a], lead[s]), (W[t, a], -lead[t])])

        worse = functools.cmp_to_key(compare)
        rest = sorted(free, key=worse)[:room] if distinct else [min(free, key=worse)] * room
        sequence = (*must, *rest)
        if sign([(W[t, a], lead[t]) for t in sequence]) <= 0:
            return sequence, right, rival
    return None


def sign(terms: Sequence[tuple[float, Fraction]]) -> int:
    """The sign of the sum of coefficient x exp(exponent), exactly.

    >>> sign([(0.0, Fraction(1)), (1e-300, Fraction(-1))])
    -1
    >>> sign([(0.5, Fraction(1, 3)), (0.5, Fraction(-1, 3))])
    0
    """
    collected: defaultdict[float, Fraction] = defaultdict(Fraction)
    for exponent, coefficient in terms:
        collected[float(exponent)] += coefficient
    left = {w: c for w, c in collected.items() if c}
    if not left:
        return 0
    if len({c > 0 for c in left.values()}) == 1:
        return 1 if next(iter(left.values())) > 0 else -1
    # Relative to the largest exponent, so that its term neither overflows nor vanishes.
    top = Fraction(max(left))
    shifted = [(Fraction(w) - top, c) for w, c in left.items()]
    digits = 30
    while True:
        # Decimal's exp and division are correctly rounded, so each product is right to a few units, and to
        # as many more as its exponent is large. What underflows to 0 is far below the units of the others.
        exact = decimal.Context(prec=digits, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN, traps=[])
        with decimal.localcontext(exact):
            exponents = [_decimal(w) for w, _ in shifted]
            products = [w.exp() * _decimal(c) for w, (_, c) in zip(exponents, shifted, strict=True)]
            total = sum(products, decimal.Decimal(0))
            units = (abs(x) * (len(left) + 8 + abs(w)) for w, x in zip(exponents, products, strict=True))
            if abs(total) > sum(units) * decimal.Decimal(10) ** (1 - digits):
                return 1 if total > 0 else -1
        digits *= 2


def _decimal(x: Fraction) -> decimal.Decimal:
    return decimal.Decimal(x.numerator) / x.denominator


# ---------------------------------------------------------------- is attention needed?


def disagreement(rule: Any) -> tuple[Int[Array, " 4"], Float[Array, ""]]:
    """Two tokens that some sequence labels differently and their deciders, and the share of such pairs.

    a, b, a_i and b_j are -1 where there are none.
    """
    p, M = rule.preset, rule.lists.shape[1]
    tokens, entries = jnp.arange(p.L), jnp.arange(M)
    possible = entries[None, :] < rule.sizes[:, None]

    def of(a: Int[Array, ""]) -> Bool[Array, "M L M"]:
        def pair(i: Array, b: Array, j: Array) -> Array:
            a_i, b_j = rule.lists[a, i], rule.lists[b, j]
            banned = earlier(rule.lists[a], i, p.L) | earlier(rule.lists[b], j, p.L)
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
    a, i, b, j = jnp.unravel_index(jnp.argmax(found), found.shape)
    first = jnp.stack([a, b, rule.lists[a, i], rule.lists[b, j]])
    return jnp.where(jnp.any(found), first, -1), pairs


_disagreement = jax.jit(disagreement)


class Needed(NamedTuple):
    """Whether attention is needed: a sequence with two labels that says so, or a V that needs none.

    Where the labels depend on the sequence alone and still no V gets them right, there is neither.
    """

    needed: bool
    sequence: tuple[int, ...] = ()
    V: np.ndarray | None = None


def attention_needed(rule: Any) -> Needed:
    """Whether every V fails with W = 0; exact."""
    found, _ = _disagreement(Rule(*(getattr(rule, name) for name in Rule._fields)))
    a, b, a_i, b_j = found.tolist()
    if a < 0:
        return _by_linear_program(rule)
    # A sequence with both tokens and their deciders, and nothing that either list puts before these.
    p, needed, banned = rule.preset, dict.fromkeys((a, b, a_i, b_j)), set()
    for query, decider in ((a, a_i), (b, b_j)):
        own = np.asarray(rule.lists[query]).tolist()
        banned |= set(own[: own.index(decider)])
    free = [t for t in range(p.L) if t not in banned and t not in needed]
    more = free if p.sequences == "distinct" else [a] * p.n
    return Needed(True, (*needed, *more)[: p.n])


def _by_linear_program(rule: Any, rounds: int = 10_000) -> Needed:
    """A V with a margin of 1 on every sequence, by adding the sequences on which candidates fail."""
    L = rule.preset.L
    W, V, rows = np.zeros((L, L)), np.zeros((L, L)), []
    for _ in range(rounds):
        found = certify(W, V, rule)
        if found:
            return Needed(False, V=V)
        counts = np.bincount(found.sequence, minlength=L).astype(float)
        for rival in sorted(set(range(L)) - {found.right}):
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
