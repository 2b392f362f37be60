"""Runs as netCDF-4 files, written and read by h5py itself.

The general writers spend a tenth of a second on the twenty variables of a small run, which is more than
many a run takes; this one writes plain numbers with dimensions and descriptions, and nothing else, in a few
milliseconds. Any netCDF reader opens the file. `layout`, an attribute of the file, repeats the dimensions, so
that reading back need not follow references.
"""

import io
import json
from typing import Any

import h5py
import numpy as np
import xarray as xr

NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable. {:9d}"


def encode(data: xr.Dataset) -> bytes:
    """The content of a netCDF file that holds the dataset."""
    buffer = io.BytesIO()
    with h5py.File(buffer, "w", track_order=True) as file:
        scales = {}
        for number, (dim, size) in enumerate(data.sizes.items()):
            if dim in data.coords:
                scale = file.create_dataset(str(dim), data=_plain(data[dim]))
                scale.make_scale(str(dim))
            else:
                scale = file.create_dataset(str(dim), (size,), "f4")
                scale.make_scale(NO_VARIABLE.format(size))
            scale.attrs["_Netcdf4Dimid"] = np.int32(number)
            scales[dim] = scale
        layout = {}
        for name, series in data.variables.items():
            if name in data.sizes:
                continue
            variable = file.create_dataset(str(name), data=_plain(series))
            for axis, dim in enumerate(series.dims):
                variable.dims[axis].attach_scale(scales[dim])
            attributes = {**series.attrs, **({"dtype": "bool"} if series.dtype.kind == "b" else {})}
            for key, value in attributes.items():
                variable.attrs[key] = value
            layout[str(name)] = {"dims": series.dims, "attrs": attributes}
        for key, value in data.attrs.items():
            file.attrs[key] = value
        coords = [str(name) for name in data.coords]
        file.attrs["layout"] = json.dumps({"variables": layout, "coords": coords})
    return buffer.getvalue()


def decode(content: bytes) -> xr.Dataset:
    """The dataset that `encode` wrote."""
    with h5py.File(io.BytesIO(content)) as file:
        attributes = dict(file.attrs)
        layout = json.loads(str(attributes.pop("layout")))
        found: dict[str, Any] = {}
        for name, about in layout["variables"].items():
            values, attrs = np.asarray(file[name]), dict(about["attrs"])
            values = values.astype(bool) if attrs.pop("dtype", "") == "bool" else values
            found[name] = (about["dims"], values, attrs)
        coords = {
            name: found.pop(name) if name in found else (name, np.asarray(file[name]))
            for name in layout["coords"]
        }
    return xr.Dataset(found, coords, attributes)


def _plain(series: Any) -> np.ndarray:
    """The values, if they are numbers; booleans as bytes."""
    if series.dtype.kind not in "fiub":
        raise TypeError(
            f"a run holds numbers, got {series.dtype} in {getattr(series, 'name', 'a variable')}."
        )
    return series.values.astype(np.int8) if series.dtype.kind == "b" else series.values
