r"""The CNN teacher on MNIST: a first layer with average pooling, trained on digits, and its student.

Images are resized to 27 x 27, normalised, and cut into D = 81 patches of 3 x 3, so X has d = 9 rows. A CNN,

    logits(X) = W vec(s(V X pool)) + b,

with M kernels V, means over blocks of 3 x 3 patches (K = 9) and a linear classifier, is trained on the labels
with cross-entropy. Its first layer with pooling is the teacher f*(X) = s(V* X S*), S* being the mean over the
block of each patch. The position-only student s(W_V X S) trains on images with the squared loss, from zero.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import xarray as xr
from jaxtyping import Array, Float, Int, Key
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Rectangle
from scipy import stats

from descentlab.data import mnist
from descentlab.drawing import BLUE, ORANGE, VERMILION, band, legend, panels
from descentlab.engine import (
    Dynamics,
    Loaded,
    Probe,
    Settings,
    descent,
    float_dtype,
    log_spaced,
    online,
    parameter,
    preset,
    probe,
)
from descentlab.judging import Estimate, at_least, at_most, data_mutant, mean, mutant, theorem
from descentlab.papers import Experiment, figure
from descentlab.papers.bilinear_teachers import Params, activation, attention

SIDE, PATCH, POOL = 27, 3, 3  # pixels of an image, of a patch; patches of a block; each way
GRID = SIDE // PATCH
D, d, K = GRID**2, PATCH**2, POOL**2
BLOCKS = D // K
CLASSES = 10
CENTRE, SPREAD = 0.1307, 0.3081  # mean and standard deviation of MNIST's pixels

# ---------------------------------------------------------------- setting


@preset
class Preset(Settings):
    """The paper's letters where it has them."""

    images: str = parameter(
        "the digits 0 and 1 that come with the package, or all of MNIST",
        default="full",
        choices=("small", "full"),
    )
    pixels: str = parameter(
        "how grey levels are normalised: to mean 0 and variance 1, or to [0, 1], so that background is 0",
        default="standard",
        choices=("standard", "unit"),
    )
    M: int = parameter("kernels of the teacher", default=16, low=1, high=1000)
    activation: str = parameter("s, of teacher and student", default="relu", choices=("relu", "leaky_relu"))
    leak: float = parameter("slope of LeakyReLU below zero", default=0.1, low=0, high=1)
    slope_at_zero: float = parameter(
        "s'(0), a choice: with 0 training never leaves W_V = 0", default=1.0, low=0, high=1
    )
    epochs: int = parameter("epochs of the teacher's own training", default=20, low=1, high=1000)
    teacher_eta: float = parameter("the teacher's learning rate, with Adam", default=1e-3, above=0)
    teacher_batch: int = parameter("images a step of the teacher", default=128, low=1, high=60_000)
    batch: int = parameter("images a step of the student", default=100, low=1, high=60_000)
    eta: float = parameter("step size of the student", default=0.05, above=0)
    n_test: int = parameter("test images behind the losses", default=1000, low=1, high=10_000)
    steps: int = parameter("training steps of the student", default=20_000, low=1, high=100_000_000)
    precision: int = parameter("bits of a floating-point number", default=32, choices=(32, 64))

    def conflicts(self):
        """No more test images than there are."""
        most = 1000 if self.images == "small" else 10_000
        if self.n_test > most:
            yield (
                f"n_test takes a whole number <= {most} with images={self.images}, got n_test={self.n_test}."
            )


PRESETS = {
    "mnist_tiny": Preset(images="small", M=4, epochs=20, n_test=200, steps=1000),
    "mnist": Preset(),
    # Ten times as long.
    "mnist_paper": Preset(n_test=10_000, steps=200_000),
}


def records(p: Preset) -> np.ndarray:
    """The first steps one by one, then log-spaced."""
    return log_spaced(p.steps, dense=10, per_decade=20)


# ---------------------------------------------------------------- data


def patches(images: np.ndarray) -> np.ndarray:
    """Images of 28 x 28 bytes, resized to 27 x 27 and cut into patches: (N, d, D)."""
    resize = jax.jit(lambda x: jax.image.resize(x, (*x.shape[:1], SIDE, SIDE), "linear"))
    parts = np.array_split(images.astype(np.float32), max(1, len(images) // 500))
    small = np.clip(np.rint(np.concatenate([resize(part) for part in parts])), 0, 255).astype(np.uint8)
    cut = small.reshape(-1, GRID, PATCH, GRID, PATCH).transpose(0, 2, 4, 1, 3)
    return cut.reshape(-1, d, D)


@cache
def _digits(images: str) -> mnist.Digits:
    whole = mnist.digits(images)
    return whole._replace(train=patches(whole.train), test=patches(whole.test))


def data(p: Preset) -> mnist.Digits:
    """MNIST as bytes, cut into patches: (N, d, D). Raises where files are needed and not there."""
    return _digits(p.images)


def normalised(images: Array, p: Preset) -> Float[Array, "d N D"]:
    """Bytes as inputs, the batch in the middle as everywhere in this paper."""
    grey = images.astype(float_dtype(p.precision)) / 255
    centred = (grey - CENTRE) / SPREAD
    return jnp.transpose(grey if p.pixels == "unit" else centred, (1, 0, 2))


def block_of() -> Int[np.ndarray, " D"]:
    """The block that each patch is pooled in."""
    row, column = np.divmod(np.arange(D), GRID)
    return row // POOL * (GRID // POOL) + column // POOL


def bend(p: Preset) -> Any:
    """s as a function."""
    k = {"relu": 0.0, "leaky_relu": p.leak}[p.activation]
    return lambda z: activation(z, k, p.slope_at_zero)


# ---------------------------------------------------------------- teacher


def pooled_outputs(V: Float[Array, "M d"], X: Float[Array, "d N D"], p: Preset) -> Float[Array, "M N blocks"]:
    """s(V X pool), a column for each block. Pooling and kernels commute; pooling first is cheaper."""
    pool = jnp.asarray((block_of()[:, None] == np.arange(BLOCKS)[None, :]) / K, X.dtype)
    mixed = (X.reshape(-1, D) @ pool).reshape(d, -1)
    return bend(p)(V @ mixed).reshape(-1, X.shape[1], BLOCKS)


class CNN(NamedTuple):
    """The teacher: kernels, and the classifier behind them."""

    V: Float[Array, "M d"]
    W: Float[Array, "10 M*blocks"]
    b: Float[Array, " 10"]


def logits(cnn: CNN, X: Float[Array, "d N D"], p: Preset) -> Float[Array, "N 10"]:
    """What the CNN makes of images."""
    flat = jnp.transpose(pooled_outputs(cnn.V, X, p), (1, 0, 2)).reshape(X.shape[1], -1)
    return flat @ cnn.W.T + cnn.b[None, :]


def train_teacher(key: Key[Array, ""], p: Preset, digits: mnist.Digits) -> CNN:
    """The CNN after its epochs: Adam, cross-entropy, batches from a fresh order each epoch."""
    dtype, (N, *_) = float_dtype(p.precision), digits.train.shape
    V_key, W_key, order_key = jax.random.split(key, 3)
    start = CNN(
        jax.random.normal(V_key, (p.M, d), dtype) / d**0.5,
        jax.random.normal(W_key, (CLASSES, p.M * BLOCKS), dtype) / (p.M * BLOCKS) ** 0.5,
        jnp.zeros(CLASSES, dtype),
    )
    size = min(p.teacher_batch, N)
    rule = optax.adam(p.teacher_eta)

    def cross_entropy(cnn: CNN, chosen: Array) -> Array:
        X = normalised(digits.train[chosen], p)
        labels = digits.train_labels[chosen].astype(int)
        return optax.softmax_cross_entropy_with_integer_labels(logits(cnn, X, p), labels).mean()

    def step(state: Any, chosen: Array) -> tuple[Any, None]:
        cnn, memory = state
        gradient = jax.grad(cross_entropy)(cnn, chosen)
        with jax.numpy_dtype_promotion("standard"):
            updates, memory = rule.update(gradient, memory, cnn)
        return (optax.apply_updates(cnn, updates), memory), None

    def epoch(state: Any, key: Key[Array, ""]) -> tuple[Any, None]:
        order = jax.random.permutation(key, N)[: N // size * size].reshape(-1, size)
        return jax.lax.scan(step, state, order)

    return jax.lax.scan(epoch, (start, rule.init(start)), jax.random.split(order_key, p.epochs))[0][0]


class Task(NamedTuple):
    """A trained teacher, and how many of the test images it puts into the right class."""

    V: Float[Array, "M d"]
    accuracy: Float[Array, ""]


def make_task(key: Key[Array, ""], p: Preset, digits: mnist.Digits) -> Task:
    """A teacher trained from a random start."""
    cnn = train_teacher(key, p, digits)
    found = jnp.argmax(logits(cnn, normalised(digits.test, p), p), axis=1)
    right = found == digits.test_labels.astype(found.dtype)
    return Task(cnn.V, jnp.mean(right, dtype=cnn.V.dtype))


def teacher(V: Float[Array, "M d"], X: Float[Array, "d N D"], p: Preset) -> Float[Array, "M N D"]:
    """f*(X) = s(V* X S*): each patch has the output of its block."""
    return pooled_outputs(V, X, p)[:, :, block_of()]


def pooling(dtype: Any) -> Float[Array, "D D"]:
    """S*: each column is the mean over the block of its patch."""
    same = block_of()[:, None] == block_of()[None, :]
    return jnp.asarray(same / K, dtype)


# ---------------------------------------------------------------- student


def outputs(W: Float[Array, "M d"], S: Float[Array, "D D"], X: Float[Array, "d N D"], p: Preset) -> Array:
    """s(W X S) of N images, (M, N, D)."""
    N = X.shape[1]
    mixed = (X.reshape(-1, D) @ S).reshape(d, -1)
    return bend(p)(W @ mixed).reshape(-1, N, D)


def loss(w: Params, V: Float[Array, "M d"], X: Float[Array, "d N D"], p: Preset) -> Float[Array, ""]:
    """(1/2) mean over images of |f*(X) - TF(X)|_F^2."""
    gap = teacher(V, X, p) - outputs(w.W_V, attention(w.A), X, p)
    return 0.5 * jnp.sum(gap**2) / X.shape[1]


def dynamics(task: Loaded, p: Preset) -> Dynamics:
    """Descent from zero on fresh batches of training images."""
    images, V = task.data.train, task.own.V
    dtype = float_dtype(p.precision)

    def batch(key: Key[Array, ""]) -> Array:
        return normalised(images[jax.random.randint(key, (p.batch,), 0, images.shape[0])], p)

    objective = online(batch, lambda w, X: loss(w, V, X, p))
    zero = Params(jnp.zeros((p.M, d), dtype), jnp.zeros((D, D), dtype))
    return descent(lambda key: zero, objective, optax.sgd(p.eta))


# ---------------------------------------------------------------- probes


def probes(p: Preset) -> dict[str, Probe]:
    """The loss on test images, how far values and attention are recovered, and what there is to see."""
    dtype = float_dtype(p.precision)

    def on_test(w: Params, task: Loaded) -> Array:
        return loss(w, task.own.V, normalised(task.data.test[: p.n_test], p), p)

    def cosine(w: Params, task: Loaded) -> Array:
        V = task.own.V
        size = jnp.sqrt(jnp.sum(w.W_V**2) * jnp.sum(V**2))
        return jnp.where(size > 0, jnp.sum(w.W_V * V) / jnp.where(size > 0, size, 1.0), 0.0)

    def row_error(w: Params, task: Loaded) -> Array:
        return jnp.sum(jnp.abs(attention(w.A) - pooling(dtype)), axis=1)

    def ink(w: Params, task: Loaded) -> Array:
        return jnp.mean(task.data.train > 0, axis=(0, 1), dtype=dtype)

    return {
        "loss": probe(on_test, "(1/2) mean |f* - TF|^2 on test images"),
        "value_cosine": probe(cosine, "cosine of W_V and V*"),
        "row_error": probe(row_error, "sum over a row of |S - S*|, whose entries of S* sum to 1", "patch"),
        "teacher_accuracy": probe(
            lambda w, task: task.own.accuracy, "test accuracy of the teacher CNN", once=True
        ),
        "ink": probe(ink, "share of pixels of a patch that are not background", "patch", once=True),
        "attention": probe(lambda w, task: attention(w.A), "S at the end", "row", "column", once=True),
        "teacher_attention": probe(lambda w, task: pooling(dtype), "S*", "row", "column", once=True),
        "example": probe(
            lambda w, task: task.data.test[0].astype(dtype) / 255, "a test image", "pixel", "patch", once=True
        ),
    }


EXPERIMENT = Experiment(PRESETS, make_task, dynamics, probes, records=records, data=data, require=data)

# ---------------------------------------------------------------- claims, with ReLU and LeakyReLU

RUNS: dict[str, dict[str, Any]] = {"relu": {"activation": "relu"}, "leaky": {"activation": "leaky_relu"}}
EDGE = 9  # the first and the last nine patches: the top and the bottom line
INNER = D - 2 * EDGE
UNIFORM = 16 / 9  # the error of a row of uniform attention
RECOVERED = 0.5  # the error of a row that counts as recovered
UNTRAINED = mutant("hardly trained", eta=1e-9)

section = theorem("Section on MNIST, figures 4 and 5", kind="experiment", presets=tuple(PRESETS))
claim = partial(section.claim, runs=RUNS, mutants=(UNTRAINED,))


def worse_of(
    worst: Callable[..., Any],
    measure: Callable[[xr.Dataset], np.ndarray],
    relu: xr.Dataset,
    leaky: xr.Dataset,
    resolution: float = 0.0,
) -> Estimate:
    """The worse of both activations, by seed; each in the notes."""
    found = {"relu": measure(relu), "leaky_relu": measure(leaky)}
    return mean(worst(*found.values()), resolution=resolution).noting(
        **{name: own.mean() for name, own in found.items()},
        relu_teacher_accuracy=relu["teacher_accuracy"].mean(),
        leaky_relu_teacher_accuracy=leaky["teacher_accuracy"].mean(),
    )


@claim(
    predicts=at_most(0.05),
    margin="`Small` has no number in the paper; a twentieth is what a plot from zero shows as nothing.",
    bound="upper",
)
def mnist_loss_gets_small(relu: xr.Dataset, leaky: xr.Dataset) -> Estimate:
    """With ReLU and with LeakyReLU, the student's loss on MNIST falls to a twentieth of that of a student who
    says nothing, or less.
    """
    # At the start the student says nothing.
    return worse_of(
        np.maximum, lambda run: (run["loss"].isel(step=-1) / run["loss"].isel(step=0)).values, relu, leaky
    )


@claim(predicts=at_least(0.9), margin="The paper's number.", bound="lower")
def mnist_value_direction_recovers(relu: xr.Dataset, leaky: xr.Dataset) -> Estimate:
    """With ReLU and with LeakyReLU, the cosine of W_V and the teacher's kernels is above 0.9 in the end."""
    return worse_of(np.minimum, lambda run: run["value_cosine"].isel(step=-1).values, relu, leaky)


def row_errors(run: xr.Dataset) -> np.ndarray:
    """The errors of the rows of S at the end, by seed and patch."""
    return run["row_error"].isel(step=-1).transpose("seed", "patch").values


def inner(rows: np.ndarray) -> np.ndarray:
    """Of values by seed and row, those of the rows between the first and the last nine."""
    return rows[:, EDGE:-EDGE]


def edge(rows: np.ndarray) -> np.ndarray:
    """Of values by seed and row, those of the first and the last nine rows."""
    return np.delete(rows, np.s_[EDGE:-EDGE], axis=1)


def inner_recovered(run: xr.Dataset) -> np.ndarray:
    """The share of rows between the first and last nine that are recovered."""
    return (inner(row_errors(run)) < RECOVERED).mean(axis=1)


@claim(
    statement="With ReLU and with LeakyReLU, nine in ten of the rows of S between the first and the last "
    f"nine are recovered: their entries differ from those of S* by less than {RECOVERED} in sum, where "
    "S* has 1.",
    predicts=at_least(0.9),
    margin="A row of uniform attention differs by 16/9; a tenth of the rows may be background at the sides.",
    bound="lower",
)
def mnist_attention_recovers_pooling(relu: xr.Dataset, leaky: xr.Dataset) -> Estimate:
    """The share of inner rows that are recovered."""
    return worse_of(np.minimum, inner_recovered, relu, leaky, resolution=1 / INNER)


def hits(run: xr.Dataset) -> np.ndarray:
    """The share of the largest entries of each row of S that are where S* has its own, by seed and patch."""
    S, T = (
        run[name].transpose("seed", "row", "column").values for name in ("attention", "teacher_attention")
    )
    largest = np.argsort(S, axis=2)[:, :, -K:]
    return (np.take_along_axis(T, largest, axis=2) > 0).mean(axis=2)


def inner_hits(run: xr.Dataset) -> np.ndarray:
    """The mean share of hits in the rows between the first and the last nine."""
    return inner(hits(run)).mean(axis=1)


@claim(
    predicts=at_least(0.9),
    margin="What the heatmap shows; chance gives one in nine. Added after a look at the figure, beside "
    "the claim about values.",
    bound="lower",
)
def mnist_attention_recovers_pattern(relu: xr.Dataset, leaky: xr.Dataset) -> Estimate:
    """With ReLU and with LeakyReLU, nine in ten of the nine largest entries of a row of S are where S* has
    its nine, in the rows between the first and the last nine.
    """
    return worse_of(np.minimum, inner_hits, relu, leaky, resolution=1 / (INNER * K))


def edge_lag(run: xr.Dataset) -> np.ndarray:
    """The mean error of the first and last nine rows minus that of the others, over that of a uniform row."""
    errors = row_errors(run)
    return (edge(errors).mean(axis=1) - inner(errors).mean(axis=1)) / UNIFORM


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Spearman's, equal values sharing their mean rank; 0 where one of both does not vary."""
    x, y = (stats.rankdata(values) - (len(values) + 1) / 2 for values in (a, b))
    size = np.sqrt((x @ x) * (y @ y))
    return float(x @ y / size) if size > 0 else 0.0


def as_the_teacher(run: xr.Dataset) -> xr.Dataset:
    """A student whose attention is the teacher's."""
    return run.assign(row_error=0.0 * run["row_error"], attention=run["teacher_attention"])


@claim(
    predicts=at_least(0.25),
    margin="The paper shows it, without a number. Rows of a student who learned nothing err alike; their "
    "largest entries do not tell that, since the first steps already order them by ink.",
    bound="order",
    mutants=(data_mutant("the teacher's attention", as_the_teacher), UNTRAINED),
)
def mnist_background_patches_fail(relu: xr.Dataset, leaky: xr.Dataset) -> Estimate:
    """With ReLU and with LeakyReLU, the first and last nine rows of S, patches that are mostly background,
    are farther from those of S* than the others: their mean error is larger by a quarter or more of that of
    uniform attention.

    Notes have how errors go with ink over all patches.
    """
    notes = {}
    for name, run in (("relu", relu), ("leaky_relu", leaky)):
        ink, errors = run["ink"].transpose("seed", "patch").values, row_errors(run)
        by_seed = [rank_correlation(a, b) for a, b in zip(ink, errors, strict=True)]
        notes[f"{name}_share_of_these_rows_failed"] = (edge(errors) >= RECOVERED).mean(axis=1).mean()
        notes[f"{name}_rank_correlation_of_ink_and_error"] = np.mean(by_seed)
        notes[f"{name}_hits_in_these_rows"] = edge(hits(run)).mean(axis=1).mean()
        notes[f"{name}_hits_in_other_rows"] = inner_hits(run).mean()
        notes[f"{name}_least_ink_of_a_recovered_row"] = ink[errors < RECOVERED].min(initial=1.0)
        notes[f"{name}_most_ink_of_a_failed_row"] = ink[errors >= RECOVERED].max(initial=0.0)
    return mean(np.minimum(edge_lag(relu), edge_lag(leaky)), notes=notes)


# ---------------------------------------------------------------- figures

PAPERS_ACCURACY = 0.71  # of the teacher
HALF = 0.5  # of the largest entries of a row
NAMES = {"relu": ("ReLU", BLUE), "leaky": ("LeakyReLU", VERMILION)}


@figure(runs=RUNS, claims=("mnist_loss_gets_small", "mnist_value_direction_recovers"), presets=tuple(PRESETS))
def figure_4(**runs: xr.Dataset) -> Canvas:
    """The student on MNIST: loss on test images and cosine of its value matrix with the teacher's kernels;
    median and range over seeds.
    """
    figure, axes = panels(1, 2, (2.6, 2.2))
    losses, cosines = axes[0]
    for key, (label, colour) in NAMES.items():
        run = runs[key].isel(step=slice(1, None))
        band(losses, run["loss"], label, colour)
        band(cosines, run["value_cosine"], label, colour)
    losses.set(xscale="log", yscale="log", xlabel="$T$", title="loss on test images")
    cosines.set(xscale="log", xlabel="$T$", title=r"cosine of $W_V$ and $V^\ast$")
    cosines.axhline(0.9, color="0.5", lw=0.7, ls=":")
    accuracies = [
        f"{float(runs[key]['teacher_accuracy'].mean()):.1%} {label}" for key, (label, _) in NAMES.items()
    ]
    words = ["teachers' test accuracy:", *accuracies, f"({PAPERS_ACCURACY:.0%} in the paper)"]
    losses.text(0.04, 0.05, "\n".join(words), transform=losses.transAxes, fontsize="small")
    legend(figure, columns=2)
    return figure


@figure(
    runs=RUNS,
    claims=(
        "mnist_attention_recovers_pooling",
        "mnist_attention_recovers_pattern",
        "mnist_background_patches_fail",
    ),
    presets=tuple(PRESETS),
)
def figure_5(**runs: xr.Dataset) -> Canvas:
    """Attention on MNIST: the teacher's pooling, what the students learn (first seed; the first and last nine
    rows between dotted lines), a test image with the patches in whose rows less than half of the largest
    entries are where they should be, and the errors of all rows and seeds against the share of a patch's
    pixels that have ink.
    """
    figure, axes = panels(1, 5, (1.9, 2.1))
    *heatmaps, shown, against = axes[0]
    first = runs["relu"].isel(seed=0)
    matrices = {"$S^\\ast$": first["teacher_attention"]} | {
        f"$S$, {label}": runs[key].isel(seed=0)["attention"] for key, (label, _) in NAMES.items()
    }
    for ax, (title, matrix) in zip(heatmaps, matrices.items(), strict=True):
        ax.imshow(matrix.values, cmap="viridis", vmin=0, vmax=1 / K)
        ax.set(title=title, xlabel="column", xticks=[0, 40, 80], yticks=[0, 8, 40, 72, 80])
        for line in (EDGE - 0.5, D - 0.5 - EDGE):
            ax.axhline(line, color="white", lw=0.6, ls=":")
    heatmaps[0].set_ylabel("row")
    cut = first["example"].values.reshape(PATCH, PATCH, GRID, GRID)
    shown.imshow(cut.transpose(2, 0, 3, 1).reshape(SIDE, SIDE), cmap="gray")
    for patch in np.flatnonzero(hits(runs["relu"])[0] < HALF):
        row, column = divmod(int(patch), GRID)
        corner = (PATCH * column - 0.5, PATCH * row - 0.5)
        shown.add_patch(Rectangle(corner, PATCH, PATCH, fill=False, edgecolor=ORANGE, lw=0.9))
    shown.set(title="lost rows, ReLU", xticks=[], yticks=[])
    for key, (label, colour) in NAMES.items():
        ink, errors = runs[key]["ink"].values.ravel(), row_errors(runs[key]).ravel()
        against.plot(ink, errors, ".", ms=2, color=colour, label=label)
    against.axhline(RECOVERED, color="0.5", lw=0.7, ls=":")
    against.set(xlabel="ink of the patch", title="error of a row of $S$", xlim=(-0.02, None))
    legend(figure, columns=2)
    return figure
