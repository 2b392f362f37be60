"""Sweeps: a preset over a grid of settings, as one dataset.

    over = [axis("s=10,20,40"), axis("sigma_p=logspace(0.5,2,5)")]
    result = sweep(load("sign_descent"), "quick", over, seeds=4)
    result.data["training_loss"]           # dimensions s, sigma_p, seed, step
    result.exponents["training_loss"]["s"]

Every cell of the grid is a run like any other, named by its content: what the store holds is not computed
again. Cells that share a compiled program are computed together, as tasks of a fleet; a second process on
the same store takes what the first has not begun.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from descentlab.campaign import Tally, View, complete
from descentlab.errors import SettingError
from descentlab.fits import Fit
from descentlab.fleet import Fleet
from descentlab.harvest import as_json, exponents, harvest, save
from descentlab.paper import Paper, load
from descentlab.preset import Settings
from descentlab.scaling import Grid
from descentlab.store import Store

Exponents = Mapping[str, Mapping[str, Fit]]
SPACINGS = {"linspace": np.linspace, "logspace": np.geomspace}


# ---------------------------------------------------------------- grids


def axis(words: str) -> Grid:
    """One axis of a grid as it is written on the command line.

    Settings that move together are joined by commas, their values by colons.

    >>> axis("s=10,20").cells
    [{'s': '10'}, {'s': '20'}]
    >>> axis("eta=logspace(1e-3,1e-1,3)").cells
    [{'eta': 0.001}, {'eta': 0.01}, {'eta': 0.1}]
    >>> axis("s,m_k=10:50,20:100").cells
    [{'s': '10', 'm_k': '50'}, {'s': '20', 'm_k': '100'}]
    """
    left, equals, right = words.partition("=")
    names = [name.strip() for name in left.split(",")]
    if not (all(names) and equals and right.strip()):
        raise SettingError(f"over takes NAME=V1,V2,... or NAME=logspace(FIRST,LAST,COUNT), got {words!r}.")
    if spaced := re.fullmatch(r"\s*([a-z]+)\((.*)\)\s*", right):
        values = [(value,) for value in _spaced(words, spaced[1], spaced[2])]
    else:
        parts = [value.split(":") if len(names) > 1 else [value] for value in right.split(",")]
        values = [tuple(part.strip() for part in value) for value in parts]
    _once(names)
    for value in values:
        if len(value) != len(names) or "" in value:
            raise SettingError(f"over takes {len(names)} values for {left}, joined by colons, got {words!r}.")
    return Grid("_".join(names), [dict(zip(names, value, strict=True)) for value in values])


def _spaced(words: str, kind: str, arguments: str) -> list[float]:
    """The values of linspace(first, last, count) or logspace(first, last, count)."""
    try:
        first, last, count = arguments.split(",")
        ends, number = (float(first), float(last)), int(count)
        sound = np.isfinite(ends).all() and (kind == "linspace" or min(ends) > 0)
        if kind not in SPACINGS or number < 1 or not sound:
            raise ValueError
    except ValueError:
        raise SettingError(
            "over takes linspace(FIRST,LAST,COUNT) or logspace(FIRST,LAST,COUNT), the latter of positive "
            f"numbers, got {words!r}."
        ) from None
    return [float(f"{x:.12g}") for x in SPACINGS[kind](*ends, number)]


def _once(names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise SettingError(f"over takes every setting once, got {name} {names.count(name)} times.")


def cells(base: Settings, over: Sequence[Grid]) -> np.ndarray:
    """The presets of a product of axes, an array with a dimension for each."""
    _once([name for grid in over for name in dict.fromkeys(k for cell in grid.cells for k in cell)])
    known = {f.name: f for f in fields(base)}

    def typed(overrides: dict[str, Any]) -> dict[str, Any]:
        # Spaced values of a whole number are rounded.
        whole = {
            k for k, v in overrides.items() if isinstance(v, float) and k in known and known[k].type is int
        }
        return {k: round(v) if k in whole else v for k, v in overrides.items()}

    found = np.empty([len(grid.cells) for grid in over], dtype=object)
    for index in np.ndindex(*found.shape):
        own = [{**grid.settings, **grid.cells[i]} for grid, i in zip(over, index, strict=True)]
        overrides = typed(dict(itertools.chain.from_iterable(part.items() for part in own)))
        try:
            found[index] = base.replace(overrides)
        except SettingError as error:
            where = " ".join(f"{k}={v}" for k, v in overrides.items() if not callable(v))
            raise SettingError(f"cell {where}: {error}") from None
    for number, grid in enumerate(over):
        along = np.moveaxis(found, number, 0).reshape(len(grid.cells), -1)[:, 0]
        if len(set(along)) < len(along):
            raise SettingError(
                f"over takes different values, got some of {grid.over} twice (rounded, perhaps)."
            )
    return found


# ---------------------------------------------------------------- the whole


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
        (only,) = self.grids.values()
        return only

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
    fleet: Fleet | None = None,
    view: View | None = None,
    retry: bool = False,
) -> Sweep:
    """Runs a preset over the product of some axes, or over several such grids, and gathers what comes of it.

    The preset of a study brings its own grids. `fleet` performs the work: by default processes on this
    machine, a core each.
    """
    paper = load(paper) if isinstance(paper, str) else paper
    if not over and isinstance(preset, str) and preset in paper.studies:
        over = paper.studies[preset].grids
    base = paper.preset(preset) if isinstance(preset, str) else preset
    axes = axes_of(paper, over)
    grids, here = {name: cells(base, own) for name, own in axes.items()}, as_store(store)
    tally = complete(
        paper, [p for grid in grids.values() for p in grid.flat], seeds, here, fleet, view, retry
    )
    found = {name: harvest(paper, axes[name], grids[name], seeds, here, tally.failed) for name in grids}
    fits = _merged({name: exponents(data) for name, data in found.items()})
    return Sweep(found, fits, save(found, fits, here), tally)


def axes_of(paper: Paper, over: Sequence[Grid | str] | Mapping[str, Sequence[Grid]]) -> dict[str, list[Grid]]:
    """The axes of each grid of a sweep."""
    axes = {
        name: [axis(one) if isinstance(one, str) else one for one in own]
        for name, own in (over if isinstance(over, Mapping) else {"": over}).items()
    }
    if not axes or not all(axes.values()):
        raise SettingError(
            "over takes at least one NAME=V1,V2,..., got none; the studies of "
            f"{paper.name}, which bring their own, are {', '.join(paper.studies) or '(none)'}."
        )
    return axes


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


def as_store(store: Store | Path | str | None) -> Store:
    """A store, given itself or by its path."""
    return store if isinstance(store, Store) else Store(store)


def _diverged(data: xr.Dataset) -> dict[str, str]:
    if "diverged_at" not in data:
        return {}
    dims = data["failed"].dims
    marks = data["diverged_at"].transpose(*dims, "seed")
    found: dict[str, list[str]] = {}
    for *cell, seed in np.argwhere(marks.values >= 0):
        place = [marks[d].values[i] if d in marks.coords else i for d, i in zip(dims, cell, strict=True)]
        words = " ".join(f"{d}={v}" for d, v in zip(dims, place, strict=True))
        found.setdefault(words, []).append(f"seed {seed} at step {marks.values[*cell, seed]:.0f}")
    return {cell: ", ".join(where) for cell, where in found.items()}
