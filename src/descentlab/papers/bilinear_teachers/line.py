r"""The two numbers of Lemma D.2.

From zero, with exact gradients and orthogonal encodings, training never leaves

    W_V = C_1 V*,   P' W_KQ P = C_2 on the support of S*, -C_3 off it,   K C_2 = (D - K) C_3,

for every S* with K entries 1/K a column. So C_1 and the gap u = C_2 + C_3 are a process of
their own: a column of S has K entries p and D - K entries o,

    p = e / (K e + D - K),   o = 1 / (K e + D - K),   e = exp(u / sqrt(D)),

and every loss is |V*|_F^2 D times a function of C_1, p and o. Tests prove it equal to the
full run; it makes sizes cheap, up to D in the hundred thousands.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, ScalarLike

from descentlab.engine import Probe, probe
from descentlab.papers.bilinear_teachers.closed_form import gap

Number = Float[Array, ""]


class LineTask(NamedTuple):
    """What is left of a task on the line: |V*|_F^2, D and K, as numbers so that sizes share a program."""

    preset: Any
    V2: Number
    D: Number
    K: Number

    @classmethod
    def of(cls, p: Any, V: Float[Array, "M d"]) -> "LineTask":
        """What the two numbers need of a preset and V*."""
        return cls(p, jnp.sum(V**2), jnp.asarray(p.D, V.dtype), jnp.asarray(p.K, V.dtype))


class Line(NamedTuple):
    """C_1 and u = C_2 + C_3."""

    C_1: Number
    u: Number


def scores(u: Number, task: LineTask) -> tuple[Number, Number]:
    """p and o: an attention score on and off the support."""
    D, K = task.D, task.K
    e = jnp.exp(-u / jnp.sqrt(D))  # small late in training, where exp(u) would overflow
    Z = K + (D - K) * e
    return 1 / Z, e / Z


class Column(NamedTuple):
    """What a column of S enters the gradient with: p, o, |s|^2, and the alpha and beta of the full gradient.

    C_1 alpha = h C_1 - bent, which is linear in C_1.
    """

    p: Number
    o: Number
    ss: Number
    h: ScalarLike
    bent: Number
    beta: Number


def column(u: Number, task: LineTask, moved: Bool[Array, ""] | bool = True) -> Column:
    """The column of a gap u; `moved` is false where C_1 = 0, at which the slope of s is a choice."""
    k, at_zero = task.preset.bend()
    a, b2, h = (1 + k) / 2, (1 - k) ** 2 / 4, (1 + k**2) / 2
    D, K = task.D, task.K
    p, o = scores(u, task)
    ss = K * p**2 + (D - K) * o**2
    q = jnp.minimum(p * jnp.sqrt(K / ss), 1.0)
    bent = 2 * b2 / jnp.pi * jnp.sqrt((1 - q) * (1 + q) / (K * ss))
    beta = a**2 + 2 * b2 / jnp.pi * jnp.arcsin(q)
    return Column(p, o, ss, h, jnp.where(moved, bent, 0.0), jnp.where(moved, beta, a * at_zero))


def gap_slope(C_1: Number, c: Column, task: LineTask) -> Number:
    """The gradient of u: of a logit on the support less one off it."""
    D, K, C_alpha = task.D, task.K, c.h * C_1 - c.bent
    # dL/ds_j on the support and off it, then through softmax.
    on, off = C_1 * (C_alpha * c.p - c.beta / K), C_1 * C_alpha * c.o
    inner = K * c.p * on + (D - K) * c.o * off
    strength = task.preset.sigma_x**2 * task.V2 / jnp.sqrt(D)
    return strength * (c.p * (on - inner) - c.o * (off - inner))


def gradient(w: Line, task: LineTask) -> Line:
    """The gradients of C_1, of W_V along V*, and of u."""
    c = column(w.u, task, w.C_1 > 0)
    value = task.preset.sigma_x**2 * task.D * (c.ss * (c.h * w.C_1 - c.bent) - c.p * c.beta)
    return Line(value, gap_slope(w.C_1, c, task))


def zero(task: LineTask) -> Line:
    """The start."""
    return Line(jnp.zeros_like(task.D), jnp.zeros_like(task.D))


# ---------------------------------------------------------------- the same for solvers of the flow


class Relaxing(NamedTuple):
    """C_1 less its best value at u, and u.

    C_1 follows u at a rate of D/K, ever faster than u moves. Solvers of the flow need the small distance
    itself: as a difference of two numbers of order one, its rounding errors would stop them.
    """

    lag: Number
    u: Number


def best(u: Number, task: LineTask) -> Number:
    """The C_1 that minimises the loss at a gap u."""
    c = column(u, task)
    return (c.p * c.beta / c.ss + c.bent) / c.h


def plain(w: Line | Relaxing, task: LineTask) -> Line:
    """C_1 and u."""
    return w if isinstance(w, Line) else Line(w.lag + best(w.u, task), w.u)


def relaxing_gradient(w: Relaxing, task: LineTask) -> Relaxing:
    """Minus the velocity of the flow: the lag decays, and is fed by the motion of the best C_1.

    A flow leaves C_1 = 0 at once, so the slope of s at zero does not enter, except that 0 keeps it there.
    """
    c = column(w.u, task)
    C_1, rate = best(w.u, task) + w.lag, task.preset.sigma_x**2 * task.D * c.ss * c.h
    u = gap_slope(C_1, c, task)
    _, drag = jax.jvp(lambda u: best(u, task), (w.u,), (u,))
    stuck = (jnp.asarray(task.preset.bend()[1]) == 0) & (C_1 == 0)
    return Relaxing(jnp.where(stuck, 0.0, rate * w.lag - drag), jnp.where(stuck, 0.0, u))


def relaxing_zero(task: LineTask) -> Relaxing:
    """The start."""
    return Relaxing(-best(jnp.zeros_like(task.D), task), jnp.zeros_like(task.D))


# ---------------------------------------------------------------- what is recorded


def excess_loss(w: Line, task: LineTask) -> Number:
    """L - L_opt, without cancellation near the optimum."""
    k, _ = task.preset.bend()
    D, K = task.D, task.K
    on, off = scores(w.u, task)
    length = jnp.sqrt(K * on**2 + (D - K) * off**2)
    A, B = w.C_1 * length, 1 / jnp.sqrt(K)
    chord = (K * (on / length - B) ** 2 + (D - K) * (off / length) ** 2) / 2
    h = (1 + k**2) / 2
    return 0.5 * task.preset.sigma_x**2 * task.V2 * D * (h * (A - B) ** 2 + 2 * A * B * gap(chord, k))


def attention_error(w: Line, task: LineTask) -> Number:
    """|S - S*|_F."""
    D, K = task.D, task.K
    on, off = scores(w.u, task)
    return jnp.sqrt(D * (K * (on - 1 / K) ** 2 + (D - K) * off**2))


def value_error(w: Line, task: LineTask) -> Number:
    """|W_V - V*|_F."""
    return jnp.abs(w.C_1 - 1) * jnp.sqrt(task.V2)


def halved(w: Line | Relaxing, task: LineTask) -> Bool[Array, ""]:
    """Whether |S - S*|_F has fallen below half its start."""
    return attention_error(plain(w, task), task) < attention_error(zero(task), task) / 2


def probes() -> dict[str, Probe]:
    """What is recorded of the two numbers: what all weights would give."""

    def of(measure: Callable[[Line, LineTask], Array], doc: str, **options: Any) -> Probe:
        return probe(lambda w, task: measure(plain(w, task), task), doc, **options)

    return {
        "excess_loss": of(excess_loss, "L - L_opt, exact for Gaussian inputs"),
        "attention_error": of(attention_error, "|S - S*|_F"),
        "value_error": of(value_error, "|W_V - V*|_F"),
        "C_1": of(lambda w, task: w.C_1, "C_1, W_V along V*"),
        "C_2": of(lambda w, task: w.u * (1 - task.K / task.D), "C_2, P'W_KQ P on the support of S*"),
        "C_3": of(lambda w, task: w.u * task.K / task.D, "C_3, minus its value off the support"),
        "teacher_norm": of(lambda w, task: jnp.sqrt(task.V2), "|V*|_F", once=True),
    }
