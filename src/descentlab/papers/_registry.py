"""The registry: papers by name."""

import importlib
import pkgutil
from functools import cache

import descentlab.papers
from descentlab.errors import PaperError
from descentlab.papers._contract import Paper


def names() -> list[str]:
    """The names of all papers; a module whose name begins with an underscore is none."""
    found = pkgutil.iter_modules(descentlab.papers.__path__)
    return sorted(module.name for module in found if not module.name.startswith("_"))


@cache
def load(name: str) -> Paper:
    """A paper by name; the same object each time, since it keeps compiled programs."""
    if name not in names():
        raise KeyError(f"there is no paper {name}; there are {', '.join(names())}.")
    try:
        module = importlib.import_module(f"descentlab.papers.{name}")
    except Exception as error:
        raise PaperError(f"paper {name} cannot be imported: {type(error).__name__}: {error}") from error
    return Paper(name, module)
