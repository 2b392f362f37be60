"""The registry: papers by name."""

import importlib
import importlib.util
import pkgutil
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from types import ModuleType
from typing import Any

import descentlab.papers
from descentlab.errors import PaperError
from descentlab.judging import Claim, Theorem
from descentlab.papers._contract import Experiment, Figure, Paper, Study, Table
from descentlab.papers._crossings import Crossing

PARTS = ("theorems", "figures")  # of a package; a paper in one file has all in it


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
        declared = _declared(module, "PAPER", Paper)
        branches = [importlib.import_module(f"{module.__name__}.{branch}") for branch in declared.branches]
        sources = [source for part in (module, *branches) for source in _sources(part)]
    except PaperError:
        raise
    except Exception as error:
        raise PaperError(f"paper {name} cannot be imported: {type(error).__name__}: {error}") from error
    # One module may import what another defines.
    found = list({id(one): one for source in sources for one in _found(source)}.values())
    return replace(
        declared, name=name, module=module,
        experiments=(declared.experiment, *(_declared(part, "EXPERIMENT", Experiment) for part in branches)),
        claims=tuple(one for one in found if isinstance(one, Claim)),
        figures=tuple(one for one in found if isinstance(one, Figure | Table)),
        studies={one.name: one for one in found if isinstance(one, Study)},
        crossings=tuple(one for one in found if isinstance(one, Crossing)),
    )  # fmt: skip


def _declared(module: ModuleType, name: str, kind: type) -> Any:
    """What a module declares under a name, of the kind that it must be."""
    found = getattr(module, name, None)
    if not isinstance(found, kind):
        raise PaperError(f"{module.__name__} ({module.__file__}) lacks {name} = {kind.__name__}(...).")
    return found


def _sources(module: ModuleType) -> Iterator[ModuleType]:
    """A module, and its parts if it is a package."""
    yield module
    for part in PARTS if hasattr(module, "__path__") else ():
        if importlib.util.find_spec(f"{module.__name__}.{part}"):
            yield importlib.import_module(f"{module.__name__}.{part}")


def _found(module: ModuleType) -> Iterator[Claim | Figure | Table | Study | Crossing]:
    """The claims of a module's theorems in the order in which they were made, and its figures and so on."""
    values = [
        one for value in vars(module).values() for one in (value if isinstance(value, tuple) else (value,))
    ]
    theorems = [one for one in values if isinstance(one, Theorem)]
    yield from sorted((claim for one in theorems for claim in one.claims), key=lambda claim: claim.made)
    yield from (one for one in values if isinstance(one, Figure | Table | Study | Crossing))
