r"""The CNN teacher on MNIST: a first layer with average pooling, trained on digits, and its student.

Images are resized to 27 x 27, normalised, and cut into D = 81 patches of 3 x 3, so X has d = 9 rows. A CNN,

    logits(X) = W vec(s(V X pool)) + b,

with M kernels V, means over blocks of 3 x 3 patches (K = 9) and a linear classifier, is trained on the labels
with cross-entropy. Its first layer with pooling is the teacher f*(X) = s(V* X S*), S* being the mean over the
block of each patch. The position-only student s(W_V X S) trains on images with the squared loss, from zero.
"""

from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, Key

from descentlab.data import mnist
from descentlab.data.mnist import Digits
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
)
from descentlab.papers.bilinear_teachers.mnist.claims import CLAIMS as CLAIMS
from descentlab.papers.bilinear_teachers.mnist.figures import FIGURES as FIGURES
from descentlab.papers.bilinear_teachers.model import Params, activation, attention

SIDE, PATCH, POOL = 27, 3, 3  # pixels of an image, of a patch; patches of a block; each way
GRID = SIDE // PATCH
D, d, K = GRID**2, PATCH**2, POOL**2
BLOCKS = D // K
CLASSES = 10
CENTRE, SPREAD = 0.1307, 0.3081  # mean and standard deviation of MNIST's pixels
LOSS = "loss"


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
def _digits(images: str) -> Digits:
    whole = mnist.digits(images)
    return whole._replace(train=patches(whole.train), test=patches(whole.test))


def data(p: Preset) -> Digits:
    """MNIST as bytes, cut into patches: (N, d, D)."""
    return _digits(p.images)


def require(p: Preset) -> None:
    """Raises where MNIST is needed and not there."""
    data(p)


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


def train_teacher(key: Key[Array, ""], p: Preset, digits: Digits) -> CNN:
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


def make_task(key: Key[Array, ""], p: Preset, digits: Digits) -> Task:
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

    def of(measure, doc: str, *dims: str, **options) -> Probe:
        return Probe(lambda task, p, state: measure(state.params, task), doc, dims, **options)

    dtype = float_dtype(p.precision)
    once = partial(of, once=True)

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
        "loss": of(on_test, "(1/2) mean |f* - TF|^2 on test images"),
        "value_cosine": of(cosine, "cosine of W_V and V*"),
        "row_error": of(row_error, "sum over a row of |S - S*|, whose entries of S* sum to 1", "patch"),
        "teacher_accuracy": once(lambda w, task: task.own.accuracy, "test accuracy of the teacher CNN"),
        "ink": once(ink, "share of pixels of a patch that are not background", "patch"),
        "attention": once(lambda w, task: attention(w.A), "S at the end", "row", "column"),
        "teacher_attention": once(lambda w, task: pooling(dtype), "S*", "row", "column"),
        "example": once(
            lambda w, task: task.data.test[0].astype(dtype) / 255, "a test image", "pixel", "patch"
        ),
    }
