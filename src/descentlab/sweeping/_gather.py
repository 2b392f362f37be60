"""Gathering: the runs of a grid as one dataset, with exponents, tables and files.

Dimensions are those of the grid, `seed`, `step` and a probe's own. A probe keeps its trajectory where all
cells are recorded at the same steps, else its last record; where its own dimensions differ in size between
cells, their mean. What the paper reads off a run (its `readings`, such as stage times) stands beside the
probes. A cell that failed is nan everywhere and true in `failed`; a cell whose setting has no such probe is
nan there. Where a setting and a probe, or a probe's dimension, share a name, the probe's becomes `probe_...`;
a setting called like what every dataset has, such as `step`, becomes `setting_...`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from descentlab.engine import Settings
from descentlab.judging import Broken, Grid
from descentlab.papers import Paper
from descentlab.running import identify
from descentlab.store import SWEEPS, Store, write_entry, writing
from descentlab.sweeping._exponents import Fit, exponent_in

# What every gathered dataset has, so that no setting may be called so in it.
OWN = ("seed", "step", "failed", "run", "diverged_at")


def gathered(
    paper: Paper,
    over: Sequence[Grid],
    cells: np.ndarray,
    seeds: int,
    store: Store,
    failed: Mapping[Settings, str],
) -> xr.Dataset:
    """The runs of the cells as one dataset."""
    dims = tuple(coordinate(grid.over) for grid in over)
    settings = {coordinate(name) for grid in over for cell in grid.cells for name in cell}.union(dims)
    runs = [None if p in failed else _run(paper, p, seeds, store) for p in cells.flat]
    sound = [run for run in runs if run is not None]
    data: dict[str, Any] = {}
    steps = [run.variables["step"].values for run in sound]
    same_steps = all(np.array_equal(own, steps[0]) for own in steps)
    if not same_steps:
        runs = [run if run is None else run.isel(step=-1, drop=True) for run in runs]
    for name in dict.fromkeys(str(name) for run in sound for name in run.data_vars):
        found = {i: run.variables[name] for i, run in enumerate(runs) if run is not None and name in run}
        data[_apart(name, settings)] = _laid_out(dims, cells.shape, found, settings)
    data["failed"] = (dims, np.reshape([run is None for run in runs], cells.shape))
    data["run"] = (dims, np.reshape([identify(paper, p) for p in cells.flat], cells.shape))
    meanings = {f.name: f.metadata["doc"] for f in fields(cells.flat[0])}
    coords: dict[str, Any] = {"seed": np.arange(seeds)}
    if sound and same_steps:
        coords["step"] = steps[0]
    for number, grid in enumerate(over):
        along = np.moveaxis(cells, number, 0).reshape(len(grid.cells), -1)[:, 0]
        for name in dict.fromkeys(name for cell in grid.cells for name in cell):
            values, meaning = [getattr(p, name) for p in along], {"description": meanings[name]}
            coords[coordinate(name)] = (coordinate(grid.over), values, meaning)
    sizes = [coordinate(name) for grid in over for name in _sizes(grid)]
    first, *rest = (p.settings() for p in cells.flat)
    shared = {k: v for k, v in first.items() if all(own[k] == v for own in rest)}
    about = {"paper": paper.name, "title": paper.title, "sizes": sizes, "settings": json.dumps(shared)}
    return xr.Dataset(data, coords, about)


def coordinate(setting: str) -> str:
    """What a setting is called in a gathered dataset."""
    return f"setting_{setting}" if setting in OWN else setting


def _apart(name: str, settings: Collection[str]) -> str:
    return f"probe_{name}" if name in settings else name


def _sizes(grid: Grid) -> list[str]:
    """The settings of an axis that exponents are asked for in: its own, not what moves along with it."""
    swept = list(grid.cells[0])
    if grid.over in swept:
        return [grid.over]
    return swept if grid.over == "_".join(swept) else swept[:1]


def _run(paper: Paper, preset: Settings, seeds: int, store: Store) -> xr.Dataset:
    """A stored run with what the paper reads off it, without its final state."""
    data = store.read(identify(paper, preset))
    assert data is not None
    data = data if data.sizes["seed"] == seeds else data.isel(seed=slice(seeds))
    for name, reading in paper.readings(preset).items():
        values = np.full(seeds, np.nan)
        with contextlib.suppress(Broken):
            values = np.asarray(reading(data), dtype=float)
        data[name] = ("seed", values, {"description": f"{name}, read off the run"})
    return data.drop_vars([name for name in data if str(name).startswith("final_")])


def _laid_out(
    dims: tuple[str, ...], shape: Any, series: dict[int, xr.Variable], settings: Collection[str]
) -> xr.Variable:
    """Series of cells, by number, on the grid and in one shape; nan in cells that have none."""
    if len({(one.dims, one.shape) for one in series.values()}) > 1:
        further = {i: [d for d in one.dims if d not in ("seed", "step")] for i, one in series.items()}
        series = {i: one.mean(further[i], keep_attrs=True) for i, one in series.items()}
    first = next(iter(series.values()))
    gap = np.full(first.shape, np.nan)
    values = np.stack([series[i].values if i in series else gap for i in range(math.prod(shape))])
    own = [_apart(str(dim), settings) for dim in first.dims]
    return xr.Variable((*dims, *own), values.reshape(*shape, *first.shape), first.attrs)


def scalars(data: xr.Dataset) -> xr.Dataset:
    """One number per cell and seed for each probe (its last record, or mean) and reading."""
    dims = {"seed", *data["failed"].dims}

    def last(series: xr.DataArray) -> xr.DataArray:
        series = series.isel(step=-1, drop=True) if "step" in series.dims else series
        return series.astype(float).mean([d for d in series.dims if d not in dims], keep_attrs=True)

    names = [name for name, series in data.items() if "seed" in series.dims and name != "diverged_at"]
    return xr.Dataset({name: last(data[name]) for name in names})


def exponents(data: xr.Dataset) -> dict[str, dict[str, Fit]]:
    """The exponent of every quantity that is positive throughout, in every setting that is."""
    sound = scalars(data).where(data["diverged_at"] < 0) if "diverged_at" in data else xr.Dataset()
    sizes = [
        name
        for name in data.attrs["sizes"]
        if data[name].dtype.kind in "if" and np.unique(data[name]).size == data[name].size
    ]
    found: dict[str, dict[str, Fit]] = {}
    for quantity, series in sound.items():
        for name in sizes:
            with contextlib.suppress(Broken):
                found.setdefault(str(quantity), {})[str(name)] = exponent_in(series, name)
    return found


# ---------------------------------------------------------------- files


def table(data: xr.Dataset) -> pd.DataFrame:
    """A row for each cell and seed."""
    further = {name: data[name] for name in ("diverged_at", "failed", "run") if name in data}
    return scalars(data).assign(further).to_dataframe().reset_index()


def save(grids: Mapping[str, xr.Dataset], fits: Mapping[str, Mapping[str, Fit]], store: Store) -> Path:
    """Writes what a sweep found into the store; the path of its dataset."""
    what = [
        [name, data["run"].values.tolist(), data["run"].dims, data.sizes["seed"]]
        for name, data in grids.items()
    ]
    key = hashlib.sha256(json.dumps(what).encode()).hexdigest()[:16]
    paper = next(iter(grids.values())).attrs["paper"]
    return write(grids, fits, store.path / SWEEPS / f"{paper}-{key}")


def write(grids: Mapping[str, xr.Dataset], fits: Mapping[str, Mapping[str, Fit]], folder: Path) -> Path:
    """The same into a folder: data.nc, a table of each grid (CSV, Parquet), and exponents.json.

    Several grids are groups of one netCDF file; Parquet is written where pyarrow is installed.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_entry(folder / "data.nc", _netcdf(grids))
    for name, data in grids.items():
        rows, file = table(data), f"table_{name}" if name else "table"
        write_entry(folder / f"{file}.csv", rows.to_csv(index=False).encode())
        if find_spec("pyarrow"):
            write_entry(folder / f"{file}.parquet", rows.to_parquet(index=False, engine="pyarrow"))
    write_entry(folder / "exponents.json", json.dumps(as_json(fits), indent=1).encode())
    return folder / "data.nc"


def _netcdf(grids: Mapping[str, xr.Dataset]) -> bytes:
    """The datasets as the content of a netCDF file."""
    dask = sys.modules.get("dask")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.nc"
        # A process that works for a dask scheduler would have xarray lock the file there.
        with dask.config.set(scheduler="threads") if dask else contextlib.nullcontext():
            if set(grids) == {""}:
                grids[""].to_netcdf(path, engine="h5netcdf")
            else:
                xr.DataTree.from_dict(dict(grids)).to_netcdf(path, engine="h5netcdf")
        return path.read_bytes()


def as_json(fits: Mapping[str, Mapping[str, Fit]]) -> dict[str, dict[str, dict[str, float | None]]]:
    """Exponents with null for what is not finite."""

    def finite(fit: Fit) -> dict[str, float | None]:
        return {k: v if v is not None and np.isfinite(v) else None for k, v in asdict(fit).items()}

    return {name: {size: finite(fit) for size, fit in own.items()} for name, own in fits.items()}
