"""One weight per list entry: what the flow of W reduces to for V = cP and exchangeable tokens.

With V fixed the columns of W decouple. From W = 0 the tokens outside the list of a query a are alike,
so W[:, a] stays one weight w_i for each list entry a_i and one, w_0, for all others; and queries whose
lists are equally long move alike. The sum over sequences becomes one over orbits: how often each entry
occurs, and how many other tokens occur once, twice, ... Gradient flow of W is, in these coordinates,

    dw_i/dt = -(1/L) d loss_m / dw_i,    dw_0/dt = -(1/L) (1/(L - m)) d loss_m / dw_0,

since the derivative in w_0 is a sum over L - m weights. Sizes are numbers of the task, so that tasks of
all sizes share one compiled program.
"""

import functools
import itertools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from descentlab.engine import Dynamics, Probe, flow, probe
from descentlab.papers.decision_lists.lists import Rule
from descentlab.papers.decision_lists.masses import DELTAS, attention_scale, given_or, readings, time_bounds


def suffice(p: Any) -> bool:
    """Whether a run is that of one weight per list entry: asked for, and exact.

    Only W is trained, so V = cP; a flow has one of the laws that are known, whose tokens are exchangeable.
    """
    exact = p.algorithm == "flow" and p.train == "attention" and not p.probabilities
    return exact and p.reduced and not p.detail


class Orbits(NamedTuple):
    """For lists of each length m: how often the entries occur, how many others occur once, twice, ...

    The rows of a length sum to weight 1; rows of weight 0 fill up. The entry m of length m is the query.
    """

    entries: Float[Array, "m rows i"]
    others: Float[Array, "m rows k"]
    weights: Float[Array, "m rows"]


class LengthTask(NamedTuple):
    """What is left of a task: orbits and numbers. `shares` are those of queries with lists of each length."""

    preset: Any
    orbits: Orbits
    L: Float[Array, ""]
    n: Float[Array, ""]
    shares: Float[Array, " m"]
    c: Float[Array, ""]
    bounds: Float[Array, " reading"]

    @property
    def there(self) -> Bool[Array, " m"]:
        """Which lengths occur."""
        return self.shares > 0


# ---------------------------------------------------------------- orbits


def longest(p: Any) -> int:
    """The longest list that the tables have room for: presets of small M share compiled programs.

    Only where room costs little: there are many more orbits of sequences with repeats.
    """
    return max(p.M, min(6, p.L)) if p.law == "distinct" else p.M


def orbit_count(n: int, law: str, longest: int) -> int:
    """How many rows the tables of one length have at most; partitions grow slowly, so this bounds them."""
    if law == "distinct":
        return 1 << (longest - 1)
    partitions = [1] + [0] * n
    for part in range(1, n + 1):
        for total in range(part, n + 1):
            partitions[total] += partitions[total - part]
    return sum(math.comb(n - 1 - r + longest - 1, longest - 1) * partitions[r] for r in range(n))


@functools.lru_cache(maxsize=16)
def orbits(L: int, n: int, law: str, longest: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The parts of `Orbits` for sequences around a query, for lists of every length up to `longest`."""
    found = [list(_distinct(L, n, m) if law == "distinct" else _iid(L, n, m)) for m in range(1, longest + 1)]
    # Distinct tokens: rows for every subset of entries, so that all sizes share a shape.
    rows = 1 << (longest - 1 if law == "distinct" else (max(map(len, found)) - 1).bit_length())
    kinds = 1 if law == "distinct" else 1 << (n - 1).bit_length()
    entries, others = np.zeros((longest, rows, longest)), np.zeros((longest, rows, kinds))
    weights = np.zeros((longest, rows))
    entries[:, :, 0] = 1  # rows that fill up, and lengths that do not fit, are harmless sequences
    for i, orbit in enumerate(found):
        for row, (counts, parts, weight) in enumerate(orbit):
            entries[i, row] = 0
            entries[i, row, : i + 1] = counts
            weights[i, row] = weight
            for part in parts:
                others[i, row, part - 1] += 1
    return entries, others, weights


Orbit = tuple[tuple[int, ...], tuple[int, ...], float]


def _distinct(L: int, n: int, m: int) -> Iterator[Orbit]:
    """Which of the first m - 1 entries are there; the other tokens are any of the rest."""
    for present in itertools.product((0, 1), repeat=m - 1):
        rest = n - 1 - sum(present)
        if 0 <= rest <= L - m:
            yield (*present, 1), (1,) * rest, math.comb(L - m, rest) / math.comb(L - 1, n - 1)


def _iid(L: int, n: int, m: int) -> Iterator[Orbit]:
    """How often entries occur among the n - 1 others, and a partition of what is left over other tokens."""
    for rest in range(n):
        ways = []
        for parts in _partitions(rest, L - m):
            same = math.prod(math.factorial(parts.count(k)) for k in set(parts))
            assigned = math.perm(L - m, len(parts)) // same
            ways.append((parts, assigned / math.prod(map(math.factorial, parts))))
        for counts in _compositions(n - 1 - rest, m):
            inner = math.factorial(n - 1) / (math.prod(map(math.factorial, counts)) * float(L) ** (n - 1))
            for parts, weight in ways:
                yield (*counts[:-1], counts[-1] + 1), parts, inner * weight


def _partitions(total: int, most: int, largest: int | None = None) -> Iterator[tuple[int, ...]]:
    """Ways to write a number as a sum of at most so many positive ones, in falling order."""
    if total == 0:
        yield ()
    elif most > 0:
        for first in range(min(total, largest or total), 0, -1):
            for rest in _partitions(total - first, most - 1, first):
                yield (first, *rest)


def _compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Ways to write a number as an ordered sum of so many non-negative ones."""
    end = total + parts - 1
    for bars in itertools.combinations(range(end), parts - 1):
        yield tuple(b - a - 1 for a, b in itertools.pairwise((-1, *bars, end)))


# ---------------------------------------------------------------- loss, certificate, flow


def make_task(rule: Rule, p: Any) -> LengthTask:
    """What the flow of one weight per list entry needs of a task."""
    (delta, gamma), most = readings(rule), longest(p)
    return LengthTask(
        p,
        Orbits(*map(jnp.asarray, orbits(p.L, p.n, p.law, most))),
        L=jnp.asarray(float(p.L)),
        n=jnp.asarray(float(p.n)),
        shares=jnp.mean(rule.sizes[None, :] == jnp.arange(1, most + 1)[:, None], axis=1, dtype=jnp.float64),
        c=given_or(p.c, attention_scale(p.n, p.L, delta[DELTAS.index(p.delta)])),
        bounds=time_bounds(p.M, p.L, gamma),
    )


def _logits(w: Float[Array, "m e"], task: LengthTask) -> tuple[Array, Array, Array]:
    """Logits of the list entries and of other tokens that occur k times, and which entry decides.

    By length and orbit. Kinds that do not occur have the logit 0 of an absent token.
    """
    entries, others, _ = task.orbits
    shifted = jnp.exp(w - jnp.max(w, axis=1, keepdims=True))
    k = jnp.arange(1, others.shape[2] + 1, dtype=w.dtype)
    listed = entries * shifted[:, None, 1:]
    other = jnp.broadcast_to(k[None, None, :] * shifted[:, :1, None], others.shape)
    total = (jnp.sum(listed, axis=2) + jnp.sum(others * other, axis=2))[:, :, None]
    decider = jnp.argmax(entries > 0, axis=2)[:, :, None]
    return task.c * listed / total, jnp.where(others > 0, task.c * other / total, 0.0), decider


def losses(w: Float[Array, "m e"], task: LengthTask) -> Float[Array, " m"]:
    """The expected loss of a query whose list has length m, by length; w[m - 1] is (w_0, w_1, ...)."""
    (listed, other, decider), (_, others, weights) = _logits(w, task), task.orbits
    m = jnp.arange(1.0, w.shape[0] + 1)[:, None]
    real = jnp.arange(listed.shape[2], dtype=w.dtype)[None, None, :] < m[:, :, None]
    absent = task.L - m - jnp.sum(others, axis=2)
    top = jnp.maximum(jnp.max(listed, axis=2), jnp.max(other, axis=2))
    mass = jnp.sum(jnp.where(real, jnp.exp(listed - top[:, :, None]), 0.0), axis=2)
    mass += jnp.sum(others * jnp.exp(other - top[:, :, None]), axis=2) + absent * jnp.exp(-top)
    right = jnp.take_along_axis(listed, decider, axis=2)[:, :, 0]
    return jnp.sum(weights * (jnp.log(mass) + top - right), axis=1)


def slope(w: Float[Array, "m e"], task: LengthTask) -> Float[Array, "m e"]:
    """Minus the velocity of gradient flow of W, in these coordinates."""
    g = jax.grad(lambda w: jnp.sum(jnp.where(task.there, losses(w, task), 0.0)))(w) / task.L
    alike = jnp.maximum(task.L - jnp.arange(1.0, w.shape[0] + 1), 1.0)
    return jnp.concatenate([g[:, :1] / alike[:, None], g[:, 1:]], axis=1)


def error(w: Float[Array, "m e"], task: LengthTask) -> Float[Array, " m"]:
    """The probability that a query is misclassified (a tie is), by length."""
    listed, other, decider = _logits(w, task)
    right = jnp.take_along_axis(listed, decider, axis=2)[:, :, 0]
    mine = jnp.arange(listed.shape[2])[None, None, :] == decider
    rival = jnp.max(jnp.where(mine, -jnp.inf, listed), axis=2, initial=0.0)
    rival = jnp.maximum(rival, jnp.max(other, axis=2))
    return jnp.sum(jnp.where(right <= rival, task.orbits.weights, 0.0), axis=1)


def margin(w: Float[Array, "m e"], task: LengthTask) -> Float[Array, ""]:
    """The least log-ratio of the deciding entry's attention to a rival's, over all sequences and queries.

    The worst sequence for a_j against a rival u has one a_j (and the query) and is u otherwise, or, of
    distinct tokens, one of each. Positive if and only if W and V = cP classify perfectly.
    """
    lengths, entries = w.shape[0], w.shape[1] - 1
    m = jnp.arange(1, lengths + 1)[:, None, None]
    j = jnp.arange(1, entries + 1)[None, :, None]  # the deciding entry
    i = jnp.arange(0, entries + 1)[None, None, :]  # its rival: another entry, or 0 for any other token
    L, n = task.L.astype(int), task.n.astype(int)
    others = jnp.where(j < m, 1, 0)  # is the decider another token than the query?
    free = n - 1 - others + jnp.where((i == m) & (j < m), 1, 0)  # most copies of the rival
    occurs = (j <= m) & (n >= 1 + others)
    if task.preset.sequences == "distinct":
        free, occurs = jnp.minimum(free, 1), occurs & (L - (j - 1) >= n)
    rival = jnp.where(i == 0, m < L, (i > j) & (i <= m))
    counts = occurs & rival & (free >= 1) & task.there[:, None, None]
    gap = w[:, 1:, None] - w[:, None, :] - jnp.log(jnp.maximum(free, 1).astype(w.dtype))
    return jnp.min(jnp.where(counts, gap, jnp.inf))


def certified(w: Float[Array, "m e"], task: LengthTask) -> Bool[Array, ""]:
    """Whether every sequence is classified right, beyond what rounding could change."""
    return margin(w, task) > 8 * jnp.finfo(w.dtype).eps * (1 + jnp.max(jnp.abs(w)))


def dynamics(task: LengthTask, p: Any) -> Dynamics:
    """Gradient flow of W from zero, until all sequences are certainly classified right."""
    most = task.shares.size
    return flow(
        lambda key: jnp.zeros((most, most + 1)), lambda w: slope(w, task), p.eta,
        event=lambda w: certified(w, task), stop=True, stiff=p.stiff, rtol=1e-6,
    )  # fmt: skip


HIT = Probe(lambda task, p, state: state.hit, "step of the first certified time; -1: none yet")


def probes() -> dict[str, Probe]:
    """What is recorded."""

    def mean(each: Array, task: LengthTask) -> Array:
        """The mean over queries of what is known by length."""
        return jnp.sum(jnp.where(task.there, task.shares * each, 0.0))

    return {
        "loss": probe(lambda w, task: mean(losses(w, task), task), "population loss"),
        "error": probe(lambda w, task: mean(error(w, task), task), "probability of misclassification"),
        "margin": probe(margin, "least log-ratio of the decider's attention to a rival's"),
        "certified": probe(certified, "1 if all sequences are certainly right", dtype=np.int8),
        "entry_weights": probe(lambda w, task: w, "W of other tokens and of each list entry, by length",
                               "length", "entry"),
        "hit": HIT,
        "there": probe(lambda w, task: task.there, "whether lists of a length occur", "length",
                       dtype=np.int8, once=True),
        "c": probe(lambda w, task: task.c, "c of V = cP", once=True),
        "time_bound": probe(lambda w, task: task.bounds, "4M/(log(L) gamma)", "gamma", once=True),
    }  # fmt: skip
