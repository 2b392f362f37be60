"""Sweeps: a preset over a grid of settings, as one dataset; docs/sweeps.md shows how.

Every cell of the grid is a run like any other: what the store holds is not computed again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from descentlab.engine import Settings
from descentlab.judging import Grid
from descentlab.papers import Paper, load
from descentlab.running import Pool, Processes, Progress, Tally, as_store, complete
from descentlab.store import Store
from descentlab.sweeping._axes import axes_of, cells
from descentlab.sweeping._exponents import Fit
from descentlab.sweeping._gather import as_json, exponents, gathered, save

FEWEST_JOBS = 2  # for which workers are started: jobs of a sweep are large
Exponents = Mapping[str, Mapping[str, Fit]]


@dataclass(frozen=True)
class Sweep:
    """A finished sweep: a dataset for each of its grids, exponents, where they lie, and how cells fared."""

    grids: dict[str, xr.Dataset]
    exponents: dict[str, dict[str, Fit]]
    path: Path
    tally: Tally

    @property
    def data(self) -> xr.Dataset:
        """The dataset of the only grid."""
        if len(self.grids) > 1:
            raise ValueError(f"The sweep has several grids: take grids[NAME] of {', '.join(self.grids)}.")
        return next(iter(self.grids.values()))

    def diverged(self) -> dict[str, str]:
        """The cells with seeds that diverged: which seeds, and when."""
        return {
            f"{grid}: {cell}" if len(self.grids) > 1 else cell: where
            for grid, data in self.grids.items()
            for cell, where in _diverged(data).items()
        }

    def over(self) -> dict[str, list[Any]]:
        """The settings that were swept, with their values; GRID.SETTING where grids have different ones."""
        found: dict[str, dict[str, list[Any]]] = {}
        for grid, data in self.grids.items():
            for name, values in data.coords.items():
                if values.dims and values.dims[0] in data["failed"].dims:
                    found.setdefault(str(name), {})[grid] = values.values.tolist()
        return {
            name if alike else f"{grid}.{name}": values
            for name, own in found.items()
            for alike in [all(values == next(iter(own.values())) for values in own.values())]
            for grid, values in own.items()
        }

    def as_json(self) -> dict[str, Any]:
        """What the command line prints, beside the request."""
        return {
            "path": str(self.path.resolve()), "cells": self.tally.cells, "stored": self.tally.stored,
            "failed": len(self.tally.failed),
            "errors": [{"settings": p.settings(), "error": e} for p, e in self.tally.failed.items()],
            "diverged": self.diverged(), "exponents": as_json(self.exponents),
        }  # fmt: skip


def sweep(
    paper: Paper | str,
    preset: Settings | str = "quick",
    over: Sequence[Grid | str] | Mapping[str, Sequence[Grid]] = (),
    seeds: int = 8,
    store: Store | Path | str | None = None,
    pool: Pool | None = None,
    progress: Progress | None = None,
    retry: bool = False,
) -> Sweep:
    """Runs a preset over the product of some axes, or over several such grids, and gathers the results.

    **Arguments:**

    - `paper`, `preset`: themselves, or their names.
    - `over`: the axes; by default the grids of the study that `preset` names.
    - `store`: a store or its path; by default the one that the command line uses.
    - `pool`: who computes. By default worker processes on this machine, one for each core.
    - `progress`: a display, for instance.
    - `retry`: compute cells again that failed before.
    """
    paper = load(paper) if isinstance(paper, str) else paper
    if not over and isinstance(preset, str) and preset in paper.studies:
        over = paper.studies[preset].grids
    base = paper.preset(preset) if isinstance(preset, str) else preset
    axes = axes_of(paper, over)
    grids, here = {name: cells(base, own) for name, own in axes.items()}, as_store(store)
    presets = [preset for grid in grids.values() for preset in grid.flat]
    pool = pool or Processes(fewest=FEWEST_JOBS)
    tally = complete(paper, presets, seeds, here, pool=pool, progress=progress, retry=retry)
    found = {name: gathered(paper, axes[name], grids[name], seeds, here, tally.failed) for name in grids}
    fits = _merged({name: exponents(data) for name, data in found.items()})
    return Sweep(found, fits, save(found, fits, here), tally)


def _merged(grids: Mapping[str, Exponents]) -> dict[str, dict[str, Fit]]:
    """The exponents of several grids; a setting that several of them sweep is named GRID.SETTING."""
    settings = [name for own in grids.values() for name in {n for fits in own.values() for n in fits}]
    merged: dict[str, dict[str, Fit]] = {}
    for grid, own in grids.items():
        for quantity, fits in own.items():
            for name, fit in fits.items():
                full = name if settings.count(name) == 1 else f"{grid}.{name}"
                merged.setdefault(quantity, {})[full] = fit
    return merged


def _diverged(data: xr.Dataset) -> dict[str, str]:
    if "diverged_at" not in data:
        return {}
    dims = data["failed"].dims
    marks = data["diverged_at"].transpose(*dims, "seed")
    found: dict[str, list[str]] = {}
    for *cell, seed in np.argwhere(marks.values >= 0):
        words = " ".join(f"{d}={marks[d].values[i]}" for d, i in zip(dims, cell, strict=True))
        found.setdefault(words, []).append(f"seed {seed} at step {marks.values[*cell, seed]:.0f}")
    return {cell: ", ".join(where) for cell, where in found.items()}
