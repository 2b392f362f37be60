"""What one core of this machine can do at most, as JSON on standard output.

Each rate is the best of several trials, of the fastest way there is: matrix products of NumPy's library or of
XLA, a copy that leaves the cache, and the laboratory's generators of random numbers.
"""

import json
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from descentlab.engine import _platform as numerics
from descentlab.engine import bits, normal

TRIALS = 7
numerics.configure()


def best(run: Callable[[], Any]) -> float:
    """The processor seconds of the fastest of several trials, after one that warms up."""
    took = []
    for _ in range(TRIALS + 1):
        began = time.process_time()
        jax.block_until_ready(run())
        took.append(time.process_time() - began)
    return min(took[1:])


def products(dtype: Any, size: int = 1024) -> float:
    """Floating-point operations a second of a product of square matrices."""
    A = np.random.default_rng(0).standard_normal((size, size)).astype(dtype)
    on_device, product = jnp.asarray(A), jax.jit(jnp.matmul)
    return 2 * size**3 / min(best(lambda: A @ A), best(lambda: product(on_device, on_device)))


def copying(size: int = 2**27) -> float:
    """Bytes a second, read and written, of a copy beyond the caches."""
    source, target = np.ones(size // 8), np.empty(size // 8)
    return 2 * size / best(lambda: np.copyto(target, source))


def exponentials(dtype: Any, size: int = 2**14) -> float:
    """Exponentials a second of an array in the cache."""
    x = jnp.linspace(-1, 0, size, dtype=dtype)
    rounds = 200
    again = jax.jit(lambda x: jax.lax.fori_loop(0, rounds, lambda _, x: jnp.exp(-x), x))
    return rounds * size / best(lambda: again(x))


def drawing(draw: Callable[[jax.Array, int], jax.Array], size: int = 2**16) -> float:
    """Random numbers a second, by the batch that fits the cache."""
    rounds = 50

    def total(key: jax.Array) -> jax.Array:
        def more(i: Any, sum: jax.Array) -> jax.Array:
            return sum + jnp.max(draw(jax.random.fold_in(key, i), size)).astype(sum.dtype)

        return jax.lax.fori_loop(0, rounds, more, jnp.zeros((), jnp.float32))

    compiled, key = jax.jit(total), jax.random.key(0)
    return rounds * size / best(lambda: compiled(key))


if __name__ == "__main__":
    found = {
        "sgemm": products(np.float32),
        "dgemm": products(np.float64),
        "copy": copying(),
        "functions_32": exponentials(np.float32),
        "functions_64": exponentials(np.float64),
        "words": max(
            drawing(lambda key, n: bits(key, (n,))),
            drawing(lambda key, n: jax.random.bits(key, (n,), "uint32")),
        ),
        "normals": max(
            drawing(lambda key, n: normal(key, (n,), np.dtype(np.float32))),
            drawing(lambda key, n: jax.random.normal(key, (n,), jnp.float32)),
        ),
    }
    print(json.dumps(found))
