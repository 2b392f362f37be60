"""decision_lists: certificates, and whether attention is needed, against all sequences one by one."""

import contextlib
import decimal
import itertools
import signal
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as tried
from hypothesis import strategies as st
from scipy import optimize

from descentlab.errors import SettingError
from descentlab.papers import decision_lists as dl
from descentlab.papers.decision_lists import certificate
from descentlab.papers.decision_lists.lists import Rule

surely, margin = jax.jit(certificate.surely), jax.jit(certificate.margin)
disagreement = jax.jit(certificate.disagreement)

SHAPES = {
    "all": [(L, n) for L in (2, 3, 4, 5) for n in (2, 3, 4)],
    "distinct": [(L, n) for L in (2, 3, 4, 5) for n in (2, 3, 4) if n <= L],
}
by_sequences = pytest.mark.parametrize("sequences", SHAPES)


# ---------------------------------------------------------------- the plain definitions


class Plain(NamedTuple):
    """A permutation and lists, as in the paper."""

    n: int
    sequences: str
    pi: list[int]
    lists: list[list[int]]

    def all(self) -> list[tuple[int, ...]]:
        """Every sequence that counts."""
        tokens = range(len(self.pi))
        if self.sequences == "distinct":
            return list(itertools.permutations(tokens, self.n))
        return list(itertools.product(tokens, repeat=self.n))

    def decider(self, s: tuple[int, ...], query: int) -> int:
        return next(t for t in self.lists[query] if t in s)

    def label(self, s: tuple[int, ...], position: int) -> int:
        return self.pi[self.decider(s, s[position])]

    def labels(self) -> np.ndarray:
        """The label at every position of every sequence."""
        return np.array([[self.label(s, i) for i in range(self.n)] for s in self.all()])

    def rule(self) -> Rule:
        """The same for descentlab, all lists as wide as can be: rules of one size share their programs."""
        L = len(self.pi)
        p = dl.Preset(L=L, n=self.n, M=L, law="distinct" if self.sequences == "distinct" else "iid")
        full = [one + one[-1:] * (L - len(one)) for one in self.lists]
        return Rule(p, jnp.asarray(self.pi), jnp.asarray(full), jnp.asarray([len(x) for x in self.lists]))


def random_rule(rng: np.random.Generator, L: int, n: int, sequences: str, M: int) -> Plain:
    lists = []
    for a in range(L):
        others = [int(t) for t in rng.permutation(L) if t != a]
        lists.append([*others[: rng.integers(M)], a])
    return Plain(n, sequences, rng.permutation(L).tolist(), lists)


def total_order(order: list[int], n: int, sequences: str, pi: list[int]) -> Plain:
    """Of the tokens that are there, the first in the order decides for all."""
    lists = [order[: order.index(a) + 1] for a in range(len(order))]
    return Plain(n, sequences, pi, lists)


def logits(W: np.ndarray, V: np.ndarray, plain: Plain) -> np.ndarray:
    """V X softmax(X'WX) of every sequence, over sequences, labels and positions."""
    X = np.moveaxis(np.eye(len(V))[np.array(plain.all())], 1, 2)
    scores = np.exp(np.swapaxes(X, 1, 2) @ W @ X)
    return V @ X @ (scores / scores.sum(axis=1, keepdims=True))


def least_lead(W: np.ndarray, V: np.ndarray, plain: Plain) -> float:
    """How far the right label's logit is above the best other's, at worst."""
    out, truth = logits(W, V, plain), plain.labels()[:, None, :]
    right = np.take_along_axis(out, truth, axis=1)
    np.put_along_axis(out, truth, -np.inf, axis=1)
    return float((right[:, 0] - out.max(axis=1)).min())


def digits_of(W: Any, V: Any, s: tuple[int, ...], position: int, right: int, rival: int) -> Decimal:
    """The lead of one label over another, up to a positive factor, to 80 digits."""
    with decimal.localcontext(prec=80):
        top = max(Decimal(float(W[t, s[position]])) for t in s)
        return sum(
            (
                (Decimal(float(W[t, s[position]])) - top).exp()
                * (Decimal(float(V[right, t])) - Decimal(float(V[rival, t])))
                for t in s
            ),
            Decimal(0),
        )


def least_lead_in_digits(W: Any, V: Any, plain: Plain) -> Decimal:
    """The least lead over all sequences, positions and rivals, to 80 digits; ties may be off by 1e-70."""
    return min(
        digits_of(W, V, s, i, plain.label(s, i), rival)
        for s in plain.all()
        for i in range(plain.n)
        for rival in range(len(plain.pi))
        if rival != plain.label(s, i)
    )


def assert_fails_as_it_says(found: certificate.Certificate, W: Any, V: Any, plain: Plain) -> None:
    """The sequence of a failed certificate is one that counts, and is misclassified where it says."""
    s, L = found.sequence, len(plain.pi)
    assert len(s) == plain.n
    assert all(type(t) is int and 0 <= t < L for t in s)
    assert plain.sequences == "all" or len(set(s)) == plain.n
    assert found.right == plain.label(s, found.position)
    assert found.rival in set(range(L)) - {found.right}
    assert digits_of(W, V, s, found.position, found.right, found.rival) < Decimal("1e-70")
    assert str(list(s)) in str(found)
    assert str(found.rival) in str(found)


def ideal(plain: Plain, gap: float) -> tuple[np.ndarray, np.ndarray]:
    """W that falls by `gap` from entry to entry of each list, and V = P."""
    L = len(plain.pi)
    W, V = np.zeros((L, L)), np.zeros((L, L))
    for a, one in enumerate(plain.lists):
        for j, t in enumerate(one):
            W[t, a] = gap * (len(one) - j)
        V[plain.pi[a], a] = 1.0
    return W, V


# ---------------------------------------------------------------- certify


@by_sequences
def test_certify_is_brute_force_over_all_sequences(sequences: str):
    rng = np.random.default_rng(11)
    perfect = []
    for L, n in SHAPES[sequences]:
        for _ in range(1300 // len(SHAPES[sequences])):
            plain = random_rule(rng, L, n, sequences, M=int(rng.integers(1, L + 1)))
            W, V = ideal(plain, gap=rng.choice([0.5, 1.5, 4.0]))
            size = 10 ** rng.uniform(-2, 1)
            W, V = W + size * rng.normal(size=W.shape), V + 0.3 * size * rng.normal(size=V.shape)
            W, V = W + rng.normal(size=(1, L)), 10 ** rng.uniform(-2, 2) * (V + rng.normal(size=(1, L)))
            lead = least_lead(W, V, plain)
            assert abs(lead) > 1e-9 * abs(V).max(), "rounding may decide: take another seed"
            found = dl.certify(W, V, plain.rule())
            assert found.perfect == (lead > 0), (W, V, plain, found)
            assert bool(found) == found.perfect
            assert np.sign(found.margin) == np.sign(lead)
            if not found:
                assert_fails_as_it_says(found, W, V, plain)
            perfect.append(found.perfect)
    assert len(perfect) >= 1200
    assert 0.3 < np.mean(perfect) < 0.7


def lead_in_powers_of_e(W: np.ndarray, V: np.ndarray, plain: Plain) -> int:
    """The sign of the least lead for integer weights: a polynomial in e is 0 only if its coefficients are."""
    worst = 1
    for s in plain.all():
        for i in range(plain.n):
            right = plain.label(s, i)
            powers = W[list(s), s[i]].astype(int)
            for rival in set(range(len(plain.pi))) - {right}:
                coefficients = np.bincount(powers, V[right, s] - V[rival, s], minlength=4)
                value = coefficients @ np.exp(np.arange(len(coefficients)))
                assert not coefficients.any() or abs(value) > 1e-6
                worst = min(worst, int(np.sign(value)) if coefficients.any() else 0)
    return worst


@by_sequences
def test_a_tie_is_not_perfect(sequences: str):
    rng = np.random.default_rng(5)
    signs = []
    for L, n in [(2, 2), (3, 2), (3, 3)]:
        for _ in range(120):
            plain = random_rule(rng, L, n, sequences, M=L)
            W, V = ideal(plain, gap=1.0)
            V = 5 * V + rng.choice([-1, 0, 0, 0, 0, 1], size=V.shape) * rng.choice([0, 1])
            a, t, k = rng.integers(L, size=3)
            if rng.random() < 0.3:  # the first entries of a list are alike
                W[plain.lists[a][:2], a] = W[plain.lists[a][0], a]
            if rng.random() < 0.3:  # a token says two things
                V[k, t] = V[:, t].max()
            expected = lead_in_powers_of_e(W, V, plain)
            rule = plain.rule()
            found = dl.certify(W, V, rule)
            assert found.perfect == (expected > 0), (W, V, plain)
            if not found:
                assert_fails_as_it_says(found, W, V, plain)
            assert not surely(W, V, rule) or expected > 0
            signs.append(expected)
    assert min(np.mean(np.array(signs) == sign) for sign in (-1, 0, 1)) > 0.05


@pytest.mark.parametrize(("sequences", "n"), [("distinct", 2), ("all", 2), ("all", 3), ("all", 4)])
def test_what_is_within_rounding_of_a_tie_is_decided_in_exact_terms(sequences: str, n: int):
    rng, L = np.random.default_rng(n), 3
    sure, perfect = [], []
    for trial in range(60):
        plain = total_order([0, 1, 2], n, sequences, rng.permutation(L).tolist())
        rule = plain.rule()
        # One copy of a token against n - 1 of the next one: a tie but for the last bits.
        u = rng.normal(size=(L, 1)) * rng.choice([0.0, 1.0, 20.0])
        W = u + rng.normal(size=(1, L))
        most = rng.choice([2, 40, 10_000])
        ups = np.cumsum(rng.integers(-most // 4, most, L))[::-1]
        V = np.zeros((L, L))
        for t in range(L):
            V[plain.pi[t], t] = np.exp(-u[t, 0]) * float(n - 1 or 1) ** -t * (1 + ups[t] * 2.0**-52)
        if trial % 10 == 0:
            W[:], V[:] = rng.normal(), np.where(V > 0, rng.normal() ** 2, 0.0)
        lead = least_lead_in_digits(W, V, plain)
        found = dl.certify(W, V, rule)
        assert found.perfect == (lead > Decimal("1e-70")), (W, V, plain)
        if not found:
            assert_fails_as_it_says(found, W, V, plain)
        sure.append(bool(surely(W, V, rule)))
        assert sure[-1] == (float(margin(W, V, rule)) > 0)
        assert not sure[-1] or found.perfect
        perfect.append(found.perfect)
    assert 0.2 < np.mean(perfect) < 0.8
    assert sum(sure) < sum(perfect)


def test_the_float_certificate_is_not_needlessly_shy():
    rng = np.random.default_rng(0)
    for L, n in SHAPES["all"]:
        plain = random_rule(rng, L, n, "all", M=L)
        W, V = ideal(plain, gap=np.log(n) + 1e-9)
        assert surely(W, V, plain.rule())


@pytest.mark.parametrize(
    "column",
    # Token 0 decides where it is, so its large weight is out of play where token 1 decides.
    [(0.0, -708.3, -708.5), (8.3, -700.0, -700.2), (0.0, -707.0, -708.9), (0.0, -745.0, -745.1)],
    ids=str,
)
def test_weights_too_small_for_floating_point_are_decided_right(column: tuple[float, ...]):
    plain = Plain(10, "all", [0, 1, 2], [[0], [0, 1], [2]])
    rule = plain.rule()
    W, V = ideal(plain, gap=9.0)
    W[:, 1] = column
    s, ten = (1, *[2] * 9), [W[1, 1], W[2, 1] + np.log(9)]
    assert ten[0] < ten[1], "nine tokens 2 outweigh one token 1"
    assert digits_of(W, V, s, 0, 1, 2) < 0
    assert not surely(W, V, rule)
    found = dl.certify(W, V, rule)
    assert not found.perfect
    assert_fails_as_it_says(found, W, V, plain)


@contextlib.contextmanager
def no_hanging(seconds: int = 5) -> Iterator[None]:
    """What is stuck fails, rather than hangs."""

    def stuck(*_: Any) -> None:
        raise AssertionError(f"no answer within {seconds} seconds")

    before = signal.signal(signal.SIGALRM, stuck)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("size", [1e-300, 1.0, 1e300])
@pytest.mark.parametrize("gap", [1.5, 1e3, 1e7, 1e20, 1e300])
def test_numbers_of_any_size_are_certified(gap: float, size: float):
    rng = np.random.default_rng(2)
    with no_hanging():
        for sequences, (L, n) in [("all", (4, 3)), ("distinct", (4, 3))]:
            plain = random_rule(rng, L, n, sequences, M=L)
            W, V = ideal(plain, gap)
            assert dl.certify(W, size * V, plain.rule()).perfect
            a, worse = next((a, one) for a, one in enumerate(plain.lists) if len(one) > 1)
            W[worse[:2], a] = W[worse[1::-1], a]
            found = dl.certify(W, size * V, plain.rule())
            assert not found.perfect
            assert_fails_as_it_says(found, W, size * V, plain)


def test_certify_refuses_what_are_no_weights():
    plain = total_order([0, 1], 2, "all", [0, 1])
    rule = plain.rule()
    for W in (np.zeros((3, 3)), np.zeros(2), np.array([[0, np.nan], [0, 0]]), np.full((2, 2), np.inf)):
        with pytest.raises(SettingError, match="W takes 2 x 2 finite numbers"):
            dl.certify(W, np.eye(2), rule)
        with pytest.raises(SettingError, match="V takes 2 x 2 finite numbers"):
            dl.certify(np.eye(2), W, rule)
    assert dl.certify([[1, 5], [0, 0]], jnp.eye(2), rule).perfect
    assert "every sequence" in str(dl.certify([[1, 5], [0, 0]], jnp.eye(2), rule))


# ---------------------------------------------------------------- sign

ulp = 2.0**-52
TIES = [
    [],
    [(1.5, Fraction(0))],
    [(0.1, Fraction(1, 3)), (0.1, Fraction(-1, 3))],
    [(0.0, Fraction(1)), (-0.0, Fraction(-1))],
    [(7.0, Fraction(3)), (0.0, Fraction(2)), (7.0, Fraction(-1)), (0.0, Fraction(-2)), (7.0, Fraction(-2))],
    [(5e8, Fraction(1)), (5e8, Fraction(-1))],
]
POSITIVE = [
    # Below the resolution of floating-point numbers: exp(1 + ulp) against exp(1), and the like.
    [(1 + ulp, Fraction(1)), (1.0, Fraction(-1))],
    [(5e-324, Fraction(1)), (0.0, Fraction(-1))],
    [(1e-200, Fraction(10**200)), (0.0, -Fraction(10**200))],
    [(1.0, Fraction(10**30)), (0.0, Fraction(-2718281828459045235360287471352, 1))],
    [(0.0, Fraction(1) + Fraction(1, 10**90)), (0.0, Fraction(-1)), (-207.3, Fraction(-1))],
    # exp(x) - 1 - x - x^2/2 > 0
    [(1e-30, Fraction(1)), (0.0, -1 - Fraction(1e-30) - Fraction(1e-30) ** 2 / 2)],
    # Huge exponents, of either sign.
    [(1e5, Fraction(1)), (1e5 - 1, Fraction(-2))],
    [(-1e5, Fraction(1)), (-1e5 - 1, Fraction(-2))],
    [(3e6, Fraction(1)), (2.9e6, Fraction(-1))],
    [(-3e6, Fraction(1)), (-3.1e6, Fraction(-1))],
    [(-3e6, Fraction(3)), (-3e6 - 1, Fraction(-8))],
    [(1e300, Fraction(1, 10**300)), (-1e300, Fraction(-(10**300)))],
    [(-1e300, Fraction(1)), (-1.7e308, Fraction(-1))],
]


@pytest.mark.parametrize("terms", TIES, ids=str)
def test_the_sign_of_a_tie_is_zero(terms: Any):
    with no_hanging():
        assert certificate.sign(terms) == 0


@pytest.mark.parametrize("terms", POSITIVE, ids=str)
def test_the_sign_is_exact_however_close_or_large(terms: Any):
    with no_hanging():
        assert certificate.sign(terms) == 1
        assert certificate.sign(terms[::-1]) == 1
        assert certificate.sign([(w, -c) for w, c in terms]) == -1


@tried(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(-5, 5)), max_size=6))
def test_signs_are_those_of_polynomials_in_e(terms: list[tuple[int, int]]):
    collected = {w: sum(c for v, c in terms if v == w) for w, _ in terms}
    value = sum(c * np.exp(float(w)) for w, c in collected.items())
    expected = int(np.sign(value)) if any(collected.values()) else 0
    assert abs(value) > 1e-6 or not expected
    assert certificate.sign([(float(w), Fraction(c)) for w, c in terms]) == expected


# ---------------------------------------------------------------- is attention needed?


def two_labels(plain: Plain) -> set[tuple[int, int]]:
    """The ordered pairs of different tokens that some sequence labels differently."""
    return {
        (s[i], s[j])
        for s in plain.all()
        for i, j in itertools.permutations(range(plain.n), 2)
        if plain.label(s, i) != plain.label(s, j)
    }


def rules(rng: np.random.Generator, sequences: str, each: int) -> Iterator[Plain]:
    """Rules of all kinds, and ones that put tokens in an order, or nearly so."""
    for L, n in [(2, 2), (3, 2), (3, 3), (4, 2), (4, 3), *([(2, 4)] if sequences == "all" else [(4, 4)])]:
        for i in range(each):
            plain = random_rule(rng, L, n, sequences, M=L)
            if i % 4 == 0:
                yield plain
            else:
                order = total_order(rng.permutation(L).tolist(), n, sequences, plain.pi)
                if i % 4 == 1:
                    order.lists[0] = plain.lists[0]
                yield order


@by_sequences
def test_disagreement_is_that_of_some_sequence_with_two_labels(sequences: str):
    none = []
    for plain in rules(np.random.default_rng(8), sequences, each=30):
        found, share = disagreement(plain.rule())
        pairs, L = two_labels(plain), len(plain.pi)
        np.testing.assert_allclose(share, len(pairs) / (L * (L - 1)), rtol=1e-15)
        a, b, a_i, b_j = found.tolist()
        none.append(a < 0)
        if not pairs:
            assert (a, b, a_i, b_j) == (-1, -1, -1, -1)
        else:
            assert (a, b) in pairs
            assert any(
                {a, b} <= set(s) and (plain.decider(s, a), plain.decider(s, b)) == (a_i, b_j)
                for s in plain.all()
            )
            assert a_i != b_j
    assert 0.2 < np.mean(none) < 0.8


def some_V_is_right(plain: Plain) -> bool:
    """Whether uniform attention suffices, by a linear program over all sequences and positions."""
    L, rows = len(plain.pi), []
    for s in plain.all():
        counts = np.bincount(s, minlength=L)
        for right in {plain.label(s, i) for i in range(plain.n)}:
            for rival in set(range(L)) - {right}:
                row = np.zeros((L, L))
                row[rival], row[right] = counts, -counts
                rows.append(row.ravel())
    found = optimize.linprog(np.zeros(L * L), np.array(rows), -np.ones(len(rows)), bounds=(None, None))
    assert found.status in (0, 2)
    return found.status == 0


@by_sequences
def test_attention_is_needed_if_and_only_if_no_V_is_right_without(sequences: str):
    needed = []
    for plain in rules(np.random.default_rng(9), sequences, each=6):
        found = certificate.attention_needed(plain.rule())
        needed.append(found.needed)
        assert found.needed != some_V_is_right(plain), plain
        s = tuple(found.sequence)
        if s:
            assert s in plain.all()
            assert len({plain.label(s, i) for i in range(plain.n)}) > 1
            assert found.needed
            assert found.V is None
        if not found.needed:
            assert found.V is not None
            assert least_lead(np.zeros_like(found.V), found.V, plain) > 1e-9
            assert dl.certify(np.zeros_like(found.V), found.V, plain.rule()).perfect
    assert 0.2 < np.mean(needed) < 0.8


@by_sequences
def test_lists_in_one_order_need_no_attention(sequences: str):
    plain = total_order([2, 0, 3, 1], 3, sequences, [1, 3, 0, 2])
    found = certificate.attention_needed(plain.rule())
    assert not found.needed
    assert not found.sequence
    assert found.V is not None
    assert least_lead(np.zeros((4, 4)), found.V, plain) > 1e-9
    assert int(disagreement(plain.rule())[0][0]) == -1
    # One list the other way round, and it is needed.
    plain.lists[1] = [3, 1]
    found = certificate.attention_needed(plain.rule())
    assert found.needed
    assert len({plain.label(found.sequence, i) for i in range(3)}) > 1
