"""What the reference needs of seed 0, as `rollout` makes it: ground truth, start, batches of checked steps."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from descentlab.papers import sign_descent

Arrays = dict[str, Any]


def keys() -> tuple[jax.Array, jax.Array, jax.Array]:
    """The keys of seed 0 as `rollout` makes them: of the task, the start and the steps (System._row)."""
    task, start, step = jax.random.split(jax.random.fold_in(jax.random.key(0), 0), 3)
    return task, start, step


def sign_descent_instance(p: sign_descent.Preset, checked: np.ndarray) -> Arrays:
    """Data and start with all coordinates. Labels, which the laboratory absorbs into the noise, are drawn."""
    instance = sign_descent.make_instance(keys()[0], p)
    arrays: Arrays = {"eta": p.eta, "signal": p.signal, "sign": p.optimizer == "sign"}
    labels = np.random.default_rng(0)
    for part, zeta in (("train", np.asarray(instance.zeta)), ("test", np.asarray(instance.zeta_test))):
        y = labels.choice([-1.0, 1.0], len(zeta))
        arrays |= {f"{part}_noise": y[:, None] * zeta, f"{part}_y": y}
    w = instance.start
    return arrays | {"W_Q": w.Q, "W_K": w.K, "W_V": w.V}


INSTANCES: dict[str, Callable[[Any, np.ndarray], Arrays]] = {
    "sign_descent_sign": sign_descent_instance,
    "sign_descent_gd": sign_descent_instance,
}
