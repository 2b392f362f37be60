"""Readings of delta and gamma, "the minimum probability mass that the data distribution assigns to certain
quantities": the paper does not say which.

What its constants suggest, for distinct tokens. There the loss of a query a is at most log L at the
start, so that its part of the population loss is at most Pr(a) log L. If its column W[:, a] is not
perfect by time T, and the slope along the at most M entries of its list has been at least A, that part
has fallen by T A^2 / M. With A = Pr(a) log(L)/2 this is impossible beyond

    T = 4M / (log(L) Pr(a)),

which is the printed bound for gamma = min_a Pr(a), the probability that a position holds a: reading
`token`. And at W = 0 the slope in a weight of the list is about (c/n) delta for a mass delta, given a, of
sequences that are wrong; c = 4n log(L)/delta makes that 4 log(L). While a rival u has at least the weight
of a_j, all sequences that a_j decides and that hold u are wrong: reading `rival` is the least such mass.

This is a heuristic: it does not follow the slope away from W = 0, and with repeats the first step fails.
So there are other readings. For delta: `decides`, the mass of all sequences that a_j decides; `rarest`,
of the rarest multiset of tokens with a given decider. For gamma: `event`, Pr(a and a_j decides);
`token_squared`; `rarest`, of a query and the rarest multiset around it. Every delta has a c of its own,
so each is a theorem of its own.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, ScalarLike

from descentlab.papers.decision_lists.lists import earlier
from descentlab.papers.decision_lists.sequences import chances

DELTAS = ("rival", "decides", "rarest")
GAMMAS = ("token", "event", "token_squared", "rarest")


def readings(rule: Any) -> tuple[Float[Array, " delta"], Float[Array, " gamma"]]:
    """Every reading of delta and of gamma for the law and the lists, in the order of DELTAS and GAMMAS."""
    p, M = rule.preset, rule.lists.shape[1]
    tokens, entries, single = jnp.arange(p.L), jnp.arange(M), jnp.asarray(chances(p))

    def there(banned: Array, needed: Array) -> Array:
        """Pr(no banned and all needed tokens among the n - 1 others), for at most two needed ones."""
        if p.law == "distinct":
            return jnp.asarray(_hypergeometric(p.L, p.n, M))[jnp.sum(banned), jnp.sum(needed)]
        # Inclusion and exclusion over the needed tokens.
        rest = 1 - jnp.sum(jnp.where(banned, single, 0.0))
        both = jnp.sum(jnp.where(needed, single, 0.0))
        one = jnp.max(jnp.where(needed, single, 0.0))
        count, power = jnp.sum(needed), p.n - 1
        first = rest**power - (rest - one) ** power
        two = first - (rest - (both - one)) ** power + (rest - both) ** power
        return jnp.where(count == 0, rest**power, jnp.where(count == 1, first, two))

    def entry(a: Array, j: Array) -> tuple[Array, Array, Array]:
        """decides, rival, rarest of a_j for the query a; +inf where a_j cannot decide."""
        decider = rule.lists[a, j]
        banned = earlier(rule.lists[a], j, p.L)
        needed = (tokens == decider) & (tokens != a)
        decides = there(banned, needed)

        def with_rival(u: Array) -> Array:
            both = needed | ((tokens == u) & (tokens != a))
            impossible = banned[u] | (u == decider) | (jnp.sum(both) > p.n - 1)
            return jnp.where(impossible, jnp.inf, there(banned, both))

        rivals = jax.vmap(with_rival)(tokens)
        rival = jnp.min(jnp.where(rivals > 0, rivals, jnp.inf))
        if p.law == "distinct":
            rarest = jnp.asarray(1 / math.comb(p.L - 1, p.n - 1))
        else:
            alone, power = single[decider], p.n - 1
            vertex = jnp.where(tokens == decider, alone**power, power * alone * single ** (p.n - 2))
            vertex = jnp.where(jnp.any(needed), vertex, single**power)
            rarest = jnp.min(jnp.where(banned, jnp.inf, vertex))
        occurs = (j < rule.sizes[a]) & (decides > 0)
        return tuple(jnp.where(occurs, x, jnp.inf) for x in (decides, rival, rarest))  # type: ignore[return-value]

    decides, rival, rarest = jax.lax.map(lambda a: jax.vmap(lambda j: entry(a, j))(entries), tokens)
    deltas = {"rival": jnp.min(rival), "decides": jnp.min(decides), "rarest": jnp.min(rarest)}
    # Without any rival (a single token fills the sequence) nothing can go wrong.
    deltas["rival"] = jnp.where(jnp.isfinite(deltas["rival"]), deltas["rival"], deltas["decides"])
    event, multiset = (jnp.min(single[:, None] * mass) for mass in (decides, rarest))
    token = jnp.min(single)
    gammas = {"token": token, "event": event, "token_squared": token**2, "rarest": multiset}
    return jnp.stack([deltas[k] for k in DELTAS]), jnp.stack([gammas[k] for k in GAMMAS])


def _hypergeometric(L: int, n: int, M: int) -> np.ndarray:
    """Pr(b banned tokens absent and r needed ones present | a) for distinct tokens, over b and r."""

    def chance(banned: int, needed: int) -> float:
        left, places = L - 1 - banned - needed, n - 1 - needed
        return math.comb(left, places) / math.comb(L - 1, n - 1) if 0 <= places <= left else 0.0

    return np.array([[chance(b, r) for r in range(3)] for b in range(M + 1)])


def time_bounds(M: int, L: int, gammas: Float[Array, " gamma"]) -> Float[Array, " gamma"]:
    """4M / (log(L) gamma), for every reading."""
    return 4 * M / (math.log(L) * gammas)


def attention_scale(n: int, L: int, delta: Float[Array, ""]) -> Float[Array, ""]:
    """c = 4 n log(L) / delta, of the theorem on W alone."""
    return 4 * n * math.log(L) / delta


def given_or(given: ScalarLike, own: Float[Array, ""]) -> Float[Array, ""]:
    """What a field gives, or where it is 0 the theorem's own."""
    value = jnp.asarray(given, own.dtype)
    return jnp.where(value > 0, value, own)
