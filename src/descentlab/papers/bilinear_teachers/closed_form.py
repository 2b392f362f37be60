r"""The population loss in closed form, for all weights and Gaussian inputs.

For s(z) = z above zero and k z below, and centred Gaussians z, y with standard deviations A, B
and correlation rho = c / (A B),

    E s(z) s(y) = a^2 c + (2 b^2 / pi) [ sqrt(A^2 B^2 - c^2) + c arcsin(rho) ],
    a = (1 + k)/2,  b = (1 - k)/2,   E s(z)^2 = h A^2,  h = a^2 + b^2 = (1 + k^2)/2,

the arc-cosine kernel of order one. With theta = arccos(rho),

    E (s(z) - s(y))^2 = h (A - B)^2 + 2 A B gap,
    gap = h (1 - rho) - (2 b^2 / pi) (sin theta - theta cos theta),

which loses nothing where z and y nearly agree. The loss is the sum of this over outputs m and positions j
for z = w_m X s_j and y = v_m X s*_j, whose deviations are |w_m||s_j| and |v_m||s*_j| times sigma_x, and whose
correlation is cos(w_m, v_m) cos(s_j, s*_j).

A task is the paper's `Task`: its teacher V* and S*, and its preset.
"""

import math
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, ScalarLike

# ---------------------------------------------------------------- loss


def gap(chord: Float[Array, "*n"], k: ScalarLike) -> Float[Array, "*n"]:
    """The gap as a function of chord = 1 - rho, in [0, 2]."""
    half = jnp.clip(chord / 2, 0.0, 1.0)
    theta = 2 * jnp.arctan2(jnp.sqrt(half), jnp.sqrt(1 - half))
    # sin theta - theta cos theta, with cos theta = 1 - chord.
    sine = 2 * jnp.sqrt(half * (1 - half))
    bent = sine - theta * (1 - chord)
    return jnp.asarray((1 + k**2) / 2 * chord - (1 - k) ** 2 / (2 * jnp.pi) * bent)


def excess_loss(W: Float[Array, "M d"], S: Float[Array, "D D"], task: Any) -> Float[Array, ""]:
    """L - L_opt of s(W X S), (sigma_x^2 / 2) sum_{m,j} E (s(z) - s(y))^2 for inputs of variance 1."""
    k, _ = task.preset.bend()
    w, w_norm = _directions(W, 1)
    v, v_norm = _directions(task.V, 1)
    s, s_norm = _directions(S, 0)
    t, t_norm = _directions(task.S, 0)
    # 1 - cos(w, v) cos(s, t) from chords, which lose nothing where directions nearly agree.
    apart_W, apart_S = jnp.sum((w - v) ** 2, axis=1) / 2, jnp.sum((s - t) ** 2, axis=0) / 2
    chord = apart_W[:, None] + (1 - apart_W)[:, None] * apart_S[None, :]
    A, B = jnp.outer(w_norm, s_norm), jnp.outer(v_norm, t_norm)
    h = (1 + k**2) / 2
    return 0.5 * task.preset.sigma_x**2 * jnp.sum(h * (A - B) ** 2 + 2 * A * B * gap(chord, k))


def _directions(X: Float[Array, "n m"], axis: int) -> tuple[Float[Array, "n m"], Float[Array, " _"]]:
    """Rows (axis 1) or columns (axis 0) as unit vectors, zero ones left zero; and their norms."""
    norm = jnp.sqrt(jnp.sum(X**2, axis=axis, keepdims=True))
    return X / jnp.where(norm > 0, norm, 1.0), jnp.squeeze(norm, axis)


# ---------------------------------------------------------------- gradient

# Of the arcsine's series; at x^2 = 1/4 the terms left out add up to less than 1e-17.
COEFFICIENTS = [math.comb(2 * n, n) / (4**n * (2 * n + 1)) for n in range(25)]


def arcsin(x: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """arcsin(x) of x in [-1, 1], to the last bit or two.

    It is several times as fast as `jnp.arcsin` on CPU, where that was a quarter of an exact step.

        arcsin(x) = sum_n binomial(2n, n) / (4^n (2n + 1)) x^{2n + 1}    for |x| <= 1/2,
        arcsin(x) = pi/2 - 2 arcsin(sqrt((1 - x)/2))                     above.

    >>> import numpy as np
    >>> x = np.linspace(-1, 1, 100_001)
    >>> bool(np.max(np.abs(arcsin(jnp.asarray(x)) - np.arcsin(x))) < 1e-15)
    True
    """
    steep = jnp.abs(x) > 0.5
    t = jnp.where(steep, (1 - jnp.abs(x)) / 2, x * x)
    total = jnp.full_like(t, COEFFICIENTS[-1])
    for c in reversed(COEFFICIENTS[:-1]):
        total = total * t + c
    # A root of zero would have an infinite slope, even where it is not chosen.
    root = jnp.sqrt(jnp.where(steep, t, 1.0))
    return jnp.where(steep, jnp.sign(x) * (jnp.pi / 2 - 2 * root * total), x * total)


def gradient(
    W: Float[Array, "M d"], S: Float[Array, "D D"], task: Any
) -> tuple[Float[Array, "M d"], Float[Array, "D D"], Float[Array, " D"]]:
    """The gradient of `excess_loss` in W and in S, where it exists and at W = 0; and <s_j, dL/ds_j>.

    With rho_mj = cos(w_m, v_m) cos(s_j, s*_j), A/B the ratio of deviations and s2 = sigma_x^2,

        alpha_mj = h - (2 b^2/pi) (B/A) sqrt(1 - rho^2),   beta_mj = a^2 + (2 b^2/pi) arcsin(rho),
        dL/dw_m = s2 sum_j alpha |s_j|^2 w_m - beta <s_j, s*_j> v_m,
        dL/ds_j = s2 sum_m alpha |w_m|^2 s_j - beta <w_m, v_m> s*_j,

    and beta = s'(0) a where w_m = 0, as for a batch there. Nothing is singular at rho = +-1.
    """
    p = task.preset
    k, at_zero = p.bend()
    ww, wv, vv = (jnp.sum(x * y, axis=1) for x, y in ((W, W), (W, task.V), (task.V, task.V)))
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
    to_W = s2 * ((alpha @ ss)[:, None] * W - (beta @ st)[:, None] * task.V)
    return to_W, own[None, :] * S - other[None, :] * task.S, own * ss - other * st
