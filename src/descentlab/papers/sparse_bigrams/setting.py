"""The setting of sparse_bigrams: presets, and random ground truths."""

import functools
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from descentlab.engine import TRUE, Settings, float_dtype, parameter, preset
from descentlab.errors import SettingError

SIGN_ETA = 1e-2  # of sign descent and Adam, unless it is given
ALGORITHMS = ("sgd", "proximal", "population", "simulated")
# A, its gradient, noise, update and what is recorded of them: what a seed holds at once, as measured.
COPIES, MOST_BYTES = 11, 16 * 10**9
# The least of random weights over the largest.
EVEN = 2 / 3
WEIGHTS = ("equal", "random")

# ---------------------------------------------------------------- presets


@preset
class Preset(Settings):
    """The paper's letters, and its assumptions as switches."""

    T: int = parameter("positions of a sequence", default=1000, low=2, high=10_000_000)
    N: int = parameter("tokens of the vocabulary", default=3, low=2, high=2000)
    Q: int = parameter("positions that a trigger looks at", default=2, low=1)
    mu: str = parameter("law of tokens, such as [0.5,0.3,0.2]; uniform unless given", default="")
    P: str = parameter(
        "transition matrix as its rows, such as [[0.5,0.5],[0.5,0.5]], P[i,j] the probability of i after j; "
        "random unless given",
        default="",
    )
    successors: int = parameter("equally likely successors of a token in a random P", default=2, low=1)
    weights: str = parameter(
        "weights of the Q positions: equal, random, or given, such as [0.6,0.4]", default="equal"
    )
    attention: str = parameter("attention: linear in A, or softmax of logits", default="linear",
                               choices=("linear", "softmax"))  # fmt: skip
    algorithm: str = parameter(
        "fresh batches by SGD, or with proximal steps after stage 1; exact population gradients; or these "
        "with simulated batch noise (proximal steps if lam > 0)",
        default="proximal",
        choices=ALGORITHMS,
    )
    optimizer: str = parameter(
        "gradient steps as in the paper, or sign descent or Adam, which have one stage of projected steps of "
        "size eta_1",
        default="gd",
        choices=("gd", "sign", "adam"),
    )
    batch: int = parameter("sequences a step", default=64, low=1, high=100_000_000)
    noise: float = parameter(
        "algorithm=simulated: variance of the noise over that of a batch", default=1.0, low=0
    )
    eta_1: float = parameter("step size of stage 1", default=0.05, above=0)
    eta_2: float = parameter("step size of stage 2", default=0.05, above=0)
    eta_3: float = parameter(
        "first step size of the last stage, where V alone is trained", default=0.5, above=0
    )
    logit_rate: float = parameter(
        "attention=softmax: step of the logits over that of V", default=30.0, above=0
    )
    lam: float = parameter("weight of the l1 norm of A in stage 2", default=0.01, low=0)
    switch: float = parameter("stage 1 is over once max(a_V, a_A) reaches switch/(QN)", default=0.6, above=0)
    refit: bool = parameter(
        "after stage 2 threshold and normalise A, and train V alone for the rest", default=True
    )
    last: float = parameter("share of the steps that the last stage has", default=0.2, low=0, high=1)
    threshold: float = parameter(
        "entries of A below this share of the largest in their column are dropped when A is rounded",
        default=0.5, above=0, high=1,
    )  # fmt: skip
    start: str = parameter(
        "A uniform and V = mu1'; on the line at the end of stage 1; or V of a pre-trained model",
        default="scratch",
        choices=("scratch", "line", "transfer"),
    )
    theta: float = parameter("start=transfer: V = theta P^ + (1 - theta) mu1'", default=0.5, low=0, high=1)
    correlation: float = parameter(
        "start=transfer: correlation of the pre-trained P^ with P", default=0.5, low=-1, high=1
    )
    reduced: bool = parameter(
        "algorithm=population from start=scratch or line: two numbers instead of V and A", default=True
    )
    precision: int = parameter("bits of a number", default=64, choices=(32, 64))
    steps: int = parameter("training steps", default=2500, low=1, high=10**9)
    at_scale: bool = parameter(
        "whether this is the simulation at scale, of sizes T_scale, N_scale", default=False
    )
    T_scale: int = parameter("positions of the simulation at scale", default=100_000, low=2)
    N_scale: int = parameter("tokens of the simulation at scale", default=3, low=2)
    batch_scale: int = parameter("batch of the simulation at scale", default=6400, low=1)

    def implied(self, changes):
        """What was given for other sizes goes; few tokens have few successors; scale has its own sizes."""
        along: dict[str, Any] = {}
        if "N" in changes:
            along |= {"mu": "", "P": "", "successors": _fewer(self.successors, changes["N"])}
        if "Q" in changes and self.weights not in WEIGHTS:
            along["weights"] = "equal"
        if str(changes.get("at_scale")).lower() in TRUE:
            along |= {"T": self.T_scale, "N": self.N_scale, "batch": self.batch_scale, "mu": "", "P": ""}
            along["successors"] = _fewer(self.successors, self.N_scale)
            along["switch"] = self.switch * self.N_scale / self.N  # at the same level
        if changes.get("optimizer", "gd") != "gd" and self.optimizer == "gd":
            along |= {"algorithm": "sgd", "refit": False, "reduced": False, "eta_1": SIGN_ETA}
        return along

    def conflicts(self) -> Iterator[str]:
        """Sizes that do not fit, laws and matrices that are none, and runs that cannot be."""
        if self.Q > self.T:
            yield f"Q takes a whole number <= T = {self.T}, got Q={self.Q}."
        if not self.P and self.successors >= self.N:
            yield f"successors takes a whole number < N = {self.N}, got successors={self.successors}."
        given_mu(self)
        given_P(self)
        weights = given_weights(self)
        least = EVEN if weights is None else float(weights[weights > 0].min() / weights.max())
        if least < self.threshold:
            yield (
                f"threshold takes a number <= {least:.3g}, the least of weights={self.weights} over the "
                f"largest, or rounding drops positions of Q; got threshold={self.threshold:g}."
            )
        if self.Q == self.T and weights is not None and np.ptp(weights) < 1e-9:
            yield f"Q takes a whole number < T = {self.T} for equal weights, got Q={self.Q}."
        if self.needed_bytes > MOST_BYTES:
            yield (
                f"T={self.T}, N={self.N} take {self.needed_bytes / 1e9:.3g} GB a seed, at most "
                f"{MOST_BYTES / 1e9:g} are allowed."
            )
        if self.attention == "softmax" and self.algorithm in ("proximal", "simulated"):
            yield f"attention=softmax takes algorithm=sgd or population, got algorithm={self.algorithm}."
        if self.optimizer != "gd" and (self.algorithm not in ("sgd", "population") or self.refit):
            yield (
                f"optimizer={self.optimizer} takes algorithm=sgd or population and refit=false, got "
                f"algorithm={self.algorithm}, refit={str(self.refit).lower()}."
            )
        if self.start == "line" and self.level > 1:
            yield f"start=line takes switch <= QN = {self.Q * self.N}, got switch={self.switch:g}."
        if self.start == "transfer" and self.N == 2 and abs(self.correlation) < 1:
            yield f"correlation takes -1 or 1 for N = 2, got correlation={self.correlation:g}."

    @property
    def level(self) -> Any:
        """The signal at which stage 1 ends, Theta(1/(QN)). Theorem 3.1."""
        return self.switch / (self.Q * self.N)

    @property
    def K_P(self) -> float:
        """|P - mu1'|^2_mu, of a given P or of a random one for uniform mu."""
        P, mu = given_P(self), given_mu(self)
        return 1 / self.successors - 1 / self.N if P is None else float(np.sum(mu * (P - mu[:, None]) ** 2))

    @property
    def needed_bytes(self) -> float:
        """The memory of one seed's step: a few copies of A."""
        return float(COPIES * self.T * self.N * self.precision // 8)


def _fewer(successors: int, N: Any) -> int:
    """As many successors as so many tokens can have, but for the one that makes all tokens alike."""
    return max(1, min(successors, int(N) - 1)) if str(N).isdigit() else successors


def on_line(p: Preset) -> bool:
    """Whether a run is that of two numbers: asked for, and exact."""
    exact = p.algorithm == "population" and p.attention == "linear" and p.optimizer == "gd"
    return p.reduced and exact and p.start != "transfer"


# ---------------------------------------------------------------- what may be given


@functools.lru_cache
def _numbers(field: str, text: str, example: str) -> np.ndarray:
    try:
        found = np.array(json.loads(text), dtype=float)
    except (ValueError, TypeError, OverflowError):
        found = np.array(np.nan)
    if not np.isfinite(found).all():
        raise SettingError(f"{field} takes numbers such as {example}, got {field}={text}.")
    return found


def given_mu(p: Preset) -> np.ndarray:
    """The law of tokens; a SettingError if it is none."""
    if not p.mu:
        return np.full(p.N, 1 / p.N)
    mu = _numbers("mu", p.mu, "[0.5,0.3,0.2]")
    if mu.shape != (p.N,) or not mu.min() > 0 or not abs(mu.sum() - 1) <= 1e-9:
        raise SettingError(f"mu takes N = {p.N} positive numbers that sum to 1, got mu={p.mu}.")
    return mu


def given_P(p: Preset) -> np.ndarray | None:
    """The transition matrix that the preset gives; a SettingError if it is none, or does not keep mu."""
    if not p.P:
        return None
    P, mu = _numbers("P", p.P, "[[0.9,0.1],[0.1,0.9]]"), given_mu(p)
    if P.shape != (p.N, p.N):
        raise SettingError(f"P takes N = {p.N} rows of N numbers, got an array of shape {P.shape}.")
    if P.min() < 0 or not np.abs(P.sum(0) - 1).max() <= 1e-9:
        raise SettingError(f"P takes columns that are >= 0 and sum to 1, got sums {P.sum(0).tolist()}.")
    if not np.abs(P @ mu - mu).max() <= 1e-9:
        raise SettingError(f"P must keep mu, P mu = mu = {mu.tolist()}; got P mu = {(P @ mu).tolist()}.")
    if not np.abs(P - mu[:, None]).max() > 1e-9:
        raise SettingError("P must differ from mu1', of which there is nothing to learn.")
    return P


def given_weights(p: Preset) -> np.ndarray | None:
    """The weights of the Q positions, alike in all columns; a SettingError if they are none."""
    if p.weights in WEIGHTS:
        return np.full(p.Q, 1 / p.Q) if p.weights == "equal" else None
    weights = _numbers("weights", p.weights, "[0.6,0.4]")
    if weights.shape != (p.Q,) or weights.min() < 0 or not abs(weights.sum() - 1) <= 1e-9:
        raise SettingError(
            f"weights takes equal, random, or Q = {p.Q} numbers >= 0 that sum to 1, got weights={p.weights}."
        )
    return weights


# ---------------------------------------------------------------- the presets

PRESETS = {
    # For tests and a first look.
    "tiny": Preset(T=200, steps=1000, T_scale=2000, batch_scale=640),
    # The sizes at which proximal steps and SGD part.
    "quick": Preset(),
    "paper": Preset(T=5000, N_scale=500, batch_scale=25_600),
    # The simulation at scale: half a gigabyte a seed.
    "scale": Preset(
        T=100_000,
        N=100,
        batch=25_600,
        algorithm="simulated",
        precision=32,
        switch=20.0,
        lam=0.02,
        steps=1700,
        N_scale=100,
        batch_scale=25_600,
    ),
}


def records(p: Preset) -> np.ndarray:
    """Evenly; simulations, of which there are many, and large states are looked at less often."""
    count = 60 if p.algorithm == "simulated" or p.T * p.N > 10**6 else 200
    return np.unique(np.linspace(0, p.steps, min(count, p.steps) + 1).round().astype(int))


# ---------------------------------------------------------------- task


class Task(NamedTuple):
    """The ground truth: mu, P, and the columns of Q as positions with weights, a row each.

    `root` is a square root of the covariance of e_o given its source, diag(mu) - P diag(mu) P'.
    """

    mu: Float[Array, " N"]
    P: Float[Array, "N N"]
    positions: Int[Array, "N Q"]
    weights: Float[Array, "N Q"]
    root: Float[Array, "N N"]
    pretrained: Float[Array, "N N"]


def coupling(rows: Float[Array, " N"], columns: Float[Array, " N"]) -> Float[Array, "N N"]:
    """The joint law of two variables with these laws that are driven by the same uniform number.

    Entry (i, j) is the overlap of the i-th with the j-th interval when [0, 1) is cut by each law.

    >>> half = jnp.array([0.5, 0.5])
    >>> coupling(half, jnp.array([0.25, 0.75])).tolist()
    [[0.25, 0.25], [0.0, 0.5]]
    """
    zero = jnp.zeros(1, rows.dtype)
    ends = [jnp.concatenate([zero, jnp.cumsum(law)]) for law in (rows, columns)]
    low = jnp.maximum(ends[0][:-1, None], ends[1][None, :-1])
    high = jnp.minimum(ends[0][1:, None], ends[1][None, 1:])
    return jnp.maximum(high - low, 0)


def random_chain(key: Key[Array, ""], mu: Float[Array, " N"], successors: int) -> Float[Array, "N N"]:
    """A random P with P mu = mu: for uniform mu each token has so many successors, all equally likely.

    The mean of couplings of mu with itself, tokens in one random order against another one, shifted.
    """
    one, other = jnp.argsort(jax.random.bits(key, (2, mu.shape[0]), "uint32"))

    def shifted(s: Array, joint: Float[Array, "N N"]) -> Float[Array, "N N"]:
        order = jnp.roll(one, s)
        return joint.at[order[:, None], other[None, :]].add(coupling(mu[order], mu[other]))

    joint = jax.lax.fori_loop(0, successors, shifted, jnp.zeros((mu.shape[0],) * 2, mu.dtype))
    return joint / jnp.sum(joint, axis=0, keepdims=True)


def inner(X: Float[Array, "n N"], Y: Float[Array, "n N"], mu: Float[Array, " N"]) -> Float[Array, ""]:
    """<X, Y>_mu, columns weighted by mu."""
    return jnp.sum(mu[None, :] * X * Y)


def keeping_sums(X: Float[Array, "N N"], mu: Float[Array, " N"]) -> Float[Array, "N N"]:
    """X without what would change 1'V or V mu if it were added to V."""
    X = X - jnp.mean(X, axis=0, keepdims=True)
    return X - (X @ mu)[:, None]


def related_chain(
    key: Key[Array, ""], P: Float[Array, "N N"], mu: Float[Array, " N"], correlation: Any
) -> Float[Array, "N N"]:
    """P^ with <P^ - mu1', P - mu1'>_mu = correlation |P^ - mu1'| |P - mu1'|: P and a random direction.

    Its columns sum to one and it keeps mu, but entries may be negative.
    """
    base = jnp.broadcast_to(mu[:, None], P.shape)
    U, E = P - base, keeping_sums(jax.random.normal(key, P.shape, P.dtype), mu)
    E = E - inner(E, U, mu) / jnp.maximum(inner(U, U, mu), 1e-30) * U
    E = E * jnp.sqrt(inner(U, U, mu) / jnp.maximum(inner(E, E, mu), 1e-30))
    return base + correlation * U + jnp.sqrt(jnp.maximum(1 - correlation**2, 0)) * E


def make_task(key: Key[Array, ""], p: Preset) -> Task:
    """A random ground truth, but for what the preset gives."""
    dtype = float_dtype(p.precision)
    P_key, Q_key, weight_key, other_key = jax.random.split(key, 4)
    mu, P, weights = jnp.asarray(given_mu(p)), given_P(p), given_weights(p)
    P = random_chain(P_key, mu, p.successors) if P is None else jnp.asarray(P)

    def places(key: Key[Array, ""]) -> Int[Array, " Q"]:
        return jax.lax.top_k(jax.random.bits(key, (p.T,), "uint32"), p.Q)[1].astype(int)

    positions = jax.lax.map(places, jax.random.split(Q_key, p.N))
    if weights is None:
        drawn = jax.random.uniform(weight_key, (p.N, p.Q), jnp.float64, EVEN, 1.0)
        columns = drawn / jnp.sum(drawn, axis=1, keepdims=True)
    else:
        columns = jnp.broadcast_to(jnp.asarray(weights), (p.N, p.Q))
    values, vectors = jnp.linalg.eigh(jnp.diag(mu) - (P * mu[None, :]) @ P.T)
    root = vectors * jnp.sqrt(jnp.maximum(values, 0))[None, :]
    pretrained = P
    if p.start == "transfer":
        pretrained = related_chain(other_key, P, mu, jnp.asarray(p.correlation, jnp.float64))
    mu, P, columns, root, pretrained = (x.astype(dtype) for x in (mu, P, columns, root, pretrained))
    return Task(mu, P, positions, columns, root, pretrained)


def program(p: Preset) -> Preset:
    """The preset whose compiled program serves this one: how a run starts is over once it has."""
    same = {"at_scale": False, "T_scale": p.T, "N_scale": p.N, "batch_scale": p.batch}
    return p.unchecked(start="scratch", reduced=on_line(p), **same)
