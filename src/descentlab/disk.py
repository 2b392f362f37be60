"""The disk: files that are written whole or not at all, and what to do where they cannot be."""

import contextlib
import errno
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import xarray as xr

from descentlab.errors import StoreError


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns errors of the disk into what a user can do about them."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        remedy = "Free some room" if full else "Mend that or choose another --store"
        raise StoreError(
            f"{path} cannot be written: {error.strerror or error}. {remedy} and give the same command again; "
            "what is stored stays."
        ) from error


def replace(path: Path, content: bytes) -> None:
    """Writes a file whole or not at all, and has it on disk before anyone sees it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with writing(path):
        try:
            with open(temporary, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


def netcdf(data: xr.Dataset) -> bytes:
    """A dataset as the content of a netCDF file."""
    buffer = io.BytesIO()
    with alone():
        data.to_netcdf(buffer, engine="h5netcdf")
    return buffer.getvalue()


def alone() -> contextlib.AbstractContextManager[Any]:
    """Keeps xarray from locking buffers on a dask scheduler, if this process works for one."""
    if "dask" not in sys.modules:
        return contextlib.nullcontext()
    import dask.config

    return dask.config.set(scheduler="threads")
