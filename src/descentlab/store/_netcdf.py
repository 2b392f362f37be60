"""Runs as netCDF-4 files, written and read by h5py itself.

The general writers spend a tenth of a second on the twenty variables of a small run, longer than such a run
takes. This one writes numbers with dimensions and descriptions, nothing else, in a few milliseconds. Any
netCDF reader opens the file. `layout`, an attribute of the file, repeats the dimensions and says at which
byte the numbers of a variable begin, so that reading needs no other part of the file.
"""

import io
import json
import math
from collections.abc import Hashable, Sequence
from typing import Any

import h5py  # pyright: ignore[reportMissingTypeStubs]
import numpy as np
import xarray as xr

NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable. {:9d}"


def encode(data: xr.Dataset) -> bytes:
    """The content of a netCDF file that holds the dataset."""
    buffer = io.BytesIO()
    file: Any  # h5py has no types
    with h5py.File(buffer, "w", track_order=True) as file:
        scales: dict[Hashable, Any] = {}
        layout: dict[str, Any] = {}
        for number, (dim, size) in enumerate(data.sizes.items()):
            if dim in data.coords:
                scale, layout[str(dim)] = _variable(file, str(dim), data.variables[dim])
                scale.make_scale(str(dim))
            else:
                scale = file.create_dataset(str(dim), (size,), "f4")
                scale.make_scale(NO_VARIABLE.format(size))
            scale.attrs["_Netcdf4Dimid"] = np.int32(number)
            scales[dim] = scale
        for name, series in data.variables.items():
            if name in scales:
                continue
            variable, layout[str(name)] = _variable(file, str(name), series)
            for axis, dim in enumerate(series.dims):
                variable.dims[axis].attach_scale(scales[dim])
        for key, value in data.attrs.items():
            file.attrs[key] = value
        coords = [str(name) for name in data.coords]
        file.attrs["layout"] = json.dumps({"variables": layout, "coords": coords})
    return buffer.getvalue()


def _variable(file: Any, name: str, series: xr.Variable) -> tuple[Any, dict[str, Any]]:
    """Writes a variable with its attributes, booleans as bytes; returns it and its part of the layout."""
    values = series.values
    if values.dtype.kind not in "fiub":
        raise TypeError(f"a run holds numbers, got {values.dtype} in {name}.")
    switch = values.dtype.kind == "b"
    variable = file.create_dataset(name, data=values.astype(np.int8) if switch else values)
    attributes = {**series.attrs, **({"dtype": "bool"} if switch else {})}
    for key, value in attributes.items():
        variable.attrs[key] = value
    place = {"dtype": variable.dtype.str, "shape": variable.shape, "offset": variable.id.get_offset()}
    return variable, {"dims": series.dims, "attrs": attributes, **place}


def decode(content: bytes) -> xr.Dataset:
    """The dataset that `encode` wrote."""
    file: Any
    with h5py.File(io.BytesIO(content)) as file:
        attributes = dict(file.attrs)
    layout = json.loads(str(attributes.pop("layout")))
    found: dict[str, Any] = {}
    for name, about in layout["variables"].items():
        attrs = dict(about["attrs"])
        switch = attrs.pop("dtype", "") == "bool"
        values = _numbers(content, about["dtype"], about["shape"], about["offset"])
        found[name] = xr.Variable(about["dims"], values.astype(bool) if switch else values, attrs)
    coords = {name: found.pop(name) for name in layout["coords"]}
    return xr.Dataset(found, coords, attributes)


def _numbers(content: bytes, dtype: str, shape: Sequence[int], offset: int | None) -> np.ndarray:
    """The numbers that begin at a byte of the content; an empty array has no place there."""
    count = math.prod(shape)
    if offset is None or count == 0:
        return np.empty(shape, dtype)
    return np.frombuffer(content, dtype, count, offset).reshape(shape).copy()
