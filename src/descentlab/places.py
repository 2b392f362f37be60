"""Where things lie unless told: the store, caches, and papers of your own."""

import os
from pathlib import Path

COMPUTES_NOTHING = True  # where a file lies does not change what is in it (papers/_code.py)
OWN_PAPERS = "descentlab_papers"


def store() -> Path:
    """DESCENTLAB_STORE, else ./store."""
    return Path(os.environ.get("DESCENTLAB_STORE") or "store")


def cache() -> Path:
    """For what can be made or fetched again: below DESCENTLAB_CACHE, XDG_CACHE_HOME or ~/.cache."""
    base = os.environ.get("DESCENTLAB_CACHE") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base).expanduser() / "descentlab"


def own_papers() -> list[str]:
    """The folders that DESCENTLAB_PAPERS names, separated as in PATH; else `descentlab_papers` here."""
    named = os.environ.get("DESCENTLAB_PAPERS", OWN_PAPERS).split(os.pathsep)
    return [str(Path(folder).absolute()) for folder in named if folder]
