r"""Gradient descent on attention with softmax and with Gaussian kernels.

Song, Han, Zhang, Ding and Hong, "Unraveling the Gradient Descent Dynamics of Transformers".

One layer of multi-head attention maps an input X_i of n tokens to n numbers,

    MH(X_i) = sum_h S_ih X_i W_h^V W_h^O,   W_h^Q, W_h^K, W_h^V in R^{D x d}, W_h^O in R^d fixed,

with S_ih = softmax(X_i W_h^Q (X_i W_h^K)' / sqrt(d)) by rows, or the Gaussian kernel of queries and keys,
exp(-|x_k W^Q - x_j W^K|^2 / (2 sqrt(d))), which is not normalised. All or some of W^Q, W^K, W^V are trained
by full-batch gradient descent on f = 1/2 sum_i |MH(X_i) - y_i|^2.

| here | paper | meaning |
| --- | --- | --- |
| `N`, `n`, `D`, `d`, `H` | N, n, D, d, H | inputs, tokens, numbers of a token, columns of a head, heads |
| `Weights` | M | W^Q, W^K, W^V of all heads |
| `features` | B | [S_ih X_i], so that MH = B u with u_h = W_h^V W_h^O |
| `beta` | beta | min_h \|W_h^O\|^2 sigma_min^2(B), and as printed, \|W^O\|^2 sigma_min^2(B) |
| `gamma` | gamma | sigma_min^2(J_Q), J_Q the derivative of all outputs in W^Q |
| `rate` | eta | step size |
| `length`, `energy` | | eta sum_r \|grad f\|, which is the length of the path, and eta sum_r \|grad f\|^2 |
| `floor` | | a loss below which no W^Q and W^K lead with the values of the start |

A run trains one start and records all of that, or many cells side by side: starts on the same data, step
sizes, and a map over delta and scale.
"""

import inspect
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Key, ScalarLike

from descentlab.engine import (
    BY_SIGN,
    OPTIMIZERS,
    PRODUCTS,
    Dynamics,
    Extremes,
    Probe,
    Training,
    chosen,
    descent,
    empirical,
    extreme_eigenvalues,
    fingerprint,
    float_dtype,
    flow,
    log_spaced,
    optimizer,
    parameter,
    preset,
    probe,
)
from descentlab.errors import SettingError
from descentlab.papers import Crossing, Deviation, Experiment, Goal, Paper, Variant, share_of_start, spaced
from descentlab.papers.attention_kernels.kernels import (
    KERNELS,
    Inputs,
    Labels,
    Readout,
    Weights,
    features,
    floor,
    least_singular,
    outputs,
    query_jacobian,
    values,
)

# ---------------------------------------------------------------- setting

TRAINED = ("q", "k", "v", "qk", "qv", "kv", "qkv")
STEP_RATIO = 4.0  # between step sizes that are tried side by side
MOST_BYTES = 4e9
# The step size of optimisers that a gradient tells a direction alone, unless it is given.
SIGN_ETA = 1e-2


@preset
class Preset(Training):
    """The letters of the paper. Vectors are rows, as there."""

    N: int = parameter("inputs", default=8, low=1, high=10_000)
    n: int = parameter("tokens of an input", default=4, low=1, high=4096)
    D: int = parameter("numbers of a token", default=16, low=2, high=4096)
    d: int = parameter("columns of W^Q, W^K, W^V of a head", default=8, low=1, high=4096)
    H: int = parameter("heads", default=4, low=1, high=1024)
    kernel: str = parameter(
        "attention kernel; linear, which is not the paper's, has 1 + x for exp(x) and n for the sum over "
        "tokens", default="softmax", choices=(*KERNELS, "linear"),
    )  # fmt: skip
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
        "preset, W^O, X, y) that gives W^Q, W^K, W^V, each H x D x d", default="generic",
    )  # fmt: skip
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
        default="descent", choices=("descent", "flow"),
    )  # fmt: skip
    optimizer: str = parameter(
        "gradient descent as in the paper, or sign descent, Adam, or proximal steps with an l1 norm of W^Q "
        "and W^K", default="gd", choices=OPTIMIZERS,
    )  # fmt: skip
    step: str = parameter(
        "eta is the step size, or in units of 1/L with L the largest curvature, up or down, at the start",
        default="curvature", choices=("curvature", "fixed"),
    )  # fmt: skip
    eta = 0.5
    starts: int = parameter("starts trained on the same data", default=1, low=1, high=10_000)
    rates: int = parameter("step sizes tried from each start: eta, 4 eta, 16 eta, ...", default=1, low=1,
                           high=32)  # fmt: skip
    grid: int = parameter(
        "init=separating: values of delta in [0, 1], and of scale from a tenth to three times its own, that "
        "make a map; 0: no map", default=0, low=0, high=256,
    )  # fmt: skip
    detail: bool = parameter(
        "record beta, gamma and the curvature along the run, and ranks and floors of one start", default=True
    )
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
        """A fingerprint of a start of your own."""
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


# ---------------------------------------------------------------- data


def normals(key: Key[Array, ""], p: Preset, *shapes: tuple[int, ...]) -> list[Array]:
    """Arrays of normal numbers, drawn at once: each call of the generator takes a second to compile."""
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    drawn = jax.random.normal(key, (int(ends[-1]),), float_dtype(p.precision))
    return [part.reshape(shape) for part, shape in zip(jnp.split(drawn, ends[:-1]), shapes, strict=True)]


def draw(key: Key[Array, ""], p: Preset) -> tuple[Inputs, Labels, Readout]:
    """Random X, y and W^O; W_h^O are directions of one length, the same for the heads of a couple."""
    X, y, W_O = normals(key, p, (p.N, p.n, p.D), (p.N, p.n), (p.H, p.d))
    X = X.at[..., -1].set(1.0) if p.tokens == "biased" else X
    W_O = W_O / jnp.linalg.norm(W_O, axis=1, keepdims=True)
    W_O = couples(W_O, 1.0) if p.init in PAIRED else W_O
    if p.labels == "teacher":
        teacher = normal_weights(jax.random.fold_in(key, 1), p, scale=1.0, value_scale=1.0)
        y = outputs(teacher, W_O, X, "softmax")
    return X, p.label_scale * y, p.output_scale * W_O


# ---------------------------------------------------------------- starts


def couples(M: Float[Array, "H ..."], sign: float) -> Float[Array, "H ..."]:
    """Heads 2, 4, ... as `sign` times the head before; a last one without a partner is zero for sign -1.

    >>> couples(jnp.array([[1.0], [2.0], [3.0]]), -1.0).ravel().tolist()
    [1.0, -1.0, 0.0]
    """
    first = M[::2]
    both = jnp.stack([first, sign * first], axis=1).reshape(-1, *M.shape[1:])[: M.shape[0]]
    return both.at[-1].set(0.0) if M.shape[0] % 2 and sign < 0 else both


def normal_weights(key: Key[Array, ""], p: Preset, scale: ScalarLike, value_scale: ScalarLike) -> Weights:
    """Independent normal entries over sqrt(D), times `scale` in W^Q and W^K, `value_scale` in W^V."""
    Q, K, V = normals(key, p, *[(p.H, p.D, p.d)] * 3)
    unit = jnp.asarray(1 / np.sqrt(p.D), Q.dtype)
    return Weights(unit * scale * Q, unit * scale * K, unit * value_scale * V)


def generic(key: Key[Array, ""], p: Preset, W_O: Readout, X: Inputs, y: Labels) -> Weights:
    """Independent normal entries."""
    return normal_weights(key, p, p.scale, p.value_scale)


def paired(key: Key[Array, ""], p: Preset, W_O: Readout, X: Inputs, y: Labels) -> Weights:
    """Heads in couples of equal W^Q and W^K and opposite W^V: all outputs are zero."""
    w = generic(key, p, W_O, X, y)
    return Weights(couples(w.Q, 1.0), couples(w.K, 1.0), couples(w.V, -1.0))


def separated(key: Key[Array, ""], p: Preset, W_O: Readout, delta: ScalarLike, scale: ScalarLike) -> Weights:
    """Paired heads with u_h = ±c(e_D + delta u'), u' a random unit vector that is 0 at D.

    Tokens end in one, so softmax, whose rows sum to one, makes nothing of e_D: what a couple can express is
    in proportion to delta, whatever W^Q and W^K are.
    """
    Q, K, _, free = normals(key, p, *[(p.H, p.D, p.d)] * 3, (p.H, p.D))
    free = free.at[:, -1].set(0.0)
    free = free / jnp.linalg.norm(free, axis=1, keepdims=True)
    u = couples(p.c * (delta * free).at[:, -1].set(1.0), -1.0)
    V = u[:, :, None] * (W_O / jnp.sum(W_O**2, axis=1, keepdims=True))[:, None, :]
    unit = jnp.asarray(1 / np.sqrt(p.D), Q.dtype)
    return Weights(couples(unit * scale * Q, 1.0), couples(unit * scale * K, 1.0), V)


def separating(key: Key[Array, ""], p: Preset, W_O: Readout, X: Inputs, y: Labels) -> Weights:
    """The construction that separates, at the preset's delta and scale."""
    return separated(key, p, W_O, p.delta, p.scale)


INITS: dict[str, Callable[..., Any]] = {"generic": generic, "paired": paired, "separating": separating}
PAIRED = ("paired", "separating")


def start(key: Key[Array, ""], p: Preset, W_O: Readout, X: Inputs, y: Labels) -> Weights:
    """Where training starts; a SettingError if a function of your own gives something else than weights."""
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


# ---------------------------------------------------------------- presets

PRESETS = {
    # For tests and a first look.
    "tiny": Preset(N=4, n=3, D=8, d=4, H=4, steps=2000),
    # The sizes at which the separating construction was calibrated, with twice the features HD = Nn.
    "quick": Preset(),
    # Larger; the paper gives no sizes. About an hour on two cores with eight seeds.
    "paper": Preset(N=16, n=8, D=32, d=16, H=8, steps=10_000),
}
# Values and outputs of size one: what no theorem asks for.
GENERIC: dict[str, Any] = {"init": "generic", "value_scale": 1.0, "output_scale": 1.0}

# ---------------------------------------------------------------- task


class Task(NamedTuple):
    """The data, W^O, and where and how fast training starts; of all cells where a run has many."""

    X: Float[Array, "N n D"]
    y: Float[Array, "N n"]
    W_O: Float[Array, "H d"]
    start: Any
    rate: Array


def make_task(key: Key[Array, ""], p: Preset) -> Task:
    """Random data and W^O, the start, and the step size."""
    data_key, start_key, again_key = jax.random.split(key, 3)
    X, y, W_O = draw(data_key, p)
    w = start(start_key, p, W_O, X, y)
    task = Task(X, y, W_O, w, jnp.ones((), X.dtype))
    if p.cells == 1:
        return task._replace(rate=step_size(w, task, p))
    cells = _cells(start_key, again_key, task, p)
    rates = jax.lax.map(lambda w: step_size(w, task, p), cells)
    sizes = STEP_RATIO ** jnp.arange(p.rates, dtype=X.dtype)
    return task._replace(
        start=jax.tree.map(lambda x: jnp.repeat(x, p.rates, axis=0), cells),
        rate=(rates[:, None] * sizes[None, :]).ravel(),
    )


def _cells(key: Key[Array, ""], again: Key[Array, ""], task: Task, p: Preset) -> Weights:
    """The starts of all cells: what is trained drawn anew for each start, and each start over the map."""

    def anew(w: Weights, drawn: Weights) -> Weights:
        return w._replace(**trained(drawn, p))

    keys = jnp.stack([key, *jax.random.split(again, p.starts - 1)])
    if not p.grid:
        return jax.lax.map(lambda own: anew(task.start, start(own, p, task.W_O, task.X, task.y)), keys)
    places = [x.ravel() for x in jnp.meshgrid(*map_axes(p), indexing="ij")]

    def cell(at: tuple[Array, Array, Array]) -> Weights:
        own, *place = at
        here = separated(key, p, task.W_O, *place)
        return anew(here, separated(own, p, task.W_O, *place)) if p.starts > 1 else here

    return jax.lax.map(cell, (jnp.repeat(keys, p.grid**2), *(jnp.tile(x, p.starts) for x in places)))


def map_axes(p: Preset) -> tuple[Array, Array]:
    """The values of delta and of scale that a map ranges over."""
    dtype = float_dtype(p.precision)
    deltas, factors = np.linspace(0.0, 1.0, p.grid), np.geomspace(0.1, 3.0, p.grid)
    return jnp.asarray(deltas, dtype), jnp.asarray(factors, dtype) * p.scale


def carried(p: Preset) -> dict[str, None]:
    """What the task holds as arrays (data, start, step size): how these were made matters no more."""
    return dict.fromkeys(("init", "tokens", "labels", "step"))


# ---------------------------------------------------------------- objective


def loss(w: Weights, task: Task, p: Preset) -> Float[Array, ""]:
    """f = 1/2 sum_i |MH(X_i) - y_i|^2."""
    return 0.5 * jnp.sum((outputs(w, task.W_O, task.X, p.kernel) - task.y) ** 2)


def trained(w: Weights, p: Preset) -> dict[str, Array]:
    """The weights that are trained, by letter."""
    return {b.upper(): getattr(w, b.upper()) for b in p.train}


def slope(w: Weights, task: Task, p: Preset) -> Weights:
    """The gradient in what is trained, and zero elsewhere."""
    own = jax.grad(lambda own: loss(w._replace(**own), task, p))(trained(w, p))
    return jax.tree.map(jnp.zeros_like, w)._replace(**own)


def hessian_ends(w: Weights, task: Task, p: Preset, products: int = PRODUCTS) -> Extremes:
    """The extreme eigenvalues of the Hessian in what is trained."""
    own = trained(w, p)
    _, change = jax.linearize(jax.grad(lambda own: loss(w._replace(**own), task, p)), own)
    return extreme_eigenvalues(change, own, jax.random.key(0), products)


def step_size(w: Weights, task: Task, p: Preset) -> Float[Array, ""]:
    """eta, or eta/L with L the largest curvature at the start; eta where the loss is flat."""
    eta = jnp.asarray(p.eta, task.X.dtype)
    if p.step == "fixed":
        return eta
    largest = jnp.max(jnp.abs(jnp.stack(hessian_ends(w, task, p))))
    return eta / jnp.where(largest > _rounding(w, task), largest, 1.0)


def _rounding(w: Weights, task: Task) -> Float[Array, ""]:
    """A curvature of rounding errors: 1e3 eps (|y|^2 + n sum_i (sum_hj |v_ihj|)^2) / (Hd).

    The bracket bounds the loss, whatever the attention, and weights of scale one have |W^Q|^2 = Hd.
    """
    reach = jnp.sum(jnp.abs(values(w, task.W_O, task.X)), axis=(1, 2))
    loss_size = jnp.sum(task.y**2) + task.X.shape[1] * jnp.sum(reach**2)
    return 1e3 * jnp.finfo(loss_size.dtype).eps * loss_size / task.W_O.size


# ---------------------------------------------------------------- algorithm


class Path(NamedTuple):
    """Weights with how far they went: eta sum |grad f|, and eta sum |grad f|^2."""

    weights: Weights
    length: Float[Array, ""]
    energy: Float[Array, ""]


def dynamics(task: Task, p: Preset) -> Dynamics:
    """Full-batch gradient descent or flow, of one start or of many side by side."""
    if p.cells > 1:
        # The rates differ, so they are in the gradient and descent has step one.
        def pull(at: tuple[Weights, Array]) -> Weights:
            w, rate = at
            g = jax.tree.map(lambda g: rate * g, slope(w, task, p))
            # A cell whose step is far too large stays where it left the numbers.
            sound = jnp.isfinite(squared(g))
            return jax.tree.map(lambda x: jnp.where(sound, x, 0.0), g)

        each = empirical(lambda w: jnp.sum(losses(w, task, p)), lambda w: jax.lax.map(pull, (w, task.rate)))
        return descent(lambda key: task.start, each, optax.sgd(1.0))

    def begin(key: Key[Array, ""]) -> Path:
        zero = jnp.zeros((), task.X.dtype)
        return Path(task.start, zero, zero)

    def along(path: Path) -> Path:
        """Down the loss, and up the two sums."""
        g = slope(path.weights, task, p)
        square = squared(g)
        return Path(g, -jnp.sqrt(square), -square)

    if p.algorithm == "flow":
        return flow(begin, along, task.rate)
    return descent(begin, empirical(lambda path: loss(path.weights, task, p), along), rule(task, p))


def rule(task: Task, p: Preset) -> optax.GradientTransformation:
    """The optimiser of the weights; the two sums go up by eta in any case."""
    if p.optimizer == "gd":
        return optax.sgd(task.rate)
    own = optimizer(p.optimizer, task.rate, lam=p.lam, sparse=set(p.train.upper()) & {"Q", "K"})

    def update(g: Any, memory: Any, path: Any = None) -> tuple[Any, Any]:
        weights: Any
        weights, memory = own.update(g.weights, memory, path.weights)
        return Path(weights, -task.rate * g.length, -task.rate * g.energy), memory

    return optax.GradientTransformation(lambda path: own.init(path.weights), update)  # type: ignore[arg-type]


def squared(w: Weights) -> Float[Array, ""]:
    """|W^Q|^2 + |W^K|^2 + |W^V|^2."""
    return sum((jnp.sum(x**2) for x in w), start=jnp.zeros((), w.Q.dtype))


# ---------------------------------------------------------------- probes


def by_block(w: Weights) -> Float[Array, "3"]:
    """Norms of W^Q, W^K, W^V."""
    return jnp.stack([jnp.sqrt(jnp.sum(x**2)) for x in w])


def beta(w: Weights, task: Task, p: Preset) -> Float[Array, "2"]:
    """The constant of Theorem 1: in its safe reading, min_h |W_h^O|^2 sigma_min^2(B), and as printed."""
    sizes = jnp.sum(task.W_O**2, axis=1)
    return jnp.stack([jnp.min(sizes), jnp.sum(sizes)]) * least_singular(features(w, task.X, p.kernel)) ** 2


def gamma(w: Weights, task: Task, p: Preset) -> Float[Array, ""]:
    """The constant of Theorem 2: sigma_min^2(J_Q)."""
    return least_singular(query_jacobian(w, task.W_O, task.X, p.kernel)) ** 2


def ranks(w: Weights, task: Task, p: Preset) -> Array:
    """The rank of B with the first head alone, the first two, ..., all heads."""
    B = features(w, task.X, p.kernel)
    return jnp.stack([jnp.linalg.matrix_rank(B[:, : h * p.D]) for h in range(1, p.H + 1)])


def losses(w: Weights, task: Task, p: Preset) -> Float[Array, " cells"]:
    """f of every cell."""
    return jax.lax.map(lambda w: loss(w, task, p), w)


def probes(p: Preset) -> dict[str, Probe]:
    """What is recorded: of one start below, of many cells in `probes_of_cells`."""
    if p.cells > 1:
        return probes_of_cells(p)
    found = {
        "loss": probe(lambda at, task: loss(at.weights, task, p), "f"),
        "gradient": probe(lambda at, task: by_block(jax.grad(loss)(at.weights, task, p)),
                          "norm of the gradient in W^Q, W^K, W^V, trained or not", "block"),
        "moved": probe(lambda at, task: by_block(jax.tree.map(jnp.subtract, at.weights, task.start)),
                       "distance of W^Q, W^K, W^V from the start", "block"),
        "length": probe(lambda at, task: at.length, "eta sum of |grad f| over all steps"),
        "energy": probe(lambda at, task: at.energy, "eta sum of |grad f|^2 over all steps"),
        "start_size": probe(lambda at, task: by_block(task.start), "norm of W^Q, W^K, W^V at the start",
                            "block", once=True),
        "rate": probe(lambda at, task: task.rate, "step size", once=True),
    }  # fmt: skip
    if not p.detail:
        return found

    def floors(at: Path, task: Task) -> Array:
        return jnp.stack([floor(task.start, task.W_O, task.X, task.y, kernel) for kernel in KERNELS])

    return found | {
        "beta": probe(lambda at, task: beta(at.weights, task, p),
                      "|W^O|^2 sigma_min^2(B): safe reading, and as printed", "reading"),
        "gamma": probe(lambda at, task: gamma(at.weights, task, p), "sigma_min^2(J_Q)"),
        "curvature": probe(lambda at, task: jnp.stack(hessian_ends(at.weights, task, p)),
                           "least and largest eigenvalue of the Hessian in what is trained", "end"),
        "floor": probe(floors, "loss below which no W^Q, W^K lead, of each kernel, with the first values",
                       "kernel", once=True),
        "ranks": probe(lambda at, task: ranks(task.start, task, p), "rank of B at the start by heads",
                       "heads", once=True),
    }  # fmt: skip


def probes_of_cells(p: Preset) -> dict[str, Probe]:
    """Losses, gradients and, of several starts, outputs, by start, place on the map and step size."""
    shape = (p.starts, max(p.grid, 1), max(p.grid, 1), p.rates)

    def by_cell(measure: Callable[[Weights, Task], Array], doc: str, *more: str, **options: Any) -> Probe:
        def all_cells(w: Weights, task: Task) -> Array:
            found = measure(w, task)
            return found.reshape(*shape, *found.shape[1:])

        return probe(all_cells, doc, "start", "delta", "scale", "multiple", *more, **options)

    def slopes(w: Weights, task: Task) -> Array:
        return jax.lax.map(lambda w: jnp.sqrt(squared(slope(w, task, p))), w)

    def floors(w: Weights, task: Task) -> Array:
        return jax.lax.map(lambda w: floor(w, task.W_O, task.X, task.y, p.kernel), task.start)

    def all_outputs(w: Weights, task: Task) -> Array:
        return jax.lax.map(lambda w: outputs(w, task.W_O, task.X, p.kernel).ravel(), w)

    found = {
        "loss": probe(lambda w, task: jnp.nanmin(losses(w, task, p)), "least f of all cells"),
        "losses": by_cell(lambda w, task: losses(w, task, p), "f"),
        "slopes": by_cell(slopes, "norm of the gradient in what is trained"),
        "floors": by_cell(floors, "loss below which no W^Q, W^K lead with the first values", once=True),
        "rate": by_cell(lambda w, task: task.rate, "step size", once=True),
    }
    if p.starts > 1:
        found["outputs"] = by_cell(all_outputs, "MH(X_i)", "position")
        found["labels"] = probe(lambda w, task: task.y.ravel(), "y_i", "position", once=True)
    return found


# ---------------------------------------------------------------- the paper

DEVIATIONS = {
    "data and sizes": "The paper gives none for its theorems. Tokens and labels are Gaussian, W_h^O random "
    "directions of one length, the same for both heads of a couple; sizes are ours.",
    "the starts of the theorems": "The theorems say that there is a start, not which. Theorem 1 is run from "
    "W^V = 0 and |W_h^O| = 10: as W^O grows, W^V fits the labels before W^Q and W^K have moved, and B stays. "
    "Theorem 2 is run from heads in couples of opposite values of the same size, where all outputs are 0 and "
    "J_Q is large against the residual. Generic starts are in the notes of the verdicts and in the figures.",
    "beta": "Printed as sigma_min^2(W^O) sigma_min^2(B_0'). W^O has one column, so its only singular value "
    "is its length, sum_h |W_h^O|^2 when squared. The gradient in W^V gives min_h |W_h^O|^2 sigma_min^2(B), "
    "H times less when all heads have W_h^O of one length; that safe reading is judged for each kernel, and "
    "the printed one for both. Both take B_0, though B moves.",
    "gamma": "A constant related to the start, says the theorem. Taken as sigma_min^2(J_Q) at the start, "
    "which is what descent in W^Q sees there.",
    "the step size": "In units of 1/L with L the largest curvature of the loss at the start, up or down, in "
    "what is trained. eta L with the largest L of the whole run is in the notes.",
    "softmax's descent inequality": "Printed with the gradient's norm, not its square. eta sum |grad f| is "
    "the length of the path, so the inequality compares a loss with a length, and its coefficient depends on "
    "the units of the labels: with labels and outputs divided by s the path is the same, and losses are "
    "divided by s^2. It is judged as printed in two units, and squared, as the descent lemma has it.",
    "softmax's rate": "The theorem gives softmax no rate. The Gaussian one, with softmax's own J_Q, is "
    "judged too.",
    "Gaussian beats softmax": "In some cases, says the paper. Judged at a generic start, and in a "
    "construction in which softmax cannot win: tokens end in one and heads in couples have values ±c(e_D + "
    "delta u'), of which softmax, whose rows sum to one, can only use delta u'. The map shows both kernels "
    "over delta and the size of queries and keys.",
    "the best step": "Losses and gradients of kernels are compared at the best of five step sizes, a factor "
    "of four apart from 1/(4L) on, for each seed. A loss below a millionth of its start counts as solved: "
    "how far below says how long one trained.",
    "local solutions": "Starts of W^Q with the same data, W^K and W^V, trained for as long as other runs "
    "with the step 1/L, which is not tuned. Only starts that end solved, or where |grad f|/sqrt(2f) is below "
    "a hundredth of that at the start, count. Ends are the same solution if their outputs differ by less "
    "than a twentieth of |y|, along a chain of ends; so all that fit the labels are one. How the count moved "
    "since half of the steps is in the interval as drift.",
    "Gaussian attention has a floor too": "Its entries lie in (0, 1], so with frozen values outputs lie "
    "between the sums of the negative and of the positive values. It is computed like softmax's.",
    "eigenvalues of the Hessian": "The extreme ones, by Lanczos' method with 32 products (16 for "
    "transformers): from inside, so that both ends may be a little further out where there are thousands of "
    "weights.",
    "real data": "The presets imdb_paper and pathfinder_paper follow the closest public set-up; imdb and "
    "pathfinder are short: 256 bytes, contours of six segments, patches of 2 x 2 pixels, 200 steps, no "
    "dropout. Learning rates are those of that set-up, 1e-4 for IMDb and 2e-4 for Pathfinder, common to both "
    "kernels, and ten times that.",
    "landscapes": "The paper names neither the directions nor what smoother means. Here: random directions, "
    "each filter as long as its weights, and top eigenvectors of the Hessian in each block; roughness is the "
    "share of a plane's standard deviation that the best quadratic leaves over. The learning rate falls as "
    "in a run of 50,000 steps (500 in the short presets), so that the steps with either kernel are taken at "
    "over half of it.",
}


def regression(what: str, train: str) -> Crossing:
    """Regression from a generic start, which favours no theorem; labels have no truth but themselves."""
    return Crossing(
        f"regression, {what} trained",
        PRESETS["tiny"].replace(GENERIC, train=train, detail=False, steps=1500),
        rate=("eta",),
        optimizers={
            # In units of 1/L, as the paper's theorems have the step.
            "gd": Variant({"optimizer": "gd", "step": "curvature"}, spaced(0.1, 30, 6)),
            "sign": Variant({"optimizer": "sign"}, spaced(1e-4, 1, 6)),
            "adam": Variant({"optimizer": "adam"}, spaced(1e-4, 1, 6)),
            "proximal": Variant({"optimizer": "proximal", "step": "curvature"}, spaced(0.1, 30, 6)),
        },
        kernels={kernel: {"kernel": kernel} for kernel in ("softmax", "gaussian", "linear")},
        learns=Goal("the loss falls below a tenth of its start", share_of_start("loss"), below=0.1),
        recovers=Goal(
            "all labels are fitted, with a loss below a ten-thousandth of its start",
            share_of_start("loss"),
            below=1e-4,
        ),
        own=("gd", "softmax"),
    )


CROSSINGS = (regression("all weights", "qkv"), regression("W^Q alone", "q"))

PAPER = Paper(
    "Unraveling the Gradient Descent Dynamics of Transformers",
    "Song, Han, Zhang, Ding and Hong, conference poster.",
    Experiment(PRESETS, make_task, dynamics, probes, records=records, carried=carried),
    deviations=tuple(Deviation(*row) for row in DEVIATIONS.items()),
    branches=("transformer",),
)
