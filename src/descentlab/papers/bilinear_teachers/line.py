r"""The two numbers of Lemma D.2.

From zero, with exact gradients and orthogonal encodings, training never leaves

    W_V = C_1 V*,   P' W_KQ P = C_2 on the support of S*, -C_3 off it,   K C_2 = (D - K) C_3,

for every S* with K entries 1/K a column. So C_1 and the gap u = C_2 + C_3 are a process of
their own: a column of S has K entries p and D - K entries o,

    p = e / (K e + D - K),   o = 1 / (K e + D - K),   e = exp(u / sqrt(D)),

and every loss is |V*|_F^2 D times a function of C_1, p and o. Tests prove it equal to the
full run; it makes sizes cheap, up to D in the hundred thousands.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from descentlab.papers.bilinear_teachers.arccosine import gap
from descentlab.papers.bilinear_teachers.setting import LineTask, Preset, bend

Number = Float[Array, ""]


class Line(NamedTuple):
    """C_1 and u = C_2 + C_3."""

    C_1: Number
    u: Number


def scores(w: Line, task: LineTask) -> tuple[Number, Number]:
    """p and o: an attention score on and off the support."""
    D, K = task.D, task.K
    e = jnp.exp(-w.u / jnp.sqrt(D))  # small late in training, where exp(u) would overflow
    Z = K + (D - K) * e
    return 1 / Z, e / Z


def gradient(w: Line, task: LineTask) -> Line:
    """The gradients of C_1 and u: of W_V along V*, and of a logit on the support less one off it."""
    p: Preset = task.preset
    D, K = task.D, task.K
    k, at_zero = bend(p)
    a, b2, h = (1 + k) / 2, (1 - k) ** 2 / 4, (1 + k**2) / 2
    on_score, off_score = scores(w, task)
    ss = K * on_score**2 + (D - K) * off_score**2
    q = jnp.minimum(on_score * jnp.sqrt(K / ss), 1.0)
    moved = w.C_1 > 0
    if p.algorithm == "flow":
        # A flow leaves zero at once, unless s'(0) = 0 keeps it there; the limit from above spares solvers a kink.
        moved = moved | (jnp.asarray(at_zero) > 0)
    # C_1 alpha and beta, with the alpha and beta of the full gradient.
    bent = 2 * b2 / jnp.pi * jnp.sqrt((1 - q) * (1 + q) / (K * ss))
    C_alpha = h * w.C_1 - jnp.where(moved, bent, 0.0)
    beta = jnp.where(moved, a**2 + 2 * b2 / jnp.pi * jnp.arcsin(q), a * at_zero)
    s2 = p.sigma_x**2
    # dL/ds_j on the support and off it, then through softmax.
    on = s2 * task.V2 * w.C_1 * (C_alpha * on_score - beta / K)
    off = s2 * task.V2 * w.C_1 * C_alpha * off_score
    inner = K * on_score * on + (D - K) * off_score * off
    u = (on_score * (on - inner) - off_score * (off - inner)) / jnp.sqrt(D)
    return Line(s2 * D * (ss * C_alpha - on_score * beta), u)


def excess_loss(w: Line, task: LineTask) -> Number:
    """L - L_opt, without cancellation near the optimum."""
    k, _ = bend(task.preset)
    D, K = task.D, task.K
    on, off = scores(w, task)
    length = jnp.sqrt(K * on**2 + (D - K) * off**2)
    A, B = w.C_1 * length, 1 / jnp.sqrt(K)
    chord = (K * (on / length - B) ** 2 + (D - K) * (off / length) ** 2) / 2
    h = (1 + k**2) / 2
    return 0.5 * task.preset.sigma_x**2 * task.V2 * D * (h * (A - B) ** 2 + 2 * A * B * gap(chord, k))


def attention_error(w: Line, task: LineTask) -> Number:
    """|S - S*|_F."""
    D, K = task.D, task.K
    on, off = scores(w, task)
    return jnp.sqrt(D * (K * (on - 1 / K) ** 2 + (D - K) * off**2))


def value_error(w: Line, task: LineTask) -> Number:
    """|W_V - V*|_F."""
    return jnp.abs(w.C_1 - 1) * jnp.sqrt(task.V2)


def zero(task: LineTask) -> Line:
    """The start."""
    return Line(jnp.zeros_like(task.D), jnp.zeros_like(task.D))


def halved(w: Line, task: LineTask) -> Bool[Array, ""]:
    """Whether |S - S*|_F has fallen below half its start."""
    return attention_error(w, task) < attention_error(zero(task), task) / 2
