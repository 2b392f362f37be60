r"""Expected products of piecewise-linear functions of two correlated Gaussians.

For s(z) = z above zero and k z below, and centred Gaussians z, y with standard deviations A, B
and correlation rho = c / (A B),

    E s(z) s(y) = a^2 c + (2 b^2 / pi) [ sqrt(A^2 B^2 - c^2) + c arcsin(rho) ],
    a = (1 + k)/2,  b = (1 - k)/2,   E s(z)^2 = h A^2,  h = a^2 + b^2 = (1 + k^2)/2,

the arc-cosine kernel of order one. With theta = arccos(rho),

    E (s(z) - s(y))^2 = h (A - B)^2 + 2 A B gap,
    gap = h (1 - rho) - (2 b^2 / pi) (sin theta - theta cos theta),

which loses nothing where z and y nearly agree.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float, ScalarLike


def gap(chord: Float[Array, "*n"], k: ScalarLike) -> Float[Array, "*n"]:
    """The gap as a function of chord = 1 - rho, in [0, 2]."""
    half = jnp.clip(chord / 2, 0.0, 1.0)
    theta = 2 * jnp.arctan2(jnp.sqrt(half), jnp.sqrt(1 - half))
    # sin theta - theta cos theta, with cos theta = 1 - chord.
    sine = 2 * jnp.sqrt(half * (1 - half))
    bent = sine - theta * (1 - chord)
    return jnp.asarray((1 + k**2) / 2 * chord - (1 - k) ** 2 / (2 * jnp.pi) * bent)
