"""Provenance: what a run was made with, as it goes into the store beside the run."""

import os
import platform
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from typing import Any

import descentlab

LIBRARIES = ("jax", "jaxlib", "optax", "numpy", "scipy", "xarray")


def provenance() -> dict[str, Any]:
    """Versions, machine and time, as they go into a manifest."""
    return {
        "versions": _versions(),
        "machine": {"system": platform.system(), "processor": platform.machine(), "cores": os.cpu_count()},
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
    }  # fmt: skip


@cache
def _versions() -> dict[str, str]:
    own = {"descentlab": descentlab.__version__, "python": platform.python_version()}
    return own | {name: version(name) for name in LIBRARIES}
