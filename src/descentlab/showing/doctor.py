"""The doctor: is this installation sound, and are the data and the store whole?"""

from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from descentlab.data import DATASETS, look
from descentlab.engine import cache_dir
from descentlab.store import Store, provenance


def examine(store: Path | None) -> tuple[list[str], list[str]]:
    """What there is, a line each, and what is wrong with it."""
    here, wrong = Store(store), miscompilations()
    data = [look(name) for name in DATASETS]
    damaged = [one.problem for one in data if one.problem]
    ill = here.problems()
    facts = {
        **provenance()["versions"],
        "devices": ", ".join(str(device) for device in jax.devices()),
        "cache": str(cache_dir()),
        "self-test": "WRONG NUMBERS" if wrong else "compiled programs agree with NumPy",
        "data found": "; ".join(
            f"{one.dataset.name} {one.status}" + (f" in {one.places}" if one.status == "found" else "")
            for one in data
        ),
        "store": f"{here.path.resolve()}: {len(here.ids())} runs, {len(ill)} problems",
    }
    return [f"{name:12s} {value}" for name, value in facts.items()], [*wrong, *damaged, *ill]


def miscompilations(
    rows: tuple[int, ...] = (20_000, 70_000), columns: tuple[int, ...] = (2, 3, 5, 8)
) -> list[str]:
    """The small compiled programs that disagree with NumPy; empty on a sound engine.

    jax 0.9 and 0.10 fail at 3 and 5 columns beyond 16,384 rows.
    """
    rng, wrong = np.random.default_rng(0), []
    for dtype, tolerance in ((np.float32, 1e-4), (np.float64, 1e-11)):
        for m in columns:
            M = rng.standard_normal((m, m)).astype(dtype)
            for n in rows:
                R = rng.standard_normal((n, m)).astype(dtype)
                P = R.astype(np.float64) @ M.T.astype(np.float64)
                for name, (compiled, expected) in _reductions(P).items():
                    value = jax.jit(jax.vmap(lambda r, f=compiled, A=M: f(A @ r)))(R)
                    gap = np.max(np.abs(np.asarray(value, np.float64) - expected) / (1 + np.abs(expected)))
                    if not gap < tolerance:
                        kind = f"{n} x {m} product in {np.dtype(dtype).name}"
                        wrong.append(f"{name} of a {kind}: off by {gap:.1e}")
    return wrong


def _reductions(P: np.ndarray) -> dict[str, tuple[Callable, np.ndarray]]:
    return {
        "sum of squares": (lambda p: jnp.sum(p**2), (P**2).sum(1)),
        "sum of positive parts": (lambda p: jnp.sum(jnp.maximum(p, 0)), np.maximum(P, 0).sum(1)),
        "maximum": (jnp.max, P.max(1)),
    }
