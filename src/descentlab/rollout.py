"""Rollouts: whole trajectories of many seeds by one compiled program.

The program advances every seed from step a to step b, both given at run time. So the
records may lie anywhere, work is cut into pieces of about half a second for progress,
checkpoints and Ctrl-C, and nothing is compiled again between pieces. Noise is keyed by
the step, hence where a run is cut does not change a single bit of it.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from descentlab import numerics
from descentlab.preset import Settings
from descentlab.system import System as System
from descentlab.system import filled, sound

PIECE_SECONDS = 0.5
LONGEST_PIECE = 2**62  # from record to record
DIVERGED = 1e6  # a loss beyond this multiple of its start has diverged


@dataclass
class Progress:
    """Where a rollout stands, for whoever watches."""

    step: int
    steps: int
    loss: float


@dataclass
class Checkpoint:
    """All that a cut run needs to go on: the step reached, the states, and the records so far."""

    step: int
    states: list[np.ndarray]
    records: dict[str, np.ndarray]
    diverged_at: np.ndarray

    def arrays(self) -> dict[str, np.ndarray]:
        """The checkpoint as named arrays."""
        states = {f"state {i:03d}": x for i, x in enumerate(self.states)}
        records = {f"record {name}": x for name, x in self.records.items()}
        return {"step": np.asarray(self.step), "diverged_at": self.diverged_at} | states | records

    @staticmethod
    def from_arrays(arrays: Mapping[str, np.ndarray]) -> "Checkpoint":
        """The checkpoint that `arrays` came from."""
        states = [arrays[name] for name in sorted(arrays) if name.startswith("state ")]
        records = {
            name.removeprefix("record "): x for name, x in arrays.items() if name.startswith("record ")
        }
        return Checkpoint(int(arrays["step"]), states, records, arrays["diverged_at"])


def rollout(
    system: System,
    preset: Settings,
    seeds: range,
    records: np.ndarray,
    *,
    resume: Checkpoint | None = None,
    watch: Callable[[Progress], None] = lambda progress: None,
    keep: Callable[[Checkpoint], None] = lambda checkpoint: None,
    keep_every: float = 5.0,
) -> xr.Dataset:
    """The trajectories of `seeds`, recorded at the steps `records`, as one dataset.

    A seed whose state stops being finite, or whose loss passes a million times its start,
    is marked in `diverged_at` with the step (-1: sound); the others go on.
    """
    leaves, keys = _arguments(preset, seeds)
    tasks, states = system.start(keys, leaves)
    leaves, _ = _arguments(system.program(preset), seeds)
    grid = np.asarray(records)
    if grid[0] != 0 or np.any(np.diff(grid) <= 0):
        raise ValueError(f"records must begin at 0 and increase, got {grid.tolist()}.")
    rows: dict[str, list[np.ndarray]] = {}
    diverged_at = np.full(len(seeds), -1)
    step = 0
    if resume is not None:
        step, diverged_at = resume.step, resume.diverged_at.copy()
        saved = filled([jnp.asarray(x) for x in resume.states], len(seeds))
        states = jax.tree.unflatten(jax.tree.structure(states), saved)
        rows = {name: list(values) for name, values in resume.records.items()}
    kept, piece = time.monotonic(), 1 if system.divisible(preset) else LONGEST_PIECE
    done = len(next(iter(rows.values()), []))
    while done < len(grid):
        while step < grid[done]:
            target, began = min(int(grid[done]), step + piece), time.monotonic()
            after = jax.block_until_ready(system.advance(keys, tasks, states, leaves, step, target))
            for i in np.flatnonzero(~np.asarray(sound(after))[: len(seeds)] & (diverged_at < 0)):
                diverged_at[i] = _first_unsound(system, keys, tasks, states, leaves, step, target, int(i))
            seconds = time.monotonic() - began
            if piece < LONGEST_PIECE:
                piece = max(1, min(int(piece * np.clip(PIECE_SECONDS / max(seconds, 1e-6), 0.5, 4)), 2**40))
            step, states = target, after
            watch(Progress(step, int(grid[-1]), float(np.mean(rows[system.loss][-1]))))
            if time.monotonic() - kept > keep_every and step < grid[-1]:
                arrays = {name: np.stack(values) for name, values in rows.items()}
                saved = [np.asarray(x)[: len(seeds)] for x in jax.tree.leaves(states)]
                keep(Checkpoint(step, saved, arrays, diverged_at))
                kept = time.monotonic()
        for name, value in system.observe(tasks, states, leaves).items():
            rows.setdefault(name, []).append(np.asarray(value)[: len(seeds)])
        done += 1
        loss = rows[system.loss]
        gone = ~(np.abs(loss[-1]) <= DIVERGED * np.maximum(np.abs(loss[0]), 1e-12)) & (diverged_at < 0)
        diverged_at[gone] = step
    once = {k: np.asarray(x)[: len(seeds)] for k, x in system.conclude(tasks, states, leaves).items()}
    states = jax.tree.map(lambda x: x[: len(seeds)], states)
    return _dataset(system.probes(preset), rows, once, grid, seeds, diverged_at, states)


def _arguments(preset: Settings, seeds: range) -> tuple[Any, jax.Array]:
    """The preset with its numbers in its own precision, and a key for each seed."""
    dtype = numerics.float_dtype(getattr(preset, "precision", 64))
    leaves = jax.tree.map(lambda x: jnp.asarray(x, dtype if isinstance(x, float) else None), preset)
    keys = jax.vmap(partial(jax.random.fold_in, jax.random.key(0)))(jnp.arange(seeds.start, seeds.stop))
    return leaves, filled(keys, len(seeds))


def seconds_per_step(system: System, preset: Settings, seeds: int, steps: int = 50) -> float:
    """The time a step of so many seeds takes here, compiled."""
    leaves, keys = _arguments(preset, range(seeds))
    tasks, states = system.start(keys, leaves)
    jax.block_until_ready(system.advance(keys, tasks, states, leaves, 0, 1))
    began = time.monotonic()
    jax.block_until_ready(system.advance(keys, tasks, states, leaves, 0, steps))
    return (time.monotonic() - began) / steps


def _first_unsound(system, keys, tasks, states, leaves, low: int, high: int, seed: int) -> int:
    """The first step after which a seed is not finite, by halving (low, high]."""
    while high - low > 1:
        middle = (low + high) // 2
        there = system.advance(keys, tasks, states, leaves, low, middle)
        if np.asarray(sound(there))[seed]:
            low, states = middle, there
        else:
            high = middle
    return high


def _dataset(probes, rows, once, grid, seeds: range, diverged_at, states) -> xr.Dataset:
    """The records with their dimensions and meanings, and the final state as `final_*`."""
    data: dict[str, Any] = {}
    for name, probe in probes.items():
        along = ("seed",) if probe.once else ("seed", "step")
        values = once[name] if probe.once else np.stack(rows[name], axis=1)
        data[name] = ((*along, *probe.dims), values, {"description": probe.doc})
    data["diverged_at"] = (
        "seed",
        diverged_at,
        {"description": "step at which a seed diverged, -1 if it did not"},
    )
    for path, leaf in jax.tree_util.tree_leaves_with_path(states):
        name = "final_" + jax.tree_util.keystr(path, simple=True, separator="_")
        dims = tuple(f"{name}_{k}" for k in range(leaf.ndim - 1))
        data[name] = (("seed", *dims), np.asarray(leaf), {"description": "final state"})
    return xr.Dataset(data, {"seed": np.arange(seeds.start, seeds.stop), "step": grid})
