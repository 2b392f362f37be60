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

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from descentlab.engine import (
    OPTIMIZERS,
    Dynamics,
    Probe,
    Training,
    descent,
    float_dtype,
    flow,
    largest_divisor,
    log_spaced,
    online,
    parameter,
    population,
    preset,
    probe,
)
from descentlab.errors import SettingError
from descentlab.papers import Crossing, Deviation, Experiment, Goal, Paper, Variant, share_of_start, spaced
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

# ---------------------------------------------------------------- setting

SPECTRA = ("identity", "power")
LENGTHS = (5, 10, 20, 40, 80, 160, 320)  # of test prompts
SHIFTS = ("none", "task", "query", "covariate")


@preset
class Preset(Training):
    """Linear self-attention on prompts of N labelled points and a query.

    Lambda is diagonal, which loses nothing: the start's law does not change under rotations.
    """

    d: int = parameter("dimension of x", default=5, low=1, high=64)
    N: int = parameter("labelled points of a training prompt", default=20, low=1, high=10**9)
    M: int = parameter("labelled points of a test prompt, for shifts", default=20, low=1, high=10**9)
    Lambda: str = parameter(
        "variances of x's coordinates: identity, power (i^-alpha), or d numbers such as 1,0.5,0.25",
        default="power",
    )
    alpha: float = parameter("exponent of Lambda=power", default=1.0, low=0, high=4)
    s: float = parameter("scale of the start", default=0.1, above=0, high=1e3)
    balance: float = parameter(
        "|W_KQ| over |W_PV| at the start; the theorem has 1", default=1.0, above=0, high=1e3
    )
    Theta: str = parameter(
        "Theta of the start: Gaussian, a multiple of I, or of rank one",
        default="gaussian",
        choices=("gaussian", "identity", "rank_one"),
    )
    start: str = parameter(
        "theorem: s Theta Theta'; minus: its negative; anywhere: Gaussian entries in all blocks",
        default="theorem",
        choices=("theorem", "minus", "anywhere"),
    )
    noise: float = parameter("standard deviation of the labels' noise", default=0.0, low=0, high=1e3)
    c: float = parameter("covariate shift: test inputs are c times those of training", default=2.0, above=0)
    algorithm: str = parameter(
        "gradient flow or descent on the exact loss, or descent on fresh prompts",
        default="flow",
        choices=("flow", "descent", "online"),
    )
    optimizer: str = parameter(
        "gradient steps, which the flow is the limit of, or sign descent, Adam, or proximal steps with an l1 "
        "norm of W_KQ",
        default="gd",
        choices=OPTIMIZERS,
    )
    eta: float = parameter("step size; step t of a flow is time eta t", default=0.01, above=0)
    batch: int = parameter("prompts a step (online)", default=256, low=1, high=1_000_000)
    steps = 40_000
    samples: int = parameter("test prompts drawn of each length, 0: none", default=0, low=0, high=10**7)
    detail: bool = parameter("record W_PV and W_KQ along the run", default=False)

    def implied(self, changes):
        """Given variances belong to their dimension."""
        return {"Lambda": "power"} if "d" in changes and self.Lambda not in SPECTRA else {}

    def conflicts(self) -> Iterator[str]:
        """Variances that are none, and flows in a precision that their tolerance is beyond."""
        variances(self)
        if self.algorithm == "flow" and self.precision == 32:
            yield "algorithm=flow takes precision=64: its tolerance is below 32-bit rounding."
        if self.optimizer != "gd" and self.algorithm == "flow":
            yield f"optimizer={self.optimizer} takes algorithm=descent or online, got algorithm=flow."
        if self.algorithm == "online" and self.N > 10_000:
            yield f"algorithm=online takes N <= 10000, got N={self.N}."

    @property
    def start_over_bound(self) -> float:
        """s^2 |Gamma| sqrt(d) / 2, which Theorem 4.1 wants below 1."""
        Lambda = variances(self)
        Gamma = (1 + 1 / self.N) * Lambda + (Lambda.sum() + self.noise**2) / self.N
        return float(self.s**2 * Gamma.max() * math.sqrt(self.d) / 2)


def variances(p: Any) -> np.ndarray:
    """The diagonal of Lambda; a SettingError if it is none."""
    if p.Lambda == "identity":
        return np.ones(p.d)
    if p.Lambda == "power":
        return np.arange(1.0, p.d + 1) ** -p.alpha
    try:
        found = np.array([float(word) for word in p.Lambda.split(",")])
    except ValueError:
        found = np.zeros(0)
    if found.size != p.d or not np.isfinite(found).all() or not found.min() > 0:
        raise SettingError(
            f"Lambda takes {', '.join(SPECTRA)}, or d = {p.d} positive numbers; got Lambda={p.Lambda}."
        )
    return found


PRESETS = {
    # For tests and a first look.
    "tiny": Preset(d=3, N=10, M=10, alpha=0.5, steps=20_000),
    # Some seconds a run.
    "quick": Preset(),
    # The dimension of the paper's experiments on transformers.
    "paper": Preset(d=20, N=40, M=40, steps=400_000),
}


def records(p: Preset) -> np.ndarray:
    """The first steps one by one, then log-spaced."""
    return log_spaced(p.steps, dense=10, per_decade=60)


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
    return Task(p, law, beginning(start_key, p), jnp.asarray(1 / p.M, dtype), test)


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


def carried(p: Preset) -> dict[str, None]:
    """What the task holds as arrays: the law of prompts and the start. Fresh prompts have N columns."""
    fields = (
        ("M", "Lambda", "Theta", "start")
        if p.algorithm == "online"
        else ("M", "N", "Lambda", "Theta", "start")
    )
    return dict.fromkeys(fields)


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
    return prompts(key, task.law, batch, task.preset.N)


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
    rule = p.rule(sparse=("W_KQ",))
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

    def sampled(w: Params, task: Task) -> Array:
        keys = jax.random.split(task.test, len(LENGTHS))
        return jnp.stack([
            error_on_prompts(key, w, task.law, M, p.samples) for key, M in zip(keys, LENGTHS, strict=True)
        ])  # fmt: skip

    def printed(w: Params, task: Task) -> Array:
        lengths = jnp.asarray([*LENGTHS, jnp.inf], task.law.share.dtype)
        return jax.vmap(lambda M: printed_error(task.law, M))(lengths)

    found = {
        "loss": probe(population_loss, "population loss"),
        "excess_loss": probe(lambda w, task: excess_loss(w, task.law), "loss above the least of all weights"),
        "distance": probe(distance, "relative distance of W_PV and W_KQ from the limit", "matrix"),
        "answer_error": probe(answer_error, "relative distance of u U + v r' from Gamma^-1"),
        "outside": probe(outside, "share of the norm outside u and U"),
        "imbalance": probe(imbalance, "|u^2 - |U|^2| / (u^2 + |U|^2)"),
        "u": probe(lambda w, task: blocks(w).u, "u, the last entry of W_PV"),
        "least_loss": probe(lambda w, task: least_loss(task.law), "the least loss of all weights", once=True),
        "rate": probe(lambda w, task: slowest_rate(task.law), "least curvature at the limit", once=True),
        "growth": probe(lambda w, task: _norm(task.law.Lambda @ task.law.Lambda), "|Lambda^2|_F", once=True),
        "error": probe(at_lengths, "test error by length, exact, infinite last", "length", once=True),
        "printed_error": probe(printed, "Theorem 4.2's test error by length", "length", once=True),
        "relative_error": Probe(
            lambda task, p, state: jnp.stack([
                relative_error(state.params, law) for law in shifted(task, p).values()
            ]),
            "test error over the labels' variance at M points, by shift", ("shift",), once=True,
        ),
        "final_W_KQ": probe(lambda w, task: w.W_KQ, "W_KQ at the end", "row", "column", once=True),
        "limit_W_KQ": probe(lambda w, task: limit(task.law).W_KQ, "its limit", "row", "column", once=True),
    }  # fmt: skip
    if p.samples > 0:
        found["sampled_error"] = probe(sampled, "test error by length, on drawn prompts", "drawn", once=True)
    if p.algorithm == "flow":
        found["hit"] = Probe(
            lambda task, p, state: state.hit, "step at which u is half its limit; -1: not yet"
        )
    if p.detail:
        found["W_PV"] = probe(lambda w, task: w.W_PV, "W_PV", "row", "column")
        found["W_KQ"] = probe(lambda w, task: w.W_KQ, "W_KQ", "row", "column")
    return found


# ---------------------------------------------------------------- the paper

DEVIATIONS = {
    "Exact loss": "The paper derives the loss where v = r = 0 (Lemma 5.1). Ours is exact for all entries of "
    "W_PV and W_KQ, with label noise, and under shifts of inputs, query and task. That no weights do better "
    "than the limit follows in one line from its odd and even parts.",
    "Label noise": "The paper trains without noise. Here noise of variance tau^2 adds to tr Lambda in Gamma, "
    "which is derived, not printed; it is on the points' labels alone, and the error is against <w, "
    "x_query>. Claims of the theorems are out of regime with noise.",
    "Diagonal Lambda": "Lambda is diagonal: loss, flow and the law of the start do not change under "
    "rotations.",
    "Theta": "The paper takes any Theta with |Theta Theta'|_F = 1. Ours has Gaussian entries, is a multiple "
    "of the identity, or has rank one, then scaled; a seed is a Theta.",
    "Bound on s": "s^2 |Gamma| sqrt(d) < 2 gates the theorems' claims, as printed in Theorem 4.1 to the best "
    "of our knowledge. The flow does not need it. By balance u = 0 only where U = 0, which is stationary, so "
    "u stays positive. In the eigenbasis of Lambda, U_ii' = u lambda_i^2 (1 - u gamma_i U_ii) then keeps "
    "U_ii >= 0, and u' = sum_i lambda_i^2 U_ii (1 - u gamma_i U_ii) >= 0 near zero. So no s > 0 leads to the "
    "saddle at zero; the weights stay bounded (|uU|_F = u^2), the loss is analytic, and every other "
    "stationary point with balance and u > 0 is the limit. The claim large_start_converges_too is ours.",
    "Starts outside the blocks": "The theorem starts with v = r = 0, which the flow keeps. From Gaussian "
    "entries in all blocks the flow also ends at local minima with v and r along one eigenvector of Lambda, "
    "above the least loss: ours, and what every_start_reaches_the_minimum measures.",
    "Numbers of statements": "Numbers of theorems, lemmas, assumptions and sections are those of the journal "
    "version to the best of our knowledge; the statement of Lemma 5.4 (a PL inequality) is tested by its "
    "consequence, exponential decay, without its constant.",
    "Sizes": "The theorems have no experiment of their own. d = 20 and N = 40 of the preset `paper`, the "
    "spectrum i^-alpha, horizons and the factors of the shifts are ours.",
    "Shifts": "Section 4.2 argues for arbitrary shifts. Ours are one of each: all w along the least "
    "variance, query variances reversed and four times as large, and inputs c times as large.",
    "Not here": "Prompts whose covariance is itself random (Section 4.3), and the experiments on large "
    "nonlinear transformers.",
}

_WHY_LINEAR = "The loss is exact, and the limit known, for linear attention alone."

CROSSING = Crossing(
    "linear regression in context",
    PRESETS["tiny"].replace(algorithm="descent", steps=2000),
    rate=("eta",),
    optimizers={
        "gd": Variant({"optimizer": "gd"}, spaced(1e-2, 10, 7)),
        "sign": Variant({"optimizer": "sign"}, spaced(1e-3, 1, 7)),
        "adam": Variant({"optimizer": "adam"}, spaced(1e-3, 1, 7)),
        "proximal": Variant({"optimizer": "proximal"}, spaced(1e-2, 10, 7)),
    },
    kernels={"linear": {}},
    learns=Goal("the excess loss falls below a tenth of its start", share_of_start("excess_loss"), below=0.1),
    # What answers prompts, and not W_PV and W_KQ one by one: only flows keep the balance of the two.
    recovers=Goal(
        "answers are x' Gamma^-1 sum_i y_i x_i / M with Gamma^-1 up to a tenth of its size",
        lambda run: run["answer_error"],
        below=0.1,
    ),
    own=("gd", "linear"),
    unfit={"softmax": _WHY_LINEAR, "gaussian": _WHY_LINEAR},
)

PAPER = Paper(
    "Trained Transformers Learn Linear Models In-Context",
    "Zhang, Frei, Bartlett. Journal of Machine Learning Research 25(49), 2024.",
    Experiment(PRESETS, make_task, dynamics, probes, records=records, carried=carried),
    deviations=tuple(Deviation(*one) for one in DEVIATIONS.items()),
)
