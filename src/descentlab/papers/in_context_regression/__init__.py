r"""Linear self-attention learns linear regression in context.

Zhang, Frei and Bartlett, "Trained Transformers Learn Linear Models In-Context".

A prompt of N labelled points and a query is one matrix, and linear self-attention answers in its last entry:

    E = [x_1 ... x_N x_query; y_1 ... y_N 0],    f(E) = E + W_PV E (E' W_KQ E) / N,
    yhat = f(E)[d + 1, N + 1].

x ~ N(0, Lambda), y = <w, x>, and every prompt has a w ~ N(0, I) of its own. The loss is
(1/2) E(yhat - <w, x_query>)^2. Gradient flow starts from

    W_PV = s [0 0; 0' 1],    W_KQ = s [Theta Theta' 0; 0' 0],    |Theta Theta'|_F = 1,

and, if s^2 |Gamma| sqrt(d) < 2 for Gamma = (1 + 1/N) Lambda + (1/N) tr(Lambda) I, converges to

    W_PV = tr(Gamma^-2)^(1/4) [0 0; 0' 1],    W_KQ = tr(Gamma^-2)^(-1/4) [Gamma^-1 0; 0' 0],

which answers x_query' Gamma^-1 (1/M) sum y_i x_i to a test prompt of M points.

| here | paper | meaning |
| --- | --- | --- |
| `d`, `N`, `M` | d, N, M | dimension, points of a training prompt and of a test prompt |
| `W_PV`, `W_KQ` | W^PV, W^KQ | projection times value, key times query; (d + 1) x (d + 1) |
| `v`, `u`; `U`, `r` | w_21^PV, w_22^PV; W_11^KQ, w_21^KQ | the blocks that reach the prediction |
| `s`, `Theta` | sigma, Theta | scale and direction of the start |
| `Lambda`, `Gamma` | Lambda, Gamma | covariance of x, and what is inverted |
| `eta` | | unit of time: step t of a flow is time eta t |

The loss is exact for all weights and under all shifts (`moments`); tests prove it against drawn prompts.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from descentlab.engine import (
    Dynamics,
    Probe,
    descent,
    float_dtype,
    flow,
    largest_divisor,
    online,
    optimizer,
    population,
)
from descentlab.papers import About
from descentlab.papers.in_context_regression.atlas import ATLAS as ATLAS
from descentlab.papers.in_context_regression.claims import CLAIMS as CLAIMS
from descentlab.papers.in_context_regression.deviations import DEVIATIONS as DEVIATIONS
from descentlab.papers.in_context_regression.figures import FIGURES as FIGURES
from descentlab.papers.in_context_regression.moments import (
    Law,
    answered,
    blocks,
    excess_loss,
    gamma,
    least_loss,
    printed_error,
    slowest_rate,
    squared_error,
)
from descentlab.papers.in_context_regression.setting import LENGTHS, variances
from descentlab.papers.in_context_regression.setting import PRESETS as PRESETS
from descentlab.papers.in_context_regression.setting import Preset as Preset
from descentlab.papers.in_context_regression.setting import records as records

# ---------------------------------------------------------------- task


class Task(NamedTuple):
    """The law of training prompts, where training starts, 1/M, and the key of test prompts."""

    preset: Preset
    law: Law
    start: "Params"
    test_share: Float[Array, ""]
    test: Key[Array, ""]


class Params(NamedTuple):
    """The weights."""

    W_PV: Float[Array, "D D"]
    W_KQ: Float[Array, "D D"]


def make_task(key: Key[Array, ""], p: Preset) -> Task:
    """The law of prompts, and a random start."""
    start_key, test = jax.random.split(key)
    dtype = float_dtype(p.precision)
    if p.Lambda == "power":
        diagonal = jnp.arange(1, p.d + 1, dtype=dtype) ** -jnp.asarray(p.alpha, dtype)
    else:
        diagonal = jnp.asarray(variances(p), dtype)
    Lambda, noise = jnp.diag(diagonal), jnp.asarray(p.noise, dtype) ** 2
    law = Law(Lambda, Lambda, jnp.eye(p.d, dtype=dtype), noise, jnp.asarray(1 / p.N, dtype))
    return Task(program(p), law, beginning(start_key, p), jnp.asarray(1 / p.M, dtype), test)


def beginning(key: Key[Array, ""], p: Preset) -> Params:
    """W_PV = s [0 0; 0' 1] and W_KQ = s [Theta Theta' 0; 0' 0], or another start. Assumption 3.3."""
    dtype, D = float_dtype(p.precision), p.d + 1
    s, balance = jnp.asarray(p.s, dtype), jnp.asarray(p.balance, dtype)
    if p.start == "anywhere":
        V_key, Q_key = jax.random.split(key)
        return Params(
            s * jax.random.normal(V_key, (D, D), dtype), s * jax.random.normal(Q_key, (D, D), dtype)
        )
    columns = 1 if p.Theta == "rank_one" else p.d
    Theta = (
        jnp.eye(p.d, dtype=dtype) if p.Theta == "identity" else jax.random.normal(key, (p.d, columns), dtype)
    )
    TT = Theta @ Theta.T
    sign = -1.0 if p.start == "minus" else 1.0
    U = sign * s * balance * TT / jnp.sqrt(jnp.sum(TT**2))
    zero = jnp.zeros((D, D), dtype)
    return Params(zero.at[-1, -1].set(s), zero.at[:-1, :-1].set(U))


def program(p: Preset) -> Preset:
    """The preset whose compiled program serves this one: the task knows the law and the start."""
    changes: dict[str, Any] = {"M": 1, "Lambda": "identity", "Theta": "identity", "start": "theorem"}
    if p.algorithm != "online":
        changes["N"] = 1
    return p.unchecked(**changes)


def prompts(
    key: Key[Array, ""], law: Law, batch: int, length: int
) -> tuple[Float[Array, "batch D columns"], Float[Array, " batch"]]:
    """Prompts E of `length` points, and <w, x_query>."""
    x_key, query_key, w_key, noise_key = jax.random.split(key, 4)
    d, dtype = law.Lambda.shape[0], law.Lambda.dtype

    def normal(key: Key[Array, ""], covariance: Array, shape: tuple[int, ...]) -> Array:
        values, vectors = jnp.linalg.eigh(covariance)
        root = vectors * jnp.sqrt(jnp.maximum(values, 0.0))[None, :]
        return jax.random.normal(key, (*shape, d), dtype) @ root.T

    x = normal(x_key, law.Lambda, (batch, length))
    query, w = normal(query_key, law.Query, (batch,)), normal(w_key, law.Tasks, (batch,))
    noise = jnp.sqrt(law.noise) * jax.random.normal(noise_key, (batch, length), dtype)
    y = jnp.einsum("bnd,bd->bn", x, w) + noise
    points = jnp.concatenate([x, y[:, :, None]], axis=2)
    last = jnp.concatenate([query, jnp.zeros((batch, 1), dtype)], axis=1)
    E = jnp.concatenate([points, last[:, None, :]], axis=1).swapaxes(1, 2)
    return E, jnp.sum(w * query, axis=1)


def sample(key: Key[Array, ""], task: Task, batch: int) -> tuple[Float[Array, "batch D columns"], Array]:
    """Training prompts of the task's N points, and <w, x_query>."""
    # Programs of exact losses serve all N, which the law alone knows.
    own = task.preset
    N = own.N if own.algorithm == "online" else round(1 / float(task.law.share))
    return prompts(key, task.law, batch, N)


# ---------------------------------------------------------------- model


def predict(w: Params, E: Float[Array, "batch D columns"]) -> Float[Array, " batch"]:
    """yhat, the last entry of E + W_PV E (E' W_KQ E) / N; only the last column is computed.

    That of E itself is 0.
    """
    scores = jnp.einsum("bin,ij,bj->bn", E, w.W_KQ, E[:, :, -1])
    return jnp.einsum("i,bin,bn->b", w.W_PV[-1], E, scores) / (E.shape[2] - 1)


# ---------------------------------------------------------------- objective


def population_loss(w: Params, task: Task) -> Float[Array, ""]:
    """(1/2) E(yhat - <w, x_query>)^2, exact."""
    return squared_error(w, task.law) / 2


def batch_loss(w: Params, batch: tuple[Array, Array]) -> Float[Array, ""]:
    """The loss of some prompts."""
    E, y = batch
    return jnp.mean((predict(w, E) - y) ** 2) / 2


def block_gradient(u: Float[Array, ""], U: Float[Array, "d d"], law: Law) -> tuple[Array, Array]:
    """The gradient of the loss in u and U where v = r = 0: minus Lemma 5.2's dynamical system.

    dU/dt = u Lambda^2 - u^2 Gamma Lambda U Lambda,   du/dt = tr(Lambda^2 U' - u Gamma Lambda U Lambda U').
    """
    L2, GLUL = law.Lambda @ law.Lambda, gamma(law) @ law.Lambda @ U @ law.Lambda
    return u * jnp.sum(GLUL * U) - jnp.sum(L2 * U), u**2 * GLUL - u * L2


# ---------------------------------------------------------------- algorithm


def limit(law: Law) -> Params:
    """What Theorem 4.1 says the flow converges to."""
    inverse = jnp.linalg.inv(gamma(law))
    d, fourth = inverse.shape[0], jnp.sum(inverse**2) ** 0.25
    zero = jnp.zeros((d + 1, d + 1), inverse.dtype)
    return Params(zero.at[-1, -1].set(fourth), zero.at[:-1, :-1].set(inverse / fourth))


def half_way(w: Params, law: Law) -> Bool[Array, ""]:
    """Whether u has come to half its limit: the end of the plateau at the saddle."""
    return w.W_PV[-1, -1] > limit(law).W_PV[-1, -1] / 2


def dynamics(task: Task, p: Preset) -> Dynamics:
    """Training by the chosen algorithm."""

    def begin(key: Key[Array, ""]) -> Params:
        return task.start

    def exact(w: Params) -> Float[Array, ""]:
        return population_loss(w, task)

    if p.algorithm == "flow":
        # Decay to the limit is followed over many decades, down to what the solver leaves.
        return flow(
            begin, jax.grad(exact), p.eta, event=lambda w: half_way(w, task.law), rtol=1e-10, atol=1e-13
        )
    rule = optimizer(p.optimizer, p.eta, lam=p.lam, sparse=("W_KQ",))
    if p.algorithm == "descent":
        return descent(begin, population(exact), rule)
    return descent(begin, online(lambda key: sample(key, task, p.batch), batch_loss), rule)


# ---------------------------------------------------------------- test prompts


def shifted(task: Task, p: Preset) -> dict[str, Law]:
    """The laws of test prompts of M points: as in training, and with one thing changed.

    task: all w in the direction of the least variance, of the same mean square; query: variances in reverse
    order, four times as large; covariate: points and query c times as large. Section 4.2.
    """
    law = task.law._replace(share=task.test_share)
    d = law.Lambda.shape[0]
    rare = jnp.zeros_like(law.Lambda).at[-1, -1].set(float(d))
    square = jnp.asarray(p.c, law.Lambda.dtype) ** 2
    return {
        "none": law,
        "task": law._replace(Tasks=rare),
        "query": law._replace(Query=4 * law.Lambda[::-1, ::-1]),
        "covariate": law._replace(Lambda=square * law.Lambda, Query=square * law.Query),
    }


def relative_error(w: Params, law: Law) -> Float[Array, ""]:
    """E(yhat - y)^2 / E y^2 for y = <w, x_query>."""
    return squared_error(w, law) / jnp.sum(law.Tasks * law.Query)


def error_on_prompts(key: Key[Array, ""], w: Params, law: Law, length: int, samples: int) -> Array:
    """The mean of (yhat - y)^2 over drawn prompts, in parts that fit the cache."""
    part = largest_divisor(samples, 256)

    def errors(key: Key[Array, ""]) -> Array:
        E, y = prompts(key, law, part, length)
        return jnp.mean((predict(w, E) - y) ** 2)

    return jnp.mean(jax.lax.map(errors, jax.random.split(key, samples // part)))


# ---------------------------------------------------------------- probes


def _norm(X: Array) -> Array:
    return jnp.sqrt(jnp.sum(X**2))


def distance(w: Params, task: Task) -> Float[Array, " matrix"]:
    """|W_PV - W_PV*|_F / |W_PV*|_F, and the same of W_KQ."""
    return jnp.stack([_norm(a - b) / _norm(b) for a, b in zip(w, limit(task.law), strict=True)])


def answer_error(w: Params, task: Task) -> Float[Array, ""]:
    """|W - Gamma^-1|_F / |Gamma^-1|_F for W = u U + v r': u and U may share a factor, answers do not know."""
    inverse = jnp.linalg.inv(gamma(task.law))
    return _norm(answered(blocks(w)) - inverse) / _norm(inverse)


def outside(w: Params, task: Task) -> Float[Array, ""]:
    """The share of the norm of all weights that lies outside u and U."""
    own = blocks(w)
    kept = own.u**2 + jnp.sum(own.U**2)
    rest = jnp.sum(w.W_PV**2) - own.u**2 + jnp.sum(w.W_KQ[-1] ** 2) + jnp.sum(w.W_KQ[:-1, -1] ** 2)
    return jnp.sqrt(jnp.maximum(rest, 0.0) / (kept + rest))


def imbalance(w: Params, task: Task) -> Float[Array, ""]:
    """|u^2 - |U|_F^2| over their sum."""
    own = blocks(w)
    u2, U2 = own.u**2, jnp.sum(own.U**2)
    return jnp.abs(u2 - U2) / (u2 + U2)


def at_lengths(w: Params, task: Task) -> Float[Array, " length"]:
    """The exact test error at prompts of all lengths, and of infinite ones at the end."""
    shares = jnp.asarray([1 / M for M in LENGTHS] + [0.0], task.law.share.dtype)
    return jax.vmap(lambda share: squared_error(w, task.law._replace(share=share)))(shares)


def probes(p: Preset) -> dict[str, Probe]:
    """What is recorded."""

    def of(measure: Callable[[Params, Task], Array], doc: str, *dims: str, **options: Any) -> Probe:
        return Probe(lambda task, p, state: measure(state.params, task), doc, dims, **options)

    def sampled(w: Params, task: Task) -> Array:
        keys = jax.random.split(task.test, len(LENGTHS))
        return jnp.stack([
            error_on_prompts(key, w, task.law, M, p.samples) for key, M in zip(keys, LENGTHS, strict=True)
        ])  # fmt: skip

    def printed(w: Params, task: Task) -> Array:
        lengths = jnp.asarray([*LENGTHS, jnp.inf], task.law.share.dtype)
        return jax.vmap(lambda M: printed_error(task.law, M))(lengths)

    found = {
        "loss": of(population_loss, "population loss"),
        "excess_loss": of(lambda w, task: excess_loss(w, task.law), "loss above the least of all weights"),
        "distance": of(distance, "relative distance of W_PV and W_KQ from the limit", "matrix"),
        "answer_error": of(answer_error, "relative distance of u U + v r' from Gamma^-1"),
        "outside": of(outside, "share of the norm outside u and U"),
        "imbalance": of(imbalance, "|u^2 - |U|^2| / (u^2 + |U|^2)"),
        "u": of(lambda w, task: blocks(w).u, "u, the last entry of W_PV"),
        "least_loss": of(lambda w, task: least_loss(task.law), "the least loss of all weights", once=True),
        "rate": of(lambda w, task: slowest_rate(task.law), "least curvature at the limit", once=True),
        "growth": of(lambda w, task: _norm(task.law.Lambda @ task.law.Lambda), "|Lambda^2|_F", once=True),
        "error": of(at_lengths, "test error by length, exact, infinite last", "length", once=True),
        "printed_error": of(printed, "Theorem 4.2's test error by length", "length", once=True),
        "relative_error": Probe(
            lambda task, p, state: jnp.stack([
                relative_error(state.params, law) for law in shifted(task, p).values()
            ]),
            "test error over the labels' variance at M points, by shift", ("shift",), once=True,
        ),
        "final_W_KQ": of(lambda w, task: w.W_KQ, "W_KQ at the end", "row", "column", once=True),
        "limit_W_KQ": of(lambda w, task: limit(task.law).W_KQ, "its limit", "row", "column", once=True),
    }  # fmt: skip
    if p.samples > 0:
        found["sampled_error"] = of(sampled, "test error by length, on drawn prompts", "drawn", once=True)
    if p.algorithm == "flow":
        found["hit"] = Probe(
            lambda task, p, state: state.hit, "step at which u is half its limit; -1: not yet"
        )
    if p.detail:
        found["W_PV"] = of(lambda w, task: w.W_PV, "W_PV", "row", "column")
        found["W_KQ"] = of(lambda w, task: w.W_KQ, "W_KQ", "row", "column")
    return found


# ---------------------------------------------------------------- the paper

PAPER = About(
    title="Trained Transformers Learn Linear Models In-Context",
    citation="Zhang, Frei, Bartlett. Journal of Machine Learning Research 25(49), 2024.",
    loss="loss",
)
