"""Provenance: with what a run was computed, and when. It is stored in the run's manifest."""

import os
import platform
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from typing import Any

import descentlab

LIBRARIES = ("jax", "jaxlib", "optax", "numpy", "scipy", "xarray")


def provenance() -> dict[str, Any]:
    """Versions, machine and time, as a manifest holds them."""
    return {
        "versions": _versions(),
        "machine": {"system": platform.system(), "processor": platform.machine(), "cores": os.cpu_count()},
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
    }  # fmt: skip


@cache
def _versions() -> dict[str, str]:
    own = {"descentlab": descentlab.__version__, "python": platform.python_version()}
    return own | {name: version(name) for name in LIBRARIES}
