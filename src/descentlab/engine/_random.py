r"""Random bits, normal numbers and factors for dropout, up to four times as fast as `jax.random` on CPU.

Online training spends much of its time drawing numbers, so this is where a step is made cheap:

- The bits are threefry's, the same as `jax.random.bits` draws in words of 64, but written out: JAX's loop
  over rounds stores all words after each. And both words of a counter are used, of which 32-bit draws waste
  one.
- Two words make two normal numbers (Box and Muller 1958), sqrt(-2 log u) (cos 2 pi v, sin 2 pi v) for uniform
  u and v.

A normal number has 23 random bits, as many as `jax.random.normal` takes, and is at most 5.7.
"""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Key, ScalarLike, UInt32

# Salmon, Moraes, Dror and Shaw (2011), Threefry-2x32 of 20 rounds.
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA

# Taylor coefficients in y^2 of sin(pi y) / y and cos(pi y): exact to 32 bits for |y| <= 1/2.
SINE = [(-1) ** i * math.pi ** (2 * i + 1) / math.factorial(2 * i + 1) for i in range(6)]
COSINE = [(-1) ** i * math.pi ** (2 * i) / math.factorial(2 * i) for i in range(7)]


def words(key: Key[Array, ""], count: int) -> tuple[UInt32[Array, " count"], UInt32[Array, " count"]]:
    """Two random words for each of the counters 0, 1, ..., count - 1.

    >>> key = jax.random.key(3)
    >>> high, low = (np.asarray(x, np.uint64) for x in words(key, 1000))
    >>> bool(np.all((high << 32 | low) == jax.random.bits(key, 1000, np.uint64)))
    True
    """
    # Profiles know by their name what draws numbers.
    with jax.named_scope("random"):
        return _threefry(jax.random.key_data(key), count)


def _threefry(
    key: UInt32[Array, " 2"], count: int
) -> tuple[UInt32[Array, " count"], UInt32[Array, " count"]]:
    k0, k1 = key
    keys = (k0, k1, k0 ^ k1 ^ jnp.uint32(PARITY))
    y = jax.lax.iota(jnp.uint32, count) + k1
    x = jnp.full_like(y, k0)
    for i in range(5):
        for r in ROTATIONS[i % 2]:
            x = x + y
            y = ((y << jnp.uint32(r)) | (y >> jnp.uint32(32 - r))) ^ x
        x = x + keys[(i + 1) % 3]
        y = y + (keys[(i + 2) % 3] + jnp.uint32(i + 1))
    return x, y


def bits(key: Key[Array, ""], shape: tuple[int, ...]) -> UInt32[Array, "..."]:
    """Random words of 32 bits: those of half as many of 64 bits, lower halves first.

    >>> key = jax.random.key(3)
    >>> long = jax.random.bits(key, 3, np.uint64)
    >>> bool(np.all(np.asarray(long).view(np.uint32) == bits(key, (2, 3)).ravel()))
    True
    """
    count = math.prod(shape)
    high, low = words(key, -(-count // 2))
    # As one array both come from one loop, and behind the barrier from one loop only, as below.
    both = (high.astype(jnp.uint64) << jnp.uint64(32)) | low.astype(jnp.uint64)
    halves = jax.lax.bitcast_convert_type(jax.lax.optimization_barrier(both), jnp.uint32)
    return halves.reshape(-1)[:count].reshape(shape)


def thinning(
    key: Key[Array, ""], rate: ScalarLike, shape: tuple[int, ...], dtype: DTypeLike
) -> Float[Array, "..."]:
    """Factors for dropout: 0 at a rate, which is rounded to 16 bits, and else what makes their mean 1.

    >>> np.unique(thinning(jax.random.key(3), 0.25, (100,), np.float32)).tolist()
    [0.0, 1.3333333730697632]
    """
    count = math.prod(shape)
    high, low = words(key, -(-count // 4))
    both = (high.astype(jnp.uint64) << jnp.uint64(32)) | low.astype(jnp.uint64)
    quarters = jax.lax.bitcast_convert_type(jax.lax.optimization_barrier(both), jnp.uint16)
    bound = jnp.clip(jnp.round(jnp.asarray(rate, jnp.float32) * 2**16), 0, 2**16 - 1)
    kept = (2**16 / (2**16 - bound)).astype(dtype)
    return jnp.where(quarters.reshape(-1)[:count].reshape(shape) < bound.astype(jnp.uint16), 0, kept)


# Compiled as a whole: one operation at a time, products and sums would round otherwise than in a program.
@partial(jax.jit, static_argnames=("shape", "dtype"))
def normal(key: Key[Array, ""], shape: tuple[int, ...], dtype: DTypeLike = np.float32) -> Float[Array, "..."]:
    """Independent standard normal numbers, computed in 32 bits."""
    count = math.prod(shape)
    first, second = words(key, -(-count // 2))
    radius = jnp.sqrt(-2 * jnp.log(2 - _one_to_two(first)))
    # pi y is a uniform angle on the right half of the circle; a bit that y does not use picks the half.
    y = _one_to_two(second) - 1.5
    half = jnp.where((second & jnp.uint32(1)) > 0, -radius, radius)
    # As one complex array both numbers come from one loop, and behind the barrier from one loop only:
    # XLA would otherwise draw them again wherever they are used.
    pairs = jax.lax.optimization_barrier(
        jax.lax.complex(half * _series(COSINE, y), radius * (y * _series(SINE, y)))
    )
    return jnp.concatenate([pairs.real, pairs.imag])[:count].reshape(shape).astype(dtype)


def _one_to_two(bits: UInt32[Array, " n"]) -> Float[Array, " n"]:
    """Uniform numbers in [1, 2): the upper 23 bits as the fraction of a float."""
    return jax.lax.bitcast_convert_type((bits >> jnp.uint32(9)) | jnp.uint32(0x3F800000), jnp.float32)


def _series(coefficients: list[float], y: Float[Array, " n"]) -> Float[Array, " n"]:
    """The polynomial in y^2 with these coefficients."""
    total = jnp.full_like(y, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total = total * (y * y) + c
    return total
