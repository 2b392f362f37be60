"""The setting of bilinear_teachers: presets, the four teachers, the laws of inputs, and data."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, ScalarLike

from descentlab.engine import (
    BY_SIGN,
    OPTIMIZERS,
    Settings,
    float_dtype,
    log_spaced,
    normal,
    parameter,
    preset,
)
from descentlab.engine import _plugin as foreign

# ---------------------------------------------------------------- teachers


@dataclass(frozen=True)
class Teacher:
    """What a teacher sets unless it is given: sizes, activation; M = 0 stands for M = d."""

    D: int
    K: int
    M: int
    activation: str


TEACHERS = {
    "cnn": Teacher(D=36, K=4, M=5, activation="relu"),
    "gcn": Teacher(D=20, K=3, M=5, activation="relu"),
    "token_selection": Teacher(D=20, K=4, M=0, activation="identity"),
    "group_sparse": Teacher(D=20, K=1, M=1, activation="identity"),
}

# ---------------------------------------------------------------- laws of inputs

Law = Callable[[Key[Array, ""], tuple[int, ...], np.dtype], Array]


def _of_uniform(function: Callable[[Array], Array]) -> Law:
    return lambda key, shape, dtype: function(jax.random.uniform(key, shape, dtype, minval=-1.0))


# Each draws independent entries: law(key, shape, dtype). Variance 1 but for the rate-1 exponential's mean.
LAWS: dict[str, Law] = {
    "gaussian": jax.random.normal,
    "exponential": jax.random.exponential,
    "centred_exponential": lambda key, shape, dtype: jax.random.exponential(key, shape, dtype) - 1,
    "laplace": lambda key, shape, dtype: jax.random.laplace(key, shape, dtype) * 0.5**0.5,
    "uniform": _of_uniform(lambda u: u * 3**0.5),
    "rademacher": jax.random.rademacher,
}

# ---------------------------------------------------------------- presets


# Horizons of runs that are not those of two numbers, unless steps are given.
ONLINE_STEPS, FULL_STEPS = 20_000, 1_000_000
# The step size of optimisers that a gradient tells a direction alone, unless it is given.
SIGN_ETA = 1e-3


@preset
class Preset(Settings):
    """The paper's letters, and its assumptions as switches."""

    teacher: str = parameter("what S* and V* are", default="cnn", choices=TEACHERS)
    activation: str = parameter(
        "s; the teacher's own unless given", default="", choices=("identity", "relu", "leaky_relu")
    )
    D: int = parameter("columns of X (positions); the teacher's own unless given", default=0, low=2)
    K: int = parameter("non-zeros in a column of S*; the teacher's own unless given", default=0, low=1)
    d: int = parameter("rows of X (features)", default=10, low=1, high=10_000)
    M: int = parameter("rows of V* (outputs); the teacher's own unless given", default=0, low=1, high=10_000)
    V_scale: float = parameter("standard deviation of V*'s entries (token_selection: V* = V_scale I)",
                               default=1.0, above=0)  # fmt: skip
    leak: float = parameter("slope of LeakyReLU below zero", default=0.1, low=0, high=1)
    slope_at_zero: float = parameter(
        "s'(0) of ReLU and LeakyReLU, a choice: with 0 training never leaves W_V = 0",
        default=1.0, low=0, high=1,
    )  # fmt: skip
    sigma_x: float = parameter("scale of the training inputs", default=1.0, above=0)
    noise: float = parameter("standard deviation of the label noise", default=0.1, low=0)
    inputs: str = parameter("law of the training inputs: a name or module:function", default="gaussian")
    encoding: str = parameter(
        "P: random orthogonal, cosine basis (orthogonal), identity, or Gaussian (not orthogonal)",
        default="orthogonal",
        choices=("orthogonal", "cosine", "identity", "gaussian"),
    )
    student: str = parameter(
        "position-only attention, or the full transformer it is cut from",
        default="position_only",
        choices=("position_only", "full"),
    )
    start: str = parameter(
        "start of training: zero, or Gaussian", default="zero", choices=("zero", "gaussian")
    )
    sigma_0: float = parameter("standard deviation of the Gaussian start", default=0.01, low=0)
    train: str = parameter("trained blocks", default="both", choices=("both", "value", "attention"))
    algorithm: str = parameter(
        "exact population gradient descent, online descent with fresh batches, or gradient flow",
        default="population",
        choices=("population", "online", "flow"),
    )
    attention: str = parameter(
        "softmax; or linear, which is not the paper's: 1 + x for exp(x), D for its sum over positions",
        default="softmax",
        choices=("softmax", "linear"),
    )
    optimizer: str = parameter(
        "gradient descent as in the paper, sign descent or Adam on W_V and W_KQ, or proximal steps with an "
        "l1 norm of P'W_KQ P",
        default="gd",
        choices=OPTIMIZERS,
    )
    lam: float = parameter("optimizer=proximal: weight of the l1 norm", default=0.01, low=0)
    reduced: bool = parameter(
        "train the two numbers of Lemma D.2 where that is exact (exact gradients of both blocks from zero, "
        "orthogonal encodings), else all weights",
        default=True,
    )
    batch: int = parameter("samples a step of online descent", default=100, low=1, high=1_000_000)
    eta: float = parameter("step size; step t of a flow is time eta t", default=0.05, above=0)
    steps: int = parameter("training steps", default=100_000_000, low=1, high=10**15)
    ood: str = parameter(
        "law of out-of-distribution inputs: a name or module:function", default="exponential"
    )
    ood_samples: int = parameter(
        "samples behind losses without a closed form", default=1000, low=2, high=10_000_000
    )
    detail: bool = parameter("record losses out of distribution, and matrices at the end", default=True)
    precision: int = parameter("bits of a floating-point number", default=64, choices=(32, 64))

    def __post_init__(self) -> None:
        own = TEACHERS.get(self.teacher)
        if own is not None:
            sizes = {"D": own.D, "K": own.K, "M": own.M or self.d, "activation": own.activation}
            for name, value in sizes.items():
                object.__setattr__(self, name, getattr(self, name) or value)
        super().__post_init__()

    def implied(self, changes):
        """Another teacher brings its own sizes and activation, and d its M; dearer steps bring fewer."""
        along: dict[str, Any] = {}
        if "teacher" in changes:
            along = {"D": 0, "K": 0, "M": 0, "activation": ""}
        elif "d" in changes and self.teacher == "token_selection" and self.d == self.M:
            along = {"M": 0}
        now = {**self.settings(), **changes}
        if now["algorithm"] == "online" and self.algorithm != "online":
            along["steps"] = min(self.steps, ONLINE_STEPS)
        elif on_line(self) and (
            now["start"] != "zero"
            or now["train"] != "both"
            or now["encoding"] == "gaussian"
            or now["optimizer"] != "gd"
            or now["attention"] != "softmax"
        ):
            along["steps"] = min(self.steps, FULL_STEPS)
        if changes.get("optimizer") in BY_SIGN and self.optimizer not in BY_SIGN:
            along["eta"] = SIGN_ETA
        return along

    def conflicts(self):
        """Sizes that do not fit, and runs for which there is no closed form."""
        if self.K > self.D:
            yield f"K takes a whole number <= D = {self.D}, got K={self.K}."
        if self.teacher == "cnn" and self.D % self.K:
            yield f"K must divide D for teacher=cnn, which pools blocks of K; got K={self.K}, D={self.D}."
        if self.D > 4096 and (self.detail or not on_line(self)):
            yield (
                f"D takes a whole number <= 4096 unless only the two numbers are kept (detail=false, "
                f"reduced=true); got D={self.D}."
            )
        foreign.chosen("inputs", self.inputs, LAWS)
        foreign.chosen("ood", self.ood, LAWS)
        for name, own in (("optimizer", "gd"), ("attention", "softmax")):
            if getattr(self, name) != own and (self.algorithm == "flow" or self.student == "full"):
                yield (
                    f"{name}={getattr(self, name)} takes algorithm=population or online and "
                    f"student=position_only, got algorithm={self.algorithm}, student={self.student}."
                )
        if self.optimizer == "proximal" and self.encoding == "gaussian":
            yield (
                "optimizer=proximal, a step in P'W_KQ P, takes encoding=orthogonal, cosine or identity, got "
                "encoding=gaussian."
            )
        if self.algorithm == "flow" and self.precision == 32:
            yield "algorithm=flow takes precision=64, got precision=32: solvers need the digits."
        if self.algorithm != "online" and self.student == "full":
            yield (
                "student=full has no closed-form loss: algorithm takes online for it, "
                f"got algorithm={self.algorithm}."
            )
        if self.algorithm != "online" and self.inputs != "gaussian":
            yield (
                f"algorithm={self.algorithm} is exact for inputs=gaussian only, got inputs={self.inputs}; "
                "algorithm=online takes any."
            )

    def foreign_code(self) -> str:
        """What one's own laws are, for the name of the run."""
        return "".join(foreign.fingerprint(name, LAWS) for name in (self.inputs, self.ood))

    @property
    def largest_eta(self) -> float:
        """1 / (M D^{5/2}), the printed bound on the step size up to its constant."""
        return 1 / (self.M * self.D**2.5)


def on_line(p: Preset) -> bool:
    """Whether a run is that of the two numbers: asked for, and exact."""
    exact = p.algorithm != "online" and p.train == "both" and p.encoding != "gaussian"
    own = p.optimizer == "gd" and p.attention == "softmax"
    return p.reduced and exact and own and p.start == "zero"


def bend(p: Preset) -> tuple[ScalarLike, ScalarLike]:
    """The slope k of s below zero and its slope at zero; the identity has no choice."""
    k = {"identity": 1.0, "relu": 0.0, "leaky_relu": p.leak}[p.activation]
    return k, 1.0 if p.activation == "identity" else p.slope_at_zero


PRESETS = {
    # A small pooling teacher, its rates settled after a second; for tests and a first look.
    "tiny": Preset(D=16, K=2, d=8, M=4, eta=0.1, steps=10_000_000, ood_samples=200),
    # The CNN teacher with ReLU for a hundred million exact steps, over ten thousand times T*.
    "quick": Preset(),
    # Ten times as long, and more samples out of distribution.
    "paper": Preset(steps=1_000_000_000, ood_samples=20_000),
}


def records(p: Preset) -> np.ndarray:
    """The first steps one by one, then log-spaced."""
    return log_spaced(p.steps, dense=10, per_decade=30)


# ---------------------------------------------------------------- task


class Task(NamedTuple):
    """A teacher and the student's positional encodings; `test` is the key of all evaluation samples."""

    preset: Preset
    V: Float[Array, "M d"]
    S: Float[Array, "D D"]
    P: Float[Array, "D D"]
    test: Key[Array, ""]


class LineTask(NamedTuple):
    """What is left of a task on the line: |V*|_F^2, D and K, as numbers so that sizes share a program."""

    preset: Preset
    V2: Float[Array, ""]
    D: Float[Array, ""]
    K: Float[Array, ""]


def value_teacher(key: Key[Array, ""], p: Preset) -> Float[Array, "M d"]:
    """V*: Gaussian, or the identity for token selection."""
    dtype = float_dtype(p.precision)
    if p.teacher == "token_selection":
        return p.V_scale * jnp.eye(p.M, p.d, dtype=dtype)
    return p.V_scale * jax.random.normal(key, (p.M, p.d), dtype)


def attention_teacher(key: Key[Array, ""], p: Preset) -> Float[Array, "D D"]:
    """S*, K entries 1/K a column: blocks, a cycle's neighbours, or K random rows that all columns share."""
    i, j = jnp.arange(p.D)[:, None], jnp.arange(p.D)[None, :]
    if p.teacher == "cnn":
        support = i // p.K == j // p.K
    elif p.teacher == "gcn":
        support = (i - j + p.K // 2) % p.D < p.K
    else:
        chosen = jax.random.permutation(key, p.D)[: p.K]
        support = jnp.broadcast_to(jnp.any(i == chosen[None, :], axis=1, keepdims=True), (p.D, p.D))
    return support.astype(float_dtype(p.precision)) / p.K


def encodings(key: Key[Array, ""], p: Preset) -> Float[Array, "D D"]:
    """P, a column a position."""
    dtype = float_dtype(p.precision)
    if p.encoding == "identity":
        return jnp.eye(p.D, dtype=dtype)
    if p.encoding == "cosine":
        # The discrete cosine transform, a frequency a row.
        waves = np.arange(p.D)[:, None] * (np.arange(p.D)[None, :] + 0.5) * np.pi / p.D
        rows = np.cos(waves) * np.where(np.arange(p.D)[:, None] == 0, 1.0, 2**0.5) / p.D**0.5
        return jnp.asarray(rows, dtype)
    G = jax.random.normal(key, (p.D, p.D), dtype)
    if p.encoding == "gaussian":
        return G / p.D**0.5
    Q, R = jnp.linalg.qr(G)
    return Q * jnp.sign(jnp.diagonal(R))[None, :]


def bare(p: Preset) -> bool:
    """Whether nothing but the two numbers is kept, so that sizes may be huge and share a program."""
    return on_line(p) and not p.detail


def line_task(p: Preset, V: Float[Array, "M d"]) -> LineTask:
    """What the two numbers need of a task."""
    return LineTask(program(p), jnp.sum(V**2), jnp.asarray(p.D, V.dtype), jnp.asarray(p.K, V.dtype))


def program(p: Preset) -> Preset:
    """The preset whose compiled program serves this one: the two numbers know sizes from their task alone."""
    if not bare(p):
        return p
    return p.unchecked(teacher="cnn", D=2, K=1, d=1, M=1)


def make_task(key: Key[Array, ""], p: Preset) -> Task | LineTask:
    """A random teacher."""
    V_key, S_key, P_key, test = jax.random.split(key, 4)
    V = value_teacher(V_key, p)
    if bare(p):
        return line_task(p, V)
    return Task(p, V, attention_teacher(S_key, p), encodings(P_key, p), test)


def entries(key: Key[Array, ""], law: str, shape: tuple[int, ...], p: Preset) -> Array:
    """Independent entries of a law. Drawn in 32 bits, which is three times as fast, then widened."""
    draw = normal if law == "gaussian" else foreign.chosen("law", law, LAWS)
    return jnp.asarray(draw(key, shape, np.dtype(np.float32)), float_dtype(p.precision))


def inputs(key: Key[Array, ""], task: Task, batch: int) -> Float[Array, "d batch D"]:
    """Training inputs, laid out so that both products of the model are single matrix products."""
    p = task.preset
    return p.sigma_x * entries(key, p.inputs, (p.d, batch, p.D), p)


def label_noise(key: Key[Array, ""], task: Task, batch: int) -> Float[Array, "M batch D"]:
    """The E of Y = f*(X) + E, Gaussian."""
    p = task.preset
    return p.noise * entries(key, "gaussian", (p.M, batch, p.D), p)
