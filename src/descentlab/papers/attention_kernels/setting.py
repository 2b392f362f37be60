"""The setting of attention_kernels: preset, data, and where training starts."""

import inspect
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from descentlab.engine import (
    BY_SIGN,
    OPTIMIZERS,
    Settings,
    chosen,
    fingerprint,
    float_dtype,
    log_spaced,
    parameter,
    preset,
)
from descentlab.errors import SettingError
from descentlab.papers.attention_kernels.model import KERNELS, Weights, outputs

TRAINED = ("q", "k", "v", "qk", "qv", "kv", "qkv")
STEP_RATIO = 4.0  # between step sizes that are tried side by side
MOST_BYTES = 4e9
# The step size of optimisers that a gradient tells a direction alone, unless it is given.
SIGN_ETA = 1e-2


@preset
class Preset(Settings):
    """The letters of the paper. Vectors are rows, as there."""

    N: int = parameter("inputs", default=8, low=1, high=10_000)
    n: int = parameter("tokens of an input", default=4, low=1, high=4096)
    D: int = parameter("numbers of a token", default=16, low=2, high=4096)
    d: int = parameter("columns of W^Q, W^K, W^V of a head", default=8, low=1, high=4096)
    H: int = parameter("heads", default=4, low=1, high=1024)
    kernel: str = parameter(
        "attention kernel; linear, which is not the paper's, has 1 + x for exp(x) and n for the sum over "
        "tokens",
        default="softmax",
        choices=(*KERNELS, "linear"),
    )
    train: str = parameter("which of W^Q, W^K, W^V are trained", default="qkv", choices=TRAINED)
    tokens: str = parameter(
        "tokens are Gaussian, or biased: Gaussian with a last coordinate of one", default="gaussian",
        choices=("gaussian", "biased"),
    )  # fmt: skip
    labels: str = parameter(
        "labels are Gaussian numbers, or outputs of softmax attention with other weights", default="random",
        choices=("random", "teacher"),
    )  # fmt: skip
    label_scale: float = parameter("size of the labels", default=1.0, above=0)
    init: str = parameter(
        "start of W^Q, W^K, W^V: generic, paired, separating, or your own as module:function of (key, "
        "preset, W^O, X, y) that gives W^Q, W^K, W^V, each H x D x d",
        default="generic",
    )
    scale: float = parameter(
        "size of queries and keys at the start: entries of W^Q and W^K are scale/sqrt(D) times normal ones",
        default=1.0, low=0,
    )  # fmt: skip
    value_scale: float = parameter("the same of W^V, unless init=separating", default=0.0, low=0)
    output_scale: float = parameter("|W_h^O| of every head", default=10.0, above=0)
    delta: float = parameter("init=separating: part of the values that softmax can use", default=0.1, low=0)
    c: float = parameter("init=separating: size of the values", default=3.0, above=0)
    algorithm: str = parameter(
        "full-batch gradient descent, or gradient flow, of which a step is a time of one step size",
        default="descent",
        choices=("descent", "flow"),
    )
    optimizer: str = parameter(
        "gradient descent as in the paper, or sign descent, Adam, or proximal steps with an l1 norm of W^Q "
        "and W^K",
        default="gd",
        choices=OPTIMIZERS,
    )
    lam: float = parameter("optimizer=proximal: weight of the l1 norm", default=0.01, low=0)
    step: str = parameter(
        "eta is the step size, or in units of 1/L with L the largest curvature, up or down, at the start",
        default="curvature",
        choices=("curvature", "fixed"),
    )
    eta: float = parameter("step size", default=0.5, above=0)
    starts: int = parameter("starts trained on the same data", default=1, low=1, high=10_000)
    rates: int = parameter("step sizes tried from each start: eta, 4 eta, 16 eta, ...", default=1, low=1,
                           high=32)  # fmt: skip
    grid: int = parameter(
        "init=separating: values of delta in [0, 1], and of scale from a tenth to three times its own, that "
        "make a map; 0: no map",
        default=0, low=0, high=256,
    )  # fmt: skip
    detail: bool = parameter(
        "record beta, gamma and the curvature along the run, and ranks and floors of one start", default=True
    )
    precision: int = parameter("bits of a number", default=64, choices=(32, 64))
    steps: int = parameter("training steps", default=3000, low=1, high=10**9)

    def implied(self, changes):
        """The separating values need a coordinate that is one; steps by signs have a size of their own."""
        along: dict[str, Any] = {"tokens": "biased"} if changes.get("init") == "separating" else {}
        if changes.get("optimizer") in BY_SIGN and self.optimizer not in BY_SIGN:
            along |= {"step": "fixed", "eta": SIGN_ETA}
        return along

    def conflicts(self) -> Iterator[str]:
        """Starts that cannot be, and runs of many cells that are not of a kind."""
        chosen("init", self.init, INITS)
        if self.init == "separating" and self.tokens != "biased":
            yield f"init=separating takes tokens=biased, got tokens={self.tokens}."
        if self.grid and self.init != "separating":
            yield f"grid takes 0 unless init=separating, got grid={self.grid} with init={self.init}."
        if self.grid == 1:
            yield "grid takes 0 or a whole number >= 2, got grid=1."
        if self.cells > 1 and self.algorithm == "flow":
            yield (
                f"algorithm=flow trains one start, got starts={self.starts}, rates={self.rates}, "
                f"grid={self.grid}."
            )
        if self.optimizer != "gd" and (self.algorithm == "flow" or self.cells > 1):
            yield (
                f"optimizer={self.optimizer} takes algorithm=descent and one start, got algorithm="
                f"{self.algorithm}, starts={self.starts}, rates={self.rates}, grid={self.grid}."
            )
        if self.optimizer in BY_SIGN and self.step == "curvature":
            yield f"step=curvature takes optimizer=gd or proximal, got optimizer={self.optimizer}."
        if self.needed_bytes > MOST_BYTES:
            yield (
                f"N={self.N}, n={self.n}, D={self.D}, d={self.d}, H={self.H} with {self.cells} cells take "
                f"{self.needed_bytes / 1e9:.3g} GB a seed, at most {MOST_BYTES / 1e9:g} are allowed."
            )

    def foreign_code(self) -> str:
        """A fingerprint of a start of one's own."""
        return fingerprint(self.init, INITS)

    @property
    def cells(self) -> int:
        """How many weights are trained side by side."""
        return self.starts * self.rates * max(self.grid, 1) ** 2

    @property
    def needed_bytes(self) -> float:
        """The memory of one seed: weights of all cells, scores, and J_Q with what its decomposition takes."""
        weights = 3 * self.H * self.D * self.d * self.cells
        matrices = 3 * self.N * self.n * self.H * self.D * self.d if self.cells == 1 else 0
        return float((4 * weights + 4 * self.N * self.H * self.n**2 + matrices) * self.precision // 8)


def records(p: Preset) -> np.ndarray:
    """Log-spaced; runs of many cells are looked at less often."""
    return log_spaced(p.steps, dense=20, per_decade=20) if p.cells == 1 else log_spaced(p.steps, 1, 5)


def map_axes(p: Preset) -> tuple[Array, Array]:
    """The values of delta and of scale that a map ranges over."""
    dtype = float_dtype(p.precision)
    deltas, factors = np.linspace(0.0, 1.0, p.grid), np.geomspace(0.1, 3.0, p.grid)
    return jnp.asarray(deltas, dtype), jnp.asarray(factors, dtype) * p.scale


# ---------------------------------------------------------------- data


def normals(key: Key[Array, ""], p: Preset, *shapes: tuple[int, ...]) -> list[Array]:
    """Arrays of normal numbers, drawn at once: each call of the generator takes a second to compile."""
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    drawn = jax.random.normal(key, (int(ends[-1]),), float_dtype(p.precision))
    return [part.reshape(shape) for part, shape in zip(jnp.split(drawn, ends[:-1]), shapes, strict=True)]


class Data(NamedTuple):
    """Inputs with a row a token, labels with a number a token, and W^O."""

    X: Float[Array, "N n D"]
    y: Float[Array, "N n"]
    W_O: Float[Array, "H d"]


def draw(key: Key[Array, ""], p: Preset, inputs: int | None = None) -> Data:
    """Random data. W_h^O are directions of one length, the same for the heads of a couple."""
    N = inputs or p.N
    X, y, W_O = normals(key, p, (N, p.n, p.D), (N, p.n), (p.H, p.d))
    X = X.at[..., -1].set(1.0) if p.tokens == "biased" else X
    W_O = W_O / jnp.linalg.norm(W_O, axis=1, keepdims=True)
    W_O = couples(W_O, 1.0) if p.init in PAIRED else W_O
    if p.labels == "teacher":
        teacher = generic(jax.random.fold_in(key, 1), p.unchecked(scale=1.0, value_scale=1.0), W_O, X, y)
        y = outputs(teacher, W_O, X, "softmax")
    return Data(X, p.label_scale * y, p.output_scale * W_O)


# ---------------------------------------------------------------- starts


def couples(M: Float[Array, "H ..."], sign: float) -> Float[Array, "H ..."]:
    """Heads 2, 4, ... as `sign` times the head before; a last one without a partner is zero for sign -1.

    >>> couples(jnp.array([[1.0], [2.0], [3.0]]), -1.0).ravel().tolist()
    [1.0, -1.0, 0.0]
    """
    first = M[::2]
    both = jnp.stack([first, sign * first], axis=1).reshape(-1, *M.shape[1:])[: M.shape[0]]
    return both.at[-1].set(0.0) if M.shape[0] % 2 and sign < 0 else both


def generic(key: Key[Array, ""], p: Preset, W_O: Float[Array, "H d"], X: Array, y: Any) -> Weights:
    """Independent normal entries."""
    return _weights(p, *normals(key, p, *[(p.H, p.D, p.d)] * 3))


def _weights(p: Preset, Q: Array, K: Array, V: Array) -> Weights:
    unit = jnp.asarray(1 / np.sqrt(p.D), Q.dtype)
    return Weights(unit * p.scale * Q, unit * p.scale * K, unit * p.value_scale * V)


def _in_couples(w: Weights) -> Weights:
    return Weights(couples(w.Q, 1.0), couples(w.K, 1.0), couples(w.V, -1.0))


def paired(key: Key[Array, ""], p: Preset, W_O: Float[Array, "H d"], X: Array, y: Any) -> Weights:
    """Heads in couples of equal W^Q and W^K and opposite W^V: all outputs are zero."""
    return _in_couples(generic(key, p, W_O, X, y))


def separating(key: Key[Array, ""], p: Preset, W_O: Float[Array, "H d"], X: Array, y: Any) -> Weights:
    """Paired heads with u_h = ±c(e_D + delta u'), u' a random unit vector that is 0 at D.

    Tokens end in one, so softmax, whose rows sum to one, makes nothing of e_D: what a couple can express is
    in proportion to delta, whatever W^Q and W^K are.
    """
    *three, free = normals(key, p, *[(p.H, p.D, p.d)] * 3, (p.H, p.D))
    free = free.at[:, -1].set(0.0)
    free = free / jnp.linalg.norm(free, axis=1, keepdims=True)
    u = couples(p.c * (p.delta * free).at[:, -1].set(1.0), -1.0)
    V = u[:, :, None] * (W_O / jnp.sum(W_O**2, axis=1, keepdims=True))[:, None, :]
    return _in_couples(_weights(p, *three))._replace(V=V)


INITS: dict[str, Callable[..., Any]] = {"generic": generic, "paired": paired, "separating": separating}
PAIRED = ("paired", "separating")


def start(key: Key[Array, ""], p: Preset, W_O: Float[Array, "H d"], X: Array, y: Array) -> Weights:
    """Where training starts; a SettingError if a function of one's own gives something else than weights."""
    make = chosen("init", p.init, INITS)
    try:
        inspect.signature(make).bind(key, p, W_O, X, y)
    except TypeError as error:
        raise SettingError(
            f"init takes a function of (key, preset, W^O, X, y), got init={p.init}: {error}."
        ) from None
    found = make(key, p, W_O, X, y)
    try:
        w = Weights(*(jnp.asarray(x, X.dtype) for x in found))
        shapes = [x.shape for x in w]
    except (TypeError, ValueError):
        w, shapes = None, type(found).__name__
    if w is None or shapes != [(p.H, p.D, p.d)] * 3:
        raise SettingError(
            f"init takes a function that gives W^Q, W^K, W^V of shape {(p.H, p.D, p.d)} each, got {shapes} "
            f"from init={p.init}."
        )
    return w


# ---------------------------------------------------------------- the presets

PRESETS = {
    # For tests and a first look.
    "tiny": Preset(N=4, n=3, D=8, d=4, H=4, steps=2000),
    # The sizes at which the separating construction was calibrated, with twice the features HD = Nn.
    "quick": Preset(),
    # Larger; the paper gives no sizes. About an hour on two cores with eight seeds.
    "paper": Preset(N=16, n=8, D=32, d=16, H=8, steps=10_000),
}
