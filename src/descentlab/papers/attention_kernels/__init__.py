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

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key

from descentlab.engine import (
    PRODUCTS,
    Dynamics,
    Extremes,
    Probe,
    descent,
    empirical,
    extreme_eigenvalues,
    flow,
    optimizer,
)
from descentlab.papers import About
from descentlab.papers.attention_kernels import claims, figures, transformer
from descentlab.papers.attention_kernels.atlas import ATLAS as ATLAS
from descentlab.papers.attention_kernels.deviations import DEVIATIONS as DEVIATIONS
from descentlab.papers.attention_kernels.model import KERNELS, floor, least_singular, outputs, values
from descentlab.papers.attention_kernels.model import Weights as Weights
from descentlab.papers.attention_kernels.model import attention as attention
from descentlab.papers.attention_kernels.model import features as features
from descentlab.papers.attention_kernels.model import query_jacobian as query_jacobian
from descentlab.papers.attention_kernels.setting import PRESETS as PRESETS
from descentlab.papers.attention_kernels.setting import STEP_RATIO, draw, map_axes, start
from descentlab.papers.attention_kernels.setting import Preset as Preset
from descentlab.papers.attention_kernels.setting import records as records
from descentlab.papers.attention_kernels.studies import STUDIES as STUDIES

# ---------------------------------------------------------------- task


class Task(NamedTuple):
    """The data, W^O, and where and how fast training starts; of all cells where a run has many."""

    X: Float[Array, "N n D"]
    y: Float[Array, "N n"]
    W_O: Float[Array, "H d"]
    start: Any
    rate: Array


def sample(key: Key[Array, ""], p: Preset, batch: int) -> tuple[Array, Array]:
    """Other inputs and labels of the same law."""
    X, y, _ = draw(key, p, batch)
    return X, y


def predict(task: Task, w: Weights, X: Float[Array, "batch n D"], kernel: str) -> Float[Array, "batch n"]:
    """MH(X_i)."""
    return outputs(w, task.W_O, X, kernel)


def make_task(key: Key[Array, ""], p: Preset) -> Task:
    """Random data and W^O, the start, and the step size."""
    data_key, start_key, again_key = jax.random.split(key, 3)
    data = draw(data_key, p)
    task = Task(*data, None, jnp.ones((), data.X.dtype))
    w = start(start_key, p, task.W_O, task.X, task.y)
    if p.cells == 1:
        return task._replace(start=w, rate=step_size(w, task, p))
    cells = _cells(w, start_key, again_key, task, p)
    rates = jax.lax.map(lambda w: step_size(w, task, p), cells)
    sizes = STEP_RATIO ** jnp.arange(p.rates, dtype=task.X.dtype)
    return task._replace(
        start=jax.tree.map(lambda x: jnp.repeat(x, p.rates, axis=0), cells),
        rate=(rates[:, None] * sizes[None, :]).ravel(),
    )


def _cells(w: Weights, key: Key[Array, ""], again: Key[Array, ""], task: Task, p: Preset) -> Weights:
    """The starts of all cells: what is trained drawn anew for each start, and each start over the map."""

    def start_of(key: Key[Array, ""], p: Preset) -> Weights:
        return start(key, p, task.W_O, task.X, task.y)

    def again_from(key: Key[Array, ""], w: Weights, p: Preset) -> Weights:
        return w._replace(**trained(start_of(key, p), p))

    keys = jnp.stack([key, *jax.random.split(again, p.starts - 1)])
    if not p.grid:
        return jax.lax.map(lambda key: again_from(key, w, p), keys)
    deltas, scales = map_axes(p)
    places = [x.ravel() for x in jnp.meshgrid(deltas, scales, indexing="ij")]

    def cell(at: tuple[Array, Array, Array]) -> Weights:
        own, delta, scale = at
        here = p.unchecked(delta=delta, scale=scale)
        return again_from(own, start_of(key, here), here) if p.starts > 1 else start_of(key, here)

    each = (jnp.repeat(keys, p.grid**2), *(jnp.tile(x, p.starts) for x in places))
    return jax.lax.map(cell, each)


def program(p: Preset) -> Preset:
    """The preset whose compiled program serves this one: how a run starts is over once it has."""
    return p.unchecked(init="generic", tokens="gaussian", labels="random", step="fixed")


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

        each = empirical(lambda w: jnp.sum(_losses(w, task, p)), lambda w: jax.lax.map(pull, (w, task.rate)))
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


def _losses(w: Weights, task: Task, p: Preset) -> Float[Array, " cells"]:
    return jax.lax.map(lambda w: loss(w, task, p), w)


def probes(p: Preset) -> dict[str, Probe]:
    """What is recorded."""
    if p.cells > 1:
        return _probes_of_cells(p)

    def of(measure: Callable[[Weights, Task, Preset], Any], doc: str, *dims: str, **options: Any) -> Probe:
        return Probe(lambda task, p, state: measure(state.params.weights, task, p), doc, dims, **options)

    def moved(w: Weights, task: Task, p: Preset) -> Array:
        return by_block(jax.tree.map(jnp.subtract, w, task.start))

    found = {
        "loss": of(loss, "f"),
        "gradient": of(lambda w, task, p: by_block(jax.grad(loss)(w, task, p)),
                       "norm of the gradient in W^Q, W^K, W^V, trained or not", "block"),
        "moved": of(moved, "distance of W^Q, W^K, W^V from the start", "block"),
        "length": Probe(lambda task, p, state: state.params.length, "eta sum of |grad f| over all steps"),
        "energy": Probe(lambda task, p, state: state.params.energy, "eta sum of |grad f|^2 over all steps"),
        "start_size": of(lambda w, task, p: by_block(task.start), "norm of W^Q, W^K, W^V at the start",
                         "block", once=True),
        "rate": of(lambda w, task, p: task.rate, "step size", once=True),
    }  # fmt: skip
    if not p.detail:
        return found
    return found | {
        "beta": of(beta, "|W^O|^2 sigma_min^2(B): safe reading, and as printed", "reading"),
        "gamma": of(gamma, "sigma_min^2(J_Q)"),
        "curvature": of(lambda w, task, p: jnp.stack(hessian_ends(w, task, p)),
                        "least and largest eigenvalue of the Hessian in what is trained", "end"),
        "floor": of(
            lambda w, task, p: jnp.stack([floor(task.start, task.W_O, task.X, task.y, k) for k in KERNELS]),
            "loss below which no W^Q, W^K lead, of each kernel, with the first values", "kernel", once=True,
        ),
        "ranks": of(lambda w, task, p: ranks(task.start, task, p), "rank of B at the start by heads",
                    "heads", once=True),
    }  # fmt: skip


def _probes_of_cells(p: Preset) -> dict[str, Probe]:
    """Of many cells: losses, gradients and, of several starts, outputs."""
    shape = (p.starts, max(p.grid, 1), max(p.grid, 1), p.rates)
    dims = ("start", "delta", "scale", "multiple")

    def of(measure: Callable[[Weights, Task], Array], doc: str, *more: str, **options: Any) -> Probe:
        def all_cells(task: Task, p: Preset, state: Any) -> Array:
            found = measure(state.params, task)
            return found.reshape(*shape, *found.shape[1:])

        return Probe(all_cells, doc, (*dims, *more), **options)

    def slopes(w: Weights, task: Task) -> Array:
        return jax.lax.map(lambda w: jnp.sqrt(squared(slope(w, task, p))), w)

    def floors(w: Weights, task: Task) -> Array:
        return jax.lax.map(lambda w: floor(w, task.W_O, task.X, task.y, p.kernel), task.start)

    found = {
        "loss": Probe(
            lambda task, p, state: jnp.nanmin(_losses(state.params, task, p)), "least f of all cells"
        ),
        "losses": of(lambda w, task: _losses(w, task, p), "f"),
        "slopes": of(slopes, "norm of the gradient in what is trained"),
        "floors": of(floors, "loss below which no W^Q, W^K lead with the first values", once=True),
        "rate": of(lambda w, task: task.rate, "step size", once=True),
    }
    if p.starts > 1:
        found["outputs"] = of(
            lambda w, task: jax.lax.map(lambda w: outputs(w, task.W_O, task.X, p.kernel).ravel(), w),
            "MH(X_i)", "position",
        )  # fmt: skip
        found["labels"] = Probe(lambda task, p, state: task.y.ravel(), "y_i", ("position",), once=True)
    return found


# ---------------------------------------------------------------- the paper

PAPER = About(
    title="Unraveling the Gradient Descent Dynamics of Transformers",
    citation="Song, Han, Zhang, Ding and Hong, conference poster.",
    loss="loss",
)

CLAIMS = claims.CLAIMS + transformer.CLAIMS
FIGURES = figures.FIGURES + transformer.FIGURES
BRANCHES = (transformer,)
