"""Names of a package that are imported when they are first used, so that the command line starts quickly."""

import importlib
from collections.abc import Mapping
from typing import Any


def lazily(package: str, homes: Mapping[str, str], name: str) -> Any:
    """A name of the package, from the module in whose list of names it stands."""
    for module, names in homes.items():
        if name in names.split():
            return getattr(importlib.import_module(f"{package}.{module}"), name)
    raise AttributeError(f"module {package!r} has no attribute {name!r}")
