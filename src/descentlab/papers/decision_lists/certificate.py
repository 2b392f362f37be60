"""Certificates: whether every sequence is classified right, decided exactly without visiting them.

For a query a with label-determining token a_j, the right label y beats label k on a sequence with n_t
tokens t if and only if

    sum_t n_t g_t > 0,    g_t = exp(W[t, a]) (V[y, t] - V[k, t]),

which is linear in the counts. The sequences in question have a and a_j, none of a_1, ..., a_{j-1}, and
are free otherwise. So the worst has one a, one a_j, and only copies of the token with the least g; or,
of distinct tokens, those with the least g. That is a minimum over L M L labels, however many sequences.

`surely` does this with floating-point numbers and a bound on their rounding. `certify` settles what is
too close to call in exact arithmetic: g is a combination of exponentials of rational numbers, which are
linearly independent (Lindemann and Weierstrass), so it vanishes only if its collected coefficients do,
and otherwise enough digits tell its sign. A tie is not a correct answer.
"""

import decimal
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from descentlab.errors import SettingError
from descentlab.papers.decision_lists.setting import Rule


class Worst(NamedTuple):
    """For each query and deciding entry: the least sum over labels and sequences, and its rounding.

    Weights are relative to the largest of the column. +inf where the entry cannot decide.
    """

    margin: Float[Array, "L M"]
    rounding: Float[Array, "L M"]


def worst(W: Float[Array, "L L"], V: Float[Array, "L L"], rule: Any) -> Worst:
    """The worst case of every query and deciding entry."""
    p = rule.preset

    def entry(a: Array, entries: Array, size: Array, j: Array) -> tuple[Array, Array]:
        tokens = jnp.arange(p.L)
        decider, y = entries[j], rule.pi[entries[j]]
        weights = jnp.exp(W[:, a] - jnp.max(W[:, a]))
        g = weights[None, :] * (V[y][None, :] - V)
        earlier = jnp.any((entries[None, :] == tokens[:, None]) & (jnp.arange(entries.size) < j)[None, :], 1)
        must = (tokens == a) | (tokens == decider)
        room = p.n - jnp.sum(must)
        base = jnp.sum(jnp.where(must[None, :], g, 0.0), axis=1)
        size_of_base = jnp.sum(jnp.where(must[None, :], jnp.abs(g), 0.0), axis=1)
        if p.sequences == "distinct":
            free = ~(earlier | must)
            least = jnp.sort(jnp.where(free[None, :], g, jnp.inf), axis=1)
            taken = jnp.arange(p.L) < room
            rest = jnp.sum(jnp.where(taken[None, :], least, 0.0), axis=1)
            size_of_rest = jnp.sum(jnp.where(taken[None, :], jnp.abs(least), 0.0), axis=1)
            occurs = jnp.sum(free) >= room
        else:
            least = jnp.min(jnp.where(earlier[None, :], jnp.inf, g), axis=1)
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

    return Worst(*jax.lax.map(query, (jnp.arange(p.L), rule.lists, rule.sizes)))


def margin(W: Float[Array, "L L"], V: Float[Array, "L L"], rule: Any) -> Float[Array, ""]:
    """The least sum over all queries, less its rounding: positive only if all sequences are right."""
    found = worst(W, V, rule)
    return jnp.min(found.margin - found.rounding)


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
    own = Rule(p, jnp.asarray(rule.pi), jnp.asarray(rule.lists), jnp.asarray(rule.sizes))
    found = _compiled(W, V, own)
    margins, roundings = np.asarray(found.margin), np.asarray(found.rounding)
    least = float(margins.min())
    case = _Cases(W, V, np.asarray(rule.pi), np.asarray(rule.lists), p.n, p.sequences == "distinct")
    # The worst first, so that a failure is reported where it is plainest.
    order = np.argsort(margins, axis=None, kind="stable")
    for a, j in zip(*np.unravel_index(order, margins.shape), strict=True):
        if margins[a, j] > roundings[a, j]:
            continue
        failure = case.failure(int(a), int(j))
        if failure is not None:
            sequence, right, rival = failure
            return Certificate(False, least, sequence, 0, right, rival)
    return Certificate(True, least)


@jax.jit
def _compiled(W: Array, V: Array, rule: Rule) -> Worst:
    return worst(W, V, rule)


@dataclass(frozen=True)
class _Cases:
    """Single cases of a certificate, in exact arithmetic."""

    W: np.ndarray
    V: np.ndarray
    pi: np.ndarray
    lists: np.ndarray
    n: int
    distinct: bool

    def failure(self, a: int, j: int) -> tuple[tuple[int, ...], int, int] | None:
        """A sequence that begins with the query a and is not classified right, with both labels."""
        L = len(self.pi)
        decider = int(self.lists[a, j])
        right = int(self.pi[decider])
        must = (a,) if decider == a else (a, decider)
        earlier = set(self.lists[a, :j].tolist())
        allowed = [t for t in range(L) if t not in earlier and not (self.distinct and t in must)]
        room = self.n - len(must)
        weights = np.exp(self.W[:, a] - self.W[:, a].max())
        for rival in sorted(set(range(L)) - {right}, key=lambda k: self._sum(weights, right, k, must, room)):
            worst = self._least(a, right, rival, allowed, room)
            counts = np.bincount([*must, *worst], minlength=L)
            terms = [(self.W[t, a], counts[t] * self._difference(right, rival, t)) for t in range(L)]
            if sign(terms) <= 0:
                return (*must, *worst), right, rival
        return None

    def _sum(self, weights: np.ndarray, right: int, k: int, must: Sequence[int], room: int) -> float:
        """Roughly how bad label k can get, to look at bad ones first."""
        g = weights * (self.V[right] - self.V[k])
        return float(g[list(must)].sum() + room * g.min())

    def _difference(self, right: int, rival: int, t: int) -> Fraction:
        return Fraction(float(self.V[right, t])) - Fraction(float(self.V[rival, t]))

    def _least(self, a: int, right: int, rival: int, allowed: list[int], room: int) -> list[int]:
        """The `room` tokens, with or without repeats, that are worst for the right label."""

        def compare(s: int, t: int) -> int:
            return sign([
                (self.W[s, a], self._difference(right, rival, s)),
                (self.W[t, a], -self._difference(right, rival, t)),
            ])  # fmt: skip

        if room == 0:
            return []
        if not self.distinct:
            return [min(allowed, key=functools.cmp_to_key(compare))] * room
        return sorted(allowed, key=functools.cmp_to_key(compare))[:room]


def sign(terms: Sequence[tuple[float, Fraction]]) -> int:
    """The sign of the sum of coefficient x exp(exponent), exactly.

    >>> sign([(0.0, Fraction(1)), (1e-300, Fraction(-1))])
    -1
    >>> sign([(0.5, Fraction(1, 3)), (0.5, Fraction(-1, 3))])
    0
    """
    collected: dict[float, Fraction] = {}
    for exponent, coefficient in terms:
        exponent = float(exponent)
        collected[exponent] = collected.get(exponent, Fraction(0)) + coefficient
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
    return decimal.Decimal(x.numerator) / decimal.Decimal(x.denominator)
