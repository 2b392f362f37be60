"""Rollouts: whole trajectories of many seeds, and of many presets, by one compiled program.

The program advances every row, a seed of a preset, from step a to step b, both given at run time. So the
records may lie anywhere, work is cut into pieces of about half a second for progress, checkpoints and
Ctrl-C, and nothing is compiled again between pieces. Noise is keyed by the step, hence where a run is cut
does not change a single bit of it.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from descentlab.engine import _platform as numerics
from descentlab.engine._program import System as System
from descentlab.engine._program import filled, sound
from descentlab.engine._settings import Settings

PIECE_SECONDS = 0.5
LONGEST_PIECE = 2**62  # from record to record
DIVERGED = 1e6  # a loss beyond this multiple of its start has diverged


@dataclass
class Checkpoint:
    """All that cut runs need to go on: the step reached, the states of all rows, and the records so far."""

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

    def rows(self, part: slice) -> "Checkpoint":
        """The checkpoint of some of its rows."""
        records = {name: x[:, part] for name, x in self.records.items()}
        return Checkpoint(self.step, [x[part] for x in self.states], records, self.diverged_at[part])

    @staticmethod
    def join(parts: "Sequence[Checkpoint]") -> "Checkpoint":
        """One checkpoint of several at the same step."""
        states = [np.concatenate(x) for x in zip(*(part.states for part in parts), strict=True)]
        records = {
            name: np.concatenate([part.records[name] for part in parts], axis=1) for name in parts[0].records
        }
        diverged_at = np.concatenate([part.diverged_at for part in parts])
        return Checkpoint(parts[0].step, states, records, diverged_at)


def rollout(
    system: System, preset: Settings, seeds: range, records: np.ndarray, **further: Any
) -> xr.Dataset:
    """The trajectories of `seeds`, recorded at the steps `records`, as one dataset; see `rollouts`."""
    return rollouts(system, [preset], seeds, records, **further)[0]


@numerics.OneThread()
def rollouts(
    system: System,
    presets: Sequence[Settings],
    seeds: range,
    records: np.ndarray,
    *,
    room: int = 0,
    resume: Checkpoint | None = None,
    watch: Callable[[int, float], None] = lambda step, loss: None,
    keep: Callable[[Checkpoint], None] = lambda checkpoint: None,
    keep_every: float = 5.0,
) -> list[xr.Dataset]:
    """The trajectories of `seeds` of presets that share a program, all recorded at the same steps.

    A seed whose state stops being finite, or whose loss passes a million times its start, is marked in
    `diverged_at` with the step (-1: sound); the others go on. `room` is the number of rows to compile for,
    if there are fewer: it lets groups of several sizes share a program. About twice a second `watch` gets the
    step and the mean loss at the last record; every `keep_every` seconds `keep` gets a checkpoint.
    """
    rows = len(presets) * len(seeds)
    data = system.load(presets[0], max(rows, room))
    keys, tasks, states = _start(system, presets, seeds, room, data)
    leaves = filled(_leaves([system.program(p) for p in presets], len(seeds)), room)
    grid = np.asarray(records)
    if grid[0] != 0 or np.any(np.diff(grid) <= 0):
        raise ValueError(f"records must begin at 0 and increase, got {grid.tolist()}.")
    found: dict[str, list[np.ndarray]] = {}
    diverged_at = np.full(rows, -1)
    step = 0
    if resume is not None:
        step, diverged_at = resume.step, resume.diverged_at.copy()
        saved = filled([jnp.asarray(x) for x in resume.states], room)
        states = jax.tree.unflatten(jax.tree.structure(states), saved)
        found = {name: list(values) for name, values in resume.records.items()}

    def advance(states: Any, first: int, last: int) -> Any:
        return system.advance(keys, tasks, states, leaves, data, first, last)

    kept, piece = time.monotonic(), 1 if system.divisible(presets[0]) else LONGEST_PIECE
    done = len(next(iter(found.values()), []))
    while done < len(grid):
        while step < grid[done]:
            target, began = min(int(grid[done]), step + piece), time.monotonic()
            after = jax.block_until_ready(advance(states, step, target))
            lost = np.flatnonzero(~np.asarray(sound(after))[:rows] & (diverged_at < 0))
            _date(advance, states, step, target, lost, diverged_at)
            seconds = time.monotonic() - began
            if piece < LONGEST_PIECE:
                piece = max(1, min(int(piece * np.clip(PIECE_SECONDS / max(seconds, 1e-6), 0.5, 4)), 2**40))
            step, states = target, after
            watch(step, float(np.mean(found[system.loss][-1])))
            if time.monotonic() - kept > keep_every and step < grid[-1]:
                arrays = {name: np.stack(values) for name, values in found.items()}
                saved = [np.asarray(x)[:rows] for x in jax.tree.leaves(states)]
                keep(Checkpoint(step, saved, arrays, diverged_at))
                kept = time.monotonic()
        for name, value in system.observe(tasks, states, leaves, data).items():
            found.setdefault(name, []).append(np.asarray(value)[:rows])
        done += 1
        loss = found[system.loss]
        gone = ~(np.abs(loss[-1]) <= DIVERGED * np.maximum(np.abs(loss[0]), 1e-12)) & (diverged_at < 0)
        diverged_at[gone] = step
    once = {k: np.asarray(x) for k, x in system.conclude(tasks, states, leaves, data).items()}
    series = {name: np.stack(values, axis=1) for name, values in found.items()}
    states = jax.tree.map(np.asarray, states)

    def cell(i: int, preset: Settings) -> xr.Dataset:
        own = slice(i * len(seeds), (i + 1) * len(seeds))
        values = {name: x[own] for name, x in (series | once).items()}
        final = jax.tree.map(lambda x: x[own], states)
        return _dataset(system.probes(preset), values, grid, seeds, diverged_at[own], final)

    return [cell(i, preset) for i, preset in enumerate(presets)]


def _leaves(presets: Sequence[Settings], seeds: int) -> Any:
    """The presets as one, whose numbers, in its own precision, have a row for each seed of each preset."""
    dtype = numerics.float_dtype(getattr(presets[0], "precision", 64))

    def stack(*values: Any) -> jax.Array:
        array = np.array(values, dtype if isinstance(values[0], float) else None)
        return jnp.asarray(np.repeat(array, seeds))

    return jax.tree.map(stack, *presets)


def _start(
    system: System, presets: Sequence[Settings], seeds: range, room: int, data: Any
) -> tuple[Any, Any, Any]:
    """The keys, tasks and states of all rows, filled. Presets of different sizes start by themselves."""
    keys = jax.vmap(partial(jax.random.fold_in, jax.random.key(0)))(jnp.arange(seeds.start, seeds.stop))
    starts = []
    for _, alike in groupby(presets, jax.tree.structure):
        own = list(alike)
        count = len(own) * len(seeds)
        space = room if len(own) == len(presets) else 0
        begun = system.start(
            filled(jnp.tile(keys, len(own)), space), filled(_leaves(own, len(seeds)), space), data
        )
        starts.append((begun, count))
    if len(starts) == 1:
        tasks, states = starts[0][0]
    else:
        cut = [jax.tree.map(lambda x, n=count: x[:n], begun) for begun, count in starts]
        tasks, states = filled(jax.tree.map(lambda *parts: jnp.concatenate(parts), *cut), room)
    return filled(jnp.tile(keys, len(presets)), room), tasks, states


def begun(system: System, preset: Settings, seeds: int) -> tuple[Any, Any, Any, Any, Any]:
    """What `advance` takes beside the first and the last step: seeds of a preset that stand at the start."""
    data = system.load(preset, seeds)
    keys, tasks, states = _start(system, [preset], range(seeds), 0, data)
    return keys, tasks, states, filled(_leaves([system.program(preset)], seeds)), data


def _date(
    advance: Callable, states: Any, low: int, high: int, lost: np.ndarray, diverged_at: np.ndarray
) -> None:
    """Marks the first step after which each of the rows `lost` in (low, high] is not finite, by halving."""
    if lost.size == 0 or high - low == 1:
        diverged_at[lost] = high
        return
    middle = (low + high) // 2
    there = advance(states, low, middle)
    fine = np.asarray(sound(there))[lost]
    _date(advance, states, low, middle, lost[~fine], diverged_at)
    _date(advance, there, middle, high, lost[fine], diverged_at)


def _dataset(probes, values, grid, seeds: range, diverged_at, states) -> xr.Dataset:
    """The records with their dimensions and meanings, and the final state as `final_*`."""
    data: dict[str, Any] = {}
    for name, probe in probes.items():
        along = ("seed",) if probe.once else ("seed", "step")
        data[name] = ((*along, *probe.dims), values[name], {"description": probe.doc})
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
