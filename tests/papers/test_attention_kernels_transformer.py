"""attention_kernels on real tasks: the transformer, its training, its landscapes, and what is claimed.

Attention is held against plain loops, logits and gradients against a second model without heads in parallel,
chunks or batches, Adam against its formula, eigenvalues against dense Hessians.
"""

import functools
import math
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from descentlab.data import imdb, pathfinder
from descentlab.engine import Checkpoint, Loaded, extremes_with_vector, thinning
from descentlab.engine._rollout import rollout
from descentlab.errors import SettingError
from descentlab.judging import Broken, Claim, Outcome, judge
from descentlab.papers import _registry as paper
from descentlab.papers.attention_kernels import kernels as one_layer
from descentlab.papers.attention_kernels import transformer as tr
from descentlab.papers.attention_kernels.transformer import attention, figures, landscape, theorems
from descentlab.papers.attention_kernels.transformer.attention import SCORES, Dropout

KERNELS = ("softmax", "gaussian")
by_kernel = pytest.mark.parametrize("kernel", KERNELS)
PAPER = paper.load("attention_kernels")
CLAIMS = (*theorems.faster.claims, *theorems.smoother.claims)
FIGURES = (*figures.FIGURE_1, *figures.FIGURE_3)
# One layer and few numbers: programs that compile fast, and Hessians of 16 rows.
SMALL = tr.PRESETS["pathfinder_landscape_tiny"].replace(
    layers=1, D=4, width=5, n_train=16, n_test=6, batch=3, steps=6, softmax_steps=3, warmup=2.0, eta=0.01,
    plane=5, evaluations=3,
)  # fmt: skip
GAUSSIAN = SMALL.replace(kernel="gaussian")
SOFTMAX = SMALL.replace(plane=0)
SYSTEM = PAPER.system_of(SMALL)
KEYS = jax.random.split(jax.random.key(11), 1)


def normals(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def numbers(tree: Any) -> Any:
    """The leaves as NumPy's, in double precision."""
    return jax.tree.map(lambda x: np.asarray(x, float), tree)


# ---------------------------------------------------------------- the plain definitions


def plain_weights(q: np.ndarray, k: np.ndarray, there: np.ndarray, kernel: str) -> np.ndarray:
    """How much queries look at keys, entry by entry."""
    (H, m, d), n = q.shape, k.shape[1]
    found = np.zeros((H, m, n))
    for h in range(H):
        for i in range(m):
            for j in range(n):
                if there[j] and kernel == "softmax":
                    found[h, i, j] = math.exp(q[h, i] @ k[h, j] / math.sqrt(d))
                elif there[j]:
                    gap = sum((q[h, i, c] - k[h, j, c]) ** 2 for c in range(d))
                    found[h, i, j] = math.exp(-gap / (2 * math.sqrt(d)))
            if kernel == "softmax":
                found[h, i] /= sum(found[h, i])
    return found


def plain_norm(x: Any, own: Any) -> Any:
    centred = x - jnp.mean(x, axis=1, keepdims=True)
    size = jnp.sqrt(jnp.mean(centred**2, axis=1, keepdims=True) + 1e-5)
    return centred / size * own.weight[None, :] + own.bias[None, :]


def plain_gelu(x: Any) -> Any:
    return 0.5 * x * (1 + jnp.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def plain_logits(w: Any, x: Any, there: Any, kernel: str) -> Any:
    """The logits of one embedded sequence, head by head, with all scores at once."""
    x = x + w.positions
    for layer in w.layers:
        z = plain_norm(x, layer.before_attention)
        for W_Q, W_K, W_V, W_O in zip(layer.W_Q, layer.W_K, layer.W_V, layer.W_O, strict=True):
            q, k = z @ W_Q, z @ W_K
            if kernel == "softmax":
                S = jnp.exp(q @ k.T / math.sqrt(q.shape[1])) * there[None, :]
                S = S / jnp.sum(S, axis=1, keepdims=True)
            else:
                gaps = jnp.sum((q[:, None] - k[None]) ** 2, axis=2)
                S = jnp.exp(-gaps / (2 * math.sqrt(q.shape[1]))) * there[None, :]
            x = x + S @ (z @ W_V) @ W_O
        z = plain_norm(x, layer.before_network)
        inner = plain_gelu(z @ layer.inner.weight.T + layer.inner.bias[None, :])
        x = x + inner @ layer.outer.weight.T + layer.outer.bias[None, :]
    pooled = jnp.sum(plain_norm(x, w.after) * there[:, None], axis=0) / jnp.sum(there)
    return w.head.weight @ plain_gelu(w.hidden.weight @ pooled + w.hidden.bias) + w.head.bias


def plain_loss(w: Any, patches: Any, labels: Any, kernel: str) -> Any:
    """The mean cross-entropy of images, and their logits."""
    everywhere = jnp.ones(patches.shape[1])

    def one(image: Any, label: Any) -> Any:
        found = plain_logits(w, image / 255 @ (50 * w.embedding), everywhere, kernel)
        return jnp.log(jnp.sum(jnp.exp(found))) - found[label], found

    losses, logits = jax.vmap(one)(patches, labels)
    return jnp.mean(losses), logits


# They run a few times: what is not optimised compiles faster.
hastily = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
plain = hastily(plain_loss, static_argnums=3)
plain_read = hastily(plain_logits, static_argnums=3)
plain_slope = hastily(jax.grad(lambda *x: plain_loss(*x)[0]), static_argnums=3)


# ---------------------------------------------------------------- attention

H, N, d = 2, 8, 3
Q, K, V, TARGET = (normals(seed, H, N, d) for seed in range(4))
ALL = np.ones(N, bool)
SOME = np.array([True, True, False, True, True, False, False, True])
by_mask = pytest.mark.parametrize("there", [ALL, SOME], ids=["all", "some"])


weights_of = hastily(attention.weights, static_argnums=3)


@by_kernel
@by_mask
def test_weights_are_those_of_plain_loops(kernel: str, there: np.ndarray):
    found = np.asarray(weights_of(Q[:, :5], K, there, kernel))
    np.testing.assert_allclose(found, plain_weights(Q[:, :5], K, there, kernel), rtol=1e-12)
    assert not found[:, :, ~there].any()
    assert found[:, :, there].min() > 0
    assert found.max() <= 1
    sums = found.sum(axis=2)
    if kernel == "softmax":
        np.testing.assert_allclose(sums, 1, rtol=1e-14)
    else:
        assert np.abs(sums - 1).min() > 1e-3


def test_a_gaussian_query_on_its_key_weighs_one_and_keys_far_away_nothing():
    found = np.asarray(weights_of(Q[:1].repeat(2, 0), np.stack([Q[0], Q[0] + 1e3]), ALL, "gaussian"))
    np.testing.assert_allclose(np.diagonal(found[0]), 1, rtol=1e-14)
    assert not found[1].any()


def test_large_scores_give_finite_weights():
    q, k = ((1e4 * x).astype(np.float32) for x in (Q, K))
    for kernel in KERNELS:
        found = weights_of(q, k, SOME, kernel)
        assert found.dtype == jnp.float32
        assert np.isfinite(found).all()


@by_kernel
def test_weights_are_those_of_the_single_layer_on_the_same_projections(kernel: str):
    W_Q, W_K, X = normals(5, H, 4, d), normals(6, H, 4, d), normals(7, 1, N, 4)
    w = one_layer.Weights(*(jnp.asarray(W) for W in (W_Q, W_K, W_Q)))
    expected = hastily(one_layer.attention, static_argnums=2)(w, X, kernel)[0]
    q, k = (np.stack([X[0] @ W[h] for h in range(H)]) for W in (W_Q, W_K))
    np.testing.assert_allclose(weights_of(q, k, ALL, kernel), expected, rtol=1e-12)


@functools.partial(hastily, static_argnums=(4, 5))
def attended(q: Any, k: Any, v: Any, there: Any, kernel: str, chunk: int) -> Any:
    """Outputs, and slopes of a sum of them in queries, keys and values."""

    def total(q: Any, k: Any, v: Any) -> Any:
        out = attention.attend(q, k, v, there, kernel, chunk)
        return jnp.sum(out * jnp.asarray(TARGET)), out

    slopes, out = jax.grad(total, argnums=(0, 1, 2), has_aux=True)(q, k, v)
    return out, slopes


@by_kernel
@pytest.mark.parametrize("chunk", [3, 4, N, 100])
def test_chunks_change_neither_outputs_nor_slopes(kernel: str, chunk: int):
    for there in (ALL, SOME):
        out, slopes = attended(Q, K, V, there, kernel, chunk)
        S = plain_weights(Q, K, there, kernel)
        np.testing.assert_allclose(out, S @ V, rtol=1e-11, atol=1e-13)
        _, expected = attended(Q, K, V, there, kernel, 0)
        for own, whole in zip(slopes, expected, strict=True):
            np.testing.assert_allclose(own, whole, rtol=1e-11, atol=1e-13)
        # In the values, outputs are linear; what is masked has no slope in keys and values.
        np.testing.assert_allclose(slopes[2], S.transpose(0, 2, 1) @ TARGET, rtol=1e-11, atol=1e-13)
        assert not np.asarray(slopes[1])[:, ~there].any()
        assert np.abs(slopes[0]).min() > 0


DROP = Dropout.of_heads(jax.random.key(8), 0.25, H)


@by_kernel
@pytest.mark.parametrize("chunk", [0, 3, 4])
def test_weights_are_thinned_by_head_and_chunk_in_order(kernel: str, chunk: int):
    rows = chunk or N
    masks = [
        [thinning(jax.random.fold_in(key, number), 0.25, (rows, N), float) for key in DROP.key]
        for number in range(-(-N // rows))
    ]
    kept = np.concatenate(np.asarray(masks), axis=1)[:, :N]
    assert 0 < (kept == 0).mean() < 0.5
    expected = (plain_weights(Q, K, SOME, kernel) * kept) @ V
    for attend in (attention.attend, attention.attend_plainly):
        q, k, v, there = (jnp.asarray(x) for x in (Q, K, V, SOME))
        found = attend(q, k, v, there, kernel, chunk, DROP)
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-13)


def arrays_inside(jaxpr: Any) -> Iterator[tuple[int, str]]:
    """Bytes and shape of everything a program computes, in loops and branches too."""
    for equation in jaxpr.eqns:
        for own in (v.aval for v in equation.outvars if hasattr(v.aval, "shape")):
            yield math.prod(own.shape) * own.dtype.itemsize, str(own)
        for part in jax.tree.leaves(equation.params, is_leaf=lambda x: hasattr(x, "eqns")):
            part = getattr(part, "jaxpr", part)
            if hasattr(part, "eqns"):
                yield from arrays_inside(part)


def slopes_of(n: int, kernel: str, chunk: int | None) -> tuple[Any, list[Any]]:
    """The slopes of attention over n tokens in queries, keys and values, and what they take.

    Without a chunk, of the plain form.
    """

    def total(q: Any, k: Any, v: Any) -> Any:
        there = jnp.ones(n, bool)
        if chunk is None:
            return jnp.sum(attention.weights(q, k, there, kernel) @ v)
        return jnp.sum(attention.attend(q, k, v, there, kernel, chunk))

    return jax.grad(total, (0, 1, 2)), [jax.ShapeDtypeStruct((H, n, d), jnp.float32)] * 3


@by_kernel
def test_memory_of_chunks_is_linear_in_the_length(kernel: str):
    def largest(n: int, chunk: int | None) -> int:
        slopes, shapes = slopes_of(n, kernel, chunk)
        return max(arrays_inside(jax.make_jaxpr(slopes)(*shapes).jaxpr))[0]

    assert largest(512, 16) == 16 * 512 * 4
    assert largest(2048, 16) == 4 * largest(512, 16)
    # Left to itself, a chunk is as large as the cache of a core.
    assert largest(512, 0) == largest(2048, 0) == 4 * SCORES
    assert largest(2048, None) == H * 2048**2 * 4


def test_compiled_chunks_need_a_fraction_of_the_memory():
    def needed(chunk: int | None) -> int:
        slopes, shapes = slopes_of(512, "softmax", chunk)
        analysis: Any = jax.jit(slopes).lower(*shapes).compile().memory_analysis()
        return analysis.temp_size_in_bytes

    assert needed(None) >= H * 512**2 * 4
    assert needed(16) < needed(None) / 4


@by_kernel
@pytest.mark.parametrize("drop", [None, DROP], ids=["whole", "thinned"])
def test_written_slopes_and_their_own_are_those_of_differentiation(kernel: str, drop: Dropout | None):
    def through(attend: Any) -> Any:
        """Slopes for a batch of two, and how they change along a direction of everything."""

        def total(x: Any) -> Any:
            found = jax.vmap(attend)(*x, jnp.stack([ALL, SOME]))
            return jnp.sum(found**2 * jnp.asarray(TARGET)[None])

        return hastily(lambda x, along: jax.jvp(jax.grad(total), (x,), (along,)))

    x = tuple(jnp.asarray(normals(seed, 2, H, N, d)) for seed in (10, 11, 12))
    along = tuple(jnp.asarray(normals(seed, 2, H, N, d)) for seed in (13, 14, 15))
    found = through(lambda q, k, v, there: attention.attend(q, k, v, there, kernel, 3, drop))(x, along)
    plainly = through(lambda q, k, v, there: attention.attend_plainly(q, k, v, there, kernel, 3, drop))
    at_once = through(lambda q, k, v, there: attention.weights(q, k, there, kernel) @ v)
    expected = (at_once if drop is None else plainly)(x, along)
    for own, plain in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(own, plain, rtol=1e-10, atol=1e-12)


# ---------------------------------------------------------------- dropout


def test_dropout_keeps_its_share_and_the_mean():
    x = jnp.ones((200, 100), jnp.float32)
    key = jax.random.key(2)
    for rate in (0.1, jnp.asarray(0.1)):  # a number, or a leaf of a preset inside a program
        found = tr.thinned(key, x, rate)
        assert found.dtype == jnp.float32
        assert np.unique(found) == pytest.approx([0, 1 / 0.9], rel=2e-5)  # rates have 16 bits
        assert float(found.mean()) == pytest.approx(1, abs=6 * math.sqrt(0.1 / 0.9 / x.size))
    np.testing.assert_array_equal(tr.thinned(key, x, 0.0), x)
    np.testing.assert_array_equal(tr.thinned(None, x, 0.5), x)


# ---------------------------------------------------------------- the model

TEXT = np.array([3, 1, 4, 1, 5, 0, 0, 0], np.uint8)


def filled(*sizes: int, dtype: Any = jnp.float64, kind: Any = tr.Transformer) -> Any:
    """A model of these sizes with any numbers: drawing them all by keys would take long to compile."""
    shapes = jax.eval_shape(lambda: kind(*sizes, key=jax.random.key(0), dtype=dtype))
    found, tree = jax.tree.flatten(shapes)
    return jax.tree.unflatten(
        tree, [jnp.asarray(0.7 * normals(i, *x.shape), x.dtype) for i, x in enumerate(found)]
    )


@functools.cache
def reader(length: int = 8) -> tr.Transformer:
    """A model of texts with two layers and three heads, and its first positions."""
    found = filled(7, 8, 2, 6, 3, 5)
    return eqx.tree_at(lambda m: m.positions, found, found.positions[:length])


@functools.partial(hastily, static_argnums=(2, 3))
def read(w: tr.Transformer, text: Any, kernel: str, chunk: int = 0) -> Any:
    return w(*tr.embedded_words(w, text), kernel, chunk)


@pytest.mark.parametrize(("kernel", "chunk"), [("softmax", 0), ("gaussian", 0), ("gaussian", 3)])
def test_logits_are_those_of_the_plain_model(kernel: str, chunk: int):
    w = reader()
    for text in (TEXT, TEXT[::-1].copy(), np.arange(1, 9, dtype=np.uint8) % 7):
        there = jnp.asarray(text > 0, float)
        expected = plain_read(w, w.embedding[text.astype(int)], there, kernel)
        np.testing.assert_allclose(read(w, text, kernel, chunk), expected, rtol=1e-11, atol=1e-12)


@by_kernel
def test_padding_does_not_matter(kernel: str):
    w = reader()
    whole = read(w, TEXT, kernel)
    np.testing.assert_allclose(read(reader(6), TEXT[:6], kernel), whole, rtol=1e-12)
    # Neither the row of byte 0 nor positions after the text matter, to the last bit.
    E, P = np.array(w.embedding), np.array(w.positions)
    E[0], P[5:] = normals(1, 6), normals(2, 3, 6)
    other = eqx.tree_at(lambda m: (m.embedding, m.positions), w, (jnp.asarray(E), jnp.asarray(P)))
    np.testing.assert_array_equal(read(other, TEXT, kernel), whole)
    # What is read does.
    P[4] = normals(1, 6)
    within = eqx.tree_at(lambda m: m.positions, w, jnp.asarray(P))
    assert np.abs(read(within, TEXT, kernel) - whole).max() > 1e-3


@by_kernel
def test_every_byte_of_a_text_and_its_place_matter(kernel: str):
    whole = np.asarray(read(reader(), TEXT, kernel))
    for i in range(5):
        other = TEXT.copy()
        other[i] = 6
        assert np.abs(read(reader(), other, kernel) - whole).max() > 1e-6
    swapped = TEXT[np.array([1, 0, 2, 3, 4, 5, 6, 7])]
    assert np.abs(read(reader(), swapped, kernel) - whole).max() > 1e-6


@by_kernel
def test_an_empty_text_has_finite_logits_and_slopes(kernel: str):
    def total(w: Any) -> Any:
        return jnp.sum(w(*tr.embedded_words(w, jnp.zeros(8, jnp.uint8)), kernel))

    found, slopes = hastily(jax.value_and_grad(total))(reader())
    assert np.isfinite(found)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(slopes))


def test_pixels_and_patches_are_embedded_by_hand():
    w = reader()
    E = np.asarray(w.embedding)
    grey = np.array([[2], [0], [6]], np.uint8)
    found, there = hastily(tr.embedded_pixels)(w, grey)
    np.testing.assert_array_equal(found, E[[2, 0, 6]])
    assert there.tolist() == [True] * 3
    patches = np.random.default_rng(3).integers(0, 256, (3, 7)).astype(np.uint8)
    found, there = hastily(tr.embedded_patches)(w, patches)
    expected = [[sum(g / 255 * 50 * E[i, c] for i, g in enumerate(row)) for c in range(6)] for row in patches]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert there.tolist() == [True] * 3


@pytest.mark.parametrize(
    ("preset", "vocabulary", "length"),
    [
        ("imdb_tiny", 512, 32),
        ("pathfinder_tiny", 16, 64),
        ("pathfinder", 4, 256),
        ("pathfinder_paper", 256, 1024),
    ],
)
def test_models_have_the_sizes_of_their_preset(preset: str, vocabulary: int, length: int):
    p = tr.PRESETS[preset]
    assert tr.tokens(p) == length
    found = jax.eval_shape(lambda: tr.begin(jax.random.key(0), p))
    assert found.embedding.shape == (vocabulary, p.D)
    assert found.positions.shape == (length, p.D)
    assert len(found.layers) == p.layers == 2
    for layer in found.layers:
        assert {layer.W_Q.shape, layer.W_K.shape, layer.W_V.shape} == {(p.H, p.D, p.D // p.H)}
        assert layer.W_O.shape == (p.H, p.D // p.H, p.D)
        assert (layer.inner.out_features, layer.outer.in_features) == (p.width, p.width)
    assert {x.dtype for x in jax.tree.leaves(found)} == {np.dtype(np.float32)}


def test_dropout_thins_tokens_attention_its_outputs_and_the_network_by_keys_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
):
    seen: list[tuple[Any, tuple[int, ...], float]] = []
    heads: list[Dropout] = []

    def spy(key: Any, x: Any, rate: Any) -> Any:
        seen.append((key, x.shape, rate))
        return x

    def attend(q: Any, k: Any, v: Any, there: Any, kernel: Any, chunk: Any, drop: Any) -> Any:
        heads.append(drop)
        return v

    monkeypatch.setattr(tr, "thinned", spy)
    monkeypatch.setattr(tr, "attend", attend)
    w, (x, there) = reader(), tr.embedded_words(reader(), jnp.asarray(TEXT))

    @jax.jit
    def keys(key: Any) -> Any:
        w(x, there, "softmax", 0, key, 0.25)
        rates = jnp.stack([drop.rate for drop in heads])
        own = [*(key for key, _, _ in seen), *(key for drop in heads for key in drop.key)]
        return jax.random.key_data(jnp.stack(own)), rates

    found, rates = keys(jax.random.key(3))
    assert [shape for _, shape, _ in seen] == [(8, 6), *[(8, 6), (8, 5), (8, 6)] * 2]
    assert {rate for _, _, rate in seen} == {0.25}
    assert np.asarray(rates).tolist() == [[0.25] * 3] * 2
    assert len(np.unique(np.asarray(found), axis=0)) == 7 + 2 * 3
    seen.clear()
    heads.clear()
    jax.eval_shape(lambda: w(x, there, "softmax", 0, None, 0.25))
    assert [key for key, _, _ in seen] == [None] * 7
    assert heads == [None] * 2


# ---------------------------------------------------------------- data


@pytest.mark.parametrize("patch", [1, 2, 4])
def test_images_are_cut_row_by_row(patch: int):
    images = np.random.default_rng(0).integers(0, 256, (2, 32, 32)).astype(np.uint8)
    rows = 32 // patch
    expected = np.zeros((2, rows * rows, patch * patch), np.uint8)
    for i in range(2):
        for y in range(32):
            for x in range(32):
                token, place = y // patch * rows + x // patch, y % patch * patch + x % patch
                expected[i, token, place] = images[i, y, x]
    np.testing.assert_array_equal(tr.sequences(images, patch), expected)


def test_contours_are_those_of_the_generator_and_none_is_tested_that_is_trained_on():
    found = tr.data(SMALL)
    images, labels = pathfinder.generate(22, 0, pathfinder.BASELINE)
    np.testing.assert_array_equal(np.concatenate([found.train, found.test]), tr.sequences(images, 4))
    np.testing.assert_array_equal(np.concatenate([found.train_labels, found.test_labels]), labels)
    assert (len(found.train), len(found.test)) == (16, 6)
    assert len(np.unique(images, axis=0)) == 22


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, tuple[np.ndarray, np.ndarray]]]:
    """Made-up reviews of at most 32 bytes."""
    random = np.random.default_rng(4)
    made = {}
    for split, count in (("train", 40), ("test", 30)):
        bytes_ = random.integers(1, 256, (count, 32)).astype(np.uint8)
        bytes_[np.arange(32)[None] >= random.integers(1, 33, count)[:, None]] = 0
        made[split] = bytes_, random.integers(0, 2, count).astype(np.uint8)
    monkeypatch.setattr(imdb, "tokens", lambda split, length: (made[split][0][:, :length], made[split][1]))
    tr._reviews.cache_clear()
    yield made
    tr._reviews.cache_clear()


def test_reviews_are_the_first_of_each_half(texts: dict[str, tuple[np.ndarray, np.ndarray]]):
    found = tr.data(tr.PRESETS["imdb_tiny"].replace(n_train=20, n_test=10, length=9))
    for split, count, own in (("train", 20, found[:2]), ("test", 10, found[2:])):
        np.testing.assert_array_equal(own[0], texts[split][0][:count, :9])
        np.testing.assert_array_equal(own[1], texts[split][1][:count])


def test_logits_of_reviews_are_those_of_the_plain_model(texts: dict[str, tuple[np.ndarray, np.ndarray]]):
    p = tr.PRESETS["imdb_tiny"].replace(n_test=3, length=8)
    w, x = reader(), tr.data(p).test % 7
    found = hastily(lambda w, x: tr.logits(w, x, p, "gaussian"))(w, x)
    expected = [plain_read(w, w.embedding[t.astype(int)], jnp.asarray(t > 0, float), "gaussian") for t in x]
    np.testing.assert_allclose(found, np.stack(expected), rtol=1e-11, atol=1e-12)


def test_the_cross_entropy_is_the_mean_of_logarithms():
    found, labels = normals(0, 5, 2), np.array([0, 1, 1, 0, 1], np.uint8)
    each = [math.log(math.exp(a) + math.exp(b)) - (a, b)[k] for (a, b), k in zip(found, labels, strict=True)]
    assert float(hastily(tr.cross_entropy)(found, labels)) == pytest.approx(np.mean(each))


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"task": "cifar"}, "task takes one of imdb, pathfinder, got task=cifar."),
        ({"kernel": "linear"}, "kernel takes one of softmax, gaussian, got kernel=linear."),
        ({"patch": 3}, "patch takes one of 1, 2, 4, got patch=3."),
        ({"D": 10, "H": 3}, "H must divide D = 10, got H=3."),
        ({"plane": 10}, "plane takes 0 or an odd number >= 5, got plane=10."),
        ({"plane": 3}, "plane takes 0 or an odd number >= 5, got plane=3."),
        ({"n_train": 25_001}, "n_train takes a whole number <= 25000 for task=imdb, got n_train=25001."),
        ({"dropout": 0.1}, "dropout takes 0 unless with_dropout=true, got dropout=0.1."),
        ({"dropout": 1.0}, "dropout takes a number >= 0 and < 1, got dropout=1.0."),
        ({"eta": 0.0}, "eta takes a number > 0, got eta=0.0."),
        ({"warmup": -1.0}, "warmup takes a number >= 0, got warmup=-1.0."),
        ({"layers": 0}, "layers takes a whole number >= 1 and <= 32, got layers=0."),
    ],
    ids=str,
)  # fmt: skip
def test_what_cannot_be_is_refused_with_field_value_and_what_is_allowed(
    settings: dict[str, Any], message: str
):
    with pytest.raises(SettingError) as refused:
        tr.Preset(**settings)
    assert str(refused.value) == message


def test_what_can_be_is_not_refused():
    tr.Preset(task="pathfinder", n_train=160_000)
    tr.Preset(dropout=0.1, with_dropout=True)
    tr.Preset(with_dropout=True)
    tr.Preset(plane=11, D=12, H=3)


SIZES = {"D": 64, "width": 128, "H": 2, "layers": 2}
LONG = {"steps": 50_000, "dropout": 0.1, "with_dropout": True, "softmax_steps": 0, "plane": 0}
TEXTS = {"task": "imdb", "length": 4000, "batch": 32, "eta": 1e-4, "warmup": 80.0, "n_train": 25_000}
CONTOURS = {"task": "pathfinder", "patch": 1, "batch": 128, "eta": 2e-4, "warmup": 312.0, "n_train": 160_000}
HARD = {"contour_length": 14, "distractor_length": 4}
LATE = {"softmax_steps": 20_000, "steps": 20_500, "dropout": 0.1, "with_dropout": True}


@pytest.mark.parametrize(
    ("name", "expected", "length"),
    [
        ("imdb_paper", SIZES | LONG | TEXTS, 4000),
        ("pathfinder_paper", SIZES | LONG | CONTOURS | HARD, 1024),
        ("imdb_landscape_paper", SIZES | TEXTS | LATE, 4000),
        ("pathfinder_landscape_paper", SIZES | CONTOURS | HARD | LATE, 1024),
    ],
    ids=str,
)
def test_presets_of_the_paper_have_its_values(name: str, expected: dict[str, Any], length: int):
    p = tr.PRESETS[name]
    settings = p.settings()
    assert {k: settings[k] for k in expected} == expected
    assert tr.tokens(p) == length
    if "landscape" in name:
        assert p.plane


@pytest.mark.parametrize("name", tr.PRESETS)
def test_records_are_evenly_spaced_from_the_start_to_the_end(name: str):
    p = tr.PRESETS[name]
    steps = tr.records(p)
    assert (steps[0], steps[-1], len(steps)) == (0, p.steps, p.evaluations + 1)
    assert np.ptp(np.diff(steps)) <= 1
    assert PAPER.records(p).tolist() == steps.tolist()


def test_there_are_no_more_records_than_steps():
    assert tr.records(tr.Preset(steps=3, evaluations=10)).tolist() == [0, 1, 2, 3]
    assert tr.records(tr.Preset(steps=7, evaluations=3)).tolist() == [0, 2, 5, 7]


@pytest.mark.parametrize(
    ("warmup", "expected"),
    [
        # Up in four steps, then down by a sixth a step.
        (4.0, [0.25, 0.5, 0.75, 1, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6, 0]),
        (0.0, [1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0]),
        # Training ends before the warm-up does.
        (10.0, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 0]),
        (40.0, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 0]),
    ],
)
def test_the_rate_rises_to_its_peak_and_falls_to_zero(warmup: float, expected: list[float]):
    p = tr.Preset(steps=10, warmup=warmup, eta=0.003)
    found = jax.jit(jax.vmap(tr.rate, in_axes=(None, 0)))(p, jnp.arange(11, dtype=jnp.int32))
    np.testing.assert_allclose(found, 0.003 * np.array(expected), rtol=1e-6, atol=1e-12)


def test_a_later_horizon_keeps_the_rate_up():
    p = tr.Preset(steps=10, horizon=50, warmup=0.0, eta=1.0)
    found = jax.vmap(tr.rate, in_axes=(None, 0))(p, jnp.arange(11, dtype=jnp.int32))
    np.testing.assert_allclose(found, 1 - np.arange(11) / 50, rtol=1e-6)
    for name, own in tr.PRESETS.items():
        if "landscape" in name and "tiny" not in name:
            assert 0.5 < float(tr.rate(own, jnp.asarray(own.softmax_steps))) / own.eta < 0.8


@pytest.mark.parametrize(("field", "value"), [("horizon", 5), ("softmax_steps", 11)])
def test_stages_and_horizons_fit_the_steps(field: str, value: int):
    with pytest.raises(SettingError, match=rf"{field} takes .*steps = 10, got {field}={value}"):
        tr.Preset(steps=10).replace({field: value})


# ---------------------------------------------------------------- training


def leaves(p: tr.Preset) -> tr.Preset:
    """The numbers of a preset with a row for the only seed."""
    return jax.tree.map(lambda x: jnp.asarray([x]), p)


@functools.cache
def loaded() -> Any:
    return SYSTEM.load(SMALL, 1)


@functools.cache
def begun() -> tuple[Any, tr.State]:
    return SYSTEM.start(KEYS, leaves(SOFTMAX), loaded())


def onward(p: tr.Preset, state: tr.State, first: int, last: int) -> tr.State:
    """The state after the steps first, ..., last - 1."""
    return SYSTEM.advance(KEYS, begun()[0], state, leaves(p), loaded(), first, last)


@functools.cache
def trained(p: tr.Preset, steps: int) -> tr.State:
    return onward(p, begun()[1], 0, steps)


def only(tree: Any) -> Any:
    """The row of the only seed, in double precision."""
    return numbers(jax.tree.map(lambda x: x[0], tree))


def same(a: Any, b: Any) -> bool:
    """Whether states agree bit for bit."""
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(np.array_equal(x, y) for x, y in pairs)


def batch(t: int) -> tuple[np.ndarray, np.ndarray]:
    """What step t trains on."""
    key = jax.random.fold_in(jax.random.split(KEYS[0], 3)[2], t)
    chosen = np.asarray(jax.random.randint(jax.random.split(key)[0], (3,), 0, 16))
    found = tr.data(SMALL)
    return found.train[chosen].astype(float), found.train_labels[chosen].astype(int)


def assert_close(found: Any, expected: Any, atol: float, rtol: float = 0.0) -> None:
    """That the only row of a tree is as expected."""
    for (path, x), y in zip(jax.tree.leaves_with_path(only(found)), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(x, y, rtol=rtol, atol=atol, err_msg=jax.tree_util.keystr(path))


def assert_means(before: tr.State, after: tr.State, gradient: Any) -> None:
    """That Adam's means took in this gradient, clipped at 1 each number for itself."""
    (_, own), (_, new) = before.memory, after.memory
    clipped = jax.tree.map(lambda g: np.clip(g, -1, 1), numbers(gradient))
    mu = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, only(own.mu), clipped)
    nu = jax.tree.map(lambda n, g: 0.999 * n + 0.001 * g**2, only(own.nu), clipped)
    assert_close(new.mu, mu, atol=1e-6, rtol=1e-4)
    assert_close(new.nu, nu, atol=1e-9, rtol=1e-3)


def moved_by_means(before: tr.State, after: tr.State, rate: float, t: int) -> Any:
    """Adam's formula: the parameters after step t = 1, 2, ... from its means."""

    def one(x: np.ndarray, mu: np.ndarray, nu: np.ndarray) -> np.ndarray:
        return x - rate * mu / (1 - 0.9**t) / (np.sqrt(nu / (1 - 0.999**t)) + 1e-6)

    means = after.memory[1]
    return jax.tree.map(one, only(before.params), only(means.mu), only(means.nu))


def test_steps_are_adam_on_the_plain_gradient_clipped_at_one():
    largest = []
    for t, rate in ((0, 0.005), (1, 0.01)):
        before, after = trained(SOFTMAX, t), trained(SOFTMAX, t + 1)
        gradient = plain_slope(only(before.params), *batch(t), "softmax")
        assert_means(before, after, gradient)
        assert_close(after.params, moved_by_means(before, after, rate, t + 1), atol=1e-7, rtol=1e-6)
        assert int(after.done[0]) == t + 1
        largest += [np.abs(x).max() for x in jax.tree.leaves(numbers(gradient))]
    assert min(largest) < 0.1
    assert max(largest) > 1.5


def test_training_goes_on_with_softmax_bit_for_bit_until_the_kernel_changes():
    for steps in (1, 3):
        assert same(trained(SOFTMAX, steps), trained(GAUSSIAN, steps))
    assert not same(trained(SOFTMAX, 3).params, trained(SOFTMAX, 1).params)
    own, other = (trained(p, 4) for p in (SOFTMAX, GAUSSIAN))
    assert not same(own.params, other.params)
    for state, kernel in ((own, "softmax"), (other, "gaussian")):
        before = trained(SOFTMAX, 3)
        assert_means(before, state, plain_slope(only(before.params), *batch(3), kernel))


@by_kernel
def test_training_fits_a_few_images(kernel: str):
    p = (SOFTMAX if kernel == "softmax" else GAUSSIAN).replace(eta=0.02, steps=300)
    task, first = begun()
    losses = [float(SYSTEM.observe(task, state, leaves(p), loaded())["training_loss"][0])
              for state in (first, onward(p, first, 0, 300))]  # fmt: skip
    assert losses[0] > 0.6
    assert losses[1] < 0.2


class Confessing(tr.Transformer):
    """Its logits are the key it was given, or -1 without one."""

    def __call__(
        self, x: Any, there: Any, kernel: Any, chunk: Any = 0, key: Any = None, rate: Any = 0.0,
        plain: Any = False,
    ) -> Any:  # fmt: skip
        assert (kernel, chunk, rate, plain) == ("gaussian", 3, 0.1, False)
        return -jnp.ones(2) if key is None else jax.random.key_data(key).astype(float)


def test_examples_of_a_batch_have_keys_of_their_own():
    p = tr.PRESETS["imdb_tiny"].replace(with_dropout=True, dropout=0.1, chunk=3)
    w, x = filled(7, 8, 1, 2, 1, 1, kind=Confessing), jnp.asarray(np.stack([TEXT] * 5))
    found = tr.logits(w, x, p, "gaussian", jax.random.key(0))
    assert len(np.unique(found, axis=0)) == 5
    assert np.min(found) >= 0
    np.testing.assert_array_equal(tr.logits(w, x, p, "gaussian"), -np.ones((5, 2)))
    off = p.unchecked(with_dropout=False)
    np.testing.assert_array_equal(tr.logits(w, x, off, "gaussian", jax.random.key(0)), -np.ones((5, 2)))


def test_dropout_changes_logits_by_its_rate_and_key():
    p = tr.PRESETS["imdb_tiny"].replace(with_dropout=True, chunk=3)
    w, x = reader(), jnp.asarray(TEXT[None])
    logits = hastily(lambda key, p: tr.logits(w, x, p, "gaussian", key)[0])
    first, second = (jax.random.key(i) for i in range(2))
    whole, some = logits(first, p), p.replace(dropout=0.1)
    np.testing.assert_allclose(whole, read(w, TEXT, "gaussian", 3), rtol=1e-12)
    found = [logits(first, some), logits(second, some), whole]
    assert min(np.abs(a - b).max() for i, a in enumerate(found) for b in found[:i]) > 1e-3


def test_steps_draw_masks_and_records_do_not(monkeypatch: pytest.MonkeyPatch):
    p = SOFTMAX.replace(with_dropout=True, dropout=0.1)
    given: list[tuple[int, Any, Any]] = []

    def spy(w: Any, x: Any, p: tr.Preset, kernel: str, key: Any = None) -> Any:
        given.append((len(x), key, p.dropout))
        return jnp.zeros((len(x), 2), jnp.float32)

    monkeypatch.setattr(tr, "logits", spy)
    task, state = jax.tree.map(lambda x: x[0], begun())
    task = Loaded(task, loaded())
    step = tr.dynamics(task, p).step
    assert step is not None

    @jax.jit
    def masks(key: Any) -> Any:
        step(key, state)
        return jax.random.key_data(given[0][1])

    # Another key than the one that chooses the batch.
    assert not np.array_equal(masks(KEYS[0]), jax.random.key_data(jax.random.split(KEYS[0])[0]))
    assert [(size, dropout) for size, _, dropout in given] == [(p.batch, 0.1)]
    given.clear()
    jax.eval_shape(lambda: [probe.measure(task, p, state) for probe in tr.probes(p).values()])
    assert {(size, key) for size, key, _ in given} == {(p.n_test, None)}


def shapes_of_data(p: tr.Preset) -> tr.Examples:
    tail = () if p.task == "imdb" else (p.patch**2,)
    each = [((n, tr.tokens(p), *tail), (n,)) for n in (p.n_train, p.n_test)]
    return tr.Examples(*(jax.ShapeDtypeStruct(shape, np.uint8) for pair in each for shape in pair))


@pytest.mark.parametrize("name", ["imdb_paper", "pathfinder_paper"])
def test_steps_and_records_of_the_paper_hold_no_huge_array(name: str):
    p = tr.PRESETS[name].replace(kernel="gaussian")

    def program(key: Any, p: tr.Preset, data: Any) -> Any:
        task = Loaded(tr.make_task(key, p, data), data)
        dynamics = tr.dynamics(task, p)
        state = dynamics.advance(key, dynamics.init(key), jnp.asarray(0), jnp.asarray(1))
        return state, {name: probe.measure(task, p, state) for name, probe in tr.probes(p).items()}

    numbers = jax.tree.map(jnp.asarray, p)
    traced = jax.make_jaxpr(program)(jax.random.key(0), numbers, shapes_of_data(p))
    size, shape = max(arrays_inside(traced.jaxpr))
    assert size < 2**30, f"{size / 1e9:.1f} GB: {shape}"


# ---------------------------------------------------------------- whole runs


@functools.cache
def whole(kernel: str) -> tuple[xr.Dataset, tuple[Checkpoint, ...]]:
    """A run with its landscape, and all checkpoints on the way."""
    p, kept = GAUSSIAN if kernel == "gaussian" else SOFTMAX, []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(import_module("descentlab.engine._rollout"), "PIECE_SECONDS", 0.0)  # one step at a time
        found = rollout(SYSTEM, p, range(5, 6), tr.records(p), keep=kept.append, keep_every=-1.0)
    return found, tuple(kept)


def final(run: xr.Dataset) -> Any:
    """The final parameters of a run in double precision."""
    tree = jax.tree.map(lambda x: x[0], begun()[1].params)

    def one(path: Any, x: Any) -> np.ndarray:
        name = "final_params_" + jax.tree_util.keystr(path, simple=True, separator="_")
        return run[name].values[0].astype(float)

    return jax.tree_util.tree_map_with_path(one, tree)


def own_key(seed: int) -> jax.Array:
    """What a seed's task is made with."""
    return jax.random.split(jax.random.fold_in(jax.random.key(0), seed), 3)[0]


def directions_of(seed: int) -> jax.Array:
    """What draws a seed's plane."""
    return jax.random.fold_in(own_key(seed), 1)


def seen(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The training examples behind the records of a seed."""
    key = own_key(seed)
    chosen = np.asarray(jax.random.randint(key, (6,), 0, 16))
    found = tr.data(SMALL)
    return found.train[chosen].astype(float), found.train_labels[chosen].astype(int)


@by_kernel
def test_records_are_those_of_the_plain_model_with_the_kernel_in_use(kernel: str):
    run, _ = whole(kernel)
    data = tr.data(SMALL)
    assert run["step"].values.tolist() == [0, 2, 4, 6]
    assert run["diverged_at"].values.tolist() == [-1]
    for name, x, labels in (
        ("training", *seen(5)),
        ("test", data.test.astype(float), data.test_labels.astype(int)),
    ):
        loss, logits = plain(final(run), x, labels, kernel)
        assert float(run[f"{name}_loss"][0, -1]) == pytest.approx(float(loss), rel=1e-5)
        right = np.mean(np.argmax(logits, axis=1) == labels)
        assert float(run[f"{name}_accuracy"][0, -1]) == pytest.approx(right)


def test_records_before_the_kernel_changes_are_those_of_softmax():
    (soft, _), (gauss, _) = whole("softmax"), whole("gaussian")
    for name in ("training_loss", "test_loss", "training_accuracy", "test_accuracy"):
        np.testing.assert_allclose(soft[name][0, :2], gauss[name][0, :2], rtol=1e-6)
    for name in ("training_loss", "test_loss"):
        assert np.abs(soft[name] - gauss[name])[0, 2:].min() > 1e-6


def test_a_run_cut_anywhere_and_taken_up_has_the_same_numbers():
    run, kept = whole("gaussian")
    assert [c.step for c in kept] == [1, 2, 3, 4, 5]
    saved = Checkpoint.from_arrays(kept[2].arrays())
    again = rollout(SYSTEM, GAUSSIAN, range(5, 6), tr.records(GAUSSIAN), resume=saved)
    xr.testing.assert_identical(run, again)


# ---------------------------------------------------------------- landscapes


@functools.cache
def grown() -> tr.Transformer:
    """A model of two layers in single precision."""
    return filled(3, 2, 2, 4, 2, 3, dtype=jnp.float32)


def test_blocks_are_the_weights_of_all_layers():
    w = grown()
    for name in ("W_Q", "W_K"):
        found = landscape.block(w, name)
        assert [x.shape for x in found] == [(2, 4, 2)] * 2
        for x, layer in zip(found, w.layers, strict=True):
            np.testing.assert_array_equal(x, getattr(layer, name))
    flat = np.concatenate([np.asarray(x).ravel() for x in landscape.block(w, "W_Q")])
    assert float(landscape.norm(landscape.block(w, "W_Q"))) == pytest.approx(np.linalg.norm(flat), rel=1e-6)


@pytest.mark.parametrize("name", ["W_Q", "W_K"])
def test_moving_a_block_leaves_the_rest(name: str):
    w = grown()
    by = [jnp.asarray(normals(i, 2, 4, 2), jnp.float32) for i in range(2)]
    found = landscape.moved(w, name, by)
    changed = 0
    for (path, x), y in zip(jax.tree.leaves_with_path(found), jax.tree.leaves(w), strict=True):
        if jax.tree_util.keystr(path).endswith(name):
            np.testing.assert_array_equal(x, y + by[changed])
            changed += 1
        else:
            np.testing.assert_array_equal(x, y)
    assert changed == 2


def test_random_directions_have_columns_as_long_as_those_of_the_weights():
    weights = [jnp.asarray(normals(i, 2, 4, 3) * 3.0**i, jnp.float32) for i in range(2)]
    found = landscape.filter_normalised(jax.random.key(0), weights)
    for W, own in zip(weights, found, strict=True):
        for h in range(2):
            for c in range(3):
                size = np.linalg.norm(W[h, :, c])
                assert np.linalg.norm(own[h, :, c]) == pytest.approx(size, rel=1e-5)
                assert abs(np.dot(W[h, :, c], own[h, :, c])) < 0.999 * size**2
    assert np.abs(found[0] / jnp.linalg.norm(found[0]) - found[1] / jnp.linalg.norm(found[1])).max() > 0.1
    other = landscape.filter_normalised(jax.random.key(1), weights)
    assert np.abs(other[0] - found[0]).max() > 0.1


def test_the_plane_has_queries_along_rows_and_keys_along_columns():
    w = grown()
    of_Q, of_K = ([jnp.asarray(normals(10 * k + i, 2, 4, 2), jnp.float32) for i in range(2)] for k in (1, 2))

    def sums(name: str, m: Any) -> Any:
        return sum(float(i + 1) * jnp.sum(x**2) for i, x in enumerate(landscape.block(m, name)))

    found = jax.jit(
        lambda w: landscape.plane(lambda m: sums("W_Q", m) + 10 * sums("W_K", m), w, of_Q, of_K, 5)
    )(w)
    places = [-1, -0.5, 0, 0.5, 1]
    expected = [
        [
            sum(
                factor * (i + 1) * np.sum((np.asarray(x, float) + by * np.asarray(y, float)) ** 2)
                for factor, name, by, along in ((1, "W_Q", a, of_Q), (10, "W_K", b, of_K))
                for i, (x, y) in enumerate(zip(landscape.block(w, name), along, strict=True))
            )
            for b in places
        ]
        for a in places
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("name", ["W_Q", "W_K"])
def test_curvature_in_a_block_is_that_of_a_known_quadratic(name: str):
    w = grown()
    basis = np.linalg.qr(normals(0, 32, 32))[0]
    values = np.concatenate([[-3.0], np.linspace(-0.5, 0.5, 30), [5.0]])
    M = jnp.asarray((basis * values) @ basis.T, jnp.float32)

    def loss(m: Any) -> Any:
        flat = jnp.concatenate([x.ravel() for x in landscape.block(m, name)])
        rest = sum(jnp.sum(x**4) for x in landscape.block(m, "W_K" if name == "W_Q" else "W_Q"))
        return 0.5 * flat @ M @ flat + 100 * rest

    ends, top = hastily(lambda w: landscape.curvature(loss, w, name, jax.random.key(0)))(w)
    assert (float(ends.least), float(ends.largest)) == pytest.approx((-3, 5), rel=1e-4)
    flat = np.concatenate([np.asarray(x).ravel() for x in top])
    size = np.linalg.norm([np.linalg.norm(x) for x in landscape.block(w, name)])
    assert np.linalg.norm(flat) == pytest.approx(size, rel=1e-5)
    assert abs(flat @ basis[:, -1]) == pytest.approx(size, rel=1e-3)


def blocks(w: Any) -> Any:
    return w.layers[0].W_Q, w.layers[0].W_K


def with_blocks(w: Any, Q: Any, K: Any) -> Any:
    return eqx.tree_at(blocks, w, (Q, K))


def test_planes_and_eigenvalues_are_those_of_the_plain_model_at_the_end():
    run, _ = whole("gaussian")
    w, (x, labels) = final(run), seen(5)
    loss = float(run["training_loss"][0, -1])
    directions = [
        np.asarray(landscape.filter_normalised(key, [jnp.asarray(own, jnp.float32)])[0], float)
        for key, own in zip(jax.random.split(directions_of(5)), blocks(w), strict=True)
    ]

    def at(*by: float) -> float:
        there = [own + b * along for own, b, along in zip(blocks(w), by, directions, strict=True)]
        return float(plain(with_blocks(w, *there), x, labels, "gaussian")[0])

    for plane in ("random_plane", "top_plane"):
        assert run[plane].dims == ("seed", "along_Q", "along_K")
        assert float(run[plane][0, 2, 2]) == pytest.approx(loss, rel=1e-6)
        assert np.ptp(run[plane].values) > 1e-4
    places = (-1, -0.5, 0, 0.5, 1)
    expected = [[at(a, b) for b in places] for a in places]
    np.testing.assert_allclose(run["random_plane"][0], expected, rtol=1e-5)

    def of_both(flat: Any) -> Any:
        Q, K = flat.reshape(2, 2, 4, 2)
        return plain_loss(with_blocks(w, Q, K), x, labels, "gaussian")[0]

    hessian = hastily(jax.hessian(of_both))(np.concatenate([own.ravel() for own in blocks(w)]))
    assert run["eigenvalues"].dims == ("seed", "block", "end")
    for i, ends in enumerate(run["eigenvalues"].values[0]):
        truth = np.linalg.eigvalsh(hessian[16 * i : 16 * (i + 1), 16 * i : 16 * (i + 1)])
        np.testing.assert_allclose(ends, truth[[0, -1]], atol=1e-3 * np.abs(truth).max())


# ---------------------------------------------------------------- eigenvectors


extremes = hastily(
    lambda A, products: extremes_with_vector(
        lambda x: A @ x, jnp.zeros(len(A), A.dtype), jax.random.key(1), products
    ),
    static_argnums=1,
)


def symmetric(values: Any) -> tuple[np.ndarray, np.ndarray]:
    """A matrix with these eigenvalues, and 0 for others, and its eigenvectors."""
    basis = np.linalg.qr(normals(1, 40, 40))[0][:, : len(values)]
    return (basis * values) @ basis.T, basis


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-9), (np.float32, 1e-4)])
@pytest.mark.parametrize("sign", [1, -1])
def test_extremes_and_the_top_vector_are_those_of_the_dense_matrix(dtype: Any, tolerance: float, sign: int):
    A = normals(0, 40, 40)
    A = sign * (A + A.T)
    values, vectors = np.linalg.eigh(A)
    found, top = extremes(A.astype(dtype), 40)
    size = np.abs(values).max()
    assert np.array(found) == pytest.approx(values[[0, -1]], abs=tolerance * size)
    assert top.dtype == dtype
    top = np.asarray(top, float)
    assert np.linalg.norm(top) == pytest.approx(1, abs=tolerance)
    assert abs(top @ vectors[:, -1]) == pytest.approx(1, abs=tolerance)
    np.testing.assert_allclose(A @ top, values[-1] * top, atol=10 * tolerance * size)


@pytest.mark.parametrize("values", [[7.0], [-3.0], [-3.0, 5.0], [2.0, 2.0], [-1e6, 1.0, 1e6]], ids=str)
def test_the_top_vector_of_a_map_of_low_rank_is_one_of_its_own(values: list[float]):
    A, _ = symmetric(values)
    found, top = extremes(A, 40)
    size, largest = max(abs(v) for v in values), max(*values, 0.0)
    assert float(found.largest) == pytest.approx(largest, abs=1e-7 * size)
    assert np.linalg.norm(top) == pytest.approx(1)
    np.testing.assert_allclose(A @ top, largest * top, atol=1e-6 * size)


@pytest.mark.parametrize("factor", [0.0, 4.0, -4.0])
def test_any_direction_of_a_multiple_of_the_identity_will_do(factor: float):
    found, top = extremes(factor * np.eye(40), 40)
    assert np.array(found) == pytest.approx([factor, factor])
    assert np.linalg.norm(top) == pytest.approx(1)


def test_few_products_come_from_inside():
    A, _ = symmetric(np.linspace(-1, 3, 40))
    found, top = extremes(A, 8)
    assert -1 < found.least < -0.5
    assert 2.5 < found.largest < 3
    # The value that is named is the top vector's own quotient.
    assert float(top @ A @ top) == pytest.approx(float(found.largest), rel=1e-9)


def test_the_top_vector_is_a_tree_like_the_given_one():
    like = {"a": jnp.zeros((2, 3)), "b": jnp.zeros(4)}
    stretch = {"a": jnp.arange(6.0).reshape(2, 3), "b": -jnp.arange(4.0)}
    found, top = hastily(
        lambda key: extremes_with_vector(lambda x: jax.tree.map(jnp.multiply, stretch, x), like, key)
    )(jax.random.key(0))
    assert (float(found.least), float(found.largest)) == pytest.approx((-3, 5))
    np.testing.assert_allclose(np.abs(top["a"]), [[0, 0, 0], [0, 0, 1]], atol=1e-6)
    np.testing.assert_allclose(top["b"], np.zeros(4), atol=1e-6)


# ---------------------------------------------------------------- measures of a plane

a, b = np.meshgrid(np.linspace(-1, 1, 11), np.linspace(-1, 1, 11), indexing="ij")
WAVES = np.cos(7 * a) * np.cos(8 * b)


def test_roughness_is_what_a_quadratic_leaves_over():
    assert theorems.roughness(3 - a + 2 * b + a * a - 3 * a * b + 0.5 * b * b) < 1e-12
    assert theorems.roughness(WAVES) > 0.9
    # Adding a quadratic makes the share smaller; units do not matter.
    mixed = theorems.roughness(a * a + 0.1 * WAVES)
    assert 0.05 < mixed < 0.3
    assert theorems.roughness(100 * (a * a + 0.1 * WAVES) - 7) == pytest.approx(mixed)
    assert theorems.roughness(np.full((5, 5), 2.0)) == 0
    # Rounding is not roughness.
    rounded = np.float32(0.7) + np.float32(1e-7) * np.random.default_rng(0).normal(size=(5, 5))
    assert theorems.roughness(rounded.astype(np.float32).astype(float)) == 0


def test_roughness_of_a_cube_is_known():
    # Of a^3 on -1, 0, 1 all is explained; on five points, a^3 - 0.85 a is left over.
    line = np.linspace(-1, 1, 3)
    assert theorems.roughness(np.repeat(line[:, None] ** 3, 3, axis=1)) < 1e-12
    line = np.linspace(-1, 1, 5)
    expected = np.std(line**3 - 0.85 * line) / np.std(line**3)
    assert theorems.roughness(np.repeat(line[:, None] ** 3, 5, axis=1)) == pytest.approx(expected)


def test_a_plane_that_is_not_finite_is_broken():
    with pytest.raises(Broken, match="not finite"):
        theorems.roughness(np.where(a > 0.9, np.inf, a))


def test_negative_share_is_that_of_points_that_curve_down_somewhere():
    assert theorems.negative_share(a * a + b * b + a * b) == 0
    assert theorems.negative_share(-a * a - b * b) == 1
    assert theorems.negative_share(a * a - 0.1 * b * b) == 1
    assert theorems.negative_share(2 * a * b) == 1
    # Along the diagonal alone: a^2 + b^2 + 3ab.
    assert theorems.negative_share(a * a + b * b + 3 * a * b) == 1
    # Down on one side, up on the other: the middle of eleven rows is straight.
    assert theorems.negative_share(a**3 + b * b) == pytest.approx(4 / 9)


# ---------------------------------------------------------------- claims

STEPS = np.array([0, 10, 20])


def run_of(loss: Any, seeds: int = 4, **others: Any) -> xr.Dataset:
    """A made-up run: the series of all seeds, with differences of a thousandth between seeds."""
    spread = 1e-3 * np.arange(seeds)[:, None]
    values = {
        "training_loss": loss,
        "test_loss": 1.0,
        "training_accuracy": 0.5,
        "test_accuracy": 0.5,
    } | others
    data = {
        name: (("seed", "step"), np.broadcast_to(np.asarray(x, float), (seeds, 3)) + spread)
        for name, x in values.items()
    }
    return xr.Dataset(data, {"seed": np.arange(seeds), "step": STEPS})


def training(lead: float = 0.05) -> dict[str, xr.Dataset]:
    """Softmax is best at the common rate, Gaussian attention at the larger one, and leads."""
    return {
        "softmax_common": run_of([0.7, 0.6, 0.5], test_loss=0.8, training_accuracy=0.6, test_accuracy=0.55),
        "softmax_larger": run_of([0.7, 0.9, 0.4], test_loss=0.3, test_accuracy=0.9),
        "gaussian_common": run_of([0.7, 0.65, 0.6], test_loss=0.7, training_accuracy=0.7, test_accuracy=0.6),
        "gaussian_larger": run_of(
            [0.9, 0.6 - lead, 0.5 - lead], test_loss=0.75, training_accuracy=0.8, test_accuracy=0.65
        ),
    }


def test_the_learning_rate_is_tuned_on_the_training_loss_after_the_start():
    made = training()
    assert theorems.along(made["softmax_common"], "training_loss") == pytest.approx(
        [0.55, 0.551, 0.552, 0.553]
    )
    assert theorems.tuned("softmax", made) == "common"
    assert theorems.tuned("gaussian", made) == "larger"
    turned = {name: run.transpose("step", "seed") for name, run in made.items()}
    assert theorems.tuned("gaussian", turned) == "larger"


def test_the_lead_is_softmax_minus_gaussian_at_the_rates_of_each():
    found = theorems.lead(**training())
    assert found.value == pytest.approx(0.05)
    assert found.seeds == 4
    assert found.range == {"steps": (10.0, 20.0)}
    expected = {
        "tuned_training_loss_lead": 0.05, "tuned_test_loss_lead": 0.05,
        "tuned_training_accuracy_lead": 0.2, "tuned_test_accuracy_lead": 0.1,
        "common_training_loss_lead": -0.075, "common_test_loss_lead": 0.1,
        "common_training_accuracy_lead": 0.1, "common_test_accuracy_lead": 0.05,
        "softmax_tuned_factor": 1.0, "gaussian_tuned_factor": 10.0,
        "softmax_final_training_loss": 0.5015, "gaussian_final_training_loss": 0.4515,
        "softmax_final_test_loss": 0.8015, "gaussian_final_test_loss": 0.7515,
        "softmax_final_test_accuracy": 0.5515, "gaussian_final_test_accuracy": 0.6515,
    }  # fmt: skip
    assert dict(found.notes) == pytest.approx(expected)


def landscapes(soft: float, gauss: float, points: int = 11, seeds: int = 4) -> dict[str, xr.Dataset]:
    """Bowls with waves of these sizes on them, a little more or less by seed, over both planes."""
    a, b = np.meshgrid(*[np.linspace(-1, 1, points)] * 2, indexing="ij")
    wave = np.cos(7 * a + 1) * np.cos(8 * b)
    found = {}
    for kernel, size in (("softmax", soft), ("gaussian", gauss)):
        planes = np.stack([a * a + b * b + size * (1 + 0.01 * seed) * wave for seed in range(seeds)])
        dims = ("seed", "along_Q", "along_K")
        ends = np.broadcast_to(np.array([[-1.0, 2.0], [-3.0, 4.0]]), (seeds, 2, 2))
        data = {
            "random_plane": (dims, planes.astype(np.float32)), "top_plane": (dims, planes),
            "eigenvalues": (("seed", "block", "end"), ends),
            "training_loss": (("seed", "step"), np.ones((seeds, 3))),
            "test_accuracy": (("seed", "step"), np.full((seeds, 3), [0.5, 0.6, 0.7])),
        }  # fmt: skip
        found[kernel] = xr.Dataset(data, {"seed": np.arange(seeds), "step": STEPS})
    return found


def test_smoother_is_the_logarithm_of_the_ratio_of_roughnesses():
    made = landscapes(0.5, 0.1)
    found = theorems.smoothness(**made)
    rough = {
        kernel: [theorems.roughness(plane) for plane in run["random_plane"].values.astype(float)]
        for kernel, run in made.items()
    }
    ratios = np.log(np.array(rough["softmax"]) / np.array(rough["gaussian"]))
    assert found.value == pytest.approx(ratios.mean())
    assert found.value > 0.5
    assert found.range == {"points": (1.0, 121.0)}
    notes = dict(found.notes)
    for kernel in KERNELS:
        assert notes[f"{kernel}_roughness"] == pytest.approx(np.mean(rough[kernel]))
        assert notes[f"{kernel}_roughness_top_plane"] == pytest.approx(np.mean(rough[kernel]), rel=1e-4)
        ends = [notes[f"{kernel}_{end}_eigenvalue_{x}"] for x in "QK" for end in ("least", "largest")]
        assert ends == [-1, 2, -3, 4]
        assert notes[f"{kernel}_final_training_loss"] == 1.0
        assert notes[f"{kernel}_final_test_accuracy"] == pytest.approx(0.7)
    assert notes["softmax_negative_share"] > notes["gaussian_negative_share"]


def test_landscapes_before_training_are_out_of_regime():
    for name, steps in (("imdb_landscape", 150), ("pathfinder_landscape_paper", 20_000)):
        verdict = judge(theorems.smoother.claims[0], landscapes(0.5, 0.1), preset=tr.PRESETS[name])
        assert verdict.outcome == (Outcome.SUPPORTED if steps == 20_000 else Outcome.OUT_OF_REGIME)
        assert verdict.value > 0  # measured in any case
        assert dict(verdict.assumptions) == {"softmax steps >= 20,000": steps}


def test_kernels_that_are_the_same_are_not_compared():
    made = training()
    same = {**made, **{f"gaussian_{rate}": made[f"softmax_{rate}"] for rate in theorems.FACTORS}}
    plane = landscapes(0.5, 0.1)["softmax"]
    for claim, data in (
        (theorems.faster.claims[0], same),
        (theorems.smoother.claims[0], {"softmax": plane, "gaussian": plane}),
    ):
        verdict = judge(claim, data)
        assert verdict.outcome == Outcome.BROKEN
        assert verdict.reason.startswith("both kernels have the same")


def test_flat_landscapes_are_not_compared():
    made = landscapes(0.5, 0.1, points=5)
    made["gaussian"]["random_plane"][2] = 0.7
    verdict = judge(theorems.smoother.claims[0], made)
    assert verdict.outcome == Outcome.BROKEN
    assert verdict.reason == "the loss of seed 2 with gaussian attention is flat on the plane."


def made_for(claim: Claim, good: bool) -> dict[str, xr.Dataset]:
    if "faster" in claim.name:
        return training(0.05 if good else -0.05)
    return landscapes(0.5, 0.1) if good else landscapes(0.1, 0.5)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda c: c.name)
def test_claims_are_judged_by_the_order_of_the_kernels_and_mutants_are_refuted(claim: Claim):
    assert claim in PAPER.claims
    assert judge(claim, made_for(claim, True)).outcome == Outcome.SUPPORTED
    assert judge(claim, made_for(claim, False)).outcome == Outcome.REFUTED
    assert claim.mutants
    for mutant in claim.mutants:
        assert mutant.alter is not None
        before = made_for(claim, True)
        assert judge(claim, mutant.alter(before)).outcome == Outcome.REFUTED
        # What was given is left as it was.
        for name, run in made_for(claim, True).items():
            xr.testing.assert_identical(before[name], run)


def test_mutants_are_refuted_however_far_gaussian_attention_leads():
    (mutant,) = theorems.faster.claims[0].mutants
    assert mutant.alter is not None
    assert judge(theorems.faster.claims[0], mutant.alter(training(0.3))).outcome == Outcome.REFUTED


def test_a_diverged_run_is_broken():
    made = training()
    made["softmax_larger"] = made["softmax_larger"].assign(diverged_at=("seed", [-1, 7, -1, -1]))
    verdict = judge(theorems.faster.claims[0], made)
    assert (verdict.outcome, verdict.reason) == (Outcome.BROKEN, "softmax_larger diverged: seed 1 at step 7")


def test_runs_are_both_kernels_at_the_common_and_at_ten_times_the_rate():
    p = tr.PRESETS["pathfinder_tiny"]
    found = {name: p.replace(overrides) for name, overrides in theorems.TRAINING.items()}
    assert {name: (q.kernel, q.eta) for name, q in found.items()} == {
        "softmax_common": ("softmax", p.eta), "softmax_larger": ("softmax", pytest.approx(10 * p.eta)),
        "gaussian_common": ("gaussian", p.eta), "gaussian_larger": ("gaussian", pytest.approx(10 * p.eta)),
    }  # fmt: skip
    assert {q.replace(kernel="softmax", eta=p.eta) for q in found.values()} == {p}
    assert {name: p.replace(o).kernel for name, o in theorems.BOTH.items()} == dict(
        zip(KERNELS, KERNELS, strict=True)
    )


def test_claims_and_figures_belong_to_presets_of_their_own_task_and_kind():
    for need in (*CLAIMS, *FIGURES):
        kind = "landscape" in need.presets[1]
        assert need.runs is (theorems.BOTH if kind else theorems.TRAINING)
        for name in need.presets:
            p = tr.PRESETS[name]
            assert need.name.endswith(p.task)
            assert bool(p.plane) == kind == (p.softmax_steps > 0)
            assert p.softmax_steps < p.steps
    shown = [name for figure in FIGURES for name in figure.claims]
    assert sorted(shown) == sorted(claim.name for claim in CLAIMS)
    assert {name for need in CLAIMS for name in need.presets} == set(tr.PRESETS)


# ---------------------------------------------------------------- figures


def test_the_training_figure_has_a_line_for_each_kernel_and_rate():
    made = training()
    canvas = figures.draw_training(**made)
    assert [ax.get_title() for ax in canvas.axes] == ["training loss", "test loss", "test accuracy"]
    for ax, name in zip(canvas.axes, figures.SERIES, strict=True):
        drawn = [
            np.asarray(line.get_ydata(), float)
            for line in ax.lines
            if len(np.atleast_1d(line.get_xdata())) == 3
        ]
        for run in made.values():
            middle = run[name].median("seed").values
            assert any(np.allclose(line, middle) for line in drawn)
    labels = {text.get_text() for own in canvas.legends for text in own.get_texts()}
    assert labels == {
        "softmax, preset's rate", "softmax, ten times that",
        "Gaussian, preset's rate", "Gaussian, ten times that",
    }  # fmt: skip


def test_the_landscape_figure_has_queries_to_the_right_and_names_roughness():
    made = landscapes(0.5, 0.1, points=5)
    # Uphill along the queries alone.
    slope = xr.DataArray(np.linspace(-1, 1, 5), dims="along_Q")
    made["softmax"]["top_plane"] = (0 * made["softmax"]["top_plane"] + slope).transpose("seed", ...)
    canvas = figures.draw_landscapes(**made)
    flat = [ax for ax in canvas.axes if ax.name != "3d" and ax.get_title()]  # the others are scales
    solid = [ax for ax in canvas.axes if ax.name == "3d"]
    assert [ax.get_title() for ax in flat] == [
        "softmax, random", "softmax, top eigenvectors", "Gaussian, random", "Gaussian, top eigenvectors",
    ]  # fmt: skip
    assert {(ax.get_xlabel(), ax.get_ylabel()) for ax in flat} == {("$W^Q$", "$W^K$")}
    lines = [
        np.array(path.vertices, float)
        for own in flat[1].collections[1:]
        for path in own.get_paths()
        if len(path)
    ]
    assert len(lines) > 5
    assert all(np.ptp(line[:, 0]) < 1e-6 < np.ptp(line[:, 1]) for line in lines)
    expected = [
        f"roughness {theorems.roughness(made[kernel][plane].values[0].astype(float)):.2g}"
        for kernel in KERNELS
        for plane in ("random_plane", "top_plane")
    ]
    assert [ax.get_title() for ax in solid] == expected


def test_a_landscape_that_is_not_finite_says_so_beside_the_others():
    made = landscapes(0.5, 0.1, points=5)
    made["gaussian"]["random_plane"][0, 2, 2] = np.nan
    titles = [ax.get_title() for ax in figures.draw_landscapes(**made).axes if ax.name == "3d"]
    assert titles[2] == "not finite"
    assert all(title.startswith("roughness") for title in titles[:2] + titles[3:])
