r"""A two-layer transformer with softmax or Gaussian attention on IMDb reviews and on Pathfinder.

Reviews are bytes, cut at `length`; Pathfinder images are sequences of pixels, or of small patches. Training
is Adam with a warm-up and a linear decay. For the landscapes, training begins with softmax attention and goes
on with either kernel; then the loss is laid out over a plane of a direction of W^Q and one of W^K.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Key, ScalarLike

from descentlab.data import imdb, pathfinder
from descentlab.engine import Dynamics, Loaded, Probe, Settings, parameter, preset, thinning
from descentlab.papers import Experiment
from descentlab.papers.attention_kernels.transformer import landscape
from descentlab.papers.attention_kernels.transformer.attention import Dropout, attend, attend_plainly

# ---------------------------------------------------------------- setting

SIDE = 32  # pixels of a Pathfinder image
MOST_AT_ONCE = 128  # examples
LEAST_PLANE = 5  # points each way: through three any line is a quadratic


@preset
class Preset(Settings):
    """Sizes of the model, the task, and the training."""

    task: str = parameter("what is classified", default="imdb", choices=("imdb", "pathfinder"))
    kernel: str = parameter("attention", default="softmax", choices=("softmax", "gaussian"))
    length: int = parameter("bytes of a review that are read", default=256, low=2, high=100_000)
    patch: int = parameter("pixels of a Pathfinder token, each way", default=1, choices=(1, 2, 4))
    contour_length: int = parameter("segments of a Pathfinder contour", default=14, low=2, high=20)
    distractor_length: int = parameter("segments of a distractor", default=4, low=1, high=20)
    n_train: int = parameter("training examples", default=25_000, low=1, high=1_000_000)
    n_test: int = parameter("test examples behind the records", default=128, low=1, high=100_000)
    D: int = parameter("numbers of a token", default=64, low=2, high=4096)
    H: int = parameter("heads", default=2, low=1, high=64)
    width: int = parameter("hidden units of the small networks", default=128, low=1, high=16_384)
    layers: int = parameter("layers", default=2, low=1, high=32)
    batch: int = parameter("examples a step", default=16, low=1, high=4096)
    eta: float = parameter("largest learning rate", default=1e-4, above=0)
    warmup: float = parameter("steps until it is reached", default=20.0, low=0)
    dropout: float = parameter("share of activations that a step drops", default=0.0, low=0, below=1)
    with_dropout: bool = parameter("whether a step drops any: then it draws masks", default=False)
    softmax_steps: int = parameter("steps with softmax attention before `kernel`", default=0, low=0)
    plane: int = parameter("points of the loss landscape each way, odd; 0: none", default=0, low=0, high=201)
    chunk: int = parameter("queries at a time; 0: as many as fit the cache", default=0, low=0, high=100_000)
    evaluations: int = parameter("records along training", default=10, low=1, high=10_000)
    steps: int = parameter("training steps", default=200, low=1, high=10**8)
    horizon: int = parameter(
        "step at which the learning rate is 0; 0: the last", default=0, low=0, high=10**8
    )

    def conflicts(self):
        """Heads share D evenly, and so on."""
        if self.D % self.H:
            yield f"H must divide D = {self.D}, got H={self.H}."
        if self.plane and (self.plane % 2 == 0 or self.plane < LEAST_PLANE):
            yield f"plane takes 0 or an odd number >= {LEAST_PLANE}, got plane={self.plane}."
        for name, count in (("n_train", self.n_train), ("n_test", self.n_test)):
            if self.task == "imdb" and count > 25_000:
                yield f"{name} takes a whole number <= 25000 for task=imdb, got {name}={count}."
        if 0 < self.horizon < self.steps:
            yield f"horizon takes 0 or a whole number >= steps = {self.steps}, got horizon={self.horizon}."
        if self.softmax_steps > self.steps:
            yield (
                f"softmax_steps takes a whole number <= steps = {self.steps}, "
                f"got softmax_steps={self.softmax_steps}."
            )
        if self.dropout > 0 and not self.with_dropout:
            yield f"dropout takes 0 unless with_dropout=true, got dropout={self.dropout:g}."


def tokens(p: Preset) -> int:
    """The length of a sequence."""
    return p.length if p.task == "imdb" else (SIDE // p.patch) ** 2


def records(p: Preset) -> np.ndarray:
    """Evenly spaced."""
    return np.unique(np.rint(np.linspace(0, p.steps, min(p.evaluations, p.steps) + 1)).astype(int))


_IMDB = Preset()
_PATHFINDER = Preset(
    task="pathfinder", patch=2, contour_length=6, distractor_length=2, eta=2e-4, n_train=10_000
)
_TINY = {"n_train": 256, "n_test": 32, "D": 16, "width": 16, "batch": 8, "steps": 12, "evaluations": 4}
_TWO_STAGES = {
    "steps": 200, "softmax_steps": 150, "horizon": 500, "eta": 1e-3, "plane": 11, "n_test": 64,
    "evaluations": 5,
}  # fmt: skip
# The closest public set-up to the paper's: days on two cores.
_LONG = {"steps": 50_000, "with_dropout": True, "dropout": 0.1, "evaluations": 100}
_LONG_TEXTS = _IMDB.replace(_LONG, length=4000, batch=32, warmup=80, n_test=500)
_LONG_CONTOURS = Preset(task="pathfinder", batch=128, eta=2e-4, warmup=312).replace(
    _LONG, n_train=160_000, n_test=2000
)
# A plane is one piece of work that no checkpoint cuts: an hour or two.
_LATE = {"steps": 20_500, "softmax_steps": 20_000, "horizon": 50_000, "plane": 25, "n_test": 128}
PRESETS = {
    "imdb_tiny": _IMDB.replace(_TINY, length=32),
    "pathfinder_tiny": _PATHFINDER.replace(_TINY, patch=4),
    "imdb_landscape_tiny": _IMDB.replace(_TINY, length=32, softmax_steps=6, plane=5),
    "pathfinder_landscape_tiny": _PATHFINDER.replace(_TINY, patch=4, softmax_steps=6, plane=5),
    "imdb": _IMDB,
    "pathfinder": _PATHFINDER,
    "imdb_landscape": _IMDB.replace(_TWO_STAGES, length=128),
    "pathfinder_landscape": _PATHFINDER.replace(_TWO_STAGES),
    "imdb_paper": _LONG_TEXTS,
    "pathfinder_paper": _LONG_CONTOURS,
    "imdb_landscape_paper": _LONG_TEXTS.replace(_LATE),
    "pathfinder_landscape_paper": _LONG_CONTOURS.replace(_LATE),
}


# ---------------------------------------------------------------- data


class Examples(NamedTuple):
    """Sequences of bytes, (N, n) or (N, n, pixels of a patch), and labels 0 and 1."""

    train: Any
    train_labels: Any
    test: Any
    test_labels: Any


def sequences(images: np.ndarray, patch: int) -> np.ndarray:
    """Images as sequences of patches: (N, n, pixels of a patch)."""
    rows = SIDE // patch
    cut = images.reshape(-1, rows, patch, rows, patch).transpose(0, 1, 3, 2, 4)
    return cut.reshape(-1, rows * rows, patch * patch)


@cache
def _reviews(length: int, n_train: int, n_test: int) -> Examples:
    (train, train_labels), (test, test_labels) = imdb.tokens("train", length), imdb.tokens("test", length)
    return Examples(train[:n_train], train_labels[:n_train], test[:n_test], test_labels[:n_test])


@cache
def _contours(length: int, distractors: int, patch: int, n_train: int, n_test: int) -> Examples:
    settings = pathfinder.Pathfinder(contour_length=length, distractor_length=distractors)
    images, labels = pathfinder.generate(n_train + n_test, 0, settings)
    found = sequences(images, patch)
    return Examples(found[:n_train], labels[:n_train], found[n_train:], labels[n_train:])


def data(p: Preset) -> Examples:
    """The examples of a task."""
    if p.task == "imdb":
        return _reviews(p.length, p.n_train, p.n_test)
    return _contours(p.contour_length, p.distractor_length, p.patch, p.n_train, p.n_test)


def require(p: Preset) -> None:
    """Raises where reviews are needed and not there."""
    if p.task == "imdb":
        data(p)


# ---------------------------------------------------------------- model


def thinned(key: Key[Array, ""] | None, x: Array, rate: ScalarLike) -> Array:
    """Dropout, none without a key."""
    return x if key is None else x * thinning(key, rate, x.shape, x.dtype)


def rows_through(linear: eqx.nn.Linear, x: Float[Array, "n a"]) -> Float[Array, "n b"]:
    """x W' + 1 b': half the time of `vmap(linear)(x)`, whose products W x leave the rows last."""
    assert linear.bias is not None
    return x @ linear.weight.T + linear.bias[None, :]


class Layer(eqx.Module):
    """Attention and a small network, each behind a LayerNorm and beside a shortcut."""

    before_attention: eqx.nn.LayerNorm
    before_network: eqx.nn.LayerNorm
    W_Q: Float[Array, "H D d"]
    W_K: Float[Array, "H D d"]
    W_V: Float[Array, "H D d"]
    W_O: Float[Array, "H d D"]
    inner: eqx.nn.Linear
    outer: eqx.nn.Linear

    def __init__(self, D: int, H: int, width: int, key: Key[Array, ""], dtype=jnp.float32) -> None:
        keys = jax.random.split(key, 6)
        d = D // H

        def draw(key: Key[Array, ""], *shape: int) -> Array:
            return jax.random.normal(key, shape, dtype) / D**0.5

        self.before_attention = eqx.nn.LayerNorm(D, dtype=dtype)
        self.before_network = eqx.nn.LayerNorm(D, dtype=dtype)
        self.W_Q, self.W_K, self.W_V = (draw(key, H, D, d) for key in keys[:3])
        self.W_O = draw(keys[3], H, d, D)
        self.inner = eqx.nn.Linear(D, width, key=keys[4], dtype=dtype)
        self.outer = eqx.nn.Linear(width, D, key=keys[5], dtype=dtype)

    def __call__(
        self, x: Float[Array, "n D"], there: Bool[Array, " n"], kernel: str, chunk: int,
        key: Key[Array, ""] | None, rate: ScalarLike, plain: bool,
    ) -> Float[Array, "n D"]:  # fmt: skip
        """One more round of attention."""
        keys = [None] * 4 if key is None else list(jax.random.split(key, 4))
        z = jax.vmap(self.before_attention)(x)
        q, k, v = (jnp.einsum("nD,hDd->hnd", z, W) for W in (self.W_Q, self.W_K, self.W_V))
        drop = None if keys[0] is None else Dropout.of_heads(keys[0], rate, len(q))
        mixed = (attend_plainly if plain else attend)(q, k, v, there, kernel, chunk, drop)
        x = x + thinned(keys[1], jnp.einsum("hnd,hdD->nD", mixed, self.W_O), rate)
        z = jax.vmap(self.before_network)(x)
        hidden = thinned(keys[2], jax.nn.gelu(rows_through(self.inner, z)), rate)
        return x + thinned(keys[3], rows_through(self.outer, hidden), rate)


class Transformer(eqx.Module):
    """Tokens, or small patches of grey levels, with learned positions; layers; their mean; a head."""

    embedding: Float[Array, "vocabulary D"]
    positions: Float[Array, "n D"]
    layers: list[Layer]
    after: eqx.nn.LayerNorm
    hidden: eqx.nn.Linear
    head: eqx.nn.Linear

    def __init__(
        self, vocabulary: int, length: int, layers: int, D: int, H: int, width: int, key: Key[Array, ""],
        dtype=jnp.float32,
    ) -> None:  # fmt: skip
        keys = jax.random.split(key, 4 + layers)
        self.embedding = 0.02 * jax.random.normal(keys[0], (vocabulary, D), dtype)
        self.positions = 0.02 * jax.random.normal(keys[1], (length, D), dtype)
        self.layers = [Layer(D, H, width, one, dtype) for one in keys[4:]]
        self.after = eqx.nn.LayerNorm(D, dtype=dtype)
        self.hidden = eqx.nn.Linear(D, width, key=keys[2], dtype=dtype)
        self.head = eqx.nn.Linear(width, 2, key=keys[3], dtype=dtype)

    def __call__(
        self, x: Float[Array, "n D"], there: Bool[Array, " n"], kernel: str, chunk: int = 0,
        key: Key[Array, ""] | None = None, rate: ScalarLike = 0.0, plain: bool = False,
    ) -> Float[Array, " 2"]:  # fmt: skip
        """The logits of the two classes of an embedded sequence; only positions that are `there` count.

        `plain` attention has slopes that can be differentiated once more, for many models at once.
        """
        count = 1 + len(self.layers)
        first, *keys = [None] * count if key is None else list(jax.random.split(key, count))
        x = thinned(first, x + self.positions, rate)
        for layer, own in zip(self.layers, keys, strict=True):
            x = layer(x, there, kernel, chunk, own, rate, plain)
        z = jnp.where(there[:, None], jax.vmap(self.after)(x), 0.0)
        pooled = jnp.sum(z, axis=0) / jnp.maximum(jnp.sum(there, dtype=z.dtype), 1.0)
        return self.head(jax.nn.gelu(self.hidden(pooled)))


def embedded_words(model: Transformer, tokens: Array) -> tuple[Float[Array, "n D"], Bool[Array, " n"]]:
    """A text of tokens; 0 is padding. Of an empty text, that at the first place is read."""
    there = tokens > 0
    first = (jnp.arange(tokens.shape[0]) == 0) & ~jnp.any(there)  # softmax needs something to look at
    return model.embedding[tokens.astype(int)], there | first


def embedded_pixels(model: Transformer, grey: Array) -> tuple[Float[Array, "n D"], Bool[Array, " n"]]:
    """An image as a sequence of grey levels, each a token."""
    return model.embedding[grey[:, 0].astype(int)], jnp.ones(grey.shape[0], bool)


def embedded_patches(model: Transformer, grey: Array) -> tuple[Float[Array, "n D"], Bool[Array, " n"]]:
    """An image as a sequence of patches: their grey levels times a row of the embedding each, which adds up.

    Rows start 50 times larger than those of tokens, so that the levels, which are mostly 0, are seen.
    """
    levels = grey.astype(model.embedding.dtype) / 255
    return levels @ (50.0 * model.embedding), jnp.ones(grey.shape[0], bool)


# ---------------------------------------------------------------- training


class Task(NamedTuple):
    """The training examples whose loss is recorded, and what draws the directions of a landscape."""

    seen: Array
    directions: Key[Array, ""]


def make_task(key: Key[Array, ""], p: Preset, examples: Examples) -> Task:
    """As many training examples as there are test examples, drawn once."""
    seen = jax.random.randint(key, (p.n_test,), 0, examples.train.shape[0])
    return Task(seen, jax.random.fold_in(key, 1))


def begin(key: Key[Array, ""], p: Preset) -> Transformer:
    """A random start."""
    vocabulary = {"imdb": 512, "pathfinder": 256 if p.patch == 1 else p.patch**2}[p.task]
    return Transformer(vocabulary, tokens(p), p.layers, p.D, p.H, p.width, key)


def logits(
    model: Transformer, x: Array, p: Preset, kernel: str, key: Key[Array, ""] | None = None,
    plain: bool = False,
) -> Float[Array, "N 2"]:  # fmt: skip
    """The logits of a batch."""
    embedded = {1: embedded_pixels}.get(p.patch, embedded_patches)
    if p.task == "imdb":
        embedded = embedded_words

    def one(x: Array, key: Key[Array, ""] | None) -> Array:
        return model(*embedded(model, x), kernel, p.chunk, key, p.dropout, plain)

    if key is None or not p.with_dropout:
        # Many examples a few at a time: their scores would not fit together.
        return jax.lax.map(lambda x: one(x, None), x, batch_size=min(len(x), MOST_AT_ONCE))
    return jax.vmap(one)(x, jax.random.split(key, x.shape[0]))


def cross_entropy(found: Float[Array, "N 2"], labels: Array) -> Float[Array, ""]:
    """The mean cross-entropy."""
    return optax.softmax_cross_entropy_with_integer_labels(found, labels.astype(int)).mean()


class State(NamedTuple):
    """The model, what Adam remembers, and the number of steps so far."""

    params: Any
    memory: Any
    done: Array


def by_kernel(p: Preset, state: State, compute: Callable[[str], Any]) -> Any:
    """What `compute` makes of the kernel in use: softmax until it changes."""
    if p.kernel == "softmax" or p.softmax_steps == 0:
        return compute(p.kernel)
    return jax.lax.cond(state.done < p.softmax_steps, lambda: compute("softmax"), lambda: compute(p.kernel))


def rate(p: Preset, done: Array) -> Float[Array, ""]:
    """The learning rate: a linear warm-up, then linear to zero at the end, or at a later horizon."""
    t, steps = done.astype(jnp.float32), jnp.asarray(p.horizon or p.steps, jnp.float32)
    warmup = jnp.minimum(jnp.asarray(p.warmup, jnp.float32), steps)
    up = (t + 1) / jnp.maximum(warmup, 1.0)
    down = (steps - t) / jnp.maximum(steps - warmup, 1.0)
    return jnp.asarray(p.eta, jnp.float32) * jnp.minimum(1.0, jnp.minimum(up, down))


def dynamics(task: Loaded, p: Preset) -> Dynamics:
    """Adam on batches of training examples, gradients clipped at 1; softmax first, if asked for."""
    rule = optax.chain(optax.clip(1.0), optax.scale_by_adam(0.9, 0.999, 1e-6))
    examples = task.data

    def init(key: Key[Array, ""]) -> State:
        model: Any = begin(key, p)
        return State(model, rule.init(model), jnp.zeros((), jnp.int32))

    def slope(kernel: str, model: Any, chosen: Array, key: Key[Array, ""]) -> Any:
        def loss(model: Transformer) -> Array:
            found = logits(model, examples.train[chosen], p, kernel, key)
            return cross_entropy(found, examples.train_labels[chosen])

        return jax.grad(loss)(model)

    def step(key: Key[Array, ""], state: State) -> State:
        which, masks = jax.random.split(key)
        chosen = jax.random.randint(which, (p.batch,), 0, examples.train.shape[0])
        gradient = by_kernel(p, state, lambda kernel: slope(kernel, state.params, chosen, masks))
        with jax.numpy_dtype_promotion("standard"):
            updates, memory = rule.update(gradient, state.memory, state.params)
        scale = rate(p, state.done)
        params = jax.tree.map(lambda x, u: x - scale.astype(x.dtype) * u, state.params, updates)
        return State(params, memory, state.done + 1)

    return Dynamics(init, step)


# ---------------------------------------------------------------- probes


def accuracy(found: Float[Array, "N 2"], labels: Array) -> Float[Array, ""]:
    """The share of examples in the right class."""
    return jnp.mean(jnp.argmax(found, axis=1) == labels.astype(int), dtype=jnp.float32)


def seen_examples(task: Loaded) -> tuple[Array, Array]:
    """The training examples whose loss is recorded, and their labels."""
    return task.data.train[task.own.seen], task.data.train_labels[task.own.seen]


def unseen_examples(task: Loaded) -> tuple[Array, Array]:
    """The test examples, and their labels."""
    return task.data.test, task.data.test_labels


def probes(p: Preset) -> dict[str, Probe]:
    """Loss and accuracy on training and test examples; the landscape, if asked for."""

    def of(measure: Callable[..., Array], examples: Callable[[Loaded], Any], doc: str) -> Probe:
        def measured(task: Loaded, p: Preset, state: State) -> Array:
            x, labels = examples(task)
            return measure(by_kernel(p, state, lambda kernel: logits(state.params, x, p, kernel)), labels)

        return Probe(measured, doc)

    found = {
        "training_loss": of(cross_entropy, seen_examples, "cross-entropy of training examples"),
        "training_accuracy": of(accuracy, seen_examples, "share of them in the right class"),
        "test_loss": of(cross_entropy, unseen_examples, "cross-entropy of test examples"),
        "test_accuracy": of(accuracy, unseen_examples, "share of them in the right class"),
    }
    if not p.plane:
        return found

    def loss(model: Transformer, task: Loaded) -> Array:
        x, labels = seen_examples(task)
        return cross_entropy(logits(model, x, p, p.kernel, plain=True), labels)

    return found | landscape.probes(loss, p.plane)


EXPERIMENT = Experiment(
    PRESETS, make_task, dynamics, probes, loss="training_loss", records=records, data=data, require=require
)
