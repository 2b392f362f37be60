"""The arcsine, several times as fast as `jnp.arcsin` on CPU, where it was a quarter of an exact step.

arcsin(x) = sum_n binomial(2n, n) / (4^n (2n + 1)) x^{2n + 1}    for |x| <= 1/2,
arcsin(x) = pi/2 - 2 arcsin(sqrt((1 - x)/2))                     above.
"""

import math

import jax.numpy as jnp
from jaxtyping import Array, Float

# At x^2 = 1/4 the terms left out add up to less than 1e-17.
COEFFICIENTS = [math.comb(2 * n, n) / (4**n * (2 * n + 1)) for n in range(25)]


def arcsin(x: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """arcsin(x) of x in [-1, 1], to the last bit or two.

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
