r"""Position-only attention learns bilinear teachers.

Zhang, Zhao, Gu and Cao, "Transformers Trained via Gradient Descent Can Provably Learn a Class
of Teacher Models".

The teacher is f*(X) = s(V* X S*) with X in R^{d x D} and K entries 1/K in each column of S*: average
pooling (CNN), a graph convolution (GCN), token selection, a group-sparse predictor. The student
is one attention layer that sees positions only,

    TF(X) = s(W_V X S),   S = softmax(P' W_KQ P / sqrt(D)) by columns,

or the full transformer it is cut from, with Z = [X; P] for X and P. Labels are f*(X) + E, inputs
Gaussian, the loss is (1/2) E|Y - TF|_F^2, and gradient descent starts from zero.

| here | paper | meaning |
| --- | --- | --- |
| `d`, `D`, `M` | d, D, M | features, positions, outputs |
| `K` | K | non-zeros in a column of S* |
| `V`, `S` of a task | V*, S* | the teacher |
| `P` | P | positional encodings, a column a position, orthogonal |
| `W_V` | W_V | value weights |
| `A` | P' W_KQ P | logits times sqrt(D), by positions |
| `k` | | slope of s below zero: 1 identity, 0 ReLU, `leak` LeakyReLU |
| `C_1`, `C_2`, `C_3` | C_1, C_2, C_3 | the numbers of Lemma D.2 |

Exact algebra makes it fast; tests prove it against the plain model. The expected loss and its
gradient are closed forms (`arccosine`). Gradient descent does not care for rotations, so for
orthogonal P the state is A and not W_KQ. And from zero the whole run is two numbers (`line`).
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Key

from descentlab.engine import (
    BY_SIGN,
    Dynamics,
    Probe,
    descent,
    float_dtype,
    flow,
    online,
    optimizer,
    population,
)
from descentlab.papers import About
from descentlab.papers.bilinear_teachers import claims, figures, line, mnist
from descentlab.papers.bilinear_teachers.arccosine import gap
from descentlab.papers.bilinear_teachers.arcsine import arcsin
from descentlab.papers.bilinear_teachers.atlas import ATLAS as ATLAS
from descentlab.papers.bilinear_teachers.deviations import DEVIATIONS as DEVIATIONS
from descentlab.papers.bilinear_teachers.model import FullParams as FullParams
from descentlab.papers.bilinear_teachers.model import Params as Params
from descentlab.papers.bilinear_teachers.model import Student as Student
from descentlab.papers.bilinear_teachers.model import activation as activation
from descentlab.papers.bilinear_teachers.model import attention as attention
from descentlab.papers.bilinear_teachers.model import full_outputs as full_outputs
from descentlab.papers.bilinear_teachers.model import outputs as outputs
from descentlab.papers.bilinear_teachers.model import predict as predict
from descentlab.papers.bilinear_teachers.model import printed as printed
from descentlab.papers.bilinear_teachers.model import sample as sample
from descentlab.papers.bilinear_teachers.model import student as student
from descentlab.papers.bilinear_teachers.model import teacher as teacher
from descentlab.papers.bilinear_teachers.setting import LAWS as LAWS
from descentlab.papers.bilinear_teachers.setting import PRESETS as PRESETS
from descentlab.papers.bilinear_teachers.setting import TEACHERS as TEACHERS
from descentlab.papers.bilinear_teachers.setting import LineTask as LineTask
from descentlab.papers.bilinear_teachers.setting import Preset as Preset
from descentlab.papers.bilinear_teachers.setting import Task as Task
from descentlab.papers.bilinear_teachers.setting import (
    bare,
    bend,
    entries,
    inputs,
    label_noise,
    line_task,
    on_line,
)
from descentlab.papers.bilinear_teachers.setting import make_task as make_task
from descentlab.papers.bilinear_teachers.setting import program as program
from descentlab.papers.bilinear_teachers.setting import records as records
from descentlab.papers.bilinear_teachers.studies import STUDIES as STUDIES

# ---------------------------------------------------------------- objective


def population_loss(w: Params, task: Task) -> Float[Array, ""]:
    """L - L_opt, exact for Gaussian inputs. `jax.grad` of it is `population_gradient`.

    (s2/2) sum_{m,j} E (s(z) - s(y))^2 for z = w_m X s_j and y = v_m X s*_j, whose deviations
    are |w_m||s_j| and |v_m||s*_j|, and whose correlation is cos(w_m, v_m) cos(s_j, s*_j).
    """
    return _population_loss(w, task)


@jax.custom_vjp
def _population_loss(w: Params, task: Task) -> Float[Array, ""]:
    k, _ = bend(task.preset)
    S = attention(w.A, task.preset.attention)
    W, w_norm = _directions(w.W_V, 1)
    V, v_norm = _directions(task.V, 1)
    s, s_norm = _directions(S, 0)
    t, t_norm = _directions(task.S, 0)
    # 1 - cos(w, v) cos(s, t) from chords, which lose nothing where directions nearly agree.
    apart_W, apart_S = jnp.sum((W - V) ** 2, axis=1) / 2, jnp.sum((s - t) ** 2, axis=0) / 2
    chord = apart_W[:, None] + (1 - apart_W)[:, None] * apart_S[None, :]
    A, B = jnp.outer(w_norm, s_norm), jnp.outer(v_norm, t_norm)
    h = (1 + k**2) / 2
    return 0.5 * task.preset.sigma_x**2 * jnp.sum(h * (A - B) ** 2 + 2 * A * B * gap(chord, k))


def _forward(w: Params, task: Task):
    return _population_loss(w, task), (w, task)


def _backward(saved: tuple[Params, Task], out: Array):
    w, task = saved
    return jax.tree.map(lambda g: out * g, population_gradient(w, task)), None


_population_loss.defvjp(_forward, _backward)


def _directions(X: Float[Array, "n m"], axis: int) -> tuple[Float[Array, "n m"], Float[Array, " _"]]:
    """Rows (axis 1) or columns (axis 0) as unit vectors, zero ones left zero; and their norms."""
    norm = jnp.sqrt(jnp.sum(X**2, axis=axis, keepdims=True))
    return X / jnp.where(norm > 0, norm, 1.0), jnp.squeeze(norm, axis)


def population_gradient(w: Params, task: Task) -> Params:
    """The gradient of `population_loss` in W_V and A, where it exists and at W_V = 0.

    With rho_mj = cos(w_m, v_m) cos(s_j, s*_j), A/B the ratio of deviations and s2 = sigma_x^2,

        alpha_mj = h - (2 b^2/pi) (B/A) sqrt(1 - rho^2),   beta_mj = a^2 + (2 b^2/pi) arcsin(rho),
        dL/dw_m = s2 sum_j alpha |s_j|^2 w_m - beta <s_j, s*_j> v_m,
        dL/ds_j = s2 sum_m alpha |w_m|^2 s_j - beta <w_m, v_m> s*_j,

    and beta = s'(0) a where w_m = 0, as for a batch there. Nothing is singular at rho = +-1.
    """
    p = task.preset
    k, at_zero = bend(p)
    S = attention(w.A, p.attention)
    ww, wv, vv = (jnp.sum(x * y, axis=1) for x, y in ((w.W_V, w.W_V), (w.W_V, task.V), (task.V, task.V)))
    ss, st = jnp.sum(S * S, axis=0), jnp.sum(S * task.S, axis=0)
    if p.activation == "identity":
        alpha = beta = jnp.ones((p.M, p.D), S.dtype)
    else:
        a, b2, h = (1 + k) / 2, (1 - k) ** 2 / 4, (1 + k**2) / 2
        moved = ww > 0
        r = wv / jnp.sqrt(jnp.where(moved & (vv > 0), ww * vv, 1.0))
        rho = jnp.clip(r[:, None] * (st * jnp.sqrt(p.K / ss))[None, :], -1.0, 1.0)
        ratio = jnp.sqrt(vv / jnp.where(moved, ww, 1.0))[:, None] / jnp.sqrt(p.K * ss)[None, :]
        alpha = h - 2 * b2 / jnp.pi * ratio * jnp.sqrt((1 - rho) * (1 + rho))
        beta = jnp.where(moved[:, None], a**2 + 2 * b2 / jnp.pi * arcsin(rho), a * at_zero)
    s2 = jnp.asarray(p.sigma_x, S.dtype) ** 2
    own, other = s2 * (ww @ alpha), s2 * (wv @ beta)
    to_S = own[None, :] * S - other[None, :] * task.S
    if p.attention == "linear":
        to_A = to_S / p.D**1.5
    else:
        inner = own * ss - other * st
        to_A = S * (to_S - inner[None, :]) / p.D**0.5
    return Params(s2 * ((alpha @ ss)[:, None] * w.W_V - (beta @ st)[:, None] * task.V), to_A)


def batch_loss(w: Params | FullParams, task: Task, batch: tuple[Array, Array]) -> Float[Array, ""]:
    """(1/2) mean over the batch of |Y - TF(X)|_F^2."""
    X, Y = batch
    return 0.5 * jnp.sum((Y - student(w, task, X)) ** 2) / X.shape[1]


# ---------------------------------------------------------------- algorithm


def beginning(key: Key[Array, ""], p: Preset) -> Params | FullParams:
    """Zero, or Gaussian with standard deviation sigma_0."""
    scale = p.sigma_0 if p.start == "gaussian" else 0.0
    extra = p.d if p.student == "full" else 0
    V_key, A_key = jax.random.split(key)
    dtype, side = float_dtype(p.precision), p.D + extra
    columns = side if extra else p.d
    W_V = scale * jax.random.normal(V_key, (p.M, columns), dtype)
    A = scale * jax.random.normal(A_key, (side, side), dtype)
    return FullParams(W_V, A) if extra else Params(W_V, A)


def metric(task: Task) -> Callable[[Any], Any]:
    """What a gradient in A becomes as a step of W_KQ seen in A: G g G with G = P'P; and frozen blocks.

    G is the identity for orthogonal P, which is why the state may be A.
    """
    p = task.preset

    def moved(g: Any) -> Any:
        if p.encoding == "gaussian" and isinstance(g, Params):
            G = task.P.T @ task.P
            g = g._replace(A=G @ g.A @ G)
        frozen = {"both": (), "value": (1,), "attention": (0,)}[p.train]
        return type(g)(*[jnp.zeros_like(x) if i in frozen else x for i, x in enumerate(g)])

    return moved


def halved(w: Params, task: Task) -> Bool[Array, ""]:
    """Whether |S - S*|_F is below half of what uniform attention gives: the event of T*."""
    D, K = task.preset.D, task.preset.K
    return _norm(attention(w.A, task.preset.attention) - task.S) < 0.5 * (D / K - 1) ** 0.5


def dynamics(task: Task | LineTask, p: Preset) -> Dynamics:
    """Training by the chosen algorithm, of all weights or of the two numbers they reduce to."""
    if on_line(p):
        two = two_numbers(task)
        if p.algorithm == "flow":
            return flow(
                lambda key: line.relaxing_zero(two), lambda w: line.relaxing_gradient(w, two), p.eta,
                event=lambda w: line.halved(w, two), stiff=True, rtol=1e-6,
            )  # fmt: skip
        exact = population(lambda w: line.excess_loss(w, two), lambda w: line.gradient(w, two))
        return descent(lambda key: line.zero(two), exact, optax.sgd(p.eta))
    assert isinstance(task, Task)
    change = metric(task)

    def begin(key: Key[Array, ""]) -> Params | FullParams:
        return beginning(key, p)

    def slope(w: Params) -> Params:
        return change(population_gradient(w, task))

    if p.algorithm == "flow":

        def off_the_kink(key: Key[Array, ""]) -> Params:
            """A flow leaves zero along V* at once where s'(0) > 0; on the kink itself solvers go astray."""
            w: Any = begin(key)
            nudge = jnp.where(jnp.asarray(bend(p)[1]) > 0, 1e-12, 0.0).astype(task.V.dtype)
            return w._replace(W_V=nudge * task.V)

        kink = p.start == "zero" and p.train != "attention"
        return flow(off_the_kink if kink else begin, slope, p.eta, event=lambda w: halved(w, task))
    if p.algorithm == "population":
        exact = population(lambda w: population_loss(w, task), slope)
        return descent(begin, exact, rule(task, p))
    fresh = online(
        lambda key: sample(key, task, p.batch),
        lambda w, batch: batch_loss(w, task, batch),
        lambda w, batch: change(jax.grad(batch_loss)(w, task, batch)),
    )
    return descent(begin, fresh, rule(task, p))


def rule(task: Task, p: Preset) -> optax.GradientTransformation:
    """The optimiser; signs and Adam's sizes are those of W_KQ, not of A = P' W_KQ P.

    For orthogonal P neither gradient descent nor the proximal step of |A|_1 knows the difference.
    """
    own = optimizer(p.optimizer, p.eta, lam=p.lam, sparse=() if p.train == "value" else ("A",))
    if p.optimizer not in BY_SIGN:
        return own
    R = task.P if p.encoding != "gaussian" else jnp.linalg.inv(task.P).T

    def update(g: Any, memory: Any, w: Any = None) -> tuple[Any, Any]:
        # metric(task) made P'(P g P')P of a gradient g in A; the gradient in W_KQ is P g P'.
        moved: Any
        moved, memory = own.update(g._replace(A=R @ g.A @ R.T), memory, w)
        return moved._replace(A=task.P.T @ moved.A @ task.P), memory

    return optax.GradientTransformation(own.init, update)  # type: ignore[arg-type]


def two_numbers(task: Task | LineTask) -> LineTask:
    """What the two numbers need of a task."""
    return task if isinstance(task, LineTask) else line_task(task.preset, task.V)


# ---------------------------------------------------------------- out of distribution


def ood_excess(
    w: Params | FullParams, task: Task, X: Float[Array, "d N D"], Y: Float[Array, "M N D"] | None = None
) -> Float[Array, ""]:
    """(1/2) mean |Y - TF(X)|^2 - (1/2) mean |Y - f*(X)|^2 on any samples (X, Y).

    Without Y, labels are the teacher's with or without noise: the noise has mean zero and drops out of
    the expectation, which leaves (1/2) mean |f*(X) - TF(X)|^2.
    """
    truth, guess = teacher(task, X), student(w, task, X)
    if Y is None:
        return 0.5 * jnp.sum((truth - guess) ** 2) / X.shape[1]
    # |Y - guess|^2 - |Y - truth|^2 without the cancellation.
    return 0.5 * jnp.sum((truth - guess) * (2 * Y - truth - guess)) / X.shape[1]


def ood_inputs(task: Task, count: int, batch: int = 0) -> Float[Array, "d count D"]:
    """Out-of-distribution inputs of a task, the same at every record; `batch` numbers independent sets."""
    p = task.preset
    return entries(jax.random.fold_in(task.test, batch), p.ood, (p.d, count, p.D), p)


def unrelated_excess(w: Params | FullParams, task: Task, X: Float[Array, "d N D"]) -> Float[Array, ""]:
    """The excess for labels of mean zero that have nothing to do with X: (1/2) mean |TF|^2 - |f*|^2."""
    return ood_excess(w, task, X, jnp.zeros((task.preset.M, *X.shape[1:]), X.dtype))


# ---------------------------------------------------------------- probes

PAPERS_BATCH = 100  # samples behind the paper's own estimate of the OOD loss


def weights(w: Params | line.Line | line.Relaxing, task: Task) -> Params:
    """The weights themselves, of which the two numbers are a shorthand."""
    if isinstance(w, Params):
        return w
    K, D = task.preset.K, task.preset.D
    C_1, u = line.plain(w, two_numbers(task))
    return Params(C_1 * task.V, jnp.where(task.S > 0, u * (1 - K / D), -u * (K / D)))


def coefficients(w: Params, task: Task) -> tuple[Array, Array, Array]:
    """C_1, C_2 and C_3: W_V along V*, and the mean of A on the support and minus that off it."""
    on = task.S > 0
    K, D = task.preset.K, task.preset.D
    C_1 = jnp.sum(w.W_V * task.V) / jnp.sum(task.V**2)
    C_2 = jnp.sum(w.A, where=on) / (K * D)
    return C_1, C_2, -jnp.sum(w.A, where=~on) / max((D - K) * D, 1)


def off_line(w: Params, task: Task) -> Float[Array, ""]:
    """The largest relative distance from Lemma D.2's form, of W_V, of A, and of K C_2 from (D - K) C_3."""
    K, D = task.preset.K, task.preset.D
    C_1, C_2, C_3 = coefficients(w, task)

    def relative(distance: Array, size: Array) -> Array:
        return jnp.where(size > 0, distance / jnp.where(size > 0, size, 1.0), 0.0)

    def norm(X: Array) -> Array:
        return jnp.sqrt(jnp.sum(X**2))

    ideal = jnp.where(task.S > 0, C_2, -C_3)
    return jnp.max(jnp.stack([
        relative(norm(w.W_V - C_1 * task.V), norm(w.W_V)),
        relative(norm(w.A - ideal), norm(w.A)),
        relative(jnp.abs(K * C_2 - (D - K) * C_3), K * jnp.abs(C_2) + (D - K) * jnp.abs(C_3)),
    ]))  # fmt: skip


def probes(p: Preset) -> dict[str, Probe]:
    """What is recorded of the chosen student."""
    if bare(p):
        return _line_probes()
    if p.student == "full":
        return _full_probes()

    def of(measure: Callable[[Params, Task], Array], doc: str, *dims: str, **options: Any) -> Probe:
        return Probe(lambda task, p, state: measure(weights(state.params, task), task), doc, dims, **options)

    def excess(w: Params, task: Task) -> Array:
        if p.inputs == "gaussian":
            return population_loss(w, task)
        return ood_excess(w, task, inputs(jax.random.fold_in(task.test, 1), task, p.ood_samples))

    def paper_estimate(w: Params, task: Task) -> Array:
        X = ood_inputs(task, PAPERS_BATCH, 2)
        noise = label_noise(jax.random.fold_in(task.test, 3), task, PAPERS_BATCH)
        return ood_excess(w, task, X, teacher(task, X) + noise)

    def ood(w: Params, task: Task) -> Array:
        return ood_excess(w, task, ood_inputs(task, p.ood_samples))

    def silent(w: Params, task: Task) -> Array:
        return 0.5 * jnp.sum(teacher(task, ood_inputs(task, p.ood_samples)) ** 2) / p.ood_samples

    def unrelated(w: Params, task: Task) -> Array:
        return unrelated_excess(w, task, ood_inputs(task, p.ood_samples))

    found = {
        "excess_loss": of(excess, "L - L_opt, exact for Gaussian inputs"),
        "attention_error": of(lambda w, task: _norm(attention(w.A, p.attention) - task.S), "|S - S*|_F"),
        "attention_cosine": of(
            lambda w, task: _cosine(attention(w.A, p.attention), task.S), "cosine of S and S*"
        ),
        "value_error": of(lambda w, task: _norm(w.W_V - task.V), "|W_V - V*|_F"),
        "value_cosine": of(lambda w, task: _cosine(w.W_V, task.V), "cosine of W_V and V*"),
        "C_1": of(lambda w, task: coefficients(w, task)[0], "C_1, W_V along V*"),
        "C_2": of(lambda w, task: coefficients(w, task)[1], "C_2, mean of P'W_KQ P on the support of S*"),
        "C_3": of(lambda w, task: coefficients(w, task)[2], "C_3, minus its mean off the support"),
        "off_line": of(off_line, "largest relative distance from the form of Lemma D.2"),
        "teacher_norm": of(lambda w, task: _norm(task.V), "|V*|_F", once=True),
    }
    if not p.detail:
        return found
    return found | {
        "ood_excess": of(ood, "excess OOD loss, labels from the teacher (noise drops out)"),
        "ood_excess_unrelated": of(unrelated, "excess OOD loss, labels of mean zero unrelated to X"),
        "ood_excess_100": of(paper_estimate, "excess OOD loss on 100 samples with noisy labels"),
        "teacher_ood_loss": of(silent, "(1/2) E|f*|^2 out of distribution", once=True),
        "attention": of(
            lambda w, task: attention(w.A, p.attention), "S at the end", "row", "column", once=True
        ),
        "teacher_attention": of(lambda w, task: task.S, "S*", "row", "column", once=True),
    }


def _norm(X: Float[Array, "..."]) -> Float[Array, ""]:
    return jnp.sqrt(jnp.sum(X**2))


def _cosine(X: Float[Array, "..."], Y: Float[Array, "..."]) -> Float[Array, ""]:
    size = _norm(X) * _norm(Y)
    return jnp.where(size > 0, jnp.sum(X * Y) / jnp.where(size > 0, size, 1.0), 0.0)


def _line_probes() -> dict[str, Probe]:
    """The same of the two numbers."""

    def of(measure: Callable[[line.Line, LineTask], Array], doc: str, **options: Any) -> Probe:
        return Probe(lambda task, p, state: measure(line.plain(state.params, task), task), doc, **options)

    return {
        "excess_loss": of(line.excess_loss, "L - L_opt, exact for Gaussian inputs"),
        "attention_error": of(line.attention_error, "|S - S*|_F"),
        "value_error": of(line.value_error, "|W_V - V*|_F"),
        "C_1": of(lambda w, task: w.C_1, "C_1, W_V along V*"),
        "C_2": of(lambda w, task: w.u * (1 - task.K / task.D), "C_2, P'W_KQ P on the support of S*"),
        "C_3": of(lambda w, task: w.u * task.K / task.D, "C_3, minus its value off the support"),
        "teacher_norm": of(lambda w, task: jnp.sqrt(task.V2), "|V*|_F", once=True),
    }


def _full_probes() -> dict[str, Probe]:
    """Of the full student: losses on samples, and how much the blocks outside the position-only one hold."""

    def of(measure: Callable[[FullParams, Task], Array], doc: str, *dims: str, **options: Any) -> Probe:
        return Probe(lambda task, p, state: measure(state.params, task), doc, dims, **options)

    def excess(w: FullParams, task: Task) -> Array:
        count = task.preset.ood_samples
        return ood_excess(w, task, inputs(jax.random.fold_in(task.test, 1), task, count))

    def ood(w: FullParams, task: Task) -> Array:
        return ood_excess(w, task, ood_inputs(task, task.preset.ood_samples))

    def share(X: Array, main: Array) -> Array:
        """The norm outside the main block over the norm of all, 0 where all is zero."""
        rest = jnp.sqrt(jnp.maximum(jnp.sum(X**2) - jnp.sum(main**2), 0.0))
        return jnp.where(_norm(X) > 0, rest / jnp.where(_norm(X) > 0, _norm(X), 1.0), 0.0)

    def value(w: FullParams, task: Task) -> Array:
        return w.W_V[:, : task.preset.d]

    def by_position(w: FullParams, task: Task) -> Array:
        """P' W P of the bottom-right block: the A of the position-only student."""
        d = task.preset.d
        return task.P.T @ w.W_KQ[d:, d:] @ task.P

    def by_position_all(w: FullParams, task: Task) -> tuple[Array, Array]:
        """W_V and W_KQ with their position coordinates turned from encodings into positions."""
        turn = jax.scipy.linalg.block_diag(jnp.eye(task.preset.d, dtype=task.P.dtype), task.P)
        return w.W_V @ turn, turn.T @ w.W_KQ @ turn

    return {
        "excess_loss": of(excess, "(1/2) E|f* - TF|^2 on samples"),
        "attention_error": of(
            lambda w, task: _norm(attention(by_position(w, task)) - task.S), "|S - S*|_F by positions alone"
        ),
        "value_error": of(lambda w, task: _norm(value(w, task) - task.V), "|left block of W_V - V*|_F"),
        "value_cosine": of(lambda w, task: _cosine(value(w, task), task.V), "its cosine with V*"),
        "other_value_share": of(
            lambda w, task: share(w.W_V, value(w, task)), "norm of W_V outside its left block over its norm"
        ),
        "other_attention_share": of(
            lambda w, task: share(w.W_KQ, w.W_KQ[task.preset.d :, task.preset.d :]),
            "norm of W_KQ outside its bottom-right block over its norm",
        ),
        "ood_excess": of(ood, "excess OOD loss, labels from the teacher (noise drops out)"),
        "attention": of(lambda w, task: attention(by_position(w, task)), "S of positions alone at the end",
                        "row", "column", once=True),
        "value_weights": of(lambda w, task: by_position_all(w, task)[0], "W_V at the end, by position",
                            "output", "coordinate", once=True),
        "attention_weights": of(lambda w, task: by_position_all(w, task)[1], "W_KQ at the end, by position",
                                "coordinate", "coordinate_2", once=True),
        "teacher_attention": of(lambda w, task: task.S, "S*", "row", "column", once=True),
        "teacher_norm": of(lambda w, task: _norm(task.V), "|V*|_F", once=True),
    }  # fmt: skip


# ---------------------------------------------------------------- the paper

PAPER = About(
    title="Transformers Trained via Gradient Descent Can Provably Learn a Class of Teacher Models",
    citation="Zhang, Zhao, Gu, Cao. ICLR.",
    loss="excess_loss",
)

CLAIMS = claims.CLAIMS + mnist.CLAIMS
FIGURES = figures.FIGURES + mnist.FIGURES
BRANCHES = (mnist,)
